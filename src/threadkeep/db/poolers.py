"""PostgreSQL behind a pooler, which gives each transaction another of the server's connections (PgBouncer and others).

A statement that was prepared on one of these is missing on the next, or is another client's there. So connections that
lead to a pooler prepare nothing. What tells them: the server process that answers is not the one that the connection
was announced with. Who knows better says so in the URL, as ``prepare_threshold=5`` or ``prepare_threshold=none``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from threadkeep.db.dialects import PSYCOPG, is_stale
from threadkeep.errors import InvalidOption

THRESHOLD: Final = "prepare_threshold"  # psycopg's name for how often a statement is run before it is prepared

_THRESHOLD_TEXT: Final = re.compile("none|[0-9]{1,9}")
_CHECKED: Final = "threadkeep_pooler"


def threshold_of(url: URL) -> tuple[URL, dict[str, int | None]]:
    """Return a URL without the threshold, and the threshold as an argument of psycopg; without one, no argument."""
    given = url.query.get(THRESHOLD)
    if given is None:
        return url, {}
    if not isinstance(given, str) or not _THRESHOLD_TEXT.fullmatch(given):
        problem = f"has a {THRESHOLD} that is neither a whole number nor none."
        raise InvalidOption(problem, argument="url", hint="Behind a pooler write ?prepare_threshold=none.")
    return url.difference_update_query([THRESHOLD]), {THRESHOLD: None if given == "none" else int(given)}


def watch(host: Any, *, is_owned: bool) -> None:
    """Let the connections of an Engine or AsyncEngine find out whether they lead to a pooler.

    Those of a host may be open already.
    """
    engine: Engine = getattr(host, "sync_engine", host)
    if engine.dialect.driver not in PSYCOPG:
        return
    if is_owned:
        event.listen(engine, "connect", _check)
    elif not event.contains(engine, "checkout", _on_checkout):
        event.listen(engine, "checkout", _on_checkout)


def learn_from(connection: Connection, error: BaseException) -> None:
    """Let a connection prepare nothing any more, if what it had prepared was not there: a pooler that was not noticed.

    The failed transaction left nothing, and is repeated.
    """
    if isinstance(error, DBAPIError) and is_stale(error) and not (connection.closed or connection.invalidated):
        driver_connection: Any = connection.connection.driver_connection
        driver_connection.prepare_threshold = None


def _on_checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    if _CHECKED not in record.info:
        record.info[_CHECKED] = True
        _check(connection, record)


def _check(connection: Any, record: ConnectionPoolEntry) -> None:
    driver_connection: Any = record.driver_connection
    if driver_connection.prepare_threshold is None:
        return
    cursor = connection.cursor()
    try:
        cursor.execute("SELECT pg_backend_pid()")
        (server_process,) = cursor.fetchone()
    finally:
        cursor.close()
        if not connection.autocommit:
            connection.rollback()
    if server_process != driver_connection.info.backend_pid:
        driver_connection.prepare_threshold = None
