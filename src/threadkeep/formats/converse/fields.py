"""Tables of Converse: request options, how models are asked to reason, stop reasons, statuses of tool results.

Converse has no field for reasoning; the keys go into `additionalModelRequestFields`. A model that is in no row is asked
for nothing, which is reported.

Source: Amazon Bedrock's API reference, "Converse"; the bedrock-runtime service model of botocore; Amazon Bedrock's user
guide, "Inference request parameters and response fields for foundation models"; recorded requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import CannotRender
from threadkeep.formats.shared import claude, fields
from threadkeep.formats.shared.fields import DEFAULTS, Field, NoField, Row, SpecialField, tier_of, within
from threadkeep.formats.shared.reports import Context

NAME: Final = "converse"

ROLES: Final = frozenset({"user", "assistant"})
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
# session extras that users may set flat -> key of the request
EXTRAS: Final = {
    "guardrail_config": "guardrailConfig",
    "additional_model_request_fields": "additionalModelRequestFields",
    "additional_model_response_field_paths": "additionalModelResponseFieldPaths",
    "performance_config": "performanceConfig",
    "prompt_variables": "promptVariables",
}
# service tier of any vendor -> serviceTier.type; auto is what the service does when none is named
SERVICE_TIERS: Final = {
    **{tier: tier for tier in ("default", "flex", "priority", "reserved")},
    **dict.fromkeys(("standard", "standard_only"), "default"),
    "auto": None,
}
# status of a tool output -> status of a toolResult
RESULT_STATUSES: Final = {
    **dict.fromkeys(("completed", "success"), "success"),
    **dict.fromkeys(("failed", "incomplete", "error"), "error"),
}
# status of a toolResult -> status of a tool output
OUTPUT_STATUSES: Final = {"success": "completed", "error": "failed"}

# stopReason -> canonical status
STATUSES: Final = {
    **dict.fromkeys(("end_turn", "tool_use", "stop_sequence"), "completed"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "incomplete"),
    **dict.fromkeys(
        ("guardrail_intervened", "content_filtered", "malformed_model_output", "malformed_tool_use"), "failed"
    ),
}
# stopReason -> why a response is not whole, in canonical words where there is one
INCOMPLETE: Final = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}

_METADATA_PAIRS: Final = 16
_METADATA_KEY: Final = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,\-.]{1,256}")
_METADATA_VALUE: Final = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,\-.]{0,256}")
_METADATA_RULE: Final = "Converse takes 16 pairs of texts of 256 letters, digits, blanks and : _ @ $ # = / + , - ."


def request_metadata(value: Any, context: Context) -> JsonObject | None:
    """Metadata as texts within the limits of the service."""
    pairs: JsonObject = {}
    for key, inner in value.items():
        text = dumps(inner).decode() if isinstance(inner, int | float) else "" if inner is None else inner
        fits = isinstance(text, str) and _METADATA_KEY.fullmatch(key) and _METADATA_VALUE.fullmatch(text)
        if fits and len(pairs) < _METADATA_PAIRS:
            pairs[key] = text
        else:
            context.loss("metadata", f"metadata.{key}", f"metadata.{key} was left out: {_METADATA_RULE}.")
    return pairs or None


def text_format(value: JsonObject, context: Context) -> JsonObject | None:
    """The output format: a JSON schema, as text; one without a schema is refused."""
    fields.other_keys("text", ("format",), value, context, "Converse")
    form = value.get("format")
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind in (None, "text"):
        return None
    if kind != "json_schema":
        context.loss("option", "text.format", f"Converse has no output format {kind!r}.")
        return None
    nested = form.get("json_schema")
    keys = {**form, **nested} if isinstance(nested, dict) else form
    schema = keys.get("schema")
    if schema is None:
        raise CannotRender("text.format asks for JSON without a schema.", hint="Set it: session.json_output({...}).")
    text = schema if isinstance(schema, str) else dumps(schema).decode()
    named = {key: keys[key] for key in ("name", "description") if keys.get(key) is not None}
    return {"type": "json_schema", "structure": {"jsonSchema": {"schema": text, **named}}}


SCHEMA: Final = "outputConfig.textFormat.structure.jsonSchema.schema"  # the place of the schema's text


def text_option(wire: Any) -> JsonObject | None:
    """The `text` option of an output format; None for one that is not a JSON schema."""
    match wire:
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(text), **named}}}:
            return {"format": {"type": "json_schema", **named, "schema": schema_of(text)}}
    return None


def schema_of(text: str) -> Any:
    """The schema that a text holds; the text itself where it holds none."""
    try:
        schema = loads(text)
    except ValueError:
        return text
    return schema if isinstance(schema, dict) else text


# Reasoning

How = Callable[[JsonObject, Context], JsonObject]
_SILENT: Final = frozenset({"summary", "generate_summary"})  # every model shows the reasoning that it may show
# effort -> the nearest of three levels
_LEVELS: Final = {
    "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high",
}  # fmt: skip
_EFFORTS: Final = {"minimal": "low"} | {word: word for word in ("low", "medium", "high", "xhigh", "max")}


def reasoning_fields(settings: Mapping[str, Any], context: Context) -> JsonObject:
    """The keys of `additionalModelRequestFields` that ask this model to reason."""
    option = {key: value for key, value in (settings.get("reasoning") or {}).items() if value is not None}
    if not option:
        return {}
    model = str(settings.get("model") or "")
    how = next((how for pattern, how in MODELS if pattern.search(model)), _nothing)
    return how(option, context)


def _with_budget(option: JsonObject, context: Context, *others: str) -> JsonObject:
    """Claude 3.7 to 4.5: a budget, and no effort."""
    _report(option, (*claude.THINKING, *others), context)
    thinking = claude.thinking_of(option, context)
    return {} if thinking is None else {"thinking": thinking}


def _with_effort(option: JsonObject, context: Context) -> JsonObject:
    """Claude 4.6 and later decide how much they think; the effort guides them."""
    sent, effort = _with_budget(option, context, "effort"), fields.effort_of(option, _EFFORTS, context)
    if effort is None:
        return sent
    return {"thinking": {"type": "adaptive"}, **sent, "output_config": {"effort": effort}}


def _with_level(keys: Callable[[str], JsonObject]) -> How:
    """Other models: one of three levels, in keys of their own."""

    def how(option: JsonObject, context: Context) -> JsonObject:
        _report(option, ("effort",), context)
        level = fields.effort_of(option, _LEVELS, context)
        return {} if level is None else keys(level)

    return how


def _nothing(option: JsonObject, context: Context) -> JsonObject:
    _report(option, (), context)
    return {}


def _report(option: JsonObject, known: tuple[str, ...], context: Context) -> None:
    """Report what this model cannot be asked for."""
    for key, value in option.items():
        if key not in known and key not in _SILENT and value not in DEFAULTS:
            detail = f"reasoning.{key} ({value!r}) was left out: the model has no field for it."
            context.loss("option", f"reasoning.{key}", detail)


# model id (regions and versions stand around the name) -> how it is asked to reason
MODELS: Final[tuple[tuple[re.Pattern[str], How], ...]] = (
    (re.compile(r"claude-(3-7|sonnet-4-2|opus-4-2|opus-4-1|(sonnet|opus|haiku)-4-5)"), _with_budget),
    (re.compile(r"claude-((sonnet|opus|haiku)-(4-[6-9]|[5-9])|fable|mythos)"), _with_effort),
    (
        re.compile(r"nova-2"),
        _with_level(lambda level: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}),
    ),
    (re.compile(r"gpt-oss"), _with_level(lambda level: {"reasoning_effort": level})),
    (re.compile(r"qwen3"), _with_level(lambda level: {"reasoning_config": level})),
)


# Options

FIELDS: Final[tuple[Row, ...]] = (
    # option, and the key of the request
    Field("model", "modelId"),
    SpecialField("instructions", "the first block of `system`"),
    Field("max_output_tokens", "inferenceConfig.maxTokens", within("max_output_tokens", 1, float("inf"))),
    Field("temperature", "inferenceConfig.temperature", within("temperature", 0, 1)),
    Field("top_p", "inferenceConfig.topP", within("top_p", 0, 1)),
    Field("text", "outputConfig.textFormat", text_format, text_option),
    Field("metadata", "requestMetadata", request_metadata),
    Field("service_tier", "serviceTier.type", tier_of(SERVICE_TIERS)),
    SpecialField("reasoning", "`additionalModelRequestFields`, depending on the model"),
    SpecialField("tool_choice", "`toolConfig.toolChoice`, if there are tools"),
    SpecialField("dialect", "left out: the format is the same for all vendors"),
    SpecialField("provider", "not sent: it says who can read what came from a provider"),
    SpecialField(
        "extra", f"`stop_sequences`, {', '.join(f'`{key}`' for key in EXTRAS)}, and `extra.converse` verbatim"
    ),
    SpecialField("stream", "the operation: `Converse` or `ConverseStream`"),
    NoField("stream_options", "Converse streams have no options"),
    *fields.no_fields("Converse has no penalties", "presence_penalty", "frequency_penalty"),
    NoField("top_logprobs", "Converse does not return log probabilities"),
    NoField("parallel_tool_calls", "Converse leaves parallel tool calls to the model", silent=(True,)),
    *fields.only_in_responses(
        "Converse", prompt="Converse has a different kind of stored prompts; set extra.prompt_variables"
    ),
    *fields.no_fields(
        "Converse does not store anything; the items stored here are sent",
        "store",
        "previous_response_id",
        "conversation",
    ),
    *fields.no_fields("Converse does not accept user ids", "safety_identifier", "user"),
    *fields.no_fields("Converse uses cache points", *fields.CACHE_OPTIONS),
    NoField("moderation", "Converse uses guardrails for moderation; set extra.guardrail_config"),
)
