"""Explicit context caches: what providers keep for us under a name, and who is making one."""

from __future__ import annotations

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import Base, BigNumber, Count, Flag, HashKey, Moment, NameKey, ShortDigest, Tenant
from threadkeep.db.types import EscapedText


class ContextCacheRow(Base):
    """A cache of the beginning of a request, for all conversations that begin so.

    It is being made until `claim_until` while it has no name, and good until `expires_at` when it has one. It goes
    with the conversation that made it.
    """

    __tablename__ = "context_caches"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"], ondelete="CASCADE"
        ),
        Index("ix_context_caches_conversation_id", "tenant_id", "conversation_id"),
    )

    tenant_id: Mapped[Tenant]
    account: Mapped[NameKey]  # at the provider, in the application's words; '' when it has one
    model: Mapped[NameKey]
    hash: Mapped[HashKey]  # of the system text, the tools and the turns that it holds
    conversation_id: Mapped[BigNumber]  # who made it
    branch: Mapped[Count]
    turns: Mapped[Count]  # how many turns of the request it holds
    answer: Mapped[Count]  # number of the newest response when it was claimed, -1 for none
    token: Mapped[ShortDigest]  # who may say what became of the claim
    claim_until: Mapped[Moment | None]  # from then on another one may make it; NULL when it is made
    name: Mapped[str | None] = mapped_column(EscapedText)
    expires_at: Mapped[Moment | None]
    is_shared: Mapped[Flag]  # 1: another conversation or branch was told to use it
    created_at: Mapped[Moment]
