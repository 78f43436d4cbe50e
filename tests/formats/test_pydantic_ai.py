"""The format of Pydantic AI: its own messages back equal, those of others as its package takes them."""

from __future__ import annotations

import json
from random import Random
from typing import Any, get_args

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    UserContent,
    UserPromptPart,
)

from tests.contrib.pydantic_messages import a_message
from tests.formats.factories import answer, assistant, call, codes, output, render, user
from tests.formats.validity_pydantic_ai import refused
from threadkeep import CannotParse, CannotRender, ProviderError, Response, Session
from threadkeep.formats import NAMES, FormatName, get_format

NAME: FormatName = "pydantic_ai"
FORMAT = get_format(NAME)
Json = dict[str, Any]
SEEDS = range(800)


def in_json(messages: list[Any]) -> list[Json]:
    found: list[Json] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return found


def history(session: Session) -> list[Any]:
    return ModelMessagesTypeAdapter.validate_python(session.request_payload(NAME)["message_history"])


def classes(union: Any) -> set[type]:
    """The classes of a union of annotated types."""
    if isinstance(union, type):
        return {union}
    inner = get_args(union)
    if hasattr(union, "__metadata__"):
        return classes(inner[0])
    return {one for member in inner for one in classes(member)}


# Its own messages


def test_messages_of_every_kind_come_back_equal() -> None:
    messages = [a_message(Random(seed)) for seed in SEEDS]
    session = FORMAT.parse_request(in_json(messages))
    rendered = FORMAT.render(session)
    assert history(session) == history(Session.from_dict(session.to_dict())) == messages
    assert codes(rendered) == ([], [])


def test_every_kind_is_among_them() -> None:
    """A kind that a new release brings fails this test until there is one of it."""
    messages = [a_message(Random(seed)) for seed in SEEDS]
    parts = [part for message in messages for part in message.parts]
    contents = [part.content for part in parts if isinstance(part, UserPromptPart)]
    content = [one for found in contents for one in ([found] if isinstance(found, str) else found)]
    assert {*map(type, messages)} == {ModelRequest, ModelResponse}
    # which earlier releases wrote, and which is read as one of two others
    assert classes(ModelRequestPart) - {type(part) for part in parts} == {RetryPromptPart}
    assert classes(ModelResponsePart) - {type(part) for part in parts} == set()
    assert classes(UserContent) - {*map(type, content)} <= {BinaryContent}  # which is read as one of its subclasses
    assert any(isinstance(one, BinaryContent) for one in content)


def test_messages_of_a_kind_that_is_not_known_come_back_too() -> None:
    messages = [
        {"kind": "request", "parts": [{"part_kind": "hologram", "content": None, "x": [1]}], "mood": "calm"},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "Hi", "tone": "warm"}]},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [{"kind": "smell", "of": "rain"}]}]},
    ]
    session = FORMAT.parse_request({"message_history": messages})
    assert session.request_payload(NAME) == {"message_history": messages}
    session.update(model="m")
    session.user("And?")
    found = session.render("chat_completion")
    assert [loss.code for loss in found.losses] == ["provider_item", "native", "provider_item"]


@pytest.mark.parametrize("target", [name for name in NAMES if name != NAME])
def test_every_message_goes_to_every_provider(target: FormatName) -> None:
    for seed in range(60):
        session = FORMAT.parse_request(in_json([a_message(Random(seed))]), model="m")
        session.user("And now?")
        assert session.render(target).payload


def says(role: str, *content: Json) -> Json:
    """A message of that role."""
    return {"role": role, "content": list(content)}


def text(words: str, kind: str = "input_text") -> Json:
    return {"type": kind, "text": words}


