"""Tenants and users: what belongs to others is not found, by any method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.factories import a_call, a_message, an_answer, an_error
from tests.store.faces import Blocking
from tests.store.watching import Tables
from threadkeep import (
    AsyncConversation,
    CachePlan,
    Conversation,
    IdempotencyConflict,
    InvalidOption,
    NotFound,
    Session,
    Store,
    ToolRegistry,
)
from threadkeep.domain.ids import derived_id, response_id
from threadkeep.store.work.refs import Scope

REGISTRY = ToolRegistry()
REGISTRY.register("look_up")

CACHE = CachePlan("create", "00", claim="00", model="m", expires_at=datetime.now(UTC))

# Every public method of a conversation, called as by somebody who may not.
METHODS: dict[str, Callable[[Any], Any]] = {
    "user": lambda c: c.user("Hi"),
    "assistant": lambda c: c.assistant("Hi"),
    "system": lambda c: c.system("Hi", idempotency_key="new"),
    "developer": lambda c: c.developer("Hi", expected_head=0),
    "add_item": lambda c: c.add_item(a_call(), expected_head=7, on_conflict="branch"),
    "add_items": lambda c: c.add_items([a_message(), a_message()], expected_head=0, on_conflict="append"),
    "add_function_call_output": lambda c: c.add_function_call_output(call_id="c", output="x", idempotency_key="used"),
    "add_response": lambda c: c.add_response(an_answer("Hi"), "open_responses"),
    "add_response of an error": lambda c: c.add_response(an_error(), "open_responses"),
    "add_response elsewhere": lambda c: c.add_response(an_answer("Hi"), "open_responses", expected_head=7),
    "add_input": lambda c: c.add_input([{"role": "user", "content": "Hi"}], "chat_completion"),
    "sync_request": lambda c: c.sync_request({"messages": [{"role": "user", "content": "Hi"}]}, "chat_completion"),
    "add_turn": lambda c: c.add_turn("Hi", an_answer("Hello"), "open_responses"),
    "stream_response": lambda c: c.stream_response("open_responses").__enter__(),
    "record_attempt": lambda c: c.record_attempt("open_responses", error="lost"),
    "pop": lambda c: c.pop(),
    "remove_item": lambda c: c.remove_item(0, purge=True),
    "clear": lambda c: c.clear(),
    "redact_item": lambda c: c.redact_item(0),
    "pending_calls": lambda c: c.pending_calls(),
    "next_step": lambda c: c.next_step(),
    "approve": lambda c: c.approve("c"),
    "deny": lambda c: c.deny("c", reason="no"),
    "cancel_response": lambda c: c.cancel_response(),
    "partial_response": lambda c: c.partial_response(),
    "siblings": lambda c: c.siblings(0),
    "edit": lambda c: c.edit(0, "Mine"),
    "regenerate": lambda c: c.regenerate(),
    "to_markdown": lambda c: c.to_markdown(),
    "render": lambda c: c.render("open_responses"),
    "request_payload": lambda c: c.request_payload("chat_completion"),
    "request_body": lambda c: c.request_body("open_responses"),
    "session": lambda c: c.session(),
    "clone_config": lambda c: c.clone_config(),
    "items": lambda c: c.items(),
    "get_item": lambda c: c.get_item(0),
    "get_item by id": lambda c: c.get_item(derived_id("message", c.id, 0)),
    "label_item": lambda c: c.label_item(0, {"mine": "yes"}),
    "set_feedback": lambda c: c.set_feedback(0, rating=1),
    "feedback": lambda c: c.feedback(),
    "feedback on an item": lambda c: c.feedback(0),
    "transcript": lambda c: c.transcript(),
    "responses": lambda c: c.responses(),
    "mark_seen": lambda c: c.mark_seen(c.handle.ref.scope.user or "ann"),
    "seen": lambda c: c.seen(c.handle.ref.scope.user or "ann"),
    "get_response": lambda c: c.get_response(0),
    "get_response by id": lambda c: c.get_response("resp_1"),
    "input_items": lambda c: c.input_items(0),
    "output_items": lambda c: c.output_items(0),
    "response_body": lambda c: c.response_body(0),
    "usage": lambda c: c.usage(),
    "compact": lambda c: c.compact(summary="Mine"),
    "undo_compaction": lambda c: c.undo_compaction(),
    "plan_context_cache": lambda c: c.plan_context_cache("gemini", threshold=0),
    "record_context_cache": lambda c: c.record_context_cache(CACHE, name="cachedContents/1"),
    "fork": lambda c: c.fork(at=0),
    "on_branch": lambda c: c.on_branch(1),
    "branches": lambda c: c.branches(),
    "set_active_branch": lambda c: c.set_active_branch(1),
    "state": lambda c: c.state("run"),
    "states": lambda c: c.states(),
    "set_state": lambda c: c.set_state("run", 1),
    "delete_state": lambda c: c.delete_state("run"),
    "update": lambda c: c.update(title="Mine", labels={}, temperature=1),
    "json_output": lambda c: c.json_output({"type": "object"}),
    "think": lambda c: c.think(effort="high"),
    "register_tool": lambda c: c.register_tool("look_up"),
    "register_tools": lambda c: c.register_tools(REGISTRY),
    "use_tools": lambda c: c.use_tools(registry=REGISTRY),
    "remove_tool": lambda c: c.remove_tool("look_up"),
    "clear_tools": lambda c: c.clear_tools(),
    "archive": lambda c: c.archive(),
    "unarchive": lambda c: c.unarchive(),
}

# Methods of a store that take an id.
BY_ID: dict[str, Callable[[Any, str], Any]] = {
    "get_conversation": lambda store, public_id: store.get_conversation(public_id, branch=0),
    "render": lambda store, public_id: store.render(public_id, "open_responses"),
    "copy_conversation": lambda store, public_id: store.copy_conversation(public_id),
    "get_item": lambda store, public_id: store.get_item(derived_id("message", public_id, 0)),
    "get_item by its own id": lambda store, _: store.get_item("msg_resp_1_0"),
    "get_response": lambda store, public_id: store.get_response(response_id(public_id, 0)),
    "get_response by the provider's id": lambda store, _: store.get_response("resp_1"),
    "delete_response": lambda store, public_id: store.delete_response(response_id(public_id, 0)),
    "delete_response by the provider's id": lambda store, _: store.delete_response("resp_1"),
    "delete_conversation": lambda store, public_id: store.delete_conversation(public_id),
}
# The others: what they show or make is tested one by one below.
OTHERS = {
    "after", "backlog", "backup", "begin", "changes", "check", "close", "complete_id", "copy_to", "create_conversation",
    "create_tenant", "delete_tenant", "erase_user", "export", "export_usage", "fill_usage_days", "find_conversation",
    "for_tenant", "for_user", "import_export", "import_request", "list_conversations", "list_items", "list_summaries",
    "media", "position", "purge_deleted", "recompute_costs", "reconcile_usage", "reindex",
    "retain", "run_in_transaction", "save", "save_many", "search",
    "search_conversations", "spend", "statistics", "tool_usage", "upload_media", "usage", "watch", "within",
}  # fmt: skip


def methods_of(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_the_tables_hold_every_method() -> None:
    assert {name.split()[0] for name in METHODS} == methods_of(Conversation)
    assert {name.split()[0] for name in BY_ID} | OTHERS == methods_of(Store)


def fill(store: Any, **about: Any) -> Any:
    """A conversation with something for every method to find."""
    conversation = store.create_conversation(model="m", input="Hi", external_id="x", labels={"a": "b"}, **about)
    conversation.register_tool("look_up")
    conversation.add_response(an_answer("Hello"), "open_responses", idempotency_key="used")
    conversation.fork()
    return conversation


@pytest.fixture
def full(store: Any) -> Any:
    return fill(store, user_id="ann")


@pytest.fixture
def stranger(stores: Any, face: str, tenant: str) -> Any:
    """The store of another tenant."""
    return stores.get(face).create_tenant(f"stranger {tenant}")


def seen_by(handle: Any, scope: Scope) -> Any:
    """A handle on the same rows for somebody else, which no method of a store gives."""
    if isinstance(handle, Blocking):
        return Blocking(seen_by(handle._wrapped, scope), handle._runner)
    if isinstance(handle, AsyncConversation):
        return AsyncConversation(seen_by(handle.sync, scope), handle.call)
    return Conversation(handle.handle.on(replace(handle.handle.conversation, scope=scope)))


def finding(conversation: Any) -> Iterator[str]:
    """The methods that find something."""
    for name, call in METHODS.items():
        try:
            call(conversation)
        except NotFound:
            continue
        yield name


def test_another_tenant_finds_nothing(full: Any, stranger: Any, tables: Tables) -> None:
    written = tables.written()
    assert list(finding(seen_by(full, stranger.handle.scope))) == []
    assert written() == {}


def test_another_user_finds_nothing(store: Any, full: Any, tables: Tables) -> None:
    written = tables.written()
    assert list(finding(seen_by(full, Scope(store.handle.scope.tenant, "ben")))) == []
    assert written() == {}


def test_a_conversation_that_was_given_away_is_lost(store: Any, full: Any) -> None:
    """A handle of its former user finds it no longer, and says so by the id that the user knows."""
    handle = store.for_user("ann").get_conversation(full.id)
    handle.render("open_responses")
    full.update(user_id="ben")
    for call in METHODS.values():
        with pytest.raises(NotFound, match=full.id):
            call(handle)
    assert store.for_user("ben").get_conversation(full.id).user_id == "ben"


def test_a_foreign_id_is_not_found(store: Any, full: Any, stranger: Any, tables: Tables) -> None:
    written = tables.written()
    for other in (stranger, stranger.for_user("ann"), store.for_user("ben")):
        for find in BY_ID.values():
            with pytest.raises(NotFound):
                find(other, full.id)
    assert written() == {}


def test_what_others_have_is_not_shown(store: Any, full: Any, stranger: Any) -> None:
    for other in (stranger, stranger.for_user("ann"), store.for_user("ben")):
        assert other.find_conversation(external_id="x") is None
        assert not list(other.list_conversations(status=None))
        assert not list(other.list_conversations(user_id="ann"))
        assert not list(other.list_conversations(labels={"a": "b"}))
        assert not list(other.search("Hello"))
        assert not list(other.search("Hello", conversation_id=full.id, status=None))
        assert other.usage(by=("model",)) == []
        assert other.usage(by=("model",), user_id="ann") == []
        assert other.usage(by=("model",), conversation_id=full.id) == []
    own = store.for_user("ann")
    assert own.find_conversation(external_id="x").id == full.id
    assert [found.id for found in own.list_conversations(user_id="ann")] == [full.id]
    assert own.usage(by=("model",), conversation_id=full.id)[0].input_tokens == 10


def test_reports_over_all_tenants_are_for_the_store_of_all(
    stores: Any, face: str, store: Any, full: Any, stranger: Any, tenant: str
) -> None:
    """No store of a tenant or a user makes one, not even about itself."""
    other = fill(stranger, user_id="ben")
    other.record_attempt("open_responses", error="late", status="failed", latency_ms=700)
    every, names = stores.get(face), (tenant, f"stranger {tenant}")
    rows = [row for row in every.usage(by=("status", "tenant"), percentiles=True) if row.tenant in names]
    assert [(row.status, row.tenant, row.attempts) for row in rows] == [
        ("completed", tenant, 1), ("completed", f"stranger {tenant}", 1), ("failed", f"stranger {tenant}", 1),
    ]  # fmt: skip
    assert [row.p95_latency_ms is None for row in rows] == [True, True, False]
    totals = [row for row in every.usage(by="tenant", order_by="attempts") if row.tenant in names]
    assert [(row.tenant, row.attempts) for row in totals] == [(names[1], 2), (names[0], 1)]
    assert {row.tenant for row in every.usage(by="tenant", user_id="ben")} & {*names} == {names[1]}
    other.set_feedback(1, rating=1)
    rated = [row for row in every.usage(by=("feedback", "tenant")) if row.tenant in names]
    assert [(row.feedback, row.tenant) for row in rated] == [(1, names[1]), (None, names[0]), (None, names[1])]
    for one in (store, stranger, store.for_user("ann")):
        for by in ("tenant", ("tenant", "day")):
            with pytest.raises(InvalidOption, match="tenant"):
                one.usage(by=by)
    for call in (every.usage, lambda: every.usage(by="day"), lambda: every.for_user("ann").usage(by="tenant")):
        with pytest.raises(InvalidOption, match="tenant"):
            call()


def test_users_are_told_that_names_of_new_conversations_are_shared(store: Any, tables: Tables) -> None:
    """… by all users of a tenant, for the name may be that of a conversation that this user cannot find."""
    store.for_user("ann").create_conversation(external_id="E", idempotency_key="K", model="m")
    ben, written = store.for_user("ben"), tables.written()
    with pytest.raises(
        InvalidOption, match=r"external_id 'E'.*unless it is another user's.*begin yours with the user's"
    ):
        ben.create_conversation(external_id="E")
    with pytest.raises(IdempotencyConflict, match=r"'K' was used before.*share external ids and the keys"):
        ben.create_conversation(idempotency_key="K", model="m")
    assert written() == {}
    own = ben.create_conversation(external_id="ben/E", idempotency_key="ben/K")
    with pytest.raises(InvalidOption, match="unless it is another user's"):
        own.update(external_id="E")
    with pytest.raises(InvalidOption, match=r"find_conversation\(external_id=...\) finds it\.$"):
        store.create_conversation(external_id="E")


def test_what_others_made_does_not_hinder(store: Any, full: Any, stranger: Any) -> None:
    """External ids, keys, options and tools are the tenant's own."""
    other = fill(stranger)
    assert other.id != full.id
    assert stranger.find_conversation(external_id="x").id == other.id
    assert [tool["name"] for tool in other.tools] == ["look_up"]
    store.delete_conversation(full.id)
    assert stranger.purge_deleted() == 0
    assert len(stranger.get_conversation(other.id).transcript()) == 2


