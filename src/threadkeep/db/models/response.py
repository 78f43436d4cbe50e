"""Responses of providers, their raw bodies, and the parts of responses in progress; the usage ledger and its sums."""

from datetime import date, datetime
from typing import TYPE_CHECKING, Final

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column, relationship

from threadkeep.db.base import (
    HOLDS,
    LOCAL,
    PREFIX,
    Base,
    BigNumber,
    BinaryContent,
    Content,
    Figures,
    Key,
    LongHash,
    LongName,
    Number,
    NumberKey,
    OfConversation,
    OfTenant,
    ShortHash,
    SmallNumber,
    Source,
    UserId,
    Word,
    indexes_of_options,
    partial_index,
    references,
    to_conversation,
)
from threadkeep.db.types import EscapedText

if TYPE_CHECKING:
    from threadkeep.db.models.conversation import ConfigRow, ConversationRow, ToolSetRow
    from threadkeep.db.models.item import ItemRow


class ResponseRow(OfConversation, Base):
    """A provider's response: a range of items, and what the request showed.

    While it is being streamed it has no items; `open_branch` is its branch then, and a branch has one at a time.
    """

    __tablename__ = f"{PREFIX}responses"
    __table_args__ = (
        to_conversation(),
        references("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        references("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
        partial_index(
            "open_branch", "open_branch IS NOT NULL", "tenant_id", "conversation_id", "open_branch", unique=True
        ),
        partial_index(
            "response", "response_hash IS NOT NULL", "tenant_id", "response_hash", "conversation_id", "number"
        ),
        *indexes_of_options(),
    )

    number: Mapped[NumberKey]
    provider_response_id: Mapped[LongName | None]
    response_hash: Mapped[ShortHash | None]  # of provider_response_id
    branch: Mapped[Number]
    input_to: Mapped[BigNumber]  # last position that the request showed, -1 for none
    from_position: Mapped[BigNumber]
    to_position: Mapped[BigNumber]  # less than from_position if the response had no items
    view: Mapped[Figures | None]  # format and render options of the request
    config_hash: Mapped[LongHash]
    tool_set_hash: Mapped[LongHash | None]
    format: Mapped[Word]
    model: Mapped[str | None] = mapped_column(EscapedText, info={HOLDS: "source"})
    status: Mapped[Word | None]
    finish_reason: Mapped[LongName | None]
    incomplete_details: Mapped[Content | None]  # JSON, as are the next two
    error: Mapped[Content | None]
    provider_data: Mapped[Content | None]
    created_at: Mapped[datetime]
    completed_at: Mapped[datetime | None]
    lease_until: Mapped[datetime | None]  # from then on another writer may end a response in progress
    lease_token: Mapped[ShortHash | None] = mapped_column(info={LOCAL: True})  # who may write to one in progress
    open_branch: Mapped[Number | None]  # the branch of a response in progress, NULL for those that have ended
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


class StreamPartRow(OfConversation, Base):
    """A piece of a response in progress, append-only; deleted when its items are written."""

    __tablename__ = f"{PREFIX}stream_parts"
    __table_args__ = (
        references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    number: Mapped[NumberKey]
    part: Mapped[NumberKey]
    content: Mapped[Content]  # part 0: the recorder's arguments, an object; then pieces of the events, JSON lines
    first_token_ms: Mapped[BigNumber | None]  # the time to the first token, once that has come
    created_at: Mapped[datetime]


class ResponseBodyRow(OfConversation, Base):
    """The provider's body as received; expires on its own."""

    __tablename__ = f"{PREFIX}response_bodies"
    __table_args__ = (
        references("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number"),
    )

    number: Mapped[NumberKey]
    codec: Mapped[SmallNumber]  # 0: as received, 1: zlib
    body: Mapped[BinaryContent]
    created_at: Mapped[datetime]


_KEYS: Final = ("model", "provider", "format", "status")
_FIGURES: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms", "first_token_ms",
)  # fmt: skip


class UsageRecordRow(OfTenant, Base):
    """One provider attempt and its figures, which never change. It outlives its conversation: no foreign key to it.

    Nor one to the tenant: PostgreSQL would lock the tenant's row for each of them, and all who append would meet there.

    Reports read nothing but the indexes: these hold all that is summed, and what it is summed by. MySQL takes no index
    of more than 16 columns.
    """

    __tablename__ = f"{PREFIX}usage_records"
    __table_args__ = (
        Index("by_day", "tenant_id", "day", *_KEYS, "user_id", *_FIGURES),
        Index("by_user", "tenant_id", "user_id", "day", *_KEYS, *_FIGURES),
        Index("by_conversation", "tenant_id", "conversation_id", "response", "day", "model", *_FIGURES),
    )

    id: Mapped[Key]
    day: Mapped[date]  # of occurred_at, in UTC
    occurred_at: Mapped[datetime]
    user_id: Mapped[UserId | None]
    conversation_id: Mapped[BigNumber]
    response: Mapped[Number | None]  # its number; NULL: the attempt gave no response
    tool_set_hash: Mapped[LongHash | None]
    provider: Mapped[Source | None]
    model: Mapped[Source | None]
    format: Mapped[Word]
    status: Mapped[Word | None]
    latency_ms: Mapped[BigNumber | None]
    first_token_ms: Mapped[BigNumber | None]
    input_tokens: Mapped[BigNumber | None]  # all input, cached and cache-writing included
    cached_tokens: Mapped[BigNumber | None]
    cache_write_tokens: Mapped[BigNumber | None]
    output_tokens: Mapped[BigNumber | None]  # all output, reasoning included
    reasoning_tokens: Mapped[BigNumber | None]
    total_tokens: Mapped[BigNumber | None]
    cost_nano: Mapped[BigNumber | None]  # nano-USD
    usage: Mapped[Content | None]  # the provider's own usage object, JSON
    error: Mapped[Content | None]  # the provider's error, JSON
    price: Mapped[Figures | None]  # where cost_nano is from, and the prices it was computed with
    terms: Mapped[Figures | None]  # what else the price depends on: tier, URL, searches, images

    conversation: Mapped["ConversationRow | None"] = relationship(
        viewonly=True,
        primaryjoin="and_(foreign(UsageRecordRow.tenant_id) == ConversationRow.tenant_id, "
        "foreign(UsageRecordRow.conversation_id) == ConversationRow.id)",
        back_populates="usage_records",
    )


class UsageDayRow(OfTenant, Base):
    """A UTC day. Its row is locked by the writer that fills it, and by those who come after its end."""

    __tablename__ = f"{PREFIX}usage_days"
    __table_args__ = (references("tenants", tenant_id="id"),)

    day: Mapped[date] = mapped_column(primary_key=True)
    filled_at: Mapped[datetime | None]  # NULL: its sums are not to be read, or it is a claim of the days before


class SumsOfDay(OfTenant):
    """Sums over the attempts of a day that have something in common; a figure is NULL where no attempt reported it."""

    day: Mapped[date] = mapped_column(primary_key=True, sort_order=-1)
    number: Mapped[NumberKey] = mapped_column(sort_order=-1)
    attempts: Mapped[BigNumber]
    input_tokens: Mapped[BigNumber | None]
    cached_tokens: Mapped[BigNumber | None]
    cache_write_tokens: Mapped[BigNumber | None]
    output_tokens: Mapped[BigNumber | None]
    reasoning_tokens: Mapped[BigNumber | None]
    total_tokens: Mapped[BigNumber | None]
    cost_nano: Mapped[BigNumber | None]
    latency_ms: Mapped[BigNumber | None]
    first_token_ms: Mapped[BigNumber | None]
    cache_known_tokens: Mapped[BigNumber | None]  # input of the attempts that say what came from the cache
    costs: Mapped[BigNumber]  # attempts whose cost is known
    latencies: Mapped[BigNumber]  # attempts whose latency is known
    first_tokens: Mapped[BigNumber]  # attempts whose time to the first token is known


class UsageDailyRow(SumsOfDay, Base):
    """Sums over the attempts of a filled day that have provider, model, format and status in common."""

    __tablename__ = f"{PREFIX}usage_daily"
    # a day that is gone takes its sums along
    __table_args__ = (references("usage_days", tenant_id="tenant_id", day="day"),)

    provider: Mapped[Source | None]
    model: Mapped[Source | None]
    format: Mapped[Word]
    status: Mapped[Word | None]


class UsageDailyModelRow(SumsOfDay, Base):
    """Sums over the attempts of a filled day that have the model in common, so that most reports add nothing up."""

    __tablename__ = f"{PREFIX}usage_daily_models"
    __table_args__ = (references("usage_days", tenant_id="tenant_id", day="day"),)

    model: Mapped[Source | None]
