"""Statements of usage reports: over the ledger, and over the sums of rolled-up days.

Reports with the same `StatementKey` execute the same statement, which is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Select, Table, bindparam, case, func, literal_column, select

from threadkeep.db import functions, models, types
from threadkeep.db.driver import Statement
from threadkeep.db.models import (
    conversation_labels,
    conversations,
    usage_daily,
    usage_daily_models,
    usage_daily_sketches,
    usage_days,
    usage_records,
)
from threadkeep.db.queries.conversations import DELETED, of_tenant, tested, with_label
from threadkeep.domain.reports import SUMS

TIMES: Final = ("hour", "day", "week", "month")
# What rolled-up days are summed by
KEYS: Final = ("provider", "model", "format", "status")
MODEL_KEYS: Final = ("model",)
# Durations that percentiles are read from; a report about them has rows of groups, a duration, how often it occurs,
# instead of these two counts of many, and the number of which it is
MEASURES: Final = ("latency_ms", "first_token_ms")
CACHED_VALUES: Final = 100  # in the filters of a statement that is cached
NEVER_NULL: Final = ("format",)
# What a report can be grouped by, apart from times, and filtered by -> its column in the ledger
COLUMNS: Final = {
    "model": "model", "provider": "provider", "format": "format", "user_id": "user_id",
    "conversation_id": "conversation_id", "status": "status", "tool_set": "tool_set_hash", "response": "response",
    "day": "day",
}  # fmt: skip


# What a report can be grouped by that conversations have -> its column there
OF_CONVERSATION: Final = {"conversation_id": "public_id", "conversation_status": "status", "title": "title"}
# Likewise, followed by a name: labels and properties of conversations; labels of items of responses, and what the
# options of their requests have as `metadata`
LABEL, PROPERTY, ITEM_LABEL, METADATA = "label:", "property:", "item_label:", "metadata:"
NAMED: Final = (LABEL, PROPERTY, ITEM_LABEL, METADATA)
# Those that are read from JSON texts, here and not by the databases: these refuse some of them
READ: Final = (PROPERTY, METADATA)


@dataclass(frozen=True, slots=True)
class StatementKey:
    """What kind of report it is, apart from values."""

    by: tuple[str, ...]  # what it is grouped by
    filters: tuple[tuple[str, int, bool], ...] = ()  # column, number of values, whether NULL is one of them
    ranges: int | None = None  # number of ranges of days of the ledger; None: all days
    rolled_up: int = 0  # number of ranges of rolled-up days
    spans: bool = False  # the statement itself finds their range: all of them, where there are no other days between
    since: bool = False  # the bound lies within a day, likewise `until`
    until: bool = False
    is_of_user: bool = False  # the store is for one user
    is_of_conversation: bool = False
    labels: int = 0  # number of labels that the conversations have
    offsets: tuple[int, ...] | None = None  # by which local time is ahead (see `time_keys`); None: times are UTC
    order_by: str | None = None  # the sum to order by, largest first
    is_limited: bool = False
    is_read: bool = False  # keys are read from JSON texts, which brings rows together
    durations: bool = False  # occurrences of durations are counted, in place of sums
    measure: str | None = None  # the one that is, in a part of the statement

    @property
    def is_unordered(self) -> bool:
        """Whether its rows are not ordered: servers sort wide rows slowly, and all of these are fetched anyway."""
        return self.reads_days and self.order_by is None and not self.is_limited

    @property
    def reads_days(self) -> bool:
        """Whether rolled-up days are read."""
        return self.spans or self.rolled_up > 0

    @property
    def is_cached(self) -> bool:
        """Whether its statement is cached: one with a thousand values takes megabytes and is hardly ever repeated."""
        return sum(count for _, count, _ in self.filters) <= CACHED_VALUES


def rounded(column: Any) -> Any:
    """A duration in milliseconds, rounded by at most a thousandth: as many as there are, few of them differ."""
    steps = {4**power: 2 ** (2 * power - 11) for power in range(6, 21)}  # how far apart those below a bound are
    whens = [(column < 1024, column)]  # noqa: PLR2004 - below that they are as they are
    whens += [(column < bound, _stepped(column, step)) for bound, step in steps.items()]
    return case(*whens, else_=_stepped(column, max(steps.values()))).label("duration")


def _stepped(column: Any, step: int) -> Any:
    """A number in the middle of the step that it is in."""
    return column - column % literal_column(str(step)) + literal_column(str(step // 2))


def _counts(key: StatementKey) -> tuple[list[Any], list[Any]]:
    """What a row of the ledger's sums has besides its groups, and those of it that it is grouped by."""
    if key.measure is None:
        return ledger_sums(), []
    return [rounded(usage_records.c[key.measure]), func.count().label("attempts"), sa.null().label("sketch")], [
        literal_column("duration")
    ]


