"""`within`: the same methods inside the caller's transaction; each happens whole or not at all, none commits."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.orm import scoped_session

from tests.conftest import provided, upgraded
from tests.databases import DATABASES, DRIVERS, Database, Databases
from tests.factories import a_gemini_answer, a_message, a_picture, a_stream, an_answer, an_error, noise, texts_of
from tests.store.faces import Blocking
from tests.store.watching import Tables
from threadkeep import (
    Conflict,
    HeadConflict,
    IdempotencyConflict,
    InvalidItem,
    InvalidOption,
    NotFound,
    ProviderError,
    UnitOfWorkEnded,
)
from threadkeep.db.models import responses

NUMBERS = itertools.count()
ASYNC_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+asyncmy"}


class Host:
    """An application with a table of its own, in the transaction that the store works in."""

    def __init__(self, connection: Any, store: Any, wait: Callable[[Any], Any]) -> None:
        self._connection, self.store, self._wait = connection, store, wait

    def run(self, statement: str, **values: Any) -> Any:
        return self._wait(self._connection.execute(text(statement), values))

    def end(self, how: str) -> None:
        ended = getattr(self._connection, how)()
        if inspect.isawaitable(ended):
            self._wait(ended)

    def order(self) -> int:
        number = next(NUMBERS)
        self.run("INSERT INTO orders VALUES (:number)", number=number)
        return number

    def has_order(self, number: int) -> bool:
        return bool(self.run("SELECT count(*) FROM orders WHERE number = :number", number=number).scalar())


Begin = Callable[..., AbstractContextManager[Host]]


HOSTS = ("sync connection", "sync session", "async connection", "async session")
# SQLite under asyncio needs a driver of the application's own choice.
PLACES = [(kind, host) for kind in DATABASES for host in HOSTS if (kind, host[:5]) != ("sqlite", "async")]


@pytest.fixture(scope="module", params=PLACES, ids=" ".join)
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A kind of database and a kind of host."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(scope="module")
def database(place: tuple[str, str], databases: Databases) -> Iterator[Database]:
    yield from provided(databases, place[0], upgraded)


@pytest.fixture(scope="module")
def engine(database: Database) -> Iterator[Engine]:
    """The application's engine, made by its own rules."""
    url = make_url(database.url)
    made = create_engine(url.set(drivername=DRIVERS[url.drivername]))
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE orders (number integer PRIMARY KEY)"))
    yield made
    made.dispose()


@pytest.fixture
def begin(place: tuple[str, str], database: Database, engine: Engine, stores: Any, tenant: str) -> Begin:
    """Begins a transaction of the application; it ends by rollback unless `commit` is set."""
    face, kind = place[1].split()
    store = stores.get(face).for_tenant(tenant)

    @contextmanager
    def begun(*, commit: bool = False, isolation: str | None = None) -> Iterator[Host]:
        bind = engine.execution_options(isolation_level=isolation) if isolation else engine
        host: Any = OrmSession(bind) if kind == "session" else bind.connect()
        try:
            yield Host(host, store.within(host), lambda result: result)
            host.commit() if commit else host.rollback()
        finally:
            host.close()

    @contextmanager
    def begun_async(*, commit: bool = False, isolation: str | None = None) -> Iterator[Host]:
        url, runner = make_url(database.url), store._runner
        options = {"isolation_level": isolation} if isolation else {}
        bind = create_async_engine(url.set(drivername=ASYNC_DRIVERS[url.drivername]), **options)
        host: Any = AsyncSession(bind) if kind == "session" else runner.run(started(bind.connect()))
        inside = Blocking(store._wrapped.within(host), runner)
        try:
            yield Host(host, inside, runner.run)
            runner.run(host.commit() if commit else host.rollback())
        finally:
            runner.run(host.close())
            runner.run(bind.dispose())

    return begun if face == "sync" else begun_async


async def started(connection: Any) -> Any:
    return await connection


@pytest.fixture
def plain(stores: Any, tenant: str) -> Any:
    """The store outside: it sees what is committed."""
    return stores.get("sync").for_tenant(tenant)


@pytest.fixture
def kept(plain: Any) -> Any:
    return plain.create_conversation(model="m", input="before", external_id="kept")


@pytest.fixture
def rows(database: Database, plain: Any) -> Iterator[Tables]:
    with database.engine().connect() as connection:
        yield Tables(connection, plain.handle.scope.tenant)


