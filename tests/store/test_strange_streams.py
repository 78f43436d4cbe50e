"""Streams whose content cannot be kept as it came: their endings never fail, and nobody waits for them."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from copy import copy
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from tests.conftest import MATRIX, is_set
from tests.corpus import recorded
from tests.databases import Database
from tests.factories import a_message, a_picture, a_stream, an_output, noise, texts_of
from tests.store.test_streams import expire, left, streamed
from tests.store.watching import Tables
from tests.wires import SPOKEN
from threadkeep import CannotParse, NotFound, Store
from threadkeep.formats import NAMES, FormatName

pytestmark = [pytest.mark.one_face, pytest.mark.sampled, pytest.mark.share(3)]

Json = dict[str, Any]
DEEP = 300
TEXT = '{"k":' * DEEP + "1" + "}" * DEEP  # the input of a call


def nested(depth: int, *, is_list: bool = False) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found] if is_list else {"k": found}
    return found


# Streams of one text and one call, and how each of them says the input


def messages(text: str = '{"k":1}', **odd: Any) -> list[Json]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    call = {"type": "tool_use", "id": "c", "name": "look_up", "input": {}}
    return [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "claude",
                                              "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}, **odd},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": text}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]  # fmt: skip


def converse(text: str = '{"k":1}') -> list[Json]:
    return [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "c", "name": "look_up"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": text}}}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}}},
    ]


def gemini(call: Json | None = None) -> list[Json]:
    call = {"id": "c", "name": "look_up", **(call or {"args": {"k": 1}})}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    end = {"finishReason": "STOP", "content": {"role": "model", "parts": [{"functionCall": call}]}}
    return [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}}]},
        {"candidates": [end], "usageMetadata": usage},
    ]


def chat_completion(text: str = '{"k":1}') -> list[Json]:
    head = {"id": "x", "object": "chat.completion.chunk", "model": "m"}
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "look_up", "arguments": text}}
    return [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]},
        {**head, "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {**head, "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
    ]


def open_responses(text: str = "{}") -> list[Json]:
    events = a_stream("Hi", calls=("c",))
    said: list[Json] = json.loads(json.dumps(events).replace('"arguments": "{}"', '"arguments": ' + json.dumps(text)))
    return said


def interactions(text: str = '{"k":1}') -> list[Json]:
    usage = {"total_input_tokens": 10, "total_output_tokens": 5, "total_tokens": 15}
    call = {"type": "function_call", "id": "c", "name": "look_up", "arguments": {}}
    grown = {"type": "arguments_delta", "arguments": text}
    return [
        {"event_type": "interaction.created", "interaction": {"id": "i", "status": "in_progress"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}},
        {"event_type": "step.start", "index": 1, "step": call},
        {"event_type": "step.delta", "index": 1, "delta": grown},
        {"event_type": "step.stop", "index": 1},
        {
            "event_type": "interaction.completed",
            "interaction": {"id": "i", "status": "requires_action", "usage": usage},
        },
    ]


STREAMS: dict[FormatName, Callable[[], list[Json]]] = {
    "open_responses": open_responses,
    "chat_completion": chat_completion,
    "messages": messages,
    "gemini": gemini,
    "interactions": interactions,
    "converse": converse,
}
EXACT: dict[str, tuple[FormatName, Callable[[], list[Json]]]] = {
    "open_responses": ("open_responses", lambda: open_responses(TEXT)),
    "chat_completion": ("chat_completion", lambda: chat_completion(TEXT)),
    "messages": ("messages", lambda: messages(TEXT)),
    "converse": ("converse", lambda: converse(TEXT)),
}
SHORTENED: dict[str, tuple[FormatName, Callable[[], list[Json]]]] = {
    "gemini": ("gemini", lambda: gemini({"args": nested(DEEP)})),
    "messages": ("messages", lambda: [*messages()[:3], {**messages()[3], "content_block": {
        "type": "tool_use", "id": "c", "name": "look_up", "input": nested(DEEP)}}, *messages()[5:]]),
    "converse": ("converse", lambda: [*converse()[:2], {"contentBlockStart": {"contentBlockIndex": 1, "start": {
        "toolUse": {"toolUseId": "c", "name": "look_up", "input": nested(DEEP)}}}}, *converse()[4:]]),
}  # fmt: skip
BLOCKING = {**{f"{name} text": one for name, one in EXACT.items()}, **{f"{n} JSON": s for n, s in SHORTENED.items()}}


def record(conversation: Any, wire: str, events: list[Any]) -> Any:
    """A recorder that was fed with everything; what is no event at all is passed over."""
    with conversation.stream_response(wire) as recorder:
        for event in events:
            try:
                recorder.feed(event)
            except CannotParse:
                continue
    return recorder


def check_goes_on(conversation: Any, attempts: int = 1) -> None:
    """The branch is free, the attempt was counted once, and every format renders what is there."""
    conversation.user("goes on")
    assert conversation.usage().attempts == attempts
    assert conversation.responses().items[-1].status in {"completed", "incomplete", "failed", "cancelled"}
    for wire in NAMES:
        assert conversation.render(wire).body


# Calls with deep inputs


@pytest.mark.parametrize("name", EXACT)
def test_a_deep_input_that_is_text_is_kept_exactly(
    conversation: Any, elsewhere: Any, tables: Tables, name: str
) -> None:
    wire, events = EXACT[name]
    recorder = record(conversation, wire, events())
    [call] = recorder.response.tool_calls
    assert (call.arguments, recorder.response.status, recorder.response.text) == (TEXT, "completed", "Hi")
    conversation.add_item(an_output("c"))
    check_goes_on(elsewhere.get_conversation(conversation.id))
    [row] = tables.rows("usage_records", "id")
    assert (row["input_tokens"], row["output_tokens"], row["status"]) == (10, 5, "completed")
    assert TEXT[:100].replace('"', "") in conversation.response_body(0).decode().replace('\\"', "").replace('"', "")


@pytest.mark.parametrize("name", SHORTENED)
def test_a_deep_input_that_is_json_ends_in_text(
    conversation: Any, elsewhere: Any, tables: Tables, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is there, and the response says that something is not as it came."""
    wire, events = SHORTENED[name]
    with caplog.at_level(logging.WARNING, "threadkeep.streams"):
        recorder = record(conversation, wire, events())
    assert "kept as text" in caplog.text
    [call] = recorder.response.tool_calls
    value: Any = json.loads(call.arguments)
    while isinstance(value, dict):
        value = value["k"]
    assert value.startswith('{"k": {"k":')
    assert recorder.response.status == "incomplete"
    assert "deeper than 200 levels" in recorder.response.incomplete_details["not_kept"][0]
    [row] = elsewhere.get_conversation(conversation.id).responses()
    assert row.status == "incomplete"
    [row] = tables.rows("responses", "number")
    assert json.loads(row["incomplete_details"]) == recorder.response.incomplete_details
    [row] = tables.rows("usage_records", "id")
    assert (row["input_tokens"], row["output_tokens"], row["status"]) == (10, 5, "incomplete")
    check_goes_on(conversation)


