"""Tables of the Interactions API: request options, statuses, types of content; and its tools.

Source: the types of google-genai, `interactions`; Google's Gemini API reference, "Interactions".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import is_valid_name
from threadkeep.domain.tools import tool_from
from threadkeep.errors import InvalidOption
from threadkeep.formats.shared import fields, parts, reports
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, Row, SpecialField, tier_of

NAME: Final = "interactions"
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
USER_INPUT, MODEL_OUTPUT, THOUGHT = "user_input", "model_output", "thought"
CALL, RESULT = "function_call", "function_result"
# role of a message -> type of its step
STEPS: Final = {"user": USER_INPUT, "assistant": MODEL_OUTPUT}

# status of an interaction -> canonical status; one that needs an action has calls for the application
STATUSES: Final = {
    **{word: word for word in ("in_progress", "completed", "failed", "cancelled", "incomplete")},
    "requires_action": "completed",
    "budget_exceeded": "incomplete",
    "requires_continuation": "incomplete",
    "queued": "in_progress",
    "idle": "in_progress",
}
# status -> why an interaction is not whole
INCOMPLETE: Final = {"budget_exceeded": "max_output_tokens", "requires_continuation": "continuation"}

# session extras that users may set flat -> key of the request
EXTRAS: Final = {
    "agent": "agent",
    "agent_config": "agent_config",
    "cached_content": "cached_content",
    "labels": "labels",
    "response_modalities": "response_modalities",
    "safety_settings": "safety_settings",
    "seed": "generation_config.seed",
    "stop_sequences": "generation_config.stop_sequences",
}
_PREFIX: Final = "HARM_CATEGORY_"


def extra_value(key: str, value: Any) -> Any:
    """A session extra as the request has it; the service's other API has other words for some of them."""
    if key == "safety_settings" and isinstance(value, list):
        return [_safety_setting(one) for one in value]
    if key == "response_modalities" and isinstance(value, list):
        return [one.lower() if isinstance(one, str) else one for one in value]
    return value


def _safety_setting(setting: Any) -> Any:
    if not isinstance(setting, dict) or not isinstance(setting.get("category"), str):
        return setting
    words = {key: value.lower() if isinstance(value, str) else value for key, value in setting.items()}
    return {"type": words.pop("category").removeprefix(_PREFIX.lower())} | words


# service tier -> the service's word; it has none for what it does when none is named
SERVICE_TIERS: Final = {
    **{tier: tier for tier in ("flex", "standard", "priority", "deferred")},
    "auto": None,
    "default": None,
}
LEVEL, SUMMARIES = "generation_config.thinking_level", "generation_config.thinking_summaries"
# effort -> thinking level
LEVELS: Final = {**{effort: effort for effort in ("minimal", "low", "medium", "high", "xhigh")}, "max": "xhigh"}
RESPONSE_FORMAT, CHOICE = "response_format", "generation_config.tool_choice"
CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
# mode of a choice among some of the tools -> mode here
_SOME: Final = {"required": "any", "auto": "validated"}
_JSON: Final = "application/json"


def text(value: JsonObject, context: reports.Context) -> Any:
    """The form of the answer."""
    fields.other_keys("text", ("format",), value, context, "The Interactions API")
    form = value.get("format")
    kind = form.get("type") if isinstance(form, dict) else form
    if kind in ("text", None):
        return None if kind is None else {"type": "text", "mime_type": "text/plain"}
    if kind not in ("json_object", "json_schema") or not isinstance(form, dict):
        context.loss("option", "text.format", f"The Interactions API has no answers of the form {kind!r}.")
        return None
    nested = form.get("json_schema")
    schema = (nested if isinstance(nested, dict) else form).get("schema") if kind == "json_schema" else None
    fields.no_description(form, context)
    return {"type": "text", "mime_type": _JSON} | ({} if schema is None else {"schema": schema})


def _text_in(form: Any) -> Any:
    match form:
        case {"type": "text", "mime_type": "text/plain", **others} if not others:
            return {"format": {"type": "text"}}
        case {"type": "text", "mime_type": "application/json", "schema": dict(schema), **others} if not others:
            return {"format": {"type": "json_schema", "name": "response", "schema": schema}}
        case {"type": "text", "mime_type": "application/json", **others} if not others:
            return {"format": {"type": "json_object"}}
    return None


def reasoning(value: JsonObject, context: reports.Context) -> JsonObject:
    """How much the model thinks, and whether its thoughts are summed up."""
    fields.other_keys("reasoning", ("effort", "summary"), value, context, "The Interactions API")
    level, summary = fields.effort_of(value, LEVELS, context), value.get("summary")
    keys: JsonObject = {} if level is None else {LEVEL: level}
    if summary in ("auto", "none"):
        keys[SUMMARIES] = summary
    elif summary is not None:
        context.loss("option", "reasoning.summary", f"The Interactions API has no summary {summary!r} of thoughts.")
    return keys


def _reasoning_in(keys: JsonObject) -> JsonObject:
    names = {LEVEL: "effort", SUMMARIES: "summary"}
    return {names[target]: value for target, value in keys.items()}