def test_a_store_of_a_user_makes_conversations_of_that_user(store: Any) -> None:
    ann = store.for_user("ann")
    made = [ann.create_conversation(), ann.save(Session()), ann.get_conversation(ann.save_many([Session()])[0])]
    assert [conversation.user_id for conversation in made] == ["ann"] * 3
    assert ann.copy_conversation(made[0].id).user_id == "ann"
    assert ann.create_conversation(user_id="ann").user_id == "ann"
    calls: list[Callable[[], Any]] = [
        lambda: ann.create_conversation(user_id="ben"),
        lambda: ann.save(Session(), user_id="ben"),
        lambda: ann.save_many([Session()], user_id="ben"),
        lambda: ann.copy_conversation(made[0].id, user_id="ben"),
        lambda: ann.for_user("ben"),
        lambda: made[0].update(user_id="ben"),
        lambda: made[0].update(user_id=None),
    ]
    for call in calls:
        with pytest.raises(InvalidOption):
            call()
    assert len(ann.for_user("ann").list_conversations()) == 5


def test_a_key_of_one_user_says_nothing_to_another(store: Any) -> None:
    """The same content under the same key is another user's content all the same."""
    store.for_user("ann").create_conversation(idempotency_key="key")
    store.for_user("ann").save_many([Session()], idempotency_key="many")
    ben = store.for_user("ben")
    calls: list[Callable[[], Any]] = [
        lambda: ben.create_conversation(idempotency_key="key"),
        lambda: ben.save_many([Session()], idempotency_key="many"),
    ]
    for call in calls:
        with pytest.raises(IdempotencyConflict):
            call()


