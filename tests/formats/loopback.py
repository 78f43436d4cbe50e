"""A provider on loopback, which remembers the JSON that an SDK sends, and clients of the SDKs for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import isawaitable
from threading import Thread
from typing import Any

import anthropic
import botocore.config
import botocore.session
import openai
from google import genai

Json = dict[str, Any]

_TEXT = {"type": "output_text", "text": "Hi", "annotations": []}
_RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "tools": [],
    "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [_TEXT]}],
    "parallel_tool_calls": True, "tool_choice": "auto",
}  # fmt: skip
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
_MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "{}"}],
    "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
_CONVERSED = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}}, "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1},
}  # fmt: skip
# how the path of a request ends -> the answer
ANSWERS: dict[str, Json] = {
    "/responses": _RESPONSE,
    "/responses/compact": {"id": "r", "object": "response.compaction", "created_at": 1, "output": [], "usage": None},
    "/responses/input_tokens": {"object": "response.input_tokens", "input_tokens": 1},
    "/chat/completions": {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [_CHOICE]},
    "/messages": _MESSAGE,
    "/messages/count_tokens": {"input_tokens": 1},
    ":generateContent": {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}}]},
    ":countTokens": {"totalTokens": 1},
    "/converse": _CONVERSED,
}
# the same for streams: content type, and what is sent before the end
STREAMS = {
    "/converse-stream": ("application/vnd.amazon.eventstream", b""),
    ":streamGenerateContent": ("text/event-stream", b'data: {"candidates": []}\n\n'),
}
EVENTS = ("text/event-stream", b"")


@dataclass
class Provider:
    """What came: the JSON of each request, its path and headers."""

    url: str = ""
    bodies: list[Json] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[Json] = field(default_factory=list)

    def clients(self) -> dict[str, Any]:
        """Clients by name; those whose name begins with `async` have coroutines."""
        base: Json = {"api_key": "x", "max_retries": 0}
        google = genai.Client(api_key="x", http_options={"base_url": self.url})
        amazon = botocore.session.Session().create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id="x",
            aws_secret_access_key="x",
            config=botocore.config.Config(retries={"max_attempts": 0}),
        )
        return {
            "openai": openai.OpenAI(base_url=self.url, **base),
            "async_openai": openai.AsyncOpenAI(base_url=self.url, **base),
            "anthropic": anthropic.Anthropic(base_url=self.url, **base),
            "async_anthropic": anthropic.AsyncAnthropic(base_url=self.url, **base),
            "google": google,
            "async_google": google.aio,
            "amazon": amazon,
        }


async def close(clients: Json) -> None:
    """Close the connections of clients."""
    for name, client in clients.items():
        closed = client.aclose() if name == "async_google" else client.close()
        if isawaitable(closed):
            await closed


@contextmanager
def provider() -> Iterator[Provider]:
    """A server on loopback that gives each request an answer."""
    came = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            came.bodies.append(body)
            came.paths.append(path)
            came.headers.append({name.lower(): value for name, value in self.headers.items()})
            kind, content = _answer(path, is_stream=body.get("stream") is True)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a test says what failed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    came.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(path: str, *, is_stream: bool) -> tuple[str, bytes]:
    ends: Callable[[str], bool] = path.endswith
    if stream := next((STREAMS[end] for end in STREAMS if ends(end)), EVENTS if is_stream else None):
        return stream
    return "application/json", json.dumps(next(ANSWERS[end] for end in ANSWERS if ends(end))).encode()
