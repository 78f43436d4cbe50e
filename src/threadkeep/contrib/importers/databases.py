"""Databases of other software, which are only read, a row at a time; and the bases of sources that have one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import Connection, Engine, NullPool, Select, column, create_engine, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError

from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.records import Skipped, Transcript, converted
from threadkeep.db import backends, engines
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, InvalidOption, ThreadkeepError

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
            backends.backend_of(connection).refuse_writes(connection)
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


class SqlSource:
    """Software whose conversations are in a database: a file of SQLite, or a server.

    Attributes:
        name: what it is called, see `Source`.
    """

    name: ClassVar[str]

    def has_tables(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Return whether these tables, with the names of their columns, are its own."""
        raise NotImplementedError

    def conversations(self, database: Database, where: str) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a database, which messages call `where`."""
        raise NotImplementedError

    def recognizes(self, input: Input, /) -> bool:
        """Return whether it is a database with its tables."""
        return self.has_tables(tables_of(input))

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a database.

        Raises:
            CannotParse: it cannot be read, or not on.
        """
        with opened(input) as database:
            yield from self.conversations(database, input.name)


class SessionTables(SqlSource):
    """Software that keeps messages in tables of any name, a row for each, by the ids of their sessions.

    Attributes:
        table: the usual name of a table; sessions of another one have its name before their ids.
        column: the column of the messages; the others are `id`, `session_id` and perhaps `created_at`.
    """

    table: ClassVar[str]
    column: ClassVar[str]

    def session(
        self, database: Database, table: str, session: str, name: str, where: str, rows: Iterable[JsonObject]
    ) -> Transcript:
        """Return the conversation of a session, `name`, from the rows of its messages."""
        raise NotImplementedError

    def has_tables(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Return whether a table has the columns of a message."""
        return any(columns.issuperset(("id", "session_id", self.column)) for columns in tables.values())

    def conversations(self, database: Database, where: str) -> Iterator[Transcript | Skipped]:
        """Return the conversations of all such tables."""
        columns = ("id", "session_id", self.column)
        for place in sorted(name for name in database.columns if database.has(name, *columns)):
            rows = database.rows(place, (*columns, "created_at"), ("session_id", "id"))
            for session, messages in groupby(rows, lambda row: row["session_id"]):
                if session is None:
                    yield Skipped(f"{where}, table {place}", "a message of no session", sum(1 for _ in messages))
                    continue
                name = str(session) if place == self.table else f"{place}/{session}"
                shown = f"{where}, {name}"
                yield converted(shown, self.session, database, place, str(session), name, shown, messages)


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
        url = engines.parsed_url(input.url)
        if engines.is_in_memory(url):
            raise CannotParse(f"{input.name} is a database in memory, which is empty.")
        if not engines.is_file(url):
            return engines.engine_for(url)
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
