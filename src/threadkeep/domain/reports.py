"""What reports tell: sums over the usage ledger, how often tools were called, and how much is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import ARITHMETIC, FIGURES

T = TypeVar("T")
OneOrMore: TypeAlias = T | Sequence[T]

UsageKey: TypeAlias = Literal[
    "hour", "day", "week", "month", "model", "provider", "format", "user_id", "conversation_id", "status", "tool_set",
    "response",
]  # fmt: skip
"""What usage can be grouped by: the name of a column."""
UsageSum: TypeAlias = Literal[
    "attempts", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "total_tokens", "cost_nano", "latency_ms", "cache_known_tokens",
]  # fmt: skip
"""What rows of usage can be ordered by: the name of a sum."""


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


class _Key(Generic[T]):
    """A key of a row, where the report is grouped by it; and the base of its sums."""

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


class _Sum(_Key[T]):
    def __init__(self, default: T) -> None:
        self.default = default


class UsageRow:
    """Sums over provider attempts; a sum is None where no attempt reported the figure, else that of those that did.

    Attributes:
        hour, day, week, month: aware; the first day of a week or month. These and the other keys raise AttributeError
            where the report is not grouped by them.
        model, provider, format, user_id, conversation_id, status, tool_set, response: what the attempts share.
        attempts: how many there were, failed ones included.
        input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, total_tokens: as in
            `NormalizedUsage`.
        cost_nano: in nano-USD; `costs` says of how many attempts it is known.
        latency_ms: the sum of all latencies; `latencies` says of how many attempts one is known.
        cache_known_tokens: input of the attempts that say how much of it came from the cache. Attempts that report more
            cached tokens than input count in neither figure.
    """

    __slots__ = ("_columns", "_values")  # keys, then sums

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
    cache_known_tokens = _Sum[int | None](None)
    costs = _Sum[int](0)
    latencies = _Sum[int](0)

    def __init__(self, keys: Mapping[str, Any], **sums: int | None) -> None:
        if unknown := sums.keys() - set(SUMS):
            raise TypeError(f"UsageRow has no sum {min(unknown)!r}.")
        self._columns = (*keys, *SUMS)
        self._values: Sequence[Any] = (*keys.values(), *({**_DEFAULTS, **sums}.values()))

    @classmethod
    def each(cls, names: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> list[UsageRow]:
        """Rows of values as a database gives them, thousands at once: keys, sums, and what does not count."""
        result, new, columns = [], cls.__new__, (*names, *SUMS)
        for values in rows:
            row = new(cls)
            row._columns, row._values = columns, values  # noqa: SLF001 - its own
            result.append(row)
        return result

    @property
    def keys(self) -> Mapping[str, Any]:
        """What the attempts share, by the names that the report is grouped by; the attributes are the same, typed."""
        return dict(zip(self._columns[: -len(SUMS)], self._values, strict=False))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UsageRow):
            return NotImplemented
        return self._sums() == other._sums() and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(tuple(self._sums().values()))

    def __repr__(self) -> str:
        return f"UsageRow({self.keys!r}{''.join(f', {name}={value}' for name, value in self._sums().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(UsageRow, self.keys, **self._sums()), ()

    def _sums(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SUMS}

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost in US dollars, exactly."""
        return None if self.cost_nano is None else ARITHMETIC.scaleb(Decimal(self.cost_nano), -9)

    @property
    def mean_cost_usd(self) -> float | None:
        """The mean cost in US dollars of the attempts whose cost is known; None where none is."""
        return None if self.cost_usd is None or not self.costs else float(self.cost_usd) / self.costs

    @property
    def cache_hit_ratio(self) -> float | None:
        """How much of the input came from the cache, 0 to 1, where providers report it; None where none does.

        Also None where more came from it than there was: some attempts report only one of the two figures.
        """
        if self.cached_tokens is None or not self.cache_known_tokens or self.cached_tokens > self.cache_known_tokens:
            return None
        return self.cached_tokens / self.cache_known_tokens

    @property
    def mean_latency_ms(self) -> float | None:
        """The mean latency of the attempts that have one; None where none has."""
        return None if self.latency_ms is None or not self.latencies else self.latency_ms / self.latencies

    def to_dict(self) -> JsonObject:
        """Keys and figures in one dict; unknown figures are None. For JSON, ``cost_usd`` is a float here."""
        cost = self.cost_usd
        figures = {name: getattr(self, name) for name in ROW_FIGURES}
        return {**self.keys, **figures, "cost_usd": None if cost is None else float(cost)}


_DEFAULTS: Final[dict[str, int | None]] = {
    name: member.default for name, member in vars(UsageRow).items() if isinstance(member, _Sum)
}
# What a report sums up
SUMS: Final = tuple(_DEFAULTS)
# What a row shows besides its keys
ROW_FIGURES: Final = (
    "attempts", *FIGURES, "cost_nano", "cost_usd", "costs", "cache_hit_ratio",
    "latency_ms", "latencies", "mean_latency_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReconciliationReport:
    """What `reconcile_usage` did.

    Attributes:
        filled: how many days were summed up for the first time.
        repaired: how many sums differed from the ledger and were corrected.
    """

    filled: int
    repaired: int


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """How often a tool was called.

    Attributes:
        name: of the function; None where a call has none.
        calls: how many calls there were.
        unanswered: of these, calls without an output.
        failed: of these, calls whose output has the status failed, incomplete or error.
    """

    name: str | None
    calls: int
    unanswered: int
    failed: int

    def to_dict(self) -> JsonObject:
        """The figures by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LargeConversation:
    """A conversation that takes much space.

    Attributes:
        id: its id.
        user_id: whose it is.
        title: for people.
        items: how many items it has, on all branches.
        item_bytes: bytes of their JSON text, without media that are stored separately.
    """

    id: str
    user_id: str | None
    title: str | None
    items: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much a store contains, without deleted conversations; sizes are bytes of content, without indexes.

    Attributes:
        active: conversations that listings show by default.
        archived: conversations that were archived.
        branches: forks.
        items: on all branches.
        item_bytes: their JSON text.
        responses: answers of providers.
        body_bytes: their raw bodies, compressed.
        media: pictures and files that are stored separately, once per content; None for a store of one user.
        media_bytes: their content; likewise.
        attempts: rows of the usage ledger, those of deleted conversations included.
        largest: the conversations with the most bytes of items, largest first.
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
