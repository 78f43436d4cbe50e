"""Statements on stored responses: one of them, by number or by the provider's id."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import Select, and_, bindparam, select

from threadkeep.db.queries.conversations import of_conversation, of_tenant, visible
from threadkeep.db.queries.streams import is_lost
from threadkeep.db.tables import conversations, responses

# The columns of a StoredResponse; what it was rendered with comes with them, and whether its recorder is gone
STORED: Final = (
    "number", "branch", "format", "model", "status", "finish_reason", "provider_response_id", "input_to",
    "from_position", "to_position", "view", "created_at", "error",
)  # fmt: skip
_EXISTS: Final = responses.c.deleted_at.is_(None)
LISTED: Final = (*(responses.c[name] for name in STORED), is_lost().label("is_lost"))
_COLUMNS: Final = (*LISTED, *(responses.c[name] for name in ("conversation_id", "config_hash", "tool_set_hash")))


@cache
def response_at() -> Select[Any]:
    """A response of a conversation by its number."""
    return select(*_COLUMNS).where(*of_conversation(responses, number="number"), _EXISTS)


@cache
def response_with_id() -> Select[Any]:
    """The newest response of a conversation with the provider's id of this hash."""
    found = select(*_COLUMNS).where(*of_conversation(responses, response_hash="hash"), _EXISTS)
    return found.order_by(responses.c.number.desc()).limit(1)


@cache
def newest_with_id(*, scoped: bool) -> Select[Any]:
    """The same in all conversations that are visible, that of the newest one; with the conversation's public id."""
    table, talks = responses.c, conversations.c
    joined = responses.join(conversations, and_(talks.tenant_id == table.tenant_id, talks.id == table.conversation_id))
    where = [*of_tenant(responses, response_hash="hash"), *visible(scoped=scoped), _EXISTS]
    found = select(*_COLUMNS, talks.public_id).select_from(joined).where(*where)
    return found.order_by(table.conversation_id.desc(), table.number.desc()).limit(1)


@cache
def response_page() -> Select[Any]:
    """A page of the responses of a conversation, oldest first."""
    table = responses.c
    found = select(*LISTED).where(*of_conversation(responses), _EXISTS, table.number > bindparam("after"))
    return found.order_by(table.number).limit(bindparam("limit"))
