"""The objects and lists of OpenAI's API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.item_ids import derived_id, place_of
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import ConversationSummary, Page, StoredItem
from threadkeep.http.pages import Listed, listed
from threadkeep.http.requests import PageQuery
from threadkeep.store.aio import AsyncConversation, on_conversation
from threadkeep.store.conversation import Conversation
from threadkeep.store.item_lookup import first_position, repeated_at
from threadkeep.store.overviews import handle_of
from threadkeep.web.names import shown_name

# value of `include` -> the type of the items, or of their parts, and the key that it asks for
INCLUDED: Final = {
    "file_search_call.results": ("file_search_call", "results"),
    "web_search_call.results": ("web_search_call", "results"),
    "code_interpreter_call.outputs": ("code_interpreter_call", "outputs"),
    "reasoning.encrypted_content": ("reasoning", "encrypted_content"),
    "message.output_text.logprobs": ("output_text", "logprobs"),
}


def conversation_object(conversation: AsyncConversation | ConversationSummary, *, is_whole: bool = True) -> JsonObject:
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


def summary_object(summary: ConversationSummary) -> JsonObject:
    """Return a conversation as lists have it."""
    return {
        **conversation_object(summary),
        "last_activity_at": int(summary.last_activity_at.timestamp()),
        "preview": summary.preview,
        "item_count": summary.item_count,
    }


async def listed_items(
    page: PageQuery,
    conversation: AsyncConversation,
    read: Callable[[str | None, int], Awaitable[Page[StoredItem]]],
    shown: Callable[[StoredItem], JsonObject],
) -> Listed:
    """Return a page of items, as `listed` does, each with an id that no other one has."""
    if page.after is not None:
        page = page._replace(after=str(await position_in(conversation, page.after)))

    async def read_with_ids(after: str | None, limit: int) -> Page[StoredItem]:
        items = await read(after, limit)
        return Page(await with_unique_ids(conversation, items), items.next)

    return await listed(page, read_with_ids, shown)


async def position_in(conversation: AsyncConversation, item_id: str) -> int:
    """Return the position of an item by its id; where several have it, of the first one, which is shown with it."""
    return await on_conversation(conversation, _first_position, item_id)


async def with_unique_ids(conversation: AsyncConversation, items: Iterable[StoredItem]) -> list[StoredItem]:
    """Return items of which those with the id of an earlier one have an id made of their position instead."""
    found = list(items)
    ids = {item.position: item.id for item in found if place_of(item.id) is None}
    repeated = await on_conversation(conversation, _repeated_at, ids) if ids else set()
    return [_with_derived_id(item) if item.position in repeated else item for item in found]


def _with_derived_id(item: StoredItem) -> StoredItem:
    return replace(item, id=derived_id(str(item.to_object()["type"]), str(item.conversation_id), item.position))


def _first_position(conversation: Conversation, item_id: str) -> int:
    return first_position(handle_of(conversation), item_id)


def _repeated_at(conversation: Conversation, ids: Mapping[int, str]) -> set[int]:
    return repeated_at(handle_of(conversation), ids)


def item_object(item: StoredItem, masked: Collection[str] = ()) -> JsonObject:
    """Return an item as OpenAI's clients validate it, without the parts whose values of `include` are masked."""
    found = item.canonical()
    for name in masked:
        kind, key = INCLUDED[name]
        for holder in (found, *_parts(found)):
            if holder.get("type") == kind:
                holder.pop(key, None)
    return found


def _parts(item: JsonObject) -> list[JsonObject]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def list_object(data: Sequence[Mapping[str, Any]], *, has_more: bool) -> JsonObject:
    """Return a page of objects with ids, which clients continue after its last one."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0].get("id", "") if data else "",
        "last_id": data[-1].get("id", "") if data else "",
        "has_more": has_more,
    }
