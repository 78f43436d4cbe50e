"""The change feed: what was committed, in order within a conversation, and where to go on."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select, text, update

from tests.databases import Database
from tests.factories import a_message, a_stream, an_answer
from tests.store.watching import Tables, statements_of
from tests.waiting import wait_until
from threadkeep import CursorExpired, HeadConflict, InvalidOption, NotFound, Session, Store, ThreadkeepError
from threadkeep.db.feeds import Cursor, PgSnapshot, cursor_from
from threadkeep.db.functions import SERIALS, key_at
from threadkeep.db.models import changes

pytestmark = pytest.mark.one_face

DAY = 86_400_000_000 * SERIALS  # in keys


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait until rows of MariaDB count as settled, but for those that are about that."""
    monkeypatch.setattr("threadkeep.db.feeds._SETTLED", 0.0)


@pytest.fixture
def now(store: Any) -> str:
    return str(store.changes("now").cursor)


def read(store: Any, after: str | None, limit: int = 100) -> list[tuple[Any, ...]]:
    return [(one.kind, one.branch, one.from_position, one.to_position) for one in store.changes(after, limit=limit)]


def stream(conversation: Any) -> None:
    with conversation.stream_response("open_responses") as recorder:
        for event in a_stream("Hi"):
            recorder.feed(event)


CHANGED = ("changed", None, None, None)

