"""Tables of Chat Completions: request options, message keys, finish reasons.

Source: OpenAI's API reference, "Chat Completions".
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.fields import DEFAULTS, Dropped, Elsewhere, Field, Row, Spread, metadata, service_tier
from threadkeep.formats.names import is_valid_name
from threadkeep.formats.reports import Context

NAME: Final = "chat_completion"

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
# session extras that users may set flat
EXTRAS: Final = (
    "stop", "seed", "logit_bias", "n", "prediction", "web_search_options", "modalities", "audio",
)  # fmt: skip
STREAM_OPTIONS: Final = ("include_usage", "include_obfuscation")
_LONG: Final = "12h"
_FASTEST: Final = "ultrafast"
TIERS: Final = ("auto", "default", "flex", "scale", "priority", "fast")
SCHEMA_KEYS: Final = ("name", "schema", "strict", "description")
CHOICES: Final = frozenset({"auto", "none", "required"})
# keys of an assistant message that have a canonical form, or say nothing when they are null
MESSAGE_KEYS: Final = frozenset({"role", "content", "refusal", "tool_calls", "annotations", "audio", "function_call"})
# keys under which servers put reasoning beside the content
REASONING_KEYS: Final = ("reasoning_content", "reasoning", "reasoning_details")

# keys of content parts of the API itself, where null says nothing
PART_KEYS: Final = frozenset(
    {"type", "text", "image_url", "file", "input_audio", "refusal", "video_url", "prompt_cache_breakpoint"}
)

# finish_reason -> canonical status
STATUSES: Final = {
    "stop": "completed",
    "tool_calls": "completed",
    "function_call": "completed",
    "length": "incomplete",
    "model_length": "incomplete",  # Mistral
    "insufficient_system_resource": "incomplete",  # DeepSeek
    "content_filter": "failed",
    "sensitive": "failed",  # Z.ai
    "error": "failed",  # OpenRouter, Mistral
    "network_error": "failed",  # Z.ai
}
# finish_reason -> why a response is incomplete, in canonical words
INCOMPLETE: Final = {
    "length": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}


def top_logprobs(value: Any, _context: Context) -> JsonObject:
    """Log probabilities are asked for by two keys."""
    return {"logprobs": True, "top_logprobs": value}


def _read_logprobs(given: JsonObject) -> Any:
    return given.get("top_logprobs")


def reasoning_effort(value: Any, context: Context) -> Any:
    """The effort; the format has no other reasoning setting."""
    return _only("reasoning", ("effort",), value, context).get("effort")


def reasoning_object(value: Any, context: Context) -> JsonObject:
    """Effort or budget as one object, which some vendors take in place of the effort; a budget goes before."""
    found = _only("reasoning", ("effort", "budget_tokens"), value, context)
    if "budget_tokens" in found:
        found["max_tokens"] = found.pop("budget_tokens")
        if found.pop("effort", None) is not None:
            context.lose("option", "reasoning.effort", "The effort was left out: there is a budget.")
    return {"reasoning": found} if found else {}


def _read_effort(value: Any) -> JsonObject:
    return {"effort": value}


def text(value: Any, context: Context) -> JsonObject:
    """The response format and the verbosity."""
    if not isinstance(value, dict):
        return {}
    found = _only("text", ("format", "verbosity"), value, context)
    if "format" in found:
        found = {"response_format": _response_format(found.pop("format"), context), **found}
    return found


def _read_text(given: JsonObject) -> JsonObject | None:
    found = {key: given[key] for key in ("verbosity",) if key in given}
    form = given.get("response_format")
    if form is None:
        return found
    if not isinstance(form, dict):
        return None
    nested = form.get("json_schema")
    is_flat = isinstance(nested, dict) and form.keys() == {"type", "json_schema"} and nested.keys() <= {*SCHEMA_KEYS}
    has_null = isinstance(nested, dict) and None in nested.values()
    return {"format": {"type": form["type"], **nested} if nested and is_flat and not has_null else form, **found}


def _response_format(form: Any, context: Context) -> Any:
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    nested = form.get("json_schema")
    if isinstance(nested, dict):
        return {**form, "json_schema": _schema(nested, context)}
    flat = {key: form[key] for key in SCHEMA_KEYS if form.get(key) is not None}
    return {"type": "json_schema", "json_schema": _schema(flat, context)}


def _schema(schema: JsonObject, context: Context) -> JsonObject:
    name = schema.get("name")
    if name is None or is_valid_name(name):
        return schema
    return {**schema, "name": context.name(name, "text.format.name")}


def prompt_cache_options(value: Any, context: Context) -> Any:
    """What is wanted of the cache, as far as this API has it."""
    if not isinstance(value, dict):
        return value
    found = _only("prompt_cache_options", ("mode", "ttl"), value, context)
    if found.get("ttl") == _LONG:
        context.lose("option", "prompt_cache_options.ttl", f"Chat Completions keeps nothing for {_LONG}.")
        del found["ttl"]
    return found or None


def with_schema_name(form: Any, context: Context) -> Any:
    """The form of the answer with a name for its schema, which the service needs and other formats do not."""
    schema = form.get("json_schema") if isinstance(form, dict) else None
    if not isinstance(schema, dict) or schema.get("name") is not None:
        return form
    context.mend("name", "text.format.name", "The schema of the answer got a name: the service needs one.")
    return {**form, "json_schema": {**schema, "name": "response"}}


def _tier(value: Any, context: Context) -> Any:
    if value == _FASTEST:
        context.lose("option", "service_tier", f"Chat Completions has no service tier {value!r}.")
        return None
    return service_tier(value, context)


def _read_tier(tier: Any) -> Any:
    """The service tier, where it is one of OpenAI's; other servers have tiers of their own."""
    return tier if tier in TIERS else None


