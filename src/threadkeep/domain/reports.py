"""Reports: sums over the usage ledger, how often tools were called, and how much is stored.

Days begin at midnight of a time zone, whose clocks may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

from threadkeep.domain import jsontext, usage

T = TypeVar("T")
OneOrMore: TypeAlias = T | Sequence[T]

UsageKey: TypeAlias = Literal[
    "hour", "day", "week", "month", "model", "provider", "format", "user_id", "conversation_id",
    "conversation_status", "title", "feedback", "approval", "status", "tool_set", "response", "tenant",
]  # fmt: skip
"""The name of a column that usage can be grouped by; others are ``label:NAME`` and the like, see `Store.usage`."""
UsageSum: TypeAlias = Literal[
    "attempts", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "total_tokens", "cost_nano", "latency_ms", "first_token_ms", "cache_known_tokens",
]  # fmt: skip
"""The name of a sum that usage can be ordered by."""


# The beginnings of the names of keys that show content: only for those who may read conversations
CONTENT_KEYS: Final = ("title", "property:")


class UsageFilters(TypedDict, total=False):
    """Which attempts a report counts: those with this value, or one of these; None stands for unknown."""

    day: OneOrMore[date]
    model: OneOrMore[str | None]
    provider: OneOrMore[str | None]
    format: OneOrMore[str]
    user_id: OneOrMore[str | None]
    conversation_id: OneOrMore[str | None]
    status: OneOrMore[str | None]
    tool_set: OneOrMore[str | None]
    response: OneOrMore[int | None]
    labels: Mapping[str, str]  # of the conversation: all of these


class _Key(Generic[T]):
    """A key of a row, if the report is grouped by it; also the base class of its sums."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, row: Any, owner: type[Any]) -> T:
        if row is None:  # tools look at it on the class, too
            return self  # type: ignore[return-value]
        try:
            value: T = row._values[row._columns.index(self.name)]  # noqa: SLF001 - a part of the row
        except ValueError:
            keys = ", ".join(row.keys) or "none"
            raise AttributeError(f"This usage row has no {self.name!r}. Its keys: {keys}.") from None
        return value


