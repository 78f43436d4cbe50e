"""Rows of many conversations, named by their conversation and number: finding them, and changing just these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ARRAY, Column, ColumnElement, Connection, Delete, Update, bindparam, cast, func, or_, select
from sqlalchemy import tuple_ as values_of

# The key of a conversation, and the number of a response or the position of an item there
Place = tuple[int, int]

FIRST_PLACE: Final[Place] = (-1, -1)  # is before all of them
FIRST_HASH: Final = b""  # the same, of rows that are named by hashes

S = TypeVar("S", Delete, Update)


def find_places(
    connection: Connection, column: Column[Any], tenant: int, after: Place, limit: int, which: ColumnElement[bool]
) -> list[Place]:
    """Return where rows of conversations are, behind a place; `column` is that of their numbers."""
    table, (key, number) = column.table.c, after
    statement = (
        select(table.conversation_id, column)
        .where(table.tenant_id == tenant, which, table.conversation_id >= key)
        .where(or_(table.conversation_id > key, column > number))
        .order_by(table.conversation_id, column)
        .limit(limit)
    )
    return [(row[0], row[1]) for row in connection.execute(statement)]


def change_places(
    connection: Connection, statement: S, column: Column[Any], tenant: int, places: Sequence[Place]
) -> int:
    """Run an UPDATE or DELETE on the rows at some places, each found by its key; return how many there were.

    One statement, spelled so that each database uses the key: SQLite reads the whole table for pairs in a list, MariaDB
    for a list of one pair, and PostgreSQL plans each of them on its own.
    """
    table, dialect = column.table.c, connection.dialect.name
    statement = statement.where(table.tenant_id == tenant)
    if dialect == "sqlite" or len(places) == 1:
        each = statement.where(table.conversation_id == bindparam("place_key"), column == bindparam("place_number"))
        return connection.execute(each, [{"place_key": key, "place_number": number} for key, number in places]).rowcount
    pair = values_of(table.conversation_id, column)
    if dialect == "postgresql":
        keys, numbers = zip(*places, strict=True)
        pairs = (
            func.unnest(cast(list(some), ARRAY(of.type)))
            for some, of in ((keys, table.conversation_id), (numbers, column))
        )
        return connection.execute(statement.where(pair.in_(select(*pairs)))).rowcount
    return connection.execute(statement.where(pair.in_(places))).rowcount