def everything(store: Any, id: str) -> None:
    """Every kind of writing."""
    conversation = store.get_conversation(id)
    conversation.user([a_picture(noise(9_000))], idempotency_key="key")
    conversation.add_response(an_answer("Hello"), "open_responses")
    conversation.update(title="T", labels={"a": "b"}, temperature=0.5)
    conversation.register_tool("look_up")
    conversation.fork(at=0).user("edited")
    conversation.record_attempt("open_responses")
    store.create_conversation(external_id="new", input="Hi")
    store.save_many([])


def test_the_caller_rolls_back(begin: Begin, kept: Any, rows: Tables, plain: Any) -> None:
    written = rows.written()
    with begin() as host:
        number = host.order()
        everything(host.store, kept.id)
        inside = host.store.get_conversation(kept.id)
        assert texts_of(inside.items(limit=1)) == ["before"]
        assert (len(inside.transcript()), inside.title, len(inside.branches())) == (3, "T", 2)
        assert host.store.find_conversation(external_id="new").head == 0
        assert host.has_order(number)
        assert inside.request_payload("open_responses")["temperature"] == 0.5
    assert written() == {}
    assert texts_of(kept.transcript()) == ["before"]
    assert plain.find_conversation(external_id="new") is None
    with begin() as host:
        assert not host.has_order(number)


def test_the_caller_commits(begin: Begin, kept: Any, rows: Tables, plain: Any) -> None:
    with begin(commit=True) as host:
        number = host.order()
        everything(host.store, kept.id)
    found = plain.get_conversation(kept.id)
    assert (len(found.transcript()), found.title, len(found.branches())) == (3, "T", 2)
    assert plain.find_conversation(external_id="new").head == 0
    assert rows.counts()["blobs"] == 1
    with begin() as host:
        assert host.has_order(number)


def test_a_context_cache_is_the_callers_until_the_commit(begin: Begin, kept: Any, rows: Tables) -> None:
    for _ in range(2):
        kept.add_response(a_gemini_answer(prompt=30_000), "gemini")
        kept.user("more")
    written = rows.written()
    with begin() as host:
        inside = host.store.get_conversation(kept.id)
        plan = inside.plan_context_cache("gemini")
        assert plan.action == "create"
        inside.record_context_cache(plan, name="cachedContents/1")
        assert inside.request_payload("gemini", cache="auto")["cachedContent"] == "cachedContents/1"
    assert written() == {}
    assert kept.plan_context_cache("gemini").action == "create"


