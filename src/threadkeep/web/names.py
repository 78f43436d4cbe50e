"""Names that applications give: those of a key of one user are that user's, so that nobody learns those of others."""

from __future__ import annotations

from typing import Final

from threadkeep.store.aio import AsyncConversation, AsyncStore
from threadkeep.store.history_sync.finding import short_digest

_DIGITS: Final = 16  # of the digest of a user, which ends its names


def own_name(name: str, user_id: str | None) -> str:
    """Return the `external_id` under which a conversation is stored: with a user, one of that user alone."""
    return name if user_id is None or not name else f"{name}{_end(user_id)}"


def shown_name(name: str | None, user_id: str | None) -> str | None:
    """Return an `external_id` as the application of its user knows it."""
    return name if name is None or user_id is None else name.removesuffix(_end(user_id))


def own_key(key: str | None, user_id: str | None) -> str | None:
    """Return the idempotency key of what is created: with a user, one of that user alone."""
    return key if user_id is None or not key else short_digest(f"{user_id}\0{key}")


async def find_named(store: AsyncStore, name: str, user_id: str | None) -> AsyncConversation | None:
    """Return the conversation of a user (None: of any) with an `external_id`, whoever gave it; or None."""
    found = await store.find_conversation(external_id=name)
    if found is None and user_id is not None:
        found = await store.find_conversation(external_id=own_name(name, user_id))
    return found


def _end(user_id: str) -> str:
    return f"@{short_digest(user_id)[:_DIGITS]}"
