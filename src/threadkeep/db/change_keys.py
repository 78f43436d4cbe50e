"""The keys of the change feed, which the database makes, so that they are in the order of its commits.

A writer makes the key of a change while it has the lock on the conversation, so the changes of a conversation have
increasing keys. They are microseconds of the database's clock since 2025, and 12 bits that differ between rows. On
SQLite, which has one writer at a time, a key is larger than all others whatever the clock says.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger, Boolean, Text

from threadkeep.db.functions import sql_function

EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)
SERIALS: Final = 1 << 12  # the keys of a microsecond
_EPOCH_US: Final = int(EPOCH.timestamp()) * 1_000_000
_LAST_US: Final = 1 << 50  # in 2060; a clock that shows a later time is not believed

_CLOCKS: Final = {
    "sqlite": (
        f"(min(max(CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) - {_EPOCH_US}, 0), {_LAST_US})"
        f" * {SERIALS})"
    ),
    "postgresql": f"(((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {_EPOCH_US}) * {SERIALS})",
    "mysql": f"(timestampdiff(microsecond, '{EPOCH:%Y-%m-%d}', utc_timestamp(6)) * {SERIALS})",
}
_LAST_KEY: Final = "(SELECT max(id) FROM threadkeep_changes WHERE tenant_id = {1})"

# The first key of this microsecond
key_now: Final = sql_function("key_now", returns=BigInteger(), **_CLOCKS)
# The key of a new change; arguments: a number below SERIALS, and the tenant
change_key: Final = sql_function(
    "change_key", returns=BigInteger(), postgresql=f"({_CLOCKS['postgresql']} + {{0}})",
    mysql=f"({_CLOCKS['mysql']} + {{0}})", sqlite=f"max(coalesce({_LAST_KEY}, 0) + 1, {_CLOCKS['sqlite']})",
)  # fmt: skip
# These have a value on PostgreSQL alone: the number of the current transaction, which transactions have ended, and
# whether the server is a replica
transaction_number: Final = sql_function(
    "transaction_number", "NULL", BigInteger(), postgresql="pg_current_xact_id()::text::bigint"
)
snapshot_now: Final = sql_function("snapshot_now", "NULL", Text(), postgresql="pg_current_snapshot()::text")
is_replica: Final = sql_function("is_replica", "NULL", Boolean(), postgresql="pg_is_in_recovery()")


def key_at(moment: datetime) -> int:
    """The first key of a moment; 0 for those before all keys."""
    return max((moment - EPOCH) // timedelta(microseconds=1), 0) * SERIALS