class _Percentile:
    """A percentile of a row, None where the report was not asked for them."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, row: Any, owner: type[Any]) -> float | None:
        return None if row is None or row.percentiles is None else row.percentiles[self.name]


class _Sum(_Key[T]):
    def __init__(self, default: T) -> None:
        self.default = default


class UsageRow:
    """Sums over provider calls. A sum only includes the attempts that reported the figure; None if there are none.

    Attributes:
        hour, day, week, month: the beginning of the hour (aware), or a date: the day, or the first day of the week or
            month. These and the other keys raise AttributeError unless the report is grouped by them.
        model, provider, format, status, tool_set, response: shared by all attempts of the row.
        user_id, conversation_id, conversation_status, title, feedback, approval, tenant: shared by them, too. `keys`
            has all of these, and those with names of yours: ``row.keys["label:team"]``.
        attempts: the number of attempts, including failed ones.
        input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, total_tokens: as in
            `NormalizedUsage`.
        cost_nano: the cost in nano-USD; `costs` is the number of attempts with a known cost.
        latency_ms: the sum of all latencies; `latencies` is the number of attempts with a known latency.
        first_token_ms: the sum of all times to the first token; `first_tokens` is the number of attempts with a known
            one.
        p50_latency_ms, p95_latency_ms, p99_latency_ms, p50_first_token_ms, p95_first_token_ms, p99_first_token_ms: what
            50, 95 and 99 of 100 attempts with a known one do not exceed, within 1 %; None unless the report was made
            with `percentiles`.
        cache_known_tokens: the input tokens of attempts that report how much of their input was cached. Attempts that
            report more cached tokens than input tokens count in neither figure.
    """

    __slots__ = ("_columns", "_values", "percentiles")  # keys, then sums

    hour = _Key[datetime]()
    day = _Key[date]()
    week = _Key[date]()
    month = _Key[date]()
    model = _Key[str | None]()
    provider = _Key[str | None]()
    format = _Key[str | None]()
    user_id = _Key[str | None]()
    conversation_id = _Key[str | None]()
    status = _Key[str | None]()
    conversation_status = _Key[str | None]()
    title = _Key[str | None]()
    feedback = _Key[int | None]()
    approval = _Key[str | None]()
    tenant = _Key[str]()
    tool_set = _Key[str | None]()
    response = _Key[int | None]()

    attempts = _Sum[int](0)
    input_tokens = _Sum[int | None](None)
    cached_tokens = _Sum[int | None](None)
    cache_write_tokens = _Sum[int | None](None)
    output_tokens = _Sum[int | None](None)
    reasoning_tokens = _Sum[int | None](None)
    total_tokens = _Sum[int | None](None)
    cost_nano = _Sum[int | None](None)
    latency_ms = _Sum[int | None](None)
    first_token_ms = _Sum[int | None](None)
    cache_known_tokens = _Sum[int | None](None)
    costs = _Sum[int](0)
    latencies = _Sum[int](0)
    first_tokens = _Sum[int](0)

    p50_latency_ms = _Percentile()
    p95_latency_ms = _Percentile()
    p99_latency_ms = _Percentile()
    p50_first_token_ms = _Percentile()
    p95_first_token_ms = _Percentile()
    p99_first_token_ms = _Percentile()

    percentiles: Mapping[str, float | None] | None  # by name

    def __init__(self, keys: Mapping[str, Any], **sums: int | None) -> None:
        if unknown := sums.keys() - set(SUMS):
            raise TypeError(f"UsageRow has no sum {min(unknown)!r}.")
        self._columns = (*keys, *SUMS)
        self._values: Sequence[Any] = (*keys.values(), *({**_DEFAULTS, **sums}.values()))
        self.percentiles = None

    @classmethod
    def each(cls, names: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> list[UsageRow]:
        """Return rows from database values, thousands at once: keys, sums, and columns that are ignored."""
        result, new, columns = [], cls.__new__, (*names, *SUMS)
        for values in rows:
            row = new(cls)
            row._columns, row._values, row.percentiles = columns, values, None  # noqa: SLF001 - its own
            result.append(row)
        return result

    @property
    def keys(self) -> Mapping[str, Any]:
        """The values of the columns that the report is grouped by, by name; also available as typed attributes."""
        return dict(zip(self._columns[: -len(SUMS)], self._values, strict=False))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UsageRow):
            return NotImplemented
        return (self._sums(), self.keys, self.percentiles) == (other._sums(), other.keys, other.percentiles)

    def __hash__(self) -> int:
        return hash(tuple(self._sums().values()))

    def __repr__(self) -> str:
        return f"UsageRow({self.keys!r}{''.join(f', {name}={value}' for name, value in self._sums().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(UsageRow, self.keys, **self._sums()), (), (None, {"percentiles": self.percentiles})

    def _sums(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SUMS}

    @property
    def cost_usd(self) -> Decimal | None:
        """The exact cost in US dollars."""
        return None if self.cost_nano is None else usage.ARITHMETIC.scaleb(Decimal(self.cost_nano), -9)

    @property
    def unknown_costs(self) -> int:
        """The number of attempts that count as nothing in the cost, because it is unknown.

        They failed or were stopped before the provider told its usage, or have no price.
        """
        return self.attempts - self.costs

    @property
    def mean_cost_usd(self) -> float | None:
        """The mean cost in US dollars of the attempts with a known cost, or None."""
        return None if self.cost_usd is None or not self.costs else float(self.cost_usd) / self.costs

    @property
    def cache_hit_ratio(self) -> float | None:
        """The share of input tokens read from the cache, 0 to 1; None if no provider reports it.

        Also None if it would exceed 1, because some attempts only report one of the two figures.
        """
        if self.cached_tokens is None or not self.cache_known_tokens or self.cached_tokens > self.cache_known_tokens:
            return None
        return self.cached_tokens / self.cache_known_tokens

    @property
    def mean_latency_ms(self) -> float | None:
        """The mean of all known latencies, or None."""
        return None if self.latency_ms is None or not self.latencies else self.latency_ms / self.latencies

    @property
    def mean_first_token_ms(self) -> float | None:
        """The mean of all known times to the first token, or None."""
        return None if self.first_token_ms is None or not self.first_tokens else self.first_token_ms / self.first_tokens

    def to_dict(self) -> jsontext.JsonObject:
        """Return keys and figures in one dict, with percentiles if the report has them.

        Unknown figures are None. ``cost_usd`` is a float, for JSON.
        """
        cost = self.cost_usd
        figures = {name: getattr(self, name) for name in ROW_FIGURES}
        return {**self.keys, **figures, "cost_usd": None if cost is None else float(cost), **(self.percentiles or {})}


_DEFAULTS: Final[dict[str, int | None]] = {
    name: member.default for name, member in vars(UsageRow).items() if isinstance(member, _Sum)
}
PERCENTILES: Final = tuple(name for name, member in vars(UsageRow).items() if isinstance(member, _Percentile))
# The sums of a report
SUMS: Final = tuple(_DEFAULTS)
# The columns of a row besides its keys
ROW_FIGURES: Final = (
    "attempts", *usage.FIGURES, "cost_nano", "cost_usd", "costs", "unknown_costs", "mean_cost_usd",
    "cache_known_tokens", "cache_hit_ratio", "latency_ms", "latencies", "mean_latency_ms", "first_token_ms",
    "first_tokens", "mean_first_token_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReconciliationReport:
    """The result of `reconcile_usage`.

    Attributes:
        filled: how many days were rolled up for the first time.
        repaired: how many sums differed from the ledger and were corrected.
    """

    filled: int
    repaired: int


@dataclass(frozen=True, slots=True)
class RecomputationReport:
    """The result of `recompute_costs`.

    Attributes:
        attempts: how many attempts it looked at.
        changed: how many of them have another cost now, or none, or one for the first time.
        kept: how many keep a cost that cannot be computed here: reported by the provider, from prices of your own that
            this store does not have, or of an attempt whose usage object was erased.
    """

    attempts: int
    changed: int
    kept: int


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """How often a function was called.

    Attributes:
        name: the name of the function; None if the calls have none.
        calls: the number of calls.
        unanswered: how many of them have no output.
        failed: how many of them have an output with the status failed or error.
        period: the day of the calls, or the first day of their week or month; None if the report is not by time.
        p50_latency_ms, p95_latency_ms, p99_latency_ms: what 50, 95 and 99 of 100 answered calls did not exceed, within
            1 %, from when the call was stored until its output was; None unless the report was made with `percentiles`.
    """

    name: str | None
    calls: int
    unanswered: int
    failed: int
    period: date | None = None
    p50_latency_ms: float | None = None
    p95_latency_ms: float | None = None
    p99_latency_ms: float | None = None

    def to_dict(self) -> jsontext.JsonObject:
        """Return the figures by name, without those that the report was not asked for."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "name"}


