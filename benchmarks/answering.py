"""One process of the benchmark of calls: ``python answering.py KIND SOCKET DATABASE PROVIDER``.

KIND is `provider`, which answers at once; `bare`, which passes calls on and stores nothing; or `threadkeep`. The file
stands alone, so that the interpreter of another build can run it. SOCKET is the number of an inherited socket.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from typing import Any, Final

import httpx2
import uvicorn
from sqlalchemy import create_engine, make_url
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from uvicorn.loops.auto import auto_loop_factory

from threadkeep import AsyncStore, http, schema

TEXT: Final = "Paris is the capital of France, and has been for a long time. " * 6
USAGE: Final = {"prompt_tokens": 20, "completion_tokens": 80, "total_tokens": 100}
PIECES: Final = 8  # of the text, in events of a stream
NEW_OBJECTS: Final = 50_000  # after which garbage is collected, as in `threadkeep serve`


def _object(kind: str, *choices: dict[str, Any], **more: Any) -> bytes:
    found = {"id": "c", "object": kind, "created": 1_700_000_000, "model": "m", "choices": choices, **more}
    return json.dumps(found, separators=(",", ":")).encode()


def _stream() -> bytes:
    def choice(delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": reason}

    size = -(-len(TEXT) // PIECES)
    pieces = [{"content": TEXT[first : first + size]} for first in range(0, len(TEXT), size)]
    choices = [[choice({"role": "assistant", "content": ""})], *([choice(piece)] for piece in pieces)]
    events = [_object("chat.completion.chunk", *some) for some in [*choices, [choice({}, "stop")]]]
    events += [_object("chat.completion.chunk", usage=USAGE), b"[DONE]"]
    return b"".join(b"data: %b\n\n" % event for event in events)


class Provider(asyncio.Protocol):
    """Chat Completions, whole or as a stream, in one write."""

    def __init__(self) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
        whole, stream = _object("chat.completion", choice, usage=USAGE), _stream()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: "
        self._whole = head + b"application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(whole), whole)
        self._stream = head + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
            len(stream),
            stream,
        )
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head, behind = self._rest[:end].lower(), self._rest[end + 4 :]
            if b"content-length:" in head:
                length = following = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            else:
                length = behind.find(b"0\r\n\r\n")
                following = length + 5
            if length < 0 or len(behind) < following:
                return
            is_stream = b'"stream":true' in behind[:length].replace(b" ", b"")
            self._rest = behind[following:]
            self._transport.write(self._stream if is_stream else self._whole)


async def _provide(listening: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Provider, sock=listening)
    await server.serve_forever()


def bare(provider: str) -> Any:
    """The least that passes a call on."""
    client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100))

    async def passed(request: Request) -> StreamingResponse:
        body, headers = await request.body(), {"content-type": "application/json"}
        asked = client.build_request("POST", f"{provider}/v1/chat/completions", content=body, headers=headers)
        answer = await client.send(asked, stream=True)
        kind = {"content-type": answer.headers["content-type"]}
        return StreamingResponse(answer.aiter_raw(), answer.status_code, kind, background=BackgroundTask(answer.aclose))

    return Starlette(routes=[Route("/{path:path}", passed, methods=["POST"])])


def server(database: str, provider: str) -> Any:
    """The server and the recorder, of whichever build this is."""
    if not database.startswith("sqlite"):
        schema.upgrade(create_engine(make_url(database).set(drivername="postgresql+psycopg")))

    def anybody(_request: object) -> http.Owner:
        return http.Owner()

    store, upstream = AsyncStore(database), http.http_upstream("provider", "chat_completion", f"{provider}/v1")
    recorded = [http.RecordedUpstream("provider", "chat_completion", provider)]
    faces = {
        "/v1": http.app(store, auth=anybody, prefix="", upstreams={"*": upstream}),
        "/record": http.recorder_app(AsyncStore(database), recorded, auth=anybody),
    }
    return http.site(faces, store=store)


def main() -> None:
    """Run the process until it is terminated."""
    kind, number, database, provider = sys.argv[1:]
    gc.set_threshold(NEW_OBJECTS)
    listening = socket.socket(fileno=int(number))
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        if kind == "provider":
            runner.run(_provide(listening))
        made = bare(provider) if kind == "bare" else server(database, provider)
        runner.run(uvicorn.Server(uvicorn.Config(made, log_level="critical")).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
