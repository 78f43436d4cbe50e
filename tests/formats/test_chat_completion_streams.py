"""Chunks of Chat Completions become the answer that would have come whole."""

from __future__ import annotations

import base64
import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from threadkeep.errors import CannotParse
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("chat_completion")


def chunk(
    delta: Json | None = None, finish: Any = None, *, index: int = 0, top: Json | None = None, **keys: Any
) -> Json:
    """A chunk with one choice."""
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish, **keys}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **(top or {})}


def assembled(*events: Any) -> Any:
    before = copy.deepcopy(events)
    made = FORMAT.assembler()
    for event in events:
        made.feed(event)
    assert events == before
    return made


def message(*deltas: Json) -> Json:
    """The message that deltas become."""
    found: Json = assembled(*map(chunk, deltas)).body["choices"][0]["message"]
    return found


def calls(*pieces: list[Json]) -> list[Any]:
    """Ids, names and arguments of the calls that pieces become."""
    found = message(*({"tool_calls": one} for one in pieces))["tool_calls"]
    return [(call.get("id"), call["function"].get("name"), call["function"].get("arguments")) for call in found]


def piece(arguments: str | None = None, name: str | None = None, **keys: Any) -> Json:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return {**keys, "function": function}


def test_a_chunk_about_filters_takes_back_nothing() -> None:
    """Azure sends such chunks before and after the answer, whose own values they lack."""
    filtered = {"id": "", "object": "", "created": 0, "model": "", "choices": [{"index": 0, "finish_reason": None}]}
    made = assembled(filtered, chunk({"content": "Hi"}, top={"created": 7}), chunk({}, "stop"), filtered)
    assert {key: made.body[key] for key in ("id", "object", "created", "model")} == {
        "id": "c1", "object": "chat.completion", "created": 7, "model": "m",
    }  # fmt: skip
    assert (made.response.text, made.response.finish_reason) == ("Hi", "stop")


