"""Threads that write to a SQLite file at the same time share a transaction, and each gets its own result or error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from tests.databases import Database
from tests.factories import an_answer, texts_of
from tests.waiting import wait_until
from threadkeep import AsyncStore, Conversation, HeadConflict, IdempotencyConflict, Store
from threadkeep.store.store import from_handle
from threadkeep.store.work import groups
from threadkeep.store.work.units import OwnTransactions

pytestmark = pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)

WRITERS = 6
ANSWER = an_answer("Hello", id="resp_1")


both_ways = pytest.mark.parametrize("way", ["threads", "one thread"])


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group takes as many as wait, however slowly the first ones write."""
    monkeypatch.setattr(groups, "GROUP_SECONDS", 60)


@pytest.fixture
def store(empty_database: Database) -> Iterator[Any]:
    with Store(empty_database.url, search=False) as opened:
        yield opened


def commits_of(store: Any) -> list[object]:
    """One entry for each COMMIT from now on."""
    commits: list[object] = []
    event.listen(store.handle.transactions.engine, "commit", commits.append)
    return commits


@contextmanager
def held_back(store: Any, calls: Sequence[Callable[[], object]], way: str = "threads") -> Iterator[list[Future[Any]]]:
    """Let these calls wait for the end of a unit of work, one behind the other: the first one leads the others."""
    writers = store.handle.transactions.writers
    if way == "one thread":
        with ThreadPoolExecutor(1) as pool:
            with store.begin():
                running = pool.submit(groups.run_calls, calls)
                wait_until(partial(writers.has, len(calls) - 1))
            futures = [Future[Any]() for _ in calls]
            for future, (result, error) in zip(futures, running.result(), strict=True):
                future.set_result(result) if error is None else future.set_exception(error)
            yield futures
        return
    with ThreadPoolExecutor(len(calls)) as pool:
        with store.begin():
            futures = []
            for number, call in enumerate(calls):
                futures.append(pool.submit(call))
                wait_until(partial(writers.has, number))
        yield futures


def conversations(store: Any, count: int = WRITERS) -> list[Conversation]:
    return [store.create_conversation(model="m", input=f"first {number}") for number in range(count)]


def turns(talks: Sequence[Conversation]) -> list[Callable[[], object]]:
    def turn(talk: Conversation, number: int) -> Callable[[], object]:
        return lambda: talk.add_turn(f"asked {number}", ANSWER, "open_responses", idempotency_key="k")

    return [turn(talk, number) for number, talk in enumerate(talks)]


def check(store: Any, talks: Sequence[Conversation], missing: Sequence[int] = ()) -> None:
    """Every conversation has its turn once, but for some that have none; and the ledger has a row for each turn."""
    for number, talk in enumerate(talks):
        told = [] if number in missing else [f"asked {number}", "Hello"]
        assert texts_of(store.get_conversation(talk.id).transcript()) == [f"first {number}", *told]
    [row] = store.usage()
    assert row.attempts == len(talks) - len(missing)
    assert not store.check().findings


@both_ways
def test_turns_that_wait_are_committed_together(store: Any, way: str) -> None:
    talks = conversations(store)
    commits = commits_of(store)
    with held_back(store, turns(talks), way) as futures:
        assert [future.result().response.stored.number for future in futures] == [0] * WRITERS
    assert len(commits) == 2  # that of the unit of work, and one for all turns
    check(store, talks)
    for talk in talks:  # the handles know what was written
        assert talk.user("more").position == 3


def test_each_writer_commits_alone_where_the_store_is_told_so(empty_database: Database) -> None:
    with Store(empty_database.url, group_commit=False) as store, ThreadPoolExecutor(WRITERS) as pool:
        talks = conversations(store)
        commits = commits_of(store)
        list(pool.map(lambda call: call(), turns(talks)))
        assert len(commits) == WRITERS
        check(store, talks)


@both_ways
@pytest.mark.parametrize("refused", range(WRITERS))
def test_a_refused_writer_fails_alone(store: Any, way: str, refused: int) -> None:
    talks = conversations(store)
    commits = commits_of(store)
    calls = turns(talks)
    calls[refused] = partial(talks[refused].user, "never", expected_head=7)
    with held_back(store, calls, way) as futures:
        errors = [future.exception() for future in futures]
    assert [type(error) for error in errors if error is not None] == [HeadConflict]
    assert isinstance(errors[refused], HeadConflict)
    assert len(commits) == 2  # that of the unit of work, and one for all others
    check(store, talks, missing=[refused])


