"""Following the change feed: watchers give each change once, end cleanly, and outlive lost connections."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from tests.databases import Database
from tests.store.test_lost_connections import kill_all
from tests.store.watching import engine_of
from tests.waiting import wait_until
from threadkeep import AsyncStore, CursorExpired, InvalidOption, Store
from threadkeep.db.models import changes
from threadkeep.store.changes.watching import Listener, Notifier

QUICK = 0.02  # seconds between two looks
POSTGRES = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB's rows count as settled at once, and outages are looked after often."""
    monkeypatch.setattr("threadkeep.db.feeds._SETTLED", 0.0)
    monkeypatch.setattr("threadkeep.store.changes.watching.OUTAGE_SECONDS", QUICK)


def ended_listeners() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name in {"threadkeep-listen", "threadkeep-notify"}]


def test_it_goes_on_where_the_feed_ends(store: Any, conversation: Any) -> None:
    with store.watch(poll=QUICK) as watcher:
        assert next(watcher).kind == "appended"
        for number in range(3):
            conversation.user(str(number))
            assert next(watcher).to_position == number
        conversation.archive()
        assert next(watcher).kind == "changed"
        cursor = watcher.cursor
    conversation.user("more")
    with store.watch(cursor, poll=QUICK) as watcher:
        assert watcher.cursor == cursor
        assert next(watcher).to_position == 3


def test_from_now_on(store: Any, conversation: Any) -> None:
    with store.watch("now", poll=QUICK) as watcher:
        cursor = watcher.cursor
        conversation.user("Hi")
        change = next(watcher)
        assert [one.id for one in store.changes(cursor)] == [change.id]
        assert list(store.changes(watcher.cursor)) == []


def test_it_gives_each_change_once(database: Database, store: Any, conversation: Any) -> None:
    """… also where the feed goes back because of a late one."""
    with store.watch(poll=QUICK, lag=3600) as watcher:
        conversation.user("a")
        conversation.user("b")
        found = [next(watcher) for _ in range(3)]
        if database.kind == "mariadb":
            with database.engine().begin() as connection:
                row = connection.execute(select(changes).where(changes.c.id == found[1].id)).mappings().one()
                connection.execute(changes.insert(), {**row, "id": row["id"] - 1})
            found.append(next(watcher))
        conversation.user("c")
        found.append(next(watcher))
    assert len({change.id for change in found}) == len(found)


def test_what_cannot_be_watched_is_refused(store: Any) -> None:
    for arguments in ({"poll": 0}, {"poll": "x"}, {"poll": float("nan")}):
        with pytest.raises(InvalidOption, match="poll"):
            store.watch(**arguments)
    with pytest.raises(InvalidOption), store.watch("nonsense") as watcher:
        next(watcher)
    with pytest.raises(InvalidOption, match="ann"), store.for_user("ann").watch() as watcher:
        next(watcher)


def test_it_ends_when_it_is_closed(store: Any, conversation: Any) -> None:
    watcher = store.watch(poll=QUICK)
    next(watcher)
    watcher.close()
    watcher.close()
    assert list(watcher) == []


def test_it_ends_with_its_store(database: Database, tenant: str) -> None:
    with Store(database.url, tenants=True) as opened:
        store = opened.for_tenant(tenant)
        store.create_conversation(model="m")
        watcher = store.watch(poll=3600)
        thread = threading.Thread(target=list, args=(watcher,))
        thread.start()
        time.sleep(0.1)  # until it waits
    thread.join(20)
    assert not thread.is_alive()
    assert list(watcher) == []


def test_another_thread_closes_it_in_mid_wait(database: Database, tenant: str) -> None:
    with Store(database.url, tenants=True) as opened:
        watcher = opened.for_tenant(tenant).watch(poll=3600)
        thread = threading.Thread(target=list, args=(watcher,))
        thread.start()
        time.sleep(0.05)
        watcher.close()
        thread.join(20)
        assert not thread.is_alive()


def test_a_task_that_watches_can_be_cancelled(database: Database, tenant: str) -> None:
    async def watch() -> list[str]:
        found: list[str] = []
        given = asyncio.Event()
        async with AsyncStore(database.url, tenants=True) as opened:
            store = await opened.for_tenant(tenant)

            async def follow() -> None:
                async for change in store.watch(poll=3600):
                    found.append(change.kind)
                    given.set()

            await store.create_conversation(model="m")
            task = asyncio.create_task(follow())
            await given.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await store.create_conversation(model="m")
            async for _ in store.watch():
                break
        return found

    assert asyncio.run(watch()) == ["appended"]


@SERVERS
def test_it_outlives_lost_connections(database: Database, store: Any, conversation: Any) -> None:
    with store.watch("now", poll=QUICK) as watcher:
        for number in range(3):
            conversation.user(str(number))
            kill_all(database)
            assert next(watcher).to_position == number


