"""Tenants; conversations, their options, tools, labels and branches; what providers keep of them in explicit caches."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Index, Integer, SmallInteger, Table, UniqueConstraint

from threadkeep.db.base import (
    METADATA,
    PREFIX,
    column,
    indexes_of_options,
    key,
    optional,
    partial_index,
    references,
    table,
    to_conversation,
)
from threadkeep.db.types import BigText, EscapedText, Hash, Identifier, UtcDateTime

# A customer of the application; the first part of every other key.
tenants: Final = Table(
    f"{PREFIX}tenants",
    METADATA,
    key("id"),
    column("name", Identifier),
    column("created_at", UtcDateTime),
    UniqueConstraint("name", name="name"),
)

# Session options (model, instructions, settings, extra) as one JSON text, once per content.
configs: Final = table(
    "configs",
    key("hash", Hash(32)),
    column("config", BigText),
    column("created_at", UtcDateTime),
    references("tenants", tenant_id="id"),
)

# A conversation, its counters and what it points at.
#
# Every append, response and fork starts by one UPDATE of this row: it takes the numbers and serialises the writers.
#
# Like other tables that foreign keys refer to, it has no index beside its primary key that begins with the tenant and
# that PostgreSQL could look all rows up in: it would do so while it has no statistics, and read all of the tenant's.
conversations: Final = table(
    "conversations",
    key("id"),
    column("public_id", Hash(16)),
    optional("external_id", Identifier),
    optional("user_id", Identifier),
    optional("title", BigText),
    optional("labels", BigText),  # JSON object; the rows of conversation_labels are its index
    optional("properties", BigText),  # JSON object of the application's metadata, for which there is no index
    column("status", Identifier),
    column("config_hash", Hash(32)),
    optional("tool_set_hash", Hash(32)),
    column("active_branch", Integer),
    column("next_position", BigInteger),  # counts items over all branches
    column("next_response", Integer),
    column("next_branch", Integer),
    column("head_position", BigInteger),  # where branch 0 ends, -1 when empty; other branches have their own rows
    optional("lineage", BigText),  # of branch 0, as in branches; NULL while nothing was removed from it
    column("revision", Integer),  # grows with every change that is not an append
    column("created_at", UtcDateTime),
    column("last_activity_at", UtcDateTime),
    optional("streams", Integer),  # how many responses are in progress, on all branches; NULL for none
    optional("search_from", BigInteger),  # first position that is not indexed; NULL when all are
    optional("creation_key", Identifier),  # the idempotency key of the tenant under which it was created
    references("tenants", tenant_id="id"),
    references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
    references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
    UniqueConstraint("public_id", "tenant_id", name="public_id"),
    partial_index("external_id", "external_id IS NOT NULL", "tenant_id", "external_id", unique=True),
    Index("activity", "status", "tenant_id", "last_activity_at", "id"),
    Index("user_activity", "user_id", "tenant_id", "status", "last_activity_at", "id"),
    partial_index("search", "search_from IS NOT NULL", "tenant_id", "search_from", "id"),
    *indexes_of_options(),
)

# The application's own labels; never sent to a provider.
conversation_labels: Final = table(
    "conversation_labels",
    key("conversation_id"),
    key("key", Identifier),
    column("value", Identifier),
    to_conversation(),
    Index("value", "tenant_id", "key", "value", "conversation_id"),
)

# Small named values that an application keeps beside a conversation, such as the state of an agent's run.
conversation_states: Final = table(
    "conversation_states",
    key("conversation_id"),
    key("name", Identifier),
    column("version", Integer),  # grows with every write; whoever read an older one can be refused
    optional("value", BigText),  # JSON; NULL when it was deleted: its versions go on
    column("updated_at", UtcDateTime),
    to_conversation(),
)

# How far a user has read a conversation.
conversation_reads: Final = table(
    "conversation_reads",
    key("conversation_id"),
    key("user_id", Identifier),
    column("position", BigInteger),  # of the last item that was seen, -1 for none
    column("seen_at", UtcDateTime),
    to_conversation(),
    Index("user_id", "tenant_id", "user_id"),
)

# A branch that was forked off; branch 0 is the conversation itself and has no row.
branches: Final = table(
    "branches",
    key("conversation_id"),
    key("number", Integer),
    column("parent", Integer),
    column("fork_position", BigInteger),
    column("from_position", BigInteger),  # its own items begin there or later: the conversation's next when it was made
    column("head_position", BigInteger),
    # JSON [[branch, last position], …] of what comes before this branch's own items; branch -1 stands for what was
    # removed
    column("lineage", BigText),
    column("created_at", UtcDateTime),
    to_conversation(),
)

# A tool as JSON text.
tool_definitions: Final = table(
    "tool_definitions",
    key("hash", Hash(32)),
    column("type", Identifier),
    optional("name", Identifier),
    column("definition", BigText),
    column("created_at", UtcDateTime),
    optional("unused_at", UtcDateTime),  # when no tool set seemed to name it: it is about to be removed
    references("tenants", tenant_id="id"),
)

# An ordered list of tools: a JSON array of the hashes of their definitions, in hexadecimal.
tool_sets: Final = table(
    "tool_sets",
    key("hash", Hash(32)),
    column("definitions", BigText),
    column("created_at", UtcDateTime),
    references("tenants", tenant_id="id"),
)

# A cache of the beginning of a request, for all conversations that begin so.
#
# Without a name it is being created, until `claim_until`; with one it is valid until `expires_at`. It is deleted with
# the conversation that created it.
context_caches: Final = table(
    "context_caches",
    key("account", Identifier),  # at the provider, in the application's words; '' when it has one
    key("model", Identifier),
    key("hash", Hash(32)),  # of the system text, the tools and the turns that it holds
    column("conversation_id", BigInteger),  # that created it
    column("branch", Integer),
    column("turns", Integer),  # how many turns of the request it holds
    column("answer", Integer),  # number of the newest response when it was claimed, -1 for none
    column("token", Hash(16)),  # of the claim: only its holder may complete it
    optional("claim_until", UtcDateTime),  # from then on another process may create it; NULL when it exists
    optional("name", EscapedText),
    optional("expires_at", UtcDateTime),
    column("is_shared", SmallInteger),  # 1: another conversation or branch uses it, too
    column("created_at", UtcDateTime),
    to_conversation(),
    Index("conversation_id", "tenant_id", "conversation_id"),
)
