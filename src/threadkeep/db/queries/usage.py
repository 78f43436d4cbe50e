"""Statements of usage reports: over the ledger, and over the sums of filled days.

A report is described by its `Shape`; reports of the same shape run the same statement, which is compiled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Date,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    case,
    cast,
    collate,
    false,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from threadkeep.db.prepared import Prepared
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.queries.usage_times import TIMES, has_changes, time_keys
from threadkeep.db.tables import conversations, usage_daily, usage_daily_models, usage_days, usage_records
from threadkeep.db.types import MYSQL, Identifier
from threadkeep.domain.usage import SUMS

# What filled days are summed by
KEYS: Final = ("provider", "model", "format", "status")
MODEL_KEYS: Final = ("model",)
KEPT_VALUES: Final = 100  # that are looked for by a statement which is kept
NEVER_NULL: Final = ("format",)
# What a report can be grouped by, apart from times, and filtered by -> its column in the ledger
COLUMNS: Final = {
    "model": "model", "provider": "provider", "format": "format", "user_id": "user_id",
    "conversation_id": "conversation_id", "status": "status", "tool_set": "tool_set_hash", "response": "response",
    "day": "day",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of report it is.

    Attributes:
        by: what it is grouped by.
        filters: by column: how many values are looked for, and whether NULL is one.
        ranges: how many ranges of days of the ledger are looked at; None: all days.
        filled: how many ranges of filled days are looked at.
        spans: whether these are found out: all filled days, where there are no others between them.
        since: whether a bound lies within a day, likewise `until`.
        is_of_user: whether the store is for one user.
        is_of_conversation: whether it is about one conversation.
        offsets: seconds by which local time is ahead of UTC, one more than there are changes; None: times are UTC.
        order_by: the sum that comes first where it is largest.
        is_limited: whether there are at most so many rows.
    """

    by: tuple[str, ...]
    filters: tuple[tuple[str, int, bool], ...] = ()
    ranges: int | None = None
    filled: int = 0
    spans: bool = False
    since: bool = False
    until: bool = False
    is_of_user: bool = False
    is_of_conversation: bool = False
    offsets: tuple[int, ...] | None = None
    order_by: str | None = None
    is_limited: bool = False

    @property
    def is_unordered(self) -> bool:
        """Whether its rows come in no order: servers sort wide rows slowly, and here all of them arrive anyway."""
        return self.reads_days and self.order_by is None and not self.is_limited

    @property
    def reads_days(self) -> bool:
        """Whether filled days are read."""
        return self.spans or self.filled > 0

    @property
    def is_usual(self) -> bool:
        """Whether its statement is worth keeping: one with a thousand values takes megabytes and hardly comes again."""
        return sum(count for _, count, _ in self.filters) <= KEPT_VALUES


def sums_of(columns: Any, dialect: str) -> list[Any]:
    """The sums over sums (of filled days, or of a subquery), by name."""
    return [_sum(columns[name], dialect).label(name) for name in SUMS]


def ledger_sums(dialect: str) -> list[Any]:
    """The sums over attempts, by name."""
    columns = usage_records.c
    counted: dict[str, Any] = {
        "attempts": func.count(),
        "costs": func.count(columns.cost_nano),
        "latencies": func.count(columns.latency_ms),
        "cache_known_tokens": _sum(case((columns.cached_tokens.is_not(None), columns.input_tokens)), dialect),
    }
    return [(counted[name] if name in counted else _sum(columns[name], dialect)).label(name) for name in SUMS]


def _sum(column: Any, dialect: str) -> Any:
    """A sum as a 64-bit integer: those of the servers are decimals, which take longer to make and to read."""
    if dialect == "postgresql":
        return func.threadkeep_sum(column, type_=BigInteger)  # made by the revision v0_1_0_c
    return cast(func.sum(column), BigInteger) if dialect in MYSQL else func.sum(column)


def report(shape: Shape, dialect: str) -> Prepared:
    """The statement of a report: rows of keys and sums, in order; all rows of filled days come in none.

    With filled days it has no rows (without keys: one with no attempts) where `spans` found no span, or where a day of
    the given ranges is not filled any more. Given ranges and no keys, the last column is 0 then, else 1.
    """
    return _kept_report(shape, dialect) if shape.is_usual else _report(shape, dialect)


def _report(shape: Shape, dialect: str) -> Prepared:
    if shape.reads_days:
        return Prepared(_with_filled(shape, dialect), is_binary=True)
    if "conversation_id" in shape.by:
        return Prepared(_by_conversation(shape, dialect), is_binary=True)
    return Prepared(_ordered(_of_ledger(shape, dialect), shape, dialect), is_binary=True)


_kept_report: Final = lru_cache(maxsize=256)(_report)


