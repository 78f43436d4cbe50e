"""Conversations, their labels, states and branches, how far users have read them, and what requests are made with."""

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Index, UniqueConstraint, type_coerce
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column, relationship

from threadkeep.db import base, types
from threadkeep.domain.ids import public_id_text

if TYPE_CHECKING:
    from threadkeep.db.models.item import ItemRow
    from threadkeep.db.models.response import ResponseRow, UsageRecordRow
    from threadkeep.db.models.tenant import TenantRow


class ConversationRow(base.OfTenant, base.Base):
    """A conversation, its counters and what it points at.

    Every append, response and fork starts by one UPDATE of this row: it takes the numbers and serialises the writers.

    Like other tables that foreign keys refer to, it has no index beyond its primary key that begins with the tenant and
    that PostgreSQL could look all rows up in: it would do so while it has no statistics, and read all of the tenant's.
    """

    __tablename__ = f"{base.PREFIX}conversations"
    __table_args__ = (
        base.references("tenants", tenant_id="id"),
        base.references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        base.references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        UniqueConstraint("public_id", "tenant_id", name="public_id"),
        base.partial_index("external_id", "external_id IS NOT NULL", "tenant_id", "external_id", unique=True),
        Index("activity", "status", "tenant_id", "last_activity_at", "id"),
        Index("user_activity", "user_id", "tenant_id", "status", "last_activity_at", "id"),
        base.partial_index("search", "search_from IS NOT NULL", "tenant_id", "search_from", "id"),
        *base.indexes_of_options(),
    )

    id: Mapped[base.Key]
    public_id: Mapped[base.ShortHash]  # the UUID in the id that the API has; it stays in copies
    external_id: Mapped[base.Name | None]
    user_id: Mapped[base.Owner | None]
    title: Mapped[base.Content | None]
    labels: Mapped[base.Content | None]  # JSON object; the rows of conversation_labels are its index
    properties: Mapped[base.Content | None]  # JSON object of the application's metadata, for which there is no index
    status: Mapped[base.Word]
    config_hash: Mapped[base.LongHash]
    tool_set_hash: Mapped[base.LongHash | None]
    active_branch: Mapped[base.Number]
    next_position: Mapped[base.BigNumber]  # counts items over all branches
    next_response: Mapped[base.Number]
    next_branch: Mapped[base.Number]
    head_position: Mapped[base.BigNumber]  # where branch 0 ends, -1 when empty; other branches have their own rows
    lineage: Mapped[base.Figures | None]  # of branch 0, as in branches; NULL while nothing was removed from it
    revision: Mapped[base.Number] = mapped_column(
        info={base.LOCAL: True}
    )  # grows with every change that is not an append
    created_at: Mapped[datetime]
    last_activity_at: Mapped[datetime]
    streams: Mapped[base.Number | None]  # how many responses are in progress, on all branches; NULL for none
    search_from: Mapped[base.BigNumber | None] = mapped_column(
        info={base.LOCAL: True}
    )  # first position that is not indexed
    creation_key: Mapped[base.Name | None]  # the idempotency key of the tenant under which it was created

    tenant: Mapped["TenantRow"] = relationship(viewonly=True)
    config: Mapped["ConfigRow"] = relationship(viewonly=True)
    tool_set: Mapped["ToolSetRow | None"] = relationship(viewonly=True)
    items: Mapped[list["ItemRow"]] = relationship(
        viewonly=True, order_by="ItemRow.position", back_populates="conversation"
    )
    responses: Mapped[list["ResponseRow"]] = relationship(
        viewonly=True, order_by="ResponseRow.number", back_populates="conversation"
    )
    branches: Mapped[list["BranchRow"]] = relationship(viewonly=True, order_by="BranchRow.number")
    label_rows: Mapped[list["ConversationLabelRow"]] = relationship(viewonly=True)
    states: Mapped[list["ConversationStateRow"]] = relationship(viewonly=True)
    reads: Mapped[list["ConversationReadRow"]] = relationship(viewonly=True)
    usage_records: Mapped[list["UsageRecordRow"]] = relationship(
        viewonly=True,
        primaryjoin="and_(ConversationRow.tenant_id == foreign(UsageRecordRow.tenant_id), "
        "ConversationRow.id == foreign(UsageRecordRow.conversation_id))",
        order_by="UsageRecordRow.id",
        back_populates="conversation",
    )

    @hybrid_property
    def api_id(self) -> str:
        """The id that the Python and HTTP APIs have: ``conv_`` and 32 hexadecimal digits."""
        return public_id_text(self.public_id)

    @api_id.inplace.expression
    @classmethod
    def _api_id(cls) -> ColumnElement[str]:
        return type_coerce(cls.public_id, types.PublicId())


