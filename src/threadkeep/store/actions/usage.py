"""What was used: sums over the ledger, and over filled days where they answer the question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, func, select

from threadkeep.db.dialects import is_mysql
from threadkeep.db.queries.usage import (
    COLUMNS,
    KEYS,
    Shape,
    filled_days,
    filled_span,
    report,
    wanted,
)
from threadkeep.db.queries.usage_times import TIMES
from threadkeep.db.tables import usage_records
from threadkeep.db.types import name_from
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.usage import SUMS, UsageRow
from threadkeep.domain.zones import changes_of, gaps_of, midnight, ranges_of
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.days import last_day
from threadkeep.store.actions.entries import facts_at, facts_of
from threadkeep.store.place import Place, Scope, whole

GROUPS: Final = (*TIMES, *(name for name in COLUMNS if name != "day"))
ORDERS: Final = ("attempts", *(name for name in SUMS if name.endswith(("_tokens", "_nano", "_ms"))))
FIRST: Final = date(1000, 1, 1)
LAST: Final = date(9999, 12, 30)
EARLIEST: Final = midnight(FIRST, UTC)
LATEST: Final = midnight(LAST, UTC)
ONE: Final = timedelta(days=1)
MAX_VALUES: Final = 10_000  # that are looked for: statements name them three times, and SQLite takes 32,766 parameters
MAX_RANGES: Final = 40  # of filled days; where they are scattered more than that, the ledger is as fast
_SUMMED_BY_DAY: Final = frozenset({*KEYS, "day"})
_KINDS: Final = {"day": (date, "a date"), "response": (int, "a whole number")}  # what else than text is looked for
_OTHERS: Final = {"day": datetime, "response": bool}  # which Python takes for one of these

Ranges = list[tuple[date, date]]
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What to sum: grouped by these columns, over this time and these values."""

    by: tuple[str, ...] = ()
    since: date | datetime | None = None
    until: date | datetime | None = None  # exclusive
    zone: tzinfo = UTC  # of dates and times
    filters: Mapping[str, Any] = field(default_factory=dict)
    order_by: str | None = None
    limit: int | None = None
    conversation: int | None = None  # the key of the only conversation to look at

    def __post_init__(self) -> None:
        _check_names("grouped", self.by, GROUPS)
        _check_names("filtered", self.filters, COLUMNS)
        if len(set(self.by)) < len(self.by):
            raise InvalidOption(f"by names a column twice: {', '.join(self.by)}.")
        if self.order_by is not None and self.order_by not in ORDERS:
            raise InvalidOption(f"order_by is one of {', '.join(ORDERS)}, not {self.order_by!r}.")
        if self.limit is not None and whole("limit", self.limit) < 1:
            raise InvalidOption(f"limit is a number from 1 on, not {self.limit!r}.")
        several = {name: _several(value) for name, value in self.filters.items()}
        if sum(map(len, several.values())) > MAX_VALUES:
            raise InvalidOption(f"Usage is filtered by at most {MAX_VALUES:,} values at once ({', '.join(several)}).")
        for name, values in several.items():
            for one in values:
                (kind, what), other = _KINDS.get(name, (str, "a text")), _OTHERS.get(name, ())
                if one is not None and (isinstance(one, other) or not isinstance(one, kind)):
                    raise InvalidOption(f"Usage is filtered by {name} with {what}, not {one!r}.")

    @property
    def is_utc(self) -> bool:
        """Whether its days are those of UTC."""
        return self.zone is UTC or not any(name in TIMES for name in self.by)

    def fits_days(self, scope: Scope) -> bool:
        """Whether sums of days answer it."""
        return (
            scope.user is None
            and self.conversation is None
            and self.is_utc
            and _SUMMED_BY_DAY.issuperset(self.filters)
            and all(name in KEYS or name in {"day", "week", "month"} for name in self.by)
        )


