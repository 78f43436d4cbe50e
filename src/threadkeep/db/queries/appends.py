"""Rows that an append writes at numbers which its conversation gives out: positions, and the number of a response.

A row has them relative to these: the position 1 is the second one that the append takes. The expressions that make
the row's columns of that are written here once. They are the same where an UPDATE has taken the numbers before, and on
PostgreSQL, where the UPDATE is a part of the statement that writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, ColumnElement, Insert, Integer, LargeBinary, Table, bindparam, insert, select
from sqlalchemy.types import TypeEngine

from threadkeep.db import base, driver, functions
from threadkeep.db.models import appends, changes, conversations, items, response_bodies, responses, usage_records
from threadkeep.db.queries.conversations import COUNTER_COLUMNS, reservation_update
from threadkeep.db.queries.responses import end_of_stream, removal_of_parts

# What an append takes, and what it learns of its conversation
TAKEN: Final[dict[str, TypeEngine[Any]]] = {
    "first": BigInteger(),  # position
    "response": Integer(),
    "user_id": conversations.c.user_id.type,
    "config_hash": conversations.c.config_hash.type,
    "tool_set_hash": conversations.c.tool_set_hash.type,
}
# column -> the parameter for all rows of an append
SHARED: Final = {"tenant_id": "tenant", "conversation_id": "key", "branch": "branch", "created_at": "now"}
# A raw body is as old as its row, whenever the response was given
_OWN: Final = frozenset({(response_bodies, "created_at")})
# What only a response in progress has, or one that was deleted
_OF_STREAMS: Final = frozenset({"lease_until", "lease_token", "open_branch", "cancel_requested_at", "deleted_at"})
# What stands for a number in the outcome that is kept under an idempotency key
FIRST, NUMBER = "<first>", "<number>"

Value = Callable[[str], ColumnElement[Any]]
Columns = Mapping[str, ColumnElement[Any]]


def _placed(table: Table, own: Value, taken: Value) -> dict[str, ColumnElement[Any]]:
    """The columns of a row that depend on what is taken: made of it, and of the row's `own` values.

    The last position that a request showed is known, but not larger than what was there `before` its answer.
    """

    def after_first(name: str) -> ColumnElement[Any]:
        return taken("first") + own(name)

    if table is items:
        shown = functions.least(own("seen"), after_first("before"))
        return {"position": after_first("position"), "turn": after_first("turn"), "seen": shown}
    if table is changes:
        return {name: after_first(name) for name in ("from_position", "to_position")}
    if table is response_bodies:
        return {"number": taken("response")}
    if table is appends:
        outcome = own("outcome")
        for mark, number in ((FIRST, after_first("first")), (NUMBER, taken("response"))):
            outcome = sa.func.replace(outcome, f'"{mark}"', sa.cast(number, sa.String(20)))
        return {"outcome": outcome}
    # the options and tools of a request are those of the conversation, unless others are known
    is_configured = own("is_configured") > sa.literal_column("0")  # no parameter: only rows have values
    tools = sa.case((is_configured, own("tool_set_hash")), else_=taken("tool_set_hash"))
    if table is usage_records:
        return {"response": taken("response"), "user_id": taken("user_id"), "tool_set_hash": tools}
    if table is responses:
        return {
            "number": taken("response"),
            "input_to": functions.least(own("input_to"), after_first("before")),
            "from_position": after_first("from_position"),
            "to_position": after_first("to_position"),
            "config_hash": sa.func.coalesce(own("config_hash"), taken("config_hash")),
            "tool_set_hash": tools,
        }
    raise TypeError(f"an append writes no rows of {table}")


class _Inserts:
    """INSERTs of a row into each of some tables, and how their parameters come from these rows.

    `given`: what the source knows of all rows, in place of these.
    """

    def __init__(
        self, tables: Sequence[Table], taken: Value, source: Any = None, given: Columns = MappingProxyType({})
    ) -> None:
        self.sources: dict[str, tuple[int, str]] = {}
        self._taken, self._source, self._given = taken, source, given
        self.statements = [self._insert(table, number) for number, table in enumerate(tables)]

    def _insert(self, table: Table, number: int) -> Insert:
        """The INSERT of a row; its values are parameters, or with a source selected from that."""

        @cache
        def own(name: str) -> ColumnElement[Any]:
            parameter = f"row{number}_{name}"
            if (known := self._given.get(name)) is None:
                self.sources[parameter] = number, name
                known = _parameter(parameter, table.c[name].type if name in table.c else BigInteger())
            return known

        values = _placed(table, own, self._taken)
        for column in base.written_columns(table):
            if (made := column.info.get(base.MADE_BY)) is not None:
                expression, names = made
                values[column.name] = expression(*map(own, names))
            elif column.name in SHARED and column.name not in self._given and (table, column.name) not in _OWN:
                values[column.name] = bindparam(SHARED[column.name], type_=column.type)
            elif column.name not in values and column.name not in _OF_STREAMS:
                values[column.name] = own(column.name)
        if self._source is None:
            return insert(table).values(values).inline()
        return insert(table).from_select(list(values), select(*values.values()).select_from(self._source))


def _parameter(name: str, kind: TypeEngine[Any]) -> ColumnElement[Any]:
    parameter = bindparam(name, type_=kind)
    return functions.typed_bytes(parameter) if isinstance(kind, LargeBinary) else parameter


def _ctes(statements: Sequence[Insert]) -> list[Any]:
    return [statement.cte(f"row_{number}") for number, statement in enumerate(statements)]


@lru_cache(maxsize=256)
def placed_rows(tables: tuple[Table, ...]) -> driver.RowsStatement:
    """Writes a row into each of the tables, at numbers that were taken before: the parameters `taken_…`."""
    inserts = _Inserts(tables, lambda name: _parameter(f"taken_{name}", TAKEN[name]))
    *others, statement = inserts.statements
    return driver.RowsStatement(statement.add_cte(*_ctes(others)) if others else statement, inserts.sources)


@lru_cache(maxsize=256)
def append_at_once(tables: tuple[Table, ...], *, scoped: bool, expected: bool) -> driver.RowsStatement:
    """Takes the numbers at the end of branch 0 and writes the rows; returns the reservation's row, if any."""
    taking = reservation_update(root=items in tables, scoped=scoped, expected=expected, free=True)
    taken = taking.returning(*COUNTER_COLUMNS).cte("taken")
    numbers = {
        "first": taken.c.next_position - bindparam("items", type_=BigInteger),
        "response": taken.c.next_response - bindparam("responses", type_=Integer),
    }
    inserts = _Inserts(tables, lambda name: numbers[name] if name in numbers else taken.c[name], source=taken)
    return driver.RowsStatement(select(*taken.c).add_cte(*_ctes(inserts.statements)), inserts.sources)


