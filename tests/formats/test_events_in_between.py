"""Events that concern something else do not change what a stream becomes; events of another response are refused."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin

import botocore.session
import pytest
from anthropic.lib import streaming
from google.genai.types import GenerateContentResponse
from openai.types.responses import responses_server_event
from pydantic import BaseModel

from tests.corpus import assembled
from threadkeep import CannotParse, Store
from threadkeep.domain.response import Response
from threadkeep.formats import get_format

Json = dict[str, Any]


def full(kind: Any, depth: int = 0) -> Any:
    """A value of a type of an SDK, with all its keys."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return args[0]
    if origin in (Union, types.UnionType):
        return full(next(one for one in args if one is not type(None)), depth)
    if origin is list:
        return [full(args[0], depth + 1)] if depth < 4 else []
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        return {(field.alias or name): full(field.annotation, depth + 1) for name, field in fields} if depth < 6 else {}
    if args and origin is not dict:  # Annotated and aliases
        return full(args[0], depth)
    return {str: "x", int: 0, float: 0.0, bool: False}.get(kind, {})


def server_events() -> Iterator[Any]:
    """The types of all events of the Responses API, over HTTP and WebSockets."""
    for one in get_args(get_args(responses_server_event.ResponsesServerEvent)[0]):
        yield pytest.param(full(one), id=full(one)["type"])


BEGUN: Json = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "gpt-5.4", "output": []}
PART: Json = {"type": "output_text", "text": "On time.", "annotations": []}
ITEM: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [PART]}
DONE: Json = {**BEGUN, "status": "completed", "output": [ITEM], "usage": {"input_tokens": 3, "output_tokens": 4}}
EVENTS: list[Json] = [
    {"type": "response.created", "response": BEGUN},
    {"type": "response.output_item.added", "output_index": 0, "item": {**ITEM, "status": "in_progress", "content": []}},
    {"type": "response.content_part.added", "output_index": 0, "content_index": 0, "part": {**PART, "text": ""}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": "On"},
    {
        "type": "response.output_text.delta",
        "output_index": 0,
        "content_index": 0,
        "item_id": "msg_1",
        "delta": " time.",
    },
    {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    {"type": "response.completed", "response": DONE},
]
ENDS = ("response.completed", "response.failed", "response.incomplete")


@pytest.mark.parametrize("event", list(server_events()))
def test_an_event_in_the_middle_does_not_change_the_end(event: Json) -> None:
    event = {**event, **({"stream_id": "A"} if "stream_id" in event else {})}
    if isinstance(event.get("response"), dict):
        event["response"] = BEGUN
    expected = assembled(EVENTS, "open_responses").response
    found = assembled([*EVENTS[:4], event, *EVENTS[4:]], "open_responses").response
    if event["type"] == "error":
        assert (found.status, found.usage) == ("failed", expected.usage)
    elif event["type"] not in ENDS:
        assert found == expected


@pytest.mark.parametrize("event", list(server_events()))
def test_an_event_after_the_end_does_not_change_it(event: Json) -> None:
    if event["type"].startswith("response.steer."):
        assert assembled([*EVENTS, event], "open_responses").response == assembled(EVENTS, "open_responses").response


def test_lanes_of_a_web_socket_are_not_mixed() -> None:
    lanes = [{**event, "stream_id": "A"} for event in EVENTS]
    assert assembled(lanes, "open_responses").response == assembled(EVENTS, "open_responses").response
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="gpt-5.4", input="When?")
        with talk.stream_response("open_responses") as recorder:
            for event in lanes[:4]:
                recorder.feed(event)
            with pytest.raises(CannotParse, match="of the lane B; this response is of A"):
                recorder.feed({**EVENTS[4], "stream_id": "B"})
            for event in lanes[4:]:
                recorder.feed(event)
        assert [item.to_object()["content"][0]["text"] for item in talk.transcript()[1:]] == ["On time."]


@pytest.mark.parametrize("reason", ["steered", None])
def test_the_response_that_follows_is_refused_with_what_to_do(reason: str | None) -> None:
    last = DONE if reason is None else {**DONE, "status": "incomplete", "incomplete_details": {"reason": reason}}
    kind = "response.completed" if reason is None else "response.incomplete"
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="gpt-5.4", input="When?")
        with talk.stream_response("open_responses") as recorder:
            for event in [*EVENTS[:-1], {"type": kind, "response": last}]:
                recorder.feed(event)
            with pytest.raises(CannotParse, match="begins another response, resp_2") as caught:
                recorder.feed({"type": "response.created", "response": {**BEGUN, "id": "resp_2"}})
            assert "new one" in str(caught.value.hint)
        response = recorder.response
        assert isinstance(response, Response)
        assert (response.id, response.output_text) == ("resp_1", "On time.")
        assert talk.next_step() == ("model" if reason else "user")


