"""Messages of OpenTelemetry as requests and answers of Chat Completions."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.util.genai import types as otel

from threadkeep import Session
from threadkeep.contrib.opentelemetry.messages import chunk_of, request_of, response_of
from threadkeep.formats import get_format

PICTURE = base64.b64encode(b"picture").decode()


def plain(messages: list[Any]) -> list[Any]:
    values: list[Any] = orjson.loads(
        orjson.dumps([asdict(message) for message in messages], default=lambda value: base64.b64encode(value).decode())
    )
    return values


def user(*parts: Any) -> otel.InputMessage:
    return otel.InputMessage("user", list(parts))


def assistant(*parts: Any) -> otel.InputMessage:
    return otel.InputMessage("assistant", list(parts))


def call(id: str | None, name: str = "look", arguments: Any = None) -> otel.ToolCallRequestPart:
    return otel.ToolCallRequestPart(arguments, name, id)


def output(id: str | None, response: Any) -> otel.ToolCallResponsePart:
    return otel.ToolCallResponsePart(response, id)


def wire_call(id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}


# messages there -> messages of Chat Completions
MESSAGES: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "a text": ([user(otel.TextPart("Hi"))], [{"role": "user", "content": "Hi"}]),
    "a name": (
        [otel.InputMessage("user", [otel.TextPart("Hi")], name="ann")],
        [{"role": "user", "name": "ann", "content": "Hi"}],
    ),
    "media": (
        [
            user(
                otel.TextPart("See"), otel.BlobPart("image/png", "image", b"picture"),
                otel.BlobPart("audio/mpeg", "audio", b"picture"),
                otel.BlobPart("application/pdf", "document", b"picture"),
                otel.UriPart("image/png", "image", "https://example.org/a.png"),
                otel.UriPart("application/pdf", "application", "gs://bucket/a.pdf"),
                otel.FilePart(None, "document", "file-1"),
            ),
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
                    {"type": "input_audio", "input_audio": {"data": PICTURE, "format": "mp3"}},
                    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PICTURE}"}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {"type": "document_url", "document_url": "gs://bucket/a.pdf"},
                    {"type": "file", "file": {"file_id": "file-1"}},
                ],
            },
        ],
    ),
    "reasoning, a text and a call": (
        [assistant(otel.ReasoningPart("Hm."), otel.TextPart("Wait."), call("c1", arguments={"city": "Paris"}))],
        [
            {
                "role": "assistant", "content": "Wait.", "reasoning_content": "Hm.",
                "tool_calls": [wire_call("c1", '{"city":"Paris"}')],
            },
        ],
    ),
    "outputs before what the user says beside them": (
        [assistant(call("c1")), user(otel.TextPart("So?"), output("c1", "rain"))],
        [
            {"role": "assistant", "content": None, "tool_calls": [wire_call("c1")]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "user", "content": "So?"},
        ],
    ),
    "outputs that are no texts": (
        [
            assistant(call("a"), call("b")),
            otel.InputMessage("tool", [output("a", {"t": 1}), output("b", [{"type": "text", "text": "x"}])]),
        ],
        [
            {"role": "assistant", "content": None, "tool_calls": [wire_call("a"), wire_call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": '{"t":1}'},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "x"}]},
        ],
    ),
    "calls without ids are answered in their order": (
        [assistant(call(None), call(None)), user(output(None, "1"), output("other", "2"))],
        [
            {"role": "assistant", "content": None, "tool_calls": [wire_call("call_0"), wire_call("call_1")]},
            {"role": "tool", "tool_call_id": "call_0", "content": "1"},
            {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        ],
    ),
    "parts of the provider's own tools": (
        [assistant(otel.ServerToolCallPart("search", {"type": "search", "q": "x"}, "s1"))],
        [
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "server_tool_call", "name": "search", "server_tool_call": {"type": "search", "q": "x"},
                        "id": "s1",
                    },
                ],
            },
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(case: str) -> None:
    messages, expected = MESSAGES[case]
    request = request_of([], plain(messages), [], {"gen_ai.request.model": "m"})
    assert request == {"model": "m", "messages": expected}
    session = get_format("chat_completion").parse_request(request)
    assert session.request_payload("chat_completion")["messages"] == expected


def test_settings_instructions_and_tools() -> None:
    attributes = {
        "gen_ai.request.model": "m", "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 10, "gen_ai.request.seed": 7, "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.request.reasoning.level": "high", "gen_ai.request.stream": True,
    }  # fmt: skip
    tools = plain(
        [
            otel.FunctionToolDefinition("look", "Looks.", {"type": "object"}),
            otel.GenericToolDefinition("search", "web_search_20250305"),
        ]
    )
    instructions = plain([otel.TextPart("Be brief."), otel.TextPart("Be kind.")])
    request = request_of(instructions, plain([user(otel.TextPart("Hi"))]), tools, attributes)
    assert {key: value for key, value in request.items() if key not in ("messages", "tools")} == {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 10, "seed": 7, "stop": ["END"],
        "reasoning_effort": "high", "stream": True,
    }  # fmt: skip
    assert request["messages"][0] == {
        "role": "system",
        "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
    }
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert request["tools"] == [
        {"type": "function", "function": function},
        {"name": "search", "type": "web_search_20250305"},
    ]
    session = get_format("chat_completion").parse_request(request)
    assert (session.model, session.reasoning) == ("m", {"effort": "high"})


# finish reason there -> finish reason and status here
REASONS = {
    "stop": ("stop", "completed"),
    "tool_call": ("tool_calls", "completed"),
    "length": ("length", "incomplete"),
    "content_filter": ("content_filter", "failed"),
    "error": ("error", "failed"),
    "SAFETY": ("content_filter", "failed"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_finish_reasons(reason: str) -> None:
    message = otel.OutputMessage("assistant", [otel.TextPart("Hi")], "stop")
    body = response_of(plain([message]), {"gen_ai.response.finish_reasons": (reason,)})
    response = get_format("chat_completion").parse_response(body, None)
    assert (response.finish_reason, response.status) == REASONS[reason]


def test_figures_have_an_old_name_and_a_new_one() -> None:
    for name in ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"):
        body = response_of([], {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 1, name: 4})
        usage = get_format("chat_completion").parse_response(body, None).usage
        assert usage is not None
        assert usage.normalized.cache_write_tokens == 4


# Whatever is said is kept

WORDS = st.text(min_size=1, max_size=9).filter(str.strip)
JSON_VALUES = st.none() | st.integers(-9, 9) | WORDS | st.lists(WORDS, max_size=2)
PARTS = st.one_of(
    st.builds(otel.TextPart, WORDS),
    st.builds(otel.ReasoningPart, WORDS),
    st.builds(call, st.none() | WORDS, WORDS, st.dictionaries(WORDS, JSON_VALUES, max_size=2)),
    st.builds(output, st.none() | WORDS, JSON_VALUES),
    st.builds(otel.BlobPart, st.sampled_from(["image/png", None]), st.sampled_from(["image", "video"]), st.binary()),
    st.builds(otel.UriPart, st.none(), st.sampled_from(["image", "video", "document"]), WORDS),
    st.builds(otel.FilePart, st.none(), st.just("document"), WORDS),
    st.builds(otel.ServerToolCallPart, WORDS, st.dictionaries(WORDS, WORDS), st.none()),
    st.builds(otel.CompactionPart, st.none(), st.none() | WORDS),
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "developer", ""])
HISTORIES = st.lists(st.builds(otel.InputMessage, ROLES, st.lists(PARTS, max_size=3)), max_size=3)


@given(HISTORIES)
def test_every_history_is_a_request_that_keeps_its_texts(messages: list[Any]) -> None:
    history = plain(messages)
    session: Session = get_format("chat_completion").parse_request(request_of([], history, [], {"x": 1}))
    kept = orjson.dumps([session.instructions, [item.to_object() for item in session.items]]).decode()
    for message in history:
        for part in message["parts"]:
            if part["type"] in ("text", "reasoning"):
                assert orjson.dumps(part["content"]).decode()[1:-1] in kept


@given(st.lists(st.builds(otel.OutputMessage, ROLES, st.lists(PARTS, max_size=4), st.none() | WORDS), max_size=2))
def test_every_answer_can_be_read(messages: list[Any]) -> None:
    body = response_of(plain(messages), {"gen_ai.response.id": "r"})
    response = get_format("chat_completion").parse_response(body, None)
    assert response.id == "r"
    assembler = get_format("chat_completion").assembler()  # and so can a stream that was left
    assembler.feed(chunk_of(body))
    assert assembler.response.status == "incomplete"
