"""Tenants: finding, creating and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from threadkeep.db import tables
from threadkeep.domain.ids import new_key
from threadkeep.errors import Conflict, InvalidOption, NotFound
from threadkeep.store import batches, purging, retention
from threadkeep.store.handle import StoreResources
from threadkeep.store.media import orphans
from threadkeep.store.pacing import Done, Pace
from threadkeep.store.refs import TENANT_WIDE
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import identifier

DEFAULT_TENANT: Final = "default"  # of a store without tenants
ROUNDS: Final = 10  # attempts to delete a tenant while conversations are being created for it

# What a tenant has many rows of that are not its conversations': the column that orders them, what comes before all
# of its values, and what they are called
_MANY: Final[tuple[tuple[Column[Any], Any, str], ...]] = (
    (tables.usage_records.c.id, -1, "attempts"),
    (tables.changes.c.id, -1, "changes"),
    (tables.appends.c.key, "", "idempotency keys"),
    (tables.uploads.c.hash, b"", "uploads"),
)
# What is not removed with conversations; children first
_TABLES: Final = (
    tables.usage_daily_models, tables.usage_daily, tables.usage_days, tables.tool_sets, tables.tool_definitions,
    tables.configs, tables.uploads, tables.blobs, tables.api_keys,
)  # fmt: skip
NO_TENANT: Final = 0  # the id of none: nothing is stored for it


def find_default_tenant(transactions: Transactions) -> int:
    """The id of the only tenant of a store without tenants; NO_TENANT where nothing was stored yet."""
    return transactions.read(lambda connection: _find_tenant(connection, DEFAULT_TENANT)) or NO_TENANT


def list_tenants(transactions: Transactions) -> list[str]:
    """The names of all tenants, in order."""
    statement = select(tables.tenants.c.name)
    return sorted(transactions.read(lambda connection: connection.execute(statement).scalars().all()))


def get_or_create_tenant(transactions: Transactions, name: str) -> int:
    """The id of a tenant, which is created if there is none."""
    tenant = transactions.read(lambda connection: _find_tenant(connection, name))
    if tenant is not None:
        return tenant
    try:
        return transactions.write(lambda connection: _insert_tenant(connection, name), is_repeatable=True)
    except InvalidOption:  # another process was faster
        return get_tenant(transactions, name)


def create_default_tenant(transactions: Transactions) -> int:
    """Create the only tenant of a store without tenants, unless another process is faster; return its id."""
    return get_or_create_tenant(transactions, DEFAULT_TENANT)


def get_tenant(transactions: Transactions, name: str) -> int:
    """The id of a tenant; see `Store.for_tenant`."""
    identifier("tenant", name)
    tenant = transactions.read(lambda connection: _find_tenant(connection, name))
    if tenant is None:
        raise NotFound(f"There is no tenant {name!r}.", hint=f"create_tenant({name!r}) creates it.")
    return tenant


def create_tenant(transactions: Transactions, name: str) -> int:
    """Create a tenant; returns its id. See `Store.create_tenant`."""
    identifier("tenant", name)
    return transactions.write(lambda connection: _insert_tenant(connection, name))


def delete_tenant(transactions: Transactions, tenant: int, resources: StoreResources) -> None:
    """Delete a tenant with all its data in many transactions; start again if conversations are created meanwhile."""
    retention.check_blobs(transactions, tenant, resources)
    for _ in range(ROUNDS):
        _remove_content(batches.Batches(transactions, tenant, resources))
        try:
            transactions.write(lambda connection: _delete_rows(connection, tenant), is_repeatable=True)
        except IntegrityError:  # a conversation needs its options
            continue
        if resources.blobs is not None:  # what no row named, and what could not be removed before
            orphans.remove_orphans(transactions, tenant, resources.blobs, datetime.now(UTC) + timedelta(days=1))
        return
    hint = "Delete it again when nothing uses it any more."
    raise Conflict("Conversations are still being created for this tenant.", hint=hint)


def _remove_content(removal: batches.Batches) -> None:
    """Remove the conversations that a tenant has now, then the other rows that it may have many of.

    What comes meanwhile is left: those who write might never stop.
    """
    column = tables.conversations.c.id
    newest = removal.find(_find_last, column=column)
    if newest is not None:
        removal.purge_found(column <= newest)
    for column, first, what in _MANY:
        last = removal.find(_find_last, column=column)
        if last is not None:
            find = partial(_find_keys, column=column, upto=last)
            removal.change_behind(find, partial(_delete_keys, column=column), what, after=first)
    removal.collect(is_strict=True)


def _find_last(connection: Connection, tenant: int, column: Column[Any]) -> Any:
    """Return the last value of a column; None if there is none."""
    statement = select(column).where(*_rows_of(tenant, column)).order_by(column.desc()).limit(1)
    return connection.execute(statement).scalar()


def _find_keys(
    connection: Connection, tenant: int, after: Any, limit: int, column: Column[Any], upto: Any
) -> Sequence[Any]:
    """Return what some rows of a tenant have in a column, in order, behind one value and up to another."""
    statement = select(column).where(*_rows_of(tenant, column), column > after, column <= upto)
    return connection.execute(statement.order_by(column).limit(limit)).scalars().all()


def _delete_keys(connection: Connection, tenant: int, pace: Pace, keys: Sequence[Any], column: Column[Any]) -> Done:
    """Remove the rows that have these in a column."""
    statement = delete(column.table).where(*_rows_of(tenant, column))
    return pace.change(keys, lambda some: connection.execute(statement.where(column.in_(some))).rowcount)


def _rows_of(tenant: int, column: Column[Any]) -> list[ColumnElement[bool]]:
    """Conditions for the rows of a tenant that are not its conversations': with them, a key begins with the column."""
    table = column.table
    if table is tables.appends:
        return purging.of_conversation(table, tenant, TENANT_WIDE)
    return [table.c.tenant_id == tenant]


def _find_tenant(connection: Connection, name: str) -> int | None:
    key: int | None = connection.execute(select(tables.tenants.c.id).where(tables.tenants.c.name == name)).scalar()
    return key


def _insert_tenant(connection: Connection, name: str) -> int:
    key = new_key()
    try:
        connection.execute(insert(tables.tenants), {"id": key, "name": name, "created_at": datetime.now(UTC)})
    except IntegrityError as error:
        raise InvalidOption(f"There is a tenant {name!r} already.", hint=f"for_tenant({name!r}) opens it.") from error
    return key


def _delete_rows(connection: Connection, tenant: int) -> None:
    """Remove a tenant whose content is gone, with what little came meanwhile to its ledger and its change feed."""
    for table in _TABLES:
        connection.execute(delete(table).where(table.c.tenant_id == tenant))
    connection.execute(delete(tables.tenants).where(tables.tenants.c.id == tenant))
    # Last, for they have no foreign key: who has begun to append has ended, for the conversations are gone.
    for table in (tables.usage_records, tables.changes):
        connection.execute(delete(table).where(table.c.tenant_id == tenant))
