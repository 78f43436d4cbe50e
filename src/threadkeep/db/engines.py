"""Engines: from a URL to a database that behaves the way the use cases expect."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import ArgumentError

from threadkeep.db import hosts
from threadkeep.db.backends import NAMES, backend_named, backend_of, not_a_url
from threadkeep.domain.jsontext import mismatch
from threadkeep.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session as OrmSession

SQLITE_FILE: Final = b"SQLite format 3\x00"  # how the file of a SQLite database begins
REPLICA_SECONDS: Final = 3  # how long a replica has to answer, unless its URL says so; then the primary is read

# other ways to write these drivers
_SPELLINGS: Final = {"sqlite+pysqlite": "sqlite", "postgresql+psycopg_async": "postgresql+psycopg"}

_FILE_ENDINGS: Final = (".db", ".sqlite", ".sqlite3", ".db3")
_NAME: Final = re.compile(r"[\w./ -]{,80}|:memory:")  # has no password in it


class _Unknown:
    """Stands for a class that is not loaded: nothing is an instance of it."""


def _class(module: str, name: str) -> type[Any]:
    """A class of SQLAlchemy's asyncio or ORM, which take long to import: an instance only exists once it is loaded."""
    found: type[Any] = getattr(sys.modules.get(f"sqlalchemy.{module}"), name, _Unknown)
    return found


def engine_for(url: str | URL | Engine) -> Engine:
    """Return the engine of a Store; raise MissingExtra if its driver is not installed."""
    if isinstance(url, _class("ext.asyncio", "AsyncEngine")):
        hint = "Open an AsyncStore, or pass a URL or an Engine."
        raise InvalidOption("is an AsyncEngine, which is for an AsyncStore.", argument="url", hint=hint)
    return _adopted(url, is_async=False) if isinstance(url, Engine) else _made(create_engine, url, is_async=False)


def async_engine_for(url: str | URL | AsyncEngine) -> Engine:
    """Return the engine inside that of an AsyncStore on PostgreSQL or MySQL; errors as for `engine_for`."""
    given: Any = url
    if isinstance(given, _class("ext.asyncio", "AsyncEngine")):
        return _adopted(given.sync_engine, is_async=True)
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - not needed by a Store

    return _made(lambda *args, **options: create_async_engine(*args, **options).sync_engine, given, is_async=True)


def _adopted(engine: Engine, *, is_async: bool) -> Engine:
    """An engine of an application; InvalidOption for a driver that threadkeep does not use, with the URL to use."""
    dialect = engine.dialect
    _resolved(engine.url.set(drivername=f"{dialect.name}+{dialect.driver}"), is_async=is_async)
    backend_of(engine).adopt_engine(engine)
    return engine


def _made(create: Callable[..., Engine], url: str | URL, *, is_async: bool) -> Engine:
    target = _resolved(url, is_async=is_async)
    name = target.get_backend_name()
    backend = backend_named(name)
    try:
        return backend.make_engine(backend.checked_url(target), partial(create, hide_parameters=True))
    except ImportError as error:
        raise MissingExtra(backend.extra, f"The database {name}") from error


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
            return async_engine_for(read_url) if is_async else engine_for(read_url)
        found = hosts.with_attributes(found, hosts.ANY)
        if "connect_timeout" not in found.query:
            found = found.update_query_dict({"connect_timeout": str(REPLICA_SECONDS)})
        return async_engine_for(found) if is_async else engine_for(found)
    except InvalidOption as error:
        raise InvalidOption(error.message, argument="read_url", hint=error.hint) from error.__cause__


def _check_replica(url: URL, primary: Engine) -> None:
    backend = backend_of(primary)
    if not backend.has_replicas or NAMES.get(url.get_backend_name()) != backend.name:
        raise InvalidOption("names no replica of the server in `url`, which must be PostgreSQL or MariaDB.")


def host_connection(host: object) -> Connection | OrmSession:
    """Return the connection or session whose transaction a store uses."""
    target: Any = host() if isinstance(host, _class("orm", "scoped_session")) else host
    if isinstance(target, (Connection, _class("orm", "Session"))):
        found: Connection | OrmSession = target
        return found
    raise mismatch(InvalidOption, "the Connection or Session whose transaction is used", host, "host")


def async_host_connection(host: object) -> Connection | OrmSession:
    """The blocking connection or session inside an asyncio one of an application; errors as above."""
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


def runs_in_threads(url: str | URL | Engine | AsyncEngine) -> TypeGuard[str | URL | Engine]:
    """Return whether an AsyncStore for it runs in worker threads, because its driver has no asyncio."""
    if isinstance(url, Engine):
        return not backend_of(url).is_server
    if isinstance(url, _class("ext.asyncio", "AsyncEngine")):
        return False
    name = parsed_url(url).get_backend_name()
    return name in NAMES and not backend_named(name).is_server