def test_a_path_of_thousands_of_steps(conversation: Any) -> None:
    """Gemini says where a piece of the arguments belongs."""
    pieces = {"partialArgs": [{"jsonPath": "$" + ".a" * 5_000, "stringValue": "x"}]}
    recorder = record(conversation, "gemini", gemini(pieces))
    assert recorder.response.tool_calls[0].arguments.startswith('{"a":{"a":')
    check_goes_on(conversation)


ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda _, conversation: conversation.user("next"),
    "stop": lambda _, conversation: conversation.user("next", on_conflict="append"),
    "sync": lambda _, conversation: conversation.sync_request(
        {"messages": [{"role": "user", "content": "Other"}]}, "chat_completion"
    ),
    "delete": lambda store, conversation: store.delete_conversation(conversation.id),
    "erase": lambda store, _: store.erase_user("ann"),
    "retain": lambda store, _: store.retain(content=timedelta(microseconds=1)),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", BLOCKING)
def test_nobody_waits_for_one_that_was_abandoned(
    store: Any, watching: Engine, tables: Tables, name: str, end: str
) -> None:
    conversation = store.create_conversation(model="m", user_id="ann", input="Count")
    wire, events = BLOCKING[name]
    recorder = conversation.stream_response(wire)
    inner = getattr(recorder, "_wrapped", recorder)
    inner.writer._interval = 0
    recorder.__enter__()
    inner.heartbeat._ended.set()
    for event in events():
        recorder.feed(event)
    if end != "stop":
        expire(watching)
    ENDS[end](store, conversation)
    counts = tables.counts()
    assert (counts["usage_records"], counts["stream_parts"]) == (1, 0)
    [row] = tables.rows("usage_records", "id")
    assert row["output_tokens"] == 5
    if end in {"append", "stop", "sync"}:
        check_goes_on(conversation)
    else:
        assert counts["conversations"] == 0


