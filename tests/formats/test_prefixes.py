"""Requests that go on from the beginning of an earlier one are what they are when everything is rendered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import ANSWERS, APPENDS, SETTINGS, TOOLS, Append, Conversation, Json, grown
from tests.formats.turns import MODELS, TURNS
from threadkeep.domain.rendering import AS_IT_IS, RenderOptions
from threadkeep.errors import CannotRender
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot

OPTIONS = [AS_IT_IS, RenderOptions(provider="azure"), RenderOptions(dialect="deepseek"), RenderOptions(strict=True)]


def _asked(text: str) -> Append:
    return Append([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}])


def _answered(*items: Json) -> Append:
    return Append([{**item, "origin": "chat_completion"} for item in items], "chat_completion")


def _said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _with_tool(number: int) -> list[Append]:
    call = {"type": "function_call", "call_id": f"call{number}", "name": "lookup", "arguments": '{"n":1}'}
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "42"}
    return [_asked("How many?"), _answered(call), Append([output]), _answered(_said("42."))]


def _turns(count: int) -> list[Append]:
    """An ordinary conversation, with a tool in every third turn."""
    turns = [
        _with_tool(n) if n % 3 == 0 else [_asked(f"What is {n}?"), _answered(_said("A number."))] for n in range(count)
    ]
    return [append for turn in turns for append in turn]


def _snapshot(conversation: Conversation, end: int, memo: Json | None) -> Snapshot:
    return replace(conversation.snapshot(end), memo=memo, configured=(b"options", None))


def _outcome(snapshot: Snapshot, format_name: FormatName, options: RenderOptions) -> Any:
    """All that a request is, or why there is none."""
    try:
        found = get_format(format_name).render(snapshot, options)
    except CannotRender as error:
        return type(error), str(error)
    changed = json.loads(found.changed({"stream": True, "model": "other"}))
    return (
        found.body,
        changed,
        found.payload,
        found.losses,
        found.repairs,
        found.stable,
        found.head,
        found.view,
        type(found),
    )


LONG = st.builds(
    lambda before, appends, after: [*_turns(before), *appends, *_turns(after)],
    st.integers(14, 20), APPENDS, st.integers(0, 8),
)  # fmt: skip
ORDINARY = st.lists(
    st.sampled_from([*ANSWERS]).flatmap(
        lambda origin: ANSWERS[origin].map(
            lambda items: [
                _asked("Go on."),
                Append([{**one, "origin": origin} for one in items], origin),
                _answered(_said("Done.")),
            ]
        )
    ),
    min_size=14,
    max_size=20,
).map(lambda turns: [append for turn in turns for append in turn])


@pytest.mark.parametrize("format_name", TURNS)
@given(settings=SETTINGS, tools=TOOLS, appends=st.one_of(LONG, ORDINARY), data=st.data())
def test_a_request_is_the_same_with_the_beginning_of_an_earlier_one(
    format_name: FormatName, settings: Json, tools: list[Json], appends: list[Append], data: st.DataObject
) -> None:
    conversation = grown({**settings, "model": data.draw(MODELS[format_name])}, tools, appends)
    options = data.draw(st.sampled_from(OPTIONS))
    memo: Json = {}
    for end in conversation.ends[25::2]:
        expected = _outcome(_snapshot(conversation, end, None), format_name, options)
        assert _outcome(_snapshot(conversation, end, memo), format_name, options) == expected


@pytest.mark.parametrize("format_name", TURNS)
def test_what_was_rendered_before_is_not_read_again(format_name: FormatName) -> None:
    conversation = grown({"model": "gpt-5.4"}, [], [*_turns(40), _asked("And now?")])
    memo: Json = {}
    ends = conversation.ends[40:]
    for end in ends[:-1]:
        _outcome(_snapshot(conversation, end, memo), format_name, AS_IT_IS)
    whole = _snapshot(conversation, ends[-1], memo)
    damaged = [replaced._replace(payload=b"{") for replaced in whole.entries[:40]]
    expected = _outcome(replace(whole, memo=None), format_name, AS_IT_IS)
    assert _outcome(replace(whole, entries=[*damaged, *whole.entries[40:]]), format_name, AS_IT_IS) == expected
