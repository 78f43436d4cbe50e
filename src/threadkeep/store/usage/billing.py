"""What a call is billed by beyond its token counts: units with prices of their own, tiers, regions, and other models.

Sources: the usage types of the SDKs; units and extractors of genai-prices; "Pricing" of Anthropic, OpenAI, Google and
AWS; for what a total leaves out, the docstring of `BetaUsage` (compaction) and Anthropic's "Advisor tool".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import NormalizedUsage, figure
from threadkeep.formats.shared import usage as tokens

if TYPE_CHECKING:
    from threadkeep.domain.response import Response

# Keys of `terms`, which the ledger keeps: what a price depends on and the usage object does not say
SERVICE_TIER: Final = "service_tier"
BASE_URL: Final = "base_url"
PROVIDER: Final = "provider"
UNITS_USED: Final = "units"  # counts by genai-prices' names
IMAGES: Final = "image_generation"  # OpenAI's usage object of the images that an answer made
IMAGE_MODEL: Final = "image_model"


class BillableCall(NamedTuple):
    """What a provider's response is priced by."""

    format: str
    provider: str | None
    model: str | None
    figures: NormalizedUsage
    usage: JsonObject | None
    terms: JsonObject
    at: datetime


class Unit(NamedTuple):
    """Something that may have a price of its own.

    Attributes:
        name: genai-prices' name of the count; None if it has no price for it.
        whole: the count that it is a part of; None: it is billed besides tokens.
        paths: where usage objects count it: ``a.b``, ``list[WORD]`` for entries of a list, and sums with ``+``.
        dearer_at: the providers where the price of the whole is too low if it has none of its own; None: everywhere.
    """

    name: str | None
    whole: str | None
    paths: tuple[str, ...]
    dearer_at: frozenset[str] | None = frozenset()


def _modality(word: str, *others: str) -> tuple[str, ...]:
    """The counts of a modality: Gemini has them in lists, with what tools put in, OpenAI under names."""
    words, name = (word, *others), f"{word.lower()}_tokens"
    lists = (
        ("promptTokensDetails", "toolUsePromptTokensDetails"),
        ("input_tokens_by_modality", "tool_use_tokens_by_modality"),
    )
    sums = (" + ".join(f"{key}[{one}]" for key in keys for one in words) for keys in lists)
    return (*sums, f"prompt_tokens_details.{name}", f"input_tokens_details.{name}", f"input_{name}")


def _output_modality(word: str, *others: str) -> tuple[str, ...]:
    words, name = (word, *others), f"{word.lower()}_tokens"
    lists = ("candidatesTokensDetails", "output_tokens_by_modality")
    sums = (" + ".join(f"{key}[{one}]" for one in words) for key in lists)
    return (*sums, f"completion_tokens_details.{name}", f"output_tokens_details.{name}", f"output_{name}")


def _cached_modality(word: str, *others: str) -> tuple[str, ...]:
    name, lists = word.lower(), ("cacheTokensDetails", "cached_tokens_by_modality")
    sums = (" + ".join(f"{key}[{one}]" for one in (word, *others)) for key in lists)
    return (*sums, f"cached_tokens_details.cached_{name}_tokens", f"cache_{name}_read_tokens")


