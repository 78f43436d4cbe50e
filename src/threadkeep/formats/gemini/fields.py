"""Tables of the Gemini API: families of models, request options, roles, finish reasons.

Source: Google's Gemini API reference, "generateContent", and its Vertex AI twin; for the families Google's documents
"Gemini thinking", "Thought signatures" and "Function calling" (multimodal function responses).

Schemas: JSON schema, and the Schema type of the Gemini API, which is a part of OpenAPI's.

`parameters` and `responseSchema` hold a Schema; `parametersJsonSchema` and `responseJsonSchema` any JSON schema. Types
are taken in any case, so that a JSON schema of known keywords is a Schema, too.

Source: Google's Gemini API reference, "Schema".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.spelling import camel
from threadkeep.formats.shared import fields, reports
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, Row, SpecialField, tier_of

# keywords of a Schema
KEYWORDS: Final = frozenset(
    {
        "type", "format", "title", "description", "nullable", "default", "example", "enum", "items", "minItems",
        "maxItems", "properties", "required", "minProperties", "maxProperties", "minimum", "maximum", "minLength",
        "maxLength", "pattern", "anyOf", "propertyOrdering", "additionalProperties",
    }
)  # fmt: skip
TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
# numbers that stand for types
_NUMBERS: Final = {1: "string", 2: "number", 3: "integer", 4: "boolean", 5: "array", 6: "object", 7: "null"}
# keywords of a Schema that JSON schema has no word for
_ONLY_HERE: Final = frozenset({"nullable", "example", "propertyOrdering"})
# keywords whose numbers may be texts
_COUNTS: Final = frozenset({"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"})


def is_schema(value: Any) -> bool:
    """Whether a JSON schema says no more than a Schema can."""
    if not isinstance(value, dict):
        return False
    kind, enum, inner = value.get("type"), value.get("enum"), value.get("properties")
    if not value.keys() <= KEYWORDS or not (kind is None or (isinstance(kind, str) and kind.lower() in TYPES)):
        return False
    if not (enum is None or (isinstance(enum, list) and all(isinstance(inner, str) for inner in enum))):
        return False
    below = [one for one in (value.get("items"), value.get("additionalProperties")) if not isinstance(one, bool | None)]
    below += choices if isinstance(choices := value.get("anyOf"), list) else []
    below += inner.values() if isinstance(inner, dict) else ()
    return all(is_schema(inner) for inner in below)


def json_schema(schema: Any) -> Any:
    """A Schema as JSON schema, for all other formats: types in lower case, keywords in camel case, null as a type."""
    if not isinstance(schema, dict):
        return schema
    converted: JsonObject = {}
    for key, value in schema.items():
        name = camel(key)
        if name not in _ONLY_HERE:
            converted[name] = _READERS[name](value) if name in _READERS else value
    if schema.get("nullable") is True and isinstance(converted.get("type"), str):
        converted["type"] = [converted["type"], "null"]
    return converted


def _type(value: Any) -> Any:
    word = value.lower() if isinstance(value, str) else _NUMBERS.get(value) if isinstance(value, int) else None
    return word if word in TYPES else value


def _each(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: json_schema(inner) for key, inner in value.items()}
    return [json_schema(inner) for inner in value] if isinstance(value, list) else value


def _count(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


# keyword of a Schema -> what reads its value
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "type": _type,
    "properties": _each,
    "anyOf": _each,
    "items": json_schema,
    "additionalProperties": json_schema,
    **dict.fromkeys(_COUNTS, _count),
}

NAME: Final = "gemini"
MODEL: Final = "model"
USER: Final = "user"

SYSTEM_ROLES: Final = frozenset({"system", "developer"})
# roles of contents -> who speaks; `function` and none at all are what old clients write
ROLES: Final = {"model": MODEL, "user": USER, "function": USER, None: USER}
# session extras that users may set flat -> key of the request
EXTRAS: Final = {
    "safety_settings": "safetySettings",
    "cached_content": "cachedContent",
    "stop_sequences": "generationConfig.stopSequences",
    "top_k": "generationConfig.topK",
    "seed": "generationConfig.seed",
    "candidate_count": "generationConfig.candidateCount",
    "response_modalities": "generationConfig.responseModalities",
    "media_resolution": "generationConfig.mediaResolution",
}
# service tier -> serviceTier; the service has no word for what it does when none is named
SERVICE_TIERS: Final = {
    **{tier: tier for tier in ("unspecified", "standard", "flex", "priority")},
    "auto": None,
    "default": None,
}
# keys of generationConfig
THINKING: Final = "generationConfig.thinkingConfig"
MIME_TYPE: Final = "generationConfig.responseMimeType"
SCHEMA: Final = "generationConfig.responseSchema"
JSON_SCHEMA: Final = "generationConfig.responseJsonSchema"
HAS_LOGPROBS: Final = "generationConfig.responseLogprobs"
LOGPROBS: Final = "generationConfig.logprobs"

# finishReason -> canonical status; absent and unspecified say nothing
STATUSES: Final = {
    "STOP": "completed",
    "MAX_TOKENS": "incomplete",
    "CONTINUATION": "incomplete",
} | dict.fromkeys(
    (
        "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
        "MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_OTHER", "NO_IMAGE",
        "IMAGE_RECITATION", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MODEL_ARMOR",
        "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE", "ESCALATION", "PUP_LIMITED_DISABLED",
    ),
    "failed",
)  # fmt: skip
UNSPECIFIED: Final = "FINISH_REASON_UNSPECIFIED"
# numbers that some hosts send for finishReason; what follows 5 differs between the two APIs, and always means failed
NUMBERS: Final = {0: UNSPECIFIED, 1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
# finishReason or blockReason -> why a response is not whole, in canonical words
INCOMPLETE: Final = {"MAX_TOKENS": "max_output_tokens", "CONTINUATION": "continuation"} | dict.fromkeys(
    (
        "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "JAILBREAK",
        "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR",
    ),
    "content_filter",
)  # fmt: skip

# place of a word in a request -> how it is usually written
WORDS: Final = {
    f"{THINKING}.thinkingLevel": str.upper,
    "toolConfig.functionCallingConfig.mode": str.upper,
    "serviceTier": str.lower,
}


# Models

# effort -> thinkingLevel
LEVELS: Final = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
# effort -> thinkingBudget, as Google's own endpoint for OpenAI's API translates it
BUDGETS: Final = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}


class GeminiFamily(NamedTuple):
    """What models have in common. The defaults are the general rule, for models that the table does not know."""

    levels: Mapping[str, str] = LEVELS  # effort -> thinkingLevel
    budgets: Mapping[str, int] = {}  # effort -> thinkingBudget, where the models know no levels
    thinks: bool = True  # whether they take a thinkingConfig at all
    prefers_budget: bool = False  # whether a budget goes before an effort when both are set
    needs_signature: bool = False  # whether the first call of each step needs a thought signature
    nests_media: bool = True  # whether media of a tool output stand in its functionResponse, and not next to it


GENERAL: Final = GeminiFamily()
_NOT_THINKING: Final = GeminiFamily(thinks=False, nests_media=False)
_WITH_BUDGET: Final = GeminiFamily({}, {**BUDGETS, "none": 0}, prefers_budget=True, nests_media=False)
_ALWAYS_THINKING: Final = _WITH_BUDGET._replace(budgets=BUDGETS)
_SIGNING: Final = GeminiFamily(needs_signature=True)

# how names of models begin (the first match counts) -> family
FAMILIES: Final = (
    (r"gemini-2\.0-flash-thinking", GENERAL),
    (r"gemini-(1|2\.0)\b|gemini-pro\b", _NOT_THINKING),
    (r"gemini-2\.5-pro", _ALWAYS_THINKING),
    (r"gemini-2\.5", _WITH_BUDGET),
    (r"gemini-([3-9]|\d\d)\b|gemini-.*latest", _SIGNING),
)
_PATTERNS: Final = tuple((re.compile(pattern), family) for pattern, family in FAMILIES)


def family_of(model: object) -> GeminiFamily:
    """The family of a model, whatever path its name stands in (``models/…``, ``publishers/google/models/…``)."""
    name = model.rpartition("/")[2].lower() if isinstance(model, str) else ""
    return next((family for pattern, family in _PATTERNS if pattern.match(name)), GENERAL)


# Options


def text(value: JsonObject, context: reports.Context) -> JsonObject:
    """The form of the answer; JSON schemas beyond the service's own Schema type have a key of their own."""
    fields.other_keys("text", ("format",), value, context, "Gemini")
    form = value.get("format")
    kind = form.get("type") if isinstance(form, dict) else form
    if kind in ("text", None):
        return {} if kind is None else {MIME_TYPE: "text/plain"}
    if kind not in ("json_object", "json_schema") or not isinstance(form, dict):
        context.loss("option", "text.format", f"Gemini has no answers of the form {kind!r}.")
        return {}
    nested = form.get("json_schema")
    schema = (nested if isinstance(nested, dict) else form).get("schema") if kind == "json_schema" else None
    keys: JsonObject = {MIME_TYPE: "application/json"}
    fields.no_description(form, context)
    return keys if schema is None else keys | {SCHEMA if is_schema(schema) else JSON_SCHEMA: schema}


