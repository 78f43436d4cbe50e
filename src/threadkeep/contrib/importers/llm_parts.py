"""What both generations of llm's tables share: attachments, fragments, calls, usage."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final

from threadkeep.contrib.importers.databases import Database, json_of
from threadkeep.contrib.importers.records import Answer
from threadkeep.contrib.importers.shapes import object_of, text_of
from threadkeep.domain.jsontext import JsonObject

Say = Callable[[str], None]  # tells why something is not imported

ATTACHMENT: Final = ("id", "type", "path", "url", "content")
# keys of `token_details`, which plugins fill from what providers report, for what was cached and what was reasoning
CACHED: Final = ("cached_tokens", "cache_read_input_tokens", "cachedContentTokenCount")
REASONED: Final = ("reasoning_tokens", "thoughtsTokenCount")
DETAILS: Final = (
    "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details",
)  # fmt: skip


def attachment_part(database: Database, id_: Any, say: Say) -> JsonObject | None:
    """A picture or file by its id: its bytes, or where it is on the web; None where it is neither."""
    row = next(iter(database.rows("attachments", ATTACHMENT, (), id=id_)), None)
    if row is None:
        say("an attachment is missing")
        return None
    kind, content, url = str(row["type"] or "application/octet-stream"), row["content"], row["url"]
    if isinstance(content, bytes) and content:
        url = f"data:{kind};base64,{b64encode(content).decode()}"
    if not isinstance(url, str) or not url:
        say("an attachment is a file on the computer of the user, and not in the database")
        return None
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    return {"type": "input_file", "file_data" if url.startswith("data:") else "file_url": url}


def fragment_text(database: Database, id_: Any) -> str:
    """The text of a fragment."""
    row = next(iter(database.rows("fragments", ("content",), (), id=id_)), None)
    return str(row["content"]) if row is not None and row["content"] is not None else ""


def message(role: str, parts: Iterable[JsonObject]) -> list[JsonObject]:
    """A message of these parts; none, if there are none."""
    found = list(parts)
    return [{"type": "message", "role": role, "content": found}] if found else []


def text_part(role: str, text: str) -> JsonObject:
    """A text as that role says it."""
    return {"type": "output_text" if role == "assistant" else "input_text", "text": text}


def reasoning(text: str) -> JsonObject:
    """What a model thought."""
    return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}


def call(name: Any, arguments: Any, call_id: Any) -> JsonObject:
    """A call of a tool; arguments are a text with JSON, or what it says."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"type": "function_call", "call_id": str(call_id or name), "name": str(name), "arguments": text}


def output(name: Any, said: Any, call_id: Any) -> JsonObject:
    """What a tool returned."""
    return {"type": "function_call_output", "call_id": str(call_id or name), "output": str(said or "")}


def answer_of(row: JsonObject) -> Answer:
    """The response of a turn, or of an older response: model, usage and duration."""
    details = json_of(row["token_details"])
    counts = {"input_tokens": row["input_tokens"], "output_tokens": row["output_tokens"]}
    usage = None
    if any(count is not None for count in counts.values()):
        usage = counts | {
            "input_tokens_details": {"cached_tokens": _detail(details, CACHED)},
            "output_tokens_details": {"reasoning_tokens": _detail(details, REASONED)},
        }
    duration = row["duration_ms"]
    return Answer(
        id=str(row["id"]),
        model=text_of(row, "resolved_model") or text_of(row, "model"),
        usage=usage,
        latency_ms=duration if isinstance(duration, int | float) and duration >= 0 else None,
    )


def _detail(details: Any, names: tuple[str, ...]) -> Any:
    places = [details, *(object_of(details, place) for place in DETAILS)]
    return next((place[name] for place in places if isinstance(place, dict) for name in names if name in place), None)