def test_chunks_become_a_completion() -> None:
    made = assembled(
        chunk(
            {"role": "assistant", "content": ""}, top={"usage": None, "system_fingerprint": "fp", "obfuscation": "x"}
        ),
        chunk({"content": "He"}, logprobs={"content": [{"token": "He"}], "refusal": None}),
        chunk({"content": "llo"}, logprobs={"content": [{"token": "llo"}], "refusal": None}),
        chunk({}, "stop"),
        {"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 1}},
    )
    assert made.body == {
        "id": "c1", "object": "chat.completion", "model": "m", "system_fingerprint": "fp",
        "usage": {"prompt_tokens": 1},
        "choices": [
            {
                "index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop",
                "logprobs": {"content": [{"token": "He"}, {"token": "llo"}], "refusal": None},
            }
        ],
    }  # fmt: skip
    assert (made.is_ended, made.response.text, made.response.status) == (True, "Hello", "completed")


def test_events_may_be_text() -> None:
    assert assembled(json.dumps(chunk({"content": "Hi"}, "stop"))).response.text == "Hi"


def test_a_stream_that_broke_off_is_incomplete_and_has_no_finish_reason(caplog: pytest.LogCaptureFixture) -> None:
    made = assembled(chunk({"content": "He"}))
    assert (made.partial.status, made.partial.text) == ("in_progress", "He")
    assert (made.response.status, made.response.incomplete_details) == ("incomplete", {"reason": "stream_ended"})
    assert (made.response.finish_reason, made.is_ended, caplog.records) == (None, False, [])
    assert assembled().response.output == []


def test_usage_may_be_in_every_chunk_or_under_a_key_of_the_server() -> None:
    counts = [{"prompt_tokens": 5, "completion_tokens": number} for number in (1, 2)]
    made = assembled(*(chunk({"content": "a"}, top={"usage": count}) for count in counts), chunk({}, "stop"))
    assert made.response.usage.normalized.output_tokens == 2
    groq = assembled(chunk({}, top={"x_groq": {"id": "r"}}), chunk({}, "stop", top={"x_groq": {"usage": counts[0]}}))
    assert groq.response.usage.normalized.total_tokens == 6
    assert groq.body["x_groq"] == {"id": "r", "usage": counts[0]}
    moonshot = chunk({}, "stop")
    moonshot["choices"][0]["usage"] = counts[0]
    assert assembled(chunk({"content": "x"}), moonshot).response.usage.normalized.total_tokens == 6
    told_twice = {**chunk({}, top={"usage": counts[1]}), "choices": []}
    assert assembled(moonshot, told_twice).response.usage.raw == counts[1]


def test_choices_are_told_apart_by_their_index() -> None:
    made = assembled(
        chunk({"content": "b"}, index=1), chunk({"content": "a"}), chunk({"content": "B"}, "stop", index=1)
    )
    assert [choice["message"]["content"] for choice in made.body["choices"]] == ["a", "bB"]
    assert made.response.text == "a"
    assert made.response.provider_data["choices"][0]["message"] == {"content": "bB"}


def test_reasoning_grows_under_each_of_its_keys() -> None:
    for key in ("reasoning_content", "reasoning"):
        assert message({key: "a"}, {key: "a"}, {key: None}, {"content": "b"}) == {key: "aa", "content": "b"}


def test_reasoning_details_are_merged_by_index_and_type() -> None:
    text = {"type": "reasoning.text", "index": 0, "format": "f"}
    found = message(
        {"reasoning_details": [{**text, "text": "We "}]},
        {"reasoning_details": [{**text, "text": "need", "signature": None}]},
        {"reasoning_details": [{**text, "signature": "sig"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "rs_1"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "y", "index": 0, "id": "rs_2"}]},
    )
    assert found["reasoning_details"] == [
        {**text, "text": "We need", "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "rs_1"},
        {"type": "reasoning.encrypted", "data": "y", "index": 0, "id": "rs_2"},
    ]
    plain = {"type": "reasoning.text"}
    found = message(*({"reasoning_details": [{**plain, "text": text}]} for text in "ab"))
    assert found["reasoning_details"] == [{**plain, "text": "ab"}]


def test_content_may_come_in_parts() -> None:
    def thinking(text: str) -> Json:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    found = message(
        {"content": ""}, {"content": [thinking("a")]}, {"content": [thinking("b")]}, {"content": "c"}, {"content": "d"},
        {"content": [{"type": "reference", "reference_ids": [1]}, "e"]},
    )  # fmt: skip
    assert found["content"] == [
        thinking("ab"), {"type": "text", "text": "cd"}, {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "e"},
    ]  # fmt: skip
    reasoning, said = FORMAT.parse_response({"choices": [{"message": found, "finish_reason": "stop"}]}).output
    assert (reasoning.type, said.to_object()["content"][0]["text"]) == ("reasoning", "cd")


CALLS = {
    "by index": [[piece("", "f", index=0, id="a")], [piece("{", index=0)], [piece("", "g", index=1, id="b")],
                 [piece("}", index=0)], [piece("{}", index=1)]],
    "with ids and names repeated": [[piece("{", "f", index=0, id="a")], [piece("}", "f", index=0, id="a")],
                                      [piece("{}", "g", index=1, id="b")]],
    "with empty ids and names": [[piece("{", "f", index=0, id="a")], [piece("}", "", index=0, id="")],
                                 [piece("{}", "g", index=1, id="b")]],
    "without index": [[piece("{", "f", id="a")], [piece("}")], [piece("{}", "g", id="b")]],
    "without index, by ids": [[piece("{", "f", id="a"), piece("", "g", id="b")], [piece("}", id="a")],
                              [piece("{}", id="b")]],
    "whole, with one index": [[piece("{}", "f", index=0, id="a")], [piece("{}", "g", index=0, id="b")]],
    "whole, at once": [[piece("{}", "f", id="a"), piece("{}", "g", id="b")]],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_put_together(name: str) -> None:
    assert calls(*CALLS[name]) == [("a", "f", "{}"), ("b", "g", "{}")]


def test_whole_calls_without_index_and_id_stay_apart() -> None:
    assert calls([piece("{}", "f")], [piece("{}", "f")]) == [(None, "f", "{}"), (None, "f", "{}")]


def test_arguments_that_repeat_are_kept() -> None:
    assert calls([piece("1", "f", index=0, id="a")], [piece("1", index=0)]) == [("a", "f", "11")]


def test_calls_keep_what_only_one_server_gives_and_custom_input_grows() -> None:
    signed = {
        "index": 0,
        "id": "a",
        "extra_content": {"google": {"thought_signature": "s="}},
        "function": {"name": "f"},
    }
    custom = [{"index": 1, "id": "b", "type": "custom", "custom": {"name": "sql", "input": text}} for text in "ab"]
    found = message({"tool_calls": [signed]}, *({"tool_calls": [one]} for one in custom))["tool_calls"]
    assert found == [signed, {**custom[0], "custom": {"name": "sql", "input": "ab"}}]


def test_an_old_function_call_grows() -> None:
    found = message({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}})
    assert found == {"function_call": {"name": "f", "arguments": "{}"}}


def test_refusals_annotations_and_repeated_keys() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "u"}}
    found = message(
        {"refusal": "I ca", "channel": "analysis", "annotations": [note]},
        {"refusal": "n't.", "channel": "analysis", "annotations": [note, {**note, "lane": 1}]},
    )
    assert found == {"refusal": "I can't.", "channel": "analysis", "annotations": [note, {**note, "lane": 1}]}


def test_sound_is_one_base64_text() -> None:
    pieces = [base64.b64encode(raw).decode() for raw in (b"a", b"bcd", b"ef")]
    found = message({"audio": {"id": "au"}}, *({"audio": {"data": one, "transcript": "x"}} for one in pieces))
    assert found["audio"] == {"id": "au", "data": base64.b64encode(b"abcdef").decode(), "transcript": "xxx"}