@pytest.mark.parametrize("face", ["sync"], indirect=True)
@SERVERS
def test_it_waits_for_a_database_that_is_away(
    store: Any, conversation: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For as long as it takes, which the retries of other calls do not."""
    watcher = store.watch("now", poll=QUICK)
    conversation.user("Hi")
    transactions, failures = store.handle.transactions, iter(range(3))
    reading = transactions.read

    def read(work: Any) -> Any:
        if next(failures, None) is not None:
            raise OperationalError("SELECT", {}, ConnectionRefusedError("away"))
        return reading(work)

    monkeypatch.setattr(transactions, "read", read)
    with caplog.at_level(logging.WARNING, "threadkeep.changes"):
        assert next(watcher).to_position == 0
    assert len(caplog.records) == 3
    assert "away" not in caplog.text


@pytest.mark.one_face
def test_other_errors_come_out(store: Any, conversation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = store.watch("now", poll=QUICK)

    def expired(*_: Any) -> Any:
        raise CursorExpired

    monkeypatch.setattr("threadkeep.store.changes.feed._page", expired)
    with pytest.raises(CursorExpired):
        next(watcher)


# Notifications


@pytest.fixture
def notifying(database: Database, tenant: str) -> Iterator[Any]:
    with Store(database.url, tenants=True, notify=True) as opened:
        yield opened.for_tenant(tenant)


@POSTGRES
@pytest.mark.one_face
def test_a_commit_wakes_those_who_watch(notifying: Any) -> None:
    """Long before they would look again."""
    conversation = notifying.create_conversation(model="m")
    with notifying.watch("now", poll=3600) as watcher:
        for number in range(3):
            timer = threading.Timer(0.1, conversation.user, (str(number),))
            timer.start()
            assert next(watcher).to_position == number
            timer.join()
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "threadkeep-listen"])


@POSTGRES
@pytest.mark.one_face
def test_a_commit_wakes_tasks(database: Database, tenant: str) -> None:
    async def watch() -> list[int | None]:
        found: list[int | None] = []
        async with AsyncStore(database.url, tenants=True, notify=True) as opened:
            store = await opened.for_tenant(tenant)
            conversation = await store.create_conversation(model="m")
            async with store.watch("now", poll=3600) as watcher:
                for number in range(3):
                    following = asyncio.ensure_future(anext(watcher))
                    await asyncio.sleep(0.05)
                    await conversation.user(str(number))
                    found.append((await following).to_position)
        return found

    assert asyncio.run(watch()) == [0, 1, 2]
    wait_until(ended_listeners)


@POSTGRES
@pytest.mark.one_face
def test_notifications_outlive_lost_connections(database: Database, notifying: Any) -> None:
    conversation = notifying.create_conversation(model="m")
    with notifying.watch("now", poll=3600) as watcher:
        kill_all(database)
        timer = threading.Timer(0.05, conversation.user, ("Hi",))
        timer.start()
        assert next(watcher).to_position == 0
        timer.join()


@POSTGRES
@pytest.mark.one_face
def test_a_write_does_not_notice_that_nobody_can_be_notified(
    notifying: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_engine: Any, _seconds: int) -> Any:
        raise ConnectionRefusedError("secret")

    monkeypatch.setattr("threadkeep.db.backends.postgresql.BACKEND.notification_connection", refused)
    with notifying.watch("now", poll=QUICK) as watcher, caplog.at_level(logging.WARNING, "threadkeep.changes"):
        notifying.create_conversation(model="m")
        assert next(watcher).kind == "appended"
        wait_until(lambda: "notified" in caplog.text and "listen" in caplog.text)
    assert "secret" not in caplog.text


@POSTGRES
@pytest.mark.one_face
def test_many_commits_are_told_at_once(database: Database) -> None:
    woken: list[float] = []
    with Store(database.url, tenants=True) as store:
        engine = engine_of(store)
        listener = Listener(engine, lambda: woken.append(time.monotonic()))
        wait_until(lambda: woken)
        notifier = Notifier(engine)
        for _ in range(1000):
            notifier.notify()
        notifier.close()
        wait_until(lambda: len(woken) > 1)
        listener.close()
    assert len(woken) < 100  # how many depends on how busy the machine is


@POSTGRES
@pytest.mark.one_face
def test_a_watcher_that_nobody_holds_stops_listening(notifying: Any) -> None:
    notifying.watch(poll=3600)
    gc.collect()
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "threadkeep-listen"])


@pytest.mark.one_face
def test_elsewhere_nobody_is_notified(database: Database, notifying: Any) -> None:
    assert (notifying.handle.transactions.notifier is not None) == (database.kind == "postgresql")
    notifying.create_conversation(model="m")
    assert len(notifying.changes()) == 1
