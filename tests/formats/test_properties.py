"""Properties of entries, and of what is sent where the provider holds the history."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import APPENDS, CONVERSATIONS, Append, Conversation
from tests.formats.validity import refused
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import ServerState, Snapshot, entry_of


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
