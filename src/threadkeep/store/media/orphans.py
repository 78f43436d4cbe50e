"""Objects in a blob store that no row names: what a killed writer, or a caller's rolled back transaction, has left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from sqlalchemy import Connection

from threadkeep.db.queries.items import places_of
from threadkeep.store.connections import run_blocking
from threadkeep.store.media.collecting import hash_set_aside
from threadkeep.store.media.placing import remove_objects, tenant_prefix
from threadkeep.store.media.stores import BlobStore
from threadkeep.store.transactions import Transactions

_NAME: Final = re.compile(r"[0-9]+/[0-9a-f]{2}/([0-9a-f]{64})-[0-9a-f]{16}")
_BATCH: Final = 500  # names that are looked up with one statement


def remove_orphans(transactions: Transactions, tenant: int, store: BlobStore, before: datetime) -> None:
    """Remove the objects of a tenant that no row names and that were written before a time."""
    names = run_blocking(store.names, tenant_prefix(tenant), before)
    while found := run_blocking(lambda: list(islice(names, _BATCH))):
        remove_objects(store, sorted(set(filter(_NAME.fullmatch, found)) - _named(transactions, tenant, found)))


def _named(transactions: Transactions, tenant: int, names: Sequence[str]) -> set[str]:
    hashes = {bytes.fromhex(match[1]) for match in map(_NAME.fullmatch, names) if match}
    hashes |= set(map(hash_set_aside, names))

    def read(connection: Connection) -> set[str]:
        rows = connection.execute(places_of(""), {"tenant": tenant, "hashes": sorted(hashes)})
        return {row.location for row in rows}

    return transactions.read(read)
