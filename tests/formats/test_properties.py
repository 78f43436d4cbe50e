"""Properties of rendering: valid whatever the conversation, pure, and with a stable beginning."""

from __future__ import annotations

import contextlib
import copy
import json
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import APPENDS, CONVERSATIONS, SETTINGS, TOOLS, Append, Conversation, grown
from tests.formats.validity import refused
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.canonical.snapshots import ServerState, Snapshot
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

FORMATS: Final[tuple[FormatName, ...]] = ("open_responses", "chat_completion")
TURNS = {"open_responses": "input", "chat_completion": "messages"}


def rendered_turns(snapshot: Snapshot, format_name: FormatName) -> tuple[list[Any], int]:
    """The turn list and how much of it is stable; nothing where nothing can be sent."""
    try:
        rendered = get_format(format_name).render(snapshot)
    except CannotRender:
        return [], 0
    return rendered.payload[TURNS[format_name]], rendered.stable


@pytest.mark.parametrize("format_name", FORMATS)
@given(conversation=CONVERSATIONS, data=st.data())
def test_any_cut_of_any_conversation_is_valid(
    format_name: FormatName, conversation: Conversation, data: st.DataObject
) -> None:
    last = conversation.entries[-1].position if conversation.entries else 0
    upto = data.draw(st.one_of(st.none(), st.integers(0, last)))
    with contextlib.suppress(CannotRender):  # nothing is left to be sent: the one refusal
        rendered = get_format(format_name).render(conversation.snapshot(), RenderOptions(upto=upto))
        assert refused(rendered.payload, format_name) == []
        assert {loss.code for loss in rendered.losses} <= LOSSES.keys()
        assert {repair.code for repair in rendered.repairs} <= REPAIRS.keys()


@pytest.mark.parametrize("format_name", FORMATS)
@given(conversation=CONVERSATIONS)
def test_the_stable_part_stays_while_the_conversation_grows(
    format_name: FormatName, conversation: Conversation
) -> None:
    renders = [rendered_turns(conversation.snapshot(end), format_name) for end in conversation.ends]
    for (before, stable), (after, _) in pairwise(renders):
        assert 0 <= stable <= len(before)
        assert after[:stable] == before[:stable]
    for before, stable in renders:
        assert renders[-1][0][:stable] == before[:stable]


@pytest.mark.parametrize("format_name", FORMATS)
@given(settings=SETTINGS, tools=TOOLS, appends=APPENDS)
def test_rendering_changes_nothing_and_repeats_itself(
    format_name: FormatName, settings: dict[str, Any], tools: list[dict[str, Any]], appends: list[Append]
) -> None:
    given_before = copy.deepcopy((settings, tools, appends))
    conversation = grown(
        settings,
        tools,
        [*appends, Append([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]}])],
    )
    first = get_format(format_name).render(conversation.snapshot())
    second = get_format(format_name).render(conversation.snapshot())
    assert first.body == second.body
    assert json.loads(first.body) == first.payload
    assert list(first.payload)[-1] == TURNS[format_name]
    assert (settings, tools, appends) == given_before


@given(conversation=CONVERSATIONS, data=st.data())
def test_what_the_provider_has_and_what_is_sent_make_the_whole(conversation: Conversation, data: st.DataObject) -> None:
    """With server state the new part alone leaves no call of the whole history without an output."""
    boundary = data.draw(
        st.sampled_from([-1, *(conversation.entries[end - 1].position for end in conversation.ends if end)])
    )
    snapshot = conversation.snapshot()
    state = Snapshot(snapshot.settings, snapshot.tools, snapshot.entries, ServerState("resp_1", boundary))
    rendered = get_format("open_responses").render(state)
    assert rendered.payload["previous_response_id"] == "resp_1"
    assert rendered.stable == 0
    problems = [broken for broken in refused(rendered.payload, "open_responses") if "call-answers" in broken]
    assert problems == []


@given(appends=APPENDS)
def test_an_entry_gives_its_item_back(appends: list[Append]) -> None:
    """Rows keep everything that is known of an item; an empty summary of reasoning may be written out."""
    for item in [item for append in appends for item in append.items]:
        level: dict[str, Any] = {"summary": []} if item["type"] == "reasoning" else {}
        assert entry_of(item, position=0).item() == level | item
