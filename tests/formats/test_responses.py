"""Reading responses, beyond the vectors."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from threadkeep.domain.jsontext import decode, loads
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender, ProviderError, StreamChunk
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot, entry_of

FORMATS: Final[tuple[FormatName, ...]] = ("open_responses", "chat_completion")
Json = dict[str, Any]


def chat(message: Json | None = None, finish: Any = "stop", **body: Any) -> Response:
    choice: Json = {"index": 0, "finish_reason": finish} | ({} if message is None else {"message": message})
    return get_format("chat_completion").parse_response({"choices": [choice], **body})


def objects(response: Response) -> list[Json]:
    return [item.to_object() for item in response.output]


def test_reasoning_of_any_spelling_is_an_item_before_the_message() -> None:
    for keys in ({"reasoning_content": "hm"}, {"reasoning": "hm"}, {"reasoning_details": [{"text": "hm"}]}):
        thought, message = objects(chat({"content": "Yes.", **keys}))
        assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
        assert thought["native"] == {"chat_completion": keys}
        assert message["content"][0]["text"] == "Yes."


def thinking(*texts: str, **keys: Any) -> Json:
    """A part as Mistral sends it."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts], **keys}


@pytest.mark.parametrize("thought", [thinking("h", "m", closed=True), {"type": "thinking", "thinking": "hm"}])
def test_reasoning_at_the_beginning_of_the_content_is_an_item_before_the_message(thought: Json) -> None:
    reasoning, message = objects(chat({"content": [thought, {"type": "text", "text": "Yes."}]}))
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert message["content"] == [{"type": "output_text", "text": "Yes."}]


@pytest.mark.parametrize("dialect", [None, "mistral"])
@pytest.mark.parametrize(
    "more",
    [
        {"content": [thinking("hm", signature="s"), {"type": "text", "text": "Yes."}]},
        {"content": [thinking("h"), thinking("m"), {"type": "text", "text": "Yes."}, thinking("Or?")]},
        {
            "content": [thinking("hm")],
            "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ],
)  # fmt: skip
def test_reasoning_in_the_content_goes_back_where_it_was(more: Json, dialect: str | None) -> None:
    model, message = "magistral-medium-latest", {"role": "assistant", **more}
    session = Session(model=model, dialect=dialect)
    session.user("Is it?")
    session.add_response(
        {"model": model, "choices": [{"finish_reason": "stop", "message": message}]}, "chat_completion"
    )
    session.user("Really?")
    assert session.request_payload("chat_completion")["messages"][1] == message
    imported = get_format("chat_completion").parse_request(
        {"model": model, "messages": [{"role": "user", "content": "Is it?"}, message]}
    )
    assert [item.type for item in imported.items] == [item.type for item in session.items[:-1]]
    assert imported.request_payload("chat_completion")["messages"][1] == message


def test_an_empty_refusal_hides_no_content_and_a_refusal_neither() -> None:
    assert chat({"content": "Yes.", "refusal": ""}).text == "Yes."
    parts = objects(chat({"content": "Well.", "refusal": "No."}))[0]["content"]
    assert [part["type"] for part in parts] == ["output_text", "refusal"]


def test_calls_are_understood_without_their_type() -> None:
    calls = chat({"tool_calls": [{"id": "c", "index": 0, "function": {"name": "f", "arguments": {"n": 1}}}]}).tool_calls
    assert [(one.name, one.arguments, one.native) for one in calls] == [("f", '{"n":1}', None)]


def test_blocks_and_keys_of_one_server_are_kept() -> None:
    message: Json = {
        "content": [{"type": "music", "notes": "x"}, "Hi"],
        "executed_tools": [1],
        "audio": {"id": "a"},
    }
    (item,) = objects(chat(message))
    assert item["content"][0] == {
        "type": "provider_item",
        "format": "chat_completion",
        "payload": message["content"][0],
    }
    assert item["native"] == {"chat_completion": {"executed_tools": [1], "audio": {"id": "a"}}}
    (block,) = objects(chat({"content": None, "function_call": {"name": "old", "arguments": ""}}))
    assert block["payload"] == {"role": "assistant", "function_call": {"name": "old", "arguments": ""}}


@pytest.mark.parametrize(
    ("word", "status", "details"),
    [
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "failed", {"reason": "content_filter"}),
        ("stop", "completed", None),
    ],
)
def test_the_finish_reason_says_status_and_why(word: str, status: str, details: Json | None) -> None:
    response = chat({"content": "Hi"}, word)
    assert (response.status, response.finish_reason, response.incomplete_details) == (status, word, details)


@pytest.mark.parametrize(("word", "is_logged"), [("eos", True), (7, True), ("", False), (None, False)])
def test_an_unknown_word_means_completed_and_is_logged(
    word: Any, caplog: pytest.LogCaptureFixture, *, is_logged: bool
) -> None:
    """Where there is none, the answer may have been cancelled, which is known elsewhere."""
    assert chat({"content": "Hi"}, word).status == "completed"
    assert [record.name for record in caplog.records] == ["threadkeep"] * is_logged


def test_what_stands_beside_the_first_answer_is_provider_data() -> None:
    body = {
        "choices": [{"message": {"content": "1"}, "finish_reason": "stop", "seed": 5}, {"index": 1}],
        "citations": ["u"],
    }
    data = get_format("chat_completion").parse_response(body).provider_data
    assert data == {"citations": ["u"], "choices": [{"index": 1}], "choice": {"seed": 5}}


@pytest.mark.parametrize("message", [{"content": None, "refusal": "No."}, {"content": "", "reasoning": "hm"}])
def test_log_probabilities_without_a_text_are_provider_data(message: Json) -> None:
    logprobs = {"content": [{"token": "a"}], "refusal": [{"token": "b"}]}
    body = {"choices": [{"finish_reason": "stop", "message": message, "logprobs": logprobs}]}
    assert get_format("chat_completion").parse_response(body).provider_data == {"choice": {"logprobs": logprobs}}


def test_unknown_items_and_keys_of_open_responses_are_kept() -> None:
    body: Json = {
        "status": "completed",
        "object": "response",
        "lane": 1,
        "output": [
            {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}},
            {
                "type": "message",
                "content": [{"type": "output_text", "text": "Hi", "lane": 2}, {"type": "chart"}],
                "lane": 3,
            },
            {"type": "function_call", "id": "fc_1"},
        ],
    }
    response = get_format("open_responses").parse_response(body)
    search, message, call = objects(response)
    assert search == {**body["output"][0], "origin": "open_responses"}
    assert message["native"] == {"open_responses": {"lane": 3}}
    assert message["content"][0]["native"] == {"open_responses": {"lane": 2}}
    assert message["content"][1]["payload"] == {"type": "chart"}
    assert call["id"] == "fc_1"
    assert response.provider_data == {"lane": 1}


