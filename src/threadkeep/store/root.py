"""The database behind a store: opened once, with the tenant of a store that has none."""

from __future__ import annotations

from sqlalchemy import Engine

from threadkeep.db import schema
from threadkeep.store import tenants
from threadkeep.store.transactions import Transactions


class StoreRoot:
    """The database shared by a store and the stores derived from it; opened once."""

    def __init__(self, engine: Engine, transactions: Transactions, *, has_tenants: bool, url: str | None) -> None:
        self._engine, self._transactions, self._has_tenants, self._url = engine, transactions, has_tenants, url
        self.is_open = False
        self._default_tenant = tenants.NO_TENANT

    def open(self) -> None:
        """Check the schema, or set up an empty SQLite database."""
        if not self.is_open:
            if self._transactions.read(lambda connection: schema.needs_set_up(connection, self._url)):
                schema.upgrade(self._engine)
            if not self._has_tenants:
                self._default_tenant = tenants.find_default_tenant(self._transactions)
            self.is_open = True

    def default_tenant(self, transactions: Transactions, *, create: bool) -> int:
        """Return the tenant of a store without tenants; only calls with `create` create it, so that reads never write.

        Within the caller's transaction, the new tenant may be rolled back again, so it is not remembered.
        """
        self.open()
        tenant = self._default_tenant or tenants.find_default_tenant(transactions)
        if create and tenant == tenants.NO_TENANT:
            tenant = tenants.create_default_tenant(transactions)
        if transactions.commits_itself:
            self._default_tenant = tenant
        return tenant
