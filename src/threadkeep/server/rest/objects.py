"""Conversations, items and what belongs to them, as answers have them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from threadkeep.domain import jsontext, running, stored
from threadkeep.server.objects import SHOWN_TOOLS, conversation_object, item_object
from threadkeep.server.rest.models import Settings
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation

# what a conversation has of settings, besides the model and the tools
SETTINGS: Final = tuple(name for name in Settings.model_fields if name not in ("model", "tools"))


def conversation_view(conversation: AsyncConversation | Conversation, *, is_whole: bool = True) -> jsontext.JsonObject:
    """Return a conversation with what an application shows of it; otherwise without what users wrote."""
    return {
        **conversation_object(conversation, is_whole=is_whole),
        "model": conversation.model,
        **{name: getattr(conversation, name) if is_whole else None for name in SETTINGS},
        "tools": [tool for tool in conversation.tools if tool["type"] in SHOWN_TOOLS] if is_whole else None,
        "branch": conversation.branch, "head": conversation.head,
    }  # fmt: skip


def message_view(item: stored.StoredItem, *, is_whole: bool = True) -> jsontext.JsonObject:
    """Return an item with what is kept with it; otherwise only which one it is."""
    read = {} if item.siblings is None else {"siblings": siblings_view(item.siblings)}
    return {
        "id": item.id, "object": "conversation.item", "position": item.position, "branch": item.branch,
        "created_at": seconds(item.created_at), "author_id": item.author_id,
        "labels": dict(item.labels or {}) if is_whole else {},
        "feedback": [feedback_view(one) for one in item.feedback or ()] if is_whole else [],
        "item": item_object(item) if is_whole else {"id": item.id, "type": item.item.type},
        **read,
    }  # fmt: skip


def siblings_view(found: running.Siblings) -> jsontext.JsonObject:
    """Return the variants at a place."""
    variants = [{"branch": one.branch, "position": one.position, "newest": one.newest} for one in found]
    return {"object": "siblings", "index": found.index, "count": found.count, "variants": variants}


def call_view(call: running.PendingCall, *, is_whole: bool = True) -> jsontext.JsonObject:
    """Return a call that waits for its output; otherwise only which one it is."""
    approval = call.approval
    return {
        "id": call.id, "object": "tool_call", "type": call.item.type, "call_id": call.call_id,
        "position": call.position, "name": call.name if is_whole else None,
        "arguments": call.arguments if is_whole else None,
        "approval": None if approval is None else {
            "decision": approval.decision, "decided_by": approval.decided_by,
            "decided_at": seconds(approval.decided_at), "reason": approval.reason if is_whole else None,
        },
    }  # fmt: skip


def feedback_view(given: stored.Feedback) -> jsontext.JsonObject:
    """Return what a user thinks of an item."""
    return {
        "user_id": given.user_id, "rating": given.rating, "comment": given.comment,
        "updated_at": seconds(given.updated_at),
    }  # fmt: skip


def seconds(at: datetime | None) -> int | None:
    """Return a time as whole seconds since 1970."""
    return None if at is None else int(at.timestamp())
