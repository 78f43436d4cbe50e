"""Every writing method takes an idempotency key: what is done under it is done once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.factories import a_call, a_message, a_stream, an_answer, an_error, an_output
from tests.store.watching import Tables
from threadkeep import (
    Conversation,
    HeadConflict,
    IdempotencyConflict,
    InvalidOption,
    NotFound,
    ProviderError,
    Session,
    Store,
    ToolRegistry,
)
from threadkeep.store.work import item_rows

pytestmark = pytest.mark.one_face

REGISTRY = ToolRegistry()
REGISTRY.register("r1")
REGISTRY.register("r2")


def a_turn(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def streamed(conversation: Any, n: int, key: str) -> Any:
    """The response of a stream, of another format for another `n`."""
    with conversation.stream_response(("", "open_responses", "chat_completion")[n], idempotency_key=key) as recorder:
        for event in a_stream("Hello"):
            recorder.feed(event)
    return recorder.response


def place_of(item: Any) -> Any:
    return None if item is None else (item.id, item.position, item.branch, type(item.item))


# AppendOptions each writing method is called on a conversation: with the content 1 or 2, under a key.
WRITES: dict[str, Callable[[Any, int, str], Any]] = {
    "user": lambda c, n, key: c.user(f"text {n}", idempotency_key=key),
    "assistant": lambda c, n, key: c.assistant(f"text {n}", idempotency_key=key),
    "system": lambda c, n, key: c.system(f"text {n}", idempotency_key=key),
    "developer": lambda c, n, key: c.developer(f"text {n}", idempotency_key=key),
    "add_item": lambda c, n, key: c.add_item(a_call(f"call_{n}"), idempotency_key=key),
    "add_items": lambda c, n, key: c.add_items([a_message("a"), a_message(f"{n}")], idempotency_key=key),
    "add_function_call_output": lambda c, n, key: c.add_function_call_output(
        call_id="call_1", output=f"{n}", idempotency_key=key
    ),
    "add_response": lambda c, n, key: c.add_response(an_answer(f"text {n}"), "open_responses", idempotency_key=key),
    "add_turn": lambda c, n, key: c.add_turn(f"text {n}", an_answer("Yes"), "open_responses", idempotency_key=key),
    "approve": lambda c, n, key: c.approve(f"open_{n}", idempotency_key=key),
    "deny": lambda c, n, key: c.deny(f"open_{n}", idempotency_key=key),
    "add_input": lambda c, n, key: c.add_input(a_turn(f"text {n}"), "chat_completion", idempotency_key=key),
    "sync_request": lambda c, n, key: c.sync_request(
        {"messages": [a_turn("before"), a_turn(f"text {n}")]}, "chat_completion", idempotency_key=key
    ),
    "stream_response": streamed,
    "record_attempt": lambda c, n, key: c.record_attempt("open_responses", error=f"lost {n}", idempotency_key=key),
    "compact": lambda c, n, key: c.compact(summary=f"text {n}", idempotency_key=key),
    "undo_compaction": lambda c, _, key: c.undo_compaction(idempotency_key=key),
    "pop": lambda c, _, key: place_of(c.pop(idempotency_key=key)),  # a replay has no content
    "remove_item": lambda c, n, key: c.remove_item(n - 1, idempotency_key=key),
    "clear": lambda c, n, key: c.clear(purge=n == 1, idempotency_key=key),
    "redact_item": lambda c, n, key: c.redact_item(n - 1, idempotency_key=key),
    "fork": lambda c, n, key: c.fork(at=n - 2, idempotency_key=key),
    "edit": lambda c, n, key: c.edit(0, f"text {n}", idempotency_key=key),
    "regenerate": lambda c, n, key: c.regenerate((0, 3)[n - 1], idempotency_key=key),
    "update": lambda c, n, key: c.update(temperature=n, title="T", labels={"n": str(n)}, idempotency_key=key),
    "json_output": lambda c, n, key: c.json_output({"type": "object", "title": f"{n}"}, idempotency_key=key),
    "think": lambda c, n, key: c.think(budget_tokens=n, idempotency_key=key),
    "register_tool": lambda c, n, key: c.register_tool(f"t{n}", idempotency_key=key),
    "register_tools": lambda c, n, key: c.register_tools([{"type": "function", "name": f"t{n}"}], idempotency_key=key),
    "use_tools": lambda c, n, key: c.use_tools(f"r{n}", registry=REGISTRY, idempotency_key=key),
    "remove_tool": lambda c, n, key: c.remove_tool(f"old{n}", idempotency_key=key),
    "clear_tools": lambda c, _, key: c.clear_tools(idempotency_key=key),
    "archive": lambda c, _, key: c.archive(idempotency_key=key),
    "unarchive": lambda c, _, key: c.unarchive(idempotency_key=key),
    "label_item": lambda c, n, key: c.label_item(0, {"n": str(n)}, idempotency_key=key),
    "set_feedback": lambda c, n, key: c.set_feedback(0, rating=n, idempotency_key=key),
    "set_state": lambda c, n, key: c.set_state("run", {"step": n}, idempotency_key=key),
    "delete_state": lambda c, n, key: c.delete_state(f"old{n}", idempotency_key=key),
    "set_active_branch": lambda c, n, key: c.set_active_branch(n - 1, idempotency_key=key),
}
WITHOUT_CONTENT = {"pop", "undo_compaction", "clear_tools", "archive", "unarchive"}
CREATIONS: dict[str, Callable[[Any, int, str], Any]] = {
    "create_conversation": lambda store, n, key: store.create_conversation(
        model="m", input="Hi", title=f"T{n}", idempotency_key=key
    ),
    "import_request": lambda store, n, key: store.import_request(
        {"model": "m", "messages": [a_turn(f"text {n}")]}, "chat_completion", idempotency_key=key
    ),
    "save": lambda store, n, key: store.save(Session(model=f"m{n}", input="Hi"), idempotency_key=key),
    "save_many": lambda store, n, key: store.save_many(
        [Session(model="m", input="Hi"), Session(model=f"m{n}")], idempotency_key=key
    ),
}


@pytest.fixture
def prepared(conversation: Any) -> Any:
    """A conversation that every writing method can be called on."""
    conversation.user("before")
    conversation.compact(summary="before")
    conversation.add_items([a_call("open_1"), a_call("open_2"), a_call("call_1")])
    conversation.fork()
    conversation.register_tools([{"type": "function", "name": "old1"}, {"type": "function", "name": "old2"}])
    return conversation


@pytest.mark.parametrize("face", [Store, Conversation])
def test_every_writing_method_takes_a_key(face: type) -> None:
    def takes_key(method: Any) -> bool:
        hints = method.__annotations__
        return "idempotency_key" in hints or str(hints.get("options")).endswith("AppendOptions]")

    found = {name for name, method in inspect.getmembers(face, inspect.isfunction) if takes_key(method)}
    tested = {*CREATIONS, "copy_conversation", "delete_conversation"} if face is Store else set(WRITES)
    assert {name for name in found if not name.startswith("_")} == tested


def identity(result: Any) -> Any:
    """What a replay must give again."""
    if isinstance(result, list):
        return [identity(one) for one in result]
    if hasattr(result, "response"):
        return identity([*result.items, result.response])
    if hasattr(result, "rating"):
        return result
    if hasattr(result, "approval"):
        return result
    if hasattr(result, "position"):
        return (result.id, result.position, result.branch, result.item.to_dict())
    if hasattr(result, "matched"):
        return (result, result.branch, identity(result.items))
    if hasattr(result, "branch"):
        return (result.id, result.branch, result.head)
    if hasattr(result, "output"):
        return [item.to_dict() for item in result.output]
    return result.name if hasattr(result, "name") else result


def is_replayed(result: Any) -> list[bool]:
    return [one.replayed for one in (result if isinstance(result, list) else [result]) if hasattr(one, "replayed")]


@pytest.mark.parametrize("method", WRITES)
def test_the_same_content_gives_the_first_result(prepared: Any, tables: Tables, elsewhere: Any, method: str) -> None:
    """… and writes nothing, from whichever store it is asked."""
    first = WRITES[method](prepared, 1, "key")
    assert not any(is_replayed(first))
    written, revision = tables.written(), tables.rows("conversations", "id")[0]["revision"]
    again = WRITES[method](elsewhere.get_conversation(prepared.id), 1, "key")
    assert identity(again) == identity(first)
    assert all(is_replayed(again))
    assert written() == {}
    assert tables.rows("conversations", "id")[0]["revision"] == revision


@pytest.mark.parametrize("method", sorted(set(WRITES) - WITHOUT_CONTENT))
def test_other_content_is_a_conflict(prepared: Any, tables: Tables, method: str) -> None:
    WRITES[method](prepared, 1, "key")
    written = tables.written()
    with pytest.raises(IdempotencyConflict) as caught:
        WRITES[method](prepared, 2, "key")
    assert caught.value.key == "key"
    assert written() == {}


def test_another_method_is_other_content(prepared: Any) -> None:
    prepared.user("Hi", idempotency_key="key")
    for method, write in WRITES.items():
        if method != "user":
            with pytest.raises(IdempotencyConflict):
                write(prepared, 1, "key")


def test_a_change_of_long_ago_is_not_done_again(conversation: Any) -> None:
    conversation.archive(idempotency_key="key")
    conversation.unarchive()
    conversation.archive(idempotency_key="key")
    assert conversation.status == "active"


@pytest.mark.parametrize("method", CREATIONS)
def test_a_conversation_is_created_once(store: Any, tables: Tables, elsewhere: Any, method: str) -> None:
    first = CREATIONS[method](store, 1, "key")
    written = tables.written()
    again = CREATIONS[method](elsewhere, 1, "key")
    if method == "save_many":
        assert first == again
    else:
        assert (first.replayed, again.replayed) == (False, True)
        assert again.id == first.id
    with pytest.raises(IdempotencyConflict):
        CREATIONS[method](store, 2, "key")
    assert written() == {}


def test_keys_belong_to_one_conversation(store: Any) -> None:
    one, two = store.create_conversation(), store.create_conversation()
    assert not one.user("Hi", idempotency_key="key").replayed
    assert not two.user("Hi", idempotency_key="key").replayed
    assert not store.create_conversation(idempotency_key="key").replayed


def test_keys_belong_to_one_tenant(stores: Any, face: str, store: Any, tenant: str) -> None:
    other = stores.get(face).create_tenant(f"other {tenant}")
    assert not store.create_conversation(idempotency_key="key").replayed
    assert not other.create_conversation(idempotency_key="key").replayed


def test_keys_differ_by_every_byte(conversation: Any) -> None:
    for key in ("key", "key ", "Key", "kéy", "ke\u0301y", "key\\", "key\x00", "key\ud800"):
        assert not conversation.user("Hi", idempotency_key=key).replayed
        assert conversation.user("Hi", idempotency_key=key).replayed


@pytest.mark.parametrize("key", ["", "k" * 256, "é" * 128, 7, b"key"])
def test_keys_are_short_texts(store: Any, conversation: Any, tables: Tables, key: Any) -> None:
    written = tables.written()
    for write, on in [(write, conversation) for write in WRITES.values()] + [
        (write, store) for write in CREATIONS.values()
    ]:
        with pytest.raises(InvalidOption):
            write(on, 1, key)
    assert written() == {}


def test_the_place_of_the_retry_does_not_matter(conversation: Any) -> None:
    """The hash covers the method and its content, not where the branch is expected to end."""
    first = conversation.user("Hi", idempotency_key="key", expected_head=-1)
    conversation.user("more")
    for how in ({"expected_head": -1}, {"expected_head": -1, "on_conflict": "branch"}, {"expected_head": 99}, {}):
        again = conversation.user("Hi", idempotency_key="key", **how)
        assert (again.replayed, again.position, again.branch) == (True, first.position, 0)
    assert conversation.head == 1
    assert len(conversation.branches()) == 1


def test_an_answer_is_replayed_wherever_the_branch_ends(conversation: Any, tables: Tables) -> None:
    conversation.add_response(an_answer("Hi"), "open_responses", idempotency_key="key", expected_head=-1)
    written = tables.written()
    for conflict in ("raise", "append", "branch"):
        again = conversation.add_response(
            an_answer("Hi"), "open_responses", idempotency_key="key", expected_head=-1, on_conflict=conflict,
            latency_ms=5, headers={"x": "y"},
        )  # fmt: skip
        assert again.replayed
    assert written() == {}


def test_an_error_envelope_is_written_down_once(conversation: Any, tables: Tables) -> None:
    written = tables.written()
    for _ in range(2):
        with pytest.raises(ProviderError, match="Slow down"):
            conversation.add_response(an_error(), "open_responses", idempotency_key="key")
        assert written() == {"usage_records": 1, "appends": 1}
    with pytest.raises(IdempotencyConflict):
        conversation.add_response(an_answer("Hi"), "open_responses", idempotency_key="key")


def test_a_lost_race_is_written_down_once(conversation: Any, tables: Tables) -> None:
    """The tokens were used, so the ledger knows; the same key again raises the same error and writes nothing."""
    conversation.user("Hi")
    written = tables.written()
    for _ in range(2):
        with pytest.raises(HeadConflict) as caught:
            conversation.add_response(an_answer("Hi"), "open_responses", idempotency_key="key", expected_head=7)
        assert caught.value.head == 0
        assert written() == {"usage_records": 1, "appends": 1}


@pytest.mark.parametrize("conflict", ["append", "branch"])
def test_a_refused_answer_can_be_stored_after_all(conversation: Any, tables: Tables, conflict: str) -> None:
    """… without a second row in the ledger."""
    conversation.user("Hi")
    conversation.user("Somebody else")
    how = {"idempotency_key": "key", "expected_head": 0}
    with pytest.raises(HeadConflict):
        conversation.add_response(an_answer("Hi"), "open_responses", **how)
    written = tables.written()
    response = conversation.add_response(an_answer("Hi"), "open_responses", on_conflict=conflict, **how)
    assert not response.replayed
    expected = {"items": 1, "responses": 1, "response_bodies": 1}
    assert written() == expected | ({"branches": 1} if conflict == "branch" else {})
    written = tables.written()
    again = conversation.add_response(an_answer("Hi"), "open_responses", on_conflict=conflict, **how)
    assert again.replayed
    assert written() == {}


def test_a_refused_message_leaves_its_key_free(conversation: Any, tables: Tables) -> None:
    written = tables.written()
    with pytest.raises(HeadConflict):
        conversation.user("Hi", idempotency_key="key", expected_head=7)
    assert written() == {}
    assert not conversation.user("Hi", idempotency_key="key").replayed


def test_a_failed_write_leaves_its_key_free(store: Any, tables: Tables) -> None:
    store.create_conversation(external_id="taken")
    written = tables.written()
    for _ in range(2):
        with pytest.raises(InvalidOption):
            store.create_conversation(external_id="taken", idempotency_key="key")
    assert written() == {}
    assert not store.create_conversation(external_id="free", idempotency_key="key").replayed


def test_a_copy_is_made_once(store: Any, conversation: Any) -> None:
    first = store.copy_conversation(conversation.id, idempotency_key="key")
    conversation.user("the original goes on")
    again = store.copy_conversation(conversation.id, idempotency_key="key")
    assert (first.replayed, again.replayed, again.id == first.id) == (False, True, True)
    with pytest.raises(IdempotencyConflict):
        store.copy_conversation(conversation.id, idempotency_key="key", title="another one")


def test_the_items_of_a_copy_are_encoded_once(store: Any, conversation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation.user("Hi")
    encode, encoded = item_rows.encode_item, []

    def encode_item(*args: Any, **kwargs: Any) -> Any:
        encoded.append(args)
        return encode(*args, **kwargs)

    monkeypatch.setattr("threadkeep.store.writing.conversations.item_rows.encode_item", encode_item)
    store.copy_conversation(conversation.id, idempotency_key="key")
    assert len(encoded) == len(conversation.session().items)


def test_a_deletion_is_done_once(store: Any, conversation: Any) -> None:
    other = store.create_conversation()
    for _ in range(2):
        store.delete_conversation(conversation.id, idempotency_key="key")
    with pytest.raises(IdempotencyConflict):
        store.delete_conversation(other.id, idempotency_key="key")


def test_an_interrupted_import_goes_on(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that were stored before are not stored again."""
    monkeypatch.setattr("threadkeep.store.writing.importing.in_batches.__defaults__", (2,))
    first = store.save_many([Session(model=f"m{number}") for number in range(4)], idempotency_key="key")
    again = store.save_many([Session(model=f"m{number}") for number in range(7)], idempotency_key="key")
    assert again[:4] == first
    assert len(set(again)) == 7
    assert len(store.list_conversations()) == 7