HELPED = [one for one in get_args(get_args(streaming.MessageStreamEvent)[0]) if not one.__name__.startswith("Raw")]
MESSAGE: Json = {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
MESSAGES: list[Json] = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "On time."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
]


@pytest.mark.parametrize("kind", HELPED, ids=lambda kind: kind.__name__)
def test_events_that_a_helper_of_an_sdk_adds_do_not_change_the_end(kind: Any) -> None:
    event = full(kind)
    if event["type"] not in {one["type"] for one in MESSAGES} | {"message_stop"}:
        found = assembled([*MESSAGES[:3], event, *MESSAGES[3:]], "messages").response
        assert found == assembled(MESSAGES, "messages").response


# Bedrock

SHAPES = botocore.session.get_session().get_service_model("bedrock-runtime")
HALVES: dict[str, tuple[Any, Any, Any]] = {
    "text": ("On ", "time", "On time"),
    "toolUse": ({"input": '{"a":'}, {"input": "1}"}, {"input": '{"a":1}'}),
    "toolResult": ([{"text": "On "}], [{"text": "time"}], [{"text": "On time"}]),
    "reasoningContent": ({"text": "Let me "}, {"text": "see"}, {"text": "Let me see"}),
    "image": ({"source": {"bytes": "QUFB"}}, {"source": {"bytes": "QkJC"}}, {"source": {"bytes": "QUFBQkJC"}}),
    "audio": ({"source": {"bytes": "QUE="}}, {"source": {"bytes": "QkI="}}, {"source": {"bytes": "QUFCQg=="}}),
}
STARTS: Json = {
    "toolUse": {"toolUse": {"toolUseId": "t1", "name": "f"}},
    "toolResult": {"toolResult": {"toolUseId": "t1"}},
    "image": {"image": {"format": "png"}},
    "audio": {"audio": {"format": "wav"}},
}


def converse(key: str, *deltas: Any) -> Json:
    """The body of a stream whose only block grows by these deltas."""
    assembler = get_format("converse").assembler()
    if key in STARTS:
        assembler.feed({"contentBlockStart": {"contentBlockIndex": 0, "start": STARTS[key]}})
    for delta in deltas:
        assembler.feed({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {key: delta}}})
    return assembler.body


@pytest.mark.parametrize("key", HALVES)
def test_two_deltas_are_one_whole(key: str) -> None:
    first, second, whole = HALVES[key]
    assert converse(key, first, second) == converse(key, whole)


def test_each_kind_of_delta_is_tried() -> None:
    assert SHAPES.shape_for("ContentBlockDelta").members.keys() - {"citation"} <= HALVES.keys()


def test_citations_are_gathered() -> None:
    [block] = converse("citation", {"title": "A"}, {"title": "B"})["output"]["message"]["content"]
    assert block["citationsContent"]["citations"] == [{"title": "A"}, {"title": "B"}]


def test_bytes_of_media_are_joined_as_bytes() -> None:
    events = [
        {"contentBlockStart": {"contentBlockIndex": 0, "start": STARTS["image"]}},
        *({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"image": {"source": {"bytes": one}}}}}
          for one in (b"\x89", b"PNG")),
        {"messageStop": {"stopReason": "end_turn"}},
    ]  # fmt: skip
    [item] = assembled(events, "converse").response.messages
    assert item.to_object()["content"][0]["image_url"] == "data:image/png;base64,iVBORw=="


# Calls that Google's SDK answers by itself

