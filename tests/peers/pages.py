"""Pages of the examples in Chromium, fetched from npm and built by vite, each with two `threadkeep serve`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.ports import free_ports
from tests.server.scripts import CALL, script
from tests.server.servers import running
from tests.waiting import listens, wait_until
from threadkeep import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
Json = dict[str, Any]


@dataclass
class Provider:
    """A provider that says what it was asked last, piece by piece, or calls `look` first.

    A question with the word "slowly" is answered up to its second piece, and further once `gate` is set.
    """

    payloads: list[Json] = field(default_factory=list)
    gate: Event = field(default_factory=Event)

    @property
    def application(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> StreamingResponse:
        payload = await request.json()
        self.payloads.append(payload)
        last = payload["messages"][-1]
        said = last["content"] if isinstance(last["content"], str) else last["content"][-1].get("text", "")
        calls = last["role"] == "user" and "weather" in said
        events = script("chat_completion", [f"{len(self.payloads)}: ", "about ", said], calls=calls)
        call = f"call_{len(self.payloads)}"  # pages know calls of all their messages by their ids

        async def texts() -> AsyncIterator[str]:
            for number, event in enumerate(events):
                if number == 2 and "slowly" in said:
                    await asyncio.to_thread(self.gate.wait, 60)
                yield f"data: {json.dumps(event).replace(CALL, call)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(texts(), media_type="text/event-stream")


def built(example: str, folder: Path) -> Path:
    """Build the page of an example in a folder."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
    npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", "--prefix", str(folder)]
    subprocess.run(npm, check=True, timeout=300)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=folder, check=True, timeout=120, capture_output=True)
    return folder


@contextmanager
def started(command: list[str], port: int, **options: Any) -> Iterator[str]:
    """The address of a program that serves on a port."""
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    try:
        wait_until(lambda: listens(port), lambda: (command, program.poll()))
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        program.wait(30)


@dataclass
class Site:
    """The page at two addresses, each with a server of its own over one database."""

    addresses: list[str]
    provider: Provider
    store: Store

    def messages(self, chat: str) -> list[str]:
        """What is stored of a chat."""
        conversation = self.store.find_conversation(external_id=chat)
        assert conversation is not None
        items = [stored.item.to_dict() for stored in conversation.items()]
        return [item["content"][-1]["text"] for item in items if item["type"] == "message"]


@contextmanager
def served(page: Path) -> Iterator[Site]:
    """Serve the page that was built in a folder."""
    url, provider = f"sqlite:///{page}/chat.db", Provider()
    Store(url).close()
    with ExitStack() as stack:
        asked = stack.enter_context(running(provider.application))
        keys = {**os.environ, "LOCAL_API_KEY": "sk-local", "THREADKEEP_URL": url}
        vite, addresses = str(page / "node_modules" / ".bin" / "vite"), []
        for _ in range(2):
            port, page_port = free_ports(2)
            upstream = ["--upstream", f"local=chat_completion@{asked}/v1", "--model", "llama=local"]
            serve = [sys.executable, "-m", "threadkeep", "serve", "--port", str(port), *upstream]
            server = stack.enter_context(started(serve, port, env=keys))
            preview = [vite, "preview", "--host", "127.0.0.1", "--port", str(page_port), "--bypass-lock"]
            environment = {**os.environ, "THREADKEEP_SERVER": server}
            addresses.append(stack.enter_context(started(preview, page_port, cwd=page, env=environment)))
        yield Site(addresses, provider, stack.enter_context(Store(url)))


@dataclass
class Chat:
    """What a person does on the page, and sees of it."""

    page: Page
    problems: list[str]

    def say(self, text: str, button: str = "Send") -> None:
        self.page.get_by_label("Message").fill(text)
        self.button(button).click()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def shows(self, *texts: str) -> None:
        """Wait until the texts of the messages are these."""
        expect(self.page.locator("article p")).to_have_text(list(texts))

    def settles(self, *texts: str) -> None:
        """Wait until nothing is under way any more, and the texts of the messages are these."""
        expect(self.page.locator("output")).to_have_text("ready")
        self.shows(*texts)


def speak_behind(first: Chat, second: Chat) -> None:
    """Say something in a tab that has not seen the last message and its answer: it is told to load them."""
    first.say("Hello")
    first.settles("Hello", "1: about Hello")
    second.page.reload()
    second.settles("Hello", "1: about Hello")
    first.say("And?")
    first.settles("Hello", "1: about Hello", "And?", "2: about And?")
    second.say("Hello?")
    expect(second.page.get_by_role("alert")).to_contain_text("Load the messages")
