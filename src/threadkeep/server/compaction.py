"""Compaction over providers that have none of their own: the model sums up what was said, and clients keep that.

The summary is the `encrypted_content` of a `compaction` item, which stands in later requests for what was before it,
over any upstream. Source: OpenAI's API reference, "Responses", compact; the requests of Codex 0.171.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import NormalizedUsage, Usage
from threadkeep.server.objects import usage_object
from threadkeep.server.sealed import PREFIX, decoded, opened, seal

TRIGGER: Final[JsonObject] = {"type": "compaction_trigger"}
_SUMMARY: Final = "summary"  # who reads it: no provider, but this server
_ASKED: Final = """\
The context is nearly full: this conversation goes on without what was said so far, but with a summary by you.
Say what the user asked for, in their words where these matter; what was decided, done, changed and found out, with the
names of files, functions, commands and values; what failed and why; and what is to be done next, in order.
Answer with the summary alone, and call no tools."""
_NO_USAGE: Final = Usage(normalized=NormalizedUsage(output_tokens=0))  # where a provider tells none
_SAID: Final = "Summary of the conversation until here:\n\n"


def is_asked(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for a compaction: by its last item."""
    items = body.get("input")
    return isinstance(items, list) and bool(items) and _kind(items[-1]) == TRIGGER["type"]


def asking_for_summary(body: JsonObject) -> JsonObject:
    """Return a request for a compaction as one for a summary."""
    message = {"type": "message", "role": "user", "content": _ASKED}
    choice = {"tool_choice": "none"} if body.get("tools") else {}
    return {**body, **choice, "input": [*body["input"][:-1], message]}


def with_summaries(items: Any) -> Any:
    """Return the items of a request with the summaries of compactions that this server gave out.

    Raises:
        Problem: one was changed since.
    """
    if not isinstance(items, list):
        return items
    return [_read(item, f"input[{index}].encrypted_content") for index, item in enumerate(items)]


def _read(item: Any, param: str) -> Any:
    text = item.get("encrypted_content") if _kind(item) == "compaction" else None
    if not isinstance(text, str) or not text.startswith(PREFIX):
        return item
    _, [summary, *_] = opened(decoded(text), param)
    return {"type": "message", "role": "user", "content": f"{_SAID}{summary.get('text')}"}


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def compacted(response: JsonObject) -> JsonObject:
    """Return a response whose output is a compaction, in place of the summary that the model wrote."""
    if response["status"] != "completed":
        return response
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    text = "".join(part["text"] for part in parts if part["type"] == "output_text")
    id_ = f"cmp_{str(response['id']).partition('_')[2]}"
    item = {"id": id_, "type": "compaction", "encrypted_content": seal(_SUMMARY, [{"type": _SUMMARY, "text": text}])}
    return {**response, "output": [item]}


def compaction_object(response: JsonObject, said: Sequence[Any]) -> JsonObject:
    """Return what `POST /responses/compact` answers: the messages of the user, and the compaction."""
    kept = [_message(item, index) for index, item in enumerate(said) if _is_of_user(item)]
    compactions = [item for item in response["output"] if item["type"] == "compaction"]
    return {
        "id": response["id"], "object": "response.compaction", "created_at": response["created_at"],
        "output": [*kept, *compactions], "usage": response["usage"] or usage_object(_NO_USAGE),
    }  # fmt: skip


def _is_of_user(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user" and bool(item.get("content"))


def _message(item: JsonObject, index: int) -> JsonObject:
    """A message with all keys that clients require."""
    content = item["content"]
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    id_ = item.get("id") or f"msg_{index}"
    return {"id": id_, "type": "message", "role": "user", "status": "completed", "content": parts}
