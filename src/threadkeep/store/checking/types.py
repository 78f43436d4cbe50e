"""Whether values are what is read from their columns: SQLite takes anything in each of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Date,
    Integer,
    LargeBinary,
    Select,
    SmallInteger,
    Table,
    Text,
    and_,
    bindparam,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.types import NullType

from threadkeep.db import tables
from threadkeep.db.types import EscapedText, Identifier, UtcDateTime
from threadkeep.store.checking.findings import Findings
from threadkeep.store.checking.items import MADE

SECONDS: Final = 19  # the length of a time without fractions of seconds
COUNTED: Final = "+0 days"  # lets SQLite count the days, and find that a month has fewer
# How values of a type are stored -> what they are
_STORED: Final = {
    (BigInteger, Integer, SmallInteger): ("integer", "a number"),
    (LargeBinary,): ("blob", "bytes"),
    (Text, Identifier, EscapedText): ("text", "text"),
}


def check_types(findings: Findings) -> None:
    """Find values of another type than their column, which cannot be read, and neither can the rest of the row."""
    if findings.connection.dialect.name != "sqlite":
        return
    for table in tables.METADATA.sorted_tables:
        _check_table(findings, table)


def _check_table(findings: Findings, table: Table) -> None:
    statement, key, checked = _rows_with_wrong_values(table)
    for row in findings.connection.execute(statement, {"tenant": findings.tenant}):
        found = dict(zip(key, row, strict=False))
        for (name, what), is_wrong in zip(checked.items(), row[len(key) :], strict=True):
            if is_wrong:
                findings.add("type", table, found, f"{name} is not {what}")


@cache
def _rows_with_wrong_values(table: Table) -> tuple[Select[Any], list[str], dict[str, str]]:
    """The statement, the key that its rows begin with, and what the columns hold that it says of which are wrong."""
    wrong = {name: (what, is_wrong) for name, what, is_wrong in _wrong_values(table)}
    key = {column.name: type_coerce(column, NullType()) for column in table.primary_key if column.name != "tenant_id"}
    flags = [is_wrong for _, is_wrong in wrong.values()]
    owner = table.c.id if table is tables.tenants else table.c.tenant_id
    columns: list[ColumnElement[Any]] = [*key.values(), *flags]
    statement = select(*columns).where(owner == bindparam("tenant"), or_(*flags))
    return statement, [*key], {name: what for name, (what, _) in wrong.items()}


def _wrong_values(table: Table) -> Iterator[tuple[str, str, ColumnElement[bool]]]:
    """The columns of a table with what they hold, and the condition that a value is something else."""
    for column in table.c:
        value: ColumnElement[Any] = type_coerce(column, NullType())
        if isinstance(column.type, UtcDateTime):
            yield column.name, "a time", _is_given(value, _is_no_time(value))
        elif isinstance(column.type, Date):
            yield column.name, "a day", _is_given(value, func.date(value, COUNTED).is_distinct_from(value))
        elif table is not tables.items or column.name not in MADE:  # those are made again
            stored, what = next(found for types, found in _STORED.items() if isinstance(column.type, types))
            yield column.name, what, _is_given(value, func.typeof(value) != stored)


def _is_given(value: ColumnElement[Any], is_wrong: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(value.is_not(None), is_wrong)


def _is_no_time(value: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether a value is something else than a time with or without fractions of seconds."""
    seconds, rest = func.substr(value, 1, SECONDS), func.substr(value, SECONDS + 1)
    is_fraction = and_(rest.op("GLOB")(".[0-9]*"), ~rest.op("GLOB")(".*[^0-9]*"))
    return or_(
        func.typeof(value) != "text",
        func.datetime(seconds, COUNTED).is_distinct_from(seconds),
        ~or_(rest == "", is_fraction),
    )