def _only(option: str, keys: tuple[str, ...], value: Any, context: Context) -> JsonObject:
    if not isinstance(value, dict):
        return {}
    for key, inner in value.items():
        if key not in keys and inner is not None and inner not in DEFAULTS:
            context.lose("option", f"{option}.{key}", f"Chat Completions has no {option}.{key}.")
    return {key: value[key] for key in keys if value.get(key) is not None}


FIELDS: Final[tuple[Row, ...]] = (
    # option, and the key of the request
    Field("model", "model"),
    Elsewhere("instructions", "the first message, of role system"),
    Field("temperature", "temperature"),
    Field("top_p", "top_p"),
    Field("presence_penalty", "presence_penalty"),
    Field("frequency_penalty", "frequency_penalty"),
    Field("max_output_tokens", "max_completion_tokens"),
    Spread("top_logprobs", ("logprobs", "top_logprobs"), top_logprobs, _read_logprobs),
    Elsewhere("parallel_tool_calls", "parallel_tool_calls, when there are tools"),
    Field("stream", "stream"),
    Elsewhere("stream_options", "stream_options, when stream is on"),
    Field("store", "store"),
    Field("service_tier", "service_tier", _tier, _read_tier),
    Field("safety_identifier", "safety_identifier"),
    Field("prompt_cache_key", "prompt_cache_key"),
    Field("prompt_cache_retention", "prompt_cache_retention"),
    Field("prompt_cache_options", "prompt_cache_options", prompt_cache_options),
    Field("moderation", "moderation"),
    Field("user", "user"),
    Field("metadata", "metadata", metadata),
    Spread("text", ("response_format", "verbosity"), text, _read_text),
    Field("reasoning", "reasoning_effort", reasoning_effort, _read_effort),
    Elsewhere("tool_choice", "tool_choice, when there are tools"),
    Elsewhere("dialect", "which vendor's Chat Completions it is"),
    Elsewhere("extra", f"{', '.join(EXTRAS)}, and extra.chat_completion verbatim"),
    Dropped("background", "Chat Completions has no background mode"),
    Dropped("prompt", "Chat Completions has no stored prompts"),
    Dropped("context_management", "Chat Completions manages no context"),
    Dropped("access_programs", "Chat Completions has no access programs"),
    Dropped("image", "Chat Completions has no image settings"),
    Dropped("include", "Chat Completions returns everything it has"),
    Dropped("max_tool_calls", "Chat Completions has no limit on tool calls"),
    Dropped("truncation", "Chat Completions never shortens the input", silent=("disabled",)),
    Dropped("previous_response_id", "Chat Completions keeps no responses; the items that are here are sent"),
    Dropped("conversation", "Chat Completions keeps no conversations; the items that are here are sent"),
)
