"""Tool definitions, once per content, and the ordered sets that conversations and responses point at."""

from __future__ import annotations

from sqlalchemy.orm import Mapped

from threadkeep.db.base import Base, HashKey, LongText, Moment, Name, Tenant, references


class ToolDefinitionRow(Base):
    """A tool as JSON text."""

    __tablename__ = "tool_definitions"
    __table_args__ = (references("tenants", tenant_id="id"),)

    tenant_id: Mapped[Tenant]
    hash: Mapped[HashKey]
    type: Mapped[Name]
    name: Mapped[Name | None]
    definition: Mapped[LongText]
    created_at: Mapped[Moment]


class ToolSetRow(Base):
    """An ordered list of tools: a JSON array of the hashes of their definitions, in hexadecimal."""

    __tablename__ = "tool_sets"
    __table_args__ = (references("tenants", tenant_id="id"),)

    tenant_id: Mapped[Tenant]
    hash: Mapped[HashKey]
    definitions: Mapped[LongText]
    created_at: Mapped[Moment]
