"""Reading the rows of statements that went around SQLAlchemy's results: their values pass through the column types."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column
from sqlalchemy.engine import Dialect

from threadkeep.db.driver.compiled import Processor
from threadkeep.db.driver.executors import Row


class LazyRow(tuple[Any, ...]):
    """A row whose columns are attributes; a value passes through its column type when it is accessed."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class RowReader:
    """Reads rows of known columns; what a row has behind these is left alone."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._columns = tuple(columns)
        self._indexes = {column.name: index for index, column in enumerate(columns)}
        self._forms: dict[tuple[str, str], _RowForm] = {}

    def index(self, name: str) -> int:
        """The index of a column in a row."""
        return self._indexes[name]

    def read(self, dialect: Dialect, rows: Sequence[Row]) -> list[LazyRow]:
        """The rows, with their columns as attributes."""
        return list(map(self._form(dialect).kind, rows))

    def mappings(self, dialect: Dialect, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows as dictionaries, in less time than Core takes for its own."""
        names, processors = tuple(self._indexes), self._form(dialect).processors
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for row in found:
            for index, processor in processors:
                if (value := row[names[index]]) is not None:
                    row[names[index]] = processor(value)
        return found

    def values(self, dialect: Dialect, row: Row) -> list[Any]:
        """All values of a row."""
        values = list(row)
        for index, processor in self._form(dialect).processors:
            if (value := values[index]) is not None:
                values[index] = processor(value)
        return values

    def _form(self, dialect: Dialect) -> _RowForm:
        key = (dialect.name, dialect.driver)
        form = self._forms.get(key)
        if form is None:
            types = [column.type.dialect_impl(dialect) for column in self._columns]
            form = self._forms[key] = _RowForm(
                list(self._indexes), [kind.result_processor(dialect, None) for kind in types]
            )
        return form


class _RowForm:
    """How rows come from a driver: what the values of some columns pass through, and the class of the rows."""

    def __init__(self, names: Sequence[str], processors: Sequence[Processor | None]) -> None:
        self.processors = [(index, processor) for index, processor in enumerate(processors) if processor is not None]
        columns = zip(names, map(_attribute, range(len(names)), processors), strict=True)
        self.kind: type[LazyRow] = type("Row", (LazyRow,), {"__slots__": (), **dict(columns)})


def _attribute(index: int, processor: Processor | None) -> property:
    if processor is None:
        return property(itemgetter(index))

    def processed(row: Row) -> Any:
        value = row[index]
        return None if value is None else processor(value)

    return property(processed)
