"""Finding the conversation that a client's history goes on with, where the client does not name it.

Conversations have a label that stands for their first question, by which those are found that a history is compared
with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.session import Session
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.shared.endings import CUT_OFF
from threadkeep.store.history_sync.client_history import ClientHistory, HistoryDelta

if TYPE_CHECKING:
    from threadkeep.store.conversation import Conversation
    from threadkeep.store.store import Store

BEGINNING: Final = "begins-with"  # the label with which conversations are found by how they begin
_CANDIDATES: Final = 20  # conversations that begin alike and are compared with a history; the newest ones
_RESPONSES: Final = 1000  # of a conversation that is compared, among which those are that broke off
_ANSWERS: Final = frozenset({"reasoning", "function_call", "custom_tool_call"})  # types of items of a model


def beginning_of(session: Session) -> str | None:
    """Return the value of the label BEGINNING for a history; None if a user says nothing in it."""
    for item in session.items:
        value = item.to_object()
        if value.get("type") == "message" and value.get("role") == "user":
            return short_digest(_text_of(value.get("content")))
    return None


def short_digest(text: str) -> str:
    """Return 32 characters that stand for a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def find_by_history(store: Store, session: Session) -> Conversation | None:
    """Return the one conversation that a client's history agrees with most; None if no other one agrees less.

    An answer must agree, not only a question that many may ask, unless nothing was answered yet.
    """
    beginning = beginning_of(session)
    if beginning is None:
        return None
    history = ClientHistory(session)
    page = store.list_conversations(labels={BEGINNING: beginning}, limit=_CANDIDATES)
    agreements = [(_agreement(conversation, history), conversation) for conversation in page]
    best = max((agreed for agreed, _ in agreements), default=0)
    found = [conversation for agreed, conversation in agreements if agreed == best]
    return found[0] if best and len(found) == 1 else None


def last_shared(conversation: Conversation, session: Session) -> int:
    """Return the position of the last item of a conversation that a client's history has, too; -1 for none."""
    positions, _, delta = _compared(conversation, ClientHistory(session))
    return positions[delta.kept - 1] if delta.kept else -1


def _text_of(content: Any) -> str:
    if not isinstance(content, list):
        return str(content)
    parts = [part.get("text") or json.dumps(part, sort_keys=True) for part in content if isinstance(part, dict)]
    return "".join(parts)


def _agreement(conversation: Conversation, history: ClientHistory) -> int:
    """How many items of a conversation a client's history has, from the first one on; 0 if it is not its history."""
    _, objects, delta = _compared(conversation, history)
    if any(map(is_answer, objects)):
        return delta.kept if any(map(is_answer, objects[: delta.kept])) else 0
    return delta.kept if delta.is_all else 0


def _compared(
    conversation: Conversation, history: ClientHistory
) -> tuple[list[int], list[Mapping[str, Any]], HistoryDelta]:
    """The positions and items of a conversation, and how a client's history continues them."""
    stored = conversation.transcript()
    positions, objects = [item.position for item in stored], [item.item.to_object() for item in stored]
    entries = [entry_of(value, position=position) for value, position in zip(objects, positions, strict=True)]
    cut_off = {
        response.to_position for response in conversation.responses(limit=_RESPONSES) if response.status in CUT_OFF
    }
    return positions, list(objects), history.compare(entries, cut_off, may_begin_later=False)


def is_answer(item: Mapping[str, Any]) -> bool:
    """Return whether an item is what a model said."""
    return item.get("role") == "assistant" or item.get("type") in _ANSWERS
