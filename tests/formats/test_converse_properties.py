"""Properties of rendering for Converse: valid whatever the conversation, pure, and with a stable beginning."""

from __future__ import annotations

import contextlib
import copy
import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import APPENDS, CONVERSATIONS, SETTINGS, TOOLS, Append, Conversation, grown
from tests.formats.validity_converse import refused
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.canonical.snapshots import Snapshot, snapshot_of
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

FORMAT = get_format("converse")
MODELS = st.sampled_from(["amazon.nova-2-lite-v1:0", "us.anthropic.claude-sonnet-4-6", "meta.llama", "qwen.qwen3-32b"])


def rendered_turns(snapshot: Snapshot) -> tuple[list[Any], int]:
    """The messages and how many of them are stable; nothing where nothing can be sent."""
    try:
        rendered = FORMAT.render(snapshot)
    except CannotRender:
        return [], 0
    return rendered.payload["messages"], rendered.stable


@given(conversation=CONVERSATIONS, model=MODELS, data=st.data())
def test_any_cut_of_any_conversation_is_valid(conversation: Conversation, model: str, data: st.DataObject) -> None:
    last = conversation.entries[-1].position if conversation.entries else 0
    upto = data.draw(st.one_of(st.none(), st.integers(0, last)))
    conversation.settings["model"] = model
    with contextlib.suppress(CannotRender):  # nothing is left to be sent: the one refusal
        rendered = FORMAT.render(conversation.snapshot(), RenderOptions(upto=upto))
        assert refused(rendered.payload) == []
        assert {loss.code for loss in rendered.losses} <= LOSSES.keys()
        assert {repair.code for repair in rendered.repairs} <= REPAIRS.keys()


@given(conversation=CONVERSATIONS)
def test_the_stable_part_stays_while_the_conversation_grows(conversation: Conversation) -> None:
    renders = [rendered_turns(conversation.snapshot(end)) for end in conversation.ends]
    for (before, stable), (after, _) in pairwise(renders):
        assert 0 <= stable <= len(before)
        assert after[:stable] == before[:stable]
    for before, stable in renders:
        assert renders[-1][0][:stable] == before[:stable]


@given(settings=SETTINGS, tools=TOOLS, appends=APPENDS)
def test_rendering_changes_nothing_and_repeats_itself(
    settings: dict[str, Any], tools: list[dict[str, Any]], appends: list[Append]
) -> None:
    given_before = copy.deepcopy((settings, tools, appends))
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]}
    conversation = grown(settings, tools, [*appends, Append([said])])
    first = FORMAT.render(conversation.snapshot())
    second = FORMAT.render(conversation.snapshot())
    assert first.body == second.body
    assert json.loads(first.body) == first.payload
    assert list(first.payload)[-1] == "messages"
    assert (settings, tools, appends) == given_before


@given(conversation=CONVERSATIONS)
def test_a_request_that_was_rendered_is_read_and_rendered_as_it_was(conversation: Conversation) -> None:
    with contextlib.suppress(CannotRender):
        payload = FORMAT.render(conversation.snapshot()).payload
        rendered = FORMAT.parse_request(payload).render("converse")
        assert rendered.payload == payload
        assert (rendered.losses, rendered.repairs) == ([], [])


@given(conversation=CONVERSATIONS, appends=APPENDS)
def test_an_imported_conversation_goes_on(conversation: Conversation, appends: list[Append]) -> None:
    """What came stays as it came while the conversation grows; what is added is repaired."""
    try:
        payload = FORMAT.render(conversation.snapshot()).payload
    except CannotRender:
        return
    came = snapshot_of(FORMAT.parse_request(payload))
    entries = list(came.entries)
    before, stable = payload["messages"], len(payload["messages"]) - 1
    for number, append in enumerate(appends):
        turn, seen = (None, None) if append.origin is None else (100 + number, len(entries) - 1 - append.behind)
        items = enumerate(append.items, len(entries))
        entries += [entry_of(item, position=place, turn=turn, seen=seen) for place, item in items]
        rendered = FORMAT.render(Snapshot(came.settings, came.tools, list(entries), imported=came.imported))
        assert refused(rendered.payload) == []
        assert rendered.payload["messages"][:stable] == before[:stable]
        before, stable = rendered.payload["messages"], rendered.stable


@given(conversation=CONVERSATIONS)
def test_what_was_said_is_in_the_request_or_reported(conversation: Conversation) -> None:
    with contextlib.suppress(CannotRender):
        rendered = FORMAT.render(conversation.snapshot())
        sent = json.dumps(rendered.payload, ensure_ascii=False)
        reported = {loss.position for loss in rendered.losses}
        for entry in conversation.entries:
            item = entry.item()
            for part in [*(item.get("content") or []), *(item.get("output") or [])]:
                text = part.get("text", "") if isinstance(part, dict) else part
                assert text.strip() in sent or entry.position in reported, (item, text)