def test_the_ledger_shows_the_own_attempts(store: Any) -> None:
    for user in ("ann", "ben"):
        store.for_user(user).create_conversation(external_id=user)
    store.for_user("ann").find_conversation(external_id="ann").add_response(an_answer("Hi"), "open_responses")
    store.for_user("ben").find_conversation(external_id="ben").record_attempt("open_responses", error="lost")
    assert [row.keys for row in store.for_user("ann").usage(by=("user_id", "status"))] == [
        {"user_id": "ann", "status": "completed"}
    ]
    assert store.for_user("ben").usage()[0].input_tokens is None
    assert store.usage()[0].attempts == 2


# Names


@pytest.mark.parametrize("name", ["nobody", "Acme", "acme ", " acme", "acme\x00", "e\u0301", "acme\ud800"])
def test_names_of_tenants_are_exact(stores: Any, face: str, name: str, tenant: str) -> None:
    """A mistyped name is an error, never a new tenant."""
    root = stores.get(face)
    for known in (f"{tenant}acme", f"{tenant}é"):
        root.create_tenant(known)
    with pytest.raises(NotFound):
        root.for_tenant(tenant + name)
    made = root.create_tenant(tenant + name)
    conversation = made.create_conversation()
    assert root.for_tenant(tenant + name).get_conversation(conversation.id).id == conversation.id
    assert not list(root.for_tenant(f"{tenant}acme").list_conversations())


