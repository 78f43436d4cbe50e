"""The objects and lists of OpenAI's API."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from threadkeep.domain import ids, items, stored
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical import entries, view
from threadkeep.server.owners import shown_name
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation

# value of `include` -> the type of the items, or of their parts, and the key that it asks for
INCLUDED: Final = {
    "file_search_call.results": ("file_search_call", "results"),
    "web_search_call.results": ("web_search_call", "results"),
    "code_interpreter_call.outputs": ("code_interpreter_call", "outputs"),
    "reasoning.encrypted_content": ("reasoning", "encrypted_content"),
    "message.output_text.logprobs": ("output_text", "logprobs"),
}


def conversation_object(
    conversation: AsyncConversation | Conversation | stored.ConversationSummary, *, is_whole: bool = True
) -> JsonObject:
    """Return a conversation as OpenAI's clients read it, with what threadkeep knows besides.

    What users wrote is left out unless it `is_whole`.
    """
    hidden: JsonObject = {} if is_whole else {"metadata": {}, "title": None, "labels": {}, "external_id": None}
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at.timestamp()),
        "metadata": dict(conversation.properties),
        "title": conversation.title,
        "labels": dict(conversation.labels),
        "external_id": shown_name(conversation.external_id, conversation.user_id),
        "user_id": conversation.user_id,
        "status": conversation.status,
        **hidden,
    }


def summary_object(summary: stored.ConversationSummary) -> JsonObject:
    """Return a conversation as lists have it."""
    return {
        **conversation_object(summary),
        "last_activity_at": int(summary.last_activity_at.timestamp()),
        "preview": summary.preview,
        "item_count": summary.item_count,
        "is_unread": summary.is_unread,
    }


def item_object(item: stored.StoredItem, masked: Collection[str] = ()) -> JsonObject:
    """Return an item as OpenAI's clients validate it, without the parts whose values of `include` are masked."""
    return without_masked(item.canonical(), masked)


def partial_item(item: items.Item, conversation_id: str, position: int, masked: Collection[str] = ()) -> JsonObject:
    """Return an item of an answer in progress as `item_object` does once it is stored at that position."""
    given = item.to_object()
    id_ = ids.own_id(given) or ids.derived_id(item.type, conversation_id, position)
    return without_masked(view.canonical_item(entries.entry_of(given, position=-1), id_), masked)


def without_masked(found: JsonObject, masked: Collection[str]) -> JsonObject:
    """Return an item without the parts whose values of `include` are masked."""
    for name in masked:
        kind, key = INCLUDED[name]
        for holder in (found, *_parts(found)):
            if holder.get("type") == kind:
                holder.pop(key, None)
    return found


def _parts(item: JsonObject) -> list[JsonObject]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
