"""The keys of the change feed, which the database makes, so that they are in the order of its commits.

A writer makes the key of a change while it has the lock on the conversation, so the changes of a conversation have
increasing keys. They are microseconds of the database's clock since 2025, and 12 bits that differ between rows. On
SQLite, which has one writer at a time, a key is larger than all others whatever the clock says.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)
SERIALS: Final = 1 << 12  # the keys of a microsecond
_EPOCH_US: Final = int(EPOCH.timestamp()) * 1_000_000
_LAST_US: Final = 1 << 50  # in 2060; a clock that shows a later time is not believed


class change_key(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """The key of a new change; arguments: a number below SERIALS, and the tenant."""

    name = "change_key"
    type = BigInteger()
    inherit_cache = True


class transaction_number(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """The number of the current transaction on PostgreSQL, NULL elsewhere."""

    name = "transaction_number"
    type = BigInteger()
    inherit_cache = True


class key_now(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """The first key of this microsecond."""

    name = "key_now"
    type = BigInteger()
    inherit_cache = True


def key_at(moment: datetime) -> int:
    """The first key of a moment; 0 for those before all keys."""
    return max((moment - EPOCH) // timedelta(microseconds=1), 0) * SERIALS


@compiles(key_now, "sqlite")
def _sqlite_now(_element: key_now, _compiler: SQLCompiler, **_options: Any) -> str:
    clock = f"CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) - {_EPOCH_US}"
    return f"(min(max({clock}, 0), {_LAST_US}) * {SERIALS})"


@compiles(key_now, "postgresql")
def _postgresql_now(_element: key_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return f"(((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {_EPOCH_US}) * {SERIALS})"


@compiles(key_now, "mysql")
@compiles(key_now, "mariadb")
def _mysql_now(_element: key_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return f"(timestampdiff(microsecond, '{EPOCH:%Y-%m-%d}', utc_timestamp(6)) * {SERIALS})"


@compiles(change_key)
def _change_key(element: change_key, compiler: SQLCompiler, **options: Any) -> str:
    serial, _ = element.clauses
    return f"({compiler.process(key_now(), **options)} + {compiler.process(serial, **options)})"


@compiles(change_key, "sqlite")
def _sqlite_change_key(element: change_key, compiler: SQLCompiler, **options: Any) -> str:
    _, tenant = element.clauses
    of_tenant = f"tenant_id = {compiler.process(tenant, **options)}"
    last = f"(SELECT max(id) FROM threadkeep_changes WHERE {of_tenant})"  # noqa: S608 - a parameter
    return f"max(coalesce({last}, 0) + 1, {compiler.process(key_now(), **options)})"


@compiles(transaction_number)
def _no_number(_element: transaction_number, _compiler: SQLCompiler, **_options: Any) -> str:
    return "NULL"


@compiles(transaction_number, "postgresql")
def _number(_element: transaction_number, _compiler: SQLCompiler, **_options: Any) -> str:
    return "pg_current_xact_id()::text::bigint"
