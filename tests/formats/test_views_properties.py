"""Properties of views: whatever a request shows of a conversation is valid, pure, and begins with a stable part."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import APPENDS, SETTINGS, TOOLS, Append, Conversation, grown
from tests.formats.judges import faults
from threadkeep.domain.options import DIALECTS
from threadkeep.domain.rendering import Rendered, RenderOptions, Turns
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.shared.pairing import between_turns
from threadkeep.formats.shared.reports import LOSSES, REPAIRS
from threadkeep.formats.shared.views import view_of

Json = dict[str, Any]
pytestmark = pytest.mark.share(3)

MODELS = {
    "open_responses": ["gpt-5.4"],
    "chat_completion": ["gpt-5.4", "anthropic/claude-sonnet-4.5", "glm-5.2", "mimo-v2-flash"],
    "messages": ["claude-sonnet-4-5", "claude-opus-4-8", "gpt-5.4"],
    "gemini": ["gemini-2.5-flash", "gemini-3-flash-preview", "models/gemini-2.0-flash", "tuned"],
    "converse": ["us.anthropic.claude-sonnet-4-6", "amazon.nova-2-lite-v1:0", "meta.llama", "qwen.qwen3-32b", "tuned"],
    "interactions": ["gemini-3-pro"],
    "pydantic_ai": ["openai:gpt-5.4"],
    "ui_messages": ["gpt-5.4"],
    "ag_ui": ["gpt-5.4"],
}
VIEWS = st.builds(
    RenderOptions,
    vision=st.booleans(),
    reasoning=st.booleans(),
    cache=st.sampled_from([None, "auto"]),
    window=st.sampled_from([None, None, Turns(1), Turns(2, step=2), Turns(3, step=4)]),
    dynamic_context=st.sampled_from([None, {"time": "12:00"}]),
    dynamic_context_at=st.sampled_from(["front", "tail"]),
    dialect=st.sampled_from([None, *DIALECTS]),
)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Conversations that were compacted now and then, and where that was taken back."""
    appends: list[Append] = []
    for append in draw(APPENDS):
        appends.append(append)
        word = draw(st.sampled_from(["", "", "", "", "compact", "undo"]))
        made = grown({}, [], appends)
        positions = [
            entry.position for entry in made.entries if entry.type == "compaction" and b"summary" in rest(entry)
        ]
        if word == "compact" and (upto := between_turns(made.entries)) is not None:
            appends.append(Append([{"type": "compaction", "upto": upto, "summary": "They talked."}]))
        elif word == "undo" and positions:
            appends.append(Append([{"type": "compaction_undone", "compaction": positions[-1]}]))
    return grown(draw(SETTINGS), draw(TOOLS), appends)


def rest(entry: Any) -> bytes:
    return entry.rest or b""


def turns_of(rendered: Rendered, format_name: FormatName) -> list[Any]:
    found: list[Any] = without_marks(rendered.payload[get_format(format_name).signs.turns])
    return found


def without_marks(thing: Any) -> Any:
    """A value without cache marks."""
    if isinstance(thing, list):
        return [without_marks(one) for one in thing if not (isinstance(one, dict) and one.keys() == {"cachePoint"})]
    if isinstance(thing, dict):
        return {key: without_marks(value) for key, value in thing.items() if key != "cache_control"}
    return thing


def rendered(snapshot: Snapshot, format_name: FormatName, options: RenderOptions) -> Rendered | None:
    """The request; None where nothing is left to be sent, which is the one refusal."""
    try:
        return get_format(format_name).render(snapshot, options)
    except CannotRender:
        return None


@pytest.mark.parametrize("format_name", NAMES)
@given(conversation=conversations(), options=VIEWS, data=st.data())
def test_every_view_of_every_conversation_is_valid(
    format_name: FormatName, conversation: Conversation, options: RenderOptions, data: st.DataObject
) -> None:
    last = conversation.entries[-1].position if conversation.entries else 0
    model = data.draw(st.sampled_from(MODELS[format_name]))
    conversation.settings["model"] = model
    options = replace(options, upto=data.draw(st.one_of(st.none(), st.integers(0, last))))
    found = rendered(conversation.snapshot(), format_name, options)
    if found is None:
        return
    assert faults(found.payload, format_name, model) == []
    assert {loss.code for loss in found.losses} <= LOSSES.keys()
    assert {repair.code for repair in found.repairs} <= REPAIRS.keys()
    assert RenderOptions.recorded(found.view) == options


