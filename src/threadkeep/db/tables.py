"""The tables: one place that says what is stored.

A `key` column is a part of the primary key, a `column` takes no NULL, an `optional` one does. All keys begin with
`tenant_id`, except that of `tenants`.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Date, Index, Integer, MetaData, SmallInteger, Table, UniqueConstraint, text
from sqlalchemy.schema import SchemaItem

from threadkeep.db.base import NAMING, PREFIX, column, key, optional, partial_index, references, to_conversation
from threadkeep.db.types import BigBinary, BigText, EscapedText, Hash, Identifier, UtcDateTime, Words

METADATA: Final = MetaData(naming_convention=NAMING)


def table(name: str, *parts: SchemaItem) -> Table:
    """A table of what belongs to a tenant: its other columns, then its constraints and indexes."""
    return Table(PREFIX + name, METADATA, key("tenant_id"), *parts)


# Tenants; conversations, their options, tools, labels and branches; what providers keep of them in explicit caches

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
conversations: Final = table(
    "conversations",
    key("id"),
    column("public_id", Hash(16)),
    optional("external_id", Identifier),
    optional("user_id", Identifier),
    optional("title", BigText),
    optional("labels", BigText),  # JSON object; the rows of conversation_labels are its index
    column("status", Identifier),
    column("config_hash", Hash(32)),
    optional("tool_set_hash", Hash(32)),
    column("active_branch", Integer),
    column("next_position", BigInteger),  # counts items over all branches
    column("next_response", Integer),
    column("next_branch", Integer),
    column("head_position", BigInteger),  # where branch 0 ends, -1 when empty; other branches have their own rows
    column("revision", Integer),  # grows with every change that is not an append
    column("created_at", UtcDateTime),
    column("last_activity_at", UtcDateTime),
    optional("streams", Integer),  # how many responses are in progress, on all branches; NULL for none
    optional("search_from", BigInteger),  # first position that is not indexed; NULL when all are
    references("tenants", tenant_id="id"),
    references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
    references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
    UniqueConstraint("tenant_id", "public_id", name="public_id"),
    UniqueConstraint("tenant_id", "external_id", name="external_id"),
    Index("activity", "tenant_id", "status", "last_activity_at", "id"),
    Index("user_activity", "tenant_id", "user_id", "status", "last_activity_at", "id"),
    partial_index("search", "search_from IS NOT NULL", "tenant_id", "search_from", "id"),
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

# A branch that was forked off; branch 0 is the conversation itself and has no row.
branches: Final = table(
    "branches",
    key("conversation_id"),
    key("number", Integer),
    column("parent", Integer),
    column("fork_position", BigInteger),
    column("head_position", BigInteger),
    column("lineage", BigText),  # JSON [[branch, last position], …] of what comes before this branch's own items
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


# Items, the media that was taken out of them, and their text for the search

# One item: the JSON text that Open Responses sends, and columns for SQL users.
items: Final = table(
    "items",
    key("conversation_id"),
    key("position"),  # place in the conversation, from 0; the order of items, never a clock
    column("branch", Integer),
    optional("turn", BigInteger),  # first position of the wire message or response it came in
    optional("seen", BigInteger),  # on output of a response: last position that its request showed
    optional("item_id", EscapedText),
    optional("item_hash", Hash(16)),
    optional("call_id", EscapedText),
    optional("call_hash", Hash(16)),
    column("type", Identifier),
    optional("role", Identifier),
    optional("status", Identifier),
    optional("name", Identifier),
    optional("author_id", Identifier),
    optional("origin", Identifier),  # the wire format it came in
    optional("model", Identifier),  # the model that produced it
    optional("payload", BigText),
    optional("rest", BigText),
    column("codec", SmallInteger),
    column("created_at", UtcDateTime),
    to_conversation(),
    partial_index("call", "call_hash IS NOT NULL", "tenant_id", "call_hash"),
    partial_index("item", "item_hash IS NOT NULL", "tenant_id", "item_hash"),
)

# Base64 media of a conversation's items, decoded, once per content.
blobs: Final = table(
    "blobs",
    key("hash", Hash(32)),
    column("content", BigBinary),
    column("created_at", UtcDateTime),
    references("tenants", tenant_id="id"),
)

# Where in an item's text a blob belongs, in bytes from the start of the text as stored.
item_blobs: Final = table(
    "item_blobs",
    key("conversation_id"),
    key("position"),
    key("part", SmallInteger),  # 0: payload, 1: rest
    key("ordinal", SmallInteger),  # two may share an offset
    column("splice_at", BigInteger),
    column("hash", Hash(32)),
    references("items", tenant_id="tenant_id", conversation_id="conversation_id", position="position"),
    references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
    Index("hash", "tenant_id", "hash"),
)

_FULLTEXT: Final[dict[str, Any]] = {"mysql_prefix": "FULLTEXT", "mariadb_prefix": "FULLTEXT"}

# The text of an item, or a conversation's title at position -1.
search_documents: Final = table(
    "search_documents",
    key("id"),
    column("conversation_id", BigInteger),
    column("position", BigInteger),
    column("branch", Integer),
    column("type", Identifier),
    optional("role", Identifier),
    column("created_at", UtcDateTime),  # of the item
    column("text", BigText),
    optional("words", Words),  # SQLite: only where they are not those of the text
    to_conversation(),
    UniqueConstraint("tenant_id", "conversation_id", "position", name="position"),
    # GIN or FULLTEXT; SQLite has a table of its own instead, and this index is empty there
    Index("words", "words", postgresql_using="gin", sqlite_where=text("0"), **_FULLTEXT),
)


# Responses, their raw bodies, the parts of those in progress, and what was appended under which idempotency key

# A provider's response: a range of items, and what the request showed.
#
# While it is being streamed it has no items; `open_branch` is its branch then, and a branch has one at a time.
responses: Final = table(
    "responses",
    key("conversation_id"),
    key("number", Integer),
    optional("provider_response_id", EscapedText),
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
    to_conversation(),
    references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
    references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
    Index("open_branch", "tenant_id", "conversation_id", "open_branch", unique=True),
)

# A piece of a response in progress, append-only; deleted when its items are written.
stream_parts: Final = table(
    "stream_parts",
    key("conversation_id"),
    key("number", Integer),
    key("part", Integer),
    column("content", BigText),  # part 0: the recorder's arguments, an object; then pieces of the events, JSON lines
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


# The usage ledger, and its sums of days

_KEYS: Final = ("model", "provider", "format", "status")
_FIGURES: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms",
)  # fmt: skip

# One provider attempt and its figures, which never change. It outlives its conversation: no foreign key to it.
#
# Nor one to the tenant: PostgreSQL would lock the tenant's row for each of them, and all who append would meet there.
#
# Reports read nothing but the indexes: these hold all that is summed, and what it is summed by.
usage_records: Final = table(
    "usage_records",
    key("id"),
    column("day", Date),  # of occurred_at, in UTC
    column("occurred_at", UtcDateTime),
    optional("user_id", Identifier),
    column("conversation_id", BigInteger),
    optional("response", Integer),  # None: the attempt gave no response
    optional("tool_set_hash", Hash(32)),
    optional("provider", Identifier),
    optional("model", Identifier),
    column("format", Identifier),
    optional("status", Identifier),
    optional("latency_ms", BigInteger),
    optional("input_tokens", BigInteger),  # all input, cached and cache-writing included
    optional("cached_tokens", BigInteger),
    optional("cache_write_tokens", BigInteger),
    optional("output_tokens", BigInteger),  # all output, reasoning included
    optional("reasoning_tokens", BigInteger),
    optional("total_tokens", BigInteger),
    optional("cost_nano", BigInteger),  # nano-USD
    optional("usage", BigText),  # the provider's own usage object, JSON
    optional("error", BigText),  # the provider's error, JSON
    optional("price", BigText),  # where cost_nano is from, and the prices it was computed with, JSON
    Index("by_day", "tenant_id", "day", *_KEYS, "user_id", "conversation_id", *_FIGURES),
    Index("by_user", "tenant_id", "user_id", "day", *_KEYS, *_FIGURES),
    Index("by_conversation", "tenant_id", "conversation_id", "response", "day", "model", *_FIGURES),
)

# A UTC day. Its row is locked by whoever fills it, and by writers who come after its end.
usage_days: Final = table(
    "usage_days",
    key("day", Date),
    optional("filled_at", UtcDateTime),  # None: its sums are not to be read
    references("tenants", tenant_id="id"),
)


def _sums_of_day(name: str, *common: Column[Any]) -> Table:
    """Sums over the attempts of a day that have something in common; a figure is NULL where no attempt reported it."""
    return table(
        name,
        key("day", Date),
        key("number", Integer),
        *common,
        column("attempts", BigInteger),
        *[optional(figure, BigInteger) for figure in _FIGURES],
        optional("cache_known_tokens", BigInteger),  # input of the attempts that say what came from the cache
        column("costs", BigInteger),  # attempts whose cost is known
        column("latencies", BigInteger),  # attempts whose latency is known
        references("usage_days", tenant_id="tenant_id", day="day"),  # a day that is gone takes its sums along
    )


# Sums over the attempts of a filled day that have provider, model, format and status in common.
usage_daily: Final = _sums_of_day(
    "usage_daily",
    optional("provider", Identifier),
    optional("model", Identifier),
    column("format", Identifier),
    optional("status", Identifier),
)

# Sums over the attempts of a filled day that have the model in common, so that most reports add nothing up.
usage_daily_models: Final = _sums_of_day("usage_daily_models", optional("model", Identifier))
