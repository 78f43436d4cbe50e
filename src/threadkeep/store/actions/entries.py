"""Reading items: the ranges of a branch, and its items as the formats read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, or_

from threadkeep.db.cursors import Row
from threadkeep.db.dialects import is_mysql
from threadkeep.db.prepared import Record
from threadkeep.db.queries.conversations import FACTS_READER, branch_of, conversation_by
from threadkeep.db.queries.items import blobs_of, entries_of
from threadkeep.db.tables import responses
from threadkeep.db.types import name_from
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.wire import Entry, ServerState
from threadkeep.errors import NotFound
from threadkeep.formats.streams import BROKEN_OFF
from threadkeep.store.drafts import SPLICED, spliced
from threadkeep.store.place import Place, Scope

WIDTH: Final = len(Entry._fields)
CALL_ID, PAYLOAD, REST = (Entry._fields.index(name) for name in ("call_id", "payload", "rest"))
WORDS: Final = tuple(Entry._fields.index(name) for name in ("type", "role", "origin"))
SERVER_STATE = ("previous_response_id", "conversation")
_BROKEN_OFF: Final = dumps(BROKEN_OFF).decode()


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


def facts_of(connection: Connection, scope: Scope, column: str, value: Any, *, is_kept: bool = False) -> Record | None:
    """The row of a conversation by id, public_id or external_id; None when this scope has none.

    `is_kept`: nobody changes or hides it before the end of the transaction.
    """
    statement = conversation_by(column, scoped=scope.is_scoped, kept=is_kept)
    rows = statement.rows(connection, scope.bound(value=value))
    return FACTS_READER.records(connection.dialect, rows)[0] if rows else None


def facts_at(connection: Connection, place: Place, *, is_kept: bool = False) -> Record:
    """The row of the conversation at a place; `is_kept` as in `facts_of`.

    Raises:
        NotFound: it is gone, or not for this scope.
    """
    facts = facts_of(connection, place.scope, "id", place.key, is_kept=is_kept)
    if facts is None:
        raise place.missing()
    return facts


def lineage_of(connection: Connection, place: Place, facts: Record) -> Lineage:
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


def read_entries(
    connection: Connection, place: Place, branch: int, after: int, upto: int, *, is_latest: bool = False
) -> list[Entry]:
    """The items of one range, media in place; `is_latest`: for who holds the lock of the conversation."""
    parameters = {"tenant": place.scope.tenant, "key": place.key, "branch": branch, "after": after, "upto": upto}
    rows = entries_of(connection.dialect.name, latest=is_latest).rows(connection, parameters)
    return entries_from(connection, place, rows, is_latest=is_latest)


def entries_from(connection: Connection, place: Place, rows: Sequence[Row], *, is_latest: bool = False) -> list[Entry]:
    """Entries of rows that begin with the columns of one, as the driver gives them; media in place."""
    if is_mysql(connection.dialect):
        found = [_decoded(row[:WIDTH]) for row in rows]
    else:  # long texts come as bytes
        found = list(map(_NEW_ENTRY, repeat(Entry), map(_COLUMNS, rows)))
        if "\\" in "".join(filter(None, map(_CALL_ID, found))):  # something is escaped
            found = [entry._replace(call_id=name_from(entry.call_id)) for entry in found]
    if max(map(_codec, found), default=0) < SPLICED:
        return found
    flagged = [entry.position for entry in found if entry.codec & SPLICED]
    parameters = {"tenant": place.scope.tenant, "key": place.key, "after": min(flagged) - 1, "upto": max(flagged)}
    return spliced(found, connection.execute(blobs_of(connection.dialect.name, latest=is_latest), parameters))


_COLUMNS: Final = itemgetter(slice(WIDTH))
_NEW_ENTRY: Final[Callable[[type[Entry], Iterable[Any]], Entry]] = tuple.__new__  # without a check of its width
_CALL_ID: Final = itemgetter(CALL_ID)
_codec: Final = itemgetter(Entry._fields.index("codec"))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decoded(row: Row) -> Entry:
    """An entry of MySQL, which gives short columns as bytes and long ones as text."""
    values = list(row)
    for place in WORDS:
        if isinstance(values[place], bytes):
            values[place] = values[place].decode()
    values[CALL_ID] = name_from(row[CALL_ID])
    values[PAYLOAD], values[REST] = _bytes(row[PAYLOAD]), _bytes(row[REST])
    return _NEW_ENTRY(Entry, values)


def held(table: Any) -> list[ColumnElement[bool]]:
    """Responses that a provider holds: not those in progress, nor those whose stream was left before its end."""
    return [
        table.open_branch.is_(None),
        or_(table.status.is_(None), table.status != "cancelled"),
        or_(table.incomplete_details.is_(None), table.incomplete_details != _BROKEN_OFF),
    ]


def server_state(connection: Connection, place: Place, lineage: Lineage, settings: JsonObject) -> ServerState:
    """What the provider holds of a conversation in server state: its newest answer on this branch."""
    table = responses.c
    statement = (
        responses.select()
        .with_only_columns(table.branch, table.from_position, table.to_position, table.provider_response_id)
        .where(
            table.tenant_id == place.scope.tenant,
            table.conversation_id == place.key,
            table.format == "open_responses",
            *held(table),
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
    if settings.get("conversation") is not None:  # it names the history, and excludes the other name for it
        previous = None
    start = settings.get("response_boundary", 0) - 1
    return ServerState(previous or initial, start if boundary is None else boundary)
