"""How databases execute statements: what they read of the rows of others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event

from tests.store.watching import engine_of, sqlite_steps
from threadkeep.db.search.sqlite import SCORE
from threadkeep.domain.searching import score_of

Statement = tuple[str, Any]

# What many conversations of a tenant have in common: an index on these alone finds the rows of all users.
COMMON = {"tenant_id", "status", "type", "role", "branch", "kind"}
STEPS_OF_ROW = 20  # instructions with which SQLite reads a row, sorts and returns it
_ALIAS = re.compile(r"(threadkeep_\w+) AS (\w+)")
_STEP = re.compile(r"^(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?INDEX (\w+))?(?:.*\((.*)\))?$")
_CHANGES = re.compile(r"\b(?:INSERT INTO|REPLACE INTO)\b")


@contextmanager
def recorded(store: Any) -> Iterator[list[Statement]]:
    """The statements that a store runs in the meantime, each with its parameters."""
    engine, seen = engine_of(store), []

    def watch(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH", "INSERT")) and not many:
            seen.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", watch)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", watch)


def foreign_reads(engine: Engine, statement: Statement, most: int) -> list[str]:
    """What a statement reads beyond `most` rows, by what its plan says; nothing for a plain INSERT."""
    with engine.connect() as connection:
        reads = _sqlite if connection.dialect.name == "sqlite" else _postgresql
        try:
            return list(reads(connection, statement, most))
        finally:
            connection.rollback()


def indexes_of(engine: Engine, statement: Statement) -> set[str]:
    """The indexes with which PostgreSQL plans to find the rows of a statement."""
    text, parameters = statement
    with engine.connect() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {text}", parameters).scalar_one()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return {node["Index Name"] for node in _nodes(plan) if "Index Name" in node}


def _sqlite(connection: Connection, statement: Statement, most: int) -> Iterator[str]:
    """Tables that are scanned, or searched by what all have in common, where that is not ended by a LIMIT."""
    text, parameters = statement
    driver: Any = connection.connection.driver_connection
    driver.create_function(SCORE, 3, score_of, deterministic=True)  # as a search gives it to its connection
    names = {name: table for table, name in _ALIAS.findall(text)}
    found = []
    for *_, detail in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters):
        step = _STEP.match(detail)
        table = step and names.get(step[2], step[2])
        if step is None or not str(table).startswith("threadkeep_") or "VIRTUAL TABLE" in detail:
            continue
        if not set(re.findall(r"(\w+)[=<>]", step[4] or "")) - COMMON:
            found.append(detail)
    if found and (steps := _steps(connection, statement)) > most * STEPS_OF_ROW:
        yield from (f"{detail}: {steps:,} steps" for detail in found)


def _steps(connection: Connection, statement: Statement) -> int:
    """How many instructions SQLite's virtual machine needs for a statement, in hundreds."""
    with sqlite_steps(connection, 100) as steps:
        connection.exec_driver_sql(*statement).close()
    return 100 * len(steps)


def _postgresql(connection: Connection, statement: Statement, most: int) -> Iterator[str]:
    """Rows that were read; a statement that inserts is only planned, for it would find what it inserted before.

    Without scans where there is another way: of a few thousand rows, they are the best way to find a hundred.
    """
    text, parameters = statement
    is_planned = _CHANGES.search(text) is not None
    options = "FORMAT JSON" if is_planned else "ANALYZE, FORMAT JSON"
    connection.exec_driver_sql("SET enable_seqscan = off")
    try:
        found = connection.exec_driver_sql(f"EXPLAIN ({options}) {text}", parameters).scalar_one()
    finally:
        connection.exec_driver_sql("RESET enable_seqscan")
    for node in _nodes((json.loads(found) if isinstance(found, str) else found)[0]["Plan"]):
        if "Relation Name" not in node or node["Node Type"] == "ModifyTable":
            continue
        rows = node["Plan Rows"]
        if not is_planned:
            rows = node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        if rows > most:
            yield f"{node['Node Type']} of {node['Relation Name']}: {rows:,.0f} rows"


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for one in plan.get("Plans", ()):
        yield from _nodes(one)
