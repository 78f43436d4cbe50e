"""Reading items: the ranges of a branch, and its items as the formats read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from threadkeep.db.queries.conversations import branch_of, conversation_by
from threadkeep.db.queries.items import blobs_of, entries_of
from threadkeep.db.tables import responses
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.wire import Entry, ServerState
from threadkeep.errors import NotFound
from threadkeep.store.contents import Contents
from threadkeep.store.drafts import SPLICED, spliced
from threadkeep.store.place import Place, Scope

SERVER_STATE = ("previous_response_id", "conversation")


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a branch is made of: (branch, last position) for each part before its own items, and where it ends."""

    parts: tuple[tuple[int, int], ...]
    head: int

    def ranges(self, branch: int, after: int, upto: int) -> list[tuple[int, int, int]]:
        """The parts as (branch, after, up to), cut to the positions asked for."""
        found, start = [], -1
        for number, end in (*self.parts, (branch, upto)):
            low, high = max(start, after), min(end, upto)
            if low < high:
                found.append((number, low, high))
            start = max(start, end)
        return found

    def has(self, branch: int, position: int, branch_of_position: int) -> bool:
        """Whether the item at a position, stored for some branch, belongs to this one."""
        return any(
            number == branch_of_position and after < position <= upto
            for number, after, upto in self.ranges(branch, -1, self.head)
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What a handle has read already."""

    revision: int
    next_position: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A conversation as of now: its row, options, tools, and the items that the handle did not have."""

    facts: Row[Any]
    settings: JsonObject
    tools: Sequence[JsonObject]
    lineage: Lineage
    entries: Sequence[Entry]
    is_whole: bool  # False: `entries` only holds what is new
    state: ServerState | None


def facts_of(connection: Connection, scope: Scope, column: str, value: Any) -> Row[Any] | None:
    """The row of a conversation by id, public_id or external_id; None when this scope has none."""
    statement = conversation_by(column, scoped=scope.is_scoped)
    return connection.execute(statement, scope.bound(value=value)).one_or_none()


def facts_at(connection: Connection, place: Place) -> Row[Any]:
    """The row of the conversation at a place.

    Raises:
        NotFound: it is gone, or not for this scope.
    """
    facts = facts_of(connection, place.scope, "id", place.key)
    if facts is None:
        raise place.missing()
    return facts


def lineage_of(connection: Connection, place: Place, facts: Row[Any]) -> Lineage:
    """The lineage of the branch at a place.

    Raises:
        NotFound: the conversation has no such branch.
    """
    if place.branch == 0:
        return Lineage((), facts.head_position)
    parameters = {"tenant": place.scope.tenant, "key": place.key, "number": place.branch}
    row = connection.execute(branch_of(), parameters).one_or_none()
    if row is None:
        raise NotFound(f"The conversation {place.public_id} has no branch {place.branch}. branches() lists them.")
    return Lineage(tuple((number, end) for number, end in loads(row.lineage)), row.head_position)


def load(connection: Connection, place: Place, contents: Contents, known: Known | None) -> Loaded:
    """Read a conversation, or what is new of it: the row first, then the items below its next position."""
    facts = facts_at(connection, place)
    lineage = lineage_of(connection, place, facts)
    is_whole = known is None or known.revision != facts.revision
    after = -1 if is_whole or known is None else known.next_position - 1
    upto = facts.next_position - 1
    entries = [
        entry for part in lineage.ranges(place.branch, after, upto) for entry in read_entries(connection, place, *part)
    ]
    settings = contents.settings(connection, place.scope.tenant, facts.config_hash)
    return Loaded(
        facts,
        settings,
        contents.tools(connection, place.scope.tenant, facts.tool_set_hash),
        lineage,
        entries,
        is_whole,
        server_state(connection, place, lineage, settings),
    )


def read_entries(connection: Connection, place: Place, branch: int, after: int, upto: int) -> list[Entry]:
    """The items of one range, media in place."""
    dialect = connection.dialect.name
    parameters = {"tenant": place.scope.tenant, "key": place.key, "branch": branch, "after": after, "upto": upto}
    rows = connection.execute(entries_of(dialect), parameters).all()
    return entries_from(connection, place, rows)


def entries_from(connection: Connection, place: Place, rows: Sequence[Any]) -> list[Entry]:
    """Entries of rows that begin with an entry's columns, media in place."""
    width = len(Entry._fields)
    if connection.dialect.name == "sqlite":
        found = [Entry._make(row[:width]) for row in rows]
    else:
        found = [_encoded(Entry._make(row[:width])) for row in rows]
    flagged = [entry.position for entry in found if entry.codec & SPLICED]
    if not flagged:
        return found
    parameters = {"tenant": place.scope.tenant, "key": place.key, "after": min(flagged) - 1, "upto": max(flagged)}
    return spliced(found, connection.execute(blobs_of(), parameters))


def server_state(connection: Connection, place: Place, lineage: Lineage, settings: JsonObject) -> ServerState | None:
    """What the provider holds, for conversations in server state: its newest answer on this branch."""
    if not any(settings.get(name) for name in SERVER_STATE):
        return None
    table = responses.c
    statement = (
        responses.select()
        .with_only_columns(table.branch, table.from_position, table.to_position, table.provider_response_id)
        .where(
            table.tenant_id == place.scope.tenant,
            table.conversation_id == place.key,
            table.format == "open_responses",
        )
        .order_by(table.number.desc())
    )
    previous, boundary = None, None
    for row in connection.execute(statement):
        if not lineage.has(place.branch, max(row.from_position, row.to_position), row.branch):
            continue
        boundary = row.to_position if boundary is None else boundary
        previous = row.provider_response_id
        if previous is not None:
            break
    initial = settings.get("previous_response_id")
    start = settings.get("response_boundary", 0) - 1
    return ServerState(previous or initial, start if boundary is None else boundary)


def _encoded(entry: Entry) -> Entry:
    payload, rest = entry.payload, entry.rest
    return entry._replace(
        payload=None if payload is None else payload.encode(),  # type: ignore[attr-defined]  # text, on this database
        rest=None if rest is None else rest.encode(),  # type: ignore[attr-defined]
    )
