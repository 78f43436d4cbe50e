"""Reading a conversation, or what is new of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from threadkeep.db.queries.items import news_of
from threadkeep.domain.wire import Entry, ServerState
from threadkeep.store.actions.entries import SERVER_STATE, WIDTH, Lineage, entries_from, read_entries, server_state
from threadkeep.store.actions.opening import Opened, get
from threadkeep.store.contents import Contents
from threadkeep.store.place import Place


@dataclass(slots=True)
class Loaded:
    """A conversation as of now, and its items from position `since` on (0: all of them)."""

    conversation: Opened
    entries: Sequence[Entry]
    since: int
    next_position: int
    state: ServerState | None


def load(
    connection: Connection, place: Place, contents: Contents, found: Opened, since: int, *, is_latest: bool = False
) -> Loaded:
    """Read what is new of a conversation: one statement while its options are the same.

    `is_latest`: for who holds the lock of the conversation, and is to see what was committed before.

    Raises:
        NotFound: it is not there any more.
    """
    statement = news_of(connection.dialect.name, scoped=place.scope.is_scoped, latest=is_latest)
    rows = statement.rows(connection, place.scope.bound(key=place.key, branch=place.branch, after=since - 1))
    if not rows:
        raise place.missing()
    revision, next_position = rows[0][WIDTH:]
    if revision != found.facts.revision:
        found = get(connection, place.scope, "id", place.key, contents, place.branch)
        if since:  # a change may concern what was read before
            return load(connection, place, contents, found, 0, is_latest=is_latest)
    entries = entries_from(connection, place, () if rows[0][0] is None else rows, is_latest=is_latest)
    if not since:
        entries = [*_inherited(connection, place, found.lineage, is_latest=is_latest), *entries]
    state = None
    if any(map(found.settings.get, SERVER_STATE)):
        lineage = Lineage(found.lineage.parts, next_position - 1)
        state = server_state(connection, place, lineage, found.settings)
    return Loaded(found, entries, since, next_position, state)


def _inherited(connection: Connection, place: Place, lineage: Lineage, *, is_latest: bool) -> list[Entry]:
    """The items that a branch shares with those it was forked from; they never change."""
    if not lineage.parts:
        return []
    before = lineage.ranges(place.branch, -1, lineage.parts[-1][1])
    return [entry for part in before for entry in read_entries(connection, place, *part, is_latest=is_latest)]