@dataclass(frozen=True, slots=True)
class Times:
    """Bounds of a question: moments, and the UTC days that lie in them as a whole or in part."""

    since: datetime | None
    until: datetime | None

    @classmethod
    def of(cls, question: Question) -> Times:
        """Dates are days in the zone of the question."""
        return cls(*(moment_of(bound, question.zone) for bound in (question.since, question.until)))

    def narrowed(self, days: Sequence[date | None] | None) -> Times:
        """The part of these times that lies between some UTC days; all of it where None is one of them."""
        known = [day for day in days or () if day is not None]
        if not days or len(known) < len(days):
            return self
        since, until = moment_of(min(known), UTC), moment_of(min(max(known), LAST) + ONE, UTC)
        return Times(max(since, self.since or since), min(until, self.until or until))

    @property
    def first(self) -> date:
        """The first day of which a part is wanted."""
        return FIRST if self.since is None else self.since.date()

    @property
    def last(self) -> date:
        """The last day of which a part is wanted."""
        return LAST if self.until is None else (self.until - timedelta.resolution).date()

    @property
    def first_whole(self) -> date:
        """The first day that is wanted as a whole."""
        return self.first + ONE if self.has_since else self.first

    @property
    def last_whole(self) -> date:
        """The last day that is wanted as a whole."""
        return self.last - ONE if self.has_until else self.last

    @property
    def has_since(self) -> bool:
        """Whether the first bound lies within a day."""
        return self.since is not None and self.since != moment_of(self.since.date(), UTC)

    @property
    def has_until(self) -> bool:
        """Whether the last bound lies within a day."""
        return self.until is not None and self.until != moment_of(self.until.date(), UTC)


