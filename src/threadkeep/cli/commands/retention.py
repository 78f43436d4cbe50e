"""``threadkeep retain`` and ``threadkeep erase-user``: how long something is kept, and what must go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from typer import Argument, Option

from threadkeep.cli.formatting import number_of
from threadkeep.cli.options import Text, Yes, on_target
from threadkeep.cli.output import print_text, progress
from threadkeep.cli.target import Target
from threadkeep.cli.time_options import duration_of
from threadkeep.errors import InvalidOption


@on_target()
def retain(
    target: Target,
    *,
    raw_bodies: Annotated[
        Text, Option("--raw-bodies", metavar="TIME", help="Keep raw bodies of answers for this long: 30d, 2w.")
    ] = None,
    content: Annotated[
        Text,
        Option("--content", metavar="TIME", help="Keep conversations for this long after their last activity: 365d."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only count what would be removed.")] = False,
) -> None:
    """Remove what has been kept long enough; the ledger stays."""
    bodies_for, content_for = _checked_duration("--raw-bodies", raw_bodies), _checked_duration("--content", content)
    if bodies_for is None and content_for is None:
        raise InvalidOption("Say how long something is kept: --raw-bodies TIME or --content TIME.")
    with target.store() as store, progress("removed") as advance:
        report = store.retain(
            raw_bodies=bodies_for, content=content_for, dry_run=dry_run, progress=_progress_callback(advance)
        )
    bodies = number_of(report.raw_bodies, "raw body", "raw bodies")
    target.report(
        {"dry_run": dry_run, "raw_bodies": report.raw_bodies, "conversations": report.conversations},
        f"{number_of(report.conversations, 'conversation')} and {bodies} {'would be ' if dry_run else ''}removed.",
    )


@on_target()
def erase_user(
    target: Target,
    user: Annotated[str, Argument(metavar="USER", help="The user_id.")],
    *,
    yes: Yes = False,
) -> None:
    """Remove all content of a user; figures stay, without the user's id."""
    if not yes:
        raise InvalidOption(f"This removes all content of the user {user!r} for good. Give --yes to do it.")
    with target.store() as store, progress("erased") as advance:
        report = store.erase_user(user, progress=_progress_callback(advance))
    rows, items = number_of(report.attempts, "row"), number_of(report.items, "item")
    target.report(
        {
            "conversations": report.conversations, "attempts": report.attempts, "items": report.items,
            "is_scrubbed": report.is_scrubbed,
        },
        f"{number_of(report.conversations, 'conversation')} removed; {rows} of the ledger and {items} of others made "
        "anonymous.",
    )  # fmt: skip
    if report.is_scrubbed is False and not target.is_json:
        print_text("A reader blocked the last step: run the command again to empty the write-ahead log.")


def _checked_duration(option: str, text: str | None) -> timedelta | None:
    """A length of time such as 30d, 2w or 12h."""
    try:
        return None if text is None else duration_of(text)
    except (ValueError, OverflowError) as error:
        raise InvalidOption(f"{option} takes a length of time such as 30d, 2w or 12h, not {text!r}.") from error


def _progress_callback(advance: Callable[[int], None]) -> Callable[[str, int], None]:
    """A function that the library calls with how many of a kind are done, for a bar that counts how many more are."""
    counts: dict[str, int] = {}

    def update(kind: str, count: int) -> None:
        advance(count - counts.get(kind, 0))
        counts[kind] = count

    return update