@both_ways
@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3)], ids=["cancelled", "exit"])
def test_what_ends_the_work_of_one_writer_ends_no_other(store: Any, way: str, error: BaseException) -> None:
    """Also what is no Exception, such as the end of a task for which a function of the work was called."""
    talks = conversations(store)
    commits = commits_of(store)
    calls = turns(talks)

    def leave(connection: Any) -> None:
        connection.exec_driver_sql("UPDATE threadkeep_conversations SET title = 'never'")
        raise error

    calls[2] = partial(store.handle.transactions.write, leave, is_short=True)
    with held_back(store, calls, way) as futures:
        assert [future.exception() for future in futures] == [error if n == 2 else None for n in range(WRITERS)]
    assert len(commits) == 2  # that of the unit of work, and one for all others
    check(store, talks, missing=[2])
    assert {talk.title for talk in store.list_conversations()} == {None}


@both_ways
def test_the_same_key_is_used_once_within_a_group(store: Any, way: str) -> None:
    [talk] = conversations(store, 1)
    handles = [store.get_conversation(talk.id) for _ in range(5)]
    asked = ["asked 0"] * 4 + ["something else"]
    calls = [
        partial(handle.add_turn, text, ANSWER, "open_responses", idempotency_key="k")
        for handle, text in zip(handles, asked, strict=True)
    ]
    with held_back(store, calls, way) as futures:
        assert [future.result().response.replayed for future in futures[:4]] == [False, True, True, True]
        assert isinstance(futures[4].exception(), IdempotencyConflict)
    check(store, [talk])


@both_ways
def test_writers_of_one_conversation_get_positions_in_their_order(store: Any, way: str) -> None:
    [talk] = conversations(store, 1)
    handles = [store.get_conversation(talk.id) for _ in range(WRITERS)]
    calls = [partial(handle.user, f"said {number}") for number, handle in enumerate(handles)]
    with held_back(store, calls, way) as futures:
        assert [future.result().position for future in futures] == [*range(1, WRITERS + 1)]
    assert texts_of(talk.transcript())[1:] == [f"said {number}" for number in range(WRITERS)]


@both_ways
@pytest.mark.parametrize("large", range(3))
def test_where_the_database_takes_back_the_whole_group_each_writes_alone(store: Any, way: str, large: int) -> None:
    """SQLite rolls back everything when the file is full."""
    talks = conversations(store, 3)
    engine = store.handle.transactions.engine

    def limit(connection: Any, record: object = None) -> None:
        [[pages]] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count={pages + 200}")

    calls = turns(talks)
    calls[large] = lambda: talks[large].user("x" * 4_000_000)
    store.handle.transactions.before_fork()  # what is open is closed, so that each connection has the limit
    event.listen(engine, "connect", limit)
    with held_back(store, calls, way) as futures:
        errors = [future.exception() for future in futures]
    assert [isinstance(error, OperationalError) and "full" in str(error) for error in errors] == [
        number == large for number in range(3)
    ]
    check(store, talks, missing=[large])


@both_ways
@pytest.mark.parametrize("error", [OperationalError("COMMIT", {}, Exception("disk I/O error")), KeyboardInterrupt()])
def test_a_commit_that_fails_takes_no_other_writer_with_it(store: Any, way: str, error: BaseException) -> None:
    """Each writes alone then. Only what interrupts the leader is its own failure."""
    talks = conversations(store)
    errors = iter([None, error])  # that of the unit of work, and that of the group

    def fail(_connection: Any) -> None:
        if (found := next(errors, None)) is not None:
            raise found

    event.listen(store.handle.transactions.engine, "commit", fail)
    with held_back(store, turns(talks), way) as futures:
        failures = [future.exception() for future in futures]
    is_interrupted = isinstance(error, KeyboardInterrupt)
    assert failures == [error if is_interrupted else None, *[None] * (WRITERS - 1)]
    check(store, talks, missing=[0] if is_interrupted else [])


