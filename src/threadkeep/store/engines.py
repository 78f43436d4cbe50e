"""Engines: from a URL to a database that behaves the way the use cases expect."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from sqlite3 import OperationalError
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from threadkeep.db import hosts, loops, poolers, sessions, tls
from threadkeep.db.dialects import is_mysql
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session as OrmSession

E = TypeVar("E", bound="Engine | AsyncEngine")

BUSY_SECONDS: Final = 60
SWITCH_SECONDS: Final = 1  # how long to wait for others before a file gets a write-ahead log
# After how many pages SQLite copies its log into the file; a turn writes about 30, many of them again and again. With
# its default of 1,000, turns take 8 % more CPU time. The index of a log has another part for every 4,096 pages.
CHECKPOINT_PAGES: Final = 4_000
REPLICA_SECONDS: Final = 3  # how long a replica has to answer, unless its URL says so; then the primary is read

# URL scheme -> SQLAlchemy driver (sync, async) and the extra that installs it
_DRIVERS: Final = {
    "sqlite": ("sqlite", "sqlite", ""),
    "postgresql": ("postgresql+psycopg", "postgresql+psycopg", "postgres"),
    "mysql": ("mysql+pymysql", "mysql+asyncmy", "mysql"),
    "mariadb": ("mariadb+pymysql", "mariadb+asyncmy", "mysql"),
}

# other ways to write these drivers
_SPELLINGS: Final = {"sqlite+pysqlite": "sqlite", "postgresql+psycopg_async": "postgresql+psycopg"}

_FILE_ENDINGS: Final = (".db", ".sqlite", ".sqlite3", ".db3")
_NAME: Final = re.compile(r"[\w./ -]{,80}")  # has no password in it

_READY: Final = "threadkeep_ready"


class _Unknown:
    """Stands for a class that nobody has loaded: nothing is an instance of it."""


def _class(module: str, name: str) -> type[Any]:
    """A class of SQLAlchemy's asyncio or ORM, which take long to import: whoever has an instance has loaded it."""
    found: type[Any] = getattr(sys.modules.get(f"sqlalchemy.{module}"), name, _Unknown)
    return found


def engine_for(url: str | URL | Engine) -> Engine:
    """Return the engine of a Store; raise MissingExtra if its driver is not installed."""
    if isinstance(url, _class("ext.asyncio", "AsyncEngine")):
        hint = "Open an AsyncStore, or pass a URL or an Engine."
        raise InvalidOption("is an AsyncEngine, which is for an AsyncStore.", argument="url", hint=hint)
    if isinstance(url, Engine):
        _check_driver(url, is_async=False)
        if url.dialect.name == "sqlite" and not event.contains(url, "checkout", _on_checkout):
            event.listen(url, "checkout", _on_checkout)  # it may have connections already
        poolers.watch(url, is_owned=False)
        return url
    _check_folder(parsed_url(url))
    engine = _created(create_engine, url, is_async=False)
    tls.share_context(engine)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def async_engine_for(url: str | URL | AsyncEngine) -> AsyncEngine:
    """Return the engine of an AsyncStore on PostgreSQL or MySQL; errors as for `engine_for`."""
    given: Any = url
    if isinstance(given, _class("ext.asyncio", "AsyncEngine")):
        engine: AsyncEngine = given
        _check_driver(engine.sync_engine, is_async=True)
        poolers.watch(engine.sync_engine, is_owned=False)
    else:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - not needed by a Store

        engine = _created(create_async_engine, given, is_async=True)
    loops.watch(engine.sync_engine)
    return engine


def replica_for(read_url: Any, primary: Engine, *, is_async: bool) -> Engine:
    """Return the engine of a replica.

    Raises:
        InvalidOption: it is of another kind of database than the primary, or of one that has no replicas.
    """
    url = read_url.url if hasattr(read_url, "dialect") else read_url
    try:
        found = parsed_url(url)
        _check_replica(found, primary)
        if url is not read_url:
            return async_engine_for(read_url).sync_engine if is_async else engine_for(read_url)
        found = hosts.with_attributes(found, hosts.ANY)
        if "connect_timeout" not in found.query:
            found = found.update_query_dict({"connect_timeout": str(REPLICA_SECONDS)})
        return async_engine_for(found).sync_engine if is_async else engine_for(found)
    except InvalidOption as error:
        raise InvalidOption(error.message, argument="read_url", hint=error.hint) from error.__cause__


def _check_replica(url: URL, primary: Engine) -> None:
    kinds = {name.replace("mysql", "mariadb") for name in (url.get_backend_name(), primary.dialect.name)}
    if len(kinds) > 1 or "sqlite" in kinds:
        raise InvalidOption("names no replica of the server in `url`, which must be PostgreSQL or MariaDB.")


