"""Tables of Open Responses: request options, keys of items and parts, statuses.

Source: the Open Responses specification and OpenAI's API reference, "Responses".
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.fields import Elsewhere, Field, Row, metadata, service_tier
from threadkeep.formats.names import is_valid_name
from threadkeep.formats.reports import Context

NAME: Final = "open_responses"
LONGEST_CALL_ID: Final = 64

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
ITEM_STATUSES: Final = frozenset({"in_progress", "completed", "incomplete"})
PHASES: Final = frozenset({"commentary", "final_answer"})
DETAILS: Final = frozenset({"low", "high", "auto", "original"})

# item type -> its keys
ITEM_KEYS: Final = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset(
        {"type", "call_id", "name", "arguments", "id", "status", "namespace", "caller", "async"}
    ),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status", "name", "namespace", "caller"}),
    "reasoning": frozenset({"type", "id", "status", "encrypted_content", "summary", "content"}),
    "compaction": frozenset({"type", "id", "encrypted_content", "created_by"}),
    "item_reference": frozenset({"type", "id"}),
}  # fmt: skip
# item type -> its keys in an answer
ANSWER_KEYS: Final = {kind: keys | {"created_by"} for kind, keys in ITEM_KEYS.items()}
# part type -> its keys
PART_KEYS: Final = {
    "input_text": frozenset({"type", "text", "prompt_cache_breakpoint"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}),
    "input_file": frozenset(
        {"type", "file_data", "file_url", "file_id", "filename", "detail", "prompt_cache_breakpoint"}
    ),
    "input_video": frozenset({"type", "video_url"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
    "text": frozenset({"type", "text"}),
    "reasoning_text": frozenset({"type", "text"}),
    "summary_text": frozenset({"type", "text"}),
}  # fmt: skip
TOOL_KEYS: Final = frozenset(
    {
        "type", "name", "description", "parameters", "strict",
        "async", "allowed_callers", "defer_loading", "output_schema",
    }
)  # fmt: skip
# item type -> the prefix that the service wants on its ids
PREFIXES: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
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
# kind of annotation -> its keys, all of which it needs
ANNOTATIONS: Final = {
    "url_citation": frozenset({"type", "url", "title", "start_index", "end_index"}),
    "file_citation": frozenset({"type", "file_id", "filename", "index"}),
    "container_file_citation": frozenset({"type", "container_id", "file_id", "filename", "start_index", "end_index"}),
    "file_path": frozenset({"type", "file_id", "index"}),
}

# reasoning keys that other formats have
FOREIGN_REASONING: Final = {"budget_tokens": "the effort says how much", "display": "use summary", "type": "use effort"}
# stream options that other formats need and this one fulfils anyway
FOREIGN_STREAM_OPTIONS: Final = frozenset({"include_usage"})
LEAST_OUTPUT_TOKENS: Final = 16

# status of a response -> its canonical status
STATUSES: Final = {
    "completed": "completed",
    "incomplete": "incomplete",
    "failed": "failed",
    "in_progress": "in_progress",
    "queued": "in_progress",
    "cancelled": "cancelled",
    "canceled": "cancelled",
}


def reasoning(value: Any, context: Context) -> Any:
    """Reasoning settings without the keys of other formats."""
    if not isinstance(value, dict):
        return value
    for key in FOREIGN_REASONING.keys() & value.keys():
        reason = FOREIGN_REASONING[key]
        context.lose("option", f"reasoning.{key}", f"Open Responses has no reasoning.{key}: {reason}.")
    return {key: inner for key, inner in value.items() if key not in FOREIGN_REASONING} or None


def text(value: Any, context: Context) -> Any:
    """Text settings; a JSON schema written the Chat Completions way is made flat."""
    form = value.get("format") if isinstance(value, dict) else None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return value
    nested = form.get("json_schema")
    flat = {key: inner for key, inner in form.items() if key != "json_schema"}
    flat |= nested if isinstance(nested, dict) else {}
    return {**value, "format": flat | schema_name(flat, context)}


def schema_name(schema: JsonObject, context: Context) -> JsonObject:
    """The name of a JSON schema, where it has to be cleaned."""
    name = schema.get("name")
    if name is None or is_valid_name(name):
        return {}
    return {"name": context.name(name, "text.format.name")}


def with_schema_name(value: Any, context: Context) -> Any:
    """Text settings with a name for the JSON schema, which the service needs and other servers do not."""
    form = value.get("format") if isinstance(value, dict) else None
    if not isinstance(form, dict) or form.get("type") != "json_schema" or form.get("name") is not None:
        return value
    context.mend("name", "text.format.name", "The schema of the answer got a name: the service needs one.")
    return {**value, "format": {**form, "name": "response"}}


def output_limit(value: Any, context: Context) -> Any:
    """The token limit, not below what the service takes."""
    if not isinstance(value, int | float) or value >= LEAST_OUTPUT_TOKENS:
        return value
    context.mend("max_output_tokens", "max_output_tokens", f"{value} was raised to the least that is taken.")
    return LEAST_OUTPUT_TOKENS


def stream_options(settings: JsonObject) -> JsonObject:
    """Stream options, which say nothing where `stream` is not set."""
    options = settings.get("stream_options")
    if not isinstance(options, dict) or settings.get("stream") is None:
        return {}
    return {key: value for key, value in options.items() if key not in FOREIGN_STREAM_OPTIONS}


FIELDS: Final[tuple[Row, ...]] = (
    # the option is a key of the request, unless there is more to say
    Field("model", "model"),
    Field("instructions", "instructions"),
    Field("previous_response_id", "previous_response_id"),
    Field("conversation", "conversation"),
    Field("temperature", "temperature"),
    Field("top_p", "top_p"),
    Field("presence_penalty", "presence_penalty"),
    Field("frequency_penalty", "frequency_penalty"),
    Field("max_output_tokens", "max_output_tokens", output_limit),
    Field("max_tool_calls", "max_tool_calls"),
    Field("top_logprobs", "top_logprobs"),
    Field("parallel_tool_calls", "parallel_tool_calls"),
    Field("stream", "stream"),
    Elsewhere("stream_options", "stream_options, when stream is set"),
    Field("background", "background"),
    Field("store", "store"),
    Field("truncation", "truncation"),
    Field("service_tier", "service_tier", service_tier),
    Field("safety_identifier", "safety_identifier"),
    Field("prompt_cache_key", "prompt_cache_key"),
    Field("prompt_cache_retention", "prompt_cache_retention"),
    Field("prompt_cache_options", "prompt_cache_options"),
    Field("prompt", "prompt"),
    Field("context_management", "context_management"),
    Field("moderation", "moderation"),
    Field("access_programs", "access_programs"),
    Field("image", "image"),
    Field("user", "user"),
    Field("include", "include"),
    Field("metadata", "metadata", metadata),
    Field("text", "text", text),
    Field("reasoning", "reasoning", reasoning),
    Elsewhere("tool_choice", "tool_choice, when the chosen tool is offered"),
    Elsewhere("dialect", "which vendor's Responses API it is"),
    Elsewhere("extra", "extra.open_responses is sent verbatim"),
)