FIELDS: Final[tuple[Row, ...]] = (
    Field("model", "model"),
    Field("instructions", "system_instruction"),
    Field("temperature", "generation_config.temperature"),
    Field("top_p", "generation_config.top_p"),
    Field("max_output_tokens", "generation_config.max_output_tokens"),
    FieldGroup("reasoning", (LEVEL, SUMMARIES), reasoning, _reasoning_in),
    Field("text", RESPONSE_FORMAT, text, _text_in),
    Field("store", "store"),
    Field("stream", "stream"),
    Field("background", "background"),
    Field("service_tier", "service_tier", tier_of(SERVICE_TIERS)),
    Field("previous_response_id", "previous_interaction_id"),
    SpecialField("tool_choice", f"`{CHOICE}`, if there are tools"),
    SpecialField("dialect", "left out: the format is the same for all vendors"),
    SpecialField("provider", "not sent: it says who can read what came from a provider"),
    SpecialField("extra", f"{', '.join(f'`{key}`' for key in EXTRAS)}, and `extra.interactions` verbatim"),
    SpecialField("parallel_tool_calls", "left out: the model may always call tools in parallel (a loss if `False`)"),
    NoField("stream_options", "streams have no options", silent=({"include_usage": True},)),
    NoField("top_logprobs", "the Interactions API returns no log probabilities"),
    *fields.no_fields("the Interactions API has no penalties", "presence_penalty", "frequency_penalty"),
    *(row for row in fields.only_in_responses("the Interactions API") if row.option != "background"),
    NoField("moderation", "Gemini has safety settings instead; set extra={'safety_settings': …}"),
    NoField("metadata", "the Interactions API has labels instead; set extra={'labels': …}"),
    *fields.no_fields("the Interactions API does not accept user ids", "safety_identifier", "user"),
    *fields.no_fields("Gemini finds cached prefixes automatically", *fields.CACHE_OPTIONS),
    NoField("conversation", "an interaction is continued by its id; set previous_response_id"),
)


# Tools

_TOOL_KEYS: Final = frozenset({"type", "name", "description", "parameters"})


def wire_tools(tools: Sequence[JsonObject], context: reports.Context) -> list[Any]:
    """The entries of `tools`."""
    return fields.tools_by_name(tools, NAME, context, _function)


def _function(tool: JsonObject, context: reports.Context, path: str) -> JsonObject:
    declared = {key: tool[key] for key in sorted(_TOOL_KEYS & tool.keys()) if tool[key] is not None}
    declared["type"] = "function"
    if tool.get("origin") != NAME:
        declared["name"] = context.name(tool.get("name"), f"{path}.name")
        if tool.get("strict") is True:
            detail = "The Interactions API has no strict functions; the tool choice 'validated' checks all of them."
            context.loss("option", f"{path}.strict", detail)
    return declared | parts.native_keys(tool, NAME)


def tool_in(tool: Any) -> JsonObject:
    """An entry of `tools`; one that is no function, or would not come back, is a block."""
    if isinstance(tool, dict) and tool.get("type") == "function":
        said = {key: value for key, value in tool.items() if value is not None}
        try:
            kept = tool_from({**parts.split_native(said, _TOOL_KEYS, NAME), "origin": NAME}).to_dict()
        except InvalidOption:
            kept = {}
        if kept and is_valid_name(kept.get("name")) and _function(kept, reports.Context(), "") == said:
            return kept
    return {"type": "provider_tool", "format": NAME, "payload": tool}


def tool_choice(choice: Any, context: reports.Context, *, has_functions: bool) -> Any:
    """The tool choice; without functions there is nothing to choose, except none."""
    if choice is None:
        return None
    if not has_functions and choice != "none":
        context.repair("option", "tool_choice", "tool_choice was left out: there are no functions.")
        return None
    match choice:
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)} if tools:
            names = [tool.get("name") for tool in tools if isinstance(tool, dict) and tool.get("type") == "function"]
            offered = [tool.get("name") for tool in context.tools]
            if len(names) == len(tools) and all(isinstance(name, str) and name in offered for name in names):
                return {"allowed_tools": {"mode": _SOME[mode], "tools": [context.name(name) for name in names]}}
    return context.tool_choice(choice, CHOICES, lambda name: {"allowed_tools": {"mode": "any", "tools": [name]}})


def choice_in(choice: Any) -> Any:
    """The option for a tool choice of a request; None for what no option says."""
    match choice:
        case str():
            return next((ours for ours, word in CHOICES.items() if word == choice), None)
        case {"allowed_tools": {"mode": "any", "tools": [str(name)], **rest}, **others} if not rest and not others:
            return {"type": "function", "name": name}
        case {"allowed_tools": {"mode": "any" | "validated" as mode, "tools": [*names], **rest}, **others} if (
            names and not rest and not others
        ):
            back = {word: ours for ours, word in _SOME.items()}
            tools = [{"type": "function", "name": name} for name in names]
            return {"type": "allowed_tools", "mode": back[mode], "tools": tools}
    return None
