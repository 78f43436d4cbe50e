"""Column types mean the same on every database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Connection, Integer, MetaData, Table, insert, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tests.databases import Database
from tests.domain.jsonvalues import TEXT
from threadkeep.db.types import BigBinary, BigText, EscapedText, Hash, Identifier, UtcDateTime, escaped, unescaped

HARD = [
    "a", "A", "a ", " a", "é", "e\u0301", "ß", "ss", "a\x00", "a\\", "a\\u0000", "\\\\", "\ud800", "\udc00\ud800",
    "👩‍👧", "%s", "'", "\t\n\r\x1a", "\ufeff", "\uffff", "\u0130", "\u0131", "i",
]  # fmt: skip
MOMENTS = [
    datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=2))),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]

DIALECTS: list[Any] = [module.dialect() for module in (sqlite, postgresql, mysql)]

KINDS = Table(
    "kinds",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("identifier", Identifier),
    Column("text", EscapedText),
    Column("big", BigText),
    Column("bytes", BigBinary),
    Column("hash", Hash(16)),
    Column("moment", UtcDateTime),
    mysql_charset="utf8mb4",
)


@given(TEXT)
def test_escaping_is_reversible(text: str) -> None:
    stored = escaped(text)
    assert unescaped(stored) == text
    assert "\x00" not in stored
    assert stored.encode().decode() == stored


@given(st.text(st.sampled_from("\\u0d8\x00\ud800a"), max_size=12))
def test_escaping_is_reversible_where_it_is_hard(text: str) -> None:
    assert unescaped(escaped(text)) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00\\")))
def test_usual_text_is_stored_as_it_is(text: str) -> None:
    assert escaped(text) == text


@pytest.fixture
def connection(empty_database: Database) -> Iterator[Connection]:
    with empty_database.engine().begin() as opened:
        KINDS.create(opened)
        yield opened


def test_texts_come_back(connection: Connection) -> None:
    rows = [{"id": number, "identifier": text, "text": text * 9_000} for number, text in enumerate(HARD)]
    connection.execute(insert(KINDS), rows)
    found = connection.execute(select(KINDS.c.identifier, KINDS.c.text).order_by(KINDS.c.id)).all()
    assert [tuple(row) for row in found] == [(text, text * 9_000) for text in HARD]


def test_identifiers_are_compared_byte_by_byte(connection: Connection) -> None:
    connection.execute(insert(KINDS), [{"id": number, "identifier": text} for number, text in enumerate(HARD)])
    for number, text in enumerate(HARD):
        assert connection.execute(select(KINDS.c.id).where(KINDS.c.identifier == text)).scalars().all() == [number]


def test_bytes_come_back(connection: Connection) -> None:
    values: list[dict[str, Any]] = [
        {"id": 1, "bytes": bytes(range(256)) * 300, "hash": bytes(16), "big": "é👩" * 50_000},
        {"id": 2, "bytes": b"", "hash": b"\\x00\x00\xff" + bytes(7) + b" \t ", "big": ""},
    ]
    connection.execute(insert(KINDS), values)
    found = connection.execute(select(KINDS.c.id, KINDS.c.bytes, KINDS.c.hash, KINDS.c.big).order_by(KINDS.c.id)).all()
    assert [
        {"id": row.id, "bytes": bytes(row.bytes), "hash": bytes(row.hash), "big": row.big} for row in found
    ] == values


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_moments_are_aware_and_in_utc(connection: Connection, moment: datetime) -> None:
    connection.execute(insert(KINDS), {"id": 1, "moment": moment})
    found = connection.execute(select(KINDS.c.moment)).scalar_one()
    assert found == moment
    assert found.tzinfo is UTC
    assert connection.execute(select(KINDS.c.id).where(KINDS.c.moment == moment)).scalar_one() == 1
    assert connection.execute(select(KINDS.c.id).where(KINDS.c.moment < moment)).all() == []


def test_nothing_stays_nothing(connection: Connection) -> None:
    connection.execute(insert(KINDS), {"id": 1})
    assert connection.execute(select(KINDS)).one() == (1, *[None] * 6)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_types_are_named(dialect: Any) -> None:
    names = {column.name: column.type.compile(dialect=dialect) for column in KINDS.c}
    if dialect.name == "mysql":
        assert names["identifier"] == "VARBINARY(255)"  # its text collations ignore blanks at the end
        assert names["moment"] == "DATETIME(6)"
        assert names["bytes"] == "LONGBLOB"
        assert names["big"].startswith("LONGTEXT")
        assert names["text"].startswith("LONGTEXT")
    elif dialect.name == "postgresql":
        assert names["moment"] == "TIMESTAMP WITH TIME ZONE"
        assert {names["bytes"], names["hash"]} == {"BYTEA"}
