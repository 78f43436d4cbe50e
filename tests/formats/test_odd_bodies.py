"""Values of another kind than the API's, anywhere in a body: it is stored and sent, or refused with a clear error."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.server.scripts import FORMATS, script
from threadkeep import FunctionCall, Session
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import ThreadkeepError
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.canonical.entries import snapshot_of
from threadkeep.formats.canonical.view import canonical_item

Json = dict[str, Any]
Path = tuple[str | int, ...]

ODD = [None, True, 1.5, "", "x", [], {}, [None], [1], {"type": ["a"]}, {"a": {"b": 1}}, "{"]
OPTIONS = {
    "as it is": RenderOptions(),
    "with marks": RenderOptions(cache="auto"),
    "openai": RenderOptions(dialect="openai"),
    "mistral": RenderOptions(dialect="mistral"),
}
LOGPROBS = [{"token": "a", "logprob": 0.1, "bytes": [1], "top_logprobs": []}]
NOTES = [{"type": "url_citation", "url": "https://x.example.org", "title": "t", "start_index": 0, "end_index": 1}]
# format -> an answer with all that it usually has
ANSWERS: dict[FormatName, Json] = {
    "open_responses": {
        "id": "r", "object": "response", "status": "completed", "model": "m",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}],
             "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "x", "status": "completed"},
            {"type": "message", "id": "msg_1", "role": "assistant", "phase": "final_answer", "status": "completed",
             "content": [{"type": "output_text", "text": "a", "annotations": NOTES, "logprobs": LOGPROBS}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}",
             "caller": {"type": "direct"}},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}},
    },
    "chat_completion": {
        "id": "c", "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "tool_calls", "logprobs": {"content": LOGPROBS},
            "message": {
                "role": "assistant", "refusal": "n", "reasoning_content": "hm", "annotations": NOTES,
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        }],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}},
    },
    "messages": {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "x"}]},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 1}},
    },
    "converse": {
        "output": {"message": {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"citationsContent": {"content": [{"text": "a"}], "citations": [{"title": "t", "location": {}}]}},
            {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}},
        ]}},
        "stopReason": "tool_use", "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    },
    "gemini": {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "hm", "thought": True, "thoughtSignature": "c2ln"}, {"text": "a"},
            {"functionCall": {"name": "f", "args": {"a": 1}, "id": "c"}},
        ]}}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1,
                          "promptTokensDetails": [{"modality": "TEXT"}]},
    },
}  # fmt: skip


def paths_in(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from paths_in(one, (*path, key))


PLACES = [(name, path) for name, body in ANSWERS.items() for path in paths_in(body)]


def with_value(body: Any, path: Path, value: Any) -> Any:
    changed = holder = copy.deepcopy(body)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = copy.deepcopy(value)
    return changed


def sent_everywhere(session: Session) -> None:
    """Render a session in all formats, and its items as OpenAI's clients read them."""
    for entry in snapshot_of(session).entries:
        canonical_item(entry, "msg_1")
    for name in NAMES:
        for options in OPTIONS.values():
            with contextlib.suppress(ThreadkeepError):
                assert get_format(name).render(session, options).body


@given(place=st.sampled_from(PLACES), value=st.sampled_from(ODD))
def test_an_answer_with_any_value_is_sent_or_refused(place: tuple[FormatName, Path], value: Any) -> None:
    name, path = place
    session = Session(model="claude-sonnet-4-5", input="Hi")
    with contextlib.suppress(ThreadkeepError):
        session.add_response(with_value(ANSWERS[name], path, value), name)
    sent_everywhere(session)


# What clients send

TOOL: Json = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}
SPACE: Json = {"type": "namespace", "name": "n", "tools": [TOOL]}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}


def asked() -> Session:
    """A history with all that requests usually have."""
    session = Session(model="claude-sonnet-4-5", instructions="i", tools=[TOOL, {"type": "custom", "name": "g"}, SPACE])
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    session.user([{"type": "input_text", "text": "Hi"}, picture])
    for name, body in ANSWERS.items():
        session.add_response(body, name)
        for call in session.items[-1:]:
            if isinstance(call, FunctionCall):
                session.add_function_call_output(str(call.call_id), "o")
    session.add_items(
        [
            {"type": "custom_tool_call", "call_id": "k", "name": "g", "input": "i"},
            {"type": "custom_tool_call_output", "call_id": "k", "output": [{"type": "input_text", "text": "o"}]},
            {"type": "provider_item", "format": "messages", "payload": SEARCH, "origin": "messages"},
        ]
    )
    return session


REQUESTS: dict[FormatName, Json] = {name: get_format(name).render(asked(), RenderOptions()).payload for name in NAMES}
SENT = [(name, path) for name, body in REQUESTS.items() for path in paths_in(body)]


