"""Statement builders return statements that every database understands, and each of them names the tenant."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from sqlalchemy import Table, column, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.dialects.postgresql import psycopg

from threadkeep.db.driver import RowReader, Statement
from threadkeep.db.driver.inserting import insert_statement
from threadkeep.db.functions import sql_function
from threadkeep.db.models import METADATA
from threadkeep.db.models import changes as changes_table
from threadkeep.db.models import items as items_table
from threadkeep.db.models import responses as responses_table
from threadkeep.db.models import usage_records as usage_records_table
from threadkeep.db.queries import conversations, items, responses
from threadkeep.db.queries.appends import placed_rows
from threadkeep.db.queries.lists import ListQuery, conversation_page
from threadkeep.db.types import escaped

MODULES: list[Any] = [sqlite, psycopg, pymysql]
DIALECTS = [module.dialect() for module in MODULES]
BUILDERS = [
    builder
    for module in (conversations, items, responses)
    for _, builder in inspect.getmembers(module, callable)
    if builder.__module__ == module.__name__ and hasattr(builder, "cache_info")
]
COLUMNS = {"conversations": ["title", "user_id"], "responses": ["status", "finish_reason"]}  # module -> of its table
CHOICES: dict[str, list[Any]] = {
    "str": ["id", "public_id", "external_id"],  # names of columns
    "sa.Column[Any]": [responses_table.c.response_hash, usage_records_table.c.id],
    "bool": [False, True],
    "int": [0, 2],
    "Collection[str]": [("message",)],
    "str | None": [None, "day"],
    "tuple[int, ...]": [(0,), (0, 3600)],
    "Among | None": [None, "newest", "oldest"],
}


def calls(builder: Callable[..., Any]) -> Iterator[Any]:
    """The builder's statements, for all pairs of values of its options."""
    named: dict[str, list[Any]] = {}
    columns: list[str] = []
    for parameter in inspect.signature(builder).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            columns = COLUMNS[builder.__module__.rpartition(".")[2]]
        else:
            named[parameter.name] = CHOICES[str(parameter.annotation)]
    met: set[Any] = set()
    for values in sorted(itertools.product(*named.values()), key=lambda values: crc32(repr(values).encode())):
        options = dict(zip(named, values, strict=True))
        pairs = set(itertools.combinations(options.items(), min(2, len(options))))
        if not pairs <= met:
            met |= pairs
            yield builder(*columns, **options)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_statements_compile(dialect: Any) -> None:
    for made in itertools.chain.from_iterable(map(calls, BUILDERS)):
        statement: Any = made.statement if isinstance(made, Statement) else made
        text = str(statement.compile(dialect=dialect))
        assert "tenant_id" in text
        assert getattr(statement, "_offset_clause", None) is None
        if isinstance(made, Statement):
            compiled = made.compiled(dialect)
            assert compiled.text == text
            assert all(f"%({name})s" in text for name in compiled.names) or compiled.is_positional


def text_of(made: Any, dialect: Any) -> str:
    return str(getattr(made, "statement", made).compile(dialect=dialect))


def test_a_page_of_conversations_is_bound_by_a_range() -> None:
    """Row values are no range on MariaDB, and a plain OR is none on PostgreSQL."""
    found = text_of(conversation_page(ListQuery(after=True)), DIALECTS[0])
    assert "last_activity_at <= ?" in found
    assert "last_activity_at < ? OR threadkeep_conversations.id < ?" in found


def test_the_heads_of_branches_are_moved_first_on_mysql() -> None:
    """MySQL shows later assignments of an UPDATE the new values of earlier ones."""
    made = conversations.reservation(root=True, scoped=False, expected=False, returning=False)
    found = text_of(made, DIALECTS[2])
    assert found.index("head_position=") < found.index("next_position=(")


def test_where_a_row_may_have_been_updated_is_asked_only_where_needed() -> None:
    for dialect in DIALECTS:
        returns = dialect.name != "mysql"
        made = conversations.reservation(root=False, scoped=True, expected=True, returning=returns)
        assert ("RETURNING" in text_of(made, dialect)) == returns


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_parameters_pass_their_types(dialect: Any) -> None:
    """A prepared statement gives the driver what the column types make of the values."""
    compiled = insert_statement(items_table).compiled(dialect)
    values = dict.fromkeys((column.name for column in items_table.columns), None) | {
        "call_id": "a\x00",
        "type": "message",
    }
    arguments = compiled.bind(values)
    by_name = dict(zip(compiled.names, arguments, strict=True)) if compiled.is_positional else arguments
    assert by_name["call_id"] == "a\\u0000"
    assert by_name["type"] == (b"message" if dialect.name == "mysql" else "message")
    assert by_name["payload"] is None


