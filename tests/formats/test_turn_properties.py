"""Properties of rendering for any format: valid whatever the conversation, pure, and with a stable beginning."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import CONVERSATIONS, Conversation
from tests.formats.factories import Json, answer, assistant, call, output, render, user
from tests.formats.turns import MODELS, TURNS, rendered_turns
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format


@pytest.mark.parametrize("format_name", TURNS)
@given(conversation=CONVERSATIONS, data=st.data())
def test_the_stable_part_stays_while_the_conversation_grows(
    format_name: FormatName, conversation: Conversation, data: st.DataObject
) -> None:
    conversation.settings["model"] = data.draw(MODELS[format_name])
    renders = [rendered_turns(conversation.snapshot(end), format_name) for end in conversation.ends]
    for (before, stable), (after, _) in pairwise(renders):
        assert 0 <= stable <= len(before)
        assert after[:stable] == before[:stable]
    for before, stable in renders:
        assert renders[-1][0][:stable] == before[:stable]


@pytest.mark.parametrize("format_name", TURNS)
@given(conversation=CONVERSATIONS, data=st.data())
def test_a_request_that_was_rendered_is_read_and_rendered_as_it_was(
    format_name: FormatName, conversation: Conversation, data: st.DataObject
) -> None:
    model = conversation.settings["model"] = data.draw(MODELS[format_name])
    with contextlib.suppress(CannotRender):
        payload = get_format(format_name).render(conversation.snapshot()).payload
        in_address = model if format_name == "gemini" else None
        rendered = get_format(format_name).parse_request(payload, model=in_address).render(format_name)
        assert rendered.payload == payload
        assert (rendered.losses, rendered.repairs) == ([], [])


@pytest.mark.parametrize("format_name", NAMES)
@pytest.mark.parametrize("results", [[], [output("c1")]])
def test_what_is_lost_is_told_of_the_item_that_has_it(format_name: FormatName, results: list[Json]) -> None:
    """Also where results, or placeholders for them, are written before it."""
    foreign = next(name for name in NAMES if name != format_name)
    block = {"type": "provider_item", "format": foreign, "payload": {"type": "odd"}}
    items = [user("a"), answer(call("c1"), call("c2")), *results, answer(block, assistant("b"), origin=foreign)]
    found = render(format_name, *items, user("c"), output("c3"))
    after = 3 + len(results)
    assert {loss.code: loss.position for loss in found.losses} == {"provider_item": after, "orphan_output": after + 3}
    assert (
        max(
            repair.position
            for repair in found.repairs
            if repair.code == "missing_output" and repair.position is not None
        )
        == 2
    )
