"""The example of a backend for web pages: chats, tools that run on the server, and decisions about them."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.server.scripts import script
from tests.server.servers import running
from threadkeep import Store

Json = dict[str, Any]
FILE = Path(__file__).parents[2] / "examples" / "web_chat.py"
MOST_LINES = 120
HEAD: Json = {"id": "c1", "object": "chat.completion", "model": "gpt-5.4"}


def test_it_is_short() -> None:
    assert len(FILE.read_text().splitlines()) < MOST_LINES


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module of its own, with a database of its own."""
    monkeypatch.setenv("CHAT_DATABASE", f"sqlite:///{tmp_path}/chat.db")
    Store(f"sqlite:///{tmp_path}/chat.db").close()
    monkeypatch.delitem(sys.modules, "examples.web_chat", raising=False)
    return importlib.import_module("examples.web_chat")


def calling(name: str, arguments: Json) -> list[Json]:
    """The events of an answer that calls a function."""
    call = {"index": 0, "id": f"call_{name}", "type": "function"}
    call["function"] = {"name": name, "arguments": json.dumps(arguments)}
    deltas: list[Json] = [{"role": "assistant", "tool_calls": [call]}]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    return [{**HEAD, "object": "chat.completion.chunk", "choices": [choice]} for choice in (*choices, end)]


@dataclass
class Provider:
    """A provider with scripted streams."""

    scripts: list[list[Json]] = field(default_factory=list)
    payloads: list[Json] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        self.payloads.append(await request.json())
        lines = [f"data: {json.dumps(event)}\n\n" for event in self.scripts.pop(0)]
        return Response("".join([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    made = Provider()
    with running(Starlette(routes=[Route("/v1/chat/completions", made.answer, methods=["POST"])])) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-local")
        yield made


def test_tools_run_on_the_server_and_ask_first(example: Any, provider: Provider) -> None:
    def said(number: int, text: str) -> Json:
        return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}

    async def visit() -> None:
        transport = httpx2.ASGITransport(app=example.app)
        http = httpx2.AsyncClient(transport=transport, base_url="http://chat/api", headers={"x-user": "ann"})
        async with http as ann:
            new = {"external_id": "words", "model": example.MODEL, "title": "Words"}
            assert (await ann.post("/conversations", json=new)).status_code == 201
            provider.scripts = [calling("count_words", {"text": "a b"}), script("chat_completion", ["Two."])]
            streamed = await ann.post("/chat", json={"id": "words", "messages": [said(1, "How many words?")]})
            assert '"output":"2"' in streamed.text
            assert provider.payloads[1]["messages"][0]["content"] == "You help ann. Be brief."

            provider.scripts = [calling("send_mail", {"to": "ben", "text": "Hi"})]
            await ann.post("/chat", json={"id": "words", "messages": [said(2, "Tell him.")]})
            messages = (await ann.get("/chat/words")).json()["messages"]
            call = messages[-1]["parts"][-1]
            assert call["state"] == "approval-requested"
            call |= {"state": "approval-responded", "approval": {**call["approval"], "approved": True}}
            provider.scripts = [script("chat_completion", ["Done."])]
            streamed = await ann.post("/chat", json={"id": "words", "messages": messages})
            assert "Sent 2 characters to ben, from ann." in streamed.text
            assert provider.payloads[-1]["messages"][-1]["content"] == "Sent 2 characters to ben, from ann."
            ben = {"x-user": "ben"}
            assert (await ann.get("/chat/words", headers=ben)).json()["messages"] == []
            assert (await ann.post("/chat", json={}, headers={"x-user": ""})).status_code == 401
        await example.store.close()

    asyncio.run(visit())
