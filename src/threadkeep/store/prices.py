"""Prices: what a response cost, from the provider's own figure, the application's prices, or the list of genai-prices.

They are looked up with what the ledger knows, so that the cost of a row can be computed again from its price.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, localcontext
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.objects import shown
from threadkeep.domain.usage import ARITHMETIC, NANO, Cost, NormalizedUsage, Price, figure, reported_cost, whole_nano
from threadkeep.errors import InvalidOption

PROVIDER: Final = "provider"
OWN: Final = "own"
LIST: Final = "genai-prices"

NANO_OF_MTOK: Final = 1000  # a dollar for a million tokens is so many nano-USD for one
CACHED_MODELS: Final = 1000

# The provider where neither the application nor the name of the model says it: format -> provider
VENDORS: Final = {"converse": "aws"}

# Prices of tokens of any kind -> the field of a Price
PLAIN: Final = {
    "input_mtok": "input",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "cache_write",
    "output_mtok": "output",
}
# Prices of special units -> genai-prices' name of the unit, and where usage objects count it; [AUDIO] searches a list
UNITS: Final = {
    "cache_write_1h_mtok": ("cache_write_1h_tokens", ("cache_creation.ephemeral_1h_input_tokens",)),
    "input_audio_mtok": (
        "input_audio_tokens",
        ("prompt_tokens_details.audio_tokens", "input_tokens_details.audio_tokens", "promptTokensDetails[AUDIO]"),
    ),
    "output_audio_mtok": (
        "output_audio_tokens",
        (
            "completion_tokens_details.audio_tokens", "output_tokens_details.audio_tokens",
            "candidatesTokensDetails[AUDIO]",
        ),
    ),
    "cache_audio_read_mtok": ("cache_audio_read_tokens", ("cacheTokensDetails[AUDIO]",)),
    "input_image_mtok": ("input_image_tokens", ("promptTokensDetails[IMAGE]",)),
    "output_image_mtok": ("output_image_tokens", ("candidatesTokensDetails[IMAGE]",)),
    "input_video_mtok": ("input_video_tokens", ("promptTokensDetails[VIDEO]",)),
    "web_searches_kcount": ("web_searches", ("server_tool_use.web_search_requests", "num_search_queries")),
}  # fmt: skip
PER_REQUEST: Final = "requests_kcount"  # a price of the request itself

# What a usage object or response says of its service tier -> what genai-prices calls it
TIERS: Final = {
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
    "fast": {"service_tier": "fast"},
    "batch": {"processing": "batch"},
}

logger = logging.getLogger("threadkeep")


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

    def cost(self, figures: NormalizedUsage) -> Cost | None:
        """Return the cost of these figures; None if the provider did not report input or output."""
        if figures.input_tokens is None or figures.output_tokens is None:
            return None
        cached = min(figures.cached_tokens or 0, figures.input_tokens)
        written = min(figures.cache_write_tokens or 0, figures.input_tokens - cached)
        rest = figures.input_tokens - cached - written
        amount = (
            rest * self.input + cached * self.cached + written * self.cache_write + figures.output_tokens * self.output
        )
        nano = whole_nano(amount * NANO_OF_MTOK)
        return None if nano is None else Cost(nano, self.text)


@dataclass(frozen=True, slots=True)
class PriceSheet:
    """The prices of genai-prices for a model at a time, read once."""

    prices: Any  # its own object; as long as it is kept, no other one has its identity
    units: Mapping[str, Sequence[str]]  # that have a price of their own, and where usage objects count them
    counted_at: frozenset[str]  # the first keys of these places
    has_request_price: bool  # whether the request itself costs something
    thresholds: tuple[int, ...]  # the sizes of the input above which plain prices are others
    entries: dict[int, PriceEntry | None] = field(default_factory=dict)  # plain prices, by thresholds that are exceeded

    @classmethod
    def of(cls, prices: Any) -> PriceSheet:
        """What is looked up of prices again and again."""
        known = {name: price for name, price in vars(prices).items() if price is not None}
        units = dict(unit for name, unit in UNITS.items() if name in known)
        counted_at = frozenset(re.split(r"[.\[]", path)[0] for paths in units.values() for path in paths)
        tiered = [known[name] for name in PLAIN if not isinstance(known.get(name, Decimal(0)), Decimal)]
        thresholds = sorted({tier.start for price in tiered for tier in price.tiers})
        return cls(prices, units, counted_at, PER_REQUEST in known, tuple(thresholds))

    def counts(self, usage: JsonObject | None) -> dict[str, int]:
        """What a usage object counts of the units that have a price of their own."""
        if not usage or self.counted_at.isdisjoint(usage):
            return {}
        counts = {unit: filter(None, (_count(usage, path) for path in paths)) for unit, paths in self.units.items()}
        return {unit: count for unit, found in counts.items() if (count := next(found, None))}


class BillableCall(NamedTuple):
    """What a provider's response is priced by."""

    format: str
    provider: str | None
    model: str | None
    figures: NormalizedUsage
    usage: JsonObject | None
    tier: str | None
    at: datetime


