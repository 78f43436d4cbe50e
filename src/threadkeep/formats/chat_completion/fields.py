"""Tables of Chat Completions: request options, message keys, finish reasons.

Source: OpenAI's API reference, "Chat Completions".
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared import fields
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, Row, SpecialField
from threadkeep.formats.shared.reports import Context

NAME: Final = "chat_completion"

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
# session extras that users may set flat
EXTRAS: Final = (
    "stop", "seed", "logit_bias", "n", "prediction", "web_search_options", "modalities", "audio",
)  # fmt: skip
LIMIT: Final = "max_completion_tokens"
STREAM_OPTIONS: Final = ("include_usage", "include_obfuscation")
# service tiers of OpenAI; other servers have tiers of their own
TIERS: Final = ("auto", "default", "flex", "scale", "priority", "fast")
SCHEMA_KEYS: Final = ("name", "schema", "strict", "description")
CHOICES: Final = {"auto": "auto", "none": "none", "required": "required"}
# keys of an assistant message that have a canonical form, or say nothing when they are null
MESSAGE_KEYS: Final = frozenset({"role", "content", "refusal", "tool_calls", "annotations", "audio", "function_call"})
# keys under which servers put reasoning next to the content
REASONING_KEYS: Final = ("reasoning_content", "reasoning", "reasoning_details")
# keys of content parts of the API itself, where null is the same as no key
PART_KEYS: Final = frozenset(
    {"type", "text", "image_url", "file", "input_audio", "refusal", "video_url", "prompt_cache_breakpoint"}
)

# finish_reason -> canonical status; the words of Mistral, DeepSeek, Z.ai and OpenRouter among them
STATUSES: Final = {
    **dict.fromkeys(("stop", "tool_calls", "function_call"), "completed"),
    **dict.fromkeys(("length", "model_length", "insufficient_system_resource"), "incomplete"),
    **dict.fromkeys(("content_filter", "sensitive", "error", "network_error"), "failed"),
}
# finish_reason -> why a response is incomplete, in canonical words
INCOMPLETE: Final = {
    **dict.fromkeys(("length", "model_length"), "max_output_tokens"),
    **dict.fromkeys(("content_filter", "sensitive"), "content_filter"),
}


def reasoning_effort(value: Any, context: Context) -> Any:
    """The effort; the format has no other reasoning setting."""
    return _only("reasoning", ("effort",), value, context).get("effort")


def reasoning_object(value: Any, context: Context) -> JsonObject:
    """Effort or budget as one object, which some vendors take in place of the effort; a budget goes before."""
    reasoning = _only("reasoning", ("effort", "budget_tokens"), value, context)
    if "budget_tokens" in reasoning:
        reasoning["max_tokens"] = reasoning.pop("budget_tokens")
        if reasoning.pop("effort", None) is not None:
            context.loss("option", "reasoning.effort", "The effort was left out: there is a budget.")
    return {"reasoning": reasoning} if reasoning else {}


def text(value: Any, context: Context) -> JsonObject:
    """The response format and the verbosity."""
    if not isinstance(value, dict):
        return {}
    keys = _only("text", ("format", "verbosity"), value, context)
    if "format" not in keys:
        return keys
    form = keys.pop("format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        nested = form.get("json_schema")
        if not isinstance(nested, dict):
            nested, form = {key: form[key] for key in SCHEMA_KEYS if form.get(key) is not None}, {"type": "json_schema"}
        form = {**form, "json_schema": fields.with_valid_name(nested, context)}
    return {"response_format": form, **keys}


def _read_text(keys: JsonObject) -> JsonObject | None:
    option = {key: keys[key] for key in ("verbosity",) if key in keys}
    form = keys.get("response_format")
    if form is None:
        return option
    if not isinstance(form, dict):
        return None
    schema = form.get("json_schema") if form.keys() == {"type", "json_schema"} else None
    if isinstance(schema, dict) and schema and schema.keys() <= {*SCHEMA_KEYS} and None not in schema.values():
        form = {"type": form["type"], **schema}
    return {"format": form, **option}


def prompt_cache_options(value: Any, context: Context) -> Any:
    """Cache options, as far as the API has them."""
    if not isinstance(value, dict):
        return value
    options = _only("prompt_cache_options", ("mode", "ttl"), value, context)
    if options.get("ttl") == "12h":
        context.loss("option", "prompt_cache_options.ttl", "Chat Completions keeps nothing for 12h.")
        del options["ttl"]
    return options or None


def with_schema_name(form: Any, context: Context) -> Any:
    """The response format with a name for its schema, which the service needs and other formats do not."""
    schema = form.get("json_schema") if isinstance(form, dict) else None
    return {**form, "json_schema": fields.with_some_name(schema, context)} if isinstance(schema, dict) else form


def _tier(value: Any, context: Context) -> Any:
    if value == "ultrafast":
        context.loss("option", "service_tier", f"The format has no service tier {value!r}.")
        return None
    return fields.service_tier(value, context)


def _only(option: str, keys: tuple[str, ...], value: Any, context: Context) -> JsonObject:
    if not isinstance(value, dict):
        return {}
    fields.other_keys(option, keys, value, context, "Chat Completions")
    return {key: value[key] for key in keys if value.get(key) is not None}


FIELDS: Final[tuple[Row, ...]] = (
    # option, and the key of the request
    Field("model", "model"),
    SpecialField("instructions", "the first message, with the role `system`"),
    Field("temperature", "temperature"),
    Field("top_p", "top_p"),
    Field("presence_penalty", "presence_penalty"),
    Field("frequency_penalty", "frequency_penalty"),
    Field("max_output_tokens", LIMIT),
    FieldGroup(
        "top_logprobs",
        ("logprobs", "top_logprobs"),
        lambda value, _: {"logprobs": True, "top_logprobs": value},
        lambda keys: keys.get("top_logprobs"),
    ),
    SpecialField("parallel_tool_calls", "`parallel_tool_calls`, if there are tools"),
    Field("stream", "stream"),
    SpecialField("stream_options", "`stream_options`, if `stream` is set"),
    Field("store", "store"),
    Field("service_tier", "service_tier", _tier, lambda tier: tier if tier in TIERS else None),
    Field("safety_identifier", "safety_identifier"),
    Field("prompt_cache_key", "prompt_cache_key"),
    Field("prompt_cache_retention", "prompt_cache_retention"),
    Field("prompt_cache_options", "prompt_cache_options", prompt_cache_options),
    Field("moderation", "moderation"),
    Field("user", "user"),
    Field("metadata", "metadata", fields.metadata),
    FieldGroup("text", ("response_format", "verbosity"), text, _read_text),
    Field("reasoning", "reasoning_effort", reasoning_effort, lambda effort: {"effort": effort}),
    SpecialField("tool_choice", "`tool_choice`, if there are tools"),
    SpecialField("dialect", "determines the vendor's version of the format"),
    SpecialField("provider", "not sent: it says who can read what came from a provider"),
    SpecialField("extra", f"{', '.join(f'`{key}`' for key in EXTRAS)}, and `extra.chat_completion` verbatim"),
    *fields.only_in_responses("Chat Completions"),
    NoField("previous_response_id", "Chat Completions does not store responses; the items stored here are sent"),
    NoField("conversation", "Chat Completions does not store conversations; the items stored here are sent"),
)
