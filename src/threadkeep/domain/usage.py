"""The usage of a response: tokens, as counted by the provider and by threadkeep, and the cost in nano-USD."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, json_copy, mismatch
from threadkeep.errors import InvalidOption, shown

Amount = int | float | str | Decimal

logger = logging.getLogger("threadkeep")


@dataclass(frozen=True, slots=True)
class NormalizedUsage:
    """Token counts that mean the same for every provider; None if the provider does not report one.

    Attributes:
        input_tokens: all input, including what was read from or written to the provider's cache.
        cached_tokens: input tokens read from the cache.
        cache_write_tokens: input tokens written to the cache.
        output_tokens: all output, including reasoning.
        reasoning_tokens: output tokens of the reasoning.
        total_tokens: input and output.
    """

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None

    def to_dict(self) -> dict[str, int]:
        """Return the known figures by name."""
        return {name: value for name in FIGURES if (value := getattr(self, name)) is not None}


FIGURES: Final = tuple(figure.name for figure in fields(NormalizedUsage))
_DIGITS: Final = 18  # no count has more; all of these fit into 64 bits
_COUNTS: Final = range(10**_DIGITS)


def figure(value: object) -> int | None:
    """Return a token count: a whole number of any type, or its text; None (unknown) for anything else.

    A number that cannot be a count (negative, or more than 18 digits) is logged.
    """
    if value.__class__ is int and value in _COUNTS:  # nearly always
        return value
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    if not isinstance(value, int | float) or value % 1:  # which is true of NaN and infinities
        return None
    if int(value) in _COUNTS:
        return int(value)
    logger.warning("A provider counted %s tokens; the figure counts as unknown.", shown(value))
    return None


@dataclass(frozen=True, init=False)
class Usage:
    """The tokens of one response as the provider counts them, under uniform names.

    Attributes:
        raw: the provider's usage object as received; not part of `to_dict`.
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
        vars(self).update(
            input_tokens=figure(input_tokens),
            output_tokens=figure(output_tokens),
            total_tokens=figure(total_tokens),
            input_tokens_details=_details(input_tokens_details),
            output_tokens_details=details,
            raw=raw,
        )
        vars(self)["normalized"] = normalized or self._normalized()

    @property
    def cached_tokens(self) -> int | None:
        """Input tokens read from the provider's cache."""
        return figure((self.input_tokens_details or {}).get("cached_tokens"))

    @property
    def cache_creation_input_tokens(self) -> int | None:
        """Input tokens written to the provider's cache, under the name used by some providers."""
        return figure((self.input_tokens_details or {}).get("cache_creation_input_tokens"))

    @property
    def reasoning_tokens(self) -> int | None:
        """Output tokens of the model's reasoning."""
        return figure((self.output_tokens_details or {}).get("reasoning_tokens"))

    def _normalized(self) -> NormalizedUsage:
        """Return the figures of the same names: correct if the provider's totals include their parts."""
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
        """Return the figures by name; figures that the provider did not report are omitted, and nothing is computed."""
        return {name: json_copy(value, name) for name in _WRITTEN if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], normalized: NormalizedUsage | None = None) -> Usage:
        """Return the usage written by `to_dict`; other keys are ignored."""
        return cls(**{name: data.get(name) for name in (*_WRITTEN, "reasoning_tokens")}, normalized=normalized)


_WRITTEN: Final = ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")


def _details(value: object) -> JsonObject | None:
    return json_copy(value, "the details of a usage") if isinstance(value, dict | Mapping) else None


NANO: Final = 10**9
MAX_COST: Final = 10**15  # a million dollars: no response costs that, and sums of these fit into 64 bits
MAX_DIGITS: Final = 18  # before the decimal point of a cost or a price

# How costs are computed, regardless of the application's own decimal context
ARITHMETIC: Final = Context(
    prec=28, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[InvalidOperation, DivisionByZero, Overflow]
)