@dataclass(frozen=True, slots=True)
class LargeConversation:
    """A large conversation.

    Attributes:
        id: its id.
        user_id: the user it belongs to.
        title: its title.
        items: the number of its items, on all branches.
        item_bytes: the size of their JSON text in bytes, without media stored separately.
    """

    id: str
    user_id: str | None
    title: str | None
    items: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much a store contains, without deleted conversations. Sizes are bytes of content, without indexes.

    Attributes:
        active: active conversations, which listings show by default.
        archived: archived conversations.
        branches: forked branches.
        items: items on all branches.
        item_bytes: the size of their JSON text.
        responses: provider responses.
        body_bytes: the size of their raw bodies, compressed.
        media: images and files stored separately, once per content; None if the store is limited to one user.
        media_bytes: their size; None likewise.
        attempts: rows of the usage ledger, including rows of deleted conversations.
        largest: the largest conversations, in bytes of items, largest first.
    """

    active: int
    archived: int
    branches: int
    items: int
    item_bytes: int
    responses: int
    body_bytes: int
    media: int | None
    media_bytes: int | None
    attempts: int
    largest: Sequence[LargeConversation] = ()


DAY: Final = timedelta(days=1)
GRACE: Final = timedelta(hours=1)  # after its end a day is rolled up: time for transactions that began before
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The result of `erase_user`.

    Attributes:
        conversations: how many conversations were removed.
        attempts: how many ledger rows were made anonymous; their figures are kept.
        items: how many items in other users' conversations no longer name the user as their author.
        is_scrubbed: whether the text is also gone from the database files (SQLite), as far as is known: False without
            `vacuum`, within a transaction of the caller's, or if a reader prevented it. None if the server decides.
    """

    conversations: int
    attempts: int
    items: int
    is_scrubbed: bool | None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What `retain` removed or, with `dry_run`, would remove.

    Attributes:
        raw_bodies: the number of raw response bodies.
        conversations: the number of conversations, with all their content.
        changes: the number of changes in the change feed.
    """

    raw_bodies: int
    conversations: int
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """What is due of one kind.

    Attributes:
        count: how many there are; with `is_least`, at least.
        is_least: whether there may be more: at most 10,000 rows of a kind are looked at.
        oldest: since when the oldest of those that were looked at has been there (a conversation: without activity).
            None if nothing is due.
    """

    count: int
    is_least: bool
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What `retain` would have to remove now; None for what no age was given for.

    Attributes:
        raw_bodies: raw response bodies; without partitions of months, bodies of the conversations that were created
            first are looked at.
        conversations: conversations, with all their content.
        changes: changes in the change feed.
        deleted: how many deleted conversations still have rows, which `retain` removes; 10,000 at most.
    """

    raw_bodies: Due | None
    conversations: Due | None
    changes: Due | None
    deleted: int