ASKED: Json = {"role": "user", "parts": [{"text": "Rain?"}]}
CALLED: Json = {
    "role": "model",
    "parts": [{"functionCall": {"name": "weather", "args": {"city": "Hull"}}, "thoughtSignature": "QUJD"}],
}
RETURNED: Json = {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"result": "Rain"}}}]}
SAID: Json = {"role": "model", "parts": [{"text": "Take a coat."}]}
FIRST: Json = {
    "role": "model",
    "parts": [{"functionCall": {"name": "weather", "args": {"city": "York"}}, "thoughtSignature": "QUJD"}],
}
EARLIER: list[Json] = [{"role": "user", "parts": [{"text": "Hi"}]}, FIRST, RETURNED, SAID]
HISTORY = "automaticFunctionCallingHistory"


def ended(content: Json, **keys: Any) -> Json:
    return {"candidates": [{"content": content, "finishReason": "STOP"}], **keys}


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("read", [dict, GenerateContentResponse.model_validate])
def test_calls_that_the_sdk_answered_are_items_with_their_signatures(
    read: Callable[[Json], Any], *, is_streamed: bool
) -> None:
    history = {HISTORY: [*EARLIER, ASKED, CALLED, RETURNED]}
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="gemini-3-pro", input="Rain?")
        if is_streamed:
            with talk.stream_response("gemini") as recorder:
                recorder.feed(read(ended(CALLED)))
                recorder.feed(read({"candidates": [{"content": SAID}], **history}))
                recorder.feed(read({"candidates": [{"finishReason": "STOP"}], **history}))
        else:
            talk.add_response(read(ended(SAID, **history)), "gemini")
        kinds = [item.to_object()["type"] for item in talk.transcript()]
        assert kinds == ["message", "function_call", "function_call_output", "message"]
        assert talk.request_payload("gemini")["contents"] == [ASKED, CALLED, RETURNED, SAID]
        assert (talk.pending_calls(), talk.next_step()) == ([], "user")


def test_calls_that_the_conversation_has_already_are_not_stored_twice() -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="gemini-3-pro", input="Rain?")
        talk.add_response(ended(CALLED), "gemini")
        [call] = talk.pending_calls()
        talk.add_function_call_output(call_id=call.call_id, output="Rain")
        talk.add_response(ended(SAID, **{HISTORY: [ASKED, CALLED, RETURNED, FIRST, RETURNED]}), "gemini")
        assert talk.request_payload("gemini")["contents"] == [ASKED, CALLED, RETURNED, FIRST, RETURNED, SAID]


# Servers that leave places out

BARE: list[tuple[str, list[Json]]] = [
    ("no indexes", [{key: value for key, value in one.items() if not key.endswith("_index")} for one in EVENTS]),
    ("no ids", [{key: value for key, value in one.items() if key != "item_id"} for one in EVENTS]),
    ("neither", [{k: v for k, v in one.items() if not k.endswith(("_index", "_id"))} for one in EVENTS]),
]
WHOLE_PART: Json = {"type": "response.content_part.done", "item_id": "msg_1", "part": PART}
NEXT: list[Json] = [
    {"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "refusal", "refusal": ""}},
    {"type": "response.refusal.delta", "item_id": "msg_1", "delta": "No."},
    {"type": "response.content_part.done", "item_id": "msg_1", "part": {"type": "refusal", "refusal": "No."}},
]


@pytest.mark.parametrize(("_what", "events"), BARE, ids=[name for name, _ in BARE])
@pytest.mark.parametrize("has_end", [True, False])
def test_each_text_comes_once_whatever_places_events_leave_out(
    _what: str, events: list[Json], *, has_end: bool
) -> None:
    given = [*events[:5], {k: v for k, v in WHOLE_PART.items() if k != "item_id" or "item_id" in events[3]}]
    assert assembled(given, "open_responses").partial.output_text == "On time."
    response = assembled([*given, *(events[5:] if has_end else events[5:6])], "open_responses").response
    assert [message.text for message in response.messages] == ["On time."]


def test_parts_without_places_come_one_after_the_other() -> None:
    parts = assembled([*BARE[0][1][:5], WHOLE_PART, *NEXT], "open_responses").partial.messages[0].content
    assert [part.to_object()["type"] for part in parts] == ["output_text", "refusal"]
    wholes = [EVENTS[0], EVENTS[1], WHOLE_PART, NEXT[2]]
    parts = assembled(wholes, "open_responses").partial.messages[0].content
    assert [part.to_object()["type"] for part in parts] == ["output_text", "refusal"]
