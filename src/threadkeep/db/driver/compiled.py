"""The text of a statement for one dialect, and how its parameters are bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Executable, Insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from threadkeep.db.types import escaped_or_none, is_plain

Processor = Callable[[Any], Any]
Parameters = Mapping[str, Any]
Sources = Mapping[str, tuple[int, str]]  # parameter -> the number of its row, and the key in that

SHARED = -1  # stands for what rows share


class CompiledStatement:
    """The SQL text of a statement for one dialect, and how its parameters are bound.

    `paramstyle` replaces the dialect's own style of parameters.
    """

    def __init__(
        self,
        statement: Executable,
        dialect: Dialect,
        column_names: Sequence[str] | None = None,
        paramstyle: str | None = None,
    ) -> None:
        dialect_class: Any = type(dialect)
        target = dialect if paramstyle is None else dialect_class(paramstyle=paramstyle)
        compiled: Any = statement.compile(dialect=target, column_keys=column_names)  # type: ignore[attr-defined]
        if not isinstance(compiled, SQLCompiler):
            raise TypeError(f"{statement} is not a statement with parameters")
        self.text = str(compiled)
        self.is_positional = compiled.positional
        order = compiled.positiontup if compiled.positional else list(dict.fromkeys(compiled.bind_names.values()))
        constants = {} if isinstance(statement, Insert) else compiled.construct_params(_check=False)
        self.names = tuple(order or ())
        types = {name: compiled.binds[name].type.dialect_impl(dialect) for name in self.names}
        processors = {name: kind.bind_processor(dialect) for name, kind in types.items()}
        self._constants = {
            name: value if (processor := processors.get(name)) is None else processor(value)
            for name, value in constants.items()
            if not compiled.binds[name].required
        }
        self._nulls: dict[str, Any] = dict.fromkeys(self.names)  # for parameters without a value
        self._pick = _picker(self.names)
        self._processors = [
            (index, processor)
            for index, name in enumerate(self.names)
            if (processor := processors[name]) is not None and name not in self._constants
        ]
        texts = [index for index, processor in self._processors if processor is escaped_or_none]
        self._pick_texts = _picker(texts)
        self._others = [pair for pair in self._processors if pair[0] not in texts]
        self._layout: _Layout | None = None

    def bind(self, parameters: Parameters) -> Any:
        """The parameters as the driver takes them; a missing one is NULL."""
        parameters = {**self._constants, **parameters} if self._constants else parameters
        try:
            values = self._pick(parameters)
        except KeyError:
            values = self._pick({**self._nulls, **parameters})
        return self._processed(values)

    def bind_rows(self, sources: Sources, shared: Parameters, rows: Sequence[Parameters]) -> Any:
        """The same of several rows and of what these share; `sources` as in `RowsStatement`."""
        if self._layout is None:
            self._layout = _Layout([sources.get(name, (SHARED, name)) for name in self.names], self._constants)
        return self._processed(self._layout.values(shared, rows))

    def bind_many(self, rows: Sequence[Parameters]) -> list[Any]:
        """The parameters of many rows as the driver takes them, processed column by column; each row has them all."""
        columns = [[row[name] for row in rows] for name in self.names]
        for index, processor in self._processors:
            if columns[index].count(None) < len(rows):
                columns[index] = list(map(processor, columns[index]))  # bind processors take None, too
        values = zip(*columns, strict=True)
        return list(values) if self.is_positional else [dict(zip(self.names, row, strict=True)) for row in values]

    def _processed(self, values: Sequence[Any]) -> Any:
        """Values as the driver takes them. Hardly any text has to be escaped, so they are looked at together."""
        processors = self._others if is_plain("".join(filter(None, self._pick_texts(values)))) else self._processors
        if processors:
            values = list(values)
            for index, processor in processors:
                if (value := values[index]) is not None:
                    values[index] = processor(value)
        return tuple(values) if self.is_positional else dict(zip(self.names, values, strict=True))


class _Layout:
    """Where a statement finds its values: in some rows, and in what these share."""

    def __init__(self, places: Sequence[tuple[int, str]], constants: Mapping[str, Any]) -> None:
        self._constants = constants
        numbers = sorted({number for number, _ in places} - {SHARED})
        keys = {number: [key for one, key in places if one == number] for number in (SHARED, *numbers)}
        self._shared = _picker(keys[SHARED])
        # of each row: NULLs for what it does not have, and what picks its values
        self._rows = [(dict.fromkeys(keys[number]), _picker(keys[number])) for number in numbers]
        picked = [(number, key) for number, some in keys.items() for key in some]
        self._order = _picker([picked.index(place) for place in places])

    def values(self, shared: Parameters, rows: Sequence[Parameters]) -> tuple[Any, ...]:
        """The values in the order of the parameters. All of this is done in calls of C."""
        picked = [*self._shared({**self._constants, **shared})]
        for (nulls, pick), row in zip(self._rows, rows, strict=True):
            picked += pick({**nulls, **row})
        return self._order(picked)


def _picker(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes values by name or index, in order; `itemgetter` returns a tuple only for two keys or more."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda values: tuple([values[key] for key in keys])