@lru_cache(maxsize=256)
def end_at_once(tables: tuple[Table, ...], columns: tuple[str, ...]) -> driver.RowsStatement:
    """Ends a response in progress on branch 0, writes the rows of its end, and removes its parts.

    Returns the reservation's row, and the last position that its request showed. Where the response is not in progress
    any more, the rows are refused: they have no conversation.
    """
    taken = reservation_update(root=items in tables, scoped=False, expected=False, streams=True)
    conversation = taken.returning(*COUNTER_COLUMNS).cte("taken")
    ended = end_of_stream(conversation, *columns).cte("ended")
    numbers = {"first": ended.c.from_position, "response": ended.c.number, "tool_set_hash": ended.c.tool_set_hash}
    inserts = _Inserts(
        tables, lambda name: numbers[name] if name in numbers else conversation.c[name],
        source=conversation.outerjoin(ended, sa.true()),
        given={"conversation_id": ended.c.conversation_id, "seen": ended.c.input_to},
    )  # fmt: skip
    found = select(*conversation.c, ended.c.input_to).select_from(conversation.join(ended, sa.true()))
    removed = removal_of_parts(ended.c.number).cte("removed")
    return driver.RowsStatement(found.add_cte(*_ctes(inserts.statements), removed), inserts.sources)
