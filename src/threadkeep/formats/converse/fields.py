"""Tables of Converse: request options, stop reasons, statuses of tool results.

Source: Amazon Bedrock's API reference, "Converse"; the bedrock-runtime service model of botocore.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import CannotRender
from threadkeep.formats.fields import DEFAULTS, Dropped, Elsewhere, Field, Row
from threadkeep.formats.reports import Context

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
    "default": "default",
    "flex": "flex",
    "priority": "priority",
    "reserved": "reserved",
    "standard": "default",
    "standard_only": "default",
    "auto": None,
}
# status of a tool output -> status of a toolResult
RESULT_STATUSES: Final = {
    "completed": "success",
    "success": "success",
    "failed": "error",
    "incomplete": "error",
    "error": "error",
}
# status of a toolResult -> status of a tool output
OUTPUT_STATUSES: Final = {"success": "completed", "error": "failed"}

# stopReason -> canonical status
STATUSES: Final = {
    "end_turn": "completed",
    "tool_use": "completed",
    "stop_sequence": "completed",
    "max_tokens": "incomplete",
    "model_context_window_exceeded": "incomplete",
    "guardrail_intervened": "failed",
    "content_filtered": "failed",
    "malformed_model_output": "failed",
    "malformed_tool_use": "failed",
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


def _limited(option: str, least: float, most: float) -> Callable[[Any, Context], Any]:
    """A number within the service's limits; one outside of them becomes the nearest."""

    def limit(value: Any, context: Context) -> Any:
        found = min(max(value, least), most)
        if found != value:
            context.mend("range", option, f"{option} {value} was sent as {found}, the nearest that Converse takes.")
        return found

    return limit


def service_tier(value: Any, context: Context) -> Any:
    """The service tier of Bedrock that is meant."""
    if value in SERVICE_TIERS:
        return SERVICE_TIERS[value]
    context.lose("option", "service_tier", f"Converse has no service tier {value!r}.")
    return None


def request_metadata(value: Any, context: Context) -> JsonObject | None:
    """Metadata as texts within the limits of the service."""
    found: JsonObject = {}
    for key, inner in value.items():
        text = _scalar_text(inner)
        fits = text is not None and _METADATA_KEY.fullmatch(key) and _METADATA_VALUE.fullmatch(text)
        if fits and len(found) < _METADATA_PAIRS:
            found[key] = text
        else:
            context.lose("metadata", f"metadata.{key}", f"metadata.{key} was left out: {_METADATA_RULE}.")
    return found or None


def _scalar_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or ""
    return dumps(value).decode() if isinstance(value, int | float) else None


def text_format(value: JsonObject, context: Context) -> JsonObject | None:
    """The output format: a JSON schema, as text.

    Raises:
        CannotRender: a schema is asked for, but there is none.
    """
    for key, inner in value.items():
        if key != "format" and inner is not None and inner not in DEFAULTS:
            context.lose("option", f"text.{key}", f"Converse has no text.{key}.")
    form = value.get("format")
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind in (None, "text"):
        return None
    if kind != "json_schema":
        context.lose("option", "text.format", f"Converse has no output format {kind!r}.")
        return None
    nested = form.get("json_schema")
    given = {**form, **nested} if isinstance(nested, dict) else form
    schema = given.get("schema")
    if schema is None:
        raise CannotRender("text.format asks for JSON without a schema. Give it: session.json_output({...}).")
    text = schema if isinstance(schema, str) else dumps(schema).decode()
    named = {key: given[key] for key in ("name", "description") if given.get(key) is not None}
    return {"type": "json_schema", "structure": {"jsonSchema": {"schema": text, **named}}}


def text_option(wire: Any) -> JsonObject | None:
    """The `text` option of an output format; None for one that is no JSON schema."""
    match wire:
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(text), **named}}}:
            return {"format": {"type": "json_schema", **named, "schema": schema_of(text)}}
    return None


def schema_of(text: str) -> Any:
    """The schema that a text holds; the text itself where it holds none."""
    try:
        found = loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) else text


_PER_MODEL: Final = "additionalModelRequestFields, by the model"
_NO_STORE: Final = "Converse keeps nothing; the items that are here are sent"

FIELDS: Final[tuple[Row, ...]] = (
    # option, and the key of the request
    Field("model", "modelId"),
    Elsewhere("instructions", "the first block of system"),
    Field("max_output_tokens", "inferenceConfig.maxTokens", _limited("max_output_tokens", 1, float("inf"))),
    Field("temperature", "inferenceConfig.temperature", _limited("temperature", 0, 1)),
    Field("top_p", "inferenceConfig.topP", _limited("top_p", 0, 1)),
    Field("text", "outputConfig.textFormat", text_format, text_option),
    Field("metadata", "requestMetadata", request_metadata),
    Field("service_tier", "serviceTier.type", service_tier),
    Elsewhere("reasoning", _PER_MODEL),
    Elsewhere("tool_choice", "toolConfig.toolChoice, when there are tools"),
    Elsewhere("dialect", "left out: all vendors speak it in one way"),
    Elsewhere("extra", f"stop_sequences, {', '.join(EXTRAS)}, and extra.converse verbatim"),
    Elsewhere("stream", "the operation: Converse or ConverseStream"),
    Dropped("stream_options", "Converse streams have no options"),
    Dropped("presence_penalty", "Converse has no penalties"),
    Dropped("frequency_penalty", "Converse has no penalties"),
    Dropped("top_logprobs", "Converse gives no log probabilities"),
    Dropped("parallel_tool_calls", "Converse leaves parallel calls to the model", silent=(True,)),
    Dropped("max_tool_calls", "Converse has no limit on tool calls"),
    Dropped("background", "Converse has no background mode"),
    Dropped("store", _NO_STORE),
    Dropped("previous_response_id", _NO_STORE),
    Dropped("conversation", _NO_STORE),
    Dropped("include", "Converse returns everything it has"),
    Dropped("truncation", "Converse never shortens the input", silent=("disabled",)),
    Dropped("safety_identifier", "Converse knows no users"),
    Dropped("user", "Converse knows no users"),
    Dropped("prompt", "Converse has other stored prompts; set extra.prompt_variables"),
    Dropped("prompt_cache_key", "Converse caches by cache points"),
    Dropped("prompt_cache_retention", "Converse caches by cache points"),
    Dropped("prompt_cache_options", "Converse caches by cache points"),
    Dropped("context_management", "Converse manages no context"),
    Dropped("moderation", "Converse moderates by guardrails; set extra.guardrail_config"),
    Dropped("access_programs", "Converse has no access programs"),
    Dropped("image", "Converse has no image settings"),
)
