"""SQL functions that databases spell differently, so that each statement is written once for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, BindParameter, Boolean, Connection, Float, Select, Text, bindparam, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NULLTYPE, TypeEngine

from threadkeep.db.types import UtcDateTime

# A function is called with expressions and gives one. Any, because SQLAlchemy types columns by their values.
SqlFunction = Callable[..., Any]

_ARGUMENT: Final = re.compile(r"\{([0-9])\}")


def sql_function(
    name: str, default: str | None = None, returns: TypeEngine[Any] = NULLTYPE, **spellings: str
) -> SqlFunction:
    """A function by its spellings: dialect -> SQL, where {0} is the first argument; `default` is for the others.

    An argument that the SQL of a dialect does not name is not evaluated there, nor are its parameters passed. `mysql`
    stands for MariaDB, too.
    """
    kind: Any = type(name, (FunctionElement,), {"name": name, "type": returns, "inherit_cache": True})

    def compiled(element: FunctionElement[Any], compiler: Any, **options: Any) -> str:
        dialect, arguments = compiler.dialect.name, list(element.clauses)
        template = spellings.get("mysql" if dialect == "mariadb" else dialect, default)
        if template is None:
            raise TypeError(f"{name} has no spelling for {dialect}")
        parts = _ARGUMENT.split(compiler.escape_literal_column(template))
        parts[1::2] = [compiler.process(arguments[int(index)], **options) for index in parts[1::2]]
        return "".join(parts)

    compiles(kind)(compiled)
    spelled: SqlFunction = kind
    return spelled


# Values

# Text as bytes from SQLite, and as text from PostgreSQL where other texts come as bytes (see `Statement`)
as_bytes: Final = sql_function("as_bytes", "{0}", sqlite="CAST({0} AS BLOB)")
as_text: Final = sql_function("as_text", "{0}", postgresql="CAST({0} AS VARCHAR)")
# The bytes of a text; what SQLite calls octet_length is newer than most of its releases
byte_size: Final = sql_function("byte_size", "octet_length({0})", BigInteger(), sqlite="length(CAST({0} AS BLOB))")
# A parameter of bytes that may be NULL, of which PostgreSQL needs the type
typed_bytes: Final = sql_function("typed_bytes", "{0}", postgresql="CAST({0} AS BYTEA)")
least: Final = sql_function("least", "least({0}, {1})", sqlite="min({0}, {1})")
# A sum as a 64-bit integer: servers sum to decimals, which take longer to compute and to read. The first revision
# creates PostgreSQL's.
integer_sum: Final = sql_function(
    "integer_sum", "sum({0})", BigInteger(), postgresql="threadkeep_sum({0})", mysql="CAST(sum({0}) AS SIGNED INTEGER)"
)  # fmt: skip

# Order

bytewise: Final = sql_function("bytewise", "{0}", postgresql='{0} COLLATE "C"')
smallest_first: Final = sql_function("smallest_first", "{0} ASC NULLS LAST", mysql="{0} IS NULL, {0}")
largest_first: Final = sql_function("largest_first", "{0} DESC NULLS LAST", mysql="{0} DESC")


def as_committed(statement: Select[Any]) -> Select[Any]:
    """Read what is committed now, in a transaction that has locked the conversation.

    Under REPEATABLE READ, MySQL shows the state of the first statement to all statements but those that lock;
    PostgreSQL refuses to lock the conversation then.
    """
    lock = "LOCK IN SHARE MODE"
    return statement.suffix_with(lock, dialect="mysql").suffix_with(lock, dialect="mariadb")


# Days, and local times

days_between: Final = sql_function(
    "days_between", returns=BigInteger(), sqlite="(julianday({1}) - julianday({0}))", postgresql="({1} - {0})",
    mysql="datediff({1}, {0})",
)  # fmt: skip
milliseconds_between: Final = sql_function(
    "milliseconds_between", returns=BigInteger(),
    sqlite="CAST(round((julianday({1}) - julianday({0})) * 86400000) AS INTEGER)",
    postgresql="CAST(extract(epoch FROM ({1} - {0})) * 1000 AS bigint)",
    mysql="(timestampdiff(MICROSECOND, {0}, {1}) DIV 1000)",
)  # fmt: skip
# The local time of a moment that is so many seconds ahead of UTC. SQLite would round half a millisecond up, into the
# next day.
local_time: Final = sql_function(
    "local_time",
    sqlite="datetime(substr({0}, 1, 19), ({1}) || ' seconds')",
    postgresql="(timezone('UTC', {0}) + ({1}) * interval '1 second')",
    mysql="timestampadd(SECOND, {1}, {0})",
)
# The hour, or the first day of a week or month, that a local time or a day lies in
STARTS: Final = {
    "hour": sql_function(
        "start_of_hour", sqlite="strftime('%Y-%m-%d %H:00:00', {0})", postgresql="date_trunc('hour', {0})",
        mysql="date_format({0}, '%Y-%m-%d %H:00:00')",
    ),
    "day": sql_function(
        "start_of_day", sqlite="strftime('%Y-%m-%d', {0})", postgresql="CAST(date_trunc('day', {0}) AS DATE)",
        mysql="date({0})",
    ),
    "week": sql_function(
        "start_of_week", sqlite="date({0}, 'weekday 0', '-6 days')",
        postgresql="CAST(date_trunc('week', {0}) AS DATE)", mysql="subdate(date({0}), weekday({0}))",
    ),
    "month": sql_function(
        "start_of_month", sqlite="strftime('%Y-%m-01', {0})", postgresql="CAST(date_trunc('month', {0}) AS DATE)",
        mysql="date_format({0}, '%Y-%m-01')",
    ),
}  # fmt: skip

# The time of the database. Leases run by it, because hosts do not agree about theirs. On SQLite it is the host's clock:
# a file has one host. The text is the one that `UtcDateTime` writes, of milliseconds.
now: Final = sql_function(
    "database_now", returns=UtcDateTime(), sqlite="(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')",
    postgresql="clock_timestamp()", mysql="utc_timestamp(6)",
)  # fmt: skip
# So many seconds later
from_now: Final = sql_function(
    "from_now", returns=UtcDateTime(),
    sqlite="(strftime('%Y-%m-%d %H:%M:%f', 'now', printf('%+f seconds', {0})) || '000')",
    postgresql="(clock_timestamp() + {0} * interval '1 second')",
    mysql="timestampadd(microsecond, round({0} * 1000000), utc_timestamp(6))",
)  # fmt: skip


def seconds(name: str) -> BindParameter[float]:
    """A parameter of `from_now`."""
    return bindparam(name, type_=Float())


def read_clock(connection: Connection) -> datetime:
    """The time of the database."""
    found: datetime = connection.execute(_CLOCK).scalar_one()
    return found


_CLOCK: Final = select(now())


# The keys of the change feed, which the database makes, so that they are in the order of its commits. A writer makes
# the key of a change while it has the lock on the conversation, so the changes of a conversation have increasing keys.
# They are microseconds of the database's clock since 2025, and 12 bits that differ between rows. On SQLite, which has
# one writer at a time, a key is larger than all others whatever the clock says.

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
