"""Removals are many small transactions: how many rows each of them changes, and that looking for rows locks none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, event, insert

from tests.databases import Database
from tests.factories import an_answer
from tests.store.watching import Tables, engine_of
from threadkeep import Store
from threadkeep.db.backends import backend_of
from threadkeep.db.models import METADATA, response_bodies
from threadkeep.store.work.pacing import (
    FEWEST,
    FIRST,
    LONGEST_BREAK,
    MOST,
    SLICES,
    TARGET,
    UNNOTICED,
    Breaks,
    Done,
    Pace,
)

ITEMS, KEYS, READERS, ANSWERS = 2_300, 1_200, 1_100, 30


class Clock:
    """Time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("threadkeep.store.work.pacing.monotonic", found)
    return found


def transaction(pace: Pace, clock: Clock, rows: int, row_seconds: float) -> Done:
    """A transaction that is given rows which take so long each."""

    def change(some: Any) -> int:
        clock.now += len(some) * row_seconds
        return len(some)

    pace.begin()
    done = pace.change(range(rows), change)
    pace.end()
    return done


@pytest.mark.parametrize(
    ("row_seconds", "before", "after"),
    [
        (0.0, FIRST, 2 * FIRST),
        (TARGET / FIRST / 1.5, FIRST, FIRST * 1.5),
        (TARGET / FIRST * 2, FIRST, FIRST / 2),
        (0.0, MOST, MOST),
        (TARGET * 2, FEWEST, FEWEST),
    ],
    ids=["twice at most", "in proportion", "fewer", "most", "fewest"],
)
def test_rows_follow_the_time_that_they_took(clock: Clock, row_seconds: float, before: int, after: float) -> None:
    pace = Pace()
    pace.rows = before
    assert transaction(pace, clock, MOST, row_seconds).rows <= before
    assert pace.rows == pytest.approx(after, abs=1)


def test_a_transaction_ends_when_its_time_is_over(clock: Clock) -> None:
    """After the slice that takes it beyond; what it was given remains for the next one."""
    pace = Pace()
    assert transaction(pace, clock, FIRST, TARGET) == (FIRST // SLICES, FIRST // SLICES)
    assert pace.rows == FEWEST
    assert transaction(pace, clock, FIRST, TARGET) == (1, 1)


def test_few_rows_tell_nothing_about_many(clock: Clock) -> None:
    pace = Pace()
    transaction(pace, clock, 1, 0.0)
    assert pace.rows == FIRST


def test_breaks_are_as_long_as_the_transactions_before_them() -> None:
    breaks = Breaks()
    assert breaks.after(UNNOTICED) == 0
    assert breaks.after(TARGET) == TARGET
    assert breaks.after(LONGEST_BREAK * 2) == LONGEST_BREAK


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
def test_a_tenant_is_deleted_in_many_transactions(
    stores: Any, database: Database, store: Any, tenant: str, large: Any, tables: Tables
) -> None:
    """With what outlives conversations: its ledger, its change feed, and its idempotency keys."""
    store.create_conversation(model="m", idempotency_key="k")
    multiply(database, tables, "appends", "key", KEYS)
    for name in ("usage_records", "changes"):
        row = tables.rows(name)[-1]
        rows = [{**row, "id": row["id"] + 1 + number} for number in range(KEYS)]
        with database.engine().begin() as connection:
            connection.execute(insert(METADATA.tables[f"threadkeep_{name}"]), rows)
    with rows_changed(store) as changed:
        stores.get("sync").delete_tenant(tenant)
    assert set(tables.counts().values()) == {0}
    assert sum(changed) >= ITEMS + ANSWERS + 3 * KEYS
    assert max(changed) <= MOST


@pytest.mark.parametrize("face", ["sync"])
def test_retention_tells_how_far_it_is(store: Any, large: Any) -> None:
    told: list[tuple[str, int]] = []
    due = store.retain(raw_bodies=timedelta(0), dry_run=True)
    assert store.retain(raw_bodies=timedelta(0), progress=lambda *so_far: told.append(so_far)) == due
    assert due.raw_bodies == ANSWERS
    assert told[-1] == ("raw bodies", ANSWERS)
    assert told == [("raw bodies", count) for count in sorted({count for _, count in told})]  # more each time


def test_looking_for_rows_locks_none(tmp_path: Path) -> None:
    """Another connection writes to the file all the time."""
    path = tmp_path / "chat.db"
    with Store(f"sqlite:///{path}") as store:
        store.create_conversation(model="m", input="Hi").add_response(an_answer("Hi"), "open_responses")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert store.retain(raw_bodies=30).raw_bodies == 0


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("count", [1, 2, ANSWERS])
def test_rows_at_places_are_found_by_their_keys(database: Database, store: Any, large: Any, count: int) -> None:
    """However many there are; nothing of others is read, and nothing else is changed."""
    column, engine = response_bodies.c.number, engine_of(store)
    places = [(large.handle.ref.key, number) for number in range(count)]
    seen: list[tuple[str, Any]] = []

    def watch(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        seen.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", watch)
    try:
        with engine.begin() as connection:
            assert (
                backend_of(connection).change_places(
                    connection, delete(response_bodies), column, store.handle.scope.tenant, places
                )
                == count
            )
    finally:
        event.remove(engine, "before_cursor_execute", watch)
    # PostgreSQL reads a table as small as this one in whatever way, MariaDB all of it where half is meant
    if database.kind == "sqlite" or (database.kind == "mariadb" and count < ANSWERS):
        statement, parameters = seen[-1]
        with engine.connect() as connection:
            one = parameters[0] if isinstance(parameters, list) else parameters  # of an executemany
            explain = "EXPLAIN " if database.kind == "mariadb" else "EXPLAIN QUERY PLAN "
            plan = connection.exec_driver_sql(explain + statement, one).all()
            connection.rollback()
        assert int(plan[0][8]) <= count if database.kind == "mariadb" else "number=?" in plan[0][3]
    assert store.backlog(raw_bodies=0).raw_bodies.count == ANSWERS - count