FAILURES: dict[str, tuple[Callable[[Any, Any], Any], type[Exception]]] = {
    "an item": (lambda _, c: c.add_items([a_message(), 7]), InvalidItem),
    "a head": (lambda _, c: c.user("Hi", expected_head=7), HeadConflict),
    "a key": (lambda _, c: c.user("other", idempotency_key="used"), IdempotencyConflict),
    "an external id": (lambda store, _: store.create_conversation(external_id="kept", input="Hi"), InvalidOption),
    "a change": (lambda _, c: c.update(external_id="other", title="T"), InvalidOption),
    "a fork": (lambda _, c: c.fork(at=99), NotFound),
    "a branch": (lambda _, c: c.user("Hi", expected_head=99, on_conflict="branch"), NotFound),
    "a conversation": (lambda store, _: store.get_conversation("conv_" + "0" * 32), NotFound),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_leaves_the_callers_transaction_usable(
    begin: Begin, plain: Any, kept: Any, rows: Tables, name: str
) -> None:
    """… with what it did before, and with nothing of what failed."""
    plain.create_conversation(external_id="other")
    kept.user("used", idempotency_key="used")
    call, error = FAILURES[name]
    written = rows.written()
    with begin(commit=True) as host:
        number = host.order()
        conversation = host.store.get_conversation(kept.id)
        conversation.user("one")
        with pytest.raises(error):
            call(host.store, conversation)
        assert host.has_order(number)
        conversation.user("two")
    assert written() == {"items": 2}
    assert texts_of(kept.transcript()) == ["before", "used", "one", "two"]


def test_an_error_of_the_database_leaves_nothing_half_written(
    begin: Begin, kept: Any, rows: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… although items were written before it."""
    written = rows.written()
    with begin(commit=True) as host:
        conversation = host.store.get_conversation(kept.id)
        conversation.user("one")
        monkeypatch.setattr("threadkeep.store.usage.ledger.ids.new_key", lambda: 1)
        conversation.record_attempt("open_responses")
        with pytest.raises(IntegrityError):
            conversation.add_response(an_answer("Hello"), "open_responses")
        monkeypatch.undo()
        conversation.user("two")
    assert written() == {"items": 2, "usage_records": 1}
    assert texts_of(kept.transcript()) == ["before", "one", "two"]


def test_recorded_failures_belong_to_the_caller(begin: Begin, kept: Any, rows: Tables) -> None:
    for commit in (False, True):
        written = rows.written()
        with begin(commit=commit) as host:
            conversation = host.store.get_conversation(kept.id)
            with pytest.raises(ProviderError):
                conversation.add_response(an_error(), "open_responses", idempotency_key="error")
            with pytest.raises(HeadConflict):
                conversation.add_response(an_answer("Hi"), "open_responses", expected_head=7, idempotency_key="head")
        assert written() == ({"usage_records": 2, "appends": 2} if commit else {})


def test_a_replay_inside(begin: Begin, plain: Any, kept: Any, rows: Tables) -> None:
    """… of what was written before, and of what the same transaction wrote."""
    said = kept.user("Hi", idempotency_key="outside")
    made = plain.create_conversation(idempotency_key="made")
    written = rows.written()
    with begin(commit=True) as host:
        conversation = host.store.get_conversation(kept.id)
        again = conversation.user("Hi", idempotency_key="outside")
        assert (again.replayed, again.position) == (True, said.position)
        first = conversation.user("Ho", idempotency_key="inside")
        again = conversation.user("Ho", idempotency_key="inside")
        assert (first.replayed, again.replayed, again.position) == (False, True, first.position)
        assert host.store.create_conversation(idempotency_key="made").id == made.id
    assert written() == {"items": 1, "appends": 1}
    assert kept.user("Ho", idempotency_key="inside").replayed


@pytest.mark.parametrize("place", [place for place in PLACES if place[0] != "sqlite"], indirect=True, ids=" ".join)
def test_a_stream_inside(begin: Begin, kept: Any, rows: Tables) -> None:
    """It is the caller who commits what came; with the transaction all of it goes."""
    for commit in (False, True):
        written = rows.written()
        with begin(commit=commit) as host:
            with host.store.get_conversation(kept.id).stream_response("open_responses") as recorder:
                for event in a_stream("Hello"):
                    recorder.feed(event)
            assert recorder.response.status == "completed"
        assert bool(written()) == commit
    assert texts_of(kept.transcript()) == ["before", "Hello"]


def test_a_stream_that_was_left_is_ended_inside(begin: Begin, kept: Any, rows: Tables, engine: Engine) -> None:
    recorder = kept.stream_response("open_responses")
    recorder.__enter__()
    recorder.feed(a_stream("Hello")[0])
    with engine.begin() as connection:
        over = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(responses.update().where(responses.c.open_branch.is_not(None)).values(lease_until=over))
    for commit in (False, True):
        written = rows.written()
        with begin(commit=commit) as host:
            inside = host.store.get_conversation(kept.id)
            inside.user("Still there?")
            inside.sync_request({"messages": [{"role": "user", "content": "other"}]}, "chat_completion")
            inside.add_input({"role": "user", "content": "more"}, "chat_completion")
            assert [row.status for row in inside.responses()] == ["incomplete"]
        assert bool(written()) == commit
    assert texts_of(kept.transcript()) == ["before", "Still there?", "more"]


@pytest.mark.parametrize("place", [place for place in PLACES if place[0] != "sqlite"], indirect=True, ids=" ".join)
def test_a_key_that_the_caller_cannot_see(begin: Begin, kept: Any) -> None:
    """A transaction that sees the past cannot find what was done under the key since; it ends, with a typed error."""
    with begin(isolation="REPEATABLE READ") as host:
        host.has_order(0)
        kept.user("Hi", idempotency_key="key")
        conversation = host.store.get_conversation(kept.id)
        with pytest.raises((Conflict, DBAPIError)):  # PostgreSQL refuses it by itself
            conversation.user("Hi", idempotency_key="key")
    assert texts_of(kept.transcript()) == ["before", "Hi"]


def test_a_store_of_a_user_works_inside(begin: Begin, kept: Any) -> None:
    with begin() as host:
        mine = host.store.for_user("ann").create_conversation()
        assert mine.user_id == "ann"
        with pytest.raises(NotFound):
            host.store.for_user("ann").get_conversation(kept.id)


def test_closing_leaves_the_connection_to_the_caller(begin: Begin, kept: Any) -> None:
    with begin() as host:
        host.store.close()
        assert host.store.get_conversation(kept.id).user("Hi").position == 1
        assert not host.has_order(-1)


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place[1].endswith("session")], indirect=True, ids=" ".join
)
def test_a_scoped_session_stands_for_its_session(begin: Begin, plain: Any) -> None:
    with begin(commit=True) as host:
        sessions: Any = lambda: host._connection  # noqa: E731 - a factory, as scoped sessions want one
        if isinstance(sessions(), AsyncSession):
            scoped = async_scoped_session(sessions, int)
            inside: Any = Blocking(host.store._wrapped.within(scoped), host.store._runner)
        else:
            inside = plain.within(scoped_session(sessions))
        inside.create_conversation(model="m", external_id="scoped")
        assert host.store.find_conversation(external_id="scoped") is not None
        assert plain.find_conversation(external_id="scoped") is None
    assert plain.find_conversation(external_id="scoped") is not None


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_what_belongs_to_the_transaction_ends_with_it(begin: Begin, kept: Any, rows: Tables, end: str) -> None:
    """… though the connection or session would begin another one; and nothing is locked by what is refused."""
    with begin() as host:
        conversation = host.store.get_conversation(kept.id)
        conversation.user("Hi")
        recorder = conversation.stream_response("open_responses")
        host.end(end)
        written = rows.written()
        for use in (
            lambda: conversation.user("late"),
            conversation.transcript,
            lambda: conversation.stream_response("open_responses"),
            lambda: host.store.create_conversation(model="m"),
            lambda: host.store.get_conversation(kept.id),
        ):
            with pytest.raises(UnitOfWorkEnded, match="closed"):
                use()
        assert written() == {}
        assert kept.user("Ho").position == (2 if end == "commit" else 1)
        with recorder:  # made, but not begun, in that transaction
            pass
        assert recorder.response.status == "incomplete"


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_recorder_that_began_inside_goes_on_after_the_commit(begin: Begin, kept: Any, end: str) -> None:
    with begin() as host:
        recorder = host.store.get_conversation(kept.id).stream_response("open_responses")
        recorder.__enter__()
        host.end(end)
        if end == "commit":
            for event in a_stream("Hello"):
                recorder.feed(event)
            recorder.__exit__(None, None, None)
        else:
            with pytest.raises(UnitOfWorkEnded):
                recorder.feed(a_stream("Hello")[0])
    assert texts_of(kept.transcript()) == (["before", "Hello"] if end == "commit" else ["before"])


def test_a_unit_of_work_inside_is_a_savepoint_of_the_caller(begin: Begin, kept: Any, rows: Tables) -> None:
    written = rows.written()
    with begin(commit=True) as host:
        with host.store.begin() as work:
            work.open(kept.id).user("one")
        refused = host.store.begin()
        talk = refused.__enter__().open(kept.id)
        talk.user("no")
        assert not refused.__exit__(ValueError, ValueError(), None)
        with pytest.raises(UnitOfWorkEnded):
            talk.user("late")
        host.store.run_in_transaction(lambda work: work.open(kept.id).user("two"))
    assert written() == {"items": 2}
    assert texts_of(kept.transcript()) == ["before", "one", "two"]


@pytest.mark.parametrize("place", [one for one in PLACES if "connection" in one[1]], ids=" ".join, indirect=True)
def test_a_connection_that_is_closed_says_so(begin: Begin) -> None:
    """A session opens another one by itself."""
    with begin() as host:
        conversation = host.store.create_conversation(model="m")
    with pytest.raises(UnitOfWorkEnded, match="closed"):
        conversation.user("Hi")


@pytest.mark.parametrize("place", [one for one in PLACES if one[0] == "postgresql"], ids=" ".join, indirect=True)
def test_a_connection_without_transactions_is_refused(begin: Begin, rows: Tables) -> None:
    """The other databases begin one all the same."""
    written = rows.written()
    with begin(isolation="AUTOCOMMIT") as host, pytest.raises(InvalidOption, match="AUTOCOMMIT"):
        host.store.create_conversation(model="m")
    assert written() == {}