def offset_at(zone: tzinfo, at: datetime) -> int:
    """By how many seconds local time is ahead of UTC."""
    return round((at.astimezone(zone).utcoffset() or timedelta()).total_seconds())


def changes_of(zone: tzinfo, since: datetime, until: datetime) -> tuple[list[datetime], tuple[int, ...]]:
    """The moments in a span of time at which the clocks change, and the offsets before, between and after them.

    Two changes within a day and a half that cancel each other would be missed; no zone has them.
    """
    at, end = since.astimezone(UTC).replace(microsecond=0), until.astimezone(UTC).replace(microsecond=0) + _SECOND
    offsets, changes = [offset_at(zone, at)], list[datetime]()
    while at < end:
        later = min(at + DAY, end)
        while offset_at(zone, later) != offsets[-1]:
            change = _change(zone, at, later)
            changes.append(change)
            offsets.append(offset_at(zone, change))
            at = change
        at = later
    return changes, tuple(offsets)


def _change(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The first second of another offset."""
    offset = offset_at(zone, before)
    while after - before > _SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def midnight(day: date, zone: tzinfo) -> datetime:
    """The moment at which a day begins in a time zone."""
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def last_day(now: datetime) -> date:
    """The last UTC day that can be rolled up."""
    return (now - GRACE).astimezone(UTC).date() - DAY


def ranges_of(days: Sequence[date]) -> list[tuple[date, date]]:
    """Days, in order, as ranges without gaps."""
    ranges: list[tuple[date, date]] = []
    for day in days:
        if ranges and day - ranges[-1][1] == DAY:
            ranges[-1] = ranges[-1][0], day
        else:
            ranges.append((day, day))
    return ranges


def gaps_of(ranges: Sequence[tuple[date, date]], first: date, last: date) -> list[tuple[date, date]]:
    """The days from `first` to `last` that are in none of these ranges, as ranges."""
    gaps, day = [], first
    for start, end in ranges:
        if day < start:
            gaps.append((day, start - DAY))
        day = end + DAY
    return [*gaps, (day, last)] if day <= last else gaps
