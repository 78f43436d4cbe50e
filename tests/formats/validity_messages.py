"""A judge of requests of the Messages API: what the types of its SDK and today's service refuse, as in `validity`.

Not judged: rules on prefill, on what comes last, and on single models.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from typing import Any

from anthropic.types.beta import BetaMessageParam, BetaToolUnionParam
from pydantic import TypeAdapter, ValidationError

from tests.formats.sdk_types import forced

Json = dict[str, Any]

NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
CALL_ID = re.compile(r"[A-Za-z0-9_-]+")
USERS_ONLY = {"tool_result", "image", "document", "search_result"}
ANSWERS_ONLY = {"tool_use", "thinking", "redacted_thinking", "server_tool_use"}
# key of a request -> the type of each of its elements
TYPES: dict[str, TypeAdapter[Any]] = {
    "messages": TypeAdapter(BetaMessageParam),
    "tools": TypeAdapter(BetaToolUnionParam),
}


def refused(payload: Json) -> list[str]:
    """The rules that a payload breaks."""
    return [broken for rule in RULES for broken in rule(payload)]


def fits_the_types(payload: Json) -> Iterator[str]:
    for key, adapter in TYPES.items():
        for element in payload.get(key, []):
            try:
                forced(adapter.validate_python(element))
            except ValidationError as error:
                yield f"vendor.validator: {key}: {error}"


def turns(payload: Json) -> list[tuple[str, list[Json]]]:
    """Roles and blocks, neighbours of one role joined as the service joins them."""
    messages = [(message["role"], blocks(message["content"])) for message in payload["messages"]]
    groups = groupby(messages, key=lambda message: message[0])
    return [(role, list(chain.from_iterable(found for _, found in group))) for role, group in groups]


def blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def all_blocks(payload: Json) -> Iterator[Json]:
    for message in payload["messages"]:
        for block in blocks(message["content"]):
            yield block
            if block["type"] == "tool_result":
                yield from blocks(block.get("content") or [])


def the_user_begins(payload: Json) -> Iterator[str]:
    first = next((message for message in payload["messages"] if message["role"] != "system"), None)
    if first is not None and blocks(first["content"])[:1] and blocks(first["content"])[0]["type"] == "compaction":
        return  # which stands for the messages before it
    if first is None or first["role"] != "user":
        yield "messages.first-user"


def nothing_is_blank(payload: Json) -> Iterator[str]:
    for index, message in enumerate(payload["messages"]):
        found = blocks(message["content"])
        is_last_answer = index == len(payload["messages"]) - 1 and message["role"] == "assistant"
        if not found and not is_last_answer:
            yield f"messages.empty-content: messages[{index}]"
        if found and all(block["type"] == "text" and not block["text"].strip() for block in found):
            yield f"messages.empty-text: messages[{index}] is blank"
        last = found[-1] if found else {}
        if is_last_answer and last.get("type") == "text" and last["text"] != last["text"].rstrip():
            yield "messages.trailing-space"
    system = payload.get("system", [])
    for block in [*all_blocks(payload), *([] if isinstance(system, str) else system)]:
        if block["type"] == "text" and not block["text"]:
            yield "messages.empty-text"


def results_follow_calls(payload: Json) -> Iterator[str]:
    found = [turn for turn in turns(payload) if turn[0] != "system"]
    for (_, before), (role, now) in pairwise([("user", []), *found, ("user", [])]):
        waiting = [block["id"] for block in before if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in now if block["type"] == "tool_result"] if role == "user" else []
        if missing := set(waiting) - set(results):
            yield f"messages.tool-result-missing: {missing}"
        if orphans := set(results) - set(waiting):
            yield f"messages.tool-result-orphan: {orphans}"
        if len(set(results)) < len(results):
            yield f"messages.tool-result-twice: {results}"
        if len(set(waiting)) < len(waiting) or not all(map(CALL_ID.fullmatch, waiting)):
            yield f"messages.tool-use-id: {waiting}"
        if role == "user" and any(block["type"] == "tool_result" for block in now[len(results) :]):
            yield "messages.tool-result-place"


def blocks_fit_roles(payload: Json) -> Iterator[str]:
    for message in payload["messages"]:
        refused = {"user": ANSWERS_ONLY, "assistant": USERS_ONLY, "system": ANSWERS_ONLY | USERS_ONLY}
        if message["role"] not in refused:
            yield f"type.bad-value: role {message['role']}"
        for block in blocks(message["content"]):
            if block["type"] in refused.get(message["role"], ()):
                yield f"messages.block-role: {block['type']} in a {message['role']} message"
            if block["type"] == "tool_use" and not isinstance(block["input"], dict):
                yield "type.wrong-type: input"


def tools_are_whole(payload: Json) -> Iterator[str]:
    tools = payload.get("tools", [])
    names = [tool["name"] for tool in tools if "name" in tool]
    if len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
        yield f"messages.tool-name: {names}"
    for tool in tools:
        if tool.get("type", "custom") == "custom" and tool.get("input_schema", {}).get("type") != "object":
            yield f"messages.input-schema: {tool}"
    choice = payload.get("tool_choice")
    if choice is not None and not tools:
        yield "messages.tools-missing"
    if choice is not None and choice["type"] == "tool" and choice["name"] not in names:
        yield "messages.tool-choice-target"


def settings_fit(payload: Json) -> Iterator[str]:
    thinking = payload.get("thinking") or {}
    if not isinstance(payload.get("max_tokens"), int) or payload["max_tokens"] < 0:
        yield "type.missing-key: max_tokens"
    if thinking.get("type") == "enabled":
        if not 1024 <= thinking["budget_tokens"] < payload["max_tokens"]:
            yield "messages.budget"
        if payload.get("tool_choice", {}).get("type") in ("any", "tool"):
            yield "messages.thinking-forced-tool"
    if thinking.get("type") in ("enabled", "adaptive") and (
        payload.get("temperature", 1) != 1 or "top_k" in payload or payload.get("top_p", 1) < 0.95
    ):
        yield "messages.thinking-sampling"
    for name in ("temperature", "top_p"):
        if not 0 <= payload.get(name, 0) <= 1:
            yield f"messages.range: {name}"
    if not all(stop.strip() for stop in payload.get("stop_sequences", [])):
        yield "messages.stop-sequence"
    if len(payload.get("metadata", {}).get("user_id", "")) > 256:
        yield "messages.user-id"


def caches_are_in_order(payload: Json) -> Iterator[str]:
    system = payload.get("system", [])
    things = [*payload.get("tools", []), *([] if isinstance(system, str) else system), *all_blocks(payload), payload]
    marks = [thing["cache_control"] for thing in things if thing.get("cache_control")]
    if len(marks) > 4:
        yield f"messages.cache-count: {len(marks)}"
    if any(mark.get("ttl") != "1h" and later.get("ttl") == "1h" for mark, later in pairwise(marks)):
        yield "messages.cache-order"


def documents_are_whole(payload: Json) -> Iterator[str]:
    documents = [block for block in all_blocks(payload) if block["type"] == "document"]
    if len({(document.get("citations") or {}).get("enabled", False) for document in documents}) > 1:
        yield "messages.citations-all"
    for block in all_blocks(payload):
        source = block.get("source")
        if isinstance(source, dict) and source["type"] == "base64" and not is_base64(source["data"]):
            yield "messages.base64"


def is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False


RULES = [
    fits_the_types,
    the_user_begins,
    nothing_is_blank,
    results_follow_calls,
    blocks_fit_roles,
    tools_are_whole,
    settings_fit,
    caches_are_in_order,
    documents_are_whole,
]
