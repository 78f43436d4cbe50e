"""Responses, their raw bodies, the parts of those in progress, and what was appended under which idempotency key."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Integer, SmallInteger

from threadkeep.db.base import (
    column,
    indexes_of_options,
    key,
    made_by,
    optional,
    partial_index,
    references,
    table,
    to_conversation,
)
from threadkeep.db.change_keys import change_key, transaction_number
from threadkeep.db.types import BigBinary, BigText, EscapedText, Hash, Identifier, UtcDateTime

# A provider's response: a range of items, and what the request showed.
#
# While it is being streamed it has no items; `open_branch` is its branch then, and a branch has one at a time.
responses: Final = table(
    "responses",
    key("conversation_id"),
    key("number", Integer),
    optional("provider_response_id", EscapedText),
    optional("response_hash", Hash(16)),  # of provider_response_id
    column("branch", Integer),
    column("input_to", BigInteger),  # last position that the request showed, -1 for none
    column("from_position", BigInteger),
    column("to_position", BigInteger),  # less than from_position if the response had no items
    optional("view", BigText),  # JSON: format and render options of the request
    column("config_hash", Hash(32)),
    optional("tool_set_hash", Hash(32)),
    column("format", Identifier),
    optional("model", EscapedText),
    optional("status", Identifier),
    optional("finish_reason", EscapedText),
    optional("incomplete_details", BigText),
    optional("error", BigText),
    optional("provider_data", BigText),
    column("created_at", UtcDateTime),
    optional("completed_at", UtcDateTime),
    optional("lease_until", UtcDateTime),  # from then on another writer may end a response in progress
    optional("lease_token", Hash(16)),  # who may write to a response in progress
    optional("open_branch", Integer),  # the branch of a response in progress, NULL for those that have ended
    optional("cancel_requested_at", UtcDateTime),  # when somebody asked the recorder of a response in progress to stop
    optional("deleted_at", UtcDateTime),  # from then on it cannot be found; its items stay in the conversation
    to_conversation(),
    references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
    references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
    partial_index("open_branch", "open_branch IS NOT NULL", "tenant_id", "conversation_id", "open_branch", unique=True),
    partial_index("response", "response_hash IS NOT NULL", "tenant_id", "response_hash", "conversation_id", "number"),
    *indexes_of_options(),
)

# A piece of a response in progress, append-only; deleted when its items are written.
stream_parts: Final = table(
    "stream_parts",
    key("conversation_id"),
    key("number", Integer),
    key("part", Integer),
    column("content", BigText),  # part 0: the recorder's arguments, an object; then pieces of the events, JSON lines
    optional("first_token_ms", BigInteger),  # the time to the first token, once that has come
    column("created_at", UtcDateTime),
    references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
)

# The provider's body as received; expires on its own.
response_bodies: Final = table(
    "response_bodies",
    key("conversation_id"),
    key("number", Integer),
    column("codec", SmallInteger),  # 0: as received, 1: zlib
    column("body", BigBinary),
    column("created_at", UtcDateTime),
    references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
)

# What was done under an idempotency key. Conversation 0 stands for the tenant: no foreign key to conversations.
appends: Final = table(
    "appends",
    key("conversation_id"),
    key("key", Identifier),
    column("request_hash", Hash(32)),
    column("outcome", BigText),  # JSON: what was created (positions, response, branch, ledger row), or which error
    column("created_at", UtcDateTime),
    references("tenants", tenant_id="id"),
)

# What happened to conversations, in the order of `id`: the change feed. It outlives them: no foreign key.
#
# Row 0 is no change: it says up to which `id` (to_position), and which transaction, changes were removed.
changes: Final = table(
    "changes",
    made_by(change_key, "serial", "of_tenant", column=key("id")),
    column("conversation_id", BigInteger),
    column("public_id", Hash(16)),
    column("kind", Identifier),  # appended, changed or deleted
    optional("branch", Integer),  # these three of what was appended
    optional("from_position", BigInteger),
    optional("to_position", BigInteger),
    made_by(transaction_number, column=optional("transaction_id", BigInteger)),  # PostgreSQL: which one wrote it
    column("created_at", UtcDateTime),
    partial_index("transaction", "transaction_id IS NOT NULL", "tenant_id", "transaction_id"),
)
