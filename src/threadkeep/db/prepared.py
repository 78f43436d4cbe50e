"""Statements of the hot paths: built by SQLAlchemy Core, compiled once for each dialect, run on the driver's cursor.

An execution through Core costs about 35 microseconds beside the database's own time, this way about 6 (measured on
SQLite; docs/performance.md). Parameters and results still pass the column types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, Connection, Executable, Insert, Table, insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from threadkeep.db.cursors import Row, cursors_for

Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]


class Plan:
    """A statement as one dialect wants it; `style`: with parameters that are written in another way."""

    def __init__(
        self, statement: Executable, dialect: Dialect, names: Sequence[str] | None, style: str | None = None
    ) -> None:
        kind: Any = type(dialect)
        spelled = dialect if style is None else kind(paramstyle=style)
        compiled: Any = statement.compile(dialect=spelled, column_keys=names)  # type: ignore[attr-defined]
        if not isinstance(compiled, SQLCompiler):
            raise TypeError(f"{statement} is no statement")
        self.text = str(compiled)
        self.is_positional = compiled.positional
        order = compiled.positiontup if compiled.positional else list(dict.fromkeys(compiled.bind_names.values()))
        fixed = {} if isinstance(statement, Insert) else compiled.construct_params(_check=False)
        self.names = tuple(order or ())
        self._fixed = {name: value for name, value in fixed.items() if not compiled.binds[name].required}
        self._absent: dict[str, Any] = dict.fromkeys(self.names)  # what stands where nothing is given
        self._pick = _picker(self.names)
        processors = [compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect) for name in self.names]
        self.processors = [(place, found) for place, found in enumerate(processors) if found is not None]

    def arguments(self, parameters: Parameters) -> Any:
        """The parameters as the driver takes them."""
        given = {**self._fixed, **parameters} if self._fixed else parameters
        try:
            values = self._pick(given)
        except KeyError:
            values = self._pick({**self._absent, **given})
        if self.processors:
            found = list(values)
            for place, processor in self.processors:
                if (value := found[place]) is not None:
                    found[place] = processor(value)
            values = tuple(found)
        return values if self.is_positional else dict(zip(self.names, values, strict=True))

    def all_arguments(self, rows: Sequence[Parameters]) -> list[Any]:
        """The parameters of many rows, column by column, as the driver takes them."""
        columns = [[row[name] for row in rows] for name in self.names]
        for place, processor in self.processors:
            if columns[place].count(None) < len(rows):
                columns[place] = list(map(processor, columns[place]))  # bind processors take None, too
        found = zip(*columns, strict=True)
        return list(found) if self.is_positional else [dict(zip(self.names, row, strict=True)) for row in found]


def _picker(names: Sequence[str]) -> Callable[[Parameters], tuple[Any, ...]]:
    """Takes values by name, in order; `itemgetter` gives a tuple only for two names and more."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda parameters: tuple([parameters[name] for name in names])


class Prepared:
    """A statement for the hot paths.

    `names` are the columns of an INSERT. `is_binary`: PostgreSQL sends values as it has them; making text of a number
    and a number of the text takes longer than summing it up. `gives_bytes`: the same, and columns of the type TEXT come
    as bytes in UTF-8; making strings of them and bytes again takes as long as all the rest of a long read.
    """

    def __init__(
        self,
        statement: Executable,
        names: Sequence[str] | None = None,
        *,
        is_binary: bool = False,
        gives_bytes: bool = False,
    ) -> None:
        self.statement = statement
        self._names = names
        self._is_binary = is_binary or gives_bytes
        self._gives_bytes = gives_bytes
        self._plans: dict[tuple[str, str, str | None], Plan] = {}

    def execute(self, connection: Connection, parameters: Parameters) -> int:
        """Run it; returns how many rows it met."""
        cursors = cursors_for(connection)
        plan = self._plan(connection.dialect, cursors.style)
        return cursors.execute(connection, plan.text, plan.arguments(parameters))

    def execute_many(self, connection: Connection, parameters: Sequence[Parameters]) -> None:
        """Run it once for each of several parameters; each of them names all."""
        cursors = cursors_for(connection)
        plan = self._plan(connection.dialect, cursors.style)
        cursors.execute_many(connection, plan.text, plan.all_arguments(parameters))

    def rows(self, connection: Connection, parameters: Parameters) -> Sequence[Row]:
        """Its rows as the driver gives them; a `Reader` knows their types."""
        cursors = cursors_for(connection)
        plan = self._plan(connection.dialect, cursors.style)
        arguments = plan.arguments(parameters)
        return cursors.rows(connection, plan.text, arguments, is_binary=self._is_binary, gives_bytes=self._gives_bytes)

    def _plan(self, dialect: Dialect, style: str | None) -> Plan:
        key = (dialect.name, dialect.driver, style)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = Plan(self.statement, dialect, self._names, style)
        return plan


def insertion(table: Table) -> Prepared:
    """An INSERT of whole rows."""
    return Prepared(insert(table), [column.name for column in table.columns])


class Reader:
    """Reads rows of known columns: makes records of them."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = tuple(columns)
        self._places = {column.name: place for place, column in enumerate(columns)}
        self._processors: dict[tuple[str, str], list[Processor | None]] = {}

    def place(self, name: str) -> int:
        """Where a column stands in a row."""
        return self._places[name]

    def records(self, dialect: Dialect, rows: Sequence[Row]) -> list[Record]:
        """The rows as records."""
        processors = self._of(dialect)
        return [Record(row, self._places, processors) for row in rows]

    def values(self, dialect: Dialect, row: Row) -> list[Any]:
        """All values of a row."""
        return [
            value if processor is None or value is None else processor(value)
            for value, processor in zip(row, self._of(dialect), strict=True)
        ]

    def _of(self, dialect: Dialect) -> list[Processor | None]:
        key = (dialect.name, dialect.driver)
        processors = self._processors.get(key)
        if processors is None:
            processors = self._processors[key] = [
                column.type.dialect_impl(dialect).result_processor(dialect, None) for column in self._columns
            ]
        return processors


class Record:
    """A row whose values pass their column types when they are asked for."""

    __slots__ = ("_places", "_processors", "_row")

    def __init__(self, row: Row, places: Mapping[str, int], processors: Sequence[Processor | None]) -> None:
        self._row = row
        self._places = places
        self._processors = processors

    def __getattr__(self, name: str) -> Any:
        try:
            place = self._places[name]
        except KeyError:
            raise AttributeError(name) from None
        value, processor = self._row[place], self._processors[place]
        return value if processor is None or value is None else processor(value)