# what is done to a conversation with the items 0 to 2 and a branch -> what the feed says about it
WRITES: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, ...]]]] = {
    "user": (lambda c: c.user("Hi"), [("appended", 0, 3, 3)]),
    "add_items": (lambda c: c.add_items([a_message("a"), a_message("b")]), [("appended", 0, 3, 4)]),
    "no items": (lambda c: c.add_items([]), []),
    "add_input": (lambda c: c.add_input([{"role": "user", "content": "x"}], "messages"), [("appended", 0, 3, 3)]),
    "add_response": (lambda c: c.add_response(an_answer("Hi"), "open_responses"), [("appended", 0, 3, 3)]),
    "no output": (
        lambda c: c.add_response({**an_answer("Hi"), "output": []}, "open_responses"),
        [("appended", 0, 3, 2)],
    ),
    "stream_response": (stream, [("appended", 0, 3, 3)]),
    "record_attempt": (lambda c: c.record_attempt("messages", error="timeout"), []),
    "compact": (lambda c: c.compact(summary="short"), [("appended", 0, 3, 3)]),
    "on a branch": (lambda c: c.on_branch(1).user("Hi"), [("appended", 1, 3, 3)]),
    "fork": (lambda c: c.fork(at=0), [("changed", 2, None, None)]),
    "on a new branch": (lambda c: c.user("Hi", expected_head=0, on_conflict="branch"), [("appended", 2, 3, 3)]),
    "update": (lambda c: c.update(title="T", labels={"a": "b"}, temperature=1), [CHANGED]),
    "register_tool": (lambda c: c.register_tool("look_up"), [CHANGED]),
    "set_active_branch": (lambda c: c.set_active_branch(1), [CHANGED]),
    "archive": (lambda c: c.archive(), [CHANGED]),
    "json_output": (lambda c: c.json_output({"type": "object"}), [CHANGED]),
    "pop": (lambda c: c.pop(), [CHANGED]),
    "remove_item": (lambda c: c.remove_item(1), [CHANGED]),
    "redact_item": (lambda c: c.redact_item(0), [CHANGED]),
    "clear": (lambda c: c.clear(), [CHANGED]),
    "edit": (lambda c: c.edit(1, "other"), [("appended", 2, 3, 3), CHANGED]),
    "set_state": (lambda c: c.set_state("draft", {"text": "Hi"}), [CHANGED]),
    "delete_state": (lambda c: c.delete_state("none"), []),
    "a state of an append": (lambda c: c.user("Hi", states={"draft": 1}), [("appended", 0, 3, 3)]),
    "label_item": (lambda c: c.label_item(0, {"a": "b"}), [CHANGED]),
    "set_feedback": (lambda c: c.set_feedback(0, rating=1), [CHANGED]),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write_is_told_once(store: Any, name: str) -> None:
    write, told = WRITES[name]
    conversation = store.create_conversation(model="m", input=[a_message("a"), a_message("b"), a_message("c")])
    conversation.fork()
    before = store.changes("now").cursor
    write(conversation)
    assert read(store, before) == told
    assert {change.conversation_id for change in store.changes(before)} <= {conversation.id}


def test_conversations_come_and_go(store: Any, now: str) -> None:
    first = store.create_conversation(model="m", input="Hi")
    second = store.create_conversation(model="m", user_id="ann")
    store.delete_conversation(first.id)
    store.erase_user("ann")
    store.retain(content=0)
    found = store.changes(now)
    assert [(change.conversation_id, change.kind, change.to_position) for change in found] == [
        (first.id, "appended", 0), (second.id, "appended", -1), (first.id, "deleted", None),
        (second.id, "deleted", None),
    ]  # fmt: skip
    assert all(change.created_at.tzinfo is not None for change in found)
    assert found.changes[0].to_dict()["conversation_id"] == first.id


def test_what_is_imported_is_told(store: Any, conversation: Any) -> None:
    conversation.user("Hi")
    lines = list(store.export())
    store.delete_conversation(conversation.id)
    now = store.changes("now").cursor
    store.import_export(lines)
    assert read(store, now) == [("appended", 0, 0, 0)]
    store.import_export(lines)
    assert len(store.changes(now)) == 1


def test_many_new_conversations_are_told_in_order(store: Any, now: str) -> None:
    ids = store.save_many([Session(model="m", input=str(number)) for number in range(60)])
    assert [change.conversation_id for change in store.changes(now)] == ids


def test_a_repeated_call_and_a_refused_one_tell_nothing(store: Any, conversation: Any) -> None:
    conversation.user("Hi", idempotency_key="once")
    now = store.changes("now").cursor
    conversation.user("Hi", idempotency_key="once")
    with pytest.raises(HeadConflict):
        conversation.add_response(an_answer("x"), "open_responses", expected_head=7)
    with pytest.raises(ThreadkeepError):
        conversation.update(temprature=1)
    assert read(store, now) == []


def test_pages_follow_each_other(store: Any, conversation: Any, now: str) -> None:
    for number in range(7):
        conversation.user(str(number))
    whole = store.changes(now).changes
    found, cursor = [], now
    while page := store.changes(cursor, limit=3):
        found += page.changes
        cursor = page.cursor
    assert [change.id for change in found] == [change.id for change in whole]
    for index, change in enumerate(whole):
        assert [one.id for one in store.changes(change.cursor)] == [one.id for one in whole[index + 1 :]]
    conversation.user("more")
    assert len(store.changes(cursor)) == len(store.changes(whole[-1].cursor)) == 1


def test_from_the_beginning(store: Any) -> None:
    assert list(store.changes()) == []
    store.create_conversation(model="m").user("Hi")
    assert [one[0] for one in read(store, None)] == ["appended"] * 2


def test_a_tenant_has_a_feed_of_its_own(stores: Any, face: str, store: Any, conversation: Any) -> None:
    name = f"another {face} {conversation.id}"
    other = stores.get(face).create_tenant(name)
    conversation.user("Hi")
    assert list(other.changes()) == []
    with pytest.raises(InvalidOption, match="another database or tenant"):
        other.changes(store.changes("now").cursor)
    other.create_conversation(model="m")
    with_rows = other.handle.scope.tenant
    stores.get(face).delete_tenant(name)
    with stores.get("sync").handle.transactions.engine.connect() as connection:
        assert not connection.execute(select(changes.c.id).where(changes.c.tenant_id == with_rows)).all()


def test_only_who_sees_all_users_may_read_it(store: Any, conversation: Any) -> None:
    with pytest.raises(InvalidOption, match="for the user 'ann' only"):
        store.for_user("ann").changes()


@pytest.mark.parametrize("after", ["", "x", "é", "a" * 5000, 7, b"now", "eyJh", "AAAAAA=="])
def test_what_is_not_a_cursor_is_refused(store: Any, after: Any) -> None:
    with pytest.raises(InvalidOption, match="not a cursor of the change feed"):
        store.changes(after)


def test_a_cursor_that_was_changed_is_refused(store: Any, conversation: Any) -> None:
    cursor = store.changes().cursor
    data = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    for index in range(len(data)):
        changed = bytes([*data[:index], data[index] ^ 1, *data[index + 1 :]])
        with pytest.raises(InvalidOption):
            store.changes(base64.urlsafe_b64encode(changed).decode().rstrip("="))


def test_a_cursor_of_another_kind_of_database_is_refused(tmp_path: Any, store: Any, database: Database) -> None:
    if database.kind == "sqlite":
        pytest.skip("it would be of the same kind")
    with Store(f"sqlite:///{tmp_path}/x.db") as other:
        other.create_conversation(model="m")
        cursor = other.changes().cursor
    with pytest.raises(InvalidOption, match="another database"):
        store.changes(cursor)


def test_limits_are_checked(store: Any) -> None:
    for bad in ({"limit": 0}, {"limit": 1001}, {"lag": -1}, {"lag": "x"}, {"lag": float("nan")}, {"lag": 1e9}):
        with pytest.raises(InvalidOption):
            store.changes(**bad)


def test_a_transaction_cannot_read_what_it_has_not_committed(
    database: Database, face: str, tenant: str, store: Any
) -> None:
    if face == "async":
        pytest.skip("the connection would be another one")
    with database.engine().connect() as host, pytest.raises(InvalidOption, match="committed"):
        store.within(host).changes()


# Pruning


def grow_old(connection: Connection, tenant: int, days: int) -> None:
    """Let the changes of a tenant be older."""
    of_tenant = changes.c.tenant_id == tenant
    connection.execute(
        update(changes).where(of_tenant).values(id=changes.c.id - days * DAY, created_at=changes.c.created_at)
    )


def wait_until_settled(database: Database) -> None:
    """Wait until no transaction of the server is older than the newest change: a cursor would be from before it."""
    if database.kind != "postgresql":
        return
    xmin = text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    with database.engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        newest = connection.execute(select(func.max(changes.c.transaction_id))).scalar_one()
        wait_until(lambda: connection.execute(xmin).scalar_one() > newest, seconds=60)


def test_old_changes_are_removed_and_old_cursors_expire(database: Database, store: Any, conversation: Any) -> None:
    first = store.changes("now").cursor
    for number in range(5):
        conversation.user(str(number))
    with database.engine().begin() as connection:
        grow_old(connection, store.handle.scope.tenant, 10)
    wait_until_settled(database)
    whole = store.changes()
    assert len(whole) == 6
    assert store.retain(changes=9, dry_run=True).changes == 5
    assert store.retain(changes=9).changes == 5
    assert store.retain(changes=9).changes == 0
    assert [one.id for one in store.changes()] == [whole.changes[-1].id]  # the newest one stays
    behind = [whole.changes[index].cursor for index in range(4)]
    if database.kind == "postgresql":
        behind.append(first)
    for cursor in behind:
        with pytest.raises(CursorExpired, match="Start again"):
            store.changes(cursor)
    assert list(store.changes(whole.cursor)) == []
    conversation.user("new")
    assert len(store.changes(whole.cursor)) == 1
    assert len(store.changes()) == 2


def test_changes_of_the_last_hour_stay(store: Any, conversation: Any) -> None:
    for number in range(5):
        conversation.user(str(number))
    assert store.retain(changes=0).changes == 0
    assert store.retain(changes=timedelta(minutes=1)).changes == 0
    assert len(store.changes()) == 6


def test_pruning_in_batches(
    database: Database, store: Any, conversation: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.store.work.pacing.FIRST", 2)
    for number in range(8):
        conversation.user(str(number))
    with database.engine().begin() as connection:
        grow_old(connection, store.handle.scope.tenant, 10)
    assert store.retain(changes=9).changes == 8
    mark, left = tables.rows("changes", "id")
    assert (mark["id"], mark["kind"], mark["conversation_id"], left["kind"]) == (0, "pruned", 0, "appended")


@pytest.mark.parametrize("database", ["sqlite", "mariadb"], indirect=True)
def test_what_was_removed_stays_known_after_a_late_change_is_removed(
    database: Database, store: Any, conversation: Any, tables: Tables
) -> None:
    """One that a transaction of hours commits after all that is newer was removed."""
    for number in range(5):
        conversation.user(str(number))
    with database.engine().begin() as connection:
        grow_old(connection, store.handle.scope.tenant, 10)
    behind = store.changes().changes[2].cursor
    late = tables.rows("changes", "id")[0]
    assert store.retain(changes=9).changes == 5
    with database.engine().begin() as connection:
        connection.execute(insert(changes), late)
    assert store.retain(changes=9).changes == 1
    with pytest.raises(CursorExpired):
        store.changes(behind)


def test_a_restored_database_is_told_from_its_later_self(database: Database, store: Any, conversation: Any) -> None:
    conversation.user("Hi")
    page = store.changes()
    cursor = page.changes[0].cursor if database.kind == "postgresql" else page.cursor
    with database.engine().begin() as connection:
        of_tenant = changes.c.tenant_id == store.handle.scope.tenant
        if database.kind == "postgresql":
            found = cursor_from(cursor, "postgresql", store.handle.scope.tenant)
            cursor = str(Cursor("postgresql", found.tenant, 0, PgSnapshot(2**40, 2**40)))
        else:
            connection.execute(changes.delete().where(of_tenant, changes.c.id == page.changes[-1].id))
    with pytest.raises(CursorExpired):
        store.changes(cursor)


# Open transactions


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_what_a_long_transaction_commits_late_is_not_left_out(
    database: Database, stores: Any, tenant: str, store: Any, conversation: Any
) -> None:
    """The store's own ways of reading it; another conversation goes on meanwhile."""
    other = store.create_conversation(model="m")
    now = store.changes("now").cursor
    with database.engine().connect() as host:
        within = stores.get("sync").for_tenant(tenant).within(host)
        within.get_conversation(conversation.id).user("slow")
        other.user("fast")
        during = store.changes(now)
        told = [change.conversation_id for change in during]
        assert told == ([other.id] if database.kind == "postgresql" else [])
        within.get_conversation(conversation.id).user("slower")
        present = store.changes("now").cursor
        host.commit()
    after = store.changes(during.cursor)
    told += [change.conversation_id for change in after]
    assert sorted(told) == sorted([other.id, conversation.id, conversation.id])
    assert {change.conversation_id for change in store.changes(present)} >= {conversation.id}
    assert list(store.changes(after.cursor)) == []


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_what_is_rolled_back_holds_nothing_up(
    database: Database, stores: Any, tenant: str, store: Any, conversation: Any
) -> None:
    other = store.create_conversation(model="m")
    now = store.changes("now").cursor
    with database.engine().connect() as host:
        stores.get("sync").for_tenant(tenant).within(host).get_conversation(conversation.id).user("never")
        other.user("fast")
        page = store.changes(now)
        host.rollback()
    page = store.changes(now)
    assert [change.conversation_id for change in page] == [other.id]
    assert list(store.changes(page.cursor)) == []


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_what_appears_behind_the_cursor_makes_the_feed_go_back(
    database: Database, store: Any, conversation: Any
) -> None:
    """A server of a cluster whose clock is behind: within `lag`, it is found; later, it is not."""
    for number in range(4):
        conversation.user(str(number))
    page = store.changes(lag=3600)
    assert list(store.changes(page.cursor, lag=3600)) == []
    with database.engine().begin() as connection:
        row = connection.execute(select(changes).where(changes.c.id == page.changes[2].id)).mappings().one()
        connection.execute(changes.insert(), {**row, "id": row["id"] - 1})
    again = store.changes(page.cursor, lag=3600)
    assert [change.id for change in again] == [
        *(change.id for change in page.changes[:2]), page.changes[2].id - 1, *(one.id for one in page.changes[2:])
    ]  # fmt: skip
    assert list(store.changes(again.cursor, lag=3600)) == []
    past = store.changes(again.cursor, lag=0).cursor
    with database.engine().begin() as connection:
        connection.execute(changes.insert(), {**row, "id": row["id"] - 2})
    assert list(store.changes(past, lag=0)) == []


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_rows_settle_before_they_are_told(store: Any, now: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadkeep.db.feeds._SETTLED", 30.0)
    store.create_conversation(model="m")
    assert list(store.changes(now)) == []
    monkeypatch.setattr("threadkeep.db.feeds._SETTLED", 0.0)
    assert len(store.changes(now)) == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_keys_of_sqlite_do_not_go_back_with_the_clock(database: Database, store: Any, conversation: Any) -> None:
    with database.engine().begin() as connection:
        grow_old(connection, store.handle.scope.tenant, -100)
    page = store.changes()
    conversation.user("Hi")
    conversation.user("Ho")
    keys = [change.id for change in store.changes(page.cursor)]
    assert keys == [page.changes[-1].id + 1, page.changes[-1].id + 2]


def test_keys_follow_the_clock_of_the_database(store: Any, conversation: Any) -> None:
    [change] = store.changes()
    assert abs(change.id - key_at(change.created_at)) < 3600 * 1_000_000 * SERIALS


# Costs


def test_reading_takes_a_constant_number_of_statements(store: Any, conversation: Any, database: Database) -> None:
    most = {"sqlite": 2, "postgresql": 3, "mariadb": 5}[database.kind]
    cursor = None
    for _ in range(3):
        with statements_of(store) as seen:
            cursor = store.changes(cursor, limit=10).cursor
        assert len(seen) <= most
        for number in range(20):
            conversation.user(str(number))


def test_a_write_takes_no_other_statement_on_postgresql(store: Any, conversation: Any, database: Database) -> None:
    beside = 0 if database.kind == "postgresql" else 1
    reads = 1 if database.kind == "mariadb" else 0
    conversation.add_turn("Hi", an_answer("Hi"), "open_responses")
    calls: list[tuple[Callable[[], Any], int]] = [
        (lambda: conversation.user("Hi"), 2 if beside else 1),
        (lambda: conversation.add_response(an_answer("Hi"), "open_responses"), 5 if beside else 1),
    ]
    for call, alone in calls:
        with statements_of(store) as seen:
            call()
        assert len(seen) == alone + beside + reads


def test_a_deleted_conversation_is_told_before_its_rows_are_gone(
    store: Any, conversation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = store.changes("now").cursor

    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("threadkeep.store.removing.retention.purging.purge_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.delete_conversation(conversation.id)
    assert read(store, now) == [("deleted", None, None, None)]
    store.purge_deleted()
    assert len(store.changes(now)) == 1
    with pytest.raises(NotFound):
        store.delete_conversation(conversation.id)
