"""Reading the items of a branch from the columns that databases have packed: the way that most requests go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db.driver import Row
from threadkeep.db.queries.histories import HEAD, joined_history, packed_history
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.packed import entries_of_joined, entries_of_rows
from threadkeep.store.refs import BranchRef


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
    try:
        rows = joined_history(scoped=is_scoped).fetch_all(connection, parameters)
    except DBAPIError as error:
        if "too big" in str(error.orig):  # for one value, all texts together
            return None
        raise
    if rows[0][0] is None:
        raise ref.not_found()
    return _from_joined(rows[0])


def _from_rows(rows: Sequence[Row]) -> PackedHistory | None:
    (_, numbers, *_), *items = rows
    revision, next_position = map(int, numbers.split(" "))
    if not items:
        return PackedHistory(revision, next_position, ())
    _, packed, payloads, rests = zip(*items, strict=True)
    entries = entries_of_rows(packed, payloads, rests)
    return None if entries is None else PackedHistory(revision, next_position, entries)


def _from_joined(row: Row) -> PackedHistory | None:
    revision, next_position, count, packed, payload, rest = row
    if not count:
        return PackedHistory(revision, next_position, ())
    entries = entries_of_joined(count, packed, payload, rest)
    return None if entries is None else PackedHistory(revision, next_position, entries)