class PriceBook:
    """Where costs come from: `own` prices before those of genai-prices, and before both what the provider reports."""

    def __init__(self, own: Iterable[Price] | None = None) -> None:
        self._own = () if own is None else tuple(_check_prices(own))
        self._own_entry = lru_cache(CACHED_MODELS)(self._find_own)
        self._list: PriceList | None = None

    def cost(self, call: BillableCall) -> Cost | None:
        """Return the cost of a response, or None if unknown. Never fails: responses are stored in any case."""
        with localcontext(ARITHMETIC):
            reported = reported_cost(call.usage)
            if reported is not None:
                return Cost(reported, REPORTED_TEXT)
            if call.model is None:
                return None
            if self._own and (entry := self._own_entry(call.provider, call.model)) is not None:
                return entry.cost(call.figures)
            try:
                return self._listed_cost(call)
            except Exception:  # third-party data and code: whatever it is, the cost is unknown
                logger.warning("The price of %s is not known: genai-prices failed.", call.model, exc_info=True)
                return None

    def _find_own(self, provider: str | None, model: str) -> PriceEntry | None:
        price = next((price for price in self._own if price.is_for(provider, model)), None)
        if price is None:
            return None
        prices = {name: Decimal(value) for name, kind in PLAIN.items() if (value := getattr(price, kind)) is not None}
        return PriceEntry.of(OWN, price.model, prices)

    def _listed_cost(self, call: BillableCall) -> Cost | None:
        snapshot = _snapshots()()
        if snapshot is None:
            return None
        if self._list is None or self._list.snapshot is not snapshot:  # the first one, or an update of prices
            self._list = PriceList(snapshot)
        return self._list.cost(call)


