"""Explicit context caches: what a provider keeps under a name, and who is creating one."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import (
    Base,
    BigNumber,
    Count,
    Flag,
    HashKey,
    Moment,
    NameKey,
    ShortDigest,
    Tenant,
    to_conversation,
)
from threadkeep.db.types import EscapedText


class ContextCacheRow(Base):
    """A cache of the beginning of a request, for all conversations that begin so.

    Without a name it is being created, until `claim_until`; with one it is valid until `expires_at`. It is deleted with
    the conversation that created it.
    """

    __tablename__ = "context_caches"
    __table_args__ = (
        to_conversation(),
        Index("conversation_id", "tenant_id", "conversation_id"),
    )

    tenant_id: Mapped[Tenant]
    account: Mapped[NameKey]  # at the provider, in the application's words; '' when it has one
    model: Mapped[NameKey]
    hash: Mapped[HashKey]  # of the system text, the tools and the turns that it holds
    conversation_id: Mapped[BigNumber]  # that created it
    branch: Mapped[Count]
    turns: Mapped[Count]  # how many turns of the request it holds
    answer: Mapped[Count]  # number of the newest response when it was claimed, -1 for none
    token: Mapped[ShortDigest]  # of the claim: only its holder may complete it
    claim_until: Mapped[Moment | None]  # from then on another process may create it; NULL when it exists
    name: Mapped[str | None] = mapped_column(EscapedText)
    expires_at: Mapped[Moment | None]
    is_shared: Mapped[Flag]  # 1: another conversation or branch uses it, too
    created_at: Mapped[Moment]