# Where providers report the cost of a response, in their usage object -> the nano-USD of one unit
REPORTED: Final = (
    (("cost_in_usd_ticks",), Decimal("0.1")),   # xAI: ten billion ticks are a dollar
    (("cost", "total_cost"), Decimal(NANO)),    # Perplexity
    (("cost",), Decimal(NANO)),                 # OpenRouter: its credits are dollars
)  # fmt: skip
_REPORTING: Final = frozenset(keys[0] for keys, _ in REPORTED)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a response, and its source."""

    nano: int  # nano-USD
    price: str  # JSON text for the ledger: the `source` of the figure, and the prices it was computed with


@dataclass(frozen=True, slots=True)
class Price:
    """Your own price of a model, in USD per million tokens.

    Attributes:
        model: the model as named in the ledger; ``*`` matches any text.
        input: the price of input tokens.
        output: the price of output tokens, including reasoning.
        cached: the price of input tokens read from the provider's cache; None: same as `input`.
        cache_write: the price of input tokens written to the provider's cache; None: same as `input`.
        provider: only for responses of this provider (`provider=` of `add_response`); None: any provider.

    Raises:
        InvalidOption: a price is not a number of at least 0, or the model or provider is not a name.
    """

    model: str
    input: Amount
    output: Amount
    cached: Amount | None = None
    cache_write: Amount | None = None
    provider: str | None = None

    def __post_init__(self) -> None:
        for price in fields(self):
            name, value = price.name, getattr(self, price.name)
            if value is None and price.default is None:
                continue
            if name in ("model", "provider"):
                if not isinstance(value, str) or not value:
                    raise mismatch(InvalidOption, f"the name of a {name}", value, name)
            elif (amount := decimal_of(value)) is not None:
                object.__setattr__(self, name, amount)
            else:
                raise mismatch(InvalidOption, "a number of dollars from 0 on", value, name)

    def is_for(self, provider: str | None, model: str) -> bool:
        """Return whether it is the price of that model at that provider."""
        return self.provider in {None, provider} and _pattern(self.model).fullmatch(model) is not None


@lru_cache(maxsize=1024)
def _pattern(model: str) -> re.Pattern[str]:
    """Only ``*`` is special: some models are called ``claude-sonnet-4-5[1m]``.

    The text between two of them is matched only once; backtracking would take forever if there are many.
    """
    first, *rest = map(re.escape, model.split("*"))
    between = "".join(f"(?>.*?{text})" for text in rest[:-1])
    return re.compile(first + between + "".join(f".*{last}" for last in rest[-1:]), re.DOTALL)


def decimal_of(value: object) -> Decimal | None:
    """Return a non-negative number that can be a cost, exactly as written; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        result = Decimal(str(value) if isinstance(value, float) else value)
    except InvalidOperation:
        return None
    return result if result.is_finite() and result >= 0 and result.adjusted() < MAX_DIGITS else None


def whole_nano(amount: Decimal) -> int | None:
    """Return nano-USD as stored, rounded half to even; None (and a log message) if no real cost can be that high."""
    if amount < MAX_COST:
        return int(amount.to_integral_value(ROUND_HALF_EVEN))
    logger.warning("No response costs %s USD; this figure is left out.", f"{amount / NANO:,.0f}")
    return None


def reported_cost(usage: Mapping[str, Any] | None) -> int | None:
    """Return the cost in nano-USD that the provider reports in its usage object, or None."""
    if not usage or _REPORTING.isdisjoint(usage):
        return None
    for keys, unit in REPORTED:
        value: Any = usage
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and (amount := decimal_of(value)) is not None:
            if usage.get("is_byok") is not True:
                return whole_nano(amount * unit)
            # OpenRouter's is only its fee: the provider behind it bills the rest, as the application uses its own key
            details = usage.get("cost_details")
            rest = decimal_of(details.get("upstream_inference_cost")) if isinstance(details, Mapping) else None
            return None if rest is None else whole_nano(amount * unit + rest * NANO)
    return None
