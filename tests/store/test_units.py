"""Units of work: several calls in one transaction of the store, and what is left of it after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier
from time import sleep
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from tests.databases import SERVERS, Database
from tests.factories import a_stream, an_answer, texts_of
from tests.store.test_lost_connections import commits
from tests.store.watching import Tables, statements_of
from threadkeep import AsyncStore, HeadConflict, InvalidOption, NotFound, UnitOfWorkEnded, UnitOfWorkRolledBack
from threadkeep.store.usage.observing import ObservedCall, add_observer

FORMAT = "open_responses"


class Refusal(Exception):
    """What an application raises to roll back."""


@contextmanager
def rolled_back(store: Any) -> Iterator[Any]:
    """A unit of work that is left by an exception."""
    unit = store.begin()
    yield unit.__enter__()
    assert not unit.__exit__(Refusal, Refusal(), None)


def a_turn(work: Any, id: str) -> Any:
    """What the first transaction of a turn does; returns its recorder."""
    talk = work.open(id)
    talk.user("Hi")
    return talk.stream_response(FORMAT, rendered=talk.render(FORMAT))


def test_all_is_committed_at_the_end(store: Any, elsewhere: Any, conversation: Any) -> None:
    with store.begin() as work:
        talk = work.open(conversation.id)
        talk.user("Hi")
        talk.add_response(an_answer("Hello"), FORMAT)
        talk.update(title="T")
        made = work.create_conversation(model="m", external_id="new")
        assert (texts_of(talk.transcript()), talk.title, made.head) == (["Hi", "Hello"], "T", -1)
        assert work.find_conversation(external_id="new").id == made.id
        assert elsewhere.get_conversation(conversation.id).head == -1
        with pytest.raises(InvalidOption, match="position"):
            work.position()
    found = elsewhere.get_conversation(conversation.id)
    assert (texts_of(found.transcript()), found.title) == (["Hi", "Hello"], "T")
    assert elsewhere.find_conversation(external_id="new").id == made.id


@pytest.mark.parametrize("way", ["itself", "opened", "inner", "removed", "changed", "not at all"])
def test_what_is_written_after_a_conversation_was_created_is_rendered(store: Any, way: str) -> None:
    """It is not read again only where nothing was written since."""
    with store.begin() as work:
        talk = work.create_conversation(model="m", input="Hi")
        if way == "itself":
            talk.user("more")
        elif way == "opened":
            work.open(talk.id).user("more")
        elif way == "inner":
            with work.begin() as inner:
                inner.open(talk.id).user("more")
        elif way == "removed":
            work.open(talk.id).user("more")
            work.open(talk.id).remove_item(0)
        elif way == "changed":
            work.open(talk.id).update(instructions="Be brief.")
        other = work.create_conversation(model="m", input="Bye")
        for _ in range(2):
            asked, others = (one.render(FORMAT).payload for one in (talk, other))
            assert [len(said["input"]) for said in (asked, others)] == [
                {"removed": 1, "changed": 1, "not at all": 1}.get(way, 2), 1
            ]  # fmt: skip
        assert asked.get("instructions") == ("Be brief." if way == "changed" else None)
    assert store.get_conversation(talk.id).render(FORMAT).payload == asked


def test_an_exception_rolls_all_back(store: Any, conversation: Any, tables: Tables) -> None:
    """… and nothing that was read or written in it is remembered."""
    conversation.user("before")
    written = tables.written()
    with rolled_back(store) as work:
        talk = work.open(conversation.id)
        talk.user("Hi")
        talk.update(instructions="Be brief.", title="T")
        talk.register_tool("look_up")
        assert len(talk.render(FORMAT).payload["input"]) == 2
        work.create_conversation(model="other", external_id="new")
    assert written() == {}
    assert store.find_conversation(external_id="new") is None
    for found in (conversation, store.get_conversation(conversation.id)):
        payload = found.render(FORMAT).payload
        assert (len(payload["input"]), "tools" in payload, "instructions" in payload) == (1, False, False)


def test_an_error_leaves_the_rest_as_it_is(store: Any, conversation: Any) -> None:
    with store.begin() as work:
        talk = work.open(conversation.id)
        talk.user("one")
        with pytest.raises(HeadConflict):
            talk.user("no", expected_head=7)
        with pytest.raises(NotFound):
            work.open("conv_" + "0" * 32)
        talk.user("two")
    assert texts_of(conversation.transcript()) == ["one", "two"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_unit_inside_is_a_savepoint(store: Any, conversation: Any, is_kept: bool) -> None:
    with store.begin() as work:
        work.open(conversation.id).user("one")
        with work.begin() if is_kept else rolled_back(work) as inner:
            talk = inner.open(conversation.id)
            talk.user("two")
            recorder = talk.fork().stream_response(FORMAT)
        with pytest.raises(UnitOfWorkEnded):
            talk.user("late")
        work.open(conversation.id).user("three")
    assert texts_of(conversation.transcript()) == ["one", *(["two"] if is_kept else []), "three"]
    if is_kept:
        record(recorder)
        assert recorder.response.text == "Hello"
    else:
        with pytest.raises(UnitOfWorkEnded):
            recorder.__enter__()


USES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda _, talk: talk.user("late"),
    "render": lambda _, talk: talk.render(FORMAT),
    "read": lambda _, talk: talk.transcript(),
    "change": lambda _, talk: talk.update(title="late"),
    "fork": lambda _, talk: talk.fork(),
    "respond": lambda _, talk: talk.add_response(an_answer(), FORMAT),
    "record": lambda _, talk: talk.stream_response(FORMAT).__enter__(),
    "open": lambda work, talk: work.open(talk.id),
    "create": lambda work, _: work.create_conversation(model="m"),
    "list": lambda work, _: work.list_conversations(),
    "export": lambda work, _: list(work.export()),
    "begin": lambda work, _: work.begin().__enter__(),
    "narrow": lambda work, _: work.for_user("ann"),
    "run": lambda work, _: work.run_in_transaction(lambda inner: inner.list_conversations()),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("is_committed", [True, False])
def test_what_belongs_to_it_ends_with_it(
    store: Any, elsewhere: Any, conversation: Any, use: str, is_committed: bool
) -> None:
    """… and locks nothing afterwards."""
    unit = store.begin()
    work = unit.__enter__()
    talk = work.open(conversation.id)
    talk.user("Hi")
    export = work.export()
    assert not unit.__exit__(*((None, None, None) if is_committed else (Refusal, Refusal(), None)))
    with pytest.raises(UnitOfWorkEnded, match="Open the conversation again"):
        USES[use](work, talk)
    with pytest.raises(UnitOfWorkEnded):
        list(export)
    assert (talk.id, talk.head) == (conversation.id, 0)
    assert elsewhere.get_conversation(conversation.id).user("Ho").position == int(is_committed)


def record(recorder: Any) -> None:
    with recorder:
        for event in a_stream("Hello"):
            recorder.feed(event)


def test_a_recorder_begins_with_the_commit_and_goes_on_by_itself(store: Any, elsewhere: Any, conversation: Any) -> None:
    with store.begin() as work:
        recorder = a_turn(work, conversation.id)
        assert recorder.number is None
    (begun,) = elsewhere.get_conversation(conversation.id).responses()
    assert begun.status == "in_progress"
    assert begun.number == recorder.number
    with pytest.raises(InvalidOption, match="`with` statement"):
        recorder.feed(a_stream("Hello")[0])
    record(recorder)
    assert recorder.response.status == "completed"
    assert texts_of(elsewhere.get_conversation(conversation.id).transcript()) == ["Hi", "Hello"]
    with pytest.raises(InvalidOption, match="entered before"):
        recorder.__enter__()


def test_a_recorder_may_be_entered_before_the_end_and_is_fed_after_it(store: Any, conversation: Any) -> None:
    with store.begin() as work:
        recorder = a_turn(work, conversation.id)
        recorder.__enter__()
        assert (recorder.number, recorder.branch) == (0, 0)
        with pytest.raises(InvalidOption, match="still open"):
            recorder.feed(a_stream("Hello")[0])
    for event in a_stream("Hello"):
        recorder.feed(event)
    recorder.__exit__(None, None, None)
    assert texts_of(conversation.transcript()) == ["Hi", "Hello"]


def test_a_response_that_cannot_begin_rolls_all_back(store: Any, conversation: Any, tables: Tables) -> None:
    written = tables.written()
    unit = store.begin()
    talk = unit.__enter__().open(conversation.id)
    talk.stream_response(FORMAT, expected_head=7)
    talk.user("Hi")
    with pytest.raises(HeadConflict):
        unit.__exit__(None, None, None)
    assert written() == {}


@pytest.mark.parametrize("is_entered", [True, False])
def test_a_recorder_of_what_was_rolled_back_has_ended(store: Any, conversation: Any, is_entered: bool) -> None:
    with rolled_back(store) as work:
        recorder = a_turn(work, conversation.id)
        if is_entered:
            recorder.__enter__()
    with pytest.raises(UnitOfWorkEnded):
        recorder.__exit__(None, None, None) if is_entered else recorder.__enter__()
    assert conversation.transcript() == []


def test_the_first_transaction_of_a_turn_takes_few_statements(store: Any, conversation: Any, database: Any) -> None:
    """The conversation with its lock, the message, the history, and the response with its first part."""
    with store.begin() as work:  # options that are seen for the first time are not counted
        record_later = a_turn(work, conversation.id)
    record(record_later)
    with statements_of(store) as seen, store.begin() as work:
        a_turn(work, conversation.id)
    savepoints = [one for one in seen if "SAVEPOINT" in one]
    assert len(seen) - len(savepoints) == {"sqlite": 8, "postgresql": 6, "mariadb": 11}[database.kind]
    assert len(savepoints) == 4


def orders(work: Any, statement: str) -> Any:
    """Run a statement about a table of the application, on the connection of a unit of work."""
    if hasattr(work, "run_sync"):
        return work.run_sync(lambda blocking: orders(blocking, statement))
    return work.connection.execute(text(statement))


def test_tables_of_the_application_are_in_the_same_transaction(
    store: Any, elsewhere: Any, conversation: Any, watching: Engine
) -> None:
    with watching.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS orders (number integer)"))
        connection.execute(text("DELETE FROM orders"))
    with rolled_back(store) as work:
        orders(work, "INSERT INTO orders VALUES (1)")
    with store.begin() as work:
        orders(work, "INSERT INTO orders VALUES (2)")
        work.open(conversation.id).user("Where is my order?")
    with watching.connect() as connection:
        assert connection.execute(text("SELECT number FROM orders")).scalars().all() == [2]
    assert elsewhere.get_conversation(conversation.id).head == 0


def test_observers_are_called_after_the_commit(store: Any, conversation: Any) -> None:
    calls: list[ObservedCall] = []
    end = add_observer(getattr(store, "_wrapped", store), calls.append)
    try:
        with rolled_back(store) as work:
            work.open(conversation.id).add_response(an_answer(), FORMAT)
        with store.begin() as work:
            work.open(conversation.id).add_response(an_answer(id="resp_2"), FORMAT)
            assert calls == []
    finally:
        end()
    assert [call.response_id for call in calls] == ["resp_2"]


SERVERS_ONLY = pytest.mark.parametrize("database", SERVERS, indirect=True)  # SQLite has one writer at a time


@pytest.mark.one_face
@SERVERS_ONLY
@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_deadlock_rolls_one_of_two_back(
    stores: Any, tenant: str, conversation: Any, elsewhere: Any, is_repeated: bool
) -> None:
    """… which is run again, or says so."""
    other, barrier = elsewhere.create_conversation(), Barrier(2, timeout=20)
    ids, runs = [conversation.id, other.id], list[str]()

    def work(unit: Any, first: str, second: str) -> None:
        unit.open(first).user("one")
        runs.append(first)
        if runs.count(first) == 1:
            barrier.wait()
        unit.open(second).user("two")

    def run(first: str, second: str) -> None:
        store = stores.get("sync", first).for_tenant(tenant)
        if is_repeated:
            store.run_in_transaction(work, first, second)
            return
        with store.begin() as unit:
            work(unit, first, second)

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(run, *ids), threads.submit(run, *reversed(ids))]
        errors = [end.exception() for end in ends if end.exception() is not None]
    if is_repeated:
        assert errors == []
        assert len(runs) >= 3  # more where the two meet again
    else:
        (error,) = errors
        assert isinstance(error, UnitOfWorkRolledBack)
        assert isinstance(error.__cause__, DBAPIError)
    count = 2 if is_repeated else 1
    assert [len(elsewhere.get_conversation(one).transcript()) for one in ids] == [count, count]


def a_caught_conflict(work: Any, id: str, runs: list[str]) -> int:
    runs.append(id)
    talk = work.open(id)
    talk.user("one")
    with suppress(HeadConflict):
        talk.user("two", expected_head=7)
    talk.user("three")
    head: int = talk.head
    return head


def test_a_function_that_goes_on_after_a_failed_call_is_called_again(store: Any, conversation: Any) -> None:
    """… and only that call has written nothing."""
    runs: list[str] = []
    assert store.run_in_transaction(a_caught_conflict, conversation.id, runs) == 1
    assert texts_of(store.get_conversation(conversation.id).transcript()) == ["one", "three"]
    assert len(runs) == 2


def test_a_function_that_ends_after_a_failed_call_writes_the_rest(store: Any, conversation: Any) -> None:
    def work(unit: Any) -> None:
        talk = unit.open(conversation.id)
        talk.user("one")
        with suppress(HeadConflict):
            talk.user("two", expected_head=7)

    store.run_in_transaction(work)
    assert texts_of(store.get_conversation(conversation.id).transcript()) == ["one"]


@pytest.mark.one_face
def test_a_function_without_failures_has_no_savepoints(stores: Any, tenant: str, conversation: Any) -> None:
    store = stores.get("sync").for_tenant(tenant)
    with statements_of(store) as executed:
        store.run_in_transaction(a_turn, conversation.id)
    assert executed
    assert not [statement for statement in executed if "SAVEPOINT" in statement.upper()]


@pytest.mark.parametrize("happen", [True, False])
def test_a_beginning_whose_commit_was_lost_is_found_again(store: Any, conversation: Any, happen: bool) -> None:
    with commits(store, happen=happen) as lost:
        recorder = store.run_in_transaction(a_turn, conversation.id)
    assert lost
    recorder = store.face_of(recorder) if hasattr(store, "face_of") else recorder
    record(recorder)
    assert recorder.response.status == "completed"
    assert texts_of(conversation.transcript()) == ["Hi", "Hello"]


@pytest.mark.parametrize("function", [None, 7, "user"])
def test_what_is_no_function_is_refused(store: Any, function: Any) -> None:
    with pytest.raises(InvalidOption, match="must be a function of a unit of work"):
        store.run_in_transaction(function)


@pytest.mark.one_face
@SERVERS_ONLY
def test_other_writers_wait_for_the_end(stores: Any, tenant: str, elsewhere: Any, conversation: Any) -> None:
    store = stores.get("sync").for_tenant(tenant)
    with ThreadPoolExecutor(1) as threads:
        with store.begin() as work:
            talk = work.open(conversation.id)
            waiting = threads.submit(elsewhere.get_conversation(conversation.id).user, "other")
            sleep(0.3)
            assert not waiting.done()
            talk.user("mine")
        assert waiting.result(20).position == 1
    assert texts_of(conversation.transcript()) == ["mine", "other"]


def test_many_units_at_once_wait_for_each_other(database: Database) -> None:
    """On SQLite, more than there are worker threads: the one that has the lock goes on all the same."""

    async def turn(store: AsyncStore, id: str, number: int) -> None:
        async with store.begin() as work:
            await (await work.open(id)).user(f"{number}")
            await asyncio.sleep(0.01)

    async def run() -> int:
        async with AsyncStore(database.url) as store:
            talk = await store.create_conversation(model="m")
            await asyncio.gather(*(turn(store, talk.id, number) for number in range(40)))
            return len(await (await store.get_conversation(talk.id)).transcript())

    assert asyncio.run(run()) == 40


def test_a_task_that_is_cancelled_rolls_back(database: Database) -> None:
    async def turn(store: AsyncStore, id: str) -> None:
        async with store.begin() as work:
            await (await work.open(id)).user("Hi")
            await asyncio.sleep(60)

    async def run() -> list[str]:
        async with AsyncStore(database.url) as store:
            talk = await store.create_conversation(model="m")
            task = asyncio.create_task(turn(store, talk.id))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await talk.user("Ho")
            return texts_of(await talk.transcript())

    assert asyncio.run(run()) == ["Ho"]
