"""What Converse requests look like: turns, pairing, calls, reasoning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import answer, assistant, call, codes, output, reasoning, snapshot, user
from tests.formats.requests_converse import FORMAT, LOOKUP, Json, outline, render
from threadkeep.domain.call_kinds import MISSING_OUTPUT
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender, LossError

THOUGHT = {"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}


# Turns


def test_neighbours_of_one_role_are_one_message() -> None:
    rendered = render(user("a"), user("b"), assistant("c"), answer(assistant("d"), origin="converse"), user("e"))
    assert outline(rendered) == ["user: 'a' 'b'", "assistant: 'c' 'd'", "user: 'e'"]


def test_results_stand_first_and_complete_behind_their_calls() -> None:
    rendered = render(
        user("go"), call("a"), call("b"), user("meanwhile"), output("b", "2"), assistant("hm"), output("a", "1")
    )
    assert outline(rendered) == [
        "user: 'go'",
        "assistant: call(a) call(b)",
        "user: result(a=1) result(b=2) 'meanwhile'",
        "assistant: 'hm'",
    ]
    assert codes(rendered) == ([], ["moved_output", "moved_output"])


def test_calls_of_one_answer_do_not_join_those_of_another() -> None:
    rendered = render(user("go"), answer(call("a")), answer(call("b"), seen=0), output("a", "1"), output("b", "2"))
    assert outline(rendered) == [
        "user: 'go'",
        "assistant: call(a)",
        "user: result(a=1)",
        "assistant: call(b)",
        "user: result(b=2)",
    ]


def test_a_call_that_the_user_built_joins_the_answer_before_it() -> None:
    rendered = render(user("go"), answer(assistant("ok"), call("a")), call("b"), output("a", "1"), output("b", "2"))
    assert outline(rendered)[1:] == ["assistant: 'ok' call(a) call(b)", "user: result(a=1) result(b=2)"]


def test_an_unanswered_call_gets_a_result_that_says_so() -> None:
    rendered = render(user("go"), answer(call("a"), call("b")), output("b", "2"))
    assert outline(rendered)[-1] == f"user: result(a={MISSING_OUTPUT}) result(b=2)"
    assert codes(rendered) == ([], ["missing_output"])
    assert rendered.stable == 1


def test_an_output_that_comes_after_its_placeholder_was_sent_is_text() -> None:
    rendered = render(user("go"), answer(call("a")), answer(assistant("well"), seen=1), output("a", "late"))
    assert outline(rendered) == [
        "user: 'go'",
        "assistant: call(a)",
        f"user: result(a={MISSING_OUTPUT})",
        "assistant: 'well'",
        "user: 'The result of the tool call lookup (a) came in later:' 'late'",
    ]
    assert codes(rendered)[1] == ["missing_output", "late_output"]


def test_an_output_without_a_call_is_left_out() -> None:
    assert codes(render(user("go"), output("x", "1"))) == (["orphan_output"], [])


def test_an_output_of_a_call_that_only_another_format_knows_is_left_out() -> None:
    custom = {"id": "z", "type": "custom", "custom": {"name": "sql", "input": "x"}}
    item = {"type": "provider_item", "format": "chat_completion", "payload": custom}
    rendered = render(user("go"), answer(item, origin="chat_completion"), output("z", "1"))
    assert codes(rendered) == (["provider_item", "orphan_output"], [])


def test_a_custom_call_is_a_call_with_its_input_in_an_object() -> None:
    item = {"type": "custom_tool_call", "call_id": "c", "name": "lookup", "input": "select 1"}
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}
    sent = render(user("go"), item, result).payload["messages"]
    assert sent[1]["content"][0]["toolUse"]["input"] == {"input": "select 1"}
    assert sent[2]["content"][0]["toolResult"]["content"] == [{"text": "1"}]


def test_a_leading_assistant_gets_a_user_message_before_it() -> None:
    rendered = render(assistant("hello"), user("hi"))
    assert outline(rendered) == ["user: '...'", "assistant: 'hello'", "user: 'hi'"]
    assert codes(rendered) == ([], ["leading_assistant"])
    with pytest.raises(LossError):
        FORMAT.render(snapshot(assistant("hello")), RenderOptions(strict=True))


def test_a_message_of_an_unknown_role_is_the_users() -> None:
    rendered = render(user("x", role="critic"))
    assert outline(rendered) == ["user: 'x'"]
    assert codes(rendered) == ([], ["role"])


@pytest.mark.parametrize(
    ("items", "expected", "repairs"),
    [
        ([user("a", "")], ["user: 'a'"], ["blank_text"]),
        ([user("a"), user(" ")], ["user: 'a'"], ["blank_text"]),
        ([user("a", "\n")], ["user: 'a'"], ["blank_text"]),
        ([user("a"), assistant("b"), user(" "), assistant("c")], ["user: 'a'", "assistant: 'b' 'c'"], ["blank_text"]),
        ([user("a"), assistant("\n"), user("b")], ["user: 'a' 'b'"], ["blank_text"]),
        ([user("a"), answer(assistant(""), origin="converse"), user("b")], ["user: 'a' 'b'"], ["blank_text"]),
        ([user("a"), user(" ", role="system"), user("b")], ["user: 'a' 'b'"], ["blank_text"]),
    ],
)
def test_blank_text_is_left_out_where_the_service_refuses_it(
    items: list[Any], expected: list[str], repairs: list[str]
) -> None:
    rendered = render(*items)
    assert outline(rendered) == expected
    assert codes(rendered) == ([], repairs)


def test_a_user_who_said_only_blanks_said_nothing() -> None:
    rendered = render(user(" "))
    assert outline(rendered) == ["user: '...'"]
    assert codes(rendered) == ([], ["blank_text", "blank_text"])


@pytest.mark.parametrize("items", [[], [user("be kind", role="system")], [{"type": "compaction"}]])
def test_nothing_to_send_is_refused(items: list[Any]) -> None:
    with pytest.raises(CannotRender, match="nothing to send"):
        FORMAT.render(snapshot(*items))


def test_the_last_message_may_grow_and_is_not_stable() -> None:
    assert [render(*[user("a"), assistant("b"), user("c")][:count]).stable for count in (1, 2, 3)] == [0, 1, 2]


# Call ids


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["ok_1.a:b-c"], ["ok_1.a:b-c"]),
        (["a/1", "a 2"], ["a_1", "a_2"]),
        (["a_1", "a/1"], ["a_1", "call_.*"]),
        (["", "x" * 65], ["call_.*", "call_.*"]),
        (["a", "a"], ["a", "call_.*"]),
        (["", ""], ["call_.*", "call_.*"]),
    ],
)
def test_call_ids_are_valid_and_come_once(ids: list[str], expected: list[str]) -> None:
    items = [part for call_id in ids for part in (call(call_id), output(call_id))]
    blocks = [block for one in render(user("go"), *items).payload["messages"] for block in one["content"]]
    found = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    assert [name if name == wanted else "call_.*" for name, wanted in zip(found, expected, strict=True)] == expected
    assert found == [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
    assert len(set(found)) == len(found)


# Arguments and outputs


@pytest.mark.parametrize(
    ("arguments", "sent", "code"),
    [
        ('{"n": 1}', {"n": 1}, None),
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}, None),
        ('{"s": "\\ud800"}', {"s": "\ufffd"}, "invalid_text"),
        ("", {}, "malformed_arguments"),
        (" ", {}, "malformed_arguments"),
        ("[1]", {}, "malformed_arguments"),
        ("{", {}, "malformed_arguments"),
        ('{"n": NaN}', {}, "malformed_arguments"),
        ('{"n": 1e999, "m": [1, -1e999]}', {"m": [1, None]}, "number"),
        ('{"n": 1' + "0" * 250 + 'e99, "m": -1' + "0" * 400 + ".0}", {}, "number"),
        ('{"n":' + "[" * 300 + "]" * 300 + "}", {}, "malformed_arguments"),
        ("[" * 100_000, {}, "malformed_arguments"),
    ],
)
def test_arguments_are_an_object(arguments: str, sent: Any, code: str | None) -> None:
    rendered = FORMAT.render(snapshot(user("go"), call("a", arguments=arguments), output("a"), tools=[LOOKUP]))
    assert rendered.payload["messages"][1]["content"][0]["toolUse"]["input"] == sent
    losses, repairs = codes(rendered)
    assert losses + repairs == ([code] if code else [])
    assert rendered.body


NOTHING = [{"text": "(no output)"}]
VIDEO_NOTE = [{"text": "[video not included: https://v.example.org/a.mp4]"}]


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ("x", [{"text": "x"}]),
        (" x", [{"text": " x"}]),
        ("", NOTHING),
        (" \n", NOTHING),
        (None, NOTHING),
        ([], NOTHING),
        ([{"type": "input_text", "text": " "}], NOTHING),
        ([{"type": "input_video", "video_url": "https://v.example.org/a.mp4"}], VIDEO_NOTE),
        ({"n": 1}, [{"json": {"n": 1}}]),
        (7, [{"text": "7"}]),
        ([{"type": "input_text", "text": ""}, {"type": "text", "text": "b"}], [{"text": "b"}]),
    ],
)
def test_outputs_are_text_parts_or_json(given: Any, content: list[Json]) -> None:
    rendered = render(user("go"), call("a"), output("a", given))
    assert rendered.payload["messages"][2]["content"][0]["toolResult"]["content"] == content


def test_a_cache_point_stands_beside_a_result_and_never_inside() -> None:
    parts = [{"type": "input_text", "text": "x", "cache_point": True}]
    rendered = render(user("go"), call("a"), user("on"), output("a", parts, cache_point=True))
    result = {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}
    assert rendered.payload["messages"][2]["content"] == [result, {"cachePoint": {"type": "default"}}, {"text": "on"}]


def test_a_status_that_the_format_has_not_is_reported() -> None:
    rendered = render(user("go"), call("a"), output("a", "x", status="in_progress"))
    assert codes(rendered) == (["status"], [])


# Reasoning


@pytest.mark.parametrize("origin", ["converse", "messages"])
def test_reasoning_of_claude_goes_back_signed(origin: str) -> None:
    hidden = {"type": "redacted_thinking", "data": "ZW5j"}
    item = {**THOUGHT, "content": [*THOUGHT["content"], hidden]}
    rendered = render(user("go"), answer(item, assistant("ok"), origin=origin))
    assert rendered.payload["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "ZW5j"}},
        {"text": "ok"},
    ]
    assert codes(rendered) == ([], [])


@pytest.mark.parametrize(
    ("item", "origin"),
    [
        (THOUGHT, None),
        (THOUGHT, "gemini"),
        (reasoning(), "open_responses"),
        ({"type": "reasoning", "content": [{"type": "thinking", "thinking": "unsigned"}]}, "messages"),
        ({"type": "reasoning", "content": ["odd"]}, "messages"),
        ({"type": "reasoning", "content": []}, "converse"),
    ],
)
def test_reasoning_that_the_service_cannot_read_is_left_out(item: Json, origin: str | None) -> None:
    given = item if origin is None else answer(item, assistant("ok"), origin=origin)
    rendered = render(user("go"), given, user("on"))
    assert "reasoningContent" not in str(rendered.payload)
    assert codes(rendered) == (["reasoning"], [])


def test_unsigned_reasoning_goes_back_where_it_came_from() -> None:
    thought = {"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm"}]}
    rendered = render(user("go"), answer(thought, assistant("ok"), origin="converse"))
    assert rendered.payload["messages"][1]["content"][0] == {"reasoningContent": {"reasoningText": {"text": "hm"}}}


@pytest.mark.parametrize(
    ("model", "sent", "why"),
    [
        ("us.anthropic.claude-sonnet-4-6", ["signed"], "without a signature"),
        ("openai.gpt-oss-120b-1:0", ["unsigned"], "Claude's"),
        ("moonshotai.kimi-k2.5", ["unsigned"], "Claude's"),
        ("us.amazon.nova-2-lite-v1:0", [], "takes none"),
        ("us.deepseek.r1-v1:0", [], "takes none"),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/x1", ["signed", "unsigned"], None),
    ],
)
def test_reasoning_goes_to_models_that_take_it(model: str, sent: list[str], why: str | None) -> None:
    """A conversation that moved from one model to another would be refused."""
    unsigned = {"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm"}]}
    answers = [answer(thought, assistant("ok"), origin="converse") for thought in (THOUGHT, unsigned)]
    rendered = render(user("go"), answers[0], user("on"), answers[1], user("on"), model=model)
    thoughts = [
        "signed" if "signature" in block["reasoningContent"]["reasoningText"] else "unsigned"
        for message in rendered.payload["messages"]
        for block in message["content"]
        if "reasoningContent" in block
    ]
    assert thoughts == sent
    assert codes(rendered) == (["reasoning"] * (2 - len(sent)), [])
    assert why is None or why in rendered.losses[0].detail


def test_thinking_of_a_joined_answer_is_left_out_unless_it_calls() -> None:
    first = answer(THOUGHT, assistant("a"), origin="converse")
    rendered = render(user("go"), first, answer(THOUGHT, assistant("b"), origin="converse"))
    assert outline(rendered)[1] == "assistant: reasoningContent 'a' 'b'"
    assert codes(rendered) == (["reasoning"], [])
    rendered = render(user("go"), first, answer(THOUGHT, call("c"), origin="converse"), output("c"))
    assert outline(rendered)[1] == "assistant: reasoningContent 'a' reasoningContent call(c)"
    assert codes(rendered) == ([], [])
