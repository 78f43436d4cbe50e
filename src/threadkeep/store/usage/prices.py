"""Prices: what a response cost, from the provider's own figure, the application's prices, or the list of genai-prices.

They are looked up with what the ledger knows, so that the cost of a row can be computed again from its price.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.usage import ARITHMETIC, NANO, Cost, NormalizedUsage, Price, reported_cost, whole_nano
from threadkeep.errors import InvalidOption, shown
from threadkeep.store.usage import billing

REPORTED: Final = "provider"
OWN: Final = "own"
LIST: Final = "genai-prices"

NANO_OF_MTOK: Final = 1000  # a dollar for a million tokens is so many nano-USD for one
CACHED_MODELS: Final = 1000
MOST_PLANS: Final = 100

# The provider where neither the application nor the name of the model says it: format -> provider
VENDORS: Final = {"converse": "aws"}

# Prices of tokens of any kind -> the field of a Price
PLAIN: Final = {
    "input_mtok": "input",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "cache_write",
    "output_mtok": "output",
}
PER_REQUEST: Final = "requests_kcount"  # a price of the request itself

logger = logging.getLogger("threadkeep")


class Amount(NamedTuple):
    """What a part of a call cost."""

    nano: Decimal
    text: str  # its price, for the ledger


class PriceEntry(NamedTuple):
    """The prices of a model: USD for a million tokens, and `text`, which the ledger keeps."""

    input: Decimal
    cached: Decimal
    cache_write: Decimal
    output: Decimal
    text: str

    @classmethod
    def of(cls, source: str, model: str, prices: Mapping[str, Decimal]) -> PriceEntry:
        """Of prices by their names in PLAIN; tokens of the cache cost what other input costs, if not said."""
        rate, output = prices.get("input_mtok", Decimal(0)), prices.get("output_mtok", Decimal(0))
        cached, written = prices.get("cache_read_mtok", rate), prices.get("cache_write_mtok", rate)
        return cls(rate, cached, written, output, _text(source, model, prices))

    def cost(self, figures: NormalizedUsage) -> Amount | None:
        """Return the cost of these figures; None if the provider did not report input or output."""
        if figures.input_tokens is None or figures.output_tokens is None:
            return None
        cached = min(figures.cached_tokens or 0, figures.input_tokens)
        written = min(figures.cache_write_tokens or 0, figures.input_tokens - cached)
        rest = figures.input_tokens - cached - written
        amount = (
            rest * self.input + cached * self.cached + written * self.cache_write + figures.output_tokens * self.output
        )
        return Amount(amount * NANO_OF_MTOK, self.text)


@dataclass(frozen=True, slots=True)
class PriceSheet:
    """The prices of genai-prices for a model at a time, read once."""

    prices: Any  # its own object; as long as it is kept, no other one has its identity
    known: frozenset[str]  # the names of the units that have a price
    required: frozenset[str]  # and of those that cost more than what they are a part of, or are no tokens
    places: Sequence[tuple[str, Sequence[billing.Path]]]  # where usage objects count units, by their names
    has_request_price: bool  # whether the request itself costs something
    thresholds: tuple[int, ...]  # the sizes of the input above which plain prices are others
    entries: dict[int, PriceEntry | None] = field(default_factory=dict)  # plain prices, by thresholds that are exceeded
    plans: dict[frozenset[str], Sequence[tuple[str, Sequence[billing.Path]]]] = field(
        default_factory=dict
    )  # see `_plan`

    @classmethod
    def of(cls, prices: Any, provider: str) -> PriceSheet:
        """What is looked up of prices again and again."""
        known = {name: price for name, price in vars(prices).items() if price is not None}
        dearer = {name for name, unit in billing.UNITS.items() if unit.dearer_at is None or provider in unit.dearer_at}
        names = {name: unit.name or name for name, unit in billing.UNITS.items() if name in known or name in dearer}
        places = [
            (counted, billing.compiled(path)) for name, counted in names.items() for path in billing.UNITS[name].paths
        ]
        tiered = [known[name] for name in PLAIN if not isinstance(known.get(name, Decimal(0)), Decimal)]
        thresholds = sorted({tier.start for price in tiered for tier in price.tiers})
        priced, required = (frozenset(names[name] for name in names if name in some) for some in (known, dearer))
        return cls(prices, priced, required, places, PER_REQUEST in known, tuple(thresholds))

    def counts(self, usage: JsonObject | None, used: Mapping[str, int] | None = None) -> dict[str, int]:
        """What a usage object counts of these units, by their names; `used` are counts that it does not have."""
        counts: dict[str, int] = {}
        if usage:
            for name, places in self._plan(usage):
                if name not in counts and (count := billing.count_of(usage, places)):
                    counts[name] = count
        return {**counts, **used} if used else counts

    def _plan(self, usage: JsonObject) -> Sequence[tuple[str, Sequence[billing.Path]]]:
        """The places that a usage object with these keys can have; providers use few sets of keys."""
        keys = frozenset(usage)
        plan = self.plans.get(keys)
        if plan is None:
            if len(self.plans) >= MOST_PLANS:
                self.plans.clear()
            found = ((name, [path for path in places if path[0][0] in keys]) for name, places in self.places)
            plan = self.plans[keys] = [(name, places) for name, places in found if places]
        return plan

    def covers(self, counts: Mapping[str, int]) -> bool:
        """Whether there are prices of all units that need one."""
        missing = counts.keys() & self.required - self.known
        return not missing or (self.has_request_price and missing == {"web_searches"})


_WHOLE: Final = {
    unit.name: unit.whole for unit in billing.UNITS.values() if unit.name is not None and unit.whole is not None
}


class PriceBook:
    """Sources of costs: what the provider reports, then `own` prices, then genai-prices."""

    def __init__(self, own: Iterable[Price] | None = None) -> None:
        self._own = () if own is None else tuple(_check_prices(own))
        self._own_entry = lru_cache(CACHED_MODELS)(self._find_own)
        self._list: PriceList | None = None

    @property
    def has_own(self) -> bool:
        """Whether the application has prices of its own."""
        return bool(self._own)

    @property
    def has_list(self) -> bool:
        """Whether genai-prices is installed."""
        return _snapshots()() is not None

    def cost(self, call: billing.BillableCall) -> Cost | None:
        """Return the cost of a response, or None if unknown. Never fails: responses are stored in any case."""
        with localcontext(ARITHMETIC):
            reported = reported_cost(call.usage)
            if reported is not None:
                return Cost(reported, REPORTED_TEXT)
            try:
                if billing.IMAGES in call.terms or (call.usage and call.usage.get("iterations")):
                    shares = billing.shares_of(call)
                    return None if shares is None else _sum(*map(self._amount, shares))
                return _sum(self._amount(call))
            except Exception:  # third-party data and code: whatever it is, the cost is unknown
                logger.warning("The price of %s is not known: genai-prices failed.", call.model, exc_info=True)
                return None

    def _amount(self, call: billing.BillableCall) -> Amount | None:
        """The cost of a part of a call; the application's own price of a model comes first."""
        if call.model is None:
            return None
        if self._own and (entry := self._own_entry(call.provider, call.model)) is not None:
            return entry.cost(call.figures)
        snapshot = _snapshots()()
        if snapshot is None:
            return None
        if self._list is None or self._list.snapshot is not snapshot:  # the first one, or an update of prices
            self._list = PriceList(snapshot)
        return self._list.cost(call)

    def _find_own(self, provider: str | None, model: str) -> PriceEntry | None:
        price = next((price for price in self._own if price.is_for(provider, model)), None)
        if price is None:
            return None
        prices = {name: Decimal(value) for name, kind in PLAIN.items() if (value := getattr(price, kind)) is not None}
        return PriceEntry.of(OWN, price.model, prices)