def test_a_tenant_with_one_can_be_deleted(stores: Any, face: str, watching: Engine) -> None:
    root = stores.get(face)
    tenant = root.create_tenant(f"leaving-{face}-{id(watching)}")
    for wire, events in BLOCKING.values():
        conversation = tenant.create_conversation(model="m")
        recorder = conversation.stream_response(wire)
        recorder.__enter__()
        for event in events():
            recorder.feed(event)
    root.delete_tenant(f"leaving-{face}-{id(watching)}")
    with pytest.raises(NotFound):
        root.for_tenant(f"leaving-{face}-{id(watching)}")


# Values anywhere

STEP = 1 if is_set("THREADKEEP_LONG") else 101 if MATRIX == "quick" else 17  # places, of which one is tried

VALUES: dict[str, Callable[[], Any]] = {
    "199 levels": lambda: nested(199),
    "250 levels": lambda: nested(250),
    "900 lists": lambda: nested(900, is_list=True),
    "U+0000": lambda: "a\x00b",
    "lone surrogate": lambda: "a\ud800b",
    "400 characters": lambda: "x" * 400,
    "400 digits": lambda: 10**400,
    "5,000 digits": lambda: 10**5_000,
    "NaN": lambda: math.nan,
    "bytes": lambda: b"\xff\x00",
    "a set": lambda: {1},
    "a key that is no text": lambda: {1: 2},
    "a loop": lambda: LOOP,
    "a list": lambda: [[1], None, {"type": 7}],
    "a number": lambda: -7,
    "null": lambda: None,
    "true": lambda: True,
}
LOOP: list[Any] = []
LOOP.extend([LOOP, LOOP])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value can be put in; not into the depths of one that was put in before."""
    if len(path) > 50 or value is LOOP:
        return
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))
    if isinstance(value, dict):
        yield from ((*path, key) for key in ("extra", "type", "role", "author_id", "native", "annotations", "error"))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    if not path:
        return new
    result = copy(value)
    step, *rest = path
    result[step] = changed(result[step] if rest else None, tuple(rest), new)
    return result


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("wire", SPOKEN)
def test_any_value_at_any_place_ends(stores: Any, tenant: str, wire: FormatName, value: str) -> None:
    """… and nothing but what is no event at all is told to who feeds."""
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m", input="Count")
    events = STREAMS[wire]()
    spots = [(number, path) for number, event in enumerate(events) for path in places(event)]
    spots = spots[list(VALUES).index(value) % STEP :: STEP]
    for number, path in spots:
        odd = [*events[:number], changed(events[number], path, VALUES[value]()), *events[number + 1 :]]
        assert record(conversation, wire, odd).response.is_final, path
    check_goes_on(conversation, len(spots))
    store.retain(content=timedelta(microseconds=1))


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("wire", SPOKEN)
def test_any_value_ends_on_every_database(conversation: Any, tables: Tables, wire: FormatName, value: str) -> None:
    """In usage, errors, what the provider says besides, and items."""
    odd = VALUES[value]()
    events = [{**event, "extra": odd, "error": odd} if wire != "converse" else event for event in STREAMS[wire]()]
    places_of = {
        "open_responses": ("response", "usage", "input_tokens_details"),
        "chat_completion": ("usage", "prompt_tokens_details"),
        "messages": ("usage", "server_tool_use"),
        "gemini": ("usageMetadata", "promptTokensDetails"),
        "interactions": ("interaction", "usage", "input_tokens_by_modality"),
        "converse": ("metadata", "usage", "cacheDetails"),
    }
    index = -2 if wire == "messages" else -1
    events[index] = changed(events[index], places_of[wire], odd)
    assert record(conversation, wire, events).response.is_final
    assert tables.counts()["usage_records"] == 1
    check_goes_on(conversation)


@pytest.mark.parametrize("place", ["type", "role"])
def test_an_item_that_cannot_be_stored_is_text(conversation: Any, tables: Tables, place: str) -> None:
    """The other items stay, and what was used is counted."""
    events = a_stream("one", "two")
    events[-1]["response"]["output"][0] = {**a_message("one", "assistant"), place: "x" * 300}
    response = record(conversation, "open_responses", events).response
    assert (response.status, response.incomplete_details["reason"]) == ("incomplete", "not_kept")
    first, second = texts_of(conversation.transcript())
    assert first.startswith("[Not kept as it came: ")
    assert "one" in first
    assert second == "two"
    assert json.loads(conversation.response_body(0))["output"][0][place] == "x" * 300
    assert [row["total_tokens"] for row in tables.rows("usage_records", "id")] == [15]
    check_goes_on(conversation)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5_000, '{"type":' + "[" * 5_000 + "]" * 5_000 + "}"])
def test_json_that_cannot_be_read_is_noted(conversation: Any, text: str) -> None:
    """Text that is no JSON at all is refused, as ever."""
    if text == "[" * 100_000:
        text = "[" * 100_000 + "]" * 100_000
    response = record(conversation, "messages", [*messages()[:3], text, *messages()[3:]]).response
    assert (response.text, len(response.tool_calls)) == ("Hi", 1)
    assert response.incomplete_details["reason"] == "not_kept"
    with pytest.raises(CannotParse), conversation.stream_response("messages") as recorder:
        recorder.feed("<html>")


# Sizes


def large_answer(size: int) -> list[Json]:
    return a_stream("small", "x" * size)


@pytest.mark.parametrize("ends", ["end", "lease"])
def test_what_is_too_large_is_text(
    conversation: Any, watching: Engine, tables: Tables, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    recorder = left(conversation, *large_answer(300_000))
    monkeypatch.setattr("threadkeep.db.backends.MAX_VALUE", 1_000)
    if ends == "end":
        recorder.__exit__(None, None, None)
    else:
        expire(watching)
        conversation.user("next")
    small, large, *_ = texts_of(conversation.transcript())
    assert (small, large.startswith("[Not kept as it came: The row"), large.endswith("xxx")) == ("small", True, True)
    assert [row.status for row in conversation.responses()] == ["incomplete"]
    assert [(row["status"], row["total_tokens"]) for row in tables.rows("usage_records", "id")] == [("incomplete", 15)]
    check_goes_on(conversation)


@pytest.mark.slow
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("place", ["text", "picture", "body", "usage", "error", "details", "data", "id", "model"])
def test_what_is_too_large_for_a_packet(database: Database, conversation: Any, tables: Tables, place: str) -> None:
    """MariaDB takes 16 MB at once as it is delivered."""
    big = "x" * 17_000_000
    events = a_stream("small")
    body = events[-1]["response"]
    if place == "text":
        events = large_answer(17_000_000)
    elif place == "picture":
        call = {"type": "image_generation_call", "id": "i", "result": a_picture(noise(9_000_000))["image_url"][22:]}
        body["output"].append(call)
    elif place == "body":
        body["metadata"] = {"x": noise(9_000_000).hex()}
    elif place == "usage":
        body["usage"]["x"] = big
    else:
        keys = {"error": "error", "details": "incomplete_details", "data": "unknown", "id": "id", "model": "model"}
        body[keys[place]] = {"message": big} if place in {"error", "details"} else big
    assert record(conversation, "open_responses", events).response.is_final
    assert texts_of(conversation.transcript())[0] == "small"
    assert tables.counts()["usage_records"] == 1
    check_goes_on(conversation)


# Keys


def test_a_key_that_was_used_for_something_else_meanwhile(conversation: Any) -> None:
    """What has arrived is stored, whatever the key stands for now."""
    conversation.user("Count")
    other = conversation.fork()
    recorder = left(conversation, *a_stream("one two"), idempotency_key="key")
    other.user("meanwhile", idempotency_key="key")
    recorder.__exit__(None, None, None)
    assert texts_of(conversation.transcript()) == ["Count", "one two"]
    assert streamed(conversation, *a_stream("three")).response.status == "completed"
    assert other.user("meanwhile", idempotency_key="key").replayed


# Recorded streams, changed at random


@cache
def short_streams(wire: FormatName) -> list[list[Json]]:
    """Recorded streams without what lies in the middle of long ones."""
    found = [one["events"] for one in recorded(wire).values() if one["events"]]
    return [events if len(events) < 12 else events[:6] + events[-6:] for events in found]


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    with Store("sqlite://") as store:
        yield store


@pytest.mark.parametrize("wire", SPOKEN)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large])
@given(data=st.data())
def test_recorded_streams_that_were_changed_end(memory: Store, wire: FormatName, data: st.DataObject) -> None:
    """The branch is free, there is one ledger row, and the next append works; so when its recorder was killed."""
    events = data.draw(st.sampled_from(short_streams(wire)))
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(events) - 1))
        act = data.draw(st.sampled_from(["value", "value", "value", "drop", "again"]))
        if act == "value":
            path = data.draw(st.sampled_from(list(places(events[number]))))
            new = VALUES[data.draw(st.sampled_from(list(VALUES)))]()
            events = [*events[:number], changed(events[number], path, new), *events[number + 1 :]]
            if path[-1] != "extra":  # its places are those of a stream from here on
                break
        elif act == "again":
            events = [*events, events[number]]
        elif len(events) > 1:
            events = events[:number] + events[number + 1 :]
    conversation = memory.create_conversation(model="m", input="Count")
    recorder = record(conversation, wire, events)
    assert recorder.response is not None
    assert recorder.response.is_final
    check_goes_on(conversation)
    memory.delete_conversation(conversation.id)
