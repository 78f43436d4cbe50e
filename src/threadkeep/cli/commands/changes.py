"""``threadkeep changes``: print the change feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from threadkeep.cli.options import Text, on_target
from threadkeep.cli.output import iso, print_json_line
from threadkeep.cli.target import PAGE_SIZE, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from threadkeep import Change, Store


@on_target()
def changes(
    target: Target,
    *,
    after: Annotated[
        Text, Option("--after", metavar="CURSOR", help="Continue after the change with this cursor, or from `now`.")
    ] = None,
    follow: Annotated[bool, Option("--follow", help="Wait for further changes, until interrupted.")] = False,
    poll: Annotated[float, Option("--poll", metavar="SECONDS", help="How often to look, with --follow.")] = 1.0,
) -> None:
    """Print the change feed, as lines of JSON.

    It tells what was appended, changed and deleted, oldest first. The cursor in the last line is where to continue.
    """
    with target.store() as store:
        for change in store.watch(after, poll=poll) if follow else _all_changes(store, after):
            print_json_line({**change.to_dict(), "created_at": iso(change.created_at)})


def _all_changes(store: Store, after: str | None) -> Iterator[Change]:
    while page := store.changes(after, limit=PAGE_SIZE):
        yield from page
        after = page.cursor
