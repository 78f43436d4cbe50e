"""Builders of what the tests store: messages, calls, and the bodies that providers answer with."""

from __future__ import annotations

import base64
import random
import re
from typing import Any

MODEL = "gpt-5.4"
SIGNATURE = "-__-Pj9hYmM="  # base64 whose bytes the two alphabets spell differently


def a_message(text: str = "Hello", role: str = "user") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def a_call(call_id: str = "call_1", name: str = "look_up", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def an_output(call_id: str = "call_1", output: Any = "found") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def an_answer(*texts: str, id: str = "resp_1", calls: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """A body of Open Responses: a message for each text, then a call for each call id."""
    messages = [
        {
            "type": "message",
            "id": f"msg_{id}_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        for number, text in enumerate(texts)
    ]
    output = [*messages, *({**a_call(call_id), "id": f"fc_{call_id}", "status": "completed"} for call_id in calls)]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    found = {"id": id, "object": "response", "status": "completed", "model": MODEL, "output": output, "usage": usage}
    return found | fields


def a_stream(*texts: str, id: str = "resp_1", calls: tuple[str, ...] = (), **fields: Any) -> list[dict[str, Any]]:
    """The events of `an_answer` when it is streamed: a delta for each word, or for each half of a call's arguments."""
    body = an_answer(*texts, id=id, calls=calls, **fields)
    started = {"id": id, "object": "response", "status": "in_progress", "model": MODEL, "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    for place, item in enumerate(body["output"]):
        at = {"item_id": item["id"], "output_index": place}
        key, about = ("arguments", "function_call_arguments") if "call_id" in item else ("content", "output_text")
        events.append({"type": "response.output_item.added", **at, "item": {**item, key: type(item[key])()}})
        text = item["arguments"] if key == "arguments" else item["content"][0]["text"]
        pieces = re.findall(r"\S+\s*|\s+", text)
        events += ({"type": f"response.{about}.delta", **at, "content_index": 0, "delta": piece} for piece in pieces)
        events.append({"type": "response.output_item.done", **at, "item": item})
    return [*events, {"type": "response.completed", "response": body}]


def a_completion(text: str = "Hello", id: str = "chatcmpl-1") -> dict[str, Any]:
    """A body of Chat Completions."""
    return {
        "id": id,
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def a_gemini_answer(text: str = "Hello", prompt: int | None = 10, cached: int | None = None) -> dict[str, Any]:
    """A body of generateContent, and what its request used."""
    usage = {"promptTokenCount": prompt, "cachedContentTokenCount": cached, "candidatesTokenCount": 5}
    content = {"role": "model", "parts": [{"text": text, "thoughtSignature": SIGNATURE}]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP"}],
        "usageMetadata": {key: value for key, value in usage.items() if value is not None},
        "modelVersion": "gemini-2.5-flash",
    }


def an_error(message: str = "Slow down") -> dict[str, Any]:
    """A provider's error envelope."""
    return {"error": {"message": message, "type": "rate_limit_error", "code": "rate_limit_exceeded"}}


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that stand for a picture."""
    return random.Random(seed).randbytes(size)


def a_picture(content: bytes, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:{kind};base64,{base64.b64encode(content).decode()}"}


def texts_of(items: Any) -> list[str]:
    """What the messages among stored items say."""
    return [part.text for stored in items for part in getattr(stored.item, "content", ())]