@pytest.mark.parametrize("format_name", NAMES)
@given(conversation=conversations(), options=VIEWS, data=st.data())
def test_what_is_stable_stays_while_the_conversation_grows(
    format_name: FormatName, conversation: Conversation, options: RenderOptions, data: st.DataObject
) -> None:
    """As long as the window does not move and nothing is compacted."""
    conversation.settings["model"] = data.draw(st.sampled_from(MODELS[format_name]))
    renders = []
    for end in conversation.ends:
        snapshot = conversation.snapshot(end)
        found = rendered(snapshot, format_name, options)
        entries = view_of(snapshot, options, format_name).entries
        marks = [entry.position for entry in snapshot.entries if entry.type.startswith("compaction")]
        beginning = [entry.position for entry in entries[: 2 if marks else 1]]  # a summary stays ahead of a window
        if found is not None:
            renders.append(((marks, beginning), turns_of(found, format_name), found.stable))
    for (start, before, stable), (other, after, _) in pairwise(renders):
        assert 0 <= stable <= len(before)
        if start == other:
            assert after[:stable] == before[:stable] or _goes_on(before[:stable], after[:stable])


def _goes_on(before: list[Any], after: list[Any]) -> bool:
    """Whether the last message of Converse, or of a chat, has more now: a cache of what it had is found all the same.

    A layer that stood between two messages of the assistant has moved on, and they are one.
    """
    *begun, last = before
    *others, grown = after
    key = "parts" if "parts" in last else "content"
    is_one = others == begun and key in last and grown.get("role") == last["role"] == "assistant"
    return is_one and isinstance(last[key], list) and grown[key][: len(last[key])] == last[key]


@pytest.mark.parametrize("format_name", NAMES)
@given(conversation=conversations(), options=VIEWS, data=st.data())
def test_a_view_of_an_earlier_time_stays_the_same(
    format_name: FormatName, conversation: Conversation, options: RenderOptions, data: st.DataObject
) -> None:
    ends = [end for end in conversation.ends if end]
    if not ends:
        return
    conversation.settings["model"] = MODELS[format_name][0]
    end = data.draw(st.sampled_from(ends))
    then = rendered(conversation.snapshot(end), format_name, options)
    upto = conversation.entries[end - 1].position
    now = rendered(conversation.snapshot(), format_name, replace(options, upto=upto))
    assert (then and then.body) == (now and now.body)


@pytest.mark.parametrize("format_name", NAMES)
@given(conversation=conversations(), options=VIEWS)
def test_a_view_changes_nothing_and_repeats_itself(
    format_name: FormatName, conversation: Conversation, options: RenderOptions
) -> None:
    before = copy.deepcopy(conversation)
    first = rendered(conversation.snapshot(), format_name, options)
    second = rendered(conversation.snapshot(), format_name, options)
    assert conversation == before
    if first is None or second is None:
        assert first is second
        return
    assert first.body == second.body
    assert json.loads(first.body) == first.payload
    assert list(first.payload)[-1] == get_format(format_name).signs.turns


@pytest.mark.parametrize("format_name", NAMES)
@given(conversation=conversations(), options=VIEWS, data=st.data())
def test_what_a_store_remembers_changes_no_view(
    format_name: FormatName, conversation: Conversation, options: RenderOptions, data: st.DataObject
) -> None:
    """Handles keep what was rendered before, in whatever view."""
    memo: Json = {}
    shared: Json = {}
    for end in conversation.ends:
        snapshot = conversation.snapshot(end)
        view = data.draw(st.sampled_from([options, RenderOptions(), RenderOptions(dialect="compatible")]))
        plain = rendered(snapshot, format_name, view)
        found = rendered(replace(snapshot, memo=memo, shared=shared), format_name, view)
        assert (found and found.body) == (plain and plain.body)
        assert (found and (found.losses, found.repairs, found.stable)) == (
            plain and (plain.losses, plain.repairs, plain.stable)
        )