_WRITTEN: Final = "cache_write_tokens"
_OPENAI: Final = frozenset({"openai", "azure"})
# genai-prices' name of a price -> what it is the price of
UNITS: Final[dict[str, Unit]] = {
    "cache_write_1h_mtok": Unit(
        "cache_write_1h_tokens", _WRITTEN,
        ("cache_creation.ephemeral_1h_input_tokens", "cacheDetails[1h]", "cache_write_1h_tokens"), dearer_at=None,
    ),
    # the list has OpenAI's price of 30 minutes alone
    "cache_write_12h": Unit(
        None, _WRITTEN,
        ("input_tokens_details.cache_write_tokens_details.ttl_12h_tokens",
         "prompt_tokens_details.cache_write_tokens_details.ttl_12h_tokens"),
        dearer_at=None,
    ),
    # Google has one price for all media where the list has one; OpenAI's audio is always dearer than text
    "input_audio_mtok": Unit("input_audio_tokens", "input_tokens", _modality("AUDIO"), dearer_at=_OPENAI),
    "input_image_mtok": Unit("input_image_tokens", "input_tokens", _modality("IMAGE", "DOCUMENT")),
    "input_video_mtok": Unit("input_video_tokens", "input_tokens", _modality("VIDEO")),
    "output_audio_mtok": Unit("output_audio_tokens", "output_tokens", _output_modality("AUDIO"), dearer_at=_OPENAI),
    "output_image_mtok": Unit("output_image_tokens", "output_tokens", _output_modality("IMAGE", "DOCUMENT")),
    "output_video_mtok": Unit("output_video_tokens", "output_tokens", _output_modality("VIDEO")),
    "cache_audio_read_mtok": Unit("cache_audio_read_tokens", "cache_read_tokens", _cached_modality("AUDIO")),
    "cache_image_read_mtok": Unit(
        "cache_image_read_tokens", "cache_read_tokens", _cached_modality("IMAGE", "DOCUMENT")
    ),
    "output_reasoning_mtok": Unit(
        "output_reasoning_tokens", "output_tokens",
        ("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens", "reasoning_tokens"),
    ),
    "web_searches_kcount": Unit(
        "web_searches", None,
        ("server_tool_use.web_search_requests", "num_search_queries", "tool_calls_details.search_web.invocation"),
        dearer_at=None,
    ),
    "storage_searches_kcount": Unit("storage_searches", None, (), dearer_at=None),
    "audio_hours": Unit("audio_seconds", None, ("audio_seconds",)),
}  # fmt: skip
Path = tuple[tuple[str, ...], str]  # keys, and the word of an entry in a list


def compiled(path: str) -> list[Path]:
    """A path of a unit as the places whose counts add up."""
    places = (place.rstrip("]").partition("[") for place in path.split(" + "))
    return [(tuple(keys.split(".")), word) for keys, _, word in places]


def count_of(usage: Mapping[str, Any], places: Iterable[Path]) -> int:
    """What a usage object counts at these places; 0 where it has none of them."""
    count = 0
    for keys, word in places:
        value: Any = usage
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if not word:
            count += _whole(value)
        elif isinstance(value, list):
            entries = (entry for entry in value if isinstance(entry, dict))
            named = (one for one in entries if word.lower() in {str(said).lower() for said in one.values()})
            count += sum(_whole(_counted(entry)) for entry in named)
    return count


