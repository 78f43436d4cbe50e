"""Removals while others remove, use and write the same: nothing is lost, nothing is left, and none goes on for ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event
from typing import Any

import pytest
from sqlalchemy import Engine, delete, event, select, text, update
from sqlalchemy.exc import OperationalError

from tests.databases import Database
from tests.factories import a_picture, an_answer, noise
from tests.store.sweeps import meanwhile
from tests.store.test_uploads import let_expire
from tests.store.watching import Tables, engine_of
from threadkeep import Conflict, NotFound, Session, Store
from threadkeep.db.models import configs, conversations, item_blobs, tool_sets, usage_records
from threadkeep.db.refusals import is_transient
from threadkeep.domain import ids
from threadkeep.store.removing import rules
from threadkeep.store.store import from_handle
from threadkeep.store.usage.ledger import record_unstored
from threadkeep.store.usage.observing import ObservedCall, add_observer

pytestmark = pytest.mark.parametrize("face", ["sync"], indirect=True)

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
ENDLESS = 500  # statements after which nothing will ever end
FOUND = 100  # conversations that are found at once
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}

Watch = Callable[[str], object]


@contextmanager
def watched(engine: Engine, watch: Watch) -> Iterator[None]:
    """Call a function before each statement."""

    def before(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        watch(statement)

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", before)


def once_before(beginning: str, change: Callable[[], object], *, number: int = 1) -> Watch:
    """Call a function before the first statement that begins so, or a later one."""
    left = [*[lambda: None] * (number - 1), change]

    def watch(statement: str) -> None:
        if statement.startswith(beginning) and left:
            left.pop(0)()

    return watch


# Users


def test_a_user_is_erased_while_others_delete_what_was_found(
    stores: Any, store: Any, elsewhere: Any, tables: Tables
) -> None:
    """Retention, for example, which begins with the same conversations."""
    made = store.for_user("ann").save_many([Session(model="m")] * (FOUND + 5))

    def retain() -> None:
        for conversation in made[:FOUND]:
            elsewhere.delete_conversation(conversation)

    lock = "BEGIN" if engine_of(store).dialect.name == "sqlite" else "SELECT threadkeep_conversations.id, threadkeep"
    with watched(engine_of(store), once_before(lock, retain)):
        assert store.erase_user("ann").conversations == 5
    assert tables.counts()["conversations"] == 0


def test_a_user_is_erased_while_conversations_change_their_status(store: Any, elsewhere: Any, tables: Tables) -> None:
    """Whenever somebody looks for them, they are archived, or active again."""
    kept = store.create_conversation(model="m", user_id="ann", input="Hi")
    kept.archive()
    other = elsewhere.get_conversation(kept.id)
    changes = itertools.cycle([other.unarchive, other.archive])

    def change(statement: str) -> None:
        if "ORDER BY threadkeep_conversations.last_activity_at" in statement:
            with suppress(NotFound):
                next(changes)()

    with watched(engine_of(store), change):
        assert store.erase_user("ann").conversations == 1
    assert tables.counts()["conversations"] == 0


def ledger_rows(store: Any) -> list[Any]:
    row = usage_records.c
    with engine_of(store).connect() as connection:
        of_tenant = row.tenant_id == store.handle.scope.tenant
        return [*connection.execute(select(row.user_id, row.error, row.status).where(of_tenant))]


def begun(store: Any, since: datetime) -> Any:
    """A store for what was begun at a time, as the server has it."""
    return from_handle(Store, replace(store.handle, since=since))


def a_call() -> ObservedCall:
    """A call without a conversation, which failed."""
    calls: list[ObservedCall] = []
    with Store("sqlite://") as other:
        add_observer(other, calls.append)
        other.create_conversation(model="m").record_attempt("open_responses", error="ann is away")
    return calls[0]


def test_a_user_is_erased_while_a_call_without_a_conversation_is_counted(store: Any, elsewhere: Any) -> None:
    """The transaction of its row begins when the erasure is over."""
    call = a_call()
    ann = begun(store.for_user("ann"), datetime.now(UTC))
    with watched(engine_of(store), once_before("", lambda: elsewhere.erase_user("ann"))):
        record_unstored(ann, call, ids.new_key())
    assert ledger_rows(store) == [(None, None, "failed")]
    record_unstored(begun(store.for_user("ann"), datetime.now(UTC)), call, ids.new_key())
    assert min(map(str, ledger_rows(store))).startswith("('ann'")


# What names ann: what is written, in a store of all users and in a conversation of ben's
NAMING: dict[str, Callable[[Any, Any], object]] = {
    "a conversation": lambda store, _: store.create_conversation(model="m", user_id="ann"),
    "conversations": lambda store, _: store.save_many([Session(model="m")] * 2, user_id="ann"),
    "her conversation": lambda store, _: store.for_user("ann").create_conversation(model="m", input="Hi"),
    "an import": lambda store, _: store.import_request({"messages": []}, "chat_completion", user_id="ann"),
    "an owner": lambda _, talk: talk.update(user_id="ann"),
    "an author": lambda _, talk: talk.user("Hi", author_id="ann"),
    "feedback": lambda _, talk: talk.set_feedback(0, rating=1, user_id="ann"),
    "a reader": lambda _, talk: talk.mark_seen("ann"),
    "an upload": lambda store, _: store.for_user("ann").upload_media(b"ann", media_type="text/plain"),
}


@pytest.mark.parametrize("what", NAMING)
def test_what_names_a_user_is_not_written_if_it_was_begun_before_the_erasure(
    store: Any, tables: Tables, what: str
) -> None:
    talk, since = store.create_conversation(model="m", user_id="ben", input="Hi"), datetime.now(UTC)
    store.erase_user("ann")
    before, early = tables.counts(), begun(store, since)
    with pytest.raises(NotFound, match="The user 'ann' was erased"):
        NAMING[what](early, early.get_conversation(talk.id))
    assert tables.counts() == before
    late = begun(store, datetime.now(UTC))
    NAMING[what](late, late.get_conversation(talk.id))
    early.for_user("ben").create_conversation(model="m", input="Hi")  # who was not erased


def rows_naming(engine: Engine, store: Any, user: str) -> int:
    with engine.connect() as connection:
        return sum(connection.scalar(count) for count in rules.counts_of_user(store.handle.scope.tenant, user))


@SERVERS
@pytest.mark.parametrize("what", [*NAMING, "a call"])
def test_an_erasure_waits_for_what_names_the_user_and_is_not_committed(
    store: Any, elsewhere: Any, watching: Engine, what: str
) -> None:
    """It was written when nothing said that there is an erasure, by a transaction of which nothing is seen before."""
    talk = store.create_conversation(model="m", user_id="ben", input="Hi")
    name = NAMING | {"a call": lambda store, _: record_unstored(store.for_user("ann"), a_call(), ids.new_key())}
    looks = iter([*[lambda: None] * (watching.dialect.name == "postgresql"), (waits := Event()).set])

    def watch(statement: str) -> None:
        if "pg_locks" in statement or "LOCK IN SHARE MODE" in statement:
            next(looks, lambda: None)()

    with watching.connect() as host, ThreadPoolExecutor(1) as pool, watched(engine_of(elsewhere), watch):
        early = begun(store.within(host), datetime.now(UTC))
        name[what](early, early.get_conversation(talk.id))
        erasure = pool.submit(elsewhere.erase_user, "ann")
        erasure.add_done_callback(lambda _: waits.set())
        assert waits.wait(30)
        host.commit()
        erasure.result(timeout=30)
    assert rows_naming(watching, store, "ann") == 0


@SERVERS
def test_an_erasure_says_that_a_transaction_does_not_end(
    database: Database, store: Any, tenant: str, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.db.backends.BUSY_SECONDS", 0)
    is_patient = "?init_command=SET innodb_lock_wait_timeout=1" if database.kind == "mariadb" else ""
    with Store(database.url + is_patient, tenants=True) as opened, watching.connect() as host:
        erasing = opened.for_tenant(tenant)
        store.create_conversation(model="m", user_id="ann", input="Hi")
        store.within(host).create_conversation(model="m", user_id="ann")
        with pytest.raises(Conflict, match="began before the erasure of 'ann' is still open"):
            erasing.erase_user("ann")
        assert rows_naming(watching, store, "ann") == 0  # of what is committed
        host.commit()
        assert erasing.erase_user("ann").conversations == 1


# Transactions of the caller that see the past


@contextmanager
def past(engine: Engine) -> Iterator[Any]:
    """A transaction that sees what was there when it began, as on MySQL by default."""
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "REPEATABLE READ"
    with engine.execution_options(isolation_level=level).connect() as host:
        host.execute(text("SELECT count(*) FROM threadkeep_tenants")).all()
        yield host
        host.commit()


def count_to(most: int) -> Watch:
    numbers = itertools.count()
    return lambda statement: next(numbers) < most or pytest.fail(f"it does not end: {statement}")


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_a_conversation_is_deleted_of_which_others_have_removed_a_part(
    store: Any, elsewhere: Any, watching: Engine, tables: Tables
) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_response(an_answer("Hi"), "open_responses")
    conversation.user([a_picture(noise(9_000))])
    conversation.mark_seen("ann")
    store.reindex()
    with past(watching) as host:
        assert elsewhere.retain(raw_bodies=0).raw_bodies == 1
        with watching.begin() as connection:
            connection.execute(delete(item_blobs).where(item_blobs.c.tenant_id == store.handle.scope.tenant))
        elsewhere.erase_user("ann")
        elsewhere.reindex()
        with watched(watching, count_to(ENDLESS)):
            store.within(host).delete_conversation(conversation.id)
    counts = tables.counts()
    assert {counts[name] for name in ("conversations", "items", "item_blobs", "responses", "search_documents")} == {0}


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_conversations_are_purged_that_others_have_purged(
    store: Any, elsewhere: Any, watching: Engine, tables: Tables
) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    with watching.begin() as connection:
        where = conversations.c.id == conversation.handle.ref.key
        connection.execute(update(conversations).where(where).values(status="deleted"))
    with past(watching) as host:
        assert elsewhere.purge_deleted() == 1
        with watched(watching, count_to(ENDLESS)):
            store.within(host).purge_deleted()
    assert tables.counts()["conversations"] == 0


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("fork", ["fork", "fork at a position", "edit"])
def test_a_fork_is_from_after_a_removal(
    store: Any, elsewhere: Any, conversation: Any, watching: Engine, fork: str
) -> None:
    """The lineage of a branch is read as it is now, as that of the conversation is."""
    conversation.user("0")
    branch = conversation.fork()
    for number in range(1, 4):
        branch.user(str(number))
    with past(watching) as host:
        elsewhere.get_conversation(conversation.id, branch=branch.branch).clear(purge=True)
        opened = store.within(host).get_conversation(conversation.id, branch=branch.branch)
        if fork == "fork":
            made = opened.fork().branch
        else:
            with pytest.raises(NotFound):
                opened.edit(2, "new") if fork == "edit" else opened.fork(at=2)
            made = branch.branch
    found = elsewhere.get_conversation(conversation.id, branch=made)
    assert (found.head, found.items().items) == (-1, [])
    assert elsewhere.check().findings == []


def leave_tool(store: Any, watching: Engine) -> tuple[list[str], str]:
    """An export of a conversation, and its id; nothing of it is left in the database but its tool."""
    made = store.create_conversation(model="m", tools=[TOOL], input="Hi")
    export = list(store.export())
    store.delete_conversation(made.id)
    with watching.begin() as connection:
        for table in (tool_sets, configs):
            connection.execute(delete(table).where(table.c.tenant_id == store.handle.scope.tenant))
    return export, made.id


@SERVERS
def test_tools_that_others_use_since_are_kept(
    stores: Any, store: Any, elsewhere: Any, tenant: str, watching: Engine
) -> None:
    leave_tool(store, watching)
    with past(watching) as host:
        used = elsewhere.create_conversation(model="m", tools=[TOOL])
        store.within(host).retain(content=30)
    seen = stores.get("sync", "third").for_tenant(tenant).get_conversation(used.id)
    assert [tool.name for tool in seen.tool_definitions] == [TOOL["name"]]


# Options and tools that are used again


def test_tools_of_an_import_are_kept(store: Any, elsewhere: Any, watching: Engine) -> None:
    export, public_id = leave_tool(store, watching)

    def read(connection: Any) -> None:
        store.within(connection).import_export(export)

    meanwhile(watching, read, lambda: store.retain(content=30))
    assert [tool.name for tool in elsewhere.get_conversation(public_id).tool_definitions] == [TOOL["name"]]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("call", ["create_conversation", "update"])
def test_options_that_go_are_not_taken_for_an_external_id(store: Any, elsewhere: Any, call: str) -> None:
    """They are written again, with what uses them."""
    store.delete_conversation(store.create_conversation(model="m").id)
    other = store.create_conversation()
    verb, make = {
        "create_conversation": ("INSERT INTO", store.create_conversation),
        "update": ("UPDATE", other.update),
    }[call]
    number = 2 if call == "update" else 1  # it locks the row first
    change = once_before(f"{verb} threadkeep_conversations", lambda: elsewhere.retain(content=30), number=number)
    with watched(engine_of(store), change):
        make(model="m", external_id="mine")
    assert elsewhere.find_conversation(external_id="mine").model == "m"


@SERVERS
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["options", "tools"])
def test_removals_wait_for_nobody_who_uses_options(
    store: Any, elsewhere: Any, watching: Engine, tables: Tables, tools: list[Any]
) -> None:
    """A transaction may go on for long, in which others would wait for what the removal has locked."""
    for model, name in (("used", "look_up"), ("gone 1", "a"), ("gone 2", "b"), ("gone 3", "c")):
        made = store.create_conversation(model=model, tools=[{**TOOL, "name": name}])
        store.delete_conversation(made.id)
    with watching.connect() as host, ThreadPoolExecutor(1) as pool:
        used = store.within(host).create_conversation(model="used", tools=tools)
        try:
            pool.submit(elsewhere.retain, content=30).result(timeout=10)
        finally:
            host.commit()
    assert [row["config"] for row in tables.rows("configs")] == ['{"model":"used"}']
    assert [row["name"] for row in tables.rows("tool_definitions")] == [tool["name"] for tool in tools]
    opened = elsewhere.get_conversation(used.id)
    assert (opened.model, [tool.name for tool in opened.tool_definitions]) == ("used", [tool["name"] for tool in tools])


@SERVERS
def test_a_deadlock_is_raised_as_what_it_is(store: Any, watching: Engine) -> None:
    """The transaction is taken back: on MySQL, it has no savepoint any more."""
    made = [store.create_conversation(model="m").id for _ in range(2)]

    def change(host: Any, ids: list[str], begun: Barrier) -> OperationalError | None:
        for one in ids:
            try:
                store.within(host).get_conversation(one).update(title="new")
            except OperationalError as error:
                host.rollback()
                return error
            if one is ids[0]:
                begun.wait(10)
        host.commit()
        return None

    begun = Barrier(2)
    with watching.connect() as first, watching.connect() as second, ThreadPoolExecutor(2) as pool:
        done = [pool.submit(change, first, made, begun), pool.submit(change, second, made[::-1], begun)]
        errors = [error for future in done if (error := future.result(timeout=30)) is not None]
    assert [is_transient(error) for error in errors] == [True]


# Media


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_media_go_with_two_conversations_that_are_deleted_at_once(store: Any, elsewhere: Any, tables: Tables) -> None:
    """Each of the deletions still sees that the other conversation has them."""
    made = [store.create_conversation(model="m") for _ in range(2)]
    for conversation in made:
        conversation.user([a_picture(noise(9_000))])
    delete_other = once_before("DELETE FROM threadkeep_items ", lambda: elsewhere.delete_conversation(made[1].id))
    with watched(engine_of(store), delete_other):
        store.delete_conversation(made[0].id)
    assert (tables.rows("item_blobs"), tables.rows("blobs")) == ([], [])


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "remove",
    [
        lambda conversation: conversation.pop(),
        lambda conversation: conversation.remove_item(0, purge=True),
        lambda conversation: conversation.clear(purge=True),
        lambda conversation: conversation.redact_item(0),
    ],
    ids=["pop", "remove_item", "clear", "redact_item"],
)
def test_media_go_with_two_items_that_are_removed_at_once(
    store: Any, elsewhere: Any, tables: Tables, remove: Callable[[Any], object]
) -> None:
    """Each of the removals still sees that the other item has them."""
    made = [store.create_conversation(model="m") for _ in range(2)]
    for conversation in made:
        conversation.user([a_picture(noise(9_000))])
    other = elsewhere.get_conversation(made[1].id)
    remove_other = once_before("SELECT threadkeep_blobs.hash, threadkeep_blobs.location", lambda: remove(other))
    with watched(engine_of(store), remove_other):
        remove(made[0])
    assert (tables.rows("item_blobs"), tables.rows("blobs")) == ([], [])


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_media_go_with_an_upload_that_expires_while_their_item_is_removed(
    store: Any, elsewhere: Any, tables: Tables, watching: Engine
) -> None:
    """Each of the removals still sees that the other one's row has them; that of the item commits first."""
    conversation, picture = store.create_conversation(model="m", input="Hi"), noise(9_000)
    conversation.user([a_picture(picture)])
    uploaded = store.upload_media(picture)
    let_expire(watching, uploaded.hash)
    other = elsewhere.get_conversation(conversation.id)
    deleted = store.create_conversation(model="m")
    pop = once_before("SELECT threadkeep_blobs.hash, threadkeep_blobs.location", other.pop)
    with watched(engine_of(store), pop):
        store.delete_conversation(deleted.id)
    assert (tables.rows("uploads"), tables.rows("item_blobs"), tables.rows("blobs")) == ([], [], [])