@pytest.mark.parametrize("role", [None, 5, ["assistant"]])
def test_a_message_without_a_role_is_the_models(role: Any) -> None:
    body = {"output": [{"type": "message", "role": role, "content": [{"type": "output_text", "text": "Hi"}]}]}
    response = get_format("open_responses").parse_response(body)
    entries = [entry_of(item.to_object(), position=place, turn=1) for place, item in enumerate(response.output)]
    assert response.text == "Hi"
    targets: dict[FormatName, str] = {"open_responses": "input", "chat_completion": "messages", "converse": "messages"}
    for target, key in targets.items():
        sent = get_format(target).render(Snapshot({"model": "m"}, [], entries)).payload[key][-1]
        assert sent["role"] == (role if target == "open_responses" else "assistant")


@pytest.mark.parametrize("number", [math.nan, math.inf, 2**70, [math.inf, 1]])
@pytest.mark.parametrize("key", ["id", "status", "phase"])
def test_values_of_any_kind_beside_texts_go_back_as_they_came(key: str, number: Any) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}], key: number}
    response = get_format("open_responses").parse_response({"output": [message]})
    entry = entry_of(response.output[0].to_object(), position=0)
    assert repr(decode(entry.payload or b"", entry.codec)[key]) == repr(number)


@pytest.mark.parametrize(
    "item",
    [{"type": "message", "content": [None]}, {"type": "function_call_output", "call_id": "c1", "output": [None]}],
)
def test_a_null_among_the_parts_is_kept(item: Json) -> None:
    found = get_format("open_responses").parse_response({"output": [item]}).output[0]
    (part,) = item.get("content") or item["output"]
    sent = loads(entry_of(found.to_object(), position=0).payload or b"")
    assert (sent.get("content") or sent["output"]) == [part]


