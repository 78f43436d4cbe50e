"""A judge of rendered requests: what today's services refuse, rule by rule.

Each rule gives the names of what a request breaks; an empty list means that the service would take it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Rule = Callable[[Json], Iterator[str]]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ROLES = {"user", "assistant", "system", "developer"}
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
ANSWERS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def refused(payload: Json, format_name: str) -> list[str]:
    """The rules that a payload breaks."""
    rules = {"open_responses": RESPONSES, "chat_completion": CHAT}[format_name]
    return [broken for rule in rules for broken in rule(payload)]


# What both APIs of OpenAI refuse


def names(payload: Json) -> Iterator[str]:
    tools = [tool.get("function", tool) for tool in payload.get("tools", []) if tool.get("type") == "function"]
    calls = [item for item in payload.get("input", []) if item.get("type") == "function_call"]
    calls += [call["function"] for call in _chat_calls(payload) if call["type"] == "function"]
    for thing in [*tools, *calls]:
        if not NAME.fullmatch(thing["name"]):
            yield f"openai.name: {thing['name']!r}"
    if len({tool["name"] for tool in tools}) < len(tools):
        yield "openai.name: two tools have one name"


def arguments(payload: Json) -> Iterator[str]:
    calls = [item for item in payload.get("input", []) if item.get("type") == "function_call"]
    calls += [call["function"] for call in _chat_calls(payload) if call["type"] == "function"]
    for call in calls:
        try:
            json.loads(call["arguments"], parse_constant=float.fromhex)
        except ValueError:
            yield f"openai.arguments-json: {call['arguments']!r}"


def data_urls(payload: Json) -> Iterator[str]:
    for part in _parts(payload):
        file = part.get("file", part)
        urls = {"image": part.get("image_url"), "file": file.get("file_data")}
        for kind, url in urls.items():
            text = url.get("url") if isinstance(url, dict) else url
            if isinstance(text, str) and (kind == "file" or text.startswith("data:")) and not _is_data_url(text, kind):
                yield f"openai.data-url: {text[:40]!r}"


def tool_choices(payload: Json) -> Iterator[str]:
    choice = payload.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        offered = {tool.get("function", tool).get("name") for tool in payload.get("tools", [])}
        if choice.get("function", choice).get("name") not in offered:
            yield "openai.tool-choice-target"


def ranges(payload: Json) -> Iterator[str]:
    limits = {"temperature": (0, 2), "top_p": (0, 1), "top_logprobs": (0, 20)}
    limits |= dict.fromkeys(("presence_penalty", "frequency_penalty"), (-2, 2))
    for key, (least, most) in limits.items():
        if key in payload and not least <= payload[key] <= most:
            yield f"openai.range: {key}"


def metadata(payload: Json) -> Iterator[str]:
    pairs = payload.get("metadata") or {}
    if len(pairs) > 16 or any(len(key) > 64 or len(value) > 512 for key, value in pairs.items()):
        yield "openai.metadata-limits"


# Responses


def calls_are_answered(payload: Json) -> Iterator[str]:
    for kind, answer in ANSWERS.items():
        answered = {item.get("call_id") for item in payload.get("input", []) if item["type"] == answer}
        for item in payload.get("input", []):
            if item["type"] == kind and item["call_id"] not in answered:
                yield f"responses.call-answers: {item['call_id']}"


def outputs_have_calls(payload: Json) -> Iterator[str]:
    if payload.get("previous_response_id") or payload.get("conversation"):
        return
    called: set[tuple[str, str]] = set()
    for item in payload.get("input", []):
        if item["type"] in ANSWERS:
            called.add((ANSWERS[item["type"]], item["call_id"]))
        elif item["type"] == "item_reference":
            return
        elif item["type"] in ANSWERS.values() and (item["type"], item["call_id"]) not in called:
            yield f"responses.output-orphan: {item['call_id']}"


def ids_come_once(payload: Json) -> Iterator[str]:
    items = payload.get("input", [])
    ids = [item["id"] for item in items if item.get("id") is not None]
    calls = [item["call_id"] for item in items if item["type"] in ANSWERS]
    outputs = [item["call_id"] for item in items if item["type"] in ANSWERS.values()]
    for rule, found in {"duplicate-id": ids, "duplicate-call-id": calls, "duplicate-output": outputs}.items():
        if len(set(found)) < len(found):
            yield f"responses.{rule}"
    for item in items:
        if not str(item.get("id") or PREFIXES.get(item["type"], "")).startswith(PREFIXES.get(item["type"], "")):
            yield f"responses.id-prefix: {item['id']}"
        if "call_id" in item and not 1 <= len(item["call_id"]) <= 64:
            yield "responses.call-id-length"


def reasoning_is_followed(payload: Json) -> Iterator[str]:
    items = payload.get("input", [])
    for item, follower in zip(items, [*items[1:], {}], strict=False):
        kind = follower.get("type")
        is_led_to = (
            kind in ANSWERS or kind == "reasoning" or follower.get("role") == "assistant" or kind == "web_search_call"
        )
        if item["type"] == "reasoning" and not is_led_to:
            yield f"responses.reasoning-follow: {kind}"


def parts_fit_roles(payload: Json) -> Iterator[str]:
    for item in payload.get("input", []):
        if item["type"] == "message":
            if item["role"] not in ROLES:
                yield f"type.bad-value: role {item['role']}"
            allowed = ("output_text", "refusal") if item["role"] == "assistant" else ("input_",)
            for part in item["content"]:
                if not part["type"].startswith(allowed):
                    yield f"responses.role-content: {part['type']} for {item['role']}"


def media_have_one_source(payload: Json) -> Iterator[str]:
    for part in _parts(payload):
        if part.get("type") == "input_image" and ("image_url" in part) == ("file_id" in part):
            yield "responses.one-source: image"
        if part.get("type") == "input_file" and not {"file_id", "file_url", "file_data"} & part.keys():
            yield "responses.one-source: file"
        if part.get("type") == "input_file" and {"file_url", "file_data"} <= part.keys():
            yield "responses.one-source: file with both"


def wishes_for_compaction_come_last(payload: Json) -> Iterator[str]:
    for item in payload.get("input", [])[:-1]:
        if item["type"] == "compaction_trigger":
            yield "responses.compaction-trigger"


def settings_are_within_limits(payload: Json) -> Iterator[str]:
    metadata = payload.get("metadata") or {}
    if len(metadata) > 16 or any(len(key) > 64 or len(value) > 512 for key, value in metadata.items()):
        yield "openai.metadata-limits"
    if "stream_options" in payload and payload.get("stream") is not True:
        yield "openai.stream-options"
    if isinstance(payload.get("stop"), list) and len(payload["stop"]) > 4:
        yield "chat.stop-count"
    name = (payload.get("text") or {}).get("format", {}).get("name")
    if name is not None and not NAME.fullmatch(name):
        yield f"openai.name: {name!r}"


def requests_are_whole(payload: Json) -> Iterator[str]:
    if "model" not in payload:
        yield "responses.needs-model"
    if not payload.get("input") and not payload.get("previous_response_id") and not payload.get("conversation"):
        yield "responses.nothing-to-do"
    if payload.get("conversation") and payload.get("previous_response_id"):
        yield "responses.conversation-or-previous"
    if payload.get("background") and payload.get("store") is False:
        yield "responses.background-store"
    if payload.get("max_output_tokens", 16) < 16:
        yield "responses.min-output-tokens"
    if {"budget_tokens", "display", "type"} & set(payload.get("reasoning", {})):
        yield "type.unknown-key: reasoning"


# Chat Completions


def calls_are_answered_at_once(payload: Json) -> Iterator[str]:
    waiting: list[str] = []
    for message in payload["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"chat.tool-orphan: {message['tool_call_id']}"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"chat.tool-answers: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        if len(set(waiting)) < len(waiting):
            yield "chat.tool-answers: an id comes twice"
    if waiting:
        yield f"chat.tool-answers: {waiting}"


def nothing_is_empty(payload: Json) -> Iterator[str]:
    lists = {"messages": payload["messages"], "tools": payload.get("tools")}
    for index, message in enumerate(payload["messages"]):
        lists |= {f"content[{index}]": message.get("content"), f"tool_calls[{index}]": message.get("tool_calls")}
        if message["role"] not in ROLES | {"tool"}:
            yield f"type.unknown-variant: {message['role']}"
        has_more = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        if message.get("content") is None and not (message["role"] == "assistant" and has_more):
            yield f"chat.assistant-content: messages[{index}]"
    for name, found in lists.items():
        if found == []:
            yield f"chat.empty-array: {name}"


def settings_fit(payload: Json) -> Iterator[str]:
    if "tools" not in payload and {"tool_choice", "parallel_tool_calls"} & payload.keys():
        yield "chat.needs-tools"
    if {"max_tokens", "max_completion_tokens"} <= payload.keys():
        yield "chat.two-max-tokens"
    if "top_logprobs" in payload and payload.get("logprobs") is not True:
        yield "chat.logprobs"
    if "stream_options" in payload and payload.get("stream") is not True:
        yield "openai.stream-options"
    if isinstance(payload.get("stop"), list) and len(payload["stop"]) > 4:
        yield "chat.stop-count"
    if "audio" in payload.get("modalities", []) and "audio" not in payload:
        yield "chat.audio"


def json_is_asked_for_by_its_name(payload: Json) -> Iterator[str]:
    if (payload.get("response_format") or {}).get("type") == "json_object":
        contents = [message.get("content") or "" for message in payload["messages"]]
        texts = [part.get("text", "") for one in contents if isinstance(one, list) for part in one]
        if not any("json" in text.lower() for text in [*texts, *(one for one in contents if isinstance(one, str))]):
            yield "openai.json-word"


def json_mode_is_in_the_input(payload: Json) -> Iterator[str]:
    form = (payload.get("text") or {}).get("format") or {}
    if form.get("type") == "json_object" and "json" not in json.dumps(payload.get("input", "")).lower():
        yield "openai.json-word"


def files_are_whole(payload: Json) -> Iterator[str]:
    for part in _parts(payload):
        file = part.get("file", {})
        if part.get("type") == "file" and not (file.get("file_id") or (file.get("file_data") and file.get("filename"))):
            yield "chat.file-part"


def _chat_calls(payload: Json) -> list[Json]:
    return [call for message in payload.get("messages", []) for call in message.get("tool_calls", [])]


def _parts(payload: Json) -> Iterator[Json]:
    for thing in [*payload.get("input", []), *payload.get("messages", [])]:
        for key in ("content", "output"):
            if isinstance(thing.get(key), list) and thing.get("type") != "reasoning":
                yield from thing[key]


def _is_data_url(url: str, kind: str) -> bool:
    found = re.fullmatch(r"data:([a-z]+)/[^;,]+(;[^,]*)?;base64,(.+)", url, re.DOTALL)
    if found is None or (kind == "file" and found[1] in ("audio", "video", "image")):
        return False
    try:
        return bool(base64.b64decode(found[3], validate=True))
    except binascii.Error:
        return False


_BOTH: list[Rule] = [names, arguments, data_urls, tool_choices, ranges, metadata]
RESPONSES: list[Rule] = [
    *_BOTH,
    calls_are_answered,
    outputs_have_calls,
    ids_come_once,
    reasoning_is_followed,
    parts_fit_roles,
    media_have_one_source,
    wishes_for_compaction_come_last,
    settings_are_within_limits,
    requests_are_whole,
    json_mode_is_in_the_input,
]
CHAT: list[Rule] = [
    *_BOTH,
    calls_are_answered_at_once,
    nothing_is_empty,
    settings_fit,
    json_is_asked_for_by_its_name,
    files_are_whole,
]
