"""When the search index catches up with what was written."""

from __future__ import annotations

from collections import Counter
from typing import Final

from threadkeep.store.search import index
from threadkeep.store.transactions import Transactions

WRITES_PER_BATCH: Final = 128  # to conversations of a tenant


class IndexTrigger:
    """Makes the index catch up after every so many writes of a store; searches do not depend on it.

    `writes` to conversations are counted by tenant, by whoever writes, who calls `catch_up` after so many.
    """

    every = WRITES_PER_BATCH

    def __init__(self) -> None:
        self.writes: Counter[int] = Counter()

    def catch_up(self, transactions: Transactions, tenant: int) -> None:
        """Index a batch; an index that cannot be updated is logged, for what was written is."""
        try:
            transactions.write(lambda connection: index.index_batch(connection, tenant), is_repeatable=True)
        except Exception as error:  # noqa: BLE001 - whatever it is
            index.log_index_failure(error)