def usage(connection: Connection, scope: Scope, question: Question) -> list[UsageRow]:
    """The sums; figures that no record knows are None."""
    values = {name: _several(value) for name, value in question.filters.items()}
    if "conversation_id" in values:
        values["conversation_id"] = _keys_of(connection, scope, values["conversation_id"])
    if "response" in values:
        values["response"] = [None if one is None else whole("response", one) for one in values["response"]]
    if "tool_set" in values:
        values["tool_set"] = [None if one is None else _hash(one) for one in values["tool_set"]]
    times = Times.of(question).narrowed(values.get("day"))
    asked = _Asked(question, scope, times, values)
    rows: list[UsageRow] | None = None
    if times.first > times.last:
        rows = []
    elif question.fits_days(scope):
        rows = asked.from_days(connection)
    if rows is None:
        rows = asked.from_ledger(connection)
    return rows or ([UsageRow(keys={})] if not question.by else [])


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with the values that its statements take."""

    question: Question
    scope: Scope
    times: Times
    values: Mapping[str, Sequence[Any]]

    def from_ledger(self, connection: Connection) -> list[UsageRow]:
        """The answer, from the ledger alone."""
        parameters = self._parameters()
        shape = self._shape(offsets=None if self.question.is_utc else self._offsets(connection, parameters))
        if self.times.since is not None or self.times.until is not None:
            shape = replace(shape, ranges=1)
            parameters |= _ranges("day", [(self.times.first, self.times.last)])
        return self._rows(shape, _run(connection, shape, parameters))

    def from_days(self, connection: Connection) -> list[UsageRow] | None:
        """The answer, from filled days and for the rest from the ledger; None where none is filled, or too scattered.

        Mostly all days between the first and the last one are filled, and a statement can find these two out by itself.
        MySQL is told: it uses no index for a bound that is a subquery.
        """
        whole = self.times.first_whole, min(self.times.last_whole, last_day(datetime.now(UTC)))
        if whole[0] > whole[1]:
            return None
        parameters = self._parameters() | _ranges("filled", [whole])
        if not is_mysql(connection.dialect):
            ends = _ranges("day", [(self.times.first, self.times.last)])
            shape = self._shape(spans=True)
            rows = _run(connection, shape, parameters | ends)
            if rows and rows[0][len(shape.by)]:
                return self._rows(shape, rows)
        filled = _filled(connection, parameters)
        if not filled or len(filled) > MAX_RANGES:
            return None
        rest = gaps_of(filled, self.times.first, self.times.last)
        ranges = _ranges("filled", filled) | _ranges("day", rest) | {"days": sum(map(_days_in, filled))}
        return self._from_ranges(connection, self._shape(filled=len(filled), ranges=len(rest)), parameters | ranges)

    def _from_ranges(self, connection: Connection, shape: Shape, parameters: dict[str, Any]) -> list[UsageRow] | None:
        """The answer from ranges of days; None where these are not filled any more."""
        rows = _run(connection, shape, parameters)
        if shape.by and rows:
            return self._rows(shape, rows)
        if not shape.by:
            return self._rows(shape, rows) if rows[0][-1] else None
        total = replace(shape, by=(), order_by=None, is_limited=False)  # nothing was used, or days are not filled
        [(attempts, *_, is_so)] = _run(connection, total, parameters)
        return [] if is_so and not attempts else None

    def _rows(self, shape: Shape, rows: Sequence[Row]) -> list[UsageRow]:
        """The rows of a report, of which there can be many."""
        if "hour" in shape.by:
            rows = [_with_hour(row, shape) for row in rows]
        if shape.is_unordered:  # as the database orders them, so before names are read
            rows = _in_order(rows, len(shape.by))
        for place, name in enumerate(shape.by):
            rows = _read(rows, place, _READERS.get(name, name_from))
        return UsageRow.each(shape.by, rows)

    def _shape(self, **more: Any) -> Shape:
        times = self.times
        return Shape(
            by=self.question.by,
            filters=tuple(
                (name, sum(one is not None for one in values), None in values) for name, values in self.values.items()
            ),
            since=times.has_since,
            until=times.has_until,
            is_of_user=self.scope.user is not None,
            is_of_conversation=self.question.conversation is not None,
            order_by=self.question.order_by,
            is_limited=self.question.limit is not None,
            **more,
        )

    def _parameters(self) -> dict[str, Any]:
        found = self.scope.bound(
            conversation=self.question.conversation,
            since=self.times.since,
            until=self.times.until,
            limit=None if self.question.limit is None else whole("limit", self.question.limit),
        )
        for name, values in self.values.items():
            known = [one for one in values if one is not None]
            found |= {wanted(name, number): value for number, value in enumerate(known)}
        return found

    def _offsets(self, connection: Connection, parameters: dict[str, Any]) -> tuple[int, ...]:
        """How far local time is ahead while there are rows; the moments of changes become parameters."""
        table = usage_records.c
        ends = connection.execute(
            select(func.min(table.day), func.max(table.day)).where(table.tenant_id == self.scope.tenant)
        ).one()
        first, last = ends[0] or FIRST, ends[1] or FIRST
        since = max(moment_of(first, UTC), self.times.since or moment_of(FIRST, UTC))
        until = min(moment_of(last + ONE, UTC), self.times.until or moment_of(LAST, UTC))
        changes, offsets = changes_of(self.question.zone, since, max(since, until))
        parameters |= {f"change_{number}": change for number, change in enumerate(changes)}
        return offsets


def _run(connection: Connection, shape: Shape, parameters: Mapping[str, Any]) -> Sequence[Row]:
    """The rows of a report, as they come."""
    return report(shape, connection.dialect.name).rows(connection, parameters)


def _filled(connection: Connection, parameters: Mapping[str, Any]) -> Ranges:
    """The filled days of a range."""
    [(first, last, count)] = filled_span().rows(connection, parameters)
    if not count:
        return []
    whole = _date(first), _date(last)
    if _days_in(whole) == count:  # no gaps, as nearly always
        return [whole]
    return ranges_of([_date(day) for (day,) in filled_days().rows(connection, parameters)])


def _days_in(range_: tuple[date, date]) -> int:
    return (range_[1] - range_[0]).days + 1


def _check_names(verb: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidOption(f"Usage cannot be {verb} by {name!r}; it can by {', '.join(known)}.")


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def moment_of(bound: date | datetime | None, zone: tzinfo) -> Any:
    """A bound in UTC, within what all databases and the arithmetic of dates take."""
    if bound is None:
        return None
    try:
        moment = (bound if isinstance(bound, datetime) else midnight(bound, zone)).astimezone(UTC)
    except OverflowError:
        moment = EARLIEST if bound.year < FIRST.year else LATEST
    return min(max(moment, EARLIEST), LATEST)


def _ranges(name: str, ranges: Ranges) -> dict[str, date]:
    ends = {f"{name}_from_{number}": start for number, (start, _) in enumerate(ranges)}
    return ends | {f"{name}_to_{number}": end for number, (_, end) in enumerate(ranges)}


def _read(rows: Sequence[Row], place: int, reader: Callable[[Any], Any]) -> Sequence[Row]:
    """Rows with a key as users see it. Mostly it comes from the driver like that, and rows stay as they are."""
    read = {value: reader(value) for value in set(map(itemgetter(place), rows))}
    if all(value == found for value, found in read.items()):
        return rows
    return [(*row[:place], read[row[place]], *row[place + 1 :]) for row in rows]


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(value)


def _in_order(rows: Sequence[Row], width: int) -> list[Row]:
    """Rows by their first columns, byte for byte; what is unknown comes last."""
    found = list(rows)
    for key in map(itemgetter, reversed(range(width))):
        is_known = None not in map(key, found)
        found.sort(key=key if is_known else lambda row, key=key: (key(row) is None, key(row)))  # type: ignore[misc]
    return found


def _with_hour(row: Row, shape: Shape) -> Row:
    """A row with an hour in place of what the database says of it: local time, and where clocks change its offset."""
    place, offsets = shape.by.index("hour"), shape.offsets or (0,)
    rest = row[place + 1 :] if len(offsets) == 1 else row[place + 2 :]
    ahead = offsets[0] if len(offsets) == 1 else row[place + 1]
    wall = row[place] if isinstance(row[place], datetime) else datetime.fromisoformat(row[place])
    # with its distance from UTC as the zone: times in a zone that clocks show twice would be equal
    return (*row[:place], wall.replace(tzinfo=timezone(timedelta(seconds=ahead)) if ahead else UTC), *rest)


def _public_id(value: Any) -> str | None:
    return None if value is None else public_id_text(bytes(value))


def _hex(value: Any) -> str | None:
    return None if value is None else bytes(value).hex()


def _as_it_is(value: Any) -> Any:
    return value


# How the keys of rows are read that are no names
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "hour": _as_it_is, "day": _date, "week": _date, "month": _date, "conversation_id": _public_id, "tool_set": _hex,
    "response": _as_it_is,
}  # fmt: skip


def _hash(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidOption(f"tool_set={text!r} is not the hash of a tool set: 64 hexadecimal digits.") from error


def _keys_of(connection: Connection, scope: Scope, public_ids: Sequence[str | None]) -> list[int | None]:
    """The keys of conversations; None stands for those that are gone, and an id of which there is none for nothing."""
    known = [conversation_key(connection, scope, one) for one in public_ids if one is not None]
    found: list[int | None] = [key for key in known if key is not None]
    return [*found, None] if None in public_ids else found


def conversation_key(connection: Connection, scope: Scope, public_id: str) -> int | None:
    """The key of a conversation by the id that users see; None when this scope has none."""
    facts = facts_of(connection, scope, "public_id", public_id_bytes(public_id))
    return None if facts is None else facts.id


def usage_of_conversation(connection: Connection, place: Place, question: Question) -> list[UsageRow]:
    """The sums of one conversation.

    Raises:
        NotFound: it is not there.
    """
    facts_at(connection, place)
    return usage(connection, place.scope, question)