def sums_of(columns: Any) -> list[Any]:
    """The sums over sums (of rolled-up days, or of a subquery), by name; none where it has none."""
    return [functions.integer_sum(columns[name]).label(name) for name in SUMS if name in columns]


def ledger_sums() -> list[Any]:
    """The sums over attempts, by name."""
    columns = usage_records.c
    is_known = columns.cached_tokens <= columns.input_tokens  # else the provider contradicts itself
    counted: dict[str, Any] = {
        "attempts": func.count(),
        "costs": func.count(columns.cost_nano),
        "latencies": func.count(columns.latency_ms),
        "first_tokens": func.count(columns.first_token_ms),
        "cached_tokens": functions.integer_sum(sa.case((is_known, columns.cached_tokens))),
        "cache_known_tokens": functions.integer_sum(sa.case((is_known, columns.input_tokens))),
    }
    return [(counted[name] if name in counted else functions.integer_sum(columns[name])).label(name) for name in SUMS]


def report_statement(key: StatementKey) -> Statement:
    """The statement of a report: rows of groups and sums, ordered unless `key.is_unordered`.

    With rolled-up days it returns no rows (without groups: one with no attempts) where there is no such span, or where
    a day of the ranges is not rolled up any more. With ranges and without groups, the last column is 0 then, else 1.
    """
    return _cached_report(key) if key.is_cached else _report(key)


def _report(key: StatementKey) -> Statement:
    if not key.durations:
        return Statement(_of_days(key) if key.reads_days else _ordered(_of_days(key), key), binary=True)
    parts = [_of_days(replace(key, durations=False, measure=name)).subquery(name) for name in MEASURES]
    numbered = (select(part, literal_column(str(number)).label("measure")) for number, part in enumerate(parts))
    return Statement(sa.union_all(*numbered), binary=True)


def _of_days(key: StatementKey) -> Any:
    if key.reads_days:
        return _with_rolled_up(key)
    return _joined(key) if any(map(is_joined_with, key.by)) else _of_ledger(key)


def is_joined_with(name: str) -> bool:
    """Whether a report is grouped by something that conversations or responses have, and attempts do not."""
    return name in OF_CONVERSATION or name.startswith((LABEL, PROPERTY)) or _is_of_response(name)


def _is_of_response(name: str) -> bool:
    return name in OF_RESPONSE or name.startswith((ITEM_LABEL, METADATA))


def named_parameter(number: int) -> str:
    """The parameter with the name behind ``label:`` and the like, of a column to group by."""
    return f"by_name_{number}"


def _joined(key: StatementKey) -> Select[Any]:
    """Sums by what conversations and responses have: deleted ones have nothing and count together.

    In a store for one user, those that are another's by now have nothing, either.
    """
    own = [name for name in key.by if not is_joined_with(name)]
    ids = ["conversation_id", "response"] if any(map(_is_of_response, key.by)) else ["conversation_id"]
    by = (*(name for name in own if name not in ids), *ids)
    inner = _of_ledger(replace(key, by=by)).subquery("ledger")
    *others, talk, number = [*inner.c][: key_width(replace(key, by=by))] + [None] * (2 - len(ids))
    joined: Any = inner.outerjoin(conversations, sa.and_(*_is_shown(key, talk)))
    columns: list[Any] = []
    rest: Iterator[Any] = iter(others)
    for place, name in enumerate(key.by):
        if (column := "properties" if name.startswith(PROPERTY) else OF_CONVERSATION.get(name)) is not None:
            columns.append(conversations.c[column])
        elif is_joined_with(name):
            facts, here = _facts(name, place, number)
            joined = joined.outerjoin(facts.table, sa.and_(*here))
            columns.append(facts)
        elif name in ids:
            columns.append(number)
        else:
            columns.append(next(rest))
            if name == "hour" and has_changes(key.offsets):
                columns.append(next(rest))
    groups = [column.label(f"key_{number}") for number, column in enumerate(columns)]
    sums, more = sums_of(inner.c), list[Any]()
    if key.measure is not None:
        sums, more = [inner.c.duration, functions.integer_sum(inner.c.attempts), sa.null()], [inner.c.duration]
    statement = select(*groups, *sums).select_from(joined)
    return statement.group_by(*(group.element for group in groups), *more)


