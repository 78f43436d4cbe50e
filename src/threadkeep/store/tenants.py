"""Tenants: finding, creating and deleting them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

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
from threadkeep.errors import Conflict, InvalidOption, NotFound
from threadkeep.store.handle import StoreResources
from threadkeep.store.refs import Scope
from threadkeep.store.retention import purge_deleted
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import identifier

DEFAULT_TENANT: Final = "default"  # of a store without tenants
ROUNDS: Final = 10  # attempts to delete a tenant for which somebody creates conversations


NO_TENANT: Final = 0  # the id of none: nothing is stored for it


def find_default_tenant(transactions: Transactions) -> int:
    """The id of the only tenant of a store without tenants; NO_TENANT where nothing was stored yet."""
    return transactions.read(lambda connection: _find_tenant(connection, DEFAULT_TENANT)) or NO_TENANT


def create_default_tenant(transactions: Transactions) -> int:
    """Create the only tenant of a store without tenants, unless somebody else is faster; returns its id."""
    try:
        return transactions.write(lambda connection: _insert_tenant(connection, DEFAULT_TENANT), is_repeatable=True)
    except InvalidOption:
        return get_tenant(transactions, DEFAULT_TENANT)


def get_tenant(transactions: Transactions, name: str) -> int:
    """The id of a tenant.

    Raises:
        NotFound: there is none of that name.
        InvalidOption: it cannot be a name.
    """
    identifier("tenant", name)
    tenant = transactions.read(lambda connection: _find_tenant(connection, name))
    if tenant is None:
        raise NotFound(f"There is no tenant {name!r}.", hint=f"create_tenant({name!r}) creates it.")
    return tenant


def create_tenant(transactions: Transactions, name: str) -> int:
    """Create a tenant; returns its id.

    Raises:
        InvalidOption: there is one of that name, or it cannot be a name.
    """
    identifier("tenant", name)
    return transactions.write(lambda connection: _insert_tenant(connection, name))


def delete_tenant(transactions: Transactions, tenant: int, resources: StoreResources) -> None:
    """Delete a tenant with everything; again from the start where somebody creates conversations meanwhile.

    Raises:
        Conflict: somebody does not stop.
    """
    for _ in range(ROUNDS):
        transactions.write(lambda connection: _hide_conversations(connection, tenant), is_repeatable=True)
        purge_deleted(transactions, Scope(tenant), resources)
        try:
            transactions.write(lambda connection: _delete_rows(connection, tenant), is_repeatable=True)
        except IntegrityError:  # a conversation needs its options
            continue
        return
    raise Conflict(
        "Somebody keeps creating conversations of this tenant.", hint="Delete it again when nothing uses it any more."
    )


def _find_tenant(connection: Connection, name: str) -> int | None:
    key: int | None = connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar()
    return key


def _insert_tenant(connection: Connection, name: str) -> int:
    key = new_key()
    try:
        connection.execute(insert(tenants), {"id": key, "name": name, "created_at": datetime.now(UTC)})
    except IntegrityError as error:
        raise InvalidOption(f"There is a tenant {name!r} already.", hint=f"for_tenant({name!r}) opens it.") from error
    return key


def _hide_conversations(connection: Connection, tenant: int) -> None:
    """Take all conversations of a tenant out of sight."""
    where = conversations.c.tenant_id == tenant
    connection.execute(update(conversations).where(where).values(status=DELETED, external_id=None))


def _delete_rows(connection: Connection, tenant: int) -> None:
    """Remove a tenant whose conversations are purged, with its ledger."""
    for table in (usage_daily_models, usage_daily, usage_days, tool_sets, tool_definitions, configs, blobs):
        connection.execute(delete(table).where(table.c.tenant_id == tenant))
    connection.execute(delete(tenants).where(tenants.c.id == tenant))
    # Last, for it has no foreign key: who has begun to append has ended, because the tenant's conversations are gone.
    connection.execute(delete(usage_records).where(usage_records.c.tenant_id == tenant))
