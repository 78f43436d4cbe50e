"""``threadkeep retain`` and ``threadkeep erase-user``: what is kept how long, and what must go."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final

import typer

from threadkeep.cli.figures import number_of
from threadkeep.cli.output import print_json, print_text, progress
from threadkeep.cli.place import AsJson, Tenant, Url, opened, place_of
from threadkeep.errors import InvalidOption

_LENGTH: Final = re.compile(r"(\d{1,9})([dwh])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


def length_of(option: str, text: str | None) -> timedelta | None:
    """A length of time such as 30d, 2w or 12h.

    Raises:
        InvalidOption: it is none.
    """
    if text is None:
        return None
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise InvalidOption(f"{option} takes a length of time such as 30d, 2w or 12h, not {text!r}.")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError as error:
        raise InvalidOption(f"{option}={text} is longer than anybody keeps anything.") from error


def _advancing(advance: Callable[[int], None]) -> Callable[[str, int], None]:
    """What tells a bar how much more was done, of one that is told how much there is of each kind."""
    done: dict[str, int] = {}

    def tell(what: str, count: int) -> None:
        advance(count - done.get(what, 0))
        done[what] = count

    return tell


def retain(
    context: typer.Context,
    *,
    raw_bodies: Annotated[
        str | None, typer.Option("--raw-bodies", metavar="TIME", help="Keep raw bodies of answers so long: 30d, 2w.")
    ] = None,
    content: Annotated[
        str | None,
        typer.Option("--content", metavar="TIME", help="Keep conversations so long after their last activity: 365d."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Remove what has been kept long enough; the ledger stays."""
    lengths = {"raw_bodies": length_of("--raw-bodies", raw_bodies), "content": length_of("--content", content)}
    if not any(length is not None for length in lengths.values()):
        raise InvalidOption("Say how long something is kept: --raw-bodies TIME or --content TIME.")
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place) as store, progress("removed") as advance:
        found = store.retain(**lengths, dry_run=dry_run, progress=_advancing(advance))
    if place.is_json:
        print_json({"dry_run": dry_run, "raw_bodies": found.raw_bodies, "conversations": found.conversations})
    else:
        verb = "would be removed" if dry_run else "removed"
        bodies = number_of(found.raw_bodies, "raw body", "raw bodies")
        print_text(f"{number_of(found.conversations, 'conversation')} and {bodies} {verb}.")


def erase_user(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="The user_id.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: without this nothing is erased.")] = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Remove all content of a user; figures stay without a name."""
    if not yes:
        raise InvalidOption(f"Everything of {user!r} would be removed for good. Say --yes to do it.")
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place) as store, progress("erased") as advance:
        found = store.erase_user(user, progress=_advancing(advance))
    if place.is_json:
        print_json(
            {
                "conversations": found.conversations, "attempts": found.attempts, "items": found.items,
                "is_scrubbed": found.is_scrubbed,
            }
        )  # fmt: skip
        return
    rows, items = number_of(found.attempts, "row"), number_of(found.items, "item")
    print_text(
        f"{number_of(found.conversations, 'conversation')} removed; {rows} of the ledger and {items} of others made "
        "anonymous."
    )
    if found.is_scrubbed is False:
        print_text("A reader held up the last step: run the command again to empty the write-ahead log.")
