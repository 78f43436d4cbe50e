"""Responses of providers, their raw bodies, and the parts of responses in progress; the usage ledger and its sums."""

from datetime import date, datetime
from typing import TYPE_CHECKING, Final

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column, relationship

from threadkeep.db import base, types

if TYPE_CHECKING:
    from threadkeep.db.models.conversation import ConfigRow, ConversationRow, ToolSetRow
    from threadkeep.db.models.item import ItemRow


class ResponseRow(base.OfConversation, base.Base):
    """A provider's response: a range of items, and what the request showed.

    While it is being streamed it has no items; `open_branch` is its branch then, and a branch has one at a time.
    """

    __tablename__ = f"{base.PREFIX}responses"
    __table_args__ = (
        base.to_conversation(),
        base.references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        base.references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        base.partial_index(
            "open_branch", "open_branch IS NOT NULL", "tenant_id", "conversation_id", "open_branch", unique=True
        ),
        base.partial_index(
            "response", "response_hash IS NOT NULL", "tenant_id", "response_hash", "conversation_id", "number"
        ),
        *base.indexes_of_options(),
    )

    number: Mapped[base.NumberKey]
    provider_response_id: Mapped[base.LongName | None]
    response_hash: Mapped[base.ShortHash | None]  # of provider_response_id
    branch: Mapped[base.Number]
    input_to: Mapped[base.BigNumber]  # last position that the request showed, -1 for none
    from_position: Mapped[base.BigNumber]
    to_position: Mapped[base.BigNumber]  # less than from_position if the response had no items
    view: Mapped[base.Figures | None]  # format and render options of the request
    config_hash: Mapped[base.LongHash]
    tool_set_hash: Mapped[base.LongHash | None]
    format: Mapped[base.Word]
    model: Mapped[str | None] = mapped_column(types.EscapedText, info={base.HOLDS: "source"})
    status: Mapped[base.Word | None]
    finish_reason: Mapped[base.LongName | None]
    incomplete_details: Mapped[base.Content | None]  # JSON, as are the next two
    error: Mapped[base.Content | None]
    provider_data: Mapped[base.Content | None]
    created_at: Mapped[datetime]
    completed_at: Mapped[datetime | None]
    lease_until: Mapped[datetime | None]  # from then on another writer may end a response in progress
    lease_token: Mapped[base.ShortHash | None] = mapped_column(
        info={base.LOCAL: True}
    )  # who may write to one in progress
    open_branch: Mapped[base.Number | None]  # the branch of a response in progress, NULL for those that have ended
    cancel_requested_at: Mapped[datetime | None]  # when the recorder of a response in progress was asked to stop
    deleted_at: Mapped[datetime | None]  # from then on it cannot be found; its items stay in the conversation

    conversation: Mapped["ConversationRow"] = relationship(viewonly=True, back_populates="responses")
    config: Mapped["ConfigRow"] = relationship(viewonly=True)
    tool_set: Mapped["ToolSetRow | None"] = relationship(viewonly=True)
    body: Mapped["ResponseBodyRow | None"] = relationship(viewonly=True)
    items: Mapped[list["ItemRow"]] = relationship(
        viewonly=True,
        primaryjoin="and_(ResponseRow.tenant_id == foreign(ItemRow.tenant_id), "
        "ResponseRow.conversation_id == foreign(ItemRow.conversation_id), "
        "ItemRow.position.between(ResponseRow.from_position, ResponseRow.to_position))",
        order_by="ItemRow.position",
    )
    usage_records: Mapped[list["UsageRecordRow"]] = relationship(
        viewonly=True,
        primaryjoin="and_(ResponseRow.tenant_id == foreign(UsageRecordRow.tenant_id), "
        "ResponseRow.conversation_id == foreign(UsageRecordRow.conversation_id), "
        "ResponseRow.number == foreign(UsageRecordRow.response))",
        order_by="UsageRecordRow.id",
    )