def bound(statement: Any, dialect: Any, shared: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments of a statement for rows, by the names of its parameters."""
    compiled = statement.compiled(dialect)
    arguments, many = statement.arguments(compiled, shared, rows)
    assert not many
    return dict(zip(compiled.names, arguments, strict=True)) if compiled.is_positional else arguments


TAKEN = {
    "tenant": 7, "key": 8, "branch": 0, "now": datetime(2026, 1, 2, tzinfo=UTC), "taken_first": 40, "taken_response": 3,
    "taken_user_id": None, "taken_config_hash": b"c" * 32, "taken_tool_set_hash": None,
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("texts", [("a", "b"), ("a", "b\\c"), ("\u00e4", "\x00"), ("a", None)])
def test_values_of_rows_and_what_they_share_are_bound_in_one_pass(dialect: Any, texts: tuple[str, str | None]) -> None:
    """Each value where its parameter is; texts are escaped, whichever of them has to be, and the rest is NULL."""
    first, second = texts
    row = {"position": 0, "type": "message", "item_id": first, "call_id": second}
    found = bound(placed_rows((items_table,)), dialect, TAKEN, [row])
    assert found["row0_item_id"] == escaped(first)
    assert found["row0_call_id"] == (None if second is None else escaped(second))
    assert found["row0_type"] == (b"message" if dialect.name == "mysql" else "message")
    assert (found["tenant"], found["taken_first"], found["row0_payload"]) == (7, 40, None)


def test_rows_of_several_tables_are_bound_for_one_statement_of_postgresql() -> None:
    rows = [{"position": 0, "type": "message"}, {"kind": "appended", "serial": 5, "to_position": 1}]
    tables = (items_table, changes_table)
    found = bound(placed_rows(tables), DIALECTS[1], TAKEN, rows)
    assert (found["row0_type"], found["row1_kind"]) == ("message", "appended")
    assert (found["row0_position"], found["row1_to_position"], found["row1_serial"]) == (0, 1, 5)
    assert found["row0_payload"] is found["row1_public_id"] is None


def test_several_rows_of_one_table_are_several_sets_of_arguments() -> None:
    dialect = sqlite.dialect()
    statement = placed_rows((items_table,))
    rows = [{"position": position, "type": "message"} for position in range(3)]
    arguments, many = statement.arguments(statement.compiled(dialect), TAKEN, rows)
    assert many
    assert len(arguments) == len(rows)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_values_of_a_row_pass_their_types_when_they_are_read(dialect: Any) -> None:
    connection: Any = SimpleNamespace(dialect=dialect)
    reader = RowReader([items_table.c.item_id, items_table.c.type, items_table.c.position, items_table.c.call_id])
    (row,) = reader.read(connection, [("a\\\\b", "message", 3, None, "behind the columns")])
    assert (row.item_id, row.type, row.position, row.call_id) == ("a\\b", "message", 3, None)
    with pytest.raises(AttributeError):
        _ = row.payload
    assert reader.values(connection, tuple(row[:4])) == ["a\\b", "message", 3, None]
    assert reader.mappings(connection, [tuple(row[:4])])[0]["item_id"] == "a\\b"


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=lambda table: table.name)
def test_rows_are_inserted_many_at_once(table: Table) -> None:
    """From Python 3.12 on, sqlite3 executes no statement that returns rows for several sets of parameters."""
    for dialect in DIALECTS:
        assert "RETURNING" not in insert_statement(table).compiled(dialect).text


def test_a_function_is_spelled_as_each_database_has_it() -> None:
    """Arguments come where the SQL of a dialect names them, with the parameters of these alone."""
    twice = sql_function("twice", sqlite="{1} % {0}", mysql="{1} % {1}")
    statement = select(twice(column("a"), column("b") + 5))
    texts = [str(statement.compile(dialect=dialect)) for dialect in (DIALECTS[0], DIALECTS[2])]
    assert texts == ["SELECT b + ? % a AS twice_1", "SELECT b + %s %% b + %s AS twice_1"]
    with pytest.raises(TypeError, match="twice has no spelling for postgresql"):
        statement.compile(dialect=DIALECTS[1])
