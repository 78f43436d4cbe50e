"""Tenants and what belongs to them alone: keys of the server, idempotency keys, and the change feed."""

from datetime import datetime

from sqlalchemy import Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db.base import (
    PREFIX,
    Base,
    BigNumber,
    Figures,
    Key,
    LongHash,
    Name,
    Number,
    OfConversation,
    OfTenant,
    Owner,
    ShortHash,
    Word,
    made_by,
    partial_index,
    references,
)
from threadkeep.db.change_keys import change_key, transaction_number


class TenantRow(Base):
    """A customer of the application; the first part of every other key."""

    __tablename__ = f"{PREFIX}tenants"
    __table_args__ = (UniqueConstraint("name", name="name"),)

    id: Mapped[Key]
    name: Mapped[Name]
    created_at: Mapped[datetime]


class ApiKeyRow(OfTenant, Base):
    """A key of the server's API: whose it is, and what it allows. Of its secret, there is only a hash."""

    __tablename__ = f"{PREFIX}api_keys"
    __table_args__ = (
        references("tenants", tenant_id="id"),
        UniqueConstraint("id", "tenant_id", name="id"),
        Index("user", "user_id", "tenant_id", "id"),
    )

    id: Mapped[Key]  # a part of the secret, by which the row is found
    secret_hash: Mapped[LongHash]
    user_id: Mapped[Owner | None]  # NULL for all users of the tenant
    scopes: Mapped[Word]  # in alphabetical order, with commas
    label: Mapped[Name | None]  # the application's own words
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]  # written once an hour at most
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class AppendRow(OfConversation, Base):
    """What was done under an idempotency key. Conversation 0 stands for the tenant: no foreign key to conversations."""

    __tablename__ = f"{PREFIX}appends"
    __table_args__ = (references("tenants", tenant_id="id"),)

    key: Mapped[Name] = mapped_column(primary_key=True)
    request_hash: Mapped[LongHash]
    outcome: Mapped[Figures]  # what was created (positions, response, branch, ledger row), or which error
    created_at: Mapped[datetime]


class ChangeRow(OfTenant, Base):
    """What happened to conversations, in the order of `id`: the change feed. It outlives them: no foreign key.

    Row 0 is no change: it says up to which `id` (to_position), and which transaction, changes were removed.
    """

    __tablename__ = f"{PREFIX}changes"
    __table_args__ = (partial_index("transaction", "transaction_id IS NOT NULL", "tenant_id", "transaction_id"),)

    id: Mapped[Key] = mapped_column(info=made_by(change_key, "serial", "of_tenant"))
    conversation_id: Mapped[BigNumber]
    public_id: Mapped[ShortHash]
    kind: Mapped[Word]  # appended, changed or deleted
    branch: Mapped[Number | None]  # these three of what was appended
    from_position: Mapped[BigNumber | None]
    to_position: Mapped[BigNumber | None]
    transaction_id: Mapped[BigNumber | None] = mapped_column(info=made_by(transaction_number))  # on PostgreSQL
    created_at: Mapped[datetime]
