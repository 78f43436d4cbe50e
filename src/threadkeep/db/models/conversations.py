"""Tenants; conversations, their options, tools, labels and branches; what providers keep of them in explicit caches."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db import base
from threadkeep.db.types import EscapedText


class TenantRow(base.Base):
    """A customer of the application; the first part of every other key."""

    __tablename__ = "tenants"
    __table_args__ = (UniqueConstraint("name", name="name"),)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    name: Mapped[base.Name]
    created_at: Mapped[base.Moment]


class ConfigRow(base.Base):
    """Session options (model, instructions, settings, extra) as one JSON text, once per content."""

    __tablename__ = "configs"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    tenant_id: Mapped[base.Tenant]
    hash: Mapped[base.HashKey]
    config: Mapped[base.LongText]
    created_at: Mapped[base.Moment]


class ConversationRow(base.Base):
    """A conversation, its counters and what it points at.

    Every append, response and fork starts by one UPDATE of this row: it takes the numbers and serialises the writers.
    """

    __tablename__ = "conversations"
    __table_args__ = (
        base.references("tenants", tenant_id="id"),
        base.references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        base.references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        UniqueConstraint("tenant_id", "public_id", name="public_id"),
        UniqueConstraint("tenant_id", "external_id", name="external_id"),
        Index("activity", "tenant_id", "status", "last_activity_at", "id"),
        Index("user_activity", "tenant_id", "user_id", "status", "last_activity_at", "id"),
        base.partial_index("search", "search_from IS NOT NULL", "tenant_id", "search_from", "id"),
    )

    tenant_id: Mapped[base.Tenant]
    id: Mapped[base.Key]
    public_id: Mapped[base.ShortDigest]
    external_id: Mapped[base.Name | None]
    user_id: Mapped[base.Name | None]
    title: Mapped[base.LongText | None]
    labels: Mapped[base.LongText | None]  # JSON object; the rows of conversation_labels are its index
    status: Mapped[base.Name]
    config_hash: Mapped[base.Digest]
    tool_set_hash: Mapped[base.Digest | None]
    active_branch: Mapped[base.Count]
    next_position: Mapped[base.BigNumber]  # counts items over all branches
    next_response: Mapped[base.Count]
    next_branch: Mapped[base.Count]
    head_position: Mapped[base.BigNumber]  # where branch 0 ends, -1 when empty; other branches have their own rows
    revision: Mapped[base.Count]  # grows with every change that is not an append
    created_at: Mapped[base.Moment]
    last_activity_at: Mapped[base.Moment]
    streams: Mapped[base.Count | None]  # how many responses are in progress, on all branches; NULL for none
    search_from: Mapped[base.BigNumber | None]  # first position that is not indexed; NULL when all are


class ConversationLabelRow(base.Base):
    """The application's own labels; never sent to a provider."""

    __tablename__ = "conversation_labels"
    __table_args__ = (
        base.to_conversation(),
        Index("value", "tenant_id", "key", "value", "conversation_id"),
    )

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    key: Mapped[base.NameKey]
    value: Mapped[base.Name]


class BranchRow(base.Base):
    """A branch that was forked off; branch 0 is the conversation itself and has no row."""

    __tablename__ = "branches"
    __table_args__ = (base.to_conversation(),)

    tenant_id: Mapped[base.Tenant]
    conversation_id: Mapped[base.Key]
    number: Mapped[base.Number]
    parent: Mapped[base.Count]
    fork_position: Mapped[base.BigNumber]
    head_position: Mapped[base.BigNumber]
    lineage: Mapped[base.LongText]  # JSON [[branch, last position], …] of what comes before this branch's own items
    created_at: Mapped[base.Moment]


class ToolDefinitionRow(base.Base):
    """A tool as JSON text."""

    __tablename__ = "tool_definitions"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    tenant_id: Mapped[base.Tenant]
    hash: Mapped[base.HashKey]
    type: Mapped[base.Name]
    name: Mapped[base.Name | None]
    definition: Mapped[base.LongText]
    created_at: Mapped[base.Moment]


class ToolSetRow(base.Base):
    """An ordered list of tools: a JSON array of the hashes of their definitions, in hexadecimal."""

    __tablename__ = "tool_sets"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    tenant_id: Mapped[base.Tenant]
    hash: Mapped[base.HashKey]
    definitions: Mapped[base.LongText]
    created_at: Mapped[base.Moment]


class ContextCacheRow(base.Base):
    """A cache of the beginning of a request, for all conversations that begin so.

    Without a name it is being created, until `claim_until`; with one it is valid until `expires_at`. It is deleted with
    the conversation that created it.
    """

    __tablename__ = "context_caches"
    __table_args__ = (
        base.to_conversation(),
        Index("conversation_id", "tenant_id", "conversation_id"),
    )

    tenant_id: Mapped[base.Tenant]
    account: Mapped[base.NameKey]  # at the provider, in the application's words; '' when it has one
    model: Mapped[base.NameKey]
    hash: Mapped[base.HashKey]  # of the system text, the tools and the turns that it holds
    conversation_id: Mapped[base.BigNumber]  # that created it
    branch: Mapped[base.Count]
    turns: Mapped[base.Count]  # how many turns of the request it holds
    answer: Mapped[base.Count]  # number of the newest response when it was claimed, -1 for none
    token: Mapped[base.ShortDigest]  # of the claim: only its holder may complete it
    claim_until: Mapped[base.Moment | None]  # from then on another process may create it; NULL when it exists
    name: Mapped[str | None] = mapped_column(EscapedText)
    expires_at: Mapped[base.Moment | None]
    is_shared: Mapped[base.Flag]  # 1: another conversation or branch uses it, too
    created_at: Mapped[base.Moment]
