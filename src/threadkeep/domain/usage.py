"""Usage: the tokens that a response cost, as the provider counts them and as threadkeep does."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, overload

from threadkeep.domain.cost import ARITHMETIC
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NormalizedUsage:
    """Token counts that mean the same for every provider; None where the provider does not say.

    Attributes:
        input_tokens: all input, what came from or went into the provider's cache included.
        cached_tokens: of these, read from the cache.
        cache_write_tokens: of these, written to the cache.
        output_tokens: all output, reasoning included.
        reasoning_tokens: of these, reasoning.
        total_tokens: input and output.
    """

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None

    def to_dict(self) -> dict[str, int]:
        """The known figures by name."""
        return {name: value for name in FIGURES if (value := getattr(self, name)) is not None}


FIGURES: Final = tuple(one.name for one in fields(NormalizedUsage))
_DIGITS: Final = 18  # no count has more; all of these fit into 64 bits
_COUNTS: Final = range(10**_DIGITS)

logger = logging.getLogger("threadkeep")


def figure(value: object) -> int | None:
    """A token count: whole numbers in any dress; None, which is unknown, for everything else.

    A number that counts nothing (below zero, beyond 18 digits) is logged.
    """
    if value.__class__ is int and value in _COUNTS:  # nearly always
        return value
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    if not isinstance(value, int) and not (isinstance(value, float) and value.is_integer()):
        return None
    if int(value) not in _COUNTS:
        logger.warning("A provider counted %s tokens; the figure counts as unknown.", shown(value))
        return None
    return int(value)


@dataclass(frozen=True, init=False)
class Usage:
    """The tokens of one response in the provider's own way of counting, under one set of names.

    Attributes:
        raw: the provider's usage object as it came; not part of `to_dict`.
        normalized: the figures that mean the same for every provider.
    """

    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_tokens_details: JsonObject | None
    output_tokens_details: JsonObject | None
    normalized: NormalizedUsage = field(repr=False)
    raw: JsonObject | None = field(compare=False, repr=False)

    def __init__(
        self,
        *,
        input_tokens: object = None,
        output_tokens: object = None,
        total_tokens: object = None,
        input_tokens_details: Mapping[str, Any] | None = None,
        output_tokens_details: Mapping[str, Any] | None = None,
        reasoning_tokens: object = None,
        raw: JsonObject | None = None,
        normalized: NormalizedUsage | None = None,
    ) -> None:
        details = _details(output_tokens_details)
        if details is None and figure(reasoning_tokens) is not None:
            details = {"reasoning_tokens": figure(reasoning_tokens)}
        values: dict[str, Any] = {
            "input_tokens": figure(input_tokens),
            "output_tokens": figure(output_tokens),
            "total_tokens": figure(total_tokens),
            "input_tokens_details": _details(input_tokens_details),
            "output_tokens_details": details,
            "raw": raw,
        }
        vars(self).update(values)
        vars(self)["normalized"] = normalized or self._normalized()

    @property
    def cached_tokens(self) -> int | None:
        """Input tokens that came from the provider's cache."""
        return figure((self.input_tokens_details or {}).get("cached_tokens"))

    @property
    def cache_creation_input_tokens(self) -> int | None:
        """Input tokens that went into the provider's cache, under the name that some providers use."""
        return figure((self.input_tokens_details or {}).get("cache_creation_input_tokens"))

    @property
    def reasoning_tokens(self) -> int | None:
        """Output tokens of the model's reasoning."""
        return figure((self.output_tokens_details or {}).get("reasoning_tokens"))

    def _normalized(self) -> NormalizedUsage:
        """The figures of the same names: right where the provider's totals include their parts."""
        written = figure((self.input_tokens_details or {}).get("cache_write_tokens"))
        total = self.total_tokens
        if total is None and self.input_tokens is not None and self.output_tokens is not None:
            total = self.input_tokens + self.output_tokens
        return NormalizedUsage(
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            cache_write_tokens=self.cache_creation_input_tokens if written is None else written,
            output_tokens=self.output_tokens,
            reasoning_tokens=self.reasoning_tokens,
            total_tokens=total,
        )

    def to_dict(self) -> JsonObject:
        """The figures by name; what the provider did not say is left out, and nothing is computed."""
        return {name: json_copy(value, name) for name in _WRITTEN if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], normalized: NormalizedUsage | None = None) -> Usage:
        """The usage that `to_dict` wrote; other keys are left out."""
        return cls(**{name: data.get(name) for name in (*_WRITTEN, "reasoning_tokens")}, normalized=normalized)


_WRITTEN: Final = ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")


def _details(value: object) -> JsonObject | None:
    return json_copy(value, "the details of a usage") if isinstance(value, dict | Mapping) else None


