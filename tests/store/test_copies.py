"""Copies to a database of any kind: continued after an interruption, and compared at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from tests.conftest import upgraded
from tests.databases import Database, Databases, NotAtHand
from tests.factories import an_answer
from tests.store.conftest import Stores
from tests.store.test_exports import bodies, full, rows
from tests.store.watching import statements_of
from threadkeep import AsyncStore, InvalidOption, NotFound
from threadkeep.store.moving.blocks import ImportWriter

# From one to another: each kind to and from another one
PAIRS = [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "mariadb"), ("mariadb", "sqlite")]
pytestmark = [
    pytest.mark.one_face,
    pytest.mark.parametrize(("database", "place"), PAIRS, indirect=True, scope="module"),
]


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """The database that is copied to."""
    try:
        made = databases.prepared(request.param, upgraded)
    except NotAtHand as refusal:
        pytest.skip(str(refusal))
    yield made
    databases.drop(made)


@pytest.fixture(scope="module")
def targets(place: Database, stores: Stores) -> Iterator[Stores]:
    """Its stores, in the same event loop as those of the source."""
    made = Stores(place.url)
    made._runner = stores._runner
    yield made
    for store in made._opened.values():
        store.close()


@pytest.fixture
def other(targets: Stores, face: str, tenant: str) -> Any:
    """A store of a new tenant in it."""
    return targets.get(face).create_tenant(tenant)


def copied(store: Any, other: Any, **options: Any) -> Any:
    """Copy to a store of the same face."""
    return store.copy_to(getattr(other, "_wrapped", other), **options)


def test_a_copy_is_the_same(store: Any, other: Any) -> None:
    conversation = full(store)
    full(store, "bob", "y")
    report = copied(store, other)
    assert (report.conversations, report.skipped, report.attempts, report.compared) == (2, 0, 2, 2)
    assert (report.is_equal, report.different, report.differences) == (True, 0, [])
    assert (report.figures["input_tokens"], report.figures["output_tokens"]) == (20, 10)
    assert rows(list(other.export())) == rows(list(store.export()))
    assert bodies(other.get_conversation(conversation.id)) == bodies(conversation)
    again = copied(store, other)
    assert (again.conversations, again.skipped, again.attempts, again.is_equal) == (0, 2, 0, True)


def test_an_interrupted_copy_goes_on(store: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        full(store, f"user {number}", str(number))
    write, calls = ImportWriter._insert, iter(range(100))

    def interrupted(*arguments: Any, **named: Any) -> int:
        result = write(*arguments, **named)
        if next(calls) == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(ImportWriter, "_insert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copied(store, other)
    monkeypatch.undo()
    assert len(list(other.list_conversations())) == 1  # the second one was rolled back
    seen: list[tuple[str, int]] = []
    report = copied(store, other, progress=lambda what, count: seen.append((what, count)))
    assert (report.conversations, report.skipped, report.is_equal) == (2, 1, True)
    assert {what for what, _ in seen} == {"conversations", "attempts", "compared"}


def test_what_differs_is_said_and_left(store: Any, other: Any) -> None:
    first, second, third = (full(store, str(number), str(number)) for number in range(3))
    copied(store, other)
    first.user("went on", on_conflict="append")
    other.get_conversation(second.id).add_response(an_answer("only there"), "open_responses")
    other.delete_conversation(third.id)
    other.create_conversation(external_id="2")
    report = copied(store, other)
    found = {one.conversation_id: one for one in report.differences}
    assert (report.is_equal, report.different, set(found)) == (False, 3, {first.id, second.id, third.id})
    assert {"conversations", "items"} <= set(found[first.id].tables)
    assert {"items", "responses", "response_bodies"} <= set(found[second.id].tables)
    assert found[first.id].reason is None
    assert "external_id" in str(found[third.id].reason)
    assert other.get_conversation(second.id).transcript()[-1].item.to_dict()["content"][0]["text"] == "only there"
    with pytest.raises(NotFound):
        other.get_conversation(third.id)


def test_what_was_deleted_in_the_source_since_is_said_and_left(store: Any, other: Any) -> None:
    """Otherwise it would be back, unnoticed, where the application goes on with the target."""
    kept, deleted, erased = full(store), full(store, "bob", "y"), full(store, "eve", "z")
    assert (copied(store, other).extra, copied(store, other).extras) == (0, [])
    store.delete_conversation(deleted.id)
    store.erase_user("eve")
    report = copied(store, other)
    assert (report.extra, set(report.extras), report.skipped) == (2, {deleted.id, erased.id}, 1)
    assert other.get_conversation(deleted.id).user_id == "bob"
    assert copied(store.for_user("bob"), other).extras == [deleted.id]
    assert copied(store.for_user("ann"), other).extras == []
    other.delete_conversation(deleted.id)
    other.erase_user("eve")
    report = copied(store, other)
    assert (report.is_equal, report.extra, report.compared) == (True, 0, 1)
    assert other.get_conversation(kept.id).user_id == "ann"


def test_a_deletion_in_the_target_that_was_interrupted_is_the_reason(store: Any, other: Any, place: Database) -> None:
    conversation = full(store)
    copied(store, other)
    with place.engine().begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE threadkeep_conversations SET status = 'deleted' WHERE tenant_id = {other.handle.scope.tenant}"
        )
    report = copied(store, other)
    assert [one.reason for one in report.differences] == [f"The conversation {conversation.id} is being deleted."]
    assert (report.skipped, other.purge_deleted()) == (0, 1)
    assert (copied(store, other).conversations, copied(store, other).is_equal) == (1, True)


def test_a_tenant_that_only_the_target_has(stores: Stores, targets: Stores, face: str, store: Any, tenant: str) -> None:
    full(store)
    left = targets.get(face).create_tenant(f"{tenant} left").create_conversation(model="m")
    report = copied(stores.get(face), targets.get(face))
    assert left.id in report.extras


def test_a_changed_ledger_is_seen(store: Any, other: Any, targets: Stores, place: Database) -> None:
    full(store)
    copied(store, other)
    with place.engine().begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE threadkeep_usage_records SET input_tokens = 11 WHERE tenant_id = {other.handle.scope.tenant}"
        )
    report = copied(store, other)
    assert [(one.conversation_id, one.tables) for one in report.differences] == [(None, ("usage_records",))]
    assert (report.figures["input_tokens"], report.figures["output_tokens"]) == (None, 5)


def test_only_a_user(store: Any, other: Any) -> None:
    ann, bob = full(store), full(store, "bob", "y")
    report = copied(store.for_user("bob"), other)
    assert (report.conversations, report.attempts, report.compared, report.is_equal) == (1, 1, 1, True)
    assert other.get_conversation(bob.id).user_id == "bob"
    with pytest.raises(NotFound):
        other.get_conversation(ann.id)
    with pytest.raises(InvalidOption, match="'eve' only"):
        copied(store, other.for_user("eve"))
    with pytest.raises(InvalidOption, match="'eve' only"):
        copied(store.for_user("bob"), other.for_user("eve"))
    assert copied(store.for_user("bob"), other.for_user("bob")).skipped == 1


def test_a_response_in_progress_does_not_stop_a_copy(store: Any, other: Any) -> None:
    """Its recorder goes on in the source; then the copy is not the same any more."""
    conversation = store.create_conversation(model="m", input="Hi")
    with conversation.stream_response("open_responses") as recorder:
        assert copied(store, other).is_equal
        recorder.cancel()
    assert not copied(store, other).is_equal
    other.get_conversation(conversation.id).user("on", on_conflict="append")


@pytest.mark.usefixtures("place")
def test_nothing_is_copied_to_itself(store: Any, stores: Stores, face: str, tenant: str) -> None:
    """It would be found to be equal, and nobody has a copy; other tenants of the database are others."""
    conversation = full(store)
    again = stores.get(face, "again").for_tenant(tenant)
    for same in (store, again, again.for_user("ann")):
        with pytest.raises(InvalidOption, match="the same tenant in the same database"):
            copied(store.for_user("ann") if same is not store else store, same)
    other = stores.get(face).create_tenant(f"{tenant} 2")
    assert copied(store, other).is_equal
    assert other.get_conversation(conversation.id).user_id == "ann"


def test_statements_by_the_conversation(store: Any, other: Any) -> None:
    """What is there already costs two pages and the comparison."""
    counts = []
    for number in range(3):
        full(store, str(number), str(number))
        copied(store, other)
        with statements_of(other) as seen:
            copied(store, other)
        counts.append(len(seen))
    assert counts[2] - counts[1] == counts[1] - counts[0] <= 20


def test_between_async_stores(database: Database, place: Database) -> None:
    """SQLite works in threads, servers in the event loop."""

    async def use() -> None:
        async with AsyncStore(database.url) as source, AsyncStore(place.url) as target:
            await source.create_conversation(model="m", input="Hi", external_id=None)
            assert (await source.copy_to(target)).is_equal

    asyncio.run(use())


@pytest.mark.parametrize("tenants", [False, True], ids=["one tenant", "all tenants"])
def test_sqlite_never_holds_up_the_event_loop(database: Database, place: Database, tenant: str, tenants: bool) -> None:
    """… whichever of both it is, and also while the other one's statements run there."""
    threads: dict[str, set[bool]] = {"source": set(), "target": set()}

    def watched(name: str, store: AsyncStore) -> AsyncStore:
        def note(*_: Any) -> None:
            threads[name].add(threading.current_thread() is threading.main_thread())

        event.listen(store.sync.handle.root.engine, "before_cursor_execute", note)
        return store

    async def use() -> None:
        source = watched("source", AsyncStore(database.url, tenants=tenants))
        async with source, watched("target", AsyncStore(place.url, tenants=tenants)) as target:
            made = await source.for_tenant(tenant) if tenants else source.for_user(tenant)
            conversation = await made.create_conversation(model="m", input="Hi")
            await conversation.add_response(an_answer("Hello"), "open_responses")
            if tenants:
                report = await source.copy_to(target)
                copied = await (await target.for_tenant(tenant)).get_conversation(conversation.id)
            else:
                report = await made.copy_to(target)
                copied = await target.get_conversation(conversation.id)
            assert report.conversations >= 1
            assert await copied.request_body("gemini") == await conversation.request_body("gemini")

    asyncio.run(use())
    assert threads["source"] == {database.kind != "sqlite"}
    assert threads["target"] == {place.kind != "sqlite"}
