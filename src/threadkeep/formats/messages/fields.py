"""Tables of the Messages API: request options, stop reasons, kinds of blocks.

Settings that depend on each other or on the model, see also `formats.shared.claude`:

* `max_tokens` is always sent: 4096 where nothing is set, and what thinking may use on top.
* A tool cannot be forced while thinking has a budget.

Sources: Anthropic's API reference, "Messages", create; Anthropic's API reference, "Messages"; its guide on extended
thinking.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, value_at
from threadkeep.domain.tool_names import NameRule
from threadkeep.errors import CannotRender
from threadkeep.formats.shared import fields
from threadkeep.formats.shared.claude import THINKING, fit_sampling, fit_thinking, thinking_of, thinking_type
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, Row, SpecialField, within
from threadkeep.formats.shared.reports import Context

NAME: Final = "messages"
NAMES: Final = NameRule(longest=128)
LONGEST_USER_ID: Final = 256
DEFAULT_MAX_TOKENS: Final = 4096

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
TIERS: Final = {"auto": "auto", "standard_only": "standard_only"}
# effort -> output_config.effort
EFFORTS: Final = {"minimal": "low"} | {word: word for word in ("low", "medium", "high", "xhigh", "max")}
# session extras that users may set flat
EXTRAS: Final = ("top_k", "stop_sequences", "cache_control")
# output status -> is_error of a tool result
ERRORS: Final = frozenset({"failed", "incomplete", "error"})
PLAIN_TEXT: Final = "text/plain"
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
SERVER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})  # of tools that the service runs
# stop_reason -> canonical status
STATUSES: Final = {
    **dict.fromkeys(("end_turn", "tool_use", "stop_sequence"), "completed"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded", "pause_turn", "compaction"), "incomplete"),
    "refusal": "failed",
}
# stop_reason -> why a response is incomplete
INCOMPLETE: Final = {
    "max_tokens": "max_output_tokens",
    "refusal": "content_filter",
    **{word: word for word in ("model_context_window_exceeded", "pause_turn", "compaction")},
}


def metadata(value: Any, context: Context) -> Any:
    """The user id; the service takes no other metadata."""
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        if key != "user_id" and inner is not None:
            context.loss("metadata", f"metadata.{key}", f"metadata.{key} was left out: the format takes only user_id.")
    user_id = value.get("user_id")
    if user_id is None or not fits_user_id(user_id, context):
        return None
    return {"user_id": user_id}


def fits_user_id(user_id: Any, context: Context) -> bool:
    """Whether a user id is a text of up to 256 characters; a loss where it is not."""
    if isinstance(user_id, str) and len(user_id) <= LONGEST_USER_ID:
        return True
    context.loss("metadata", "`metadata.user_id`", "The user id was left out: it is a text of up to 256 characters.")
    return False


def reasoning(value: Any, context: Context) -> JsonObject:
    """Thinking and effort."""
    if not isinstance(value, dict):
        return {}
    fields.other_keys("reasoning", (*THINKING, "effort"), value, context, "The format")
    keys: JsonObject = {}
    if (thinking := thinking_of(value, context)) is not None:
        keys["thinking"] = thinking
    if (effort := fields.effort_of(value, EFFORTS, context)) is not None:
        keys["output_config.effort"] = effort
    return keys


def read_reasoning(keys: JsonObject) -> Any:
    """The option that keys of a request say."""
    thinking, effort = keys.get("thinking"), keys.get("output_config.effort")
    option = dict(thinking) if isinstance(thinking, dict) else {}
    if option.get("type") == "enabled" and "budget_tokens" in option:
        del option["type"]  # a budget says so already, in all formats
    return option | ({} if effort is None else {"effort": effort})


def text(value: Any, context: Context) -> Any:
    """The JSON schema of the answer; the format has no other text setting."""
    if not isinstance(value, dict):
        return None
    fields.other_keys("text", ("format",), value, context, "The format")
    form, kind = value.get("format"), value_at(value, "format.type")
    if kind != "json_schema":
        if kind not in (None, "text"):
            context.loss("option", "text.format", f"The format has no text format {kind!r}.")
        return None
    nested = value_at(form, "json_schema.schema")
    schema = value_at(form, "schema") if nested is None else nested
    if schema is None:
        raise CannotRender("text.format asks for JSON by a schema, but has none.", hint="Set text.format.schema.")
    fields.no_description(form, context)
    return {"type": "json_schema", "schema": schema}


def read_text(form: Any) -> Any:
    """The option of an output format; other APIs want a name for the schema."""
    if not isinstance(form, dict) or form.keys() != {"type", "schema"}:
        return None
    return {"format": {"type": "json_schema", "name": "response", "schema": form["schema"]}}


FIELDS: Final[tuple[Row, ...]] = (
    # option, and the key of the request
    Field("model", "model"),
    Field("max_output_tokens", "max_tokens"),
    SpecialField("instructions", "the first text of `system`"),
    Field("temperature", "temperature", within("temperature", 0, 1)),
    Field("top_p", "top_p", within("top_p", 0, 1)),
    Field("stream", "stream"),
    Field("service_tier", "service_tier", fields.tier_of(TIERS)),
    Field("metadata", "metadata", metadata),
    SpecialField("safety_identifier", "`metadata.user_id`"),
    FieldGroup("reasoning", ("thinking", "output_config.effort"), reasoning, read_reasoning),
    Field("text", "output_config.format", text, read_text),
    SpecialField("tool_choice", "`tool_choice`, if there are tools"),
    SpecialField("parallel_tool_calls", "`tool_choice.disable_parallel_tool_use`, if there are tools"),
    SpecialField("dialect", "left out: the format is the same for all vendors"),
    SpecialField("provider", "not sent: it says who can read what came from a provider"),
    SpecialField("extra", f"{', '.join(f'`{key}`' for key in EXTRAS)}, and `extra.messages` verbatim"),
    *fields.no_fields("the format has no penalties", "presence_penalty", "frequency_penalty"),
    NoField("top_logprobs", "the format has no log probabilities"),
    NoField("stream_options", "every stream reports its usage", silent=({"include_usage": True},)),
    NoField("store", "the service does not store responses"),
    *fields.only_in_responses(
        "the format", context_management="the format manages the context in its own way; set extra.messages"
    ),
    NoField("user", "the format uses safety_identifier instead"),
    *fields.no_fields("caches are controlled by cache_control marks", *fields.CACHE_OPTIONS),
    NoField("moderation", "the format has no moderation settings"),
    NoField("previous_response_id", "the service does not store responses; the items stored here are sent"),
    NoField("conversation", "the service does not store conversations; the items stored here are sent"),
)


def fit(body: JsonObject, settings: JsonObject, context: Context, *, has_limit: bool = True) -> None:
    """Make the settings of a request agree; `has_limit`: a token limit is sent though none is set."""
    user_id = settings.get("safety_identifier")
    if user_id is not None and (settings.get("metadata") or {}).get("user_id") not in (None, user_id):
        raise CannotRender("safety_identifier and metadata.user_id differ.", hint="Set one, or both to the same.")
    if user_id is not None and fits_user_id(user_id, context):
        body["metadata"] = {"user_id": user_id}
    fit_thinking(body, context)
    _limit(body, has_limit=has_limit)
    fit_sampling(body, context)
    kind, choice = thinking_type(body), body.get("tool_choice") or {}
    if kind == "enabled" and choice.get("type") in ("any", "tool"):
        context.loss("tool_choice", "tool_choice", "No tool can be forced while thinking has a budget.")
        body["tool_choice"] = {key: value for key, value in choice.items() if key != "name"} | {"type": "auto"}


def _limit(body: JsonObject, *, has_limit: bool) -> None:
    budget = body["thinking"]["budget_tokens"] if thinking_type(body) == "enabled" else 0
    limit = body.get("max_tokens")
    if limit is None and has_limit:
        body["max_tokens"] = DEFAULT_MAX_TOKENS + budget
    elif limit is not None and budget and limit <= budget:
        detail = f"max_output_tokens is {limit}, which the thinking budget of {budget} uses up."
        raise CannotRender(detail, hint="Set it higher, or unset it.")
