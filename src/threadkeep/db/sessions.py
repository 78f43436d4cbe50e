"""What the session of a connection must be like: with other settings texts would change, or not be understood.

* PostgreSQL: the client's encoding is UTF-8, moments are written as ISO 8601 has them, and a backslash in a text is a
  backslash. psycopg knows these settings without asking. A store sets them for its own connections.
* MariaDB and MySQL: the character set is utf8mb4, and `sql_mode` is the store's, whatever the server's is. asyncmy
  escapes bytes with backslashes in any mode.
* Connections of a host's engine are the host's: a store refuses to use those that it cannot use.

The database itself must hold all characters: PostgreSQL in UTF8 (or SQL_ASCII, which takes bytes as they come), SQLite
in UTF-8.

PostgreSQL behind a pooler, which gives each transaction another of the server's connections (PgBouncer and others).

A statement that was prepared on one of these is missing on the next, or is another client's there. So connections that
lead to a pooler prepare nothing. What tells them: the server process that answers is not the one that the connection
was announced with. Who knows better says so in the URL, as ``prepare_threshold=5`` or ``prepare_threshold=none``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from threadkeep.db.refusals import PSYCOPG, is_stale
from threadkeep.errors import InvalidOption, SchemaError

# Every value fits its column or is refused; quotes and backslashes are what the drivers take them for.
SQL_MODE: Final = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
CHARSET: Final = "utf8mb4"
# setting of PostgreSQL -> how it begins, and what it is set to
_WANTED: Final = {
    "client_encoding": ("UTF8", "UTF8"),
    "DateStyle": ("ISO", "ISO, MDY"),
    "standard_conforming_strings": ("on", "on"),
}
_CHECKED: Final = "threadkeep_session"
_NO_BACKSLASH_ESCAPES: Final = 512  # flag of a server's status


def with_charset(url: URL) -> URL:
    """Return a URL of MariaDB or MySQL with the character set that a store needs.

    Raises:
        InvalidOption: it names another one.
    """
    if url.query.get("charset", CHARSET) != CHARSET:
        shown = url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)
        problem = f"({shown}) names another charset than {CHARSET}, in which not every character can be stored."
        raise InvalidOption(problem, argument="url", hint="Leave the parameter out.")
    return url.update_query_dict({"charset": CHARSET})


def watch(engine: Engine) -> None:
    """Let the connections of an engine of a store to a server have the session that it needs.

    Before SQLAlchemy looks at the first one, to know how to quote.
    """
    if engine.dialect.driver in PSYCOPG:
        event.listen(engine, "connect", _set_up, insert=True)
    elif "init_command" in engine.url.query:
        event.listen(engine, "connect", _set_mode, insert=True)


def check(connection: Connection) -> None:
    """Refuse a connection of a host with which texts would change; a connection is looked at once.

    Raises:
        InvalidOption: it has a setting that a store cannot use, which the error names.
    """
    if connection.dialect.name != "sqlite" and _CHECKED not in connection.info:
        _check(connection.connection.driver_connection)
        connection.info[_CHECKED] = True


def check_encoding(connection: Connection) -> None:
    """Raise SchemaError for a database that does not hold all characters."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql("PRAGMA encoding").scalar_one()
        if found != "UTF-8":
            raise SchemaError(
                f"The SQLite file has its texts in {found}; threadkeep reads UTF-8.",
                hint="Give threadkeep a file of its own.",
            )
    elif connection.dialect.driver in PSYCOPG:
        driver: Any = connection.connection.driver_connection
        found = driver.info.parameter_status("server_encoding")
        if found not in ("UTF8", "SQL_ASCII", None):  # a pooler may not say
            raise SchemaError(
                f"The database has the encoding {found}, which does not have all characters.",
                hint="Create one with ENCODING 'UTF8' TEMPLATE template0.",
            )


