"""Tables of Open Responses: request options, keys of items and parts, statuses; and its tools.

Source: the Open Responses specification and OpenAI's API reference, "Responses".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.items import NAME
from threadkeep.formats.shared import fields
from threadkeep.formats.shared.fields import Field, How, Row, SpecialField
from threadkeep.formats.shared.parts import native_keys, own_block, own_keys, report_foreign
from threadkeep.formats.shared.reports import Context

TOOL_KEYS: Final = frozenset(
    {
        "type", "name", "description", "parameters", "strict",
        "async", "allowed_callers", "defer_loading", "output_schema",
    }
)  # fmt: skip
# item types that are taken without an id
IDLESS: Final = frozenset(
    {
        "message", "function_call", "function_call_output", "reasoning", "compaction", "compaction_trigger",
        "configuration_update", "additional_tools", "computer_call_output", "custom_tool_call",
        "custom_tool_call_output", "tool_search_call", "tool_search_output", "shell_call", "shell_call_output",
        "apply_patch_call", "apply_patch_call_output", "mcp_approval_response",
    }
)  # fmt: skip
# item types that the application sends: what tools returned, answers to questions, changes of the configuration
INPUT_TYPES: Final = frozenset(
    {
        "function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output",
        "shell_call_output", "apply_patch_call_output", "tool_search_output", "mcp_approval_response", "item_reference",
        "additional_tools", "configuration_update", "compaction_trigger",
    }
)  # fmt: skip
# reasoning keys that other formats have
_FOREIGN_REASONING: Final = {
    "budget_tokens": "the effort says how much",
    "display": "use summary",
    "type": "use effort",
}
_LEAST_OUTPUT_TOKENS: Final = 16

# status of a response -> its canonical status
STATUSES: Final = {
    **{word: word for word in ("completed", "incomplete", "failed", "in_progress", "cancelled")},
    "queued": "in_progress",
    "canceled": "cancelled",
}


def reasoning(value: Any, context: Context) -> Any:
    """Reasoning settings without the keys of other formats, and their word for no summary."""
    if not isinstance(value, dict):
        return value
    value = {key: inner for key, inner in value.items() if (key, inner) != ("summary", "none")}
    for key, reason in _FOREIGN_REASONING.items():
        if key in value:
            context.loss("option", f"reasoning.{key}", f"Open Responses has no reasoning.{key}: {reason}.")
    return {key: inner for key, inner in value.items() if key not in _FOREIGN_REASONING} or None


def text(value: Any, context: Context) -> Any:
    """Text settings; a JSON schema written the Chat Completions way is made flat."""
    match value:
        case {"format": {"type": "json_schema"} as form}:
            nested = form.get("json_schema")
            flat = {key: inner for key, inner in form.items() if key != "json_schema"}
            flat |= nested if isinstance(nested, dict) else {}
            if flat.get("schema") is None:
                flat["schema"] = {}
                context.repair("schema", "text.format.schema", "An empty schema was sent: the service needs one.")
            return {**value, "format": fields.with_valid_name(flat, context)}
    return value


def with_schema_name(value: Any, context: Context) -> Any:
    """Text settings with a name for the JSON schema, which the service needs and other servers do not."""
    match value:
        case {"format": {"type": "json_schema"} as form}:
            return {**value, "format": fields.with_some_name(form, context)}
    return value


def output_limit(value: Any, context: Context) -> Any:
    """The token limit, not below what the service takes."""
    if not isinstance(value, int | float) or value >= _LEAST_OUTPUT_TOKENS:
        return value
    context.repair("max_output_tokens", "max_output_tokens", f"{value} was raised to the lowest limit that is taken.")
    return _LEAST_OUTPUT_TOKENS


def stream_options(settings: JsonObject) -> JsonObject:
    """Stream options, which have no effect where `stream` is not set; usage is always included."""
    options = settings.get("stream_options")
    if not isinstance(options, dict) or settings.get("stream") is None:
        return {}
    return {key: value for key, value in options.items() if key != "include_usage"}


# options that are keys of the request, in its order
_KEYS: Final = (
    "model", "instructions", "previous_response_id", "conversation", "temperature", "top_p", "presence_penalty",
    "frequency_penalty", "max_output_tokens", "max_tool_calls", "top_logprobs", "parallel_tool_calls", "stream",
    "background", "store", "truncation", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_options", "prompt", "context_management", "moderation", "access_programs",
    "image", "user", "include", "metadata", "text", "reasoning",
)  # fmt: skip
# option -> how its value is converted, if it is not sent as it is
_HOW: Final[dict[str, How]] = {
    "max_output_tokens": output_limit,
    "service_tier": fields.service_tier,
    "metadata": fields.metadata,
    "text": text,
    "reasoning": reasoning,
}
FIELDS: Final[tuple[Row, ...]] = (
    *(Field(name, name, _HOW.get(name)) for name in _KEYS),
    SpecialField("stream_options", "`stream_options`, if `stream` is set"),
    SpecialField("tool_choice", "`tool_choice`, if the chosen tool is offered"),
    SpecialField("dialect", "determines the vendor's version of the format"),
    SpecialField("provider", "not sent: it says who can read what came from a provider"),
    SpecialField("extra", "`extra.open_responses`, verbatim"),
)


# Tools


def wire_tools(tools: Sequence[JsonObject], context: Context) -> list[Any]:
    """The tool definitions as the format sends them."""
    sent = [_tool(tool, context, f"tools[{index}]") for index, tool in enumerate(tools)]
    return [tool for tool in sent if tool is not None]


def _tool(tool: JsonObject, context: Context, path: str) -> Any:
    kind = tool.get("type", "function")
    if kind == "provider_tool":
        return own_block(tool, NAME, context, path)
    report_foreign(tool, NAME, context, path)
    if kind != "function":
        return own_keys(tool) | native_keys(tool, NAME)
    kept = {key: value for key, value in tool.items() if key in TOOL_KEYS and value is not None}
    if tool.get("origin") != NAME:  # what a request of this format had goes back as it came
        kept["name"] = context.name(tool.get("name"), f"{path}.name")
    return {"type": "function"} | kept | native_keys(tool, NAME)


def tool_choice(choice: Any, context: Context) -> Any:
    """The tool choice; the choice of a function that is not offered is left out."""
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return choice
    name = context.offered_name(choice)
    return None if name is None else {"type": "function", "name": name}
