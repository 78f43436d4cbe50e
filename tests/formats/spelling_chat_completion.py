"""Chat Completions requests in one spelling: two that differ in nothing else say the same.

What counts as spelling: null and absent keys of the API, a text as string or as one part, content that says nothing
beside calls, empty lists of tools, calls and annotations, functions without their type, the index of calls, and the URL
of an image as string or object. Arguments, schemas and keys that the API does not have are never levelled.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

REQUEST_KEYS = {
    "model", "messages", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
    "web_search_options",
}  # fmt: skip
MESSAGE_KEYS = {
    "role", "content", "name", "refusal", "audio", "annotations", "tool_calls", "function_call", "tool_call_id",
    "reasoning", "reasoning_content", "reasoning_details",
}  # fmt: skip
PART_KEYS = {"type", "text", "image_url", "file", "input_audio", "refusal", "prompt_cache_breakpoint", "video_url"}
FUNCTION_KEYS = {"name", "description", "parameters", "strict"}
INNER_KEYS = {"url", "detail", "file_data", "file_id", "filename", "data", "format"}


def levelled(request: Any) -> Any:
    """A request in one spelling."""
    found = without_nulls(request, REQUEST_KEYS)
    if not isinstance(found, dict):
        return found
    if found.get("tools") == []:
        del found["tools"]
    for key, level in {"messages": _message, "tools": _tool, "functions": _function}.items():
        if isinstance(found.get(key), list):
            found[key] = [level(one) for one in found[key]]
    return found


def without_nulls(thing: Any, keys: set[str]) -> Any:
    """An object without those of its keys that are null."""
    if not isinstance(thing, dict):
        return thing
    return {key: value for key, value in thing.items() if value is not None or key not in keys}


def _message(message: Any) -> Any:
    found = without_nulls(message, MESSAGE_KEYS)
    if not isinstance(found, dict):
        return found
    for key in ("tool_calls", "annotations"):
        if found.get(key) == []:
            del found[key]
    if isinstance(found.get("tool_calls"), list):
        found["tool_calls"] = [_call(call) for call in found["tool_calls"]]
    if (found.get("tool_calls") or found.get("function_call")) and found.get("content") in ("", []):
        del found["content"]
    if isinstance(found.get("content"), str):
        found["content"] = [{"type": "text", "text": found["content"]}]
    elif isinstance(found.get("content"), list):
        found["content"] = [_part(part) for part in found["content"]]
    return found


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    return {
        "type": "function",
        **{key: value for key, value in without_nulls(call, {"type"}).items() if key != "index"},
    }


def _part(part: Any) -> Any:
    found = without_nulls(part, PART_KEYS)
    if not isinstance(found, dict):
        return found
    if found.get("type") == "image_url" and isinstance(found.get("image_url"), str):
        found["image_url"] = {"url": found["image_url"]}
    return {key: without_nulls(value, INNER_KEYS) for key, value in found.items()}


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
        return tool
    return {"type": "function", **without_nulls(tool, {"type"}), "function": _function(tool["function"])}


def _function(function: Any) -> Any:
    return without_nulls(function, FUNCTION_KEYS)
