"""Items, the media that was taken out of them, and their text for the search."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Index, Integer, SmallInteger, Table, UniqueConstraint, text
from sqlalchemy.schema import SchemaItem

from threadkeep.db.base import (
    column,
    generated,
    key,
    optional,
    optioned_index,
    partial_index,
    references,
    table,
    to_conversation,
)
from threadkeep.db.types import BigBinary, BigText, EscapedText, Hash, Identifier, UtcDateTime, Words

# Items that a request may need from before the part of the history that it shows
MARKS: Final = "type = 'message' AND role IN ('system', 'developer') OR type IN ('compaction', 'compaction_undone')"

# The columns that requests are rendered with, in one text: to return one value takes a database, and its driver, a
# fraction of the time of eight. The first number is 0 for an item that is nothing but a plain payload, with 4 for a
# call id in which something is escaped. NULL is a backslash, which is none of their values: those are escaped.
_PACKED: Final = {
    "sqlite": (
        r"printf('%d %s %s %s %s %s %s %d %s', "
        r"codec * 8 + coalesce(instr(call_id, '\') > 0, 0) * 4 + (payload IS NULL) * 2 + (rest IS NOT NULL), type, "
        r"coalesce(role, '\'), coalesce(origin, '\'), coalesce(maker, '\'), coalesce(turn, '\'), coalesce(seen, '\'), "
        r"position, coalesce(call_id, '\'))"
    ),
    "postgresql": (
        r"(codec * 8 + CASE WHEN strpos(call_id, '\'::text) > 0 THEN 4 ELSE 0 END "
        r"+ CASE WHEN payload IS NULL THEN 2 ELSE 0 END + CASE WHEN rest IS NULL THEN 0 ELSE 1 END)::text "
        r"|| ' '::text || type::text || ' '::text || COALESCE(role, '\'::character varying)::text || ' '::text "
        r"|| COALESCE(origin, '\'::character varying)::text || ' '::text "
        r"|| COALESCE(maker, '\'::character varying)::text || ' '::text || COALESCE(turn::text, '\'::text) "
        r"|| ' '::text || COALESCE(seen::text, '\'::text) || ' '::text || position::text || ' '::text "
        r"|| COALESCE(call_id, '\'::text)"
    ),
    "mysql": "NULL",  # where it is not read
}

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
    optional("maker", Identifier),  # who gave it, and so may get back what only its maker can read
    generated("packed", BigText, **_PACKED),
    optional("payload", BigText),
    optional("rest", BigText),
    optional("given", BigText),  # JSON overlay: what the application gave, where it is not what is read back
    column("codec", SmallInteger),
    column("created_at", UtcDateTime),
    to_conversation(),
    partial_index("call", "call_hash IS NOT NULL", "tenant_id", "call_hash"),
    partial_index("item", "item_hash IS NOT NULL", "tenant_id", "item_hash", "conversation_id", "position"),
    partial_index("marks", MARKS, "tenant_id", "conversation_id", "type", "role"),
)

# Base64 media of items, decoded, and what was uploaded, once per content.
blobs: Final = table(
    "blobs",
    key("hash", Hash(32)),
    optional("content", BigBinary),  # NULL when it is kept elsewhere
    optional("location", Identifier),  # the name under which it is kept elsewhere
    optional("media_type", Identifier),  # as was said when it was first stored
    column("size", BigInteger),  # in bytes
    column("created_at", UtcDateTime),
    references("tenants", tenant_id="id"),
)

# Media that users have uploaded, and may refer to for some time.
uploads: Final = table(
    "uploads",
    key("hash", Hash(32)),
    key("user_id", Identifier),  # '' for nobody in particular
    optional("media_type", Identifier),  # as this user said
    column("expires_at", UtcDateTime),
    references("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash"),
    # The condition that all rows meet keeps PostgreSQL from looking up media there, among all uploads of the tenant.
    optioned_index("expires_at", "tenant_id", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    Index("user", "user_id", "tenant_id", "hash"),
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


def _of_item(name: str, *parts: SchemaItem) -> Table:
    """A table of what belongs to an item and goes with it."""
    to_item = references("items", tenant_id="tenant_id", conversation_id="conversation_id", position="position")
    return table(name, key("conversation_id"), key("position"), *parts, to_item)


# The application's own labels of an item; never sent to a provider.
item_labels: Final = _of_item(
    "item_labels",
    key("key", Identifier),
    column("value", Identifier),
    Index("value", "tenant_id", "key", "value", "conversation_id", "position"),
)

# What a user thinks of an item.
item_feedback: Final = _of_item(
    "item_feedback",
    key("user_id", Identifier),  # '' for nobody in particular
    optional("rating", Integer),
    optional("comment", BigText),
    column("updated_at", UtcDateTime),
    Index("user_id", "tenant_id", "user_id"),
    Index("rating", "tenant_id", "rating", "conversation_id", "position"),
)

# Whether a function call may run.
approvals: Final = _of_item(
    "approvals",
    column("decision", Identifier),  # approved or denied
    optional("reason", BigText),
    optional("decided_by", Identifier),
    column("created_at", UtcDateTime),
    Index("decided_by", "tenant_id", "decided_by"),
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
    optional("scope", Identifier),  # SQLite: a word of the user under which it is in the index
    to_conversation(),
    UniqueConstraint("tenant_id", "conversation_id", "position", name="position"),
    # GIN or FULLTEXT; SQLite has a table of its own instead, and this index is empty there
    optioned_index("words", "words", postgresql_using="gin", sqlite_where=text("0"), **_FULLTEXT),
)
