"""The settings that a request brings, which become those of its conversation."""

from __future__ import annotations

from threadkeep.domain.session import Session
from threadkeep.store.aio import AsyncConversation


async def configure(conversation: AsyncConversation, session: Session) -> None:
    """Give a conversation the settings and tools of a request: nothing of earlier ones is carried over."""
    known = await conversation.clone_config()
    if known.settings != session.settings:
        removed = dict.fromkeys(known.settings.keys() - session.settings.keys())
        await conversation.update(**{**removed, **session.settings})
    if known.tools != session.tools:
        await conversation.clear_tools()
        if session.tools:
            await conversation.register_tools(session.tools)