class PriceList:
    """The prices of genai-prices at one moment."""

    def __init__(self, snapshot: Any) -> None:
        self.snapshot = snapshot
        updated = f" of {snapshot.timestamp.isoformat(timespec='seconds')}" if snapshot.from_auto_update else ""
        self._source = f"{LIST} {version('genai-prices')}{updated}"
        self._find_model = lru_cache(CACHED_MODELS)(partial(_find_model, snapshot))
        self._sheets: dict[tuple[int, int], PriceSheet] = {}

    def cost(self, call: billing.BillableCall) -> Amount | None:
        """What a response cost; None where the list does not have the model, or what it is billed by."""
        if call.figures.input_tokens is None or call.figures.output_tokens is None:
            return None
        provider, model = self._model_of(call)
        if model is None or not billing.is_priced_region(call, provider.id, model.id, model.match):
            return None
        context = billing.price_context(call)
        prices = model.get_prices(call.at, context or None)
        key = id(model), id(prices)
        sheet = self._sheets.get(key)
        if sheet is None:
            if len(self._sheets) >= CACHED_MODELS:
                self._sheets.clear()
            sheet = self._sheets[key] = PriceSheet.of(prices, provider.id)
        counts = sheet.counts(call.usage, call.terms.get(billing.UNITS_USED))
        if not sheet.covers(counts) or (context and not _has_tier(provider, model, context, counts, call)):
            return None
        return self._cost_of(call, sheet, (provider, model), counts, context)

    def _cost_of(
        self, call: billing.BillableCall, sheet: PriceSheet, found: tuple[Any, Any], counts: Mapping[str, int],
        context: Mapping[str, str],
    ) -> Amount | None:  # fmt: skip
        """By the plain prices where that is all, else by genai-prices itself; None where figures contradict it."""
        provider, model = found
        size = call.figures.input_tokens or 0
        if not counts and not context and not sheet.has_request_price:
            entry = self._entry(sheet, provider, model, size)
            return None if entry is None else entry.cost(call.figures)
        known = _consistent(call.figures, {name: count for name, count in counts.items() if name in sheet.known})
        try:
            result = model.calc_price(known, provider, genai_request_timestamp=call.at, price_context=context or None)
        except ValueError:
            return None
        prices = {name: _price_at(price, size) for name, price in vars(result.model_price).items() if price is not None}
        return Amount(result.total_price * NANO, _text(self._source, f"{provider.id}/{model.id}", prices))

    def _model_of(self, call: billing.BillableCall) -> tuple[Any, Any]:
        """The provider, by its name, its URL, or what the answer says of it, and its model."""
        url, told = call.terms.get(billing.BASE_URL), call.terms.get(billing.PROVIDER)
        references = [(call.provider, None), (None, url), (told, None)]
        known = [reference for reference in references if reference != (None, None)]
        for name, address in known or [(VENDORS.get(call.format), None)]:
            found: tuple[Any, Any] = self._find_model(name, address, call.model)
            if found[1] is not None:
                return found
        return None, None

    def _entry(self, sheet: PriceSheet, provider: Any, model: Any, input_tokens: int) -> PriceEntry | None:
        """The four plain prices for so many input tokens."""
        exceeded = bisect_left(sheet.thresholds, input_tokens)
        if exceeded not in sheet.entries:
            known = vars(sheet.prices)
            prices = {name: _price_at(known[name], input_tokens) for name in PLAIN if known.get(name) is not None}
            name = f"{provider.id}/{model.id}"
            sheet.entries[exceeded] = PriceEntry.of(self._source, name, prices) if prices else None
        return sheet.entries[exceeded]


