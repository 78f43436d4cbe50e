"""The shapes of the cases of the smaller reference systems, and what they compare with what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.genai import types

from threadkeep import Response

Json = dict[str, Any]

# keys of a message that go to the provider; all others are the application's own
WIRE_KEYS = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal"}
ENDINGS = {
    # words of Anthropic and Bedrock -> words of Chat Completions; others stay
    "messages": {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"},
    "converse": {
        "end_turn": "stop", "pause_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls",
        "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter",
        "compaction": "other",
    },
}  # fmt: skip


# Messages of Chat Completions, as the cases write them


def wire_message(message: Json) -> Json:
    """A message as Chat Completions sends it; calls are nested, and arguments are text."""
    found = {key: value for key, value in message.items() if key in WIRE_KEYS}
    if found.get("tool_calls"):
        found["tool_calls"] = [nested_call(call) for call in found["tool_calls"]]
    return found


def nested_call(call: Json) -> Json:
    if "function" in call:
        return call
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": text}}


def as_written(messages: Sequence[Json], given: Sequence[Json]) -> list[Json]:
    """Messages with their calls as the case writes them: flat, with arguments as objects or as text."""
    calls = {call.get("id"): call for message in given for call in message.get("tool_calls") or []}
    return [
        {**message, "tool_calls": [flat_call(call, calls.get(call["id"], call)) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def flat_call(call: Json, given: Json) -> Json:
    if "function" in given:
        return call
    arguments = call["function"]["arguments"]
    is_object = isinstance(given.get("arguments"), dict)
    found = {"id": call["id"], "name": call["function"]["name"]}
    return {**found, "arguments": json.loads(arguments) if is_object else arguments}


def parts_in(chunk: Any) -> list[Any]:
    match chunk:
        case {"candidates": [{"content": {"parts": [*parts]}}, *_]}:
            return parts
    return []


def content_of(turn: Json) -> Json:
    """A turn as a content of Gemini."""
    match turn["type"]:
        case "user_task":
            return {"role": "user", "parts": [{"text": turn["instruction"]}]}
        case "function_calling":
            return {"role": "model", "parts": [{"functionCall": turn["call"]}]}
        case "tool_response":
            return {
                "role": "user",
                "parts": [{"functionResponse": {"name": turn["name"], "response": turn["response"]}}],
            }
    return {"role": "model", "parts": [{"text": turn["content"]}]}


def context_of(text: str) -> Json | None:
    """The dynamic context that a text is the JSON of; a blank one is none."""
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"text": text}


def as_given(content: Json, ours: str, given: str) -> Json:
    """A content with the dynamic context as the case wrote it."""
    return {"role": "user", "parts": [{"text": given}]} if content["parts"] == [{"text": ours}] else content


def checked(content: Json) -> Json:
    """A content that Google's own types take."""
    types.Content.model_validate(content)
    return content


def texts_of(message: Json) -> list[str]:
    """The texts of a message of Chat Completions."""
    content = message.get("content")
    parts: list[Json] = content if isinstance(content, list) else [{"text": content}]
    return [text for part in parts if isinstance(text := part.get("text"), str)]


def position_of(conversation: Any) -> int:
    """The position of the last item of a branch."""
    found: int = conversation.items(order="desc", limit=1).items[0].position
    return found


def text_of(items: Sequence[Any]) -> str | None:
    texts = [part.text for one in items if one.item.type == "message" for part in one.item.content]
    return "".join(texts) if texts else None


def flat_item(item: Any) -> Json:
    return {"id": item.call_id, "type": "function", "name": item.name, "arguments": item.arguments}


def thoughts_of(items: Sequence[Any]) -> str:
    found = [one.item.to_object() for one in items if one.item.type == "reasoning"]
    return "".join(part.get("text", "") for item in found for part in item.get("content") or [])


def cache_figures(response: Response, raw: Json) -> Json:
    """What came from and went into a cache, where the answer says so; a zero in the details says nothing."""
    figures = response.usage.normalized if response.usage else None
    known = {
        "cache_read_input_tokens": figures and figures.cached_tokens,
        "cache_creation_input_tokens": figures and figures.cache_write_tokens,
    }
    return {name: value for name, value in known.items() if value or raw.get(name) is not None}


# Matchers


def matches(found: Any, expected: Any) -> bool:
    """Whether a value is the expected one; `$contains` stands for texts that contain something."""
    if isinstance(expected, dict) and expected.keys() <= {"$contains", "$contains_all"} and expected:
        wanted = [*([expected["$contains"]] if "$contains" in expected else []), *expected.get("$contains_all", ())]
        return isinstance(found, str) and all(text in found for text in wanted)
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(matches(found[key], one) for key, one in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(matches, found, expected))
    return bool(found == expected) and type(found) is type(expected)


def differences(found: Json, expected: Json) -> Iterator[str]:
    """What a result has otherwise than the case says."""
    for name, value in expected.items():
        if name.endswith("_includes"):
            whole = found[name.removesuffix("_includes")]
            yield from (f"{key}: {whole.get(key)}" for key, one in value.items() if not matches(whole.get(key), one))
        elif name.endswith("_lacks"):
            whole = found[name.removesuffix("_lacks")]
            yield from (f"{key} is there" for key in value if key in whole)
        elif not matches(found.get(name), value):
            yield f"{name}: {found.get(name)}"