def test_lists_of_one_server_are_merged_by_index() -> None:
    tools = [{"index": 0, "type": "search", "arguments": "{}"}, {"index": 0, "type": "search", "output": "found"}]
    found = message(*({"executed_tools": [tool]} for tool in tools))
    assert found == {"executed_tools": [{"index": 0, "type": "search", "arguments": "{}", "output": "found"}]}


def test_chunks_may_repeat_the_whole_message() -> None:
    events = [
        chunk({"content": text}, finish, message={"role": "assistant", "content": whole}, top={"citations": [whole]})
        for text, whole, finish in [("He", "He", None), ("llo", "Hello", None), ("", "", "stop")]
    ]
    made = assembled(*events)
    assert made.response.text == "Hello"
    assert made.body["citations"] == [""]
    last = assembled(
        chunk({"content": "He"}), {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    )
    assert last.response.text == "Hello"


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"message": "Overloaded", "code": 503}},
        chunk({"content": ""}, "error", top={"error": {"message": "Overloaded", "code": 503}}),
        {"object": "error", "message": "Overloaded", "code": 503},
        {"type": "error", "message": "Overloaded"},
    ],
)
def test_an_error_ends_the_answer(event: Json) -> None:
    made = assembled(chunk({"content": "He"}), event)
    assert (made.response.status, made.response.text) == ("failed", "He")
    assert made.response.error["message"] == "Overloaded"
    assert assembled(event).response.status == "failed"


@pytest.mark.parametrize("event", [None, 1, [], "x", "[]"])
def test_what_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.assembler().feed(event)


def test_a_chunk_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    with pytest.raises(CannotParse):
        FORMAT.assembler().feed(chunk({"lane": deep}))


# Anything


TEXTS = st.sampled_from(["a", "b", "{", ""])
LOOSE = st.recursive(
    st.one_of(st.none(), st.integers(0, 1), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["type", "text", "id", "index", "data", "name", "function"]), inner, max_size=3
        ),
    ),
    max_leaves=5,
)
KEYS = [
    "content",
    "tool_calls",
    "reasoning_details",
    "audio",
    "function_call",
    "refusal",
    "role",
    "lane",
    "annotations",
]
DELTAS = st.dictionaries(st.sampled_from(KEYS), LOOSE, max_size=3)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "index": st.one_of(st.integers(0, 1), LOOSE), "delta": st.one_of(DELTAS, DELTAS, LOOSE), "message": LOOSE,
        "finish_reason": st.one_of(st.none(), LOOSE), "logprobs": LOOSE, "lane": LOOSE,
    },
)  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {},
    optional={"choices": st.one_of(st.lists(CHOICES, max_size=2), LOOSE), "error": LOOSE, "usage": LOOSE, "id": LOOSE},
)


@given(events=st.lists(st.one_of(EVENTS, EVENTS, JSON), max_size=5))
def test_any_events_give_a_response(events: list[Any]) -> None:
    before = repr(events)
    made = FORMAT.assembler()
    for event in events:
        try:
            made.feed(event)
        except CannotParse:
            continue
        assert made.partial.status == "in_progress"
    assert made.response.status in {"completed", "incomplete", "failed"}
    assert repr(events) == before


MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": st.text("ab ", min_size=1, max_size=8),
        "reasoning_content": st.text("ab ", min_size=1, max_size=8),
        "refusal": st.text("ab ", min_size=1, max_size=4),
        "tool_calls": st.lists(
            st.builds(lambda name, text: piece(text, name), st.sampled_from(["f", "g"]), st.text("{}1", min_size=1)),
            min_size=1,
            max_size=3,
        ).map(lambda found: [{"id": f"c{i}", "type": "function", **call} for i, call in enumerate(found)]),
    },
)


def cut(draw: st.DrawFn, text: str) -> list[str]:
    """A text in pieces."""
    ends = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=3))})
    return [text[start:end] for start, end in pairwise(ends)]


@st.composite
def streamed(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """A message, and deltas that say it."""
    whole: Json = draw(MESSAGES)
    deltas: list[Json] = [{"role": "assistant"}]
    for key in ("reasoning_content", "content", "refusal"):
        deltas += [{key: one} for one in cut(draw, whole.get(key, ""))]
    for index, call in enumerate(whole.get("tool_calls", [])):
        first, *others = cut(draw, call["function"]["arguments"])
        begun = {**call, "index": index, "function": {**call["function"], "arguments": first}}
        deltas += [{"tool_calls": [begun]}, *({"tool_calls": [piece(one, index=index)]} for one in others)]
    return whole, deltas


@given(case=streamed())
def test_a_streamed_answer_is_the_same_as_the_answer_in_one_piece(case: tuple[Json, list[Json]]) -> None:
    whole, deltas = case
    made = assembled(*map(chunk, deltas), chunk({}, "stop"))
    body = {"id": "c1", "object": "chat.completion", "model": "m"}
    choice = {"index": 0, "message": whole, "finish_reason": "stop"}
    assert made.response == FORMAT.parse_response({**body, "choices": [choice]})
