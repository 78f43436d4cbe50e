"""Tenants: finding, creating and deleting them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Engine, and_, delete, insert, select, true
from sqlalchemy.exc import DBAPIError, IntegrityError

from threadkeep.db import engines, models, refusals, schema
from threadkeep.domain.ids import new_key
from threadkeep.errors import Conflict, DatabaseUnavailable, InvalidOption, NotFound
from threadkeep.store.media import collecting
from threadkeep.store.removing import batches, retention, rules
from threadkeep.store.work import refs, units, validation
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.transactions import Transactions

DEFAULT_TENANT: Final = "default"  # of a store without tenants
ROUNDS: Final = 10  # attempts to delete a tenant while conversations are being created for it

# What a tenant has many rows of that are not its conversations', by the column that orders them
_MANY: Final[tuple[Column[Any], ...]] = (
    models.usage_records.c.id, models.changes.c.id, models.appends.c.key, models.uploads.c.hash,
)  # fmt: skip
# What is not removed with conversations; children first
_TABLES: Final = (
    models.usage_daily_sketches, models.usage_daily_models, models.usage_daily, models.usage_days, models.tool_sets,
    models.tool_definitions, models.configs, models.uploads, models.blobs, models.api_keys,
)  # fmt: skip
NO_TENANT: Final = 0  # the id of none: nothing is stored for it


def find_default_tenant(transactions: Transactions) -> int:
    """The id of the only tenant of a store without tenants; NO_TENANT where nothing was stored yet."""
    return transactions.read(lambda connection: _find_tenant(connection, DEFAULT_TENANT)) or NO_TENANT


def list_tenants(transactions: Transactions) -> list[str]:
    """The names of all tenants, in order."""
    statement = select(models.tenants.c.name)
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


def get_tenant(transactions: Transactions, name: str) -> int:
    """The id of a tenant; see `Store.for_tenant`."""
    validation.identifier("tenant", name)
    tenant = transactions.read(lambda connection: _find_tenant(connection, name))
    if tenant is None:
        raise NotFound(f"There is no tenant {name!r}.", hint=f"create_tenant({name!r}) creates it.")
    return tenant


def create_tenant(transactions: Transactions, name: str) -> int:
    """Create a tenant; returns its id. See `Store.create_tenant`."""
    validation.identifier("tenant", name)
    return transactions.write(lambda connection: _insert_tenant(connection, name))


def delete_tenant(transactions: Transactions, tenant: int, resources: StoreResources) -> None:
    """Delete a tenant with all its data in many transactions; start again if conversations are created during it."""
    retention.check_blobs(transactions, tenant, resources)
    for _ in range(ROUNDS):
        # Remove the conversations that a tenant has now, then the other rows that it may have many of; what
        # comes during it is left: writers might never stop
        removal = batches.Batches(transactions, tenant, resources)
        column = models.conversations.c.id
        newest = removal.find(_find_last, column=column)
        if newest is not None:
            removal.purge_found(column <= newest)
        for column in _MANY:
            last = removal.find(_find_last, column=column)
            if last is not None:
                which = and_(true(), *_tenant_wide(column), column <= last)
                removal.run(rules.Rows(column.table, which, key=[column], name=column.table.name, is_indexed=False))
        removal.collect(is_strict=True)
        try:
            transactions.write(lambda connection: _delete_rows(connection, tenant), is_repeatable=True)
        except IntegrityError:  # a conversation needs its options
            continue
        if resources.blobs is not None:  # what no row named, and what could not be removed before
            collecting.remove_orphans(transactions, tenant, resources.blobs, datetime.now(UTC) + timedelta(days=1))
        return
    hint = "Delete it again when nothing uses it any more."
    raise Conflict("Conversations are still being created for this tenant.", hint=hint)


def _find_last(connection: Connection, tenant: int, column: Column[Any]) -> Any:
    """Return the last value of a column; None if there is none."""
    statement = select(column).where(column.table.c.tenant_id == tenant, *_tenant_wide(column))
    return connection.execute(statement.order_by(column.desc()).limit(1)).scalar()


def _tenant_wide(column: Column[Any]) -> list[ColumnElement[bool]]:
    """Conditions with which the key of a table begins with a column, behind the tenant."""
    return [models.appends.c.conversation_id == refs.TENANT_WIDE] if column.table is models.appends else []


def _find_tenant(connection: Connection, name: str) -> int | None:
    key: int | None = connection.execute(select(models.tenants.c.id).where(models.tenants.c.name == name)).scalar()
    return key


def _insert_tenant(connection: Connection, name: str) -> int:
    key = new_key()
    try:
        connection.execute(insert(models.tenants), {"id": key, "name": name, "created_at": datetime.now(UTC)})
    except IntegrityError as error:
        raise InvalidOption(f"There is a tenant {name!r} already.", hint=f"for_tenant({name!r}) opens it.") from error
    return key


def _delete_rows(connection: Connection, tenant: int) -> None:
    """Remove a tenant whose content is gone, with what little was added to its ledger and its change feed."""
    for table in _TABLES:
        connection.execute(delete(table).where(table.c.tenant_id == tenant))
    connection.execute(delete(models.tenants).where(models.tenants.c.id == tenant))
    # Last, for they have no foreign key: who has begun to append has ended, for the conversations are gone.
    for table in (models.usage_records, models.changes):
        connection.execute(delete(table).where(table.c.tenant_id == tenant))


# ---------------------------------------------------------------------------------------------------------------------
# The database behind a store: opened once, with the tenant of a store that has none


class StoreRoot:
    """The database shared by a store and the stores derived from it; opened once."""

    def __init__(
        self, engine: Engine, transactions: Transactions, end_stream: units.StreamEnder, *,
        has_tenants: bool, url: str | None,
    ) -> None:  # fmt: skip
        self.engine, self.end_stream, self.has_tenants = engine, end_stream, has_tenants
        self._transactions, self._url = transactions, url
        self.is_open = self._is_provisional = False  # made in a transaction of the caller, which may be rolled back
        self.known_tenant = NO_TENANT  # of a store without tenants

    def open(self, given: Transactions | None = None) -> None:
        """Check the schema, or set up an empty SQLite database: in a transaction of the caller, as a part of that.

        Raises:
            DatabaseUnavailable: no connection to it can be made.
            SchemaError: it does not have the schema that this version needs.
        """
        if self.is_open:
            return
        transactions = given or self._transactions
        try:
            is_empty = transactions.read(lambda connection: schema.needs_set_up(connection, self._url))
        except DBAPIError as error:
            if not refusals.is_unopened(error):
                raise
            url = self.engine.url.set(drivername=self.engine.url.get_backend_name())
            raise DatabaseUnavailable(engines.shown_url(url), str(error.orig)) from error
        if is_empty and transactions.sees_commit:
            schema.upgrade(self.engine)
        elif is_empty:
            self._is_provisional = True
            transactions.write(schema.set_up)
        if transactions.sees_commit and not self.has_tenants:
            self.known_tenant = find_default_tenant(transactions)
        self.is_open = transactions.sees_commit or not self._is_provisional

    def default_tenant(self, transactions: Transactions, *, create: bool) -> int:
        """Return the tenant of a store without tenants; only calls with `create` create it, so that reads never write.

        A new tenant may be rolled back again, so it is remembered after the commit.
        """
        self.open(transactions)
        tenant = self.known_tenant or find_default_tenant(transactions)
        if create and tenant == NO_TENANT:
            tenant = get_or_create_tenant(transactions, DEFAULT_TENANT)
        if transactions.sees_commit:
            transactions.after_commit(lambda _: setattr(self, "known_tenant", tenant))
        return tenant