def test_the_conversation_of_a_key_may_be_deleted(store: Any) -> None:
    made = store.create_conversation(model="m", idempotency_key="key")
    store.delete_conversation(made.id)
    with pytest.raises(NotFound):
        store.create_conversation(model="m", idempotency_key="key")


def test_tools_of_a_registry_are_the_same_content(conversation: Any) -> None:
    registry = ToolRegistry()
    registry.register("look_up", description="Look it up", parameters={"type": "object"})
    first = conversation.register_tools(registry, idempotency_key="key")
    again = conversation.register_tools([tool.to_dict() for tool in first], idempotency_key="key")
    assert [tool.name for tool in again] == ["look_up"]
    assert [tool["name"] for tool in conversation.tools] == ["look_up"]


@pytest.mark.parametrize("method", ["user", "add_response", "fork", "update", "record_attempt", "create_conversation"])
def test_one_of_many_threads_wins(stores: Any, tenant: str, method: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m", input="before")

    def write(_: int) -> Any:
        if method in CREATIONS:
            return CREATIONS[method](store, 1, "key")
        return WRITES[method](store.get_conversation(conversation.id), 1, "key")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(write, range(8)))
    assert sum(not replayed for result in results for replayed in is_replayed(result)) in {0, 1}
    assert len({str(identity(result)) for result in results}) == 1
    counts = {
        "user": ("items", 2),
        "add_response": ("items", 2),
        "fork": ("branches", 1),
        "record_attempt": ("usage", 1),
    }
    kind, expected = counts.get(method, ("none", 0))
    found = {
        "items": len(store.get_conversation(conversation.id).transcript()),
        "branches": len(conversation.branches()) - 1,
        "usage": store.usage()[0].attempts,
        "none": 0,
    }
    assert found[kind] == expected


def test_one_of_many_tasks_wins(stores: Any, tenant: str) -> None:
    store = stores.get("async").for_tenant(tenant)
    conversation = store.create_conversation(model="m")

    async def write() -> Any:
        handle = await store._wrapped.get_conversation(conversation.id)
        return await handle.user("Hi", idempotency_key="key")

    async def writes() -> list[Any]:
        return await asyncio.gather(*(write() for _ in range(8)))

    results = store._runner.run(writes())
    assert sorted(result.replayed for result in results) == [False] + [True] * 7
    assert len(conversation.transcript()) == 1


def test_an_output_is_said_once_by_any_name(conversation: Any) -> None:
    conversation.add_items([a_call("c"), a_call()])
    conversation.add_item(an_output(output="x"), idempotency_key="a")
    first = conversation.add_function_call_output(call_id="c", output="x", idempotency_key="b")
    assert (
        conversation.add_function_call_output(call_id="c", result="x", idempotency_key="b").position == first.position
    )