PDF = {"kind": "binary", "data": "__77Pw==", "media_type": "application/pdf"}
# part of a request or response -> the item that it becomes
ITEMS: dict[str, tuple[Json, Json]] = {
    "system": ({"part_kind": "system-prompt", "content": "A"}, says("system", text("A"))),
    "prompt": ({"part_kind": "user-prompt", "content": "A"}, says("user", text("A"))),
    "prompt of parts": (
        {"part_kind": "user-prompt", "content": ["A", {"kind": "image-url", "url": "https://e.org/a.png"}]},
        says("user", text("A"), {"type": "input_image", "url": "https://e.org/a.png"}),
    ),
    "binary": (
        {"part_kind": "user-prompt", "content": [PDF]},
        {"role": "user", "content": [{"type": "input_file", "url": "data:application/pdf;base64,//77Pw=="}]},
    ),
    "return": (
        {"part_kind": "tool-return", "tool_name": "f", "content": {"a": 1.0}, "tool_call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": '{"a":1.0}'},
    ),
    "failed return": (
        {"part_kind": "tool-return", "tool_name": "f", "content": "No.", "tool_call_id": "c", "outcome": "denied"},
        {"type": "function_call_output", "call_id": "c", "output": "No.", "status": "failed"},
    ),
    "retry": (
        {"part_kind": "retry-prompt", "tool_name": "f", "content": [{"msg": "Bad"}], "tool_call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": '[{"msg":"Bad"}]', "status": "failed"},
    ),
    "retry of an answer": (
        {"part_kind": "retry-prompt", "content": "Again", "tool_call_id": "c"},
        says("user", text("Again")),
    ),
    "text": ({"part_kind": "text", "content": "A"}, says("assistant", text("A", "output_text"))),
    "thinking": (
        {"part_kind": "thinking", "content": "Hm", "signature": "s"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}], "encrypted_content": "s"},
    ),
    "call": (
        {"part_kind": "tool-call", "tool_name": "f", "args": {"a": 1}, "tool_call_id": "c"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
    ),
    "call without arguments": (
        {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ),
    "speech": (
        {"part_kind": "speech", "speaker": "assistant", "transcript": "A"},
        says("assistant", text("A", "output_text")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
def test_a_part_is_an_item(name: str) -> None:
    part, expected = ITEMS[name]
    kind = "response" if name in {"text", "thinking", "call", "call without arguments", "speech"} else "request"
    ((item,),) = FORMAT.parse_turns([{"kind": kind, "parts": [part]}])
    found = item.to_dict()
    for thing in (found, *(found["content"] if found["type"] == "message" else ())):
        for key in ("origin", "native", "spelling"):
            thing.pop(key, None)
    assert found == {"type": "message", **expected}


# The arguments of a run


def test_arguments_of_a_run_are_options() -> None:
    request = {
        "model": "openai:gpt-5.4", "instructions": "Be brief.", "metadata": {"a": "b"},
        "model_settings": {
            "temperature": 0.5, "max_tokens": 9, "thinking": "low", "tool_choice": "auto", "timeout": 3,
            "service_tier": "flex", "parallel_tool_calls": False,
        },
        "tools": [{"name": "f", "parameters_json_schema": {"type": "object"}, "sequential": True}],
        "message_history": [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Hi"}]}],
    }  # fmt: skip
    session = FORMAT.parse_request(request)
    assert session.request_payload(NAME) == request
    assert (session.instructions, session.max_output_tokens, session.reasoning) == ("Be brief.", 9, {"effort": "low"})
    lost = {loss.path for loss in session.render("messages").losses if loss.code == "native"}
    assert lost == {"extra.pydantic_ai.model_settings", "tools[0]"}
    assert refused(session.request_payload(NAME)) == []


def test_the_instructions_of_the_last_request_are_those_of_the_conversation() -> None:
    messages = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Hi"}], "instructions": "Old"},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "Hi"}]},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "And?"}], "instructions": "New"},
    ]
    session = FORMAT.parse_request(json.dumps(messages))
    assert session.instructions == "New"
    assert session.request_payload(NAME) == {"message_history": messages}
    session.update(instructions="Newer")
    assert session.request_payload(NAME) == {"instructions": "Newer", "message_history": messages}


def test_extras_are_model_settings() -> None:
    found = render(NAME, user("Hi"), extra={"seed": 1, "stop": "x", "pydantic_ai": {"model_settings": {"timeout": 3}}})
    assert found.payload["model_settings"] == {"seed": 1, "stop_sequences": ["x"], "timeout": 3}


# Conversations of other origin


def test_items_of_others_are_requests_and_responses() -> None:
    found = render(NAME, user("Go"), call("c1"), call("c2"), output("c2", "two"), output("c1", "one"), assistant("OK"))
    request, response, returned, last = found.payload["message_history"]
    assert request == {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Go"}]}
    assert [part["tool_call_id"] for part in response["parts"]] == ["c1", "c2"]
    assert [(part["tool_call_id"], part["content"]) for part in returned["parts"]] == [("c2", "two"), ("c1", "one")]
    assert last["parts"] == [{"part_kind": "text", "content": "OK"}]
    assert refused(found.payload) == []


def test_a_call_of_others_without_an_output_gets_one() -> None:
    found = render(NAME, user("Go"), call("c1"), user("Well?"))
    assert codes(found) == ([], ["missing_output"])
    assert found.payload["message_history"][2]["parts"][0]["outcome"] == "interrupted"
    assert refused(found.payload) == []


def test_a_call_of_an_agent_waits_and_may_be_answered_here() -> None:
    called = {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c"}]}
    session = FORMAT.parse_request([called])
    assert session.request_payload(NAME)["message_history"] == [called]
    session.add_function_call_output("c", "done")
    returned = {"part_kind": "tool-return", "tool_name": "f", "content": "done", "tool_call_id": "c"}
    assert session.request_payload(NAME)["message_history"] == [called, {"kind": "request", "parts": [returned]}]


@pytest.mark.parametrize(
    ("origin", "item", "part"),
    [
        ("messages", {"content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}]},
         {"content": "Hm", "signature": "s", "provider_name": "anthropic"}),
        ("messages", {"content": [{"type": "redacted_thinking", "data": "d"}]},
         {"content": "", "signature": "d", "provider_name": "anthropic", "id": "redacted_thinking"}),
        ("converse", {"content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}]},
         {"content": "Hm", "signature": "s", "provider_name": "bedrock"}),
        ("converse", {"content": [{"type": "redacted_thinking", "data": "ZA=="}]},
         {"content": "", "signature": "d", "provider_name": "bedrock", "id": "redacted_content"}),
        ("converse", {"content": [{"type": "thinking", "thinking": "Hm"}]}, {"content": "Hm"}),
        ("gemini", {"content": [{"type": "thinking", "thinking": "Hm"}]}, {"content": "Hm"}),
        ("open_responses",
         {"id": "rs_1", "encrypted_content": "e", "summary": [{"type": "summary_text", "text": "Hm"}]},
         {"content": "Hm", "signature": "e", "provider_name": "openai", "id": "rs_1"}),
        (None, {"content": [{"type": "reasoning_text", "text": "Hm"}]}, {"content": "Hm"}),
    ],
)  # fmt: skip
def test_reasoning_goes_to_who_can_read_it(origin: Any, item: Json, part: Json) -> None:
    found = render(NAME, user("Go"), answer({"type": "reasoning", **item}, assistant("OK"), origin=origin))
    assert found.payload["message_history"][1]["parts"][0] == {"part_kind": "thinking", **part}
    assert found.losses == []


SIGNED = {"type": "thinking", "thinking": "Hm", "signature": "s"}
SIGNED_IN_BEDROCK = {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s"}}}
HIDDEN_IN_BEDROCK = {"reasoningContent": {"redactedContent": "cw=="}}


@pytest.mark.parametrize(
    ("part", "blocks"),
    [
        ({"content": "Hm", "signature": "s", "provider_name": "anthropic"},
         {"messages": SIGNED, "converse": SIGNED_IN_BEDROCK}),
        ({"content": "", "signature": "s", "provider_name": "anthropic", "id": "redacted_thinking"},
         {"messages": {"type": "redacted_thinking", "data": "s"}, "converse": HIDDEN_IN_BEDROCK}),
        ({"content": "Hm", "signature": "s", "provider_name": "bedrock"}, {"converse": SIGNED_IN_BEDROCK}),
        ({"content": "", "signature": "s", "provider_name": "bedrock", "id": "redacted_content"},
         {"converse": HIDDEN_IN_BEDROCK}),
        ({"content": "Hm", "signature": "s", "provider_name": "openai"}, {}),
        ({"content": "Hm", "provider_name": "anthropic"}, {}),
        ({"content": "Hm", "signature": "s"}, {}),
    ],
)  # fmt: skip
def test_thinking_goes_to_the_claude_that_signed_it(part: Json, blocks: dict[FormatName, Json]) -> None:
    """Anthropic's goes to Bedrock, too, which has what is encrypted as bytes."""
    prompt = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Go"}]}
    parts = [{"part_kind": "thinking", **part}, {"part_kind": "text", "content": "OK"}]
    session = FORMAT.parse_request([prompt, {"kind": "response", "parts": parts}, prompt])
    session.model = "claude-sonnet-4-5"
    targets: tuple[FormatName, ...] = ("messages", "converse")
    for rendered, block in ((session.render(target), blocks.get(target)) for target in targets):
        *thought, _ = rendered.payload["messages"][1]["content"]
        assert thought == ([] if block is None else [block])
        assert [loss.code for loss in rendered.losses] == (["reasoning"] if block is None else [])


def test_nothing_to_send_is_refused() -> None:
    with pytest.raises(CannotRender, match="nothing to send"):
        Session(model="m").render(NAME)


# Responses


def test_a_response_is_read_with_its_usage() -> None:
    body = {
        "kind": "response", "parts": [{"part_kind": "text", "content": "Hi"}], "model_name": "gpt-5.4",
        "provider_response_id": "r1", "finish_reason": "length", "timestamp": "2026-11-22T12:00:00Z", "run_id": "run",
        "usage": {
            "input_tokens": 100, "cache_read_tokens": 80, "cache_write_tokens": 0, "output_tokens": 10,
            "output_reasoning_tokens": 4, "cost": "0.01",
        },
    }  # fmt: skip
    for given in (body, [body], json.dumps(body)):
        found = Response.parse(given, NAME)
        assert (found.id, found.model, found.status, found.text) == ("r1", "gpt-5.4", "incomplete", "Hi")
        assert (found.incomplete_details, found.created_at) == ({"reason": "max_output_tokens"}, 1795348800)
        assert found.provider_data == {"run_id": "run"}
        assert found.usage is not None
        assert found.usage.normalized.to_dict() == {
            "input_tokens": 100, "cached_tokens": 80, "cache_write_tokens": 0, "output_tokens": 10,
            "reasoning_tokens": 4, "total_tokens": 110,
        }  # fmt: skip
    session = Session(model="m", input="Hello")
    session.add_response(body, NAME)
    (sent,) = session.request_payload(NAME)["message_history"][1:]
    assert ModelMessagesTypeAdapter.validate_python([sent]) == ModelMessagesTypeAdapter.validate_python([body])


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "completed"),
        ({"finish_reason": "tool_call"}, "completed"),
        ({"finish_reason": "content_filter"}, "failed"),
        ({"state": "interrupted"}, "cancelled"),
        ({"state": "suspended", "finish_reason": "stop"}, "incomplete"),
    ],
)
def test_how_a_response_ended(fields: Json, status: str) -> None:
    assert Response.parse({"kind": "response", "parts": [], **fields}, NAME).status == status


@pytest.mark.parametrize("body", [{"kind": "request", "parts": []}, {"parts": [1]}, {"a": 1}, {"choices": []}])
def test_what_is_no_response_is_refused(body: Json) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_response(body)


def test_an_error_body_is_an_error() -> None:
    with pytest.raises(ProviderError, match=r"Too many\."):
        FORMAT.parse_response({"error": {"message": "Too many."}})


@pytest.mark.parametrize("history", [None, [], [1], [{"kind": "event"}], [{"kind": "request", "parts": 1}], "x"])
def test_what_is_no_history_is_refused(history: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_request({"message_history": history})


def test_a_format_without_streams_has_no_assembler() -> None:
    with pytest.raises(CannotParse, match="no streams"):
        FORMAT.assembler()