def _facts(name: str, place: int, response: Any) -> tuple[Any, list[Any]]:
    """A column of what conversations or responses have under a name, and how its rows are joined."""
    if name.startswith(LABEL):
        labels = conversation_labels.alias(f"label_{place}").c
        here = [labels.tenant_id == conversations.c.tenant_id, labels.conversation_id == conversations.c.id]
        return labels.value, [*here, labels.key == bindparam(named_parameter(place))]
    facts = _of_responses(name, place).subquery(f"facts_{place}").c
    return facts.value, [conversations.c.id == facts.conversation_id, response == facts.number]


def _of_responses(name: str, place: int) -> Select[Any]:
    """What responses have under a name: rows of conversation, number and value."""
    table = models.responses.c
    columns = table.conversation_id, table.number
    where = [*of_tenant(models.responses), table.deleted_at.is_(None)]
    if name.startswith(METADATA):
        configs = models.configs.c
        is_of = sa.and_(configs.tenant_id == table.tenant_id, configs.hash == table.config_hash)
        return select(*columns, configs.config.label("value")).join(models.configs, is_of).where(*where)
    about, value = (models.item_labels, func.min) if name.startswith(ITEM_LABEL) else OF_RESPONSE[name]
    column = about.c[_VALUES[about.name]]
    within = about.c.position >= table.from_position, about.c.position <= table.to_position
    here = about.c.tenant_id == table.tenant_id, about.c.conversation_id == table.conversation_id
    if name.startswith(ITEM_LABEL):
        where.append(about.c.key == bindparam(named_parameter(place)))
    found = select(*columns, value(column).label("value")).join(about, sa.and_(*here, *within))
    return found.where(*where, column.is_not(None)).group_by(*columns)


_VALUES: Final = {
    models.item_feedback.name: "rating", models.approvals.name: "decision", models.item_labels.name: "value",
}  # fmt: skip
# What a report can be grouped by that responses have -> what people say about their items, and which of several counts:
# the worst rating, and a denial
OF_RESPONSE: Final[dict[str, tuple[Table, Callable[..., Any]]]] = {
    "feedback": (models.item_feedback, func.min),
    "approval": (models.approvals, func.max),
}

_cached_report: Final = lru_cache(maxsize=256)(_report)


@cache
def rolled_up_span() -> Statement:
    """The first and the last rolled-up day of a range, and their number."""
    days = usage_days.c.day
    return Statement(select(func.min(days), func.max(days), func.count()).where(*_are_rolled_up(1)))


@cache
def rolled_up_days() -> Statement:
    """The rolled-up days of a range, in order."""
    return Statement(select(usage_days.c.day).where(*_are_rolled_up(1)).order_by(usage_days.c.day))


def _are_rolled_up(ranges: int) -> list[Any]:
    days = usage_days.c
    return [*of_tenant(usage_days), days.filled_at.is_not(None), _in_ranges(days.day, "rolled_up", ranges)]


def key_width(key: StatementKey) -> int:
    """How many columns the groups of a row take: an hour takes two where clocks change."""
    return len(key.by) + (1 if "hour" in key.by and has_changes(key.offsets) else 0)


def _of_ledger(key: StatementKey) -> Select[Any]:
    """Sums over the ledger."""
    groups = _group_columns(key, usage_records)
    table, where = usage_records.c, of_tenant(usage_records)
    if key.is_of_user:
        where.append(table.user_id == bindparam("user"))
    if key.is_of_conversation:
        where.append(table.conversation_id == bindparam("conversation"))
    if key.labels:
        where.append(table.conversation_id.in_(_labelled(key)))
    if key.ranges is not None:
        days = _in_ranges(table.day, "day", key.ranges)
        where.append(tested(days) if key.labels else days)  # an index of days has those of all other conversations, too
    if key.since:
        where.append(table.occurred_at >= bindparam("since"))
    if key.until:
        where.append(table.occurred_at < bindparam("until"))
    where += _filters(key, usage_records)
    counts, more = _counts(key)
    if key.measure is not None:
        where.append(table[key.measure].is_not(None))
    return select(*groups, *counts).where(*where).group_by(*_group_names(groups), *more)