# What a report adds up
SUMS: Final = ("attempts", *FIGURES, "cost_nano", "latency_ms", "cache_known_tokens", "costs", "latencies")


class _Sum(Generic[T]):
    """A sum of a row, which lies behind its keys."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._place = SUMS.index(name)

    @overload
    def __get__(self, row: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, row: UsageRow, owner: type[Any]) -> T: ...
    def __get__(self, row: UsageRow | None, owner: type[Any]) -> Self | T:
        if row is None:
            return self
        value: T = row._values[len(row._names) + self._place]  # noqa: SLF001 - a part of the row
        return value


class UsageRow:
    """Sums over provider attempts; a sum is None where no attempt reported the figure, else that of those that did.

    Attributes:
        attempts: how many there were, failed ones included.
        cost_nano: in nano-USD; `costs` says of how many attempts it is known.
        latency_ms: the sum of all latencies; `latencies` says of how many attempts one is known.
        cache_known_tokens: input of the attempts that say how much of it came from the cache.
    """

    __slots__ = ("_names", "_values")

    attempts = _Sum[int]()
    input_tokens = _Sum[int | None]()
    cached_tokens = _Sum[int | None]()
    cache_write_tokens = _Sum[int | None]()
    output_tokens = _Sum[int | None]()
    reasoning_tokens = _Sum[int | None]()
    total_tokens = _Sum[int | None]()
    cost_nano = _Sum[int | None]()
    latency_ms = _Sum[int | None]()
    cache_known_tokens = _Sum[int | None]()
    costs = _Sum[int]()
    latencies = _Sum[int]()

    def __init__(
        self,
        keys: Mapping[str, Any],
        *,
        attempts: int = 0,
        input_tokens: int | None = None,
        cached_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        output_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        total_tokens: int | None = None,
        cost_nano: int | None = None,
        latency_ms: int | None = None,
        cache_known_tokens: int | None = None,
        costs: int = 0,
        latencies: int = 0,
    ) -> None:
        self._names = tuple(keys)
        self._values: Sequence[Any] = (
            *keys.values(), attempts, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
            total_tokens, cost_nano, latency_ms, cache_known_tokens, costs, latencies,
        )  # fmt: skip

    @classmethod
    def each(cls, names: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> list[UsageRow]:
        """Rows of values as a database gives them, thousands at once: keys, sums, and what does not count."""
        found, new = [], cls.__new__
        for values in rows:
            row = new(cls)
            row._names, row._values = names, values  # noqa: SLF001 - its own
            found.append(row)
        return found

    @property
    def keys(self) -> Mapping[str, Any]:
        """What the attempts have in common, by the names that were asked for (``day``, ``model`` …).

        Each is readable as an attribute, too.
        """
        return dict(zip(self._names, self._values, strict=False))

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            return self._values[self._names.index(name)]
        raise AttributeError(f"This usage row has no {name!r}. Its keys: {', '.join(self._names) or 'none'}.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UsageRow):
            return NotImplemented
        return self._sums() == other._sums() and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self._sums())

    def __repr__(self) -> str:
        sums = "".join(f", {name}={value}" for name, value in zip(SUMS, self._sums(), strict=True))
        return f"UsageRow({self.keys!r}{sums})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(UsageRow, self.keys, **dict(zip(SUMS, self._sums(), strict=True))), ()

    def _sums(self) -> tuple[Any, ...]:
        return tuple(self._values[len(self._names) :][: len(SUMS)])

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost in US dollars, exactly."""
        return None if self.cost_nano is None else ARITHMETIC.scaleb(Decimal(self.cost_nano), -9)

    @property
    def cache_hit_ratio(self) -> float | None:
        """How much of the input came from the cache, 0 to 1, where providers tell; None where none does.

        None also where more came from it than there was: some attempts say the one figure without the other.
        """
        if self.cached_tokens is None or not self.cache_known_tokens or self.cached_tokens > self.cache_known_tokens:
            return None
        return self.cached_tokens / self.cache_known_tokens

    @property
    def mean_latency_ms(self) -> float | None:
        """The mean latency of the attempts that have one; None where none has."""
        return None if self.latency_ms is None or not self.latencies else self.latency_ms / self.latencies

    def to_dict(self) -> JsonObject:
        """Keys and figures in one dict; unknown figures are None."""
        return {**self.keys, **{name: getattr(self, name) for name in ROW_FIGURES}}


# What a row tells beside its keys
ROW_FIGURES: Final = (
    "attempts", *FIGURES, "cost_nano", "costs", "cache_hit_ratio", "latency_ms", "latencies", "mean_latency_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How many days were summed up for the first time, and how many sums differed from the ledger and were mended."""

    filled: int
    mended: int


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
        return {one.name: getattr(self, one.name) for one in fields(self)}