@example(place=("chat_completion", ("messages", 6, "role")), value=[])
@example(place=("open_responses", ("input", 4, "content", 0)), value=None)
@given(place=st.sampled_from(SENT), value=st.sampled_from(ODD))
def test_a_request_with_any_value_is_read_or_refused(place: tuple[FormatName, Path], value: Any) -> None:
    name, path = place
    with contextlib.suppress(ThreadkeepError):
        sent_everywhere(get_format(name).parse_request(with_value(REQUESTS[name], path, value)))


def places_of(name: FormatName, key: str, within: str) -> list[Path]:
    """Where requests of a format have a key somewhere under another one."""
    return [path for format_, path in SENT if format_ == name and path[-1] == key and within in path]


@pytest.mark.parametrize(
    ("name", "key", "within"),
    [
        ("open_responses", "type", "tools"),
        ("open_responses", "parameters", "tools"),
        ("open_responses", "output", "input"),
        ("messages", "name", "content"),
        ("ui_messages", "state", "parts"),
    ],
)
@pytest.mark.parametrize("value", [[1], {"a": 1}, [{}, [[]]], {"required": [[]], "properties": {}}])
def test_lists_and_objects_stand_for_no_word(name: FormatName, key: str, within: str, value: Any) -> None:
    places = places_of(name, key, within)
    assert places
    for path in places:
        with contextlib.suppress(ThreadkeepError):
            sent_everywhere(get_format(name).parse_request(with_value(REQUESTS[name], path, value)))


# Streams

EVENTS: dict[FormatName, list[Json]] = {name: script(name, ["Hi", "there"], calls=True) for name in FORMATS}
STREAMED = [(name, path) for name, events in EVENTS.items() for path in paths_in(events)]


def assemble(name: FormatName, path: Path, value: Any) -> None:
    assembler = get_format(name).assembler()
    for event in with_value(EVENTS[name], path, value):
        assembler.feed(event)
        assert assembler.partial.format == name
        assembler.items_from(0)
    assert assembler.response.format == name


@given(place=st.sampled_from(STREAMED), value=st.sampled_from(ODD))
def test_a_stream_with_any_value_is_read_or_refused(place: tuple[FormatName, Path], value: Any) -> None:
    with contextlib.suppress(ThreadkeepError):
        assemble(*place, value)


@pytest.mark.parametrize("value", [1.5, True, 10**30])
def test_calls_that_are_no_list_are_no_calls(value: Any) -> None:
    [path] = [path for name, path in STREAMED if name == "chat_completion" and path[-1] == "tool_calls"][:1]
    assemble("chat_completion", path, value)


OUTPUT: Path = ("output", 1)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("open_responses", (*OUTPUT, "phase"), {}),
        ("open_responses", (*OUTPUT, "status"), {}),
        ("open_responses", (*OUTPUT, "content", 0, "logprobs", 0, "top_logprobs"), 1.5),
        ("open_responses", ("output", 0, "content"), 1.5),
        ("open_responses", ("output", 0, "summary"), 1.5),
        ("open_responses", ("output", 2, "caller", "type"), []),
        ("chat_completion", ("choices", 0, "message", "content", 1, "text"), True),
        ("messages", ("content", 0, "type"), {}),
    ],
)
def test_values_of_another_kind_are_sent_as_far_as_they_can_be(name: FormatName, path: Path, value: Any) -> None:
    session = Session(model="claude-sonnet-4-5", input="Hi")
    session.add_response(with_value(ANSWERS[name], path, value), name)
    sent_everywhere(session)


@pytest.mark.parametrize("config", [5, "x", [{"tools": []}], {"tools": 5}])
def test_tools_of_another_kind_get_no_cache_points(config: Any) -> None:
    message = {"role": "user", "content": [{"text": "Hi"}]}
    payload = {"modelId": "m", "toolConfig": config, "messages": [message]}
    sent = get_format("converse").parse_request(payload).request_payload("converse", cache="auto")
    assert sent["toolConfig"] == config


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("messages", {"role": "user", "content": [None, {"type": "text", "text": "Hi"}]}),
        ("converse", {"role": "user", "content": [None, {"text": "Hi"}]}),
    ],
)
def test_a_session_with_a_block_that_is_null_can_be_kept(name: FormatName, message: Json) -> None:
    session = get_format(name).parse_request({"messages": [message], "max_tokens": 9, "model": "m"})
    assert Session.from_dict(session.to_dict()).to_dict() == session.to_dict()


@pytest.mark.parametrize("part", [{"part_kind": ["a"]}, {"part_kind": "tool-return", "content": {"kind": ["a"]}}])
def test_odd_parts_of_pydantic_ai_are_read(part: Json) -> None:
    history = [{"kind": "request", "parts": [{"tool_call_id": "c", "tool_name": "f", **part}]}]
    sent_everywhere(get_format("pydantic_ai").parse_request(history))