def _labelled(key: StatementKey) -> Select[Any]:
    """The conversations with all labels, without deleted ones: those with the first label, of which others are tested.

    Deleted ones lose their labels soon, so an index has the few that still have some.
    """
    label = conversation_labels.c
    labelled = with_label(bindparam("tenant"), bindparam("label_0"), bindparam("label_value_0"))
    for number in range(1, key.labels):
        other = conversation_labels.alias(f"label_{number}").c
        here = other.tenant_id == label.tenant_id, other.conversation_id == label.conversation_id
        is_one = other.key == bindparam(f"label_{number}"), other.value == bindparam(f"label_value_{number}")
        labelled = labelled.where(select(other.value).where(*here, *is_one).correlate(conversation_labels).exists())
    if key.is_of_user:
        return labelled.join(conversations, sa.and_(*_is_shown(key, label.conversation_id)))
    deleted = select(conversations.c.id).where(*of_tenant(conversations), conversations.c.status == DELETED)
    return labelled.where(label.conversation_id.not_in(deleted))


def _with_rolled_up(key: StatementKey) -> Select[Any] | sa.CompoundSelect[Any]:
    """Rolled-up days from their sums, and other days from the ledger, in one statement."""
    # The table with the sums of rolled-up days
    columns = {*key.by, *(name for name, *_ in key.filters)}
    table = usage_daily_models if columns <= {*MODEL_KEYS, *TIMES} else usage_daily
    if key.measure is not None:
        table = usage_daily_sketches
    days = _span(table) if key.spans else _scattered(table, key)
    others = [_of_ledger(replace(key, ranges=None)).where(condition) for condition in days.others]
    groups = _group_columns(key, table)
    rolled_up = select(*groups).where(*of_tenant(table), days.rolled_up, *_filters(key, table))
    if key.measure is not None:
        counts = table.c[key.measure]
        return sa.union_all(
            rolled_up.add_columns(sa.null().label("duration"), sa.null().label("attempts"), counts).where(
                counts.is_not(None)
            ),
            *others,
        )
    sums = [table.c[name] for name in SUMS]
    if "day" in key.by and key.is_unordered:  # a day is rolled up or not, so no group is in both parts
        if table is usage_daily_models and set(MODEL_KEYS) <= set(key.by):
            return sa.union_all(rolled_up.add_columns(*sums), *others)
        return sa.union_all(rolled_up.add_columns(*sums_of(table.c)).group_by(*_group_names(groups)), *others)
    parts = sa.union_all(rolled_up.add_columns(*sums), *others).subquery("parts")
    groups = [parts.c[f"key_{number}"].label(f"key_{number}") for number in range(len(key.by))]
    statement = select(*groups, *sums_of(parts.c)).group_by(*(group.element for group in groups))
    if not key.by and days.are_unchanged is not None:
        return statement.add_columns(days.are_unchanged)
    return statement if key.is_unordered else _ordered(statement, key)


class _Days(NamedTuple):
    """Conditions for rolled-up days in a table of sums, and for other days in the ledger.

    None is met unless the former are still rolled up when the statement is executed; `are_unchanged` is 1 then, else 0.
    """

    rolled_up: Any
    others: Sequence[Any]
    are_unchanged: Any = None


def _span(table: Table) -> _Days:
    """From the first rolled-up day to the last, where there are no other days between.

    Not for MySQL, which uses no index for a bound that is a subquery.
    """
    day = usage_days.c.day
    first, last = func.min(day), func.max(day)
    span = (
        select(first.label("first"), last.label("last"))
        .where(*_are_rolled_up(1))
        .group_by(usage_days.c.tenant_id)
        .having(func.count() == functions.days_between(first, last) + sa.literal_column("1"))
        .cte("span")
    )
    start, end = (select(column).scalar_subquery() for column in span.c)
    day = usage_records.c.day
    before = sa.and_(day >= bindparam("day_from_0", type_=sa.Date), day < start)
    after = sa.and_(day > end, day <= bindparam("day_to_0", type_=sa.Date))
    return _Days(sa.and_(table.c.day >= start, table.c.day <= end), [before, after])


def _scattered(table: Table, key: StatementKey) -> _Days:
    """Ranges of rolled-up days."""
    count = select(func.count()).select_from(usage_days).where(*_are_rolled_up(key.rolled_up)).scalar_subquery()
    are_unchanged = count == bindparam("days", type_=sa.Integer)
    flag = sa.case((are_unchanged, sa.literal_column("1")), else_=sa.literal_column("0"))
    within = _in_ranges(table.c.day, "rolled_up", key.rolled_up)
    outside = _in_ranges(usage_records.c.day, "day", key.ranges or 0)
    return _Days(sa.and_(within, are_unchanged), [sa.and_(outside, are_unchanged)], flag)