def test_output_alone_makes_a_response() -> None:
    message = {"type": "message", "content": "Hi"}
    response = get_format("open_responses").parse_response({"output": [message]})
    assert (response.text, response.status) == ("Hi", "completed")


@pytest.mark.parametrize(
    ("body", "code", "kind", "message", "status"),
    [
        ({"error": {"code": "x", "message": "m", "type": "t"}}, "x", "t", "m", None),
        ({"error": {"code": 429, "message": "m", "metadata": {}}}, "429", None, "m", 429),
        ({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}, "400", "INVALID_ARGUMENT", "m", 400),
        ([{"error": {"code": 404, "message": "m"}}], "404", None, "m", 404),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, None, "overloaded_error", "m", None),
        ({"code": "bad argument", "error": "m"}, "bad argument", None, "m", None),
        ({"detail": "m"}, None, None, "m", None),
        ({"detail": [{"loc": ["body"], "msg": "m", "type": "missing"}]}, None, None, "m", None),
        ({"object": "error", "message": "m", "type": "invalid", "code": 3}, "3", "invalid", "m", None),
        ({"message": "m"}, None, None, "m", None),
        ({"errors": [{"code": 7, "message": "m"}]}, "7", None, "m", None),
        ({"error": {"type": "t"}}, None, "t", None, None),
        ({"title": "Bad", "status": 404, "detail": "m"}, None, None, "m", 404),
        ({"status": "error", "message": "m"}, None, "error", "m", None),
        ("upstream connect error", None, None, "upstream connect error", None),
        (b"<html>502</html>", None, None, "<html>502</html>", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("format_name", FORMATS)
def test_errors_of_all_vendors_are_told(
    format_name: FormatName, body: Any, code: str | None, kind: str | None, message: str | None, status: int | None
) -> None:
    with pytest.raises(ProviderError) as raised:
        get_format(format_name).parse_response(body)
    error = raised.value
    assert (error.code, error.type, error.message, error.status) == (code, kind, message, status)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("body", [{}, [], 1, None, {"error": {}}, {"error": None}, {"choices": 1, "output": 1}])
def test_a_body_that_says_nothing_is_refused(format_name: FormatName, body: Any) -> None:
    with pytest.raises(CannotParse) as raised:
        get_format(format_name).parse_response(body)
    assert not isinstance(raised.value, ProviderError)


def test_stream_events_name_the_assembler() -> None:
    chunk = {"object": "chat.completion.chunk", "choices": []}
    event = {"type": "response.created", "response": {}}
    chunks: dict[FormatName, Json] = {"chat_completion": chunk, "open_responses": event}
    for format_name, body in chunks.items():
        with pytest.raises(StreamChunk, match=r"assembler.*stream_response") as raised:
            get_format(format_name).parse_response(body)
        assert isinstance(raised.value, CannotRender)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 201, "total_tokens": 585}, (9, 576, 585)),
        (
            {
                "prompt_tokens": 9, "completion_tokens": 248, "total_tokens": 632,
                "prompt_tokens_details": {"audio_tokens": 375},
            },
            (384, 248, 632),
        ),
        ({"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}, (35, 74, 109)),
        *(
            (
                {
                    "prompt_tokens": 249, "completion_tokens": 40, "total_tokens": 289,
                    "prompt_tokens_details": {"cached_tokens": cached},
                },
                (249, 40, 289),
            )
            for cached in (158, 416)
        ),
        (
            {
                "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (10, 8, 18),
        ),
        ({"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8, "cached_tokens": 163}, (7, 1, 8)),
        (
            {
                "prompt_tokens": 2168, "completion_tokens": 100, "total_tokens": 2268,
                "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161},
            },
            (2168, 100, 2268),
        ),
        (
            {
                "prompt_tokens": 5, "completion_tokens": 1,
                "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5,
            },
            (5, 1, 6),
        ),
        ({"prompt_tokens": 33, "completion_tokens": 70, "total_tokens": 103, "reasoning_tokens": 739}, (33, 70, 103)),
        ({"prompt_tokens": -7, "completion_tokens": 1, "total_tokens": 8}, (None, 1, 8)),
        ({"prompt_tokens": 7, "completion_tokens": 1}, (7, 1, 8)),
        ({"prompt_tokens": 7}, (7, None, None)),
    ],
)  # fmt: skip
def test_everything_counts_once(usage: Json, expected: tuple[int | None, ...]) -> None:
    found = chat({"content": "Hi"}, usage=usage).usage
    assert found is not None
    assert (found.normalized.input_tokens, found.normalized.output_tokens, found.normalized.total_tokens) == expected
    assert found.raw == usage


@pytest.mark.parametrize(
    "key", ["prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens"]
)
def test_cached_tokens_are_found_wherever_servers_put_them(key: str) -> None:
    usage = chat({"content": "Hi"}, usage={"prompt_tokens": 9, "completion_tokens": 1, key: 4}).usage
    assert usage is not None
    assert usage.normalized.cached_tokens == 4


@pytest.mark.parametrize("key", ["cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens"])
def test_cache_writes_are_found_wherever_servers_put_them(key: str) -> None:
    counts = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0, key: 4}}
    usage = chat({"content": "Hi"}, usage=counts).usage
    assert usage is not None
    assert (usage.normalized.input_tokens, usage.normalized.cache_write_tokens) == (9, 4)


EVENTS: list[tuple[str, Json]] = [
    ("chat_completion", {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}),
    ("gemini", {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}),
    ("converse", {"messageStart": {"role": "assistant"}}),
    ("converse", {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}}),
    ("open_responses", {"type": "response.created", "response": {"id": "resp_1"}}),
    ("messages", {"type": "message_start", "message": {"id": "msg_1", "content": []}}),
    ("messages", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
]


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(("of", "event"), EVENTS)
def test_an_event_of_another_format_is_not_passed_over(format_name: FormatName, of: str, event: Json) -> None:
    assembler = get_format(format_name).assembler()
    if format_name == of:
        assembler.feed(event)
        return
    with pytest.raises(CannotParse, match=f"not of the format {format_name} but of {of}"):
        assembler.feed(event)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("event", [{}, {"type": "ping"}, {"type": "error"}, {"usage": None}, {"metadata": {}}])
def test_an_event_that_says_nothing_of_its_format_is_taken(format_name: FormatName, event: Json) -> None:
    assembler = get_format(format_name).assembler()
    assembler.feed(event)
    assert assembler.partial.output == []


@pytest.mark.parametrize(
    ("format_name", "body", "looks_like"),
    [
        ("chat_completion", {"id": "resp_1", "output": []}, "open_responses"),
        ("chat_completion", {"content": [], "role": "assistant"}, "messages"),
        ("open_responses", {"choices": []}, "chat_completion"),
        ("open_responses", {"candidates": []}, "gemini"),
        ("chat_completion", {"output": {"message": {}}, "usage": {}}, "converse"),
    ],
)
def test_a_body_of_another_format_is_named(format_name: FormatName, body: Json, looks_like: str) -> None:
    with pytest.raises(CannotParse, match=f"looks like a response of {looks_like}: pass '{looks_like}' as the format"):
        get_format(format_name).parse_response(body)
    with pytest.raises(CannotParse) as raised:
        get_format(format_name).parse_response({"id": 1})
    assert "looks like" not in str(raised.value)


KEYS = st.sampled_from(
    [
        "type", "output", "choices", "message", "content", "status", "object", "error", "usage", "text", "summary",
        "tool_calls", "function", "arguments", "finish_reason", "role", "refusal", "logprobs", "annotations", "id",
    ]
)  # fmt: skip
WORDS = st.sampled_from(["message", "function_call", "reasoning", "output_text", "refusal", "text", "function", "stop"])
NEARLY = st.recursive(
    st.one_of(st.none(), st.integers(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


@pytest.mark.parametrize("format_name", FORMATS)
@given(body=st.one_of(JSON, NEARLY, NEARLY.map(lambda value: {"output": [value], "choices": [{"message": value}]})))
def test_any_json_is_read_or_refused_and_can_be_sent_again(format_name: FormatName, body: Any) -> None:
    before = repr(body)
    try:
        response = get_format(format_name).parse_response(body)
    except CannotParse:
        response = Response()
    entries = [entry_of(item.to_object(), position=place, turn=1) for place, item in enumerate(response.output)]
    for target in FORMATS:
        with contextlib.suppress(CannotRender):
            assert get_format(target).render(Snapshot({"model": "m"}, [], entries)).body
    assert repr(body) == before