@pytest.mark.parametrize(
    ("refused", "is_committed"), [(None, True), (None, False), (0, True), (2, True), (WRITERS - 1, True)]
)
def test_units_of_one_thread_are_committed_together(store: Any, refused: int | None, is_committed: bool) -> None:
    """Where one is refused, or the COMMIT of all, each is committed alone, and only that one fails."""
    talks, commits = conversations(store), commits_of(store)
    errors = [] if is_committed else [OperationalError("COMMIT", {}, Exception("disk I/O error"))]
    event.listen(store.handle.transactions.engine, "commit", lambda _: fail(errors.pop()) if errors else None)

    def work(number: int, unit: OwnTransactions) -> int:
        inner = from_handle(Store, replace(store.handle, transactions=unit))
        talk = inner.get_conversation(talks[number].id)
        talk.user("never" if number == refused else f"asked {number}")
        talk.add_response(ANSWER, "open_responses", expected_head=7 if number == refused else None)
        return number

    results = groups.run_units(store.handle.transactions, [partial(work, number) for number in range(WRITERS)])
    assert [result if error is None else type(error) for result, error in results] == [
        HeadConflict if number == refused else number for number in range(WRITERS)
    ]
    missing = [] if refused is None else [refused]
    assert len(commits) == (WRITERS - len(missing) + (not is_committed) if missing or not is_committed else 1)
    check(store, talks, missing)


def fail(error: BaseException) -> None:
    raise error


NAME: ContextVar[str] = ContextVar("name")


@both_ways
def test_work_sees_the_context_variables_of_its_caller(store: Any, way: str) -> None:
    def named(name: str) -> object:
        NAME.set(name)
        return store.handle.transactions.write(lambda _connection: NAME.get(), is_short=True)

    calls = [partial(named, name) for name in ("one", "two", "three")]
    with held_back(store, calls, way) as futures:
        assert [future.result() for future in futures] == ["one", "two", "three"]


def test_tasks_of_an_async_store_and_streams_share_transactions(empty_database: Database) -> None:
    async def run() -> int:
        async with AsyncStore(empty_database.url, search=False) as store:
            talks = [await store.create_conversation(model="m") for _ in range(4)]
            transactions: Any = store.sync.handle.transactions
            commits = commits_of(store.sync)
            async with store.begin():
                tasks: list[asyncio.Future[Any]] = [
                    *(asyncio.ensure_future(talk.user("Hi")) for talk in talks[:2]),
                    *(asyncio.ensure_future(talk.stream_response("messages").__aenter__()) for talk in talks[2:]),
                ]
                await asyncio.to_thread(wait_until, partial(transactions.writers.has, len(tasks) - 1))
            await asyncio.gather(*tasks)
            return len(commits)

    assert asyncio.run(run()) == 2


def test_a_batch_of_calls_that_are_led_by_others_goes_on(store: Any) -> None:
    """Also where the first one fails, and others of the batch are to lead."""
    talks, writers = conversations(store), store.handle.transactions.writers
    calls = turns(talks)
    errors = [OperationalError("COMMIT", {}, Exception("disk I/O error"))]
    with ThreadPoolExecutor(2) as pool:
        with store.begin():
            first = pool.submit(calls[0])
            wait_until(partial(writers.has, 0))
            batch = pool.submit(groups.run_calls, calls[1:])
            wait_until(partial(writers.has, WRITERS - 1))
            event.listen(store.handle.transactions.engine, "commit", lambda _: fail_once(errors, writers))
        assert first.exception() is None
        assert [error for _, error in batch.result()] == [None] * (WRITERS - 1)
    check(store, talks)


def fail_once(errors: list[OperationalError], writers: groups.WriterQueue) -> None:
    """Fail the COMMIT of the whole group."""
    if writers.has(0) and errors:
        raise errors.pop()


def test_answers_of_one_event_loop_share_transactions(empty_database: Database) -> None:
    async def run() -> tuple[int, int]:
        async with AsyncStore(empty_database.url, search=False) as store:
            talks = [store.face_of((await store.create_conversation(model="m")).sync) for _ in range(8)]
            commits = commits_of(store.sync)
            recorders = [talk.stream_response("open_responses") for talk in talks]
            await asyncio.gather(*(recorder.__aenter__() for recorder in recorders))
            begun = len(commits)
            for recorder in recorders:
                await recorder.feed({"type": "response.completed", "response": ANSWER})
            await asyncio.gather(*(recorder.__aexit__(None, None, None) for recorder in recorders))
            assert [(await talk.get_response(0)).status for talk in talks] == ["completed"] * 8
            return begun, len(commits)

    begun, ended = asyncio.run(run())
    assert begun <= 2
    assert ended <= 12  # each batch of events is one of its own
