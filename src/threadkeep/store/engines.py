"""Engines: from a URL to a database that behaves the way the use cases expect."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, async_scoped_session, create_async_engine
from sqlalchemy.orm import scoped_session
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from threadkeep.domain.objects import shown
from threadkeep.errors import InvalidOption, MissingExtra

BUSY_SECONDS: Final = 60

# URL scheme -> SQLAlchemy driver (sync, async) and the extra that installs it
_DRIVERS: Final = {
    "sqlite": ("sqlite", "sqlite", ""),
    "postgresql": ("postgresql+psycopg", "postgresql+psycopg", "postgres"),
    "mysql": ("mysql+pymysql", "mysql+asyncmy", "mysql"),
    "mariadb": ("mariadb+pymysql", "mariadb+asyncmy", "mysql"),
}

# other ways to write these drivers
_SPELLINGS: Final = {"sqlite+pysqlite": "sqlite", "postgresql+psycopg_async": "postgresql+psycopg"}

_READY: Final = "threadkeep_ready"


def engine_for(url: str | URL | Engine) -> Engine:
    """The engine of a Store.

    Raises:
        InvalidOption: the URL names no database that threadkeep runs on.
        MissingExtra: its driver is not installed.
    """
    if isinstance(url, AsyncEngine):
        raise InvalidOption("A Store takes a URL or an Engine; an AsyncEngine is for an AsyncStore.")
    if isinstance(url, Engine):
        found = url
    else:
        target, extra = _resolved(url, is_async=False)
        try:
            found = create_engine(target, **_options(target))
        except ImportError as error:
            raise MissingExtra(extra, f"The database {target.get_backend_name()}") from error
    if found.dialect.name == "sqlite":
        _prepare_sqlite(found)
    return found


def async_engine_for(url: str | URL | AsyncEngine) -> AsyncEngine:
    """The engine of an AsyncStore on PostgreSQL or MySQL; errors as in `engine_for`."""
    if isinstance(url, AsyncEngine):
        return url
    target, extra = _resolved(url, is_async=True)
    try:
        return create_async_engine(target, **_options(target))
    except ImportError as error:
        raise MissingExtra(extra, f"The database {target.get_backend_name()}") from error


def host_of(host: object, *kinds: type) -> Any:
    """The connection or session, of one of these kinds, in whose transaction a store works.

    Raises:
        InvalidOption: it is none of them, and no scoped session that stands for one.
    """
    found = host() if isinstance(host, scoped_session | async_scoped_session) else host
    if not isinstance(found, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidOption(f"within takes the {names} whose transaction the store works in, not {shown(host)}.")
    return found


def is_sqlite(url: object) -> bool:
    """Whether an AsyncStore for it runs in worker threads."""
    if isinstance(url, Engine):
        return url.dialect.name == "sqlite"
    return not isinstance(url, AsyncEngine) and parsed_url(url).get_backend_name() == "sqlite"


def parsed_url(url: Any) -> URL:
    """A database URL.

    Raises:
        InvalidOption: it is none. The message shows nothing of it but its kind, for it may hold a password.
    """
    try:
        found = make_url(url)
    except (ArgumentError, ValueError) as error:
        is_port = isinstance(url, str) and not isinstance(error, ArgumentError)
        given = f"{url.partition(':')[0][:20]!r}…" if isinstance(url, str) else f"a value of type {type(url).__name__}"
        reason = "its port is no number" if is_port else f"{given} is none"
        # The cause would show the URL, or pieces of it.
        raise InvalidOption(
            f"This is not a database URL: {reason}. Examples: sqlite:///chat.db, postgresql://user@host:5432/db."
        ) from None
    if "@" in (found.host or ""):  # what follows the first @ of the password would be the host, and be shown
        raise InvalidOption("This is not a database URL: there are two @ in it. Write %40 for one in a password.")
    return found


def shown_url(url: Any) -> str:
    """A database URL for messages: without its password, and without parameters, which may hold one, too.

    Raises:
        InvalidOption: it is none.
    """
    return parsed_url(url).set(query={}).render_as_string(hide_password=True)


def _resolved(url: str | URL, *, is_async: bool) -> tuple[URL, str]:
    target = parsed_url(url)
    backend = target.get_backend_name()
    if backend not in _DRIVERS:
        hint = " Write postgresql:// instead of postgres://." if backend == "postgres" else ""
        raise InvalidOption(f"threadkeep runs on SQLite, PostgreSQL, MySQL and MariaDB, not on {backend!r}.{hint}")
    sync_driver, async_driver, extra = _DRIVERS[backend]
    driver = async_driver if is_async else sync_driver
    given = _SPELLINGS.get(target.drivername, target.drivername)
    if given not in {driver, backend}:
        wanted = {"sqlite": "Python's own sqlite3"}.get(driver, driver.partition("+")[2])
        raise InvalidOption(
            f"threadkeep does not use the driver of {target.drivername}://. "
            f"{'An AsyncStore' if is_async else 'A Store'} on {backend} uses {wanted}: write {backend}://…"
        )
    if backend == "sqlite" and target.host:
        raise InvalidOption("This is not a database URL: after sqlite: come three slashes, as in sqlite:///chat.db.")
    target = target.set(drivername=driver)
    if extra == "mysql" and "charset" not in target.query:
        target = target.update_query_dict({"charset": "utf8mb4"})
    return target, extra


def _options(url: URL) -> dict[str, Any]:
    backend = url.get_backend_name()
    if backend == "sqlite":
        options: dict[str, Any] = {
            "connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False},
            "pool_timeout": BUSY_SECONDS,
            "max_overflow": -1,  # connections that are kept do not come back to the pool
        }
        if not is_sqlite_file(url):
            # One connection holds the whole database, so its users take turns.
            options |= {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
        return options
    options = {"pool_recycle": 3600, "pool_size": 10, "max_overflow": 20, "pool_timeout": BUSY_SECONDS}
    if backend == "postgresql":
        # What reads want; writes say BEGIN. Who begins a transaction ends it: a connection that comes back needs no
        # rollback, which under asyncio is a hop for nothing.
        options |= {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None}
    else:
        # Every statement sees what is committed, as on PostgreSQL; and no value is cut to fit its column.
        strict = "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',STRICT_ALL_TABLES')"
        options |= {"isolation_level": "READ COMMITTED", "connect_args": {"init_command": strict}}
    return options


def is_sqlite_file(url: URL) -> bool:
    """Whether this is SQLite, in a file: connections cost next to nothing there."""
    return url.get_backend_name() == "sqlite" and url.database not in {None, "", ":memory:"}


def _prepare_sqlite(engine: Engine) -> None:
    """Foreign keys, write-ahead log and patience, on every connection that is handed out."""
    if not event.contains(engine, "checkout", _on_checkout):
        event.listen(engine, "checkout", _on_checkout)


def _on_checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    if _READY in record.info:
        return
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()
    record.info[_READY] = True