def _created(create: Callable[..., E], url: str | URL, *, is_async: bool) -> E:
    target, extra = _resolved(url, is_async=is_async)
    if extra == "mysql" and not target.database:
        raise _not_a_url("it names no database", f"Write {target.get_backend_name()}://user@host/NAME.")
    target, threshold = poolers.threshold_of(target)
    servers = hosts.hosts_of(target)
    target, is_writable = hosts.with_attributes(target, hosts.WRITABLE), True  # a store writes
    if servers and extra == "mysql":
        target, is_writable = hosts.attributes_of(target)
    options = _options(target)
    if threshold:
        options["connect_args"] = threshold
    try:
        engine = create(target, hide_parameters=True, **options)
    except ImportError as error:
        raise MissingExtra(extra, f"The database {target.get_backend_name()}") from error
    sessions.watch(engine)
    if not threshold:
        poolers.watch(engine, is_owned=True)
    if servers:
        made: Any = engine
        _follow(getattr(made, "sync_engine", made), servers, is_writable=is_writable)
    return engine


def _follow(engine: Engine, servers: tuple[str, ...], *, is_writable: bool) -> None:
    """Let an engine find the server of a cluster that is wanted, now and whenever it is another one."""
    hosts.leave_unusable(engine)
    if is_mysql(engine.dialect):
        hosts.try_in_turn(engine, servers, is_writable=is_writable)


def host_connection(host: object) -> Connection | OrmSession:
    """Return the connection or session whose transaction a store uses."""
    target: Any = host() if isinstance(host, _class("orm", "scoped_session")) else host
    if isinstance(target, (Connection, _class("orm", "Session"))):
        found: Connection | OrmSession = target
        return found
    raise mismatch(InvalidOption, "the Connection or Session whose transaction is used", host, "host")


def async_host_connection(host: object) -> Connection | OrmSession:
    """The blocking connection or session inside that of an application that uses asyncio; errors as above."""
    target: Any = host() if isinstance(host, _class("ext.asyncio", "async_scoped_session")) else host
    if isinstance(target, _class("ext.asyncio", "AsyncSession")):
        session: OrmSession = target.sync_session
        return session
    if isinstance(target, _class("ext.asyncio", "AsyncConnection")):
        connection: Connection | None = target.sync_connection
        if connection is not None:
            return connection
        raise InvalidOption("is not open: it is closed, or was not awaited.", argument="host", hint="Open it first.")
    raise mismatch(InvalidOption, "the AsyncConnection or AsyncSession whose transaction is used", host, "host")


def isolation_levels(dialect: Dialect, *, is_owned: bool) -> tuple[IsolationLevel | None, IsolationLevel | None]:
    """The isolation levels of reading and writing, where they are not what the engine does anyway.

    Single statements need no transaction: on PostgreSQL autocommit saves BEGIN and ROLLBACK. On MySQL every statement
    must see what is committed. Engines that are made here are set up so already, because switching takes time.
    """
    if is_owned:
        return None, None
    if dialect.name == "postgresql":
        return "AUTOCOMMIT", None
    return ("READ COMMITTED", "READ COMMITTED") if is_mysql(dialect) else (None, None)


def is_sqlite(url: str | URL | Engine | AsyncEngine) -> TypeGuard[str | URL | Engine]:
    """Return whether an AsyncStore for it runs in worker threads."""
    if isinstance(url, Engine):
        return url.dialect.name == "sqlite"
    return not isinstance(url, _class("ext.asyncio", "AsyncEngine")) and parsed_url(url).get_backend_name() == "sqlite"


def parsed_url(url: Any) -> URL:
    """Parse a database URL. Error messages only contain its dialect, because it may contain a password."""
    spelled_out = hosts.spelled_out(url) if isinstance(url, str) else url
    try:
        found = make_url(spelled_out)
    except (ArgumentError, ValueError) as error:
        is_port = isinstance(url, str) and not isinstance(error, ArgumentError)
        # The cause would show the URL, or pieces of it.
        raise _not_a_url("its port is not a number" if is_port else _given(url), _url_hint(url)) from None
    if "\x00" in "".join(map(str, found[:-1])) or "%00" in str(found):
        raise _not_a_url("there is a NUL character in it", "Write the name of the database without it.")
    if not found.drivername.startswith("sqlite") and _has_two_hosts(found, url):
        raise _not_a_url("there are two @ in it", "Write %40 for one in a password.")
    return found


def _has_two_hosts(found: URL, url: Any) -> bool:
    """Whether there is another @: what follows the first one of a password would be the host and more, and be shown."""
    given = url.partition("://")[2] if isinstance(url, str) else ""
    query = (given.partition("@")[2] or given).partition("?")[2]
    return "@" in f"{found.host}{found.database}" or any("@" in one and "=" not in one for one in query.split("&"))


def _not_a_url(reason: str, hint: str) -> InvalidOption:
    return InvalidOption(f"is not a database URL: {reason}.", argument="url", hint=hint)


def _given(url: object) -> str:
    """What was given instead of a URL; what may have a password in it is not shown."""
    if not isinstance(url, str):
        return f"it is a value of type {type(url).__name__}"
    name = url.removeprefix("sqlite:")
    return f"{url.partition(':')[0][:20]!r}…" if not _NAME.fullmatch(name) else repr(url)