def _consistent(figures: NormalizedUsage, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts as genai-prices takes them: parts are at most their whole, and cached tokens are of text if possible."""
    read = min(figures.cached_tokens or 0, figures.input_tokens or 0)
    known = {
        "input_tokens": figures.input_tokens or 0,
        "output_tokens": figures.output_tokens or 0,
        "cache_read_tokens": read,
        "cache_write_tokens": min(figures.cache_write_tokens or 0, (figures.input_tokens or 0) - read),
    }
    known |= {name: min(count, known[_WHOLE[name]]) if name in _WHOLE else count for name, count in counts.items()}
    for name in ("audio", "image", "video"):
        if part := known.get(f"input_{name}_tokens"):
            least = max(read - (known["input_tokens"] - part), 0)
            known[f"cache_{name}_read_tokens"] = min(max(known.get(f"cache_{name}_read_tokens", 0), least), part)
    return {name: count for name, count in known.items() if count or name.startswith("cache_")}


def _has_tier(
    provider: Any, model: Any, context: Mapping[str, str], counts: Mapping[str, int], call: billing.BillableCall
) -> bool:
    """Whether the list has the prices of a tier or batch, and at this provider.

    A dearer tier must have prices for all tokens of the call: the usual price would be too low for the others.
    """
    if not any(model is own for own in provider.models):
        return False
    variants = [variant for variant in model.price_variants or () if variant.when == context]
    active = [one for one in variants if one.constraint is None or one.constraint.active(call.at)]
    if not active or billing.DEARER.isdisjoint(context.values()):
        return bool(active)
    used = {name for name, unit in billing.UNITS.items() if unit.whole is not None and unit.name in counts}
    used |= {name for name, key in _FIGURE_OF.items() if getattr(call.figures, key)}
    return used <= {name for name, price in vars(active[0].prices).items() if price is not None}


_FIGURE_OF: Final = {
    "input_mtok": "input_tokens", "output_mtok": "output_tokens", "cache_read_mtok": "cached_tokens",
}  # fmt: skip


def _sum(first: Amount | None, *others: Amount | None) -> Cost | None:
    """The cost of the parts of a call; None if one part's is unknown."""
    known = [part for part in (first, *others) if part is not None]
    if first is None or len(known) <= len(others):
        return None
    nano = whole_nano(sum((part.nano for part in known[1:]), first.nano) if others else first.nano)
    if nano is None or not others:
        return None if nano is None else Cost(nano, first.text)
    prices = [loads(part.text) for part in known]
    return Cost(nano, dumps({"source": prices[0]["source"], "parts": prices}).decode())


def _check_prices(prices: object) -> Iterable[Price]:
    if isinstance(prices, str | Mapping) or not isinstance(prices, Iterable):
        raise InvalidOption(f"must be a list of Price(model, input=, output=), not {shown(prices)}.", argument="prices")
    for price in prices:
        if not isinstance(price, Price):
            problem = f"contains {shown(price)}, which is not a Price(model, input=, output=)."
            raise InvalidOption(problem, argument="prices")
        yield price


def _text(source: str, model: str | None = None, prices: Mapping[str, Decimal] | None = None) -> str:
    """What the ledger keeps of a price: decimals as strings, for floats would change them."""
    named = {} if model is None else {"model": model}
    return dumps({"source": source, **named, **{name: str(price) for name, price in (prices or {}).items()}}).decode()


REPORTED_TEXT: Final = _text(REPORTED)


def _price_at(price: Any, input_tokens: int) -> Decimal:
    """A price; where it depends on the size of the input, the one for that size (all tokens cost the same then)."""
    if isinstance(price, Decimal):
        return price
    tiers = [tier.price for tier in price.tiers if input_tokens > tier.start]
    tier_price: Decimal = tiers[-1] if tiers else price.base
    return tier_price


@cache
def _snapshots() -> Callable[[], Any]:
    """What gives the prices of genai-prices as they are now; None where the extra `prices` is not installed."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - an extra, and half a second of imports
    except ImportError:
        return lambda: None
    return get_snapshot


def _find_model(snapshot: Any, provider: str | None, url: str | None, model: str | None) -> tuple[Any, Any]:
    """A provider and a model of genai-prices, its own objects; None for both where it does not know them."""
    try:
        found: tuple[Any, Any] = snapshot.find_provider_model(model, None, provider, url)
    except LookupError:
        return None, None
    return found
