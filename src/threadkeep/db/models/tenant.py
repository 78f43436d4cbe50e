"""Tenants and what belongs to them alone: keys of the server, idempotency keys, and the change feed."""

from datetime import datetime

from sqlalchemy import Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from threadkeep.db import base, functions


class TenantRow(base.Base):
    """A customer of the application; the first part of every other key."""

    __tablename__ = f"{base.PREFIX}tenants"
    __table_args__ = (UniqueConstraint("name", name="name"),)

    id: Mapped[base.Key]
    name: Mapped[base.Name]
    created_at: Mapped[datetime]


class ApiKeyRow(base.OfTenant, base.Base):
    """A key of the server's API: whose it is, and what it allows. Of its secret, there is only a hash."""

    __tablename__ = f"{base.PREFIX}api_keys"
    __table_args__ = (
        base.references("tenants", tenant_id="id"),
        UniqueConstraint("id", "tenant_id", name="id"),
        Index("user", "user_id", "tenant_id", "id"),
    )

    id: Mapped[base.Key]  # a part of the secret, by which the row is found
    secret_hash: Mapped[base.LongHash]
    user_id: Mapped[base.Owner | None]  # NULL for all users of the tenant
    scopes: Mapped[base.Word]  # in alphabetical order, with commas
    label: Mapped[base.Name | None]  # the application's own words
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]  # written once an hour at most
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class AppendRow(base.OfConversation, base.Base):
    """What was done under an idempotency key. Conversation 0 stands for the tenant: no foreign key to conversations."""

    __tablename__ = f"{base.PREFIX}appends"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    key: Mapped[base.Name] = mapped_column(primary_key=True)
    request_hash: Mapped[base.LongHash]
    outcome: Mapped[base.Figures]  # what was created (positions, response, branch, ledger row), or which error
    created_at: Mapped[datetime]


class ChangeRow(base.OfTenant, base.Base):
    """What happened to conversations, in the order of `id`: the change feed. It outlives them: no foreign key.

    Row 0 is no change: it says up to which `id` (to_position), and which transaction, changes were removed.
    """

    __tablename__ = f"{base.PREFIX}changes"
    __table_args__ = (base.partial_index("transaction", "transaction_id IS NOT NULL", "tenant_id", "transaction_id"),)

    id: Mapped[base.Key] = mapped_column(info=base.made_by(functions.change_key, "serial", "of_tenant"))
    conversation_id: Mapped[base.BigNumber]
    public_id: Mapped[base.ShortHash]
    kind: Mapped[base.Word]  # appended, changed or deleted
    branch: Mapped[base.Number | None]  # these three of what was appended
    from_position: Mapped[base.BigNumber | None]
    to_position: Mapped[base.BigNumber | None]
    transaction_id: Mapped[base.BigNumber | None] = mapped_column(
        info=base.made_by(functions.transaction_number)
    )  # on PostgreSQL
    created_at: Mapped[datetime]
