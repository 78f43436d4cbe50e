"""Deleting: gone at once, purged in batches; the ledger stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.factories import a_message, a_picture, an_answer, noise
from tests.store.sweeps import meanwhile
from tests.store.watching import Tables
from threadkeep import NotFound, Price, Session, Store
from threadkeep.store.removing.purging import purge_batch

pytestmark = pytest.mark.one_face

OF_A_CONVERSATION = {
    "conversations", "conversation_labels", "conversation_states", "conversation_reads", "branches",
    "items", "item_blobs", "item_labels", "item_feedback", "approvals", "responses", "response_bodies", "stream_parts",
    "search_documents",
}  # fmt: skip

# Tables that outlive a conversation, and `appends`, which has the keys of a tenant, too.
OTHERS = {
    "tenants", "configs", "tool_definitions", "tool_sets", "blobs", "appends", "usage_records", "usage_daily",
    "usage_daily_models", "usage_daily_sketches", "usage_days", "changes", "api_keys", "uploads",
}  # fmt: skip
# Tables whose rows go with a conversation, too, which their own tests show.
ELSEWHERE = {
    "context_caches",
}  # fmt: skip


@pytest.fixture
def full(store: Any) -> Any:
    """A conversation with rows in every table."""
    conversation = store.create_conversation(
        model="m", input="Hi", labels={"a": "b"}, external_id="x", tools=[{"type": "function", "name": "t"}]
    )
    conversation.user([a_picture(noise(20_000))], idempotency_key="key")
    conversation.add_response(an_answer("Hello", calls=("c",)), "open_responses")
    conversation.approve("c")
    conversation.fork().user("more", states={"run": 1})
    conversation.label_item(0, {"a": "b"})
    conversation.mark_seen("ann")
    conversation.set_feedback(0, rating=1)
    store.reindex()
    conversation.on_branch(1).stream_response("open_responses").__enter__()  # its recorder is not heard of any more
    return conversation


def test_a_full_conversation_has_rows_in_every_table(full: Any, tables: Tables) -> None:
    counts = tables.counts()
    assert {name for name in OF_A_CONVERSATION if not counts[name]} == set()
    assert set(counts) - OF_A_CONVERSATION == OTHERS | ELSEWHERE


def test_nothing_is_left_but_the_ledger(store: Any, full: Any, tables: Tables) -> None:
    store.delete_conversation(full.id)
    counts = tables.counts()
    assert {name for name in OF_A_CONVERSATION if counts[name]} == set()
    assert (counts["blobs"], counts["appends"]) == (0, 0)
    assert counts["usage_records"] == 2
    assert store.usage()[0].input_tokens == 10
    assert [row["status"] for row in tables.rows("usage_records", "id")] == ["completed", "incomplete"]


def test_a_response_in_progress_counts_with_what_is_known_of_it(tmp_path: Path) -> None:
    """Whose model it was, who served it, and what it took until then; what it cost is unknown without its output."""
    prices = [Price("claude-x", input=3, output=15)]
    begun = {
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
            "usage": {"input_tokens": 1000, "output_tokens": 1},
        },
    }  # fmt: skip
    with Store(f"sqlite:///{tmp_path / 'chat.db'}", prices=prices) as store:
        conversation = store.create_conversation(model="claude", input="hi", user_id="ann")
        recorder = conversation.stream_response("messages", provider="anthropic")
        recorder.__enter__()
        recorder.feed(begun)
        store.delete_conversation(conversation.id)
        [row] = store.usage(by=("model", "provider", "user_id", "status"))
    assert row.keys == {"model": "claude-x", "provider": "anthropic", "user_id": "ann", "status": "incomplete"}
    assert (row.attempts, row.input_tokens, row.cost_nano) == (1, 1000, None)


def test_it_is_gone_for_everybody_at_once(
    store: Any, elsewhere: Any, full: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… before its rows are."""
    other = elsewhere.get_conversation(full.id)
    other.render("open_responses")

    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("threadkeep.store.removing.retention.purging.purge_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.delete_conversation(full.id)
    for look in (
        lambda: store.get_conversation(full.id),
        lambda: other.render("open_responses"),
        lambda: other.user("Hi"),
        lambda: other.add_response(an_answer("Hi"), "open_responses"),
        full.transcript,
        lambda: store.delete_conversation(full.id),
    ):
        with pytest.raises(NotFound):
            look()
    assert store.find_conversation(external_id="x") is None
    assert not list(store.list_conversations(status=None))
    assert store.create_conversation(external_id="x").external_id == "x"


def test_an_interrupted_purge_is_finished_later(
    store: Any, tables: Tables, full: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.add_items([a_message(str(number)) for number in range(2_500)])
    kept = store.create_conversation(input="stays")

    def interrupted(*arguments: Any, **named: Any) -> bool:
        if tables.counts()["items"] < 2_500:
            raise KeyboardInterrupt
        return purge_batch(*arguments, **named)

    monkeypatch.setattr("threadkeep.store.removing.retention.purging.purge_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.delete_conversation(full.id)
    monkeypatch.undo()
    assert 0 < tables.counts()["items"] < 2_500
    assert store.purge_deleted() == 1
    counts = tables.counts()
    assert (counts["items"], counts["conversations"], counts["blobs"]) == (1, 1, 0)
    assert store.purge_deleted() == 0
    assert len(kept.transcript()) == 1


def test_media_that_somebody_stores_again_meanwhile_stay(
    stores: Any, tenant: str, tables: Tables, watching: Engine
) -> None:
    """In a transaction that is committed while the deletion waits for it."""
    store, picture = stores.get("sync").for_tenant(tenant), a_picture(noise(20_000))
    deleted, other = store.create_conversation(model="m"), store.create_conversation(model="m")
    deleted.user([picture])

    def store_again(connection: Any) -> None:
        store.within(connection).get_conversation(other.id).user([picture])

    meanwhile(watching, store_again, lambda: store.delete_conversation(deleted.id))
    assert (tables.counts()["conversations"], tables.counts()["blobs"]) == (1, 1)
    assert other.transcript()[0].item.content[0].to_dict()["url"] == picture["image_url"]


def test_media_of_others_stays(store: Any, tables: Tables) -> None:
    picture = a_picture(noise(20_000))
    one, two = (store.create_conversation(model="m") for _ in range(2))
    for conversation in (one, two):
        conversation.user([picture])
    assert tables.counts()["blobs"] == 1
    store.delete_conversation(one.id)
    assert tables.counts()["blobs"] == 1
    assert two.transcript()[0].item.content[0].to_dict()["url"] == picture["image_url"]
    store.delete_conversation(two.id)
    assert tables.counts()["blobs"] == 0


def test_media_is_collected_while_others_store_the_same(stores: Any, tenant: str) -> None:
    """The collector and a writer of the same picture may meet; nobody is refused and no picture is lost."""
    store = stores.get("sync").for_tenant(tenant)
    picture = a_picture(noise(9_000))

    def come_and_go(number: int) -> None:
        for _ in range(8):
            conversation = store.create_conversation(model="m")
            conversation.user([picture])
            assert conversation.transcript()[0].item.content[0].to_dict()["url"] == picture["image_url"]
            store.delete_conversation(conversation.id)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(come_and_go, range(6)))


def test_one_of_two_deletions_wins(stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(input="Hi")

    def delete(_: int) -> str:
        try:
            store.delete_conversation(conversation.id)
        except NotFound:
            return "not found"
        return "deleted"

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(delete, range(6)))
    assert results.count("deleted") == 1


def test_a_tenant_is_deleted_with_everything(stores: Any, face: str, tenant: str, full: Any, tables: Tables) -> None:
    root = stores.get(face)
    other = root.create_tenant(f"other {tenant}")
    kept = other.create_conversation(input="stays")
    root.delete_tenant(tenant)
    assert set(tables.counts().values()) == {0}
    with pytest.raises(NotFound):
        root.for_tenant(tenant)
    with pytest.raises(NotFound):
        root.delete_tenant(tenant)
    with pytest.raises(NotFound):
        full.user("Hi")
    assert len(kept.transcript()) == 1
    assert not list(root.create_tenant(tenant).list_conversations(status=None))


def test_a_tenant_is_deleted_while_somebody_makes_conversations(
    stores: Any, face: str, tenant: str, store: Any
) -> None:
    root, made = stores.get(face), stores.get("sync", "elsewhere").for_tenant(tenant)

    def make(_: int) -> None:
        with suppress(NotFound):
            for _ in range(30):
                made.create_conversation(model="m")

    with ThreadPoolExecutor(2) as pool:
        makers = [pool.submit(make, number) for number in range(2)]
        root.delete_tenant(tenant)
        for maker in makers:
            maker.result()
    assert not list(store.list_conversations(status=None))
    with pytest.raises(NotFound):
        root.for_tenant(tenant)


def test_nothing_is_created_for_a_tenant_that_is_gone(stores: Any, face: str, tenant: str, store: Any) -> None:
    """A store that another process keeps open."""
    stores.get(face, "elsewhere").delete_tenant(tenant)
    for key in (None, "key"):
        with pytest.raises(NotFound):
            store.create_conversation(model="m", idempotency_key=key)
    with pytest.raises(NotFound):
        store.save_many([Session(model="m")], idempotency_key="key")
    assert not list(store.list_conversations())
