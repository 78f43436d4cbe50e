"""Tables of the Messages API: request options, stop reasons, kinds of blocks.

Source: Anthropic's API reference, "Messages", create.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.fields import DEFAULTS, Dropped, Elsewhere, Field, How, Row, Spread
from threadkeep.formats.reports import Context

NAME: Final = "messages"
LONGEST_NAME: Final = 128
LONGEST_USER_ID: Final = 256
DEFAULT_MAX_TOKENS: Final = 4096
LEAST_BUDGET: Final = 1024
ELLIPSIS: Final = "..."  # stands where the service wants a text and there is none

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
TIERS: Final = frozenset({"auto", "standard_only"})
EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
# session extras that users may set flat
EXTRAS: Final = ("top_k", "stop_sequences", "cache_control")
# output status -> is_error of a tool result
ERRORS: Final = frozenset({"failed", "incomplete", "error"})
CITATIONS: Final = frozenset(
    {
        "char_location", "page_location", "content_block_location", "search_result_location",
        "web_search_result_location",
    }
)  # fmt: skip
IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF: Final = "application/pdf"
PLAIN_TEXT: Final = "text/plain"
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
# kinds of blocks that a tool result holds
RESULT_BLOCKS: Final = frozenset({"text", "image", "search_result", "document", "tool_reference", "browser_state"})
# kinds of blocks that only user messages hold; those of no list stand in assistant messages
USER_BLOCKS: Final = frozenset({"tool_result", "image", "document", "search_result", "container_upload"})
SYSTEM_BLOCKS: Final = frozenset({"text", "tool_addition", "tool_removal"})

# stop_reason -> canonical status
STATUSES: Final = {
    "end_turn": "completed",
    "tool_use": "completed",
    "stop_sequence": "completed",
    "pause_turn": "completed",
    "compaction": "completed",
    "max_tokens": "incomplete",
    "model_context_window_exceeded": "incomplete",
    "refusal": "failed",
}
# stop_reason -> why a response is incomplete
INCOMPLETE: Final = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "model_context_window_exceeded",
}

_THINKING: Final = ("type", "budget_tokens", "display")
_KINDS: Final = frozenset({"enabled", "adaptive", "disabled", "between_tools"})


def up_to_one(name: str) -> How:
    """What makes a number from 0 to 1 of an option: the service goes no further."""

    def limited(value: Any, context: Context) -> Any:
        if not isinstance(value, int | float) or 0 <= value <= 1:
            return value
        found = min(max(value, 0), 1)
        context.mend("range", name, f"{name} {value} became {found}: the format takes numbers from 0 to 1.")
        return found

    return limited


def service_tier(value: Any, context: Context) -> Any:
    """A tier that the service has."""
    if value in TIERS:
        return value
    context.lose("option", "service_tier", f"The format has no service tier {value!r}.")
    return None


def metadata(value: Any, context: Context) -> Any:
    """The user id; the service takes no other metadata."""
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        if key != "user_id" and inner is not None:
            context.lose("metadata", f"metadata.{key}", f"metadata.{key} was left out: the format takes only user_id.")
    user_id = value.get("user_id")
    if user_id is None or not fits_user_id(user_id, context):
        return None
    return {"user_id": user_id}


def fits_user_id(user_id: Any, context: Context) -> bool:
    """Whether a user id is a text of up to 256 characters; a loss where it is not."""
    if isinstance(user_id, str) and len(user_id) <= LONGEST_USER_ID:
        return True
    context.lose("metadata", "metadata.user_id", "The user id was left out: it is a text of up to 256 characters.")
    return False


def reasoning(value: Any, context: Context) -> JsonObject:
    """Thinking and effort.

    Raises:
        CannotRender: the settings contradict each other.
    """
    if not isinstance(value, dict):
        return {}
    for key, inner in value.items():
        if key not in (*_THINKING, "effort") and inner not in (None, *DEFAULTS):
            context.lose("option", f"reasoning.{key}", f"The format has no reasoning.{key}.")
    found: JsonObject = {}
    if (thinking := _thinking(value, context)) is not None:
        found["thinking"] = thinking
    effort = value.get("effort")
    if isinstance(effort, str) and effort in EFFORTS:
        found["output_config.effort"] = effort
    elif effort is not None:
        context.lose("option", "reasoning.effort", f"The format has no effort {effort!r}.")
    return found


def _thinking(value: JsonObject, context: Context) -> JsonObject | None:
    found = {key: value[key] for key in _THINKING if value.get(key) is not None}
    if not found:
        return None
    kind = found.setdefault("type", "enabled")
    if not isinstance(kind, str) or kind not in _KINDS:
        context.lose("option", "reasoning.type", f"The format has no thinking of type {kind!r}.")
        return None
    budget = found.get("budget_tokens")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool)):
        raise CannotRender(f"reasoning.budget_tokens is {budget!r}. Give a whole number of tokens.")
    if kind == "enabled" and budget is not None and budget <= 0:
        return _without_budget(budget, context)
    if kind == "enabled" and budget is None:
        raise CannotRender("reasoning asks for thinking without saying how much. Give budget_tokens, or an effort.")
    if kind != "enabled" and budget is not None:
        raise CannotRender(f"reasoning.budget_tokens goes with the type enabled, not {kind}. Leave one of them out.")
    if kind in ("disabled", "between_tools") and "display" in found:
        raise CannotRender(f"reasoning.display says nothing when thinking is {kind}. Leave one of them out.")
    return found


def _without_budget(budget: int, context: Context) -> JsonObject | None:
    """What other formats mean by a budget of nothing (no thinking) or less (as much as the model likes)."""
    if budget == 0:
        return {"type": "disabled"}
    context.lose("option", "reasoning.budget_tokens", "The format has no budget that the model sets itself.")
    return None


def read_reasoning(given: JsonObject) -> Any:
    """The option of these keys."""
    thinking, effort = given.get("thinking"), given.get("output_config.effort")
    found = dict(thinking) if isinstance(thinking, dict) else {}
    if found.get("type") == "enabled" and "budget_tokens" in found:
        del found["type"]  # a budget says it already, in all formats
    return found | ({} if effort is None else {"effort": effort})


def text(value: Any, context: Context) -> Any:
    """The JSON schema of the answer; the format has no other text setting.

    Raises:
        CannotRender: a schema is asked for, but there is none.
    """
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        if key != "format" and inner not in (None, *DEFAULTS):
            context.lose("option", f"text.{key}", f"The format has no text.{key}.")
    form = value.get("format")
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind != "json_schema":
        if kind not in (None, "text"):
            context.lose("option", "text.format", f"The format has no text format {kind!r}.")
        return None
    nested = form.get("json_schema")
    schema = nested.get("schema") if isinstance(nested, dict) else None
    schema = form.get("schema") if schema is None else schema
    if schema is None:
        raise CannotRender("text.format asks for JSON by a schema, but has none. Give text.format.schema.")
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
    Elsewhere("instructions", "the first text of system"),
    Field("temperature", "temperature", up_to_one("temperature")),
    Field("top_p", "top_p", up_to_one("top_p")),
    Field("stream", "stream"),
    Field("service_tier", "service_tier", service_tier),
    Field("metadata", "metadata", metadata),
    Elsewhere("safety_identifier", "metadata.user_id"),
    Spread("reasoning", ("thinking", "output_config.effort"), reasoning, read_reasoning),
    Field("text", "output_config.format", text, read_text),
    Elsewhere("tool_choice", "tool_choice, when there are tools"),
    Elsewhere("parallel_tool_calls", "tool_choice.disable_parallel_tool_use, when there are tools"),
    Elsewhere("dialect", "left out: all vendors speak it in one way"),
    Elsewhere("extra", f"{', '.join(EXTRAS)}, and extra.messages verbatim"),
    Dropped("presence_penalty", "the format has no penalties"),
    Dropped("frequency_penalty", "the format has no penalties"),
    Dropped("top_logprobs", "the format has no log probabilities"),
    Dropped("stream_options", "every stream tells its usage", silent=({"include_usage": True},)),
    Dropped("store", "the service keeps no responses"),
    Dropped("background", "the format has no background mode"),
    Dropped("user", "the format takes a safety_identifier"),
    Dropped("prompt_cache_key", "caches are marked by cache_control"),
    Dropped("prompt_cache_retention", "caches are marked by cache_control"),
    Dropped("prompt_cache_options", "caches are marked by cache_control"),
    Dropped("prompt", "the format has no stored prompts"),
    Dropped("context_management", "the format manages context in its own terms: set extra.messages"),
    Dropped("moderation", "the format has no moderation settings"),
    Dropped("access_programs", "the format has no access programs"),
    Dropped("image", "the format has no image settings"),
    Dropped("include", "the service returns everything it has"),
    Dropped("max_tool_calls", "the format has no limit on tool calls"),
    Dropped("truncation", "the service never shortens the input", silent=("disabled",)),
    Dropped("previous_response_id", "the service keeps no responses; the items that are here are sent"),
    Dropped("conversation", "the service keeps no conversations; the items that are here are sent"),
)
