"""URLs with several hosts: the servers of a cluster, of which any that can be written to will do.

``postgresql://app@a,b:5433/chat`` is libpq's own form, and libpq tries one host after the other. The drivers of MariaDB
take one host, so the trying is done here: first the host that answered last, then the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from threadkeep.db.refusals import is_read_only
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from ssl import SSLContext

ATTRIBUTES: Final = "target_session_attrs"  # libpq's name for the kind of server that is wanted
WRITABLE, ANY = "read-write", "any"  # two of its values, and all that are known on MariaDB

_SEVERAL: Final = re.compile(
    r"(?P<before>[A-Za-z][\w+]*://(?:[^/?]*@)?)(?P<hosts>[^/?@]*,[^/?@]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(?::(?P<port>[0-9]{1,5}))?")
_PORT: Final = 3306


def spelled_out(url: str) -> str:
    """Return a URL with several hosts as SQLAlchemy writes it: ``…@/chat?host=a:5432&host=b:5433``; others as they are.

    Raises:
        InvalidOption: one of the hosts is none.
    """
    found = _SEVERAL.fullmatch(url)
    if found is None:
        return url
    hosts = found["hosts"].split(",")
    for host in hosts:
        _address(host)
    query = "&".join([*(f"host={host}" for host in hosts), *filter(None, [found["query"]])])
    return f"{found['before']}{found['path'] or '/'}?{query}"


def hosts_of(url: URL) -> tuple[str, ...]:
    """The hosts of a URL that has several."""
    given = url.query.get("host", ())
    return given if isinstance(given, tuple) else ()


def with_hosts(url: str, hosts: Sequence[str]) -> str:
    """The text of a URL without a host, with these hosts."""
    return re.sub("(?<=//)(?=/)|(?<=@)(?=/)", lambda _: ",".join(hosts), url, count=1) if hosts else url


def with_attributes(url: URL, attributes: str) -> URL:
    """A URL of several servers that says which of them is wanted, unless it does so already."""
    if not hosts_of(url) or ATTRIBUTES in url.query:
        return url
    return url.update_query_dict({ATTRIBUTES: attributes})


def attributes_of(url: URL) -> tuple[URL, bool]:
    """Return a URL for a driver that does not know the kind of server, and whether one is wanted that takes writes.

    Raises:
        InvalidOption: another kind is wanted.
    """
    given = url.query.get(ATTRIBUTES, WRITABLE)
    if given not in {WRITABLE, ANY}:
        hint = f"Write {ATTRIBUTES}={WRITABLE} or {ATTRIBUTES}={ANY}."
        raise InvalidOption(f"has a {ATTRIBUTES} that MariaDB's drivers do not know.", argument="url", hint=hint)
    return url.difference_update_query([ATTRIBUTES]), given == WRITABLE


def try_in_turn(engine: Engine, hosts: Sequence[str], *, is_writable: bool) -> None:
    """Let an engine on MariaDB connect to the first of these hosts that answers, and takes writes if that is wanted."""
    order = [_address(host) for host in hosts]

    def connect(dialect: Dialect, _record: object, arguments: Any, options: dict[str, Any]) -> Any:
        refusals: list[Exception] = []
        for address in tuple(order):
            try:
                connection = _connected(
                    dialect, arguments, {**options, "host": address[0], "port": address[1]}, is_writable=is_writable
                )
            except (dialect.loaded_dbapi.Error, OSError) as error:
                refusals.append(error)
                continue
            with suppress(ValueError):  # another thread is doing the same
                order.remove(address)
                order.insert(0, address)  # the first one, next time; the others keep their order
            return connection
        raise refusals[-1]

    event.listen(engine, "do_connect", connect)


def leave_unusable(engine: Engine) -> None:
    """Let an engine of several hosts give up connections to a server that cannot be written to any more.

    They count as lost, which is how they are replaced and the transaction is repeated.
    """
    dialect: Any = engine.dialect
    is_lost = dialect.is_disconnect

    def is_disconnect(error: Any, connection: Any, cursor: Any) -> bool:
        return is_read_only(error) or bool(is_lost(error, connection, cursor))

    dialect.is_disconnect = is_disconnect


def _connected(dialect: Dialect, arguments: Any, options: dict[str, Any], *, is_writable: bool) -> Any:
    """A connection; not to a server that has left its cluster, or, if it is to be written to, only follows another."""
    connection = dialect.connect(*arguments, **options)
    cursor = connection.cursor()
    try:
        cursor.execute("SELECT @@global.read_only")
        is_read_only = any(row[0] for row in cursor.fetchall())
    except BaseException:
        connection.close()
        raise
    finally:
        cursor.close()
    if is_read_only and is_writable:
        connection.close()
        raise dialect.loaded_dbapi.OperationalError(1290, "The server is read-only.")
    return connection


def _address(host: str) -> tuple[str, int]:
    found = _HOST.fullmatch(host)
    if found is None:
        hint = "Write host or host:port, with commas between them and without spaces."
        raise InvalidOption("is not a database URL: one of its hosts is none.", argument="url", hint=hint)
    return found["name"].strip("[]"), int(found["port"] or _PORT)


# ---------------------------------------------------------------------------------------------------------------------
# TLS on MariaDB and MySQL: PyMySQL offers it on every connection, and verifies nothing unless the URL says so


def share_context(engine: Engine) -> None:
    """Share one TLS context among the PyMySQL connections of an engine without TLS settings."""
    if engine.dialect.driver == "pymysql":
        dialect: Any = engine.dialect
        dialect.connect = _connection_class()


@cache
def _connection_class() -> Any:
    from pymysql.connections import Connection  # noqa: PLC0415 - an optional driver

    class SharingConnection(Connection):  # type: ignore[misc]  # PyMySQL has no types
        shared: SSLContext | None = None

        def _create_ssl_ctx(self, sslp: Any) -> Any:
            """Return a context for these options; without any, the one of all connections."""
            if sslp:
                return super()._create_ssl_ctx(sslp)
            if SharingConnection.shared is None:
                SharingConnection.shared = super()._create_ssl_ctx(sslp)
            return SharingConnection.shared

    return SharingConnection


# ---------------------------------------------------------------------------------------------------------------------
# Connections that were lost: others of their pool may be, too, as after a restart of the server


def invalidate_lost(connection: Connection, error: BaseException) -> None:
    """Invalidate a connection that was lost, and let its pool renew those that are as old when they are taken next.

    SQLAlchemy does so where a statement of its own fails. To dispose of the pool would be more than that: those that
    are in use would no longer count for its limit, and would be left open.
    """
    if not connection.invalidated:
        with suppress(DBAPIError):
            connection.exec_driver_sql("SELECT 1")
    connection.invalidate(error)
