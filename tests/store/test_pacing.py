"""Removals are many small transactions: how many rows each of them changes, and that looking for rows locks none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert

from tests.databases import Database
from tests.factories import an_answer
from tests.store.watching import Tables, engine_of
from threadkeep import Store
from threadkeep.db.tables import METADATA
from threadkeep.store.pacing import FEWEST, FIRST, MOST, QUICK, SLOW, UNNOTICED, Breaks, Pace

ITEMS, KEYS, READERS, ANSWERS = 2_300, 1_200, 1_100, 30


def test_slow_transactions_become_smaller_and_quick_ones_larger() -> None:
    pace = Pace()
    assert pace.rows == FIRST
    for _ in range(20):
        pace.after(QUICK / 2)
    assert pace.rows == MOST
    for seconds, rows in ((SLOW * 2, MOST // 2), ((SLOW + QUICK) / 2, MOST // 2), (SLOW * 2, MOST // 4)):
        pace.after(seconds)
        assert pace.rows == rows
    for _ in range(20):
        pace.after(SLOW * 2)
    assert pace.rows == FEWEST


def test_breaks_are_as_long_as_the_transactions_before_them() -> None:
    breaks = Breaks()
    assert breaks.after(UNNOTICED) == 0
    assert breaks.after(QUICK) == QUICK
    assert breaks.after(SLOW * 2) == SLOW


@contextmanager
def rows_changed(store: Any) -> Iterator[list[int]]:
    """How many rows each transaction changes meanwhile, those that go with them by a foreign key left out."""
    engine = engine_of(store)
    changed = [0]

    def count(_connection: Any, cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(("DELETE", "UPDATE")):
            changed[-1] += cursor.rowcount

    def begin_another(_connection: Any) -> None:
        changed.append(0)

    event.listen(engine, "after_cursor_execute", count)
    event.listen(engine, "commit", begin_another)
    try:
        yield changed
    finally:
        event.remove(engine, "after_cursor_execute", count)
        event.remove(engine, "commit", begin_another)


@pytest.fixture
def large(store: Any) -> Any:
    """A conversation with more of everything than one transaction removes."""
    conversation = store.create_conversation(model="m", user_id="u1")
    conversation.add_items([{"role": "user", "content": str(number), "author_id": "u2"} for number in range(ITEMS)])
    for _ in range(ANSWERS):
        conversation.add_response(an_answer("Hi"), "open_responses")
    return conversation


def multiply(database: Database, tables: Tables, name: str, column: str, count: int) -> None:
    """Add rows like the only one of a table, with names of their own."""
    (row,) = tables.rows(name)
    rows = [{**row, column: f"{row[column]} {number}"} for number in range(count)]
    with database.engine().begin() as connection:
        connection.execute(insert(METADATA.tables[f"threadkeep_{name}"]), rows)


@pytest.mark.parametrize("face", ["sync"])
def test_a_deletion_removes_some_rows_in_each_transaction(
    database: Database, store: Any, large: Any, tables: Tables
) -> None:
    large.add_item({"role": "user", "content": "x"}, idempotency_key="k")
    large.mark_seen("reader")
    multiply(database, tables, "appends", "key", KEYS)
    multiply(database, tables, "conversation_reads", "user_id", READERS)
    with rows_changed(store) as changed:
        store.delete_conversation(large.id)
    counts = tables.counts()
    left = {name for name in ("items", "appends", "conversation_reads", "responses", "conversations") if counts[name]}
    assert left == set()
    assert sum(changed) >= ITEMS + KEYS + READERS + ANSWERS
    assert max(changed) <= MOST + 10  # and what there is few of, with the last ones


@pytest.mark.parametrize("face", ["sync"])
def test_an_erasure_changes_some_rows_in_each_transaction(store: Any, large: Any, tables: Tables) -> None:
    with rows_changed(store) as changed:
        assert store.erase_user("u2").items == ITEMS
    assert {row["author_id"] for row in tables.rows("items")} == {None}
    assert sum(changed) >= ITEMS
    assert max(changed) <= MOST


@pytest.mark.parametrize("face", ["sync"])
def test_retention_tells_how_far_it_is(store: Any, large: Any) -> None:
    told: list[tuple[str, int]] = []
    due = store.retain(raw_bodies=timedelta(0), dry_run=True)
    assert store.retain(raw_bodies=timedelta(0), progress=lambda *so_far: told.append(so_far)) == due
    assert due.raw_bodies == ANSWERS
    assert told == [("raw bodies", ANSWERS)]


def test_looking_for_rows_locks_none(tmp_path: Path) -> None:
    """Another connection writes to the file all the time."""
    path = tmp_path / "chat.db"
    with Store(f"sqlite:///{path}") as store:
        store.create_conversation(model="m", input="Hi").add_response(an_answer("Hi"), "open_responses")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert store.retain(raw_bodies=30).raw_bodies == 0
