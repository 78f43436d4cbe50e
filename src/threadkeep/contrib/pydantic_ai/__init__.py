"""Conversations of Pydantic AI in threadkeep: `ThreadkeepConversationStore`, and any conversation as message history.

Needs the extra ``pydantic-ai``.
"""

from threadkeep.errors import MissingExtra

try:
    import pydantic_ai  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtra("pydantic-ai", "threadkeep.contrib.pydantic_ai") from error

from threadkeep.contrib.pydantic_ai.store import ThreadkeepConversationStore as ThreadkeepConversationStore
from threadkeep.contrib.pydantic_ai.store import message_history as message_history

__all__ = ["ThreadkeepConversationStore", "message_history"]
