"""SQLite: one file, one writer at a time, and no types of columns; what a server does by itself is done here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from os.path import lexists
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from threadkeep.db import backends, driver
from threadkeep.errors import InvalidOption

SWITCH_SECONDS: Final = 1  # how long to wait for others before a file gets a write-ahead log
# After how many pages SQLite copies its log into the file; a turn writes about 30, many of them again and again. With
# its default of 1,000, turns take 8 % more CPU time. The index of a log has another part for every 4,096 pages.
CHECKPOINT_PAGES: Final = 4_000
COPIED_PAGES: Final = 2_000  # of a backup in one step; in between, other connections can write
CHECKPOINTS: Final = 20  # attempts to empty the write-ahead log, which readers may be using
# Takes the write lock at once: a read transaction that wants to write later is refused as "locked".
BEGIN_IMMEDIATE: Final = driver.Statement(text("BEGIN IMMEDIATE"))

_READY: Final = "threadkeep_ready"


class _SQLite(backends.Backend):
    """SQLite, through Python's own module."""

    name = "sqlite"
    drivers = "", ""
    extra = ""
    new_insert = staticmethod(insert)
    packing = "joined"
    is_server = has_replicas = checks_types = False

    def checked_url(self, url: URL) -> URL:
        if url.host:
            raise backends.not_a_url("it has a host", "After sqlite: come three slashes, as in sqlite:///chat.db.")
        return url

    def engine_options(self, url: URL) -> dict[str, Any]:
        options: dict[str, Any] = {
            "connect_args": {"timeout": backends.BUSY_SECONDS, "check_same_thread": False},
            "pool_timeout": backends.BUSY_SECONDS,
            "max_overflow": -1,  # connections that are kept do not come back to the pool
        }
        if not self.is_file(url):
            # One connection holds the whole database, so its users take turns.
            options |= {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
        return options

    def make_engine(self, url: URL, create: Callable[..., Engine]) -> Engine:
        name = str(url.database)
        if self.is_file(url) and not name.startswith("file:") and not (folder := Path(name).parent).is_dir():
            raise InvalidOption(f"There is no directory {str(folder)!r} for the database.", hint="Create it first.")
        engine = create(url, **self.engine_options(url))
        event.listen(engine, "connect", _prepare)
        return engine

    def adopt_engine(self, engine: Engine) -> None:
        if not event.contains(engine, "checkout", _on_checkout):
            event.listen(engine, "checkout", _on_checkout)

    def keeps_connections(self, engine: Engine) -> bool:
        return self.is_file(engine.url)

    def is_file(self, url: URL) -> bool:
        return ":memory:" not in (url.database or ":memory:") and url.query.get("mode") != "memory"

    def is_in_memory(self, url: URL) -> bool:
        return not self.is_file(url)

    def is_same(self, one: URL, other: URL) -> bool:
        files = [Path(str(url.database).removeprefix("file:").partition("?")[0]).resolve() for url in (one, other)]
        return self.is_file(one) and self.is_file(other) and files[0] == files[1]

    def begin(self, connection: Connection, *, is_checked: bool) -> None:
        del is_checked
        BEGIN_IMMEDIATE.execute(connection, {})

    def begin_snapshot(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    def begin_savepoint(self, connection: Connection) -> None:
        """Releasing an outermost savepoint would commit."""
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            BEGIN_IMMEDIATE.execute(connection, {})

    def sees_commits(self, connection: Connection) -> bool:
        del connection
        return True

    def integrity_of(self, connection: Connection, table: str) -> Iterable[str]:
        said = connection.exec_driver_sql(f'PRAGMA integrity_check("{table}")').scalars()
        return (line for line in said if line != "ok")

    def index_names(self, connection: Connection, table: str) -> Sequence[str]:
        return [index.name for index in connection.exec_driver_sql(f'PRAGMA index_list("{table}")')]

    def remake_index(self, connection: Connection, name: str) -> None:
        connection.exec_driver_sql(f'REINDEX "{name}"')

    def scrub(self, connection: Connection, merge: Callable[[Connection], bool], *, vacuum: bool) -> bool | None:
        """The rows were overwritten when they were deleted (`PRAGMA secure_delete`).

        Their words are in the full-text index until its parts are merged, and in the write-ahead log until a TRUNCATE
        checkpoint empties it, which an active reader can delay. Where SQLite moved rows from one page to another
        before, copies can be left in the first one, which only VACUUM removes: it rewrites the database.
        """
        driver: Any = connection.connection.driver_connection
        try:
            is_merged = merge(connection)
            if vacuum:
                driver.execute("VACUUM")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            driver.rollback()
            return False  # there are other writers all the time; all rows are gone, and the call can be repeated
        is_empty = any(driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0 for _ in range(CHECKPOINTS))
        return is_empty and is_merged and vacuum

    def backup(self, connection: Connection, path: Path, progress: Callable[[int], object]) -> None:
        part = path.with_name(f"{path.name}.{token_hex(4)}.part")  # what is interrupted is no backup
        _check_is_new(path)
        try:
            part.open("xb").close()
        except (OSError, ValueError) as error:  # ValueError: a name with a null character
            raise _cannot_write(path, getattr(error, "strerror", None) or error) from error
        self.begin_snapshot(connection)
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")  # from here on, it shows one moment
        try:
            _copy(connection, part, progress)
            _check_is_new(path)
            part.rename(path)
        except BaseException as error:
            part.unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error):
                raise _cannot_write(path, error) from error
            raise


BACKEND: Final = _SQLite()


def _cannot_write(path: Path, reason: object) -> InvalidOption:
    return InvalidOption(f"The backup {str(path)!r} cannot be written: {reason}.")


def _check_is_new(path: Path) -> None:
    if lexists(path):  # a link that leads nowhere, too, which the new file would replace
        raise _cannot_write(path, "it exists already")


def _copy(connection: Connection, path: Path, progress: Callable[[int], object]) -> None:
    driver: Any = connection.connection.driver_connection
    with closing(sqlite3.connect(path)) as target:
        driver.backup(target, pages=COPIED_PAGES, progress=lambda _, remaining, total: progress(total - remaining))
        (found,) = target.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise InvalidOption(f"The database is damaged: {found}.", hint="Run `threadkeep doctor`.")
        target.execute("PRAGMA journal_mode=DELETE")


def _on_checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    if _READY not in record.info:
        _prepare(connection, record)
        record.info[_READY] = True


def _prepare(connection: Any, record: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    try:
        _set_up(connection)
    except BaseException:
        connection.close()  # SQLAlchemy 2.0 leaves it open
        raise


def _set_up(connection: Any) -> None:
    """Foreign keys, write-ahead log and patience; and what is deleted is overwritten."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA secure_delete=ON")
    cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    cursor.execute(f"PRAGMA busy_timeout={SWITCH_SECONDS * 1000}")
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # A file that may only be read, or that others use, goes on as it is; the next connection tries again.
            if "readonly" not in str(error) and "locked" not in str(error):
                raise
    cursor.execute(f"PRAGMA busy_timeout={backends.BUSY_SECONDS * 1000}")
    cursor.close()