@cache
def filled_span() -> Prepared:
    """The first and the last filled day of a range, and how many there are."""
    days = usage_days.c.day
    return Prepared(select(func.min(days), func.max(days), func.count()).where(*_are_filled(1)))


@cache
def filled_days() -> Prepared:
    """The filled days of a range, in order."""
    return Prepared(select(usage_days.c.day).where(*_are_filled(1)).order_by(usage_days.c.day))


def _are_filled(ranges: int) -> list[Any]:
    return [
        usage_days.c.tenant_id == bindparam("tenant"),
        usage_days.c.filled_at.is_not(None),
        _in_ranges(usage_days.c.day, "filled", ranges),
    ]


def key_width(shape: Shape) -> int:
    """How many columns the keys of a row take: an hour where clocks change is told by two."""
    return len(shape.by) + (1 if "hour" in shape.by and has_changes(shape.offsets) else 0)


def _of_ledger(shape: Shape, dialect: str) -> Select[Any]:
    """Sums over the ledger."""
    keys = _keys(shape, usage_records, dialect)
    return select(*keys, *ledger_sums(dialect)).where(*_ledger_conditions(shape)).group_by(*_groups(keys))


def _with_filled(shape: Shape, dialect: str) -> Select[Any] | CompoundSelect[Any]:
    """Filled days from their sums, and other days from the ledger, as one statement sees them."""
    table = _sums_table(shape)
    days = _span(table, dialect) if shape.spans else _scattered(table, shape)
    others = [_of_ledger(replace(shape, ranges=None), dialect).where(condition) for condition in days.others]
    keys = _keys(shape, table, dialect)
    filled = select(*keys).where(table.c.tenant_id == bindparam("tenant"), days.filled, *_filters(shape, table))
    kept = [table.c[name] for name in SUMS]
    if "day" in shape.by and shape.is_unordered:  # a day is filled or not, so no key is in two parts
        if table is usage_daily_models and set(MODEL_KEYS) <= set(shape.by):
            return union_all(filled.add_columns(*kept), *others)
        return union_all(filled.add_columns(*sums_of(table.c, dialect)).group_by(*_groups(keys)), *others)
    parts = union_all(filled.add_columns(*kept), *others).subquery("parts")
    keys = [parts.c[f"key_{number}"].label(f"key_{number}") for number in range(len(shape.by))]
    statement = select(*keys, *sums_of(parts.c, dialect)).group_by(*(key.element for key in keys))
    if not shape.by and days.is_so is not None:
        return statement.add_columns(days.is_so)
    return statement if shape.is_unordered else _ordered(statement, shape, dialect)


class _Days(NamedTuple):
    """Conditions: for the filled days in a table of sums, and for others in the ledger; none is met unless they are so.

    `is_so`: whether they are when the statement runs, 1 or 0.
    """

    filled: Any
    others: Sequence[Any]
    is_so: Any = None


def _span(table: Table, dialect: str) -> _Days:
    """From the first filled day to the last, where there are no others between them. Not for MySQL: see `from_days`."""
    day = usage_days.c.day
    first, last = func.min(day), func.max(day)
    between: Any = func.julianday(last) - func.julianday(first)
    if dialect == "postgresql":
        between = last.op("-", return_type=Integer)(first)
    span = (
        select(first.label("first"), last.label("last"))
        .where(*_are_filled(1))
        .group_by(usage_days.c.tenant_id)
        .having(func.count() == between + literal_column("1"))
        .cte("span")
    )
    start, end = (select(column).scalar_subquery() for column in span.c)
    day = usage_records.c.day
    before = and_(day >= bindparam("day_from_0", type_=Date), day < start)
    after = and_(day > end, day <= bindparam("day_to_0", type_=Date))
    return _Days(and_(table.c.day >= start, table.c.day <= end), [before, after])


def _scattered(table: Table, shape: Shape) -> _Days:
    """Ranges of filled days."""
    count = select(func.count()).select_from(usage_days).where(*_are_filled(shape.filled)).scalar_subquery()
    is_so = count == bindparam("days", type_=Integer)
    told = case((is_so, literal_column("1")), else_=literal_column("0"))
    within = _in_ranges(table.c.day, "filled", shape.filled)
    outside = _in_ranges(usage_records.c.day, "day", shape.ranges or 0)
    return _Days(and_(within, is_so), [and_(outside, is_so)], told)


def _sums_table(shape: Shape) -> Table:
    """Where the sums of filled days are read."""
    asked = {*shape.by, *(name for name, *_ in shape.filters)}
    return usage_daily_models if asked <= {*MODEL_KEYS, *TIMES} else usage_daily


