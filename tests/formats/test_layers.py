"""The layers of a request: static, dynamic, buffered and trigger, always in that order, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types

from tests.formats.factories import Json, answer, assistant, call, codes, output, render, user
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format

NOW = {"time": "12:00"}
FRONT = RenderOptions(dynamic_context=NOW)
TAIL = RenderOptions(dynamic_context=NOW, dynamic_context_at="tail")
RULES: Json = {"instructions": "RULES", "tools": [{"type": "function", "name": "lookup", "parameters": None}]}
TALK = [user("q1"), assistant("a1"), user("q2")]
LOOP = [user("q1"), assistant("a1"), user("q2"), *[call("k"), output("k", "r2")]]


def words(format_name: FormatName, items: list[Any], options: RenderOptions) -> list[str]:
    """The words of the layers in the order in which the turn list has them."""
    payload = render(format_name, *items, options=options, **RULES).payload
    text = json.dumps(payload[get_format(format_name).signs.turns])
    found = {word: text.find(word) for word in ("12:00", "q1", "a1", "q2", "r2")}
    assert all(text.count(word) == 1 for word, place in found.items() if place >= 0)
    return sorted((word for word in found if found[word] >= 0), key=found.__getitem__)


@pytest.mark.parametrize("format_name", NAMES)
def test_the_dynamic_layer_comes_before_the_history_or_before_the_trigger(format_name: FormatName) -> None:
    assert words(format_name, TALK, FRONT) == ["12:00", "q1", "a1", "q2"]
    assert words(format_name, TALK, TAIL) == ["q1", "a1", "12:00", "q2"]


@pytest.mark.parametrize("format_name", NAMES)
def test_a_tool_result_at_the_end_is_the_trigger(format_name: FormatName) -> None:
    assert words(format_name, LOOP, FRONT) == ["12:00", "q1", "a1", "q2", "r2"]
    assert words(format_name, LOOP, TAIL)[-2:] == ["12:00", "r2"]


@pytest.mark.parametrize("format_name", NAMES)
def test_the_static_layer_is_the_same_whatever_is_true_now(format_name: FormatName) -> None:
    def static(items: list[Any], options: RenderOptions) -> str:
        payload = render(format_name, *items, options=options, **RULES).payload
        turns = payload.pop(get_format(format_name).signs.turns)
        return json.dumps([payload, turns[0] if format_name == "chat_completion" else None])

    assert static(TALK, FRONT) == static(LOOP, TAIL) == static(TALK, RenderOptions())


@pytest.mark.parametrize("format_name", NAMES)
def test_the_buffered_layer_grows_at_its_end_only(format_name: FormatName) -> None:
    turns = get_format(format_name).signs.turns
    before = render(format_name, *TALK, options=TAIL, **RULES)
    after = render(format_name, *TALK, assistant("a2"), user("q3"), options=TAIL, **RULES)
    assert before.stable >= 2
    assert after.payload[turns][: before.stable] == before.payload[turns][: before.stable]


@pytest.mark.parametrize("format_name", NAMES)
def test_a_dynamic_layer_alone_is_no_request(format_name: FormatName) -> None:
    with pytest.raises(CannotRender, match="nothing to send"):
        render(format_name, options=FRONT)


def test_no_run_of_the_model_is_taken_apart() -> None:
    items = [user("q1"), answer(assistant("a1"), assistant("a2")), assistant("a3")]
    found = render("messages", *items, options=TAIL).payload["messages"]
    assert [turn["role"] for turn in found] == ["user", "assistant"]
    assert "12:00" in str(found[0])


# Gemini, as Google's own types read it

SIGNATURE = "c2lnbmF0dXJlLw=="
AGENT: list[Any] = [
    {**user("Find the bug."), "origin": "gemini"},
    answer({**call("c1", "read"), "thought_signature": SIGNATURE}, origin="gemini"),
    {**output("c1", "x = 1"), "origin": "gemini"},
]


def contents(*items: Any, options: RenderOptions) -> list[types.Content]:
    payload = render("gemini", *items, options=options, model="gemini-3-pro", **RULES).payload
    config = types.GenerateContentConfig(system_instruction=payload["systemInstruction"], tools=payload["tools"])
    assert config.system_instruction == types.Content(parts=[types.Part(text="RULES")])
    return [types.Content.model_validate(content) for content in payload["contents"]]


def test_layers_are_contents_of_their_own_for_google() -> None:
    found = contents(*AGENT, options=FRONT)
    assert [content.role for content in found] == ["user", "user", "model", "user"]
    assert [len(content.parts or []) for content in found] == [1, 1, 1, 1]
    layer, task, called, result = [(content.parts or [types.Part()])[0] for content in found]
    assert (layer.text, task.text) == ('{"time":"12:00"}', "Find the bug.")
    assert called.function_call is not None
    assert called.thought_signature == b"signature/"
    assert result.function_response is not None
    assert result.function_response.response == {"result": "x = 1"}


def test_the_trigger_comes_behind_the_layer_for_google() -> None:
    found = contents(*AGENT, answer(assistant("Fixed."), origin="gemini"), user("Test it."), options=TAIL)
    said = [part.text for content in found for part in content.parts or [] if part.text]
    assert said == ["Find the bug.", "Fixed.", '{"time":"12:00"}', "Test it."]


def test_no_layer_is_stored_or_reported() -> None:
    found = render("gemini", *TALK, options=FRONT, model="gemini-2.5-flash")
    assert codes(found) == ([], [])
    assert found.head == 2
    assert found.view["dynamic_context"] == NOW
