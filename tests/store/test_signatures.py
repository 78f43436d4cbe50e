"""Thought signatures come back as they came: from every part, turn and way of answering, to their own service only."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.genai import types

from tests.databases import Database
from threadkeep import Store
from threadkeep.formats import NAMES, get_format

pytestmark = pytest.mark.one_face

MODEL = "gemini-3-pro-preview"
RAW = bytes.fromhex("fbfffe3e3f616263") * 3
STANDARD, URL_SAFE = base64.b64encode(RAW).decode(), base64.urlsafe_b64encode(RAW).decode()
SPELLINGS = {
    "standard": STANDARD,
    "url-safe": URL_SAFE,
    "standard, unpadded": STANDARD.rstrip("="),
    "url-safe, unpadded": URL_SAFE.rstrip("="),
}
# What pages show keeps all that providers said, and is sent to none of them
FOREIGN = sorted(name for name in set(NAMES) - {"ui_messages"} if "gemini" not in get_format(name).reads)

# kind of part -> the part, without its signature
PARTS: dict[str, dict[str, Any]] = {
    "thought": {"text": "Let me see.", "thought": True},
    "text": {"text": "Looking."},
    "empty": {"text": ""},
    "call": {"functionCall": {"name": "look_up", "args": {"word": "x"}}},
    "call with an id": {"functionCall": {"name": "look_up", "args": {"word": "y"}, "id": "call_7"}},
    "code": {"executableCode": {"language": "PYTHON", "code": "1 + 1"}},
}


def signed(signature: str) -> list[dict[str, Any]]:
    """A part of each kind, with a signature of its own each."""
    return [{**part, "thoughtSignature": numbered(signature, place)} for place, part in enumerate(PARTS.values())]


def numbered(signature: str, place: int) -> str:
    """Another signature of the same alphabet and padding: four more characters are three more bytes."""
    return f"AAA{'ABCDEFGH'[place]}{signature}"


def body_of(parts: list[dict[str, Any]], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, **candidate}], "modelVersion": MODEL}


def plain(conversation: Any, parts: list[dict[str, Any]]) -> Any:
    return conversation.add_response(body_of(parts, finishReason="STOP"), "gemini")


def as_text(conversation: Any, parts: list[dict[str, Any]]) -> Any:
    return conversation.add_response(json.dumps(body_of(parts, finishReason="STOP")), "gemini")


def streamed(conversation: Any, parts: list[dict[str, Any]]) -> Any:
    """Each part in a chunk of its own; the end in another one, which holds nothing."""
    with conversation.stream_response("gemini") as recorder:
        for part in parts:
            recorder.feed(body_of([part]))
        recorder.feed(body_of([], finishReason="STOP"))
    return recorder.response


WAYS = {"plain": plain, "text": as_text, "streamed": streamed}


def answer(conversation: Any, response: Any) -> None:
    for call in response.tool_calls:
        conversation.add_function_call_output(call_id=call.call_id, output="found")


def a_conversation(store: Any) -> Any:
    return store.create_conversation(model=MODEL, tools=[{"name": "look_up"}])


def turns_of(payload: Any) -> list[list[dict[str, Any]]]:
    """The parts of each turn of the model."""
    return [content["parts"] for content in payload["contents"] if content["role"] == "model"]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("way", WAYS)
def test_every_part_of_every_turn_keeps_its_signature(store: Any, elsewhere: Any, way: str, spelling: str) -> None:
    conversation, parts = a_conversation(store), signed(SPELLINGS[spelling])
    for number in range(3):
        conversation.user(f"question {number}")
        answer(conversation, WAYS[way](conversation, parts))
    conversation.user("and then?")
    for handle in (conversation, elsewhere.get_conversation(conversation.id)):
        payload = handle.request_payload("gemini")
        assert turns_of(payload) == [parts] * 3
        for content in json.loads(handle.request_body("gemini"))["contents"]:
            found = types.Content.model_validate(content).model_dump()
            if found["role"] == "model":
                signatures = [part["thought_signature"] for part in found["parts"]]
                assert signatures == [bytes((0, 0, place)) + RAW for place in range(len(PARTS))]


@pytest.mark.parametrize("way", ["object", "dump"])
def test_what_the_sdk_read_keeps_its_bytes(store: Any, elsewhere: Any, way: str) -> None:
    """Its objects hold bytes; its dumps bytes or base64 of the URL-safe alphabet."""
    conversation = a_conversation(store)
    conversation.user("question")
    found = types.GenerateContentResponse.model_validate(body_of(signed(STANDARD), finishReason="STOP"))
    answer(conversation, conversation.add_response(found if way == "object" else found.model_dump(), "gemini"))
    payload = elsewhere.get_conversation(conversation.id).request_payload("gemini")
    content = types.Content.model_validate(payload["contents"][1]).model_dump()
    signatures = [part["thought_signature"] for part in content["parts"]]
    assert signatures == [bytes((0, 0, place)) + RAW for place in range(len(PARTS))]


def test_a_signature_at_the_end_of_a_streamed_text_loses_no_text(store: Any) -> None:
    conversation = a_conversation(store)
    conversation.user("question")
    pieces = [{"text": "Hel"}, {"text": "lo"}, {"text": "", "thoughtSignature": URL_SAFE}]
    response = streamed(conversation, pieces)
    assert response.output_text == "Hello"
    (parts,) = turns_of(conversation.request_payload("gemini"))
    assert parts == [{"text": "Hello"}, {"text": "", "thoughtSignature": URL_SAFE}]


def test_a_stream_that_broke_off_keeps_what_came(store: Any) -> None:
    conversation = a_conversation(store)
    conversation.user("question")
    with conversation.stream_response("gemini") as recorder:
        recorder.feed(body_of(signed(URL_SAFE)[:4]))
        recorder.cancel()
    answer(conversation, recorder.response)
    assert turns_of(conversation.request_payload("gemini")) == [signed(URL_SAFE)[:4]]


def test_signatures_go_with_copies_forks_and_sessions(store: Any) -> None:
    conversation = a_conversation(store)
    conversation.user("question")
    answer(conversation, plain(conversation, signed(URL_SAFE)))
    body = conversation.request_body("gemini")
    assert conversation.fork().request_body("gemini") == body
    assert store.copy_conversation(conversation.id).request_body("gemini") == body
    assert store.save(conversation.session()).request_body("gemini") == body


@pytest.mark.parametrize("format", FOREIGN)
def test_no_other_service_sees_a_signature(store: Any, format: str) -> None:
    conversation = a_conversation(store)
    conversation.user("question")
    answer(conversation, plain(conversation, signed(URL_SAFE)))
    conversation.user("and then?")
    rendered = conversation.render(format)
    assert URL_SAFE.encode() not in rendered.body
    assert rendered.losses


def test_this_service_sees_no_signature_of_another(store: Any) -> None:
    conversation = a_conversation(store)
    conversation.user("question")
    foreign = base64.b64encode(b"of somebody else").decode()
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": foreign}
    blocks = [thinking, {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}]
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5", "stop_reason": "tool_use"}
    answer(conversation, conversation.add_response({**about, "content": blocks}, "messages"))
    rendered = conversation.render("gemini")
    assert foreign.encode() not in rendered.body
    assert [loss.code for loss in rendered.losses] == ["reasoning"]
    assert [repair.code for repair in rendered.repairs] == ["thought_signature"]


def test_a_signature_outlives_its_process(database: Database, tenant: str, store: Any) -> None:
    """What another store reads from the database is the same text."""
    conversation = a_conversation(store)
    conversation.user("question")
    answer(conversation, streamed(conversation, signed(STANDARD)))
    with Store(database.url, tenants=True, memory_bytes=0) as opened:
        found = opened.for_tenant(tenant).get_conversation(conversation.id)
        assert turns_of(found.request_payload("gemini")) == [signed(STANDARD)]