def _set_up(connection: Any, record: ConnectionPoolEntry) -> None:
    """Set what a connection of a store to PostgreSQL lacks."""
    for name in _wrong(record.driver_connection):
        _execute(connection, f"SET {name} TO '{_WANTED[name][1]}'")


def _set_mode(connection: Any, record: ConnectionPoolEntry) -> None:  # noqa: ARG001 - SQLAlchemy's hook
    _execute(connection, SQL_MODE)


def _execute(connection: Any, statement: str) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()
        if not getattr(connection, "autocommit", False):
            connection.commit()


def _check(driver: Any) -> None:
    if hasattr(driver, "info"):  # psycopg's
        wrong = _wrong(driver)
        if wrong:
            name = wrong[0]
            problem = f"makes connections whose {name} is {driver.info.parameter_status(name)}."
            hint = f"They need {_WANTED[name][1]}: set it for the role, or when they are made."
            raise InvalidOption(problem, argument="url", hint=hint)
    elif (charset := getattr(driver, "charset", CHARSET)) != CHARSET:
        problem = f"makes connections with the charset {charset}, in which not every character can be stored."
        raise InvalidOption(problem, argument="url", hint=f"Make the engine with ?charset={CHARSET}.")
    elif type(driver).__module__.startswith("asyncmy") and driver.server_status & _NO_BACKSLASH_ESCAPES:
        problem = "makes connections with the sql_mode NO_BACKSLASH_ESCAPES, which asyncmy does not heed."
        raise InvalidOption(problem, argument="url", hint="Set another sql_mode for them.")


def _wrong(driver: Any) -> list[str]:
    """The settings of a connection of psycopg that are not as a store needs them."""
    told = {name: driver.info.parameter_status(name) for name in _WANTED}
    return [name for name, value in told.items() if value is not None and not _is_wanted(name, value)]


def _is_wanted(name: str, value: str) -> bool:
    """Whether a setting is as a store needs it; a pooler may tell it as the client has written it."""
    written = value.upper().replace("-", "") if name == "client_encoding" else value.upper()
    return written.startswith(_WANTED[name][0].upper()) or written == "UNICODE"


THRESHOLD: Final = "prepare_threshold"  # psycopg's name for how often a statement is run before it is prepared

_THRESHOLD_TEXT: Final = re.compile("none|[0-9]{1,9}")
_POOLER_CHECKED: Final = "threadkeep_pooler"


def threshold_of(url: URL) -> tuple[URL, dict[str, int | None]]:
    """Return a URL without the threshold, and the threshold as an argument of psycopg; without one, no argument."""
    given = url.query.get(THRESHOLD)
    if given is None:
        return url, {}
    if not isinstance(given, str) or not _THRESHOLD_TEXT.fullmatch(given):
        problem = f"has a {THRESHOLD} that is neither a whole number nor none."
        raise InvalidOption(problem, argument="url", hint="Behind a pooler write ?prepare_threshold=none.")
    return url.difference_update_query([THRESHOLD]), {THRESHOLD: None if given == "none" else int(given)}


def watch_pooler(engine: Engine, *, is_owned: bool) -> None:
    """Let the connections of an engine with psycopg find out whether they lead to a pooler.

    A host's connections may be open already.
    """
    if is_owned:
        event.listen(engine, "connect", _check_pooler)
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
    if _POOLER_CHECKED not in record.info:
        record.info[_POOLER_CHECKED] = True
        _check_pooler(connection, record)


def _check_pooler(connection: Any, record: ConnectionPoolEntry) -> None:
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


@contextmanager
def planned_for_values(connection: Connection) -> Iterator[None]:
    """Prepare nothing in this block: of a prepared statement, PostgreSQL makes one plan for any values.

    In a search, that is a plan for words that are in every text.
    """
    driver: Any = connection.connection.driver_connection
    before, driver.prepare_threshold = driver.prepare_threshold, None
    try:
        yield
    finally:
        driver.prepare_threshold = before
