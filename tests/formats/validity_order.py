"""A judge of what stands where in a request, with rules of single models: written apart from the table of the code.

What is known to be refused, and can only be sent as it is, may be broken where it is reported: see `EXCUSES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from threadkeep.domain.rendering import Rendered

Json = dict[str, Any]

NO_PREFILL = re.compile(r"claude-(opus|sonnet|haiku)-(4[-.][6-9]|[5-9])|claude-(fable|mythos)")
# servers and models whose templates take one system message, the first
LEADING = re.compile(r"qwen/?3\.[5-8]|qwen3\.[5-8]|gemma-3|sonar|mistral|minimax", re.IGNORECASE)
ALTERNATING = re.compile(r"gemma|sonar|mistral|deepseek-r1", re.IGNORECASE)
USER_FIRST = re.compile(r"gemma|sonar|mistral", re.IGNORECASE)
# rule -> the code of a report that excuses it
EXCUSES = {"gemini.last-role": "last_turn", "messages.last-thinking": "refused"}


def unreported(rendered: Rendered, format_name: str, model: str, dialect: str | None = None) -> list[str]:
    """The rules that a request breaks without a report that says so."""
    codes = {report.code for report in [*rendered.losses, *rendered.repairs]}
    judge = {"chat_completion": chat, "messages": messages, "converse": converse, "gemini": gemini}[format_name]
    found = judge(rendered.payload, model, dialect)
    return [rule for rule in found if EXCUSES.get(rule.partition(":")[0]) not in codes]


def chat(payload: Json, model: str, dialect: str | None) -> Iterator[str]:
    found = payload["messages"]
    roles = [message["role"] for message in found]
    for message in found:
        kinds = [part.get("type") for part in _parts(message["content"])]
        if message["role"] == "tool" and set(kinds) - {"text"}:
            yield f"chat.tool-media: {kinds}"
    if LEADING.search(model) or dialect in ("compatible", "minimax", "mistral"):
        if "developer" in roles or "system" in roles[1:]:
            yield f"chat.system-place: {roles}"
    elif dialect in ("deepseek", "moonshot", "xiaomi", "zai") and "developer" in roles:
        yield f"chat.developer: {roles}"
    yield from _turns(found, model)
    if roles[-1] == "assistant" and _is_last_refused(found[-1], model, dialect):
        yield "chat.last-role"
    yield from _chat_texts(found, model, dialect)


def _turns(found: list[Json], model: str) -> Iterator[str]:
    turns = [message["role"] for message in found if message["role"] not in ("system", "developer")]
    if ALTERNATING.search(model) and any(one == other != "tool" for one, other in pairwise(turns)):
        yield f"chat.alternate: {turns}"
    if USER_FIRST.search(model) and turns[:1] != ["user"]:
        yield f"chat.first-user: {turns}"
    if "mistral" in model and ("tool", "user") in pairwise(turns):
        yield f"chat.user-after-tool: {turns}"


def _is_last_refused(last: Json, model: str, dialect: str | None) -> bool:
    if "mistral" in model:
        return dialect != "mistral" or last.get("prefix") is not True
    return "sonar" in model or NO_PREFILL.search(model.replace(".", "-")) is not None


def _chat_texts(found: list[Json], model: str, dialect: str | None) -> Iterator[str]:
    for message in found:
        texts = [part["text"] for part in _parts(message["content"]) if isinstance(part.get("text"), str)]
        has_calls = bool(message.get("tool_calls"))
        needs_content = message["role"] == "assistant" and (dialect in ("mistral", "moonshot") or "mistral" in model)
        if needs_content and not has_calls and not any(texts):
            yield "chat.assistant-content"
        if "claude" in model and message["role"] != "tool" and texts and not any(map(str.strip, texts)):
            yield f"chat.blank-text: {message}"


def messages(payload: Json, model: str, _dialect: str | None) -> Iterator[str]:
    for message in payload["messages"]:
        texts = [part["text"] for part in _parts(message["content"]) if part["type"] == "text"]
        if texts and not any(map(str.strip, texts)):
            yield f"messages.blank-text: {message}"
    last = [message for message in payload["messages"] if message["role"] != "system"][-1]
    if last["role"] != "assistant":
        return
    kind = (_parts(last["content"]) or [{"type": ""}])[-1]["type"]
    if NO_PREFILL.search(model) and not kind.endswith(("_tool_result", "_tool_use")):
        yield "messages.prefill-model"
    if kind in ("thinking", "redacted_thinking"):
        yield "messages.last-thinking"


def converse(payload: Json, model: str, _dialect: str | None) -> Iterator[str]:
    blocks = [block for message in payload["messages"] for block in message["content"]]
    inner = [one for block in blocks for one in block.get("toolResult", {}).get("content", [])]
    for block in [*blocks, *inner, *payload.get("system", [])]:
        if isinstance(block.get("text"), str) and not block["text"].strip():
            yield f"converse.blank-text: {block}"
    if any("toolResult" in block and not block["toolResult"]["content"] for block in blocks):
        yield "converse.empty-result"
    is_refused = NO_PREFILL.search(model) or ".llama" in model
    if is_refused and [message["role"] for message in payload["messages"] if message["role"] != "system"][-1] != "user":
        yield "converse.last-role"


def gemini(payload: Json, _model: str, _dialect: str | None) -> Iterator[str]:
    if payload["contents"][-1].get("role") == "model":
        yield "gemini.last-role"


def _parts(content: Any) -> list[Json]:
    if isinstance(content, list):
        return [part for part in content if isinstance(part, dict)]
    return [] if content is None else [{"type": "text", "text": content}]
