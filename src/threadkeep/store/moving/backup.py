"""Backups of SQLite files, while they are in use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from os import PathLike, fspath
from os.path import lexists
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption
from threadkeep.store.batches import Progress
from threadkeep.store.moving.contents import begin_snapshot
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions

PAGES: Final = 2_000  # copied in one step; in between, other connections can write


def backup(transactions: Transactions, scope: Scope | None, file: object, progress: Progress | None) -> int:
    """Copy a SQLite database into a new file; returns its size in bytes. See `Store.backup`."""
    if scope is not None:
        scope.check_all_users("A backup has the data of all users", "backup()")
    name = fspath(file) if isinstance(file, str | PathLike) else ""
    if not isinstance(name, str) or not name:
        raise mismatch(InvalidOption, "the name of a new file", file, "file")
    if not (progress is None or callable(progress)):
        raise mismatch(InvalidOption, "a function", progress, "progress")
    if not transactions.commits_itself:
        raise InvalidOption("A backup cannot be made within a transaction.", hint="Call backup() on the store itself.")
    path = Path(name)
    return transactions.read(lambda connection: _copy(connection, transactions, path, progress))


def _copy(connection: Connection, transactions: Transactions, path: Path, progress: Progress | None) -> int:
    if connection.dialect.name != "sqlite":
        hint = "Use the server's own backup, such as pg_dump or mariadb-dump, or `threadkeep copy` to a SQLite file."
        raise InvalidOption("Only SQLite databases can be backed up this way.", hint=hint)
    part = path.with_name(f"{path.name}.{token_hex(4)}.part")  # what is interrupted is no backup
    _check_is_new(path)
    try:
        part.open("xb").close()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = getattr(error, "strerror", None) or error
        raise InvalidOption(f"The backup {str(path)!r} cannot be written: {reason}.") from error
    begin_snapshot(connection, transactions)
    connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")  # from here on, it shows one moment
    try:
        _write(connection, part, progress)
        _check_is_new(path)
        part.rename(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise InvalidOption(f"The backup {str(path)!r} cannot be written: {error}.") from error
        raise
    return path.stat().st_size


def _check_is_new(path: Path) -> None:
    if lexists(path):  # a link that leads nowhere, too, which the new file would replace
        raise InvalidOption(f"The backup {str(path)!r} cannot be written: it exists already.")


def _write(connection: Connection, path: Path, progress: Progress | None) -> None:
    driver: Any = connection.connection.driver_connection

    def report(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress("pages", total - remaining)

    with closing(sqlite3.connect(path)) as target:
        driver.backup(target, pages=PAGES, progress=report)
        (found,) = target.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise InvalidOption(f"The database is damaged: {found}.", hint="Run `threadkeep doctor`.")
        target.execute("PRAGMA journal_mode=DELETE")