class StreamPartRow(base.OfConversation, base.Base):
    """A piece of a response in progress, append-only; deleted when its items are written."""

    __tablename__ = f"{base.PREFIX}stream_parts"
    __table_args__ = (
        base.references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    number: Mapped[base.NumberKey]
    part: Mapped[base.NumberKey]
    content: Mapped[base.Content]  # part 0: the recorder's arguments, an object; then pieces of the events, JSON lines
    first_token_ms: Mapped[base.BigNumber | None]  # the time to the first token, once that has come
    created_at: Mapped[datetime]


class ResponseBodyRow(base.OfConversation, base.Base):
    """The provider's body as received; expires on its own."""

    __tablename__ = f"{base.PREFIX}response_bodies"
    __table_args__ = (
        base.references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    number: Mapped[base.NumberKey]
    codec: Mapped[base.SmallNumber]  # 0: as received, 1: zlib
    body: Mapped[base.BinaryContent]
    created_at: Mapped[datetime]


_KEYS: Final = ("model", "provider", "format", "status")
_FIGURES: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms", "first_token_ms",
)  # fmt: skip


class UsageRecordRow(base.OfTenant, base.Base):
    """One provider attempt and its figures. It outlives its conversation: no foreign key to it.

    Nor one to the tenant: PostgreSQL would lock the tenant's row for each of them, and all who append would meet there.

    Reports read nothing but the indexes: these hold all that is summed, and what it is summed by. MySQL takes no index
    of more than 16 columns.
    """

    __tablename__ = f"{base.PREFIX}usage_records"
    __table_args__ = (
        Index("by_day", "tenant_id", "day", *_KEYS, "user_id", *_FIGURES),
        Index("by_user", "tenant_id", "user_id", "day", *_KEYS, *_FIGURES),
        Index("by_conversation", "tenant_id", "conversation_id", "response", "day", "model", *_FIGURES),
    )

    id: Mapped[base.Key]
    day: Mapped[date]  # of occurred_at, in UTC
    occurred_at: Mapped[datetime]
    user_id: Mapped[base.UserId | None]
    conversation_id: Mapped[base.BigNumber]
    response: Mapped[base.Number | None]  # its number; NULL: the attempt gave no response
    tool_set_hash: Mapped[base.LongHash | None]
    provider: Mapped[base.Source | None]
    model: Mapped[base.Source | None]
    format: Mapped[base.Word]
    status: Mapped[base.Word | None]
    latency_ms: Mapped[base.BigNumber | None]
    first_token_ms: Mapped[base.BigNumber | None]
    input_tokens: Mapped[base.BigNumber | None]  # all input, cached and cache-writing included
    cached_tokens: Mapped[base.BigNumber | None]
    cache_write_tokens: Mapped[base.BigNumber | None]
    output_tokens: Mapped[base.BigNumber | None]  # all output, reasoning included
    reasoning_tokens: Mapped[base.BigNumber | None]
    total_tokens: Mapped[base.BigNumber | None]
    cost_nano: Mapped[base.BigNumber | None]  # nano-USD
    usage: Mapped[base.Content | None]  # the provider's own usage object, JSON
    error: Mapped[base.Content | None]  # the provider's error, JSON
    price: Mapped[base.Figures | None]  # where cost_nano is from, and the prices it was computed with
    terms: Mapped[base.Figures | None]  # what else the price depends on: tier, URL, searches, images

    conversation: Mapped["ConversationRow | None"] = relationship(
        viewonly=True,
        primaryjoin="and_(foreign(UsageRecordRow.tenant_id) == ConversationRow.tenant_id, "
        "foreign(UsageRecordRow.conversation_id) == ConversationRow.id)",
        back_populates="usage_records",
    )


class UsageDayRow(base.OfTenant, base.Base):
    """A UTC day. Its row is locked by the writer that fills it, and by those who come after its end."""

    __tablename__ = f"{base.PREFIX}usage_days"
    __table_args__ = (base.references("tenants", tenant_id="id"),)

    day: Mapped[date] = mapped_column(primary_key=True)
    filled_at: Mapped[datetime | None]  # NULL: its sums are not to be read, or it is a claim of the days before


class SumsOfDay(base.OfTenant):
    """Sums over the attempts of a day that have something in common; a figure is NULL where no attempt reported it."""

    day: Mapped[date] = mapped_column(primary_key=True, sort_order=-1)
    number: Mapped[base.NumberKey] = mapped_column(sort_order=-1)
    attempts: Mapped[base.BigNumber]
    input_tokens: Mapped[base.BigNumber | None]
    cached_tokens: Mapped[base.BigNumber | None]
    cache_write_tokens: Mapped[base.BigNumber | None]
    output_tokens: Mapped[base.BigNumber | None]
    reasoning_tokens: Mapped[base.BigNumber | None]
    total_tokens: Mapped[base.BigNumber | None]
    cost_nano: Mapped[base.BigNumber | None]
    latency_ms: Mapped[base.BigNumber | None]
    first_token_ms: Mapped[base.BigNumber | None]
    cache_known_tokens: Mapped[base.BigNumber | None]  # input of the attempts that say what came from the cache
    costs: Mapped[base.BigNumber]  # attempts whose cost is known
    latencies: Mapped[base.BigNumber]  # attempts whose latency is known
    first_tokens: Mapped[base.BigNumber]  # attempts whose time to the first token is known


class UsageDailyRow(SumsOfDay, base.Base):
    """Sums over the attempts of a filled day that have provider, model, format and status in common."""

    __tablename__ = f"{base.PREFIX}usage_daily"
    # a day that is gone takes its sums along
    __table_args__ = (base.references("usage_days", tenant_id="tenant_id", day="day"),)

    provider: Mapped[base.Source | None]
    model: Mapped[base.Source | None]
    format: Mapped[base.Word]
    status: Mapped[base.Word | None]


class UsageDailySketchRow(base.OfTenant, base.Base):
    """How the durations of the same attempts as in `UsageDailyRow` are distributed; see `threadkeep.domain.sketches`.

    A table of its own: sums are read more often, and are a tenth as large.
    """

    __tablename__ = f"{base.PREFIX}usage_daily_sketches"
    __table_args__ = (base.references("usage_days", tenant_id="tenant_id", day="day"),)

    day: Mapped[date] = mapped_column(primary_key=True, sort_order=-1)
    number: Mapped[base.NumberKey] = mapped_column(sort_order=-1)
    provider: Mapped[base.Source | None]
    model: Mapped[base.Source | None]
    format: Mapped[base.Word]
    status: Mapped[base.Word | None]
    latency_ms: Mapped[base.Figures | None]  # counts as JSON, NULL where no attempt has a latency
    first_token_ms: Mapped[base.Figures | None]


class UsageDailyModelRow(SumsOfDay, base.Base):
    """Sums over the attempts of a filled day that have the model in common, so that most reports add nothing up."""

    __tablename__ = f"{base.PREFIX}usage_daily_models"
    __table_args__ = (base.references("usage_days", tenant_id="tenant_id", day="day"),)

    model: Mapped[base.Source | None]
