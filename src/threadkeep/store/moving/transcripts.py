"""Conversations as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from threadkeep.domain.markdown import markdown_of
from threadkeep.domain.stored import StoredItem
from threadkeep.store.handle import Handle
from threadkeep.store.item_reading import list_all_items


def to_markdown(handle: Handle) -> str:
    """See `Conversation.to_markdown`."""
    return with_facts(handle, list_all_items(handle))


def with_facts(handle: Handle, items: Iterable[StoredItem]) -> str:
    """Items of a conversation as Markdown, below what is known of it. Does not query the database."""
    conversation = handle.conversation
    row, settings = conversation.row, conversation.settings
    facts = {
        "conversation": handle.ref.public_id,
        "user": row.user_id,
        "model": settings.get("model"),
        "created": row.created_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "branch": str(conversation.branch) if conversation.branch else None,
        "instructions": settings.get("instructions"),
    }
    shown = [(name, str(value)) for name, value in facts.items() if value is not None]
    return markdown_of(row.title or "Conversation", shown, items)
