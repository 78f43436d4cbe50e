"""Reading the items of a branch from the columns that databases have packed: the way that most requests go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db.driver import LazyRow, Row, Statement
from threadkeep.db.queries.histories import (
    HEAD,
    STATE_COLUMNS,
    STATE_READER,
    joined_history,
    joined_state,
    packed_history,
    packed_state,
)
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.packed import entries_of_joined, entries_of_rows
from threadkeep.store.refs import BranchRef, Scope

_STATE_WIDTH: Final = len(STATE_COLUMNS)
_HASH_DIGITS: Final = 64


class PackedHistory(NamedTuple):
    """The revision and next position of a conversation, and a branch's own items; their media are not put back yet."""

    revision: int
    next_position: int
    entries: Sequence[Entry]


def read_packed(connection: Connection, ref: BranchRef, parameters: Mapping[str, Any]) -> PackedHistory | None:
    """Read what these parameters select with one statement; None if it has to be read with the columns of entries."""
    is_scoped = ref.scope.user is not None
    if connection.dialect.name == "postgresql":
        rows = packed_history(scoped=is_scoped).fetch_all(connection, parameters)
        if not rows or rows[0][0] != HEAD:
            raise ref.not_found()
        return _from_rows(rows)
    rows = _fetch_joined(joined_history(scoped=is_scoped), connection, parameters)
    if not rows:
        return None
    if rows[0][0] is None:
        raise ref.not_found()
    return _from_joined(rows[0])


def _fetch_joined(statement: Statement, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[Row]:
    """The only row; none where its texts are longer together than a value of SQLite can be."""
    try:
        return statement.fetch_all(connection, parameters)
    except DBAPIError as error:
        if "too big" in str(error.orig):
            return ()
        raise


def _from_rows(rows: Sequence[Row]) -> PackedHistory | None:
    revision, next_position = map(int, rows[0][1].split(" "))
    entries = _entries_of_rows(rows[1:])
    return None if entries is None else PackedHistory(revision, next_position, entries)


def _from_joined(row: Row) -> PackedHistory | None:
    revision, next_position, *texts = row
    entries = _entries_of_joined(*texts)
    return None if entries is None else PackedHistory(revision, next_position, entries)


def _entries_of_rows(rows: Sequence[Row]) -> Sequence[Entry] | None:
    if not rows:
        return ()
    _, packed, payloads, rests = zip(*rows, strict=True)
    return entries_of_rows(packed, payloads, rests)


def _entries_of_joined(count: int, packed: str, payload: bytes | None, rest: bytes | None) -> Sequence[Entry] | None:
    return entries_of_joined(count, packed, payload, rest) if count else ()


class PackedState(NamedTuple):
    """The row of a conversation that is its items on branch 0, and these; their media are not put back yet."""

    row: LazyRow
    entries: Sequence[Entry]


def read_packed_state(connection: Connection, scope: Scope, public_id: bytes, since: int) -> PackedState | None:
    """Read a conversation and its items from a position on with one statement; None if that does not do."""
    parameters = scope.parameters(public_id=public_id, branch=0, after=since - 1)
    is_scoped = scope.user is not None
    if connection.dialect.name == "postgresql":
        rows = packed_state(scoped=is_scoped).fetch_all(connection, parameters)
        if not rows or rows[0][0] != HEAD:
            return None
        values, entries = _state_of(rows[0], public_id), _entries_of_rows(rows[1:])
    else:
        rows = _fetch_joined(joined_state(scoped=is_scoped), connection, parameters)
        if not rows or rows[0][0] is None:
            return None
        values, entries = rows[0], _entries_of_joined(*rows[0][_STATE_WIDTH:])
    if entries is None:
        return None
    (row,) = STATE_READER.read(connection.dialect, [values])
    return PackedState(row, entries)


def _state_of(head: Row, public_id: bytes) -> Row:
    """The `STATE_COLUMNS`, of the row in front of the items."""
    _, numbers, _, digits = head
    key, next_position, head_position, revision = map(int, numbers.split(" "))
    hashes = digits.decode()
    config, tools = bytes.fromhex(hashes[:_HASH_DIGITS]), bytes.fromhex(hashes[_HASH_DIGITS:]) or None
    return key, public_id, config, tools, 0, next_position, head_position, None, revision