def _is_shown(key: StatementKey, column: Any) -> list[Any]:
    """Conditions for a conversation that is not deleted, and the user's where the store is for one."""
    own = [conversations.c.user_id == bindparam("user")] if key.is_of_user else []
    return [*of_tenant(conversations), conversations.c.id == column, conversations.c.status != DELETED, *own]


def _group_columns(key: StatementKey, table: Table) -> list[Any]:
    """What rows are grouped by, labelled by number."""
    columns: list[Any] = []
    for name in key.by:
        if name in TIMES:
            columns += time_keys(name, key.offsets, table)
        else:
            columns.append(table.c[COLUMNS[name]])
    return [column.label(f"key_{number}") for number, column in enumerate(columns)]


def _group_names(groups: Sequence[Any]) -> list[Any]:
    """Labels for GROUP BY: the same expression with parameters would count as another one."""
    return [sa.literal_column(f"key_{number}") for number in range(len(groups))]


def _ordered(statement: Select[Any], key: StatementKey) -> Select[Any]:
    """Largest first, then by groups, byte for byte; NULL comes last."""
    if not key.by:
        return statement
    order: list[Any] = []
    if key.order_by is not None:
        order.append(functions.largest_first(sa.literal_column(key.order_by)))
    names = list(key.by)
    if key_width(key) > len(names):
        names.insert(names.index("hour") + 1, "offset")
    groups: list[Any] = list(statement.selected_columns)[: len(names)]
    for name, group in zip(names, groups, strict=True):
        order += _order_of(name, group)
    statement = statement.order_by(*order)
    return statement.limit(bindparam("limit", type_=sa.Integer)) if key.is_limited else statement


def _order_of(name: str, group: Any) -> list[Any]:
    column: Any = group.element
    if name == "offset":  # when clocks are set back, the hour that was further ahead came first
        return [sa.literal_column(group.name).desc()]
    if name in TIMES:  # named, as in GROUP BY
        return [sa.literal_column(group.name)]
    if isinstance(column.type, types.Identifier | sa.Text):
        column = functions.bytewise(column)
    return [column if name in NEVER_NULL else functions.smallest_first(column)]


def _filters(key: StatementKey, table: Table) -> list[Any]:
    where: list[Any] = []
    for name, count, has_null in key.filters:
        column = table.c[COLUMNS[name]]
        values = [bindparam(filter_parameter(name, number), type_=column.type) for number in range(count)]
        alternatives: list[Any] = [column == values[0] if count == 1 else column.in_(values)] if values else []
        if has_null:
            deleted = ~select(conversations.c.id).where(*_is_shown(key, column)).correlate(usage_records).exists()
            alternatives.append(deleted if name == "conversation_id" else column.is_(None))
        where.append(sa.or_(*alternatives) if alternatives else sa.false())
    return where


def filter_parameter(name: str, number: int) -> str:
    """The name of a filter's parameter; SQLAlchemy may call one of its own `status_1`."""
    return f"filter_{name}_{number}"


def _in_ranges(column: Any, name: str, count: int) -> Any:
    """Days within one of some ranges, both ends included."""
    days = [[bindparam(f"{name}_{end}_{number}", type_=sa.Date) for end in ("from", "to")] for number in range(count)]
    return sa.or_(sa.false(), *(sa.and_(column >= first, column <= last) for first, last in days))


# Hours, days, weeks and months, in any time zone


def time_keys(name: str, offsets: Sequence[int] | None, table: Any) -> list[Any]:
    """The columns to group by; an hour takes two where clocks change, the second is how far local time is ahead.

    `offsets`: seconds by which local time is ahead of UTC, one more than there are changes (the parameters ``change_0``
    …); None: times are UTC.
    """
    if name != "hour" and offsets is None:
        return [table.c.day if name == "day" else functions.STARTS[name](table.c.day)]
    offset = _offset(offsets or (0,), table)
    columns = [functions.STARTS[name](functions.local_time(table.c.occurred_at, offset))]
    return [*columns, offset] if name == "hour" and has_changes(offsets) else columns


def has_changes(offsets: Sequence[int] | None) -> bool:
    """Whether clocks change."""
    return offsets is not None and len(offsets) > 1


def _offset(offsets: Sequence[int], table: Any) -> Any:
    changes: list[Any] = [
        (table.c.occurred_at < bindparam(f"change_{number}"), literal_column(str(offset)))
        for number, offset in enumerate(offsets[:-1])
    ]
    last: Any = literal_column(str(offsets[-1]))
    return case(*changes, else_=last) if changes else last
