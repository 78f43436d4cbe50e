"""Prices: what an answer cost, from the provider's own figure, the application's prices, or the list of genai-prices.

Prices of genai-prices are looked up once for each provider and model. What they are looked up with is what the ledger
knows, so that the cost of a row can be computed again from the price that is frozen beside it.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, Final, NamedTuple

from threadkeep.domain.cost import ARITHMETIC, Cost, Price, reported_cost, whole_nano
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.objects import shown
from threadkeep.domain.usage import NormalizedUsage, figure
from threadkeep.errors import InvalidOption

PROVIDER: Final = "provider"
OWN: Final = "own"
LIST: Final = "genai-prices"

MILLION: Final = 10**6
NANO_OF_MTOK: Final = 1000  # a dollar for a million tokens is so many nano-USD for one
KNOWN_MODELS: Final = 1000  # so many are remembered

# Who answers where the application does not say it and the names of the models do not: format -> provider
VENDORS: Final = {"converse": "aws"}

# Prices of tokens, whatever they stand for -> the field of a Price
PLAIN: Final = {
    "input_mtok": "input",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "cache_write",
    "output_mtok": "output",
}
# Prices of parts -> genai-prices' name of the unit, and where usage objects count it; [AUDIO] looks through a list.
PARTS: Final = {
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
ALWAYS: Final = "requests_kcount"  # a price of the request itself

# What a usage object or body says of the way it was served -> what genai-prices calls it
TIERS: Final = {
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
    "fast": {"service_tier": "fast"},
    "batch": {"processing": "batch"},
}

logger = logging.getLogger("threadkeep")


# The keys that lead to a count, and the modality to look for in the list that is there
Place = tuple[tuple[str, ...], str]


class Rates(NamedTuple):
    """USD for a million tokens."""

    input: Decimal
    cached: Decimal
    written: Decimal
    output: Decimal

    def nano(self, figures: NormalizedUsage) -> int | None:
        """What these figures cost; None where the provider did not count what it took and gave."""
        if figures.input_tokens is None or figures.output_tokens is None:
            return None
        cached, written = figures.cached_tokens or 0, figures.cache_write_tokens or 0
        rest = max(figures.input_tokens - cached - written, 0)
        amount = rest * self.input + cached * self.cached + written * self.written + figures.output_tokens * self.output
        return whole_nano(amount * NANO_OF_MTOK)


@dataclass(frozen=True, slots=True)
class Priced:
    """The prices of a model, as they are written down and as they are used."""

    rates: Rates
    text: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """The prices of genai-prices for a model at a time, looked through once.

    Attributes:
        prices: its own object; as long as it is kept, no other one has its identity.
        parts: the units that have a price of their own, and where usage objects count them.
        has_request_price: whether the request itself costs something.
        starts: the sizes of the input above which plain prices are others.
        plain: the four plain prices by how many of these sizes an input exceeds.
    """

    prices: Any
    parts: tuple[tuple[str, tuple[Place, ...]], ...]
    has_request_price: bool
    starts: tuple[int, ...]
    plain: dict[int, Priced | None] = field(default_factory=dict)


class Served(NamedTuple):
    """What an answer is priced by."""

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
        self._own = () if own is None else tuple(_prices(own))
        self._known: dict[tuple[str | None, str], Priced | None] = {}
        self._list: PriceList | None = None

    def cost(self, served: Served) -> Cost | None:
        """What an answer cost; None where nobody knows. It never fails: an answer is stored whatever it cost."""
        with localcontext(ARITHMETIC):
            return self._cost(served)

    def _cost(self, served: Served) -> Cost | None:
        reported = reported_cost(served.usage)
        if reported is not None:
            return Cost(reported, REPORTED_TEXT)
        if served.model is None:
            return None
        own = self._own_price(served.provider, served.model)
        if own is not None:
            return _costing(own.rates.nano(served.figures), own.text)
        try:
            return self._listed(served)
        except Exception:  # somebody else's table and code: whatever it is, the cost is unknown
            logger.warning("The price of %s is not known: genai-prices failed.", served.model, exc_info=True)
            return None

    def _own_price(self, provider: str | None, model: str) -> Priced | None:
        if not self._own:
            return None
        key = (provider, model)
        if key not in self._known:
            if len(self._known) >= KNOWN_MODELS:
                self._known.clear()
            found = next((price for price in self._own if price.is_for(provider, model)), None)
            self._known[key] = None if found is None else _own(found)
        return self._known[key]

    def _listed(self, served: Served) -> Cost | None:
        snapshot = _snapshot()
        if snapshot is None:
            return None
        if self._list is None or self._list.snapshot is not snapshot:  # the first one, or an update of prices
            self._list = PriceList(snapshot)
        return self._list.cost(served)


class PriceList:
    """The prices of genai-prices at one moment."""

    def __init__(self, snapshot: Any) -> None:
        self.snapshot = snapshot
        self._source = _version(snapshot)
        self._models: dict[tuple[str | None, str], Any] = {}
        self._sheets: dict[tuple[int, int], Sheet] = {}

    def cost(self, served: Served) -> Cost | None:
        """What an answer cost; None where the list has no such model, or the figures are unknown."""
        figures = served.figures
        if figures.input_tokens is None or figures.output_tokens is None:
            return None
        found = self._found(served)
        if found is None:
            return None
        provider, model = found
        context = _context(served) if model.price_variants else None
        sheet = self._sheet(model, model.get_prices(served.at, context))
        parts = _parts(sheet, served.usage) if sheet.parts else {}
        if parts or context or sheet.has_request_price:
            in_parts = self._in_parts(served, provider, model, parts, context)
            if in_parts is not None:
                return in_parts
        plain = self._plain(sheet, found, figures.input_tokens)
        return None if plain is None else _costing(plain.rates.nano(figures), plain.text)

    def _found(self, served: Served) -> tuple[Any, Any] | None:
        key = (served.provider or VENDORS.get(served.format), served.model or "")
        if key not in self._models:
            if len(self._models) >= KNOWN_MODELS:
                self._models.clear()
                self._sheets.clear()
            try:
                self._models[key] = self.snapshot.find_provider_model(key[1], None, key[0], None)
            except LookupError:
                self._models[key] = None
        found: tuple[Any, Any] | None = self._models[key]
        return found

    def _sheet(self, model: Any, prices: Any) -> Sheet:
        key = id(model), id(prices)
        sheet = self._sheets.get(key)
        if sheet is None:
            if len(self._sheets) >= KNOWN_MODELS:
                self._sheets.clear()
            known = {name: price for name, price in vars(prices).items() if price is not None}
            counted = [PARTS[name] for name in PARTS if name in known]
            parts = tuple((unit, tuple(map(_place, paths))) for unit, paths in counted)
            tiered = [known[name] for name in PLAIN if not isinstance(known.get(name, Decimal(0)), Decimal)]
            starts = sorted({tier.start for price in tiered for tier in price.tiers})
            sheet = self._sheets[key] = Sheet(prices, parts, ALWAYS in known, tuple(starts))
        return sheet

    def _plain(self, sheet: Sheet, found: tuple[Any, Any], taken: int) -> Priced | None:
        """The four plain prices for so many input tokens."""
        exceeded = bisect_left(sheet.starts, taken)
        if exceeded not in sheet.plain:
            prices = vars(sheet.prices)
            known = {name: _at(price, taken) for name in PLAIN if (price := prices.get(name)) is not None}
            sheet.plain[exceeded] = Priced(_rates(known), self._text(found, known)) if known else None
        return sheet.plain[exceeded]

    def _in_parts(
        self, served: Served, provider: Any, model: Any, parts: Mapping[str, int], context: Mapping[str, str] | None
    ) -> Cost | None:
        """Audio, pictures, searches, tiers of service: by genai-prices itself; None where figures contradict it."""
        usage = {
            "input_tokens": served.figures.input_tokens,
            "cache_read_tokens": served.figures.cached_tokens,
            "cache_write_tokens": served.figures.cache_write_tokens,
            "output_tokens": served.figures.output_tokens,
            **parts,
        }
        known = {name: value for name, value in usage.items() if value}
        try:
            found = model.calc_price(known, provider, genai_request_timestamp=served.at, price_context=context or None)
        except ValueError:
            return None
        taken = served.figures.input_tokens or 0
        rates = {name: _at(price, taken) for name, price in vars(found.model_price).items() if price is not None}
        return _costing(whole_nano(found.total_price * MILLION * NANO_OF_MTOK), self._text((provider, model), rates))

    def _text(self, found: tuple[Any, Any], rates: Mapping[str, Decimal]) -> str:
        provider, model = found
        return _text(self._source, f"{provider.id}/{model.id}", rates)


def _prices(own: object) -> Iterable[Price]:
    if isinstance(own, str | Mapping) or not isinstance(own, Iterable):
        raise InvalidOption(f"prices is a list of Price(model, input=, output=), not {shown(own)}.")
    for price in own:
        if not isinstance(price, Price):
            raise InvalidOption(f"prices holds {shown(price)}, which is no Price(model, input=, output=).")
        yield price


def _own(price: Price) -> Priced:
    known = {name: Decimal(value) for name, field in PLAIN.items() if (value := getattr(price, field)) is not None}
    return Priced(_rates(known), _text(OWN, price.model, known))


def _rates(known: Mapping[str, Decimal]) -> Rates:
    taken = known.get("input_mtok", Decimal(0))
    return Rates(
        taken, known.get("cache_read_mtok", taken), known.get("cache_write_mtok", taken),
        known.get("output_mtok", Decimal(0)),
    )  # fmt: skip


def _costing(nano: int | None, text: str) -> Cost | None:
    return None if nano is None else Cost(nano, text)


def _text(source: str, model: str | None = None, rates: Mapping[str, Decimal] | None = None) -> str:
    """What the ledger keeps of a price: prices as text, for a float would change them."""
    named = {} if model is None else {"model": model}
    return dumps({"source": source, **named, **{name: str(rate) for name, rate in (rates or {}).items()}}).decode()


REPORTED_TEXT: Final = _text(PROVIDER)


def _at(price: Any, taken: int) -> Decimal:
    """A price; where it depends on the size of the input, the one for that size (all tokens cost the same then)."""
    if isinstance(price, Decimal):
        return price
    tiers = [tier.price for tier in price.tiers if taken > tier.start]
    found: Decimal = tiers[-1] if tiers else price.base
    return found


def _parts(sheet: Sheet, usage: JsonObject | None) -> dict[str, int]:
    """What a usage object counts of the things that have a price of their own."""
    if not usage:
        return {}
    found: dict[str, int] = {}
    for unit, places in sheet.parts:
        for place in places:
            if count := _count(usage, place):
                found[unit] = count
                break
    return found


def _place(path: str) -> Place:
    path, _, modality = path.rstrip("]").partition("[")
    return tuple(path.split(".")), modality


def _count(usage: Any, place: Place) -> int | None:
    keys, modality = place
    for key in keys:
        usage = usage.get(key) if isinstance(usage, dict) else None
    if not modality:
        return figure(usage)
    entries = usage if isinstance(usage, list) else ()
    return sum(
        figure(entry.get("tokenCount")) or 0
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("modality") == modality
    )


def _context(served: Served) -> dict[str, str]:
    """How an answer was served, where that has another price."""
    usage = served.usage or {}
    found: dict[str, str] = {}
    for word in (served.tier, usage.get("service_tier"), usage.get("serviceTier")):
        if isinstance(word, str):
            found |= TIERS.get(word.lower(), {})
    if usage.get("speed") == "fast":
        found["speed"] = "fast"
    return found


def _snapshot() -> Any:
    """The prices of genai-prices as they are now; None where the extra `prices` is not installed."""
    module = _genai_prices()
    return None if module is None else module.get_snapshot()


@cache
def _genai_prices() -> Any:
    try:
        from genai_prices import data_snapshot  # noqa: PLC0415 - an extra, and half a second of imports
    except ImportError:
        return None
    return data_snapshot


def _version(snapshot: Any) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - only with the extra

    updated = f" of {snapshot.timestamp.isoformat(timespec='seconds')}" if snapshot.from_auto_update else ""
    return f"{LIST} {version('genai-prices')}{updated}"