# Tenants


@pytest.mark.parametrize("table", ["usage_records", "changes", "uploads"])
def test_a_tenant_is_deleted_while_somebody_writes_faster(
    stores: Any, store: Any, elsewhere: Any, tenant: str, table: str, tables: Tables
) -> None:
    """Whenever somebody looks for rows, there are more: they go in the next round, in which their writer is stopped."""
    root, numbers, made = stores.get("sync"), itertools.count(), list[Any]()
    store.create_conversation(model="m", input="Hi")

    def write(statement: str) -> None:
        if not statement.startswith(f"SELECT threadkeep_{table}"):
            return
        assert next(numbers) < ENDLESS
        if not made:
            made.append(elsewhere.create_conversation(model="m"))
        with suppress(NotFound):
            made[0].user("More")
            made[0].record_attempt("messages", error="lost")
            elsewhere.upload_media(str(next(numbers)).encode())

    with watched(engine_of(root), write):
        root.delete_tenant(tenant)
    assert made
    assert set(tables.counts().values()) == {0}


@pytest.mark.parametrize("what", ["conversation", "attempt", "earlier attempt", "key"])
def test_nothing_is_imported_for_a_tenant_that_was_deleted(
    stores: Any, store: Any, elsewhere: Any, tenant: str, tables: Tables, what: str
) -> None:
    """Not even rows without a foreign key, which would stay for ever."""
    made = store.create_conversation(model="m", input="Hi", idempotency_key="k" if what == "key" else None)
    if what.endswith("attempt"):
        days = 9 if what == "earlier attempt" else 0
        made.record_attempt("messages", error="lost", occurred_at=datetime.now(UTC) - timedelta(days=days))
    if what != "conversation":
        store.delete_conversation(made.id)
    export = list(store.export())
    stores.get("sync").delete_tenant(tenant)
    with pytest.raises(NotFound, match="The tenant of this store was deleted"):
        elsewhere.import_export(export)
    assert set(tables.counts().values()) == {0}


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_tools_that_a_transaction_cannot_judge_are_left_to_the_next_removal(
    store: Any, watching: Engine, tables: Tables
) -> None:
    """Others may have begun to use them, which it would not see."""
    store.create_conversation(model="m", user_id="ann", tools=[{"type": "function", "name": "f"}])
    with past(watching) as host:
        store.within(host).erase_user("ann")
    assert (tables.counts()["tool_sets"], tables.counts()["tool_definitions"]) == (0, 1)
    store.erase_user("ben")
    assert tables.counts()["tool_definitions"] == 0