def _text_in(keys: JsonObject) -> Any:
    schema = keys.get(SCHEMA, keys.get(JSON_SCHEMA))
    if keys.get(MIME_TYPE) == "text/plain":
        return {"format": {"type": "text"}}
    if schema is None:
        return {"format": {"type": "json_object"}}
    return {"format": {"type": "json_schema", "name": "response", "schema": schema}}


def reasoning(value: JsonObject, context: reports.Context, family: GeminiFamily) -> JsonObject:
    """How the model is to think: a budget of tokens or a level, never both."""
    if not family.thinks:
        fields.effort_of(value, {}, context)
        fields.other_keys("reasoning", ("effort",), value, context, "The model")
        return {}
    fields.other_keys("reasoning", ("effort", "budget_tokens", "summary"), value, context, "Gemini")
    effort, budget, summary = (value.get(key) for key in ("effort", "budget_tokens", "summary"))
    keys: JsonObject = {}
    if budget is not None and (effort is None or family.prefers_budget):
        keys[f"{THINKING}.thinkingBudget"] = budget
    elif effort is not None:
        keys |= _effort(value, context, family)
    if effort is not None and budget is not None:
        left_out = f"reasoning.{'effort' if family.prefers_budget else 'budget_tokens'}"
        detail = f"{left_out} was left out: the service takes a budget or a level, not both."
        context.repair("option", left_out, detail)
    if summary == "auto":
        keys[f"{THINKING}.includeThoughts"] = True
    elif summary not in (None, "none"):
        context.loss("option", "reasoning.summary", f"Gemini has no summary {summary!r} of its thoughts.")
    return keys


