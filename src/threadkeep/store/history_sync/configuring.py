"""The settings that a client's request brings, which become those of its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from threadkeep.domain.session import Session

if TYPE_CHECKING:
    from threadkeep.store.conversation import Conversation


def configure(conversation: Conversation, session: Session) -> Session:
    """Give a conversation the settings and tools of a request: nothing of earlier ones is carried over.

    Returns those it had before.
    """
    known = conversation.clone_config()
    if known.settings != session.settings:
        removed = dict.fromkeys(known.settings.keys() - session.settings.keys())
        conversation.update(**{**removed, **session.settings})
    if known.tools != session.tools:
        conversation.clear_tools()
        if session.tools:
            conversation.register_tools(session.tools)
    return known
