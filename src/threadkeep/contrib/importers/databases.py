"""Databases of other software: files of SQLite, and the URLs of servers. They are only read, a row at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Engine, NullPool, Select, column, create_engine, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError

from threadkeep.contrib.importers.inputs import Input
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, InvalidOption, ThreadkeepError
from threadkeep.store.engines import engine_for, is_sqlite_file, parsed_url

BATCH: Final = 500  # rows that are fetched at once


class Database:
    """The tables of a database.

    Attributes:
        columns: the names of the columns of each table.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with self._connected() as connection:
            inspector = inspect(connection)
            names = inspector.get_table_names()
            self.columns = {name: frozenset(one["name"] for one in inspector.get_columns(name)) for name in names}

    def has(self, name: str, *columns: str) -> bool:
        """Whether there is a table with these columns."""
        return name in self.columns and self.columns[name].issuperset(columns)

    def referred(self, name: str, key: str) -> str | None:
        """The table that a column refers to; None if it says of none that it does, or does not exist."""
        if not self.has(name, key):
            return None
        with self._connected() as connection:
            found = inspect(connection).get_foreign_keys(name)
        return next((one["referred_table"] for one in found if one["constrained_columns"] == [key]), None)

    def rows(self, name: str, columns: Sequence[str], order_by: Sequence[str], **equal: Any) -> Iterator[JsonObject]:
        """Return rows of a table in order, those that have these values, as they are read.

        A column or table that this release of the software does not have yet is None in all of them, or empty.
        """
        known = self.columns.get(name, frozenset())
        wanted = [one for one in columns if one in known]
        if not wanted or not known.issuperset(equal):
            return
        rows = table(name, *map(column, known))
        statement = select(*(rows.c[one] for one in wanted)).order_by(
            *(rows.c[one] for one in order_by if one in known)
        )
        for key, value in equal.items():
            statement = statement.where(rows.c[key] == value)
        missing = dict.fromkeys(columns)
        for row in self.select(statement):
            yield missing | row

    def select(self, statement: Select[Any]) -> Iterator[JsonObject]:
        """Return the rows of a statement, as they are read."""
        with self._connected() as connection:
            streamed = connection.execution_options(stream_results=True, yield_per=BATCH)
            with streamed.execute(statement) as result:
                for row in result.mappings():
                    yield {key: _plain(value) for key, value in row.items()}

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            elif connection.dialect.name != "sqlite":
                connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            yield connection
            connection.rollback()


@contextmanager
def opened(input: Input) -> Iterator[Database]:
    """The database that is imported from.

    Raises:
        CannotParse: it cannot be read, or not on.
    """
    engine = _engine_of(input)
    try:
        yield Database(engine)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise CannotParse(f"{input.name} cannot be read: {getattr(error, 'orig', None) or error}.") from error
    finally:
        engine.dispose()


def tables_of(input: Input) -> dict[str, frozenset[str]]:
    """The columns of the tables of a database; none, if it is no database, or one that cannot be read."""
    if input.url is None and not input.is_sqlite:
        return {}
    try:
        with opened(input) as database:
            return database.columns
    except ThreadkeepError:
        return {}


def check_reachable(input: Input) -> None:
    """Find out whether the database of a URL can be read.

    Raises:
        InvalidOption: it cannot, or this is not the URL of a database.
        MissingExtra: its driver is not installed.
    """
    try:
        with opened(input):
            pass
    except CannotParse as error:
        raise InvalidOption(error.message) from error


def json_of(value: Any) -> Any:
    """The value of a column with JSON, which some databases have read already; None for a text that is none."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except ValueError:
        return None


def _engine_of(input: Input) -> Engine:
    path = input.path
    if path is None:
        url = parsed_url(input.url)
        if url.get_backend_name() != "sqlite":
            return engine_for(url)
        if not is_sqlite_file(url):
            raise CannotParse(f"{input.name} is a database in memory, which is empty.")
        path = Path(str(url.database))
    name = f"{path.absolute().as_uri()}?mode=ro"
    return create_engine("sqlite://", poolclass=NullPool, creator=lambda: _sqlite(name))


def _sqlite(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(name, uri=True)
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def _plain(value: Any) -> Any:
    """A value of a row as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