@pytest.mark.parametrize("name", ["", "t" * 256, "é" * 200, None, 7, b"acme"], ids=ascii)
def test_names_of_tenants_are_short_texts(stores: Any, face: str, name: Any) -> None:
    root = stores.get(face)
    for call in (root.create_tenant, root.for_tenant, root.delete_tenant):
        with pytest.raises(InvalidOption):
            call(name)


def test_names_of_users_are_exact(store: Any) -> None:
    names = ["acme", "Acme", "acme ", " acme", "é", "e\u0301", "acme\x00", "acme\\", "\ud800", "u" * 255]
    for name in names:
        store.for_user(name).create_conversation(title=ascii(name))
    for name in names:
        own = store.for_user(name).list_conversations()
        assert [(found.title, found.user_id) for found in own] == [(ascii(name), name)]
        assert len(store.list_conversations(user_id=name)) == 1


def test_a_tenant_is_made_once(stores: Any, face: str, tenant: str) -> None:
    with pytest.raises(InvalidOption, match=tenant):
        stores.get(face).create_tenant(tenant)


def test_a_store_with_tenants_has_no_conversations(stores: Any, face: str, store: Any) -> None:
    root = stores.get(face)
    for call in (
        root.create_conversation,
        root.list_conversations,
        root.usage,
        lambda: root.for_user("ann").list_conversations(),
        lambda: store.for_tenant("other"),
        lambda: store.create_tenant("other"),
        lambda: store.delete_tenant("other"),
    ):
        with pytest.raises(InvalidOption, match="tenant"):
            call()
