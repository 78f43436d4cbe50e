"""Tenants."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import (
    blobs,
    configs,
    conversations,
    tenants,
    tool_definitions,
    tool_sets,
    usage_daily,
    usage_daily_models,
    usage_days,
    usage_records,
)
from threadkeep.domain.ids import new_key
from threadkeep.errors import InvalidOption, NotFound


def find_tenant(connection: Connection, name: str) -> int | None:
    """The id of a tenant; None when there is none of that name."""
    found: int | None = connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar()
    return found


def get_tenant(connection: Connection, name: str) -> int:
    """The id of a tenant.

    Raises:
        NotFound: there is none of that name.
    """
    found = find_tenant(connection, name)
    if found is None:
        raise NotFound(f"There is no tenant {name!r}. create_tenant({name!r}) makes one.")
    return found


def create_tenant(connection: Connection, name: str) -> int:
    """Make a tenant; returns its id.

    Raises:
        InvalidOption: there is one of that name.
    """
    key = new_key()
    try:
        connection.execute(insert(tenants), {"id": key, "name": name, "created_at": datetime.now(UTC)})
    except IntegrityError as error:
        raise InvalidOption(f"There is a tenant {name!r} already. for_tenant({name!r}) opens it.") from error
    return key


def hide_tenant(connection: Connection, tenant: int) -> None:
    """Take all conversations of a tenant out of sight; their rows are purged afterwards."""
    connection.execute(
        update(conversations).where(conversations.c.tenant_id == tenant).values(status=DELETED, external_id=None)
    )


def delete_tenant(connection: Connection, tenant: int) -> None:
    """Remove a tenant whose conversations are purged, with its ledger."""
    for table in (usage_daily_models, usage_daily, usage_days, tool_sets, tool_definitions, configs, blobs):
        connection.execute(delete(table).where(table.c.tenant_id == tenant))
    connection.execute(delete(tenants).where(tenants.c.id == tenant))
    # Last, for it has no foreign key: who has begun to append has ended, because the tenant's conversations are gone.
    connection.execute(delete(usage_records).where(usage_records.c.tenant_id == tenant))