def _effort(option: JsonObject, context: reports.Context, family: GeminiFamily) -> JsonObject:
    key, words = ("thinkingBudget", family.budgets) if family.budgets else ("thinkingLevel", family.levels)
    sent: Any = fields.effort_of(option, words, context)
    return {} if sent is None else {f"{THINKING}.{key}": sent}


def _reasoning_in(keys: JsonObject) -> Any:
    option: JsonObject = {}
    level = keys.get(f"{THINKING}.thinkingLevel")
    if isinstance(level, str):
        option["effort"] = level.lower()
    budget = keys.get(f"{THINKING}.thinkingBudget")
    if type(budget) is int and budget == 0:
        option["effort"] = "none"
    elif type(budget) is int and budget > 0:  # a dynamic budget (-1) means nothing to other formats
        option["budget_tokens"] = budget
    if keys.get(f"{THINKING}.includeThoughts") is True:
        option["summary"] = "auto"
    return option


def _thinking_row(family: GeminiFamily) -> Row:
    targets = tuple(f"{THINKING}.{key}" for key in ("thinkingBudget", "thinkingLevel", "includeThoughts"))
    return FieldGroup("reasoning", targets, lambda value, context: reasoning(value, context, family), _reasoning_in)


def fields_of(family: GeminiFamily) -> tuple[Row, ...]:
    """The rows for a family of models, which differ in how thinking is asked for."""
    return FIELDS if family is GENERAL else (*_COMMON, _thinking_row(family))


_COMMON: Final[tuple[Row, ...]] = (
    # option, and the key of the request
    SpecialField("model", "the URL of the request"),
    SpecialField("instructions", "the first part of `systemInstruction`"),
    Field("temperature", "generationConfig.temperature"),
    Field("top_p", "generationConfig.topP"),
    Field("presence_penalty", "generationConfig.presencePenalty"),
    Field("frequency_penalty", "generationConfig.frequencyPenalty"),
    Field("max_output_tokens", "generationConfig.maxOutputTokens"),
    FieldGroup(
        "top_logprobs",
        (HAS_LOGPROBS, LOGPROBS),
        lambda value, _context: {HAS_LOGPROBS: True, LOGPROBS: value},
        lambda keys: keys.get(LOGPROBS),
    ),
    FieldGroup("text", (MIME_TYPE, SCHEMA, JSON_SCHEMA), text, _text_in),
    Field("store", "store"),
    Field("service_tier", "serviceTier", tier_of(SERVICE_TIERS)),
    SpecialField("tool_choice", "`toolConfig.functionCallingConfig`, if there are tools"),
    SpecialField("dialect", "left out: the format is the same for all vendors"),
    SpecialField("provider", "not sent: it says who can read what came from a provider"),
    SpecialField("extra", f"{', '.join(f'`{key}`' for key in EXTRAS)}, and `extra.gemini` verbatim"),
    SpecialField("parallel_tool_calls", "left out: Gemini may always call tools in parallel (a loss if it is `False`)"),
    NoField("stream", "the URL of the request decides whether the response is streamed", silent=(True,)),
    NoField("stream_options", "Gemini streams have no options", silent=({"include_usage": True},)),
    *fields.only_in_responses("Gemini", image="Gemini has no image settings of this kind"),
    NoField("moderation", "Gemini has safety settings instead; set extra={'safety_settings': …}"),
    NoField("metadata", "Gemini does not store metadata"),
    *fields.no_fields("Gemini does not accept user ids", "safety_identifier", "user"),
    *fields.no_fields("Gemini finds cached prefixes automatically", *fields.CACHE_OPTIONS),
    NoField("previous_response_id", "generateContent does not store responses; the items stored here are sent"),
    NoField("conversation", "generateContent does not store conversations; the items stored here are sent"),
)
FIELDS: Final[tuple[Row, ...]] = (*_COMMON, _thinking_row(GENERAL))
