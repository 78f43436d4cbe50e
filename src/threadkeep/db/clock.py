"""The time of the database: what leases run by, because hosts do not agree about theirs.

On SQLite it is the time of the host, of which a file has one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, Float, bindparam, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from threadkeep.db.types import UtcDateTime


class from_now(FunctionElement[datetime]):  # noqa: N801 - reads as the SQL function that it is
    """The moment at which the database looks at it, or so many seconds later."""

    name = "from_now"
    type = UtcDateTime()
    inherit_cache = True


def seconds(name: str) -> BindParameter[float]:
    """A parameter of `from_now`."""
    return bindparam(name, type_=Float())


def read_clock(connection: Connection) -> datetime:
    """The time of the database."""
    now: datetime = connection.execute(_CLOCK).scalar_one()
    return now


_CLOCK: Final = select(from_now())


@compiles(from_now, "sqlite")
def _sqlite(element: from_now, compiler: SQLCompiler, **options: Any) -> str:
    """The text that `UtcDateTime` writes, of milliseconds."""
    later = compiler.process(element.clauses, **options)
    modifier = f", printf('%+f seconds', {later})" if later else ""
    return f"(strftime('%Y-%m-%d %H:%M:%f', 'now'{modifier}) || '000')"


@compiles(from_now, "postgresql")
def _postgresql(element: from_now, compiler: SQLCompiler, **options: Any) -> str:
    later = compiler.process(element.clauses, **options)
    return f"(clock_timestamp() + {later} * interval '1 second')" if later else "clock_timestamp()"


@compiles(from_now, "mysql")
@compiles(from_now, "mariadb")
def _mysql(element: from_now, compiler: SQLCompiler, **options: Any) -> str:
    later = compiler.process(element.clauses, **options)
    now = "utc_timestamp(6)"
    return f"timestampadd(microsecond, round({later} * 1000000), {now})" if later else now
