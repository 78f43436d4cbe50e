"""The page of `examples/use-chat` in Chromium, fetched from npm and built by vite, with two `threadkeep serve`."""

from __future__ import annotations

import asyncio
import base64
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
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.ports import free_ports
from tests.server.scripts import CALL, script
from tests.server.servers import running
from tests.viewer.browser.conftest import chromium, watching  # noqa: F401 - a fixture
from tests.waiting import listens, wait_until
from threadkeep import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "use-chat"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page is built."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("use-chat")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
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


@pytest.fixture(scope="module")
def site(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    url, provider = f"sqlite:///{tmp_path_factory.mktemp('chats')}/chat.db", Provider()
    Store(url).close()
    with ExitStack() as stack:
        asked = stack.enter_context(running(provider.application))
        keys = {**os.environ, "LOCAL_API_KEY": "sk-local", "THREADKEEP_URL": url}
        vite, addresses = str(built / "node_modules" / ".bin" / "vite"), []
        for _ in range(2):
            port, page_port = free_ports(2)
            upstream = ["--upstream", f"local=chat_completion@{asked}/v1", "--model", "llama=local"]
            serve = [sys.executable, "-m", "threadkeep", "serve", "--port", str(port), *upstream]
            server = stack.enter_context(started(serve, port, env=keys))
            preview = [vite, "preview", "--host", "127.0.0.1", "--port", str(page_port), "--bypass-lock"]
            environment = {**os.environ, "THREADKEEP_SERVER": server}
            addresses.append(stack.enter_context(started(preview, page_port, cwd=built, env=environment)))
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


@pytest.fixture
def tabs(chromium: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[list[Chat]]:  # noqa: F811
    """A chat in two tabs, with a server each."""
    site.provider.gate.clear()
    site.provider.payloads.clear()
    with ExitStack() as stack:
        views = [stack.enter_context(watching(chromium, address)) for address in site.addresses]
        yield [Chat(view.open(f"/#{request.node.name}"), view.problems) for view in views]
        site.provider.gate.set()


def test_what_is_said_is_answered_once_and_loaded_by_another_process(
    tabs: list[Chat], site: Site, chat_id: str
) -> None:
    first, second = tabs
    first.say("Hello")
    first.settles("Hello", "1: about Hello")
    first.say("The weather?")
    first.button("Allow").click()
    texts = "Hello", "1: about Hello", "The weather?", "2: about The weather?", '3: about {"degrees":4}'
    first.settles(*texts)
    second.page.reload()
    second.settles(*texts)
    assert site.messages(chat_id) == [*texts]
    second.say("The weather?")
    second.button("Deny").click()
    second.settles(*texts, "The weather?", "4: about The weather?", "5: about The user said no.")
    assert len(site.provider.payloads) == 5


def test_an_answer_is_stopped(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.say("Go slowly")
    first.shows("Go slowly", "1: ")
    first.button("Stop").click()
    first.settles("Go slowly", "1: ")
    second.page.reload()
    second.settles("Go slowly", "1: ")
    second.say("Hello")
    second.settles("Go slowly", "1: ", "Hello", "2: about Hello")
    assert site.messages(chat_id) == ["Go slowly", "1: ", "Hello", "2: about Hello"]


def test_another_process_goes_on_with_an_answer_when_its_page_is_reloaded(
    tabs: list[Chat], site: Site, chat_id: str
) -> None:
    first, second = tabs
    first.say("Go slowly")
    first.shows("Go slowly", "1: ")
    first.page.goto("about:blank")
    second.page.reload()
    second.shows("Go slowly", "1: ")
    second.page.reload()
    second.shows("Go slowly", "1: ")
    site.provider.gate.set()
    second.settles("Go slowly", "1: about Go slowly")
    assert (site.messages(chat_id), len(site.provider.payloads)) == (["Go slowly", "1: about Go slowly"], 1)


def test_the_tab_that_did_not_see_the_last_message_is_told(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.say("Hello")
    first.settles("Hello", "1: about Hello")
    second.page.reload()
    second.settles("Hello", "1: about Hello")
    first.say("And?")
    first.settles("Hello", "1: about Hello", "And?", "2: about And?")
    second.say("Hello?")
    expect(second.page.get_by_role("alert")).to_contain_text("Load the messages")
    assert second.problems == ["Failed to load resource: the server responded with a status of 409 (Conflict)"]
    second.problems.clear()
    texts = "Hello", "1: about Hello", "And?", "2: about And?"
    assert (site.messages(chat_id), len(site.provider.payloads)) == ([*texts], 2)
    second.button("Load again").click()
    second.settles(*texts)
    second.say("Hello?")
    second.settles(*texts, "Hello?", "3: about Hello?")


def test_a_picture_is_kept(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.page.get_by_label("Pictures").set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": PNG})
    first.say("What is this?")
    first.settles("What is this?", "1: about What is this?")
    second.page.reload()
    for chat in tabs:
        expect(chat.page.get_by_role("img", name="dot.png")).to_have_count(1)
    image = site.provider.payloads[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert base64.b64decode(image.partition(",")[2]) == PNG


def test_messages_are_edited_and_answered_again(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.say("One")
    first.settles("One", "1: about One")
    first.button("Again").click()
    first.settles("One", "2: about One")
    first.button("Edit").click()
    first.say("Two", "Send instead")
    first.settles("Two", "3: about Two")
    second.page.reload()
    second.settles("Two", "3: about Two")


@pytest.fixture
def chat_id(request: pytest.FixtureRequest) -> str:
    """The id of the chat that the tabs show."""
    return str(request.node.name)
