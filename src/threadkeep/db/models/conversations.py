"""Tenants, conversations, their options, labels and branches."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import (
    Base,
    BigNumber,
    Count,
    Digest,
    HashKey,
    Key,
    LongText,
    Moment,
    Name,
    NameKey,
    Number,
    ShortDigest,
    Tenant,
    partial_index,
    references,
    to_conversation,
)


class TenantRow(Base):
    """A customer of the application; the first part of every other key."""

    __tablename__ = "tenants"
    __table_args__ = (UniqueConstraint("name", name="name"),)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    name: Mapped[Name]
    created_at: Mapped[Moment]


class ConfigRow(Base):
    """Session options (model, instructions, settings, extra) as one JSON text, once per content."""

    __tablename__ = "configs"
    __table_args__ = (references("tenants", tenant_id="id"),)

    tenant_id: Mapped[Tenant]
    hash: Mapped[HashKey]
    config: Mapped[LongText]
    created_at: Mapped[Moment]


class ConversationRow(Base):
    """A conversation, its counters and what it points at.

    Every append, response and fork starts by one UPDATE of this row: it takes the numbers and serialises the writers.
    """

    __tablename__ = "conversations"
    __table_args__ = (
        references("tenants", tenant_id="id"),
        references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        UniqueConstraint("tenant_id", "public_id", name="public_id"),
        UniqueConstraint("tenant_id", "external_id", name="external_id"),
        Index("activity", "tenant_id", "status", "last_activity_at", "id"),
        Index("user_activity", "tenant_id", "user_id", "status", "last_activity_at", "id"),
        partial_index("search", "search_from IS NOT NULL", "tenant_id", "search_from", "id"),
    )

    tenant_id: Mapped[Tenant]
    id: Mapped[Key]
    public_id: Mapped[ShortDigest]
    external_id: Mapped[Name | None]
    user_id: Mapped[Name | None]
    title: Mapped[LongText | None]
    labels: Mapped[LongText | None]  # JSON object; the rows of conversation_labels are its index
    status: Mapped[Name]
    config_hash: Mapped[Digest]
    tool_set_hash: Mapped[Digest | None]
    active_branch: Mapped[Count]
    next_position: Mapped[BigNumber]  # counts items over all branches
    next_response: Mapped[Count]
    next_branch: Mapped[Count]
    head_position: Mapped[BigNumber]  # where branch 0 ends, -1 when it is empty; other branches have rows of their own
    revision: Mapped[Count]  # grows with every change that is not an append
    created_at: Mapped[Moment]
    last_activity_at: Mapped[Moment]
    streams: Mapped[Count | None]  # how many responses are in progress, on all branches; NULL for none
    search_from: Mapped[BigNumber | None]  # first position that is not indexed; NULL when all are


class ConversationLabelRow(Base):
    """The application's own labels; never sent to a provider."""

    __tablename__ = "conversation_labels"
    __table_args__ = (
        to_conversation(),
        Index("value", "tenant_id", "key", "value", "conversation_id"),
    )

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    key: Mapped[NameKey]
    value: Mapped[Name]


class BranchRow(Base):
    """A branch that was forked off; branch 0 is the conversation itself and has no row."""

    __tablename__ = "branches"
    __table_args__ = (to_conversation(),)

    tenant_id: Mapped[Tenant]
    conversation_id: Mapped[Key]
    number: Mapped[Number]
    parent: Mapped[Count]
    fork_position: Mapped[BigNumber]
    head_position: Mapped[BigNumber]
    lineage: Mapped[LongText]  # JSON [[branch, last position], …] of what comes before this branch's own items
    created_at: Mapped[Moment]