def _whole(value: object) -> int:
    """A count; of a fraction, as of seconds, what it begins."""
    return -int(-value // 1) if isinstance(value, float) and 0 < value < 2**53 else figure(value) or 0


_COUNTS_OF_ENTRIES: Final = ("tokenCount", "inputTokens", "tokens")


def _counted(entry: Mapping[str, Any]) -> Any:
    return next((entry[key] for key in _COUNTS_OF_ENTRIES if key in entry), None)


# Tiers, batches, speed: what changes all prices of a call

# words for the usual price
USUAL: Final = frozenset({
    "", "default", "standard", "auto", "on_demand", "traffic_type_unspecified", "unspecified",
    "service_tier_unspecified", "global", "not_available",
})  # fmt: skip
# words of a tier -> what genai-prices calls it; every other word is a tier of that name
TIERS: Final[dict[str, tuple[str, str]]] = {
    "batch": ("processing", "batch"),
    "on_demand_flex": ("service_tier", "flex"),
    "on_demand_priority": ("service_tier", "priority"),
}
DEARER: Final = frozenset({"priority", "fast", "ultrafast"})  # tiers whose every price is higher than the usual one

_SPEED_KEYS: Final = ("speed", "inference_geo")
_TIER_KEYS: Final = frozenset({"service_tier", "serviceTier", "trafficType", *_SPEED_KEYS})
_USUAL_NUMBERS: Final = (0, 1)  # of the enum of traffic types: unspecified, and on demand


def price_context(call: BillableCall) -> dict[str, str]:
    """What genai-prices selects the prices of a call by; empty for the usual ones."""
    context: dict[str, str] = {}
    usage = call.usage or {}
    if _TIER_KEYS.isdisjoint(usage) and SERVICE_TIER not in call.terms:  # mostly
        return context
    for word in (call.terms.get(SERVICE_TIER), *map(usage.get, ("service_tier", "serviceTier", "trafficType"))):
        if isinstance(word, str) and (known := word.lower()) not in USUAL:
            key, value = TIERS.get(known, (SERVICE_TIER, known))
            context[key] = value
        elif isinstance(word, int) and word not in _USUAL_NUMBERS:
            context[SERVICE_TIER] = str(word)
    for key in _SPEED_KEYS:
        word = usage.get(key)
        if isinstance(word, str) and word.lower() not in USUAL:
            context[key] = word.lower()
    return context


_ZONE: Final = re.compile(r"(?:^|[/:])(us-gov|us|eu|apac|ap|jp|au|ca|sa|me|mx|af|il|in|uk|global)\.(?=[a-z0-9-]+\.)")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:bedrock:([a-z0-9-]+):")
_HOST: Final = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com")
_VERTEX: Final = re.compile(r"https?://(?:[a-z0-9-]+-aiplatform|aiplatform\.[a-z]+\.rep)\.googleapis\.com")


def is_priced_region(call: BillableCall, provider: str, model_id: str, match: object) -> bool:
    """Return whether the list has the price of the region of a call: AWS and Claude on Vertex AI differ by region.

    AWS prices apply to us-east-1, unless an entry names a region's prefix or stands for all regions.
    """
    name, url = (call.model or "").lower(), str(call.terms.get(BASE_URL) or "")
    if provider == "google":
        return "claude" not in name or not _VERTEX.match(url)
    return provider != "aws" or _is_priced_by_aws(name, url, model_id, repr(match))


def _is_priced_by_aws(name: str, url: str, model_id: str, matches: str) -> bool:
    zone = next((zone.group(1) for zone in _ZONE.finditer(name)), None)
    region = _ARN.search(name) or _HOST.search(url)
    place = region.group(1) if region else "us-east-1"
    if zone == "us-gov" or "gov" in place:
        return False
    if zone is not None:
        return zone in ("us", "global") or model_id.startswith("regional.") or f"'{zone}." in matches
    return model_id.startswith("regional.") or place.startswith("us-")


# What of a response the usage object does not say


_SECRETS: Final = re.compile(r"(?<=//)[^/?#]*@|[?#].*", re.DOTALL)  # of a URL: user, password, and keys in its query


def terms_of_call(tier: object, url: object) -> JsonObject:
    """Return what the price of a call depends on besides its usage object, as far as it is not the usual one."""
    terms: JsonObject = {}
    if isinstance(tier, str) and tier.lower() not in USUAL:
        terms[SERVICE_TIER] = tier
    if isinstance(url, str) and url:
        terms[BASE_URL] = _SECRETS.sub("", url)
    return terms


def terms_of(response: Response, tier: str | None, url: str | None) -> JsonObject:
    """Return the same with what a response says; the tier and URL that the application knows come first."""
    data = response.provider_data or {}
    tier = tier or response.service_tier or data.get(SERVICE_TIER)
    terms = terms_of_call(tier, url or data.get("provider_url"))
    if response.format == "pydantic_ai" and isinstance(name := data.get("provider_name"), str):
        terms[PROVIDER] = name
    if (read := _TOOL_USE.get(str(response.format))) is not None:
        terms |= read(response, data)
    return terms


def _openai_tools(response: Response, data: Mapping[str, Any]) -> JsonObject:
    """Searches and images of an answer; searches by their items where they are not counted."""
    used = data.get("tool_usage")
    items = [item for item in response.output if item.type in _SEARCHES]
    if not used and not items:  # mostly
        return {}
    used = used if isinstance(used, dict) else {}
    # Pages that are opened are not billed
    actions = [item.to_object().get("action") for item in items if item.type == "web_search_call"]
    searches = [one for one in actions if not isinstance(one, Mapping) or one.get("type", "search") == "search"]
    counts = {
        "web_searches": count_of(used, _COUNTED_SEARCHES) if "web_search" in used else len(searches),
        "storage_searches": sum(item.type == "file_search_call" for item in items),
    }
    units = {name: count for name, count in counts.items() if count}
    return ({UNITS_USED: units} if units else {}) | _images(response, used.get("image_gen"))


def _images(response: Response, images: Any) -> JsonObject:
    """The images that a tool made, and the model that the tool names."""
    if not isinstance(images, dict) or not count_of(images, _COUNTED_IMAGES):
        return {}
    tools = (tool for tool in response.tools or () if isinstance(tool, Mapping))
    model = next((tool.get("model") for tool in tools if tool.get("type") == "image_generation"), None)
    return {IMAGES: images, IMAGE_MODEL: model}


_COUNTED_SEARCHES: Final = compiled("web_search.num_requests")
_COUNTED_IMAGES: Final = compiled("input_tokens + output_tokens")
_SEARCHES: Final = frozenset({"web_search_call", "file_search_call"})


def _google_tools(response: Response, data: Mapping[str, Any]) -> JsonObject:
    """Searches that an answer is grounded in: up to Gemini 2 an answer is billed, from 3 on each search."""
    grounding = data.get("grounding_metadata")
    queries = grounding.get("webSearchQueries") if isinstance(grounding, dict) else None
    if not isinstance(queries, list) or not queries:
        return {}
    return _grounded(response, len(queries))


def _grounded(response: Response, searches: int) -> JsonObject:
    is_by_answer = re.match(r"(models/)?gemini-[12]\b", str(response.model)) is not None
    return {UNITS_USED: {"web_searches": 1 if is_by_answer else searches}}


def _interaction_tools(response: Response, _data: Mapping[str, Any]) -> JsonObject:
    """The same of an interaction, whose usage counts its searches."""
    usage = response.usage.raw if response.usage is not None else None
    counts = usage.get("grounding_tool_count") if isinstance(usage, dict) else None
    entries = [one for one in counts if isinstance(one, dict)] if isinstance(counts, list) else []
    searches = sum(figure(one.get("count")) or 0 for one in entries if one.get("type") == "google_search")
    return _grounded(response, searches) if searches else {}


_TOOL_USE: Final[dict[str, Callable[[Any, Mapping[str, Any]], JsonObject]]] = {
    "open_responses": _openai_tools,
    "gemini": _google_tools,
    "interactions": _interaction_tools,
}


# Calls of which parts were done by other models


def shares_of(call: BillableCall) -> list[BillableCall] | None:
    """Return the parts of a call that are priced each by its own model; None if they cannot be separated."""
    usage = call.usage or {}
    shares = _iterations(call, usage) if usage.get("iterations") else [call]
    images = call.terms.get(IMAGES)
    if shares is not None and isinstance(images, dict):
        names = ("input_tokens", "output_tokens", "cached_tokens")
        figures = NormalizedUsage(**{name: figure(images.get(name)) for name in names})
        details = images.get("output_tokens_details") or {"image_tokens": images.get("output_tokens")}
        images = {**images, "output_tokens_details": details}
        shares.append(call._replace(model=call.terms.get(IMAGE_MODEL), figures=figures, usage=images, terms={}))
    return shares


def _iterations(call: BillableCall, usage: JsonObject) -> list[BillableCall] | None:
    """The iterations of Anthropic's API, each by the model that it names, else by the response's.

    Where a fallback answered, an entry that names no model may be of either: what it costs is unknown.
    """
    entries = [entry for entry in tokens.iterations_of(usage) if any(entry.figures.to_dict().values())]
    usual = None if any(entry.kind == tokens.FALLBACK for entry in entries) else call.model
    entries = [entry._replace(model=entry.model or usual) for entry in entries]
    if any(entry.model is None or entry.kind not in tokens.IN_TOTAL | tokens.BEYOND_TOTAL for entry in entries):
        return None
    main = {key: value for key, value in usage.items() if key != "iterations"}
    inside = [entry for entry in entries if entry.kind in tokens.IN_TOTAL]
    if len(models := {entry.model for entry in inside}) <= 1:  # the totals are of one model
        shares = [
            call._replace(model=next(iter(models), call.model), figures=tokens.messages_figures(usage), usage=main)
        ]
    elif tokens.add_up(usage, inside):
        shares = [_share(call, entry, main) for entry in inside]
        tools = {key: value for key, value in main.items() if key not in _COUNTED}
        shares[-1] = shares[-1]._replace(usage=inside[-1].usage | tools, terms=call.terms)
    else:
        return None
    return [*shares, *(_share(call, entry, main) for entry in entries if entry.kind in tokens.BEYOND_TOTAL)]


_COUNTED: Final = frozenset({
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
    "output_tokens_details",
})  # fmt: skip
_OF_ALL: Final = ("service_tier", "speed", "inference_geo")  # keys of a usage object that hold for all iterations


def _share(call: BillableCall, entry: tokens.Iteration, main: JsonObject) -> BillableCall:
    usage = entry.usage | {key: main[key] for key in _OF_ALL if key in main}
    terms = {key: value for key, value in call.terms.items() if key not in (UNITS_USED, IMAGES, IMAGE_MODEL)}
    return call._replace(model=entry.model, figures=entry.figures, usage=usage, terms=terms)