def _by_conversation(shape: Shape, dialect: str) -> Select[Any]:
    """By the id that users see: conversations that are gone have none and count together."""
    inner = _of_ledger(shape, dialect).subquery("ledger")
    place = key_width(replace(shape, by=shape.by[: shape.by.index("conversation_id")]))
    known = and_(*_is_there(inner.c[f"key_{place}"]))
    named = {f"key_{place}": conversations.c.public_id}
    names = [f"key_{number}" for number in range(key_width(shape))]
    keys = [named.get(name, inner.c[name]).label(name) for name in names]
    sums = sums_of(inner.c, dialect)
    joined = inner.outerjoin(conversations, known)
    statement = select(*keys, *sums).select_from(joined).group_by(*(key.element for key in keys))
    return _ordered(statement, shape, dialect)


def _is_there(key: Any) -> list[Any]:
    """Whether a conversation has that key."""
    table = conversations.c
    return [table.tenant_id == bindparam("tenant"), table.id == key, table.status != DELETED]


def _is_gone(key: Any) -> Any:
    return ~select(conversations.c.id).where(*_is_there(key)).correlate(usage_records).exists()


def _keys(shape: Shape, table: Table, dialect: str) -> list[Any]:
    """The keys of rows, by number."""
    found: list[Any] = []
    for name in shape.by:
        if name in TIMES:
            found += time_keys(name, shape.offsets, table, dialect)
        else:
            found.append(table.c[COLUMNS[name]])
    return [column.label(f"key_{number}") for number, column in enumerate(found)]


def _groups(keys: Sequence[Any]) -> list[Any]:
    """Grouped by name: an expression with parameters would be another one the second time."""
    return [literal_column(f"key_{number}") for number in range(len(keys))]


def _ordered(statement: Select[Any], shape: Shape, dialect: str) -> Select[Any]:
    """Largest first, then by keys, byte for byte; what is unknown comes last."""
    if not shape.by:
        return statement
    order: list[Any] = []
    if shape.order_by is not None:
        largest: Any = literal_column(shape.order_by).desc()
        order.append(largest if dialect in MYSQL else largest.nulls_last())
    names = list(shape.by)
    if key_width(shape) > len(names):
        names.insert(names.index("hour") + 1, "offset")
    keys: list[Any] = list(statement.selected_columns)[: len(names)]
    for name, key in zip(names, keys, strict=True):
        order += _order_of(name, key, dialect)
    statement = statement.order_by(*order)
    return statement.limit(bindparam("limit", type_=Integer)) if shape.is_limited else statement


def _order_of(name: str, key: Any, dialect: str) -> list[Any]:
    column: Any = key.element
    if name == "offset":  # when clocks are set back, the hour that was further ahead came first
        return [literal_column(key.name).desc()]
    if name in TIMES:  # named, as in GROUP BY
        return [literal_column(key.name)]
    if dialect == "postgresql" and isinstance(column.type, Identifier):
        column = collate(column, "C")
    if name in NEVER_NULL:
        return [column]
    return [column.is_(None), column] if dialect in MYSQL else [column.asc().nulls_last()]


def _ledger_conditions(shape: Shape) -> list[Any]:
    table = usage_records.c
    found: list[Any] = [table.tenant_id == bindparam("tenant")]
    if shape.is_of_user:
        found.append(table.user_id == bindparam("user"))
    if shape.is_of_conversation:
        found.append(table.conversation_id == bindparam("conversation"))
    if shape.ranges is not None:
        found.append(_in_ranges(table.day, "day", shape.ranges))
    if shape.since:
        found.append(table.occurred_at >= bindparam("since"))
    if shape.until:
        found.append(table.occurred_at < bindparam("until"))
    return found + _filters(shape, usage_records)


def _filters(shape: Shape, table: Table) -> list[Any]:
    found: list[Any] = []
    for name, count, has_null in shape.filters:
        column = table.c[COLUMNS[name]]
        values = [bindparam(wanted(name, number), type_=column.type) for number in range(count)]
        looked: list[Any] = [column == values[0] if count == 1 else column.in_(values)] if values else []
        if has_null:
            looked.append(_is_gone(column) if name == "conversation_id" else column.is_(None))
        found.append(or_(*looked) if looked else false())
    return found


def wanted(name: str, number: int) -> str:
    """The parameter of a value that is looked for; `status_1` is what SQLAlchemy may call one of its own."""
    return f"wanted_{name}_{number}"


def _in_ranges(column: Any, name: str, count: int) -> Any:
    """Days within one of some ranges, both ends included."""
    return or_(
        false(),
        *(
            and_(
                column >= bindparam(f"{name}_from_{number}", type_=Date),
                column <= bindparam(f"{name}_to_{number}", type_=Date),
            )
            for number in range(count)
        ),
    )
