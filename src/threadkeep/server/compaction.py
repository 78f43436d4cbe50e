"""Compaction over providers that have none of their own: the model sums up what was said, and clients keep that.

The summary is the `encrypted_content` of a `compaction` item, which stands in later requests for what was before it,
over any upstream. Calls that wait for an output are in there, too, so that it can follow. Source: OpenAI's API
reference, "Responses", compact; the requests of Codex 0.171.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import NormalizedUsage, Usage
from threadkeep.formats.shared.pairing import ALL_KINDS
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
_OF_MAKER: Final = frozenset({"id", "native", "origin", "spelling", "thought_signature"})
_SAID: Final = "Summary of the conversation until here:\n\n"


def is_asked(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for a compaction: by its last item."""
    items = body.get("input")
    return isinstance(items, list) and bool(items) and _kind(items[-1]) == TRIGGER["type"]


def new_calls(items: Sequence[JsonObject], known: Sequence[JsonObject]) -> list[JsonObject]:
    """Return stored calls that are not among the known items, without what only their maker can read."""
    ids = {item.get("call_id") for item in known}
    return [
        {key: value for key, value in item.items() if key not in _OF_MAKER}
        for item in items
        if item["type"] != "reasoning" and item["call_id"] not in ids
    ]


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
    return [one for index, item in enumerate(items) for one in _read(item, f"input[{index}].encrypted_content")]


def _read(item: Any, param: str) -> list[Any]:
    """An item as it is; of a compaction by this server, the summary, and the calls that still waited."""
    text = item.get("encrypted_content") if _kind(item) == "compaction" else None
    if not isinstance(text, str) or not text.startswith(PREFIX):
        return [item]
    _, [summary, *waiting] = opened(decoded(text), param)
    return [{"type": "message", "role": "user", "content": f"{_SAID}{summary.get('text')}"}, *waiting]


def waiting_calls(items: Sequence[Any]) -> list[JsonObject]:
    """Return the calls that wait for an output, and the reasoning that led to them."""
    answered = {item.get("call_id") for item in items if _kind(item) in ALL_KINDS.outputs}
    waiting: list[JsonObject] = []
    thoughts: list[JsonObject] = []
    for item in items:
        is_call = _kind(item) in ALL_KINDS.calls
        if _kind(item) == "reasoning":
            thoughts.append(item)
        elif is_call and item.get("call_id") not in (None, *answered):
            waiting += [*thoughts, item]
        if _kind(item) != "reasoning" and (not is_call or (waiting and waiting[-1] is item)):
            thoughts = []
    return waiting


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def compacted(response: JsonObject, waiting: Sequence[JsonObject] | None) -> JsonObject:
    """Return a response with a compaction, of these calls and the summary that the model wrote; with None, as it is."""
    if waiting is None or response["status"] != "completed":
        return response
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    text = "".join(part["text"] for part in parts if part["type"] == "output_text")
    id_ = f"cmp_{str(response['id']).partition('_')[2]}"
    item = {
        "id": id_,
        "type": "compaction",
        "encrypted_content": seal(_SUMMARY, [{"type": _SUMMARY, "text": text}, *waiting]),
    }
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
