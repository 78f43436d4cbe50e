"""What an answer cost: the figure that the provider reports, and prices by which it is computed. In nano-USD."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any, Final

from threadkeep.domain.objects import shown
from threadkeep.errors import InvalidOption

Amount = int | float | str | Decimal

logger = logging.getLogger("threadkeep")

NANO: Final = 10**9
MAX_COST: Final = 10**15  # a million dollars: no answer costs that, and sums of these fit into 64 bits
MAX_DIGITS: Final = 18  # before the point, of a number that is a cost or a price

# How costs are computed, whatever the application has set for its own decimals
ARITHMETIC: Final = Context(
    prec=28, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[InvalidOperation, DivisionByZero, Overflow]
)

# Where providers report what an answer cost, in their usage object -> the nano-USD of one unit
REPORTED: Final = (
    (("cost_in_usd_ticks",), Decimal("0.1")),   # xAI: ten thousand million ticks are a dollar
    (("cost", "total_cost"), Decimal(NANO)),    # Perplexity
    (("cost",), Decimal(NANO)),                 # OpenRouter: its credits are dollars
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer cost, and how that is known.

    Attributes:
        nano: nano-USD.
        price: JSON text for the ledger: where the figure is from (`source`), and the prices it was computed with.
    """

    nano: int
    price: str


@dataclass(frozen=True, slots=True)
class Price:
    """A price of your own, in USD for a million tokens.

    Attributes:
        model: the model as the ledger names it; ``*`` stands for any text.
        input: for input tokens.
        output: for output tokens, reasoning included.
        cached: for input that came from the provider's cache; None: as `input`.
        cache_write: for input that went into the provider's cache; None: as `input`.
        provider: only for answers of this provider (`provider=` of `add_response`); None: of any.

    Raises:
        InvalidOption: a price is no number from 0 on, or model or provider is no name.
    """

    model: str
    input: Amount
    output: Amount
    cached: Amount | None = None
    cache_write: Amount | None = None
    provider: str | None = None

    def __post_init__(self) -> None:
        given: object = self.model
        if not isinstance(given, str) or not given:
            raise InvalidOption(f"The model of a Price is its name, not {shown(given)}.")
        provider: object = self.provider
        if provider is not None and (not isinstance(provider, str) or not provider):
            raise InvalidOption(f"The provider of a Price is its name or None, not {shown(provider)}.")
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in {"model", "provider"} and not (value is None and one.default is None):
                object.__setattr__(self, one.name, _amount(one.name, value))

    def is_for(self, provider: str | None, model: str) -> bool:
        """Whether it is the price of that model there."""
        return self.provider in {None, provider} and _pattern(self.model).fullmatch(model) is not None


@lru_cache(maxsize=1024)
def _pattern(model: str) -> re.Pattern[str]:
    """Nothing but ``*`` is special: models are called ``claude-sonnet-4-5[1m]``, too.

    What stands between two of them is looked for once: tried anew everywhere, many would take for ever.
    """
    first, *rest = map(re.escape, model.split("*"))
    between = "".join(f"(?>.*?{one})" for one in rest[:-1])
    return re.compile(first + between + "".join(f".*{last}" for last in rest[-1:]), re.DOTALL)


def _amount(name: str, value: object) -> Decimal:
    found = decimal_of(value)
    if found is None:
        raise InvalidOption(f"The {name} of a Price is a number of dollars from 0 on, not {shown(value)}.")
    return found


def decimal_of(value: object) -> Decimal | None:
    """A number from 0 on that can be a cost, exactly as it is written; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        found = Decimal(str(value) if isinstance(value, float) else value)
    except InvalidOperation:
        return None
    return found if found.is_finite() and found >= 0 and found.adjusted() < MAX_DIGITS else None


def whole_nano(amount: Decimal) -> int | None:
    """An amount of nano-USD as it is stored: a half goes to the even number; None, and logged, beyond any real cost."""
    if amount < MAX_COST:
        return int(amount.to_integral_value(ROUND_HALF_EVEN))
    logger.warning("No answer costs %s USD; this figure is left out.", f"{amount / NANO:,.0f}")
    return None


def reported_cost(usage: Mapping[str, Any] | None) -> int | None:
    """The nano-USD that the provider itself reports in its usage object; None where it does not."""
    if not usage:
        return None
    for keys, unit in REPORTED:
        found: Any = usage
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None and (amount := decimal_of(found)) is not None:
            upstream = _billed_elsewhere(usage)
            return None if upstream is None else whole_nano(amount * unit + upstream * NANO)
    return None


def _billed_elsewhere(usage: Mapping[str, Any]) -> Decimal | None:
    """What another one bills beside the reported cost, in dollars; None where that is unknown.

    OpenRouter's `cost` is its fee only where the application brings its own key for the provider behind it.
    """
    if usage.get("is_byok") is not True:
        return Decimal(0)
    details = usage.get("cost_details")
    return decimal_of(details.get("upstream_inference_cost")) if isinstance(details, Mapping) else None