def _url_hint(url: object) -> str:
    """What to write instead: for the name of a file, its URL."""
    name = url.removeprefix("sqlite:") if isinstance(url, str) else ""
    if name.endswith(_FILE_ENDINGS) and "@" not in name and "://" not in name:
        return f"Did you mean 'sqlite:///{name}'?"
    return "Examples: sqlite:///chat.db, postgresql://user@host:5432/db."


def shown_url(url: Any) -> str:
    """Return a database URL for messages: without its password and parameters, which may also contain one."""
    found = parsed_url(url)
    return hosts.with_hosts(found.set(query={}).render_as_string(hide_password=True), hosts.hosts_of(found))


def command_url(engine: Engine) -> str | None:
    """The URL of an engine made here, for the command line; None if it has parameters, without which it is another."""
    url = engine.url.difference_update_query(["charset", "client_encoding"])
    return None if url.query else url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def _check_driver(engine: Engine, *, is_async: bool) -> None:
    """Reject an engine with a driver that threadkeep does not use, and say which URL to use."""
    dialect = engine.dialect
    _resolved(engine.url.set(drivername=f"{dialect.name}+{dialect.driver}"), is_async=is_async)


def _resolved(url: str | URL, *, is_async: bool) -> tuple[URL, str]:
    target = parsed_url(url)
    backend = target.get_backend_name()
    if backend not in _DRIVERS:
        hint = "Write postgresql:// instead of postgres://." if backend == "postgres" else _url_hint(None)
        problem = f"is of {backend!r}; threadkeep runs on SQLite, PostgreSQL, MySQL and MariaDB."
        raise InvalidOption(problem, argument="url", hint=hint)
    sync_driver, async_driver, extra = _DRIVERS[backend]
    driver = async_driver if is_async else sync_driver
    given = _SPELLINGS.get(target.drivername, target.drivername)
    if given not in {driver, backend}:
        wanted = {"sqlite": "Python's own sqlite3"}.get(driver, driver.partition("+")[2])
        hint = f"{'An AsyncStore' if is_async else 'A Store'} on {backend} uses {wanted}: write {backend}://…"
        problem = f"names the driver of {target.drivername}://, which threadkeep does not use."
        raise InvalidOption(problem, argument="url", hint=hint)
    if backend == "sqlite" and target.host:
        raise _not_a_url("it has a host", "After sqlite: come three slashes, as in sqlite:///chat.db.")
    target = target.set(drivername=driver)
    if extra == "mysql":
        target = sessions.with_charset(target)
    elif extra == "postgres":
        target = sessions.with_encoding(target)
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
        # Every statement sees what is committed, as on PostgreSQL.
        options |= {"isolation_level": "READ COMMITTED", "connect_args": sessions.connect_arguments(url)}
    return options


def is_sqlite_file(url: URL) -> bool:
    """Return whether this is a SQLite file, where connections cost next to nothing."""
    name = url.database or ":memory:"
    return url.get_backend_name() == "sqlite" and ":memory:" not in name and url.query.get("mode") != "memory"


def keeps_connections(engine: Engine) -> bool:
    """Return whether transactions keep connections of an engine that was made here; those of asyncio have a loop."""
    return is_sqlite_file(engine.url) or (engine.dialect.name == "postgresql" and not engine.dialect.is_async)


def is_same_database(one: Engine, other: Engine) -> bool:
    """Return whether two engines are for one database, as far as their URLs tell: a host can have several names."""
    if one is other:
        return True
    ours, theirs = one.url, other.url
    if is_sqlite_file(ours) and is_sqlite_file(theirs):
        files = (Path(str(url.database).removeprefix("file:").partition("?")[0]).resolve() for url in (ours, theirs))
        return next(files) == next(files)
    backends = {url.get_backend_name().replace("mariadb", "mysql") for url in (ours, theirs)}
    is_server = len(backends) == 1 and "sqlite" not in backends
    return is_server and (ours.host, ours.port, ours.database) == (theirs.host, theirs.port, theirs.database)


def _check_folder(url: URL) -> None:
    """Reject the URL of a file that SQLite cannot create."""
    name = str(url.database)
    if is_sqlite_file(url) and not name.startswith("file:") and not (folder := Path(name).parent).is_dir():
        raise InvalidOption(f"There is no directory {str(folder)!r} for the database.", hint="Create it first.")


def _on_checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    if _READY not in record.info:
        _prepare_sqlite(connection, record)
        record.info[_READY] = True


def _prepare_sqlite(connection: Any, record: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    """Foreign keys, write-ahead log and patience; and what is deleted is overwritten."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA secure_delete=ON")
    cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    cursor.execute(f"PRAGMA busy_timeout={SWITCH_SECONDS * 1000}")
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except OperationalError as error:
            # A file that may only be read, or that others use, goes on as it is; the next connection tries again.
            if "readonly" not in str(error) and "locked" not in str(error):
                raise
    cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    cursor.close()