class ConversationLabelRow(base.OfConversation, base.Base):
    """One of the application's own labels; never sent to a provider."""

    __tablename__ = f"{base.PREFIX}conversation_labels"
    __table_args__ = (base.to_conversation(), Index("value", "tenant_id", "key", "value", "conversation_id"))

    key: Mapped[base.Name] = mapped_column(primary_key=True)
    value: Mapped[base.Name]


class ConversationStateRow(base.OfConversation, base.Base):
    """A small named value that an application keeps with a conversation, such as the state of an agent's run."""

    __tablename__ = f"{base.PREFIX}conversation_states"
    __table_args__ = (base.to_conversation(),)

    name: Mapped[base.Name] = mapped_column(primary_key=True)
    version: Mapped[base.Number]  # grows with every write; a writer that has read an older one can be refused
    value: Mapped[base.Content | None]  # JSON; NULL when it was deleted: its versions go on
    updated_at: Mapped[datetime]


class ConversationReadRow(base.OfConversation, base.Base):
    """How far a user has read a conversation."""

    __tablename__ = f"{base.PREFIX}conversation_reads"
    __table_args__ = (base.to_conversation(), Index("user_id", "tenant_id", "user_id"))

    user_id: Mapped[base.Owner] = mapped_column(primary_key=True)
    position: Mapped[base.BigNumber]  # of the last item that was seen, -1 for none
    seen_at: Mapped[datetime]


class BranchRow(base.OfConversation, base.Base):
    """A branch that was forked off; branch 0 is the conversation itself and has no row."""

    __tablename__ = f"{base.PREFIX}branches"
    __table_args__ = (base.to_conversation(),)

    number: Mapped[base.NumberKey]
    parent: Mapped[base.Number]
    fork_position: Mapped[base.BigNumber]
    from_position: Mapped[base.BigNumber]  # its own items begin there or later: the next one when it was made
    head_position: Mapped[base.BigNumber]
    # [[branch, last position], …] of what comes before this branch's own items; branch -1 stands for what was removed
    lineage: Mapped[base.Figures]
    created_at: Mapped[datetime]


class ConfigRow(base.OfTenant, base.Base):
    """Session options (model, instructions, settings, extra) as one JSON text, once per content."""

    __tablename__ = f"{base.PREFIX}configs"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    hash: Mapped[base.LongHash] = mapped_column(primary_key=True)
    config: Mapped[base.Content]
    created_at: Mapped[datetime]


class ToolDefinitionRow(base.OfTenant, base.Base):
    """A tool as JSON text, once per content."""

    __tablename__ = f"{base.PREFIX}tool_definitions"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    hash: Mapped[base.LongHash] = mapped_column(primary_key=True)
    type: Mapped[base.Word]
    name: Mapped[base.Name | None]
    definition: Mapped[base.Content]
    created_at: Mapped[datetime]
    # when no tool set seemed to name it: it is about to be removed
    unused_at: Mapped[datetime | None] = mapped_column(info={base.LOCAL: True})


class ToolSetRow(base.OfTenant, base.Base):
    """An ordered list of tools."""

    __tablename__ = f"{base.PREFIX}tool_sets"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    hash: Mapped[base.LongHash] = mapped_column(primary_key=True)
    definitions: Mapped[base.Figures]  # the hashes of their definitions, in hexadecimal
    created_at: Mapped[datetime]


class ContextCacheRow(base.OfTenant, base.Base):
    """A cache of the beginning of a request, for all conversations that begin so.

    Without a name it is being created, until `claim_until`; with one it is valid until `expires_at`. It is deleted with
    the conversation that created it.
    """

    __tablename__ = f"{base.PREFIX}context_caches"
    __table_args__ = (base.to_conversation(), Index("conversation_id", "tenant_id", "conversation_id"))

    # at the provider, in the application's words; '' when it has one
    account: Mapped[base.Name] = mapped_column(primary_key=True)
    model: Mapped[base.Source] = mapped_column(primary_key=True)
    hash: Mapped[base.LongHash] = mapped_column(primary_key=True)  # of the system text, the tools and the turns in it
    conversation_id: Mapped[base.BigNumber]  # that created it
    branch: Mapped[base.Number]
    turns: Mapped[base.Number]  # how many turns of the request it holds
    answer: Mapped[base.Number]  # number of the newest response when it was claimed, -1 for none
    token: Mapped[base.ShortHash]  # of the claim: only its holder may complete it
    claim_until: Mapped[datetime | None]  # from then on another process may create it; NULL when it exists
    name: Mapped[base.LongName | None]
    expires_at: Mapped[datetime | None]
    is_shared: Mapped[base.SmallNumber]  # 1: another conversation or branch uses it, too
    created_at: Mapped[datetime]
