"""Properties of rendering for Converse: an import goes on, and what was said is sent or reported."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given

from tests.formats.conversations import APPENDS, CONVERSATIONS, Append, Conversation
from tests.formats.validity_converse import refused
from threadkeep.errors import CannotRender
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import Snapshot, entry_of, snapshot_of

FORMAT = get_format("converse")


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
