"""Connections that transactions keep, instead of giving them back to the pool each time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from sqlalchemy import Connection, text

from tests.databases import Database
from tests.factories import a_message
from threadkeep import InvalidOption, Store
from threadkeep.db.driver import executors

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
KEPT = 10  # as many as the pool keeps open


@pytest.fixture
def opened(database: Database) -> Iterator[tuple[Store, Any]]:
    with Store(database.url) as store:
        store.list_conversations()
        yield store, store.handle.transactions


def process(connection: Connection) -> int:
    """The number of the server's process."""
    number: int = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    return number


def at_once(transactions: Any, count: int) -> set[int]:
    """The processes of as many transactions at the same time."""
    barrier = Barrier(count)

    def work(connection: Connection) -> int:
        barrier.wait(timeout=60)
        return process(connection)

    with ThreadPoolExecutor(count) as threads:
        return set(threads.map(lambda _: transactions.read(work), range(count)))


def test_a_connection_is_used_again(opened: tuple[Store, Any]) -> None:
    _, transactions = opened
    assert transactions.read(process) == transactions.read(process) == transactions.write(process)
    assert transactions.engine.pool.checkedout() == 1


def test_no_more_are_kept_than_the_pool_keeps_open(opened: tuple[Store, Any]) -> None:
    """Others may wait for the rest."""
    _, transactions = opened
    assert len(at_once(transactions, KEPT + 5)) == KEPT + 5
    assert 1 <= transactions.engine.pool.checkedout() <= KEPT


def test_the_pool_has_it_back_after_a_while(opened: tuple[Store, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _, transactions = opened
    assert transactions.engine.pool.checkedout() == 1
    monkeypatch.setattr("threadkeep.store.work.transactions.KEPT_SECONDS", 0)
    transactions.read(process)
    assert transactions.engine.pool.checkedout() == 0


def test_one_that_was_not_used_for_long_goes_through_the_pool(
    opened: tuple[Store, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool opens one anew whose time is over, which a firewall or the server may have closed."""
    _, transactions = opened
    before = transactions.read(process)
    monkeypatch.setattr("threadkeep.store.work.transactions.KEPT_SECONDS", 0)
    monkeypatch.setattr(transactions.engine.pool, "_recycle", 0)
    assert transactions.read(process) != before


def test_all_are_given_up_when_one_is_lost(opened: tuple[Store, Any]) -> None:
    """A server that has ended one, such as at a restart, has ended the others."""
    store, transactions = opened
    ended = at_once(transactions, 5)
    with transactions.engine.connect() as connection:
        for number in ended - {process(connection)}:
            connection.execute(text("SELECT pg_terminate_backend(:number)"), {"number": number})
    conversation = store.create_conversation(model="gpt-5.4", input="Hi")
    assert store.get_conversation(conversation.id).request_payload("open_responses")["input"]
    assert ended.isdisjoint(at_once(transactions, 3))


def test_closing_the_store_closes_them(database: Database) -> None:
    with Store(database.url) as store:
        store.list_conversations()
        pool: Any = store.handle.transactions.engine.pool  # type: ignore[union-attr]
        assert pool.checkedout() == 1
    assert pool.checkedout() == 0


@pytest.mark.parametrize("count", [3, 200])
def test_a_cursor_is_kept_unless_it_holds_many_rows(opened: tuple[Store, Any], count: int) -> None:
    store, transactions = opened
    conversation = store.create_conversation(model="gpt-5.4", input=[a_message(str(n)) for n in range(count)])

    def kept(connection: Connection) -> int:
        cursors: Any = connection.connection.info[executors._CURSORS].values()
        assert not any(cursor.closed for cursor in cursors)
        most: int = max(cursor.rowcount for cursor in cursors)
        return most

    assert len(store.get_conversation(conversation.id).request_payload("open_responses")["input"]) == count
    rows = transactions.read(kept)
    assert rows == count + 1 if count < executors._KEPT_ROWS else rows <= executors._KEPT_ROWS


@pytest.mark.parametrize("how", ["kept", "given back"])
def test_a_connection_in_use_is_closed_after_its_store(opened: tuple[Store, Any], how: str) -> None:
    """By whoever was at work on it, as soon as that is done."""
    store, transactions = opened
    begun, closed = Event(), Event()
    used: list[Any] = []

    def work(connection: Connection) -> None:
        used.append(connection.connection.driver_connection)
        begun.set()
        assert closed.wait(60)

    if how == "given back":
        transactions._reading._keeps = False
    thread = Thread(target=transactions.read, args=(work,))
    thread.start()
    assert begun.wait(60)
    store.close()
    assert not used[0].closed
    closed.set()
    thread.join(60)
    assert used[0].closed
    with pytest.raises(InvalidOption, match="closed"):
        store.list_conversations()


@pytest.mark.parametrize(("length", "is_kept"), [(100, True), (70_000, False)])
def test_no_large_result_is_kept(opened: tuple[Store, Any], length: int, *, is_kept: bool) -> None:
    store, transactions = opened
    conversation = store.create_conversation(input=[a_message("x" * length)])
    assert len(store.get_conversation(conversation.id).transcript()) == 1
    results: list[Any] = []

    def look(connection: Connection) -> None:
        cursors = connection.connection.info.get(executors._CURSORS, {}).values()
        results.extend(cursor.pgresult for cursor in cursors if cursor.pgresult is not None)

    transactions.read(look)
    sizes = [
        sum(len(one.get_value(row, column) or b"") for row in range(one.ntuples) for column in range(one.nfields))
        for one in results
    ]
    assert all(size <= executors._KEPT_BYTES for size in sizes)
    assert any(size >= length for size in sizes) == is_kept