def parsed_url(url: Any) -> URL:
    """Parse a database URL. Error messages only contain its dialect, because it may contain a password."""
    spelled_out = hosts.spelled_out(url) if isinstance(url, str) else url
    try:
        found = make_url(spelled_out)
    except (ArgumentError, ValueError) as error:
        is_port = isinstance(url, str) and not isinstance(error, ArgumentError)
        # The cause would show the URL, or pieces of it.
        raise not_a_url("its port is not a number" if is_port else _given(url), _url_hint(url)) from None
    if "\x00" in "".join(map(str, found[:-1])) or "%00" in str(found):
        raise not_a_url("there is a NUL character in it", "Write the name of the database without it.")
    if not found.drivername.startswith("sqlite") and _has_two_hosts(found, url):
        raise not_a_url("there are two @ in it", "Write %40 for one in a password.")
    return found


def _has_two_hosts(found: URL, url: Any) -> bool:
    """Whether there is another @: what follows the first one of a password would be the host and more, and be shown."""
    given = url.partition("://")[2] if isinstance(url, str) else ""
    query = (given.partition("@")[2] or given).partition("?")[2]
    return "@" in f"{found.host}{found.database}" or any("@" in one and "=" not in one for one in query.split("&"))


def _given(url: object) -> str:
    """What was given instead of a URL; what may have a password in it is not shown."""
    if not isinstance(url, str):
        return f"it is a value of type {type(url).__name__}"
    name = url.removeprefix("sqlite:")
    if _NAME.fullmatch(name):
        return repr(url)
    scheme = url.partition(":")[0][:20]
    return f"{scheme!r}…" if scheme else "it has no scheme"


def _url_hint(url: object) -> str:
    """What to write instead: for the name of a file, its URL."""
    name = url.removeprefix("sqlite:") if isinstance(url, str) else ""
    if name.endswith(_FILE_ENDINGS) and "@" not in name and "://" not in name:
        return f"Did you mean 'sqlite:///{name}'?"
    if ":memory:" in name:
        return "Write sqlite:// for a database in memory."
    return "Examples: sqlite:///chat.db, postgresql://user@host:5432/db."


def shown_url(url: Any) -> str:
    """Return a database URL for messages: without its password and parameters, which may also contain one."""
    found = parsed_url(url)
    return hosts.with_hosts(found.set(query={}).render_as_string(hide_password=True), hosts.hosts_of(found))


def command_url(engine: Engine) -> str | None:
    """The URL of an engine made here, for the command line; None if it has parameters, without which it is another."""
    url = engine.url.difference_update_query(["charset", "client_encoding"])
    return None if url.query else url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def _resolved(url: str | URL, *, is_async: bool) -> URL:
    target = parsed_url(url)
    name = target.get_backend_name()
    if name not in NAMES:
        hint = "Write postgresql:// instead of postgres://." if name == "postgres" else _url_hint(None)
        problem = f"is of {name!r}; threadkeep runs on SQLite, PostgreSQL, MySQL and MariaDB."
        raise InvalidOption(problem, argument="url", hint=hint)
    driver = "+".join(filter(None, (name, backend_named(name).drivers[is_async])))
    given = _SPELLINGS.get(target.drivername, target.drivername)
    if given not in {driver, name}:
        wanted = driver.partition("+")[2] or "Python's own sqlite3"
        hint = f"On {name}, this store uses {wanted}: write {name}://…"
        problem = f"has the driver of {target.drivername}://, which threadkeep does not use."
        raise InvalidOption(problem, argument="url", hint=hint)
    return target.set(drivername=driver)


def isolation_levels(engine: Engine, *, is_owned: bool) -> tuple[IsolationLevel | None, IsolationLevel | None]:
    """The isolation levels of reading and writing, where they are not what the engine does anyway.

    Engines that are made here are set up so already, because switching takes time.
    """
    return (None, None) if is_owned else backend_of(engine).host_isolation


def is_file(url: URL) -> bool:
    """Return whether a URL names a file, where connections cost next to nothing."""
    name = url.get_backend_name()
    return name in NAMES and backend_named(name).is_file(url)


def is_in_memory(url: URL) -> bool:
    """Return whether a URL names a database that ends with its connection."""
    name = url.get_backend_name()
    return name in NAMES and backend_named(name).is_in_memory(url)


def is_same_database(one: Engine, other: Engine) -> bool:
    """Return whether two engines are for one database, as far as their URLs tell: a host can have several names."""
    backend = backend_of(one)
    return one is other or (backend is backend_of(other) and backend.is_same(one.url, other.url))


# ---------------------------------------------------------------------------------------------------------------------
# Forked processes: a child discards what it inherited

LOCK: Final = RLock()  # held for moments: never over a statement


class Inheritable:
    """What a child inherits; registered here for as long as it is referenced."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        with LOCK:
            _known.add(self)

    def before_fork(self) -> None:
        """Called in the process that is about to be forked."""

    def give_up(self) -> None:
        """Called in the child."""


_known: Final[WeakSet[Inheritable]] = WeakSet()


def _before() -> None:
    try:
        for one in list(_known):
            one.before_fork()
    finally:
        LOCK.acquire()


def _in_child() -> None:
    try:
        for one in list(_known):
            one.give_up()
    finally:
        LOCK.release()


if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(before=_before, after_in_parent=LOCK.release, after_in_child=_in_child)