class PriceList:
    """The prices of genai-prices at one moment."""

    def __init__(self, snapshot: Any) -> None:
        self.snapshot = snapshot
        updated = f" of {snapshot.timestamp.isoformat(timespec='seconds')}" if snapshot.from_auto_update else ""
        self._source = f"{LIST} {version('genai-prices')}{updated}"
        self._find_model = lru_cache(CACHED_MODELS)(partial(_find_model, snapshot))
        self._sheets: dict[tuple[int, int], PriceSheet] = {}

    def cost(self, call: BillableCall) -> Cost | None:
        """What a response cost; None where the list does not have the model, or the figures are unknown."""
        figures = call.figures
        if figures.input_tokens is None or figures.output_tokens is None:
            return None
        provider, model = self._find_model(call.provider or VENDORS.get(call.format), call.model)
        if model is None:
            return None
        context = _context(call) if model.price_variants else {}
        sheet = self._sheet(model, model.get_prices(call.at, context or None))
        counts = sheet.counts(call.usage)
        if counts or context or sheet.has_request_price:
            cost = self._special_cost(call, provider, model, counts, context)
            if cost is not None:
                return cost
        entry = self._entry(sheet, provider, model, figures.input_tokens)
        return None if entry is None else entry.cost(figures)

    def _sheet(self, model: Any, prices: Any) -> PriceSheet:
        key = id(model), id(prices)
        sheet = self._sheets.get(key)
        if sheet is None:
            if len(self._sheets) >= CACHED_MODELS:
                self._sheets.clear()
            sheet = self._sheets[key] = PriceSheet.of(prices)
        return sheet

    def _entry(self, sheet: PriceSheet, provider: Any, model: Any, input_tokens: int) -> PriceEntry | None:
        """The four plain prices for so many input tokens."""
        exceeded = bisect_left(sheet.thresholds, input_tokens)
        if exceeded not in sheet.entries:
            known = vars(sheet.prices)
            prices = {name: _price_at(known[name], input_tokens) for name in PLAIN if known.get(name) is not None}
            name = f"{provider.id}/{model.id}"
            sheet.entries[exceeded] = PriceEntry.of(self._source, name, prices) if prices else None
        return sheet.entries[exceeded]

    def _special_cost(
        self, call: BillableCall, provider: Any, model: Any, counts: Mapping[str, int], context: Mapping[str, str]
    ) -> Cost | None:
        """Audio, images, searches, service tiers: by genai-prices itself; None where figures contradict it."""
        figures = {
            "input_tokens": call.figures.input_tokens,
            "cache_read_tokens": call.figures.cached_tokens,
            "cache_write_tokens": call.figures.cache_write_tokens,
            "output_tokens": call.figures.output_tokens,
            **counts,
        }
        known = {name: value for name, value in figures.items() if value}
        try:
            result = model.calc_price(known, provider, genai_request_timestamp=call.at, price_context=context or None)
        except ValueError:
            return None
        size = call.figures.input_tokens or 0
        prices = {name: _price_at(price, size) for name, price in vars(result.model_price).items() if price is not None}
        nano = whole_nano(result.total_price * NANO)
        return None if nano is None else Cost(nano, _text(self._source, f"{provider.id}/{model.id}", prices))


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


REPORTED_TEXT: Final = _text(PROVIDER)


def _price_at(price: Any, input_tokens: int) -> Decimal:
    """A price; where it depends on the size of the input, the one for that size (all tokens cost the same then)."""
    if isinstance(price, Decimal):
        return price
    tiers = [tier.price for tier in price.tiers if input_tokens > tier.start]
    tier_price: Decimal = tiers[-1] if tiers else price.base
    return tier_price


def _context(call: BillableCall) -> dict[str, str]:
    """The service tier of a response, where that has another price."""
    usage = call.usage or {}
    context: dict[str, str] = {}
    for tier in (call.tier, usage.get("service_tier"), usage.get("serviceTier")):
        if isinstance(tier, str):
            context |= TIERS.get(tier.lower(), {})
    if usage.get("speed") == "fast":
        context["speed"] = "fast"
    return context


@cache
def _snapshots() -> Callable[[], Any]:
    """What gives the prices of genai-prices as they are now; None where the extra `prices` is not installed."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - an extra, and half a second of imports
    except ImportError:
        return lambda: None
    return get_snapshot


def _find_model(snapshot: Any, provider: str | None, model: str | None) -> tuple[Any, Any]:
    """A provider and a model of genai-prices, its own objects; None for both where it does not know them."""
    try:
        found: tuple[Any, Any] = snapshot.find_provider_model(model, None, provider, None)
    except LookupError:
        return None, None
    return found


def _count(usage: JsonObject, path: str) -> int | None:
    """What a usage object counts at a path such as ``promptTokensDetails[AUDIO]``."""
    keys, _, modality = path.rstrip("]").partition("[")
    value: Any = usage
    for key in keys.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if not modality:
        return figure(value)
    return sum(
        figure(entry.get("tokenCount")) or 0
        for entry in (value if isinstance(value, list) else ())
        if isinstance(entry, Mapping) and entry.get("modality") == modality
    )
