"""A provider on a port of this machine: it answers each call with what it was told to, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from tests.server.scripts import script
from tests.server.servers import running
from tests.waiting import wait_until

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8"}


@dataclass
class Reply:
    """An answer: its chunks are sent one by one."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    breaks: bool = False  # off, before its end
    pause: float = 0.0  # before each chunk
    hold_after: int | None = None  # chunks, until it is released
    may_go_on: Callable[[], bool] | None = None  # what is waited for before each chunk


@dataclass
class Call:
    """What the provider was asked."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)


class Provider:
    """An ASGI application with a list of replies."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.calls: list[Call] = []
        self.release, self.was_left = Event(), Event()

    def says(self, *replies: Reply) -> None:
        self.replies += replies

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        query = scope["query_string"].decode()
        target = scope["raw_path"].decode() + (f"?{query}" if query else "")
        headers = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
        self.calls.append(Call(scope["method"], target, headers, body))
        await self._answer(self.replies.popleft(), receive, send)

    async def _answer(self, reply: Reply, receive: Any, send: Any) -> None:
        headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        left = asyncio.ensure_future(receive())
        for number, chunk in enumerate(reply.chunks):
            if number == reply.hold_after:
                released = asyncio.ensure_future(asyncio.to_thread(self.release.wait, 20))
                await asyncio.wait({released, left}, return_when=asyncio.FIRST_COMPLETED)
            if reply.pause:
                await asyncio.sleep(reply.pause)
            if reply.may_go_on is not None:
                await asyncio.to_thread(wait_until, reply.may_go_on)
            if left.done():
                self.was_left.set()
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        left.cancel()
        if not reply.breaks:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextmanager
def serving(provider: Provider) -> Iterator[str]:
    with running(provider) as url:
        yield url


# What providers answer


def sse(format_: str, texts: list[str], *, calls: bool = False) -> list[bytes]:
    """The events of a stream, as the provider of a format writes them."""
    chunks = []
    for number, event in enumerate(script(format_, texts, calls=calls)):
        numbered = {**event, "sequence_number": number} if format_ == "open_responses" else event
        name = f"event: {event['type']}\n" if format_ in ("messages", "open_responses") else ""
        chunks.append(f"{name}data: {json.dumps(numbered, ensure_ascii=False)}\n\n".encode())
    return [*chunks, b"data: [DONE]\n\n"] if format_ == "chat_completion" else chunks


def stream(format_: str, texts: list[str], *, calls: bool = False, **more: Any) -> Reply:
    return Reply(200, {**EVENTS, "request-id": "req_1"}, sse(format_, texts, calls=calls), **more)


def whole(format_: str, text: str, *, calls: bool = False, **more: Any) -> Reply:
    """An answer that is not a stream."""
    body = json.dumps(_BODIES[format_](text, calls), ensure_ascii=False).encode()
    return Reply(200, {**JSON, "content-length": str(len(body)), "request-id": "req_1"}, [body], **more)


def failure(status: int, message: str, **headers: str) -> Reply:
    error = {"type": "error", "error": {"type": "an_error", "message": message, "code": status, "status": "FAILED"}}
    return Reply(status, {**JSON, **headers}, [json.dumps(error).encode()])


def _chat(text: str, calls: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        function = {"name": "look", "arguments": '{"city":"Paris"}'}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5.4"}
    return {**head, "choices": [choice], "usage": usage}


def _messages(text: str, calls: bool) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if calls:
        content.append({"type": "tool_use", "id": "call_1", "name": "look", "input": {"city": "Paris"}})
    head = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-5"}
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return {**head, **stop, "content": content, "usage": {"input_tokens": 11, "output_tokens": 7}}


def _responses(text: str, calls: bool) -> dict[str, Any]:
    completed: dict[str, Any] = script("open_responses", [text], calls=calls)[-1]["response"]
    usage = {
        **completed["usage"], "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {**completed, "created_at": 1, "usage": usage}


def _gemini(text: str, calls: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": text}]
    if calls:
        parts.append({"functionCall": {"id": "call_1", "name": "look", "args": {"city": "Paris"}}})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    return {"responseId": "abc", "modelVersion": "gemini-3-pro", "candidates": [candidate], "usageMetadata": usage}


def _interactions(text: str, calls: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"type": "model_output", "content": [{"type": "text", "text": text}]}]
    if calls:
        steps.append({"type": "function_call", "id": "call_1", "name": "look", "arguments": {"city": "Paris"}})
    usage = {"total_input_tokens": 11, "total_output_tokens": 7, "total_tokens": 18}
    head = {"id": "int_1", "object": "interaction", "model": "gemini-3-pro"}
    return {**head, "status": "requires_action" if calls else "completed", "steps": steps, "usage": usage}


_BODIES: Any = {
    "chat_completion": _chat, "messages": _messages, "open_responses": _responses, "gemini": _gemini,
    "interactions": _interactions,
}  # fmt: skip
