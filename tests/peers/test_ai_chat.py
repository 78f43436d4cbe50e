"""The chat of the AI SDK, fetched from npm, with tools in the server: what it makes of each stream is stored."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

from tests.peers.test_ai_sdk import SDK, installed
from tests.server.scripts import Scripted
from tests.server.servers import running
from tests.server.test_server_tools import calls
from threadkeep import AsyncStore, Store, ToolRegistry
from threadkeep.http import rest_app

Json = dict[str, Any]
CHAT = Path(__file__).with_name("ai_chat.mjs")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that drives the chat."""
    folder = installed(tmp_path_factory.mktemp("ai"), SDK, "")
    return Path(shutil.copy(CHAT, folder))


@dataclass
class Chat:
    """A chat of the SDK in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    id: str
    found: Json = field(default_factory=dict)

    def do(self, **command: Any) -> Json:
        """Do something, and have the messages that are stored."""
        self.begin_to(**command)
        return self.done()

    def begin_to(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def done(self) -> Json:
        assert self.process.stdout is not None
        self.found = json.loads(self.process.stdout.readline())
        assert self.found["isValid"], self.found
        return self.found

    @property
    def stored(self) -> Any:
        return httpx2.get(f"{self.url}/{self.id}").raise_for_status().json()["messages"]

    @property
    def parts(self) -> list[Json]:
        """The parts of the last message, without steps."""
        found: list[Json] = self.found["messages"][-1]["parts"]
        return [part for part in found if part["type"] != "step-start"]


class Tools:
    """What runs in the server."""

    def __init__(self) -> None:
        self.gate, self.entered = Event(), Event()
        self.ran: list[str] = []
        self.registry = ToolRegistry()
        for tool in (self.clock, self.book, self.fail, self.wait):
            self.registry.register(tool)

    async def clock(self, city: str) -> Json:
        self.ran.append(city)
        return {"time": f"Ten in {city}"}

    def book(self, city: str) -> str:
        self.ran.append(city)
        return f"Booked {city}."

    def fail(self, city: str) -> str:
        raise ValueError(f"No {city}.")

    def wait(self, city: str) -> str:
        self.ran.append(city)
        self.entered.set()
        self.gate.wait(30)
        return f"Waited in {city}."


@pytest.fixture
def model() -> Scripted:
    return Scripted("chat_completion")


@pytest.fixture
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.gate.set()


@pytest.fixture
def chats(
    program: Path, model: Scripted, tools: Tools, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[list[Chat]]:
    """A chat in two tabs, with a server each."""
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    with ExitStack() as stack:
        made = []
        for _ in range(2):
            store = AsyncStore(url)
            application = rest_app(
                store, upstreams={"m": model.upstream}, tools=tools.registry, needs_approval={"book"}, max_rounds=3
            )
            address = stack.enter_context(running(application, store))
            process = subprocess.Popen(["node", str(program)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.terminate)
            made.append(Chat(process, f"{address}/api/chat", request.node.name))
            made[-1].do(begin={"url": made[-1].url, "id": made[-1].id})
        stack.callback(tools.gate.set)
        yield made


def test_tools_run_within_the_answer(chats: list[Chat], model: Scripted, tools: Tools) -> None:
    chat, _ = chats
    model.scripts = [calls("clock:c1", "fail:c2", text="Let me see."), calls("clock:c3")]
    model.will_say("Ten.")
    found = chat.do(say="Time?")
    assert (found["status"], found["error"]) == ("ready", None)
    assert [(part["type"], part.get("state")) for part in chat.parts] == [
        ("text", "done"), ("tool-clock", "output-available"), ("tool-fail", "output-error"),
        ("tool-clock", "output-available"), ("text", "done"),
    ]  # fmt: skip
    assert found["messages"] == chat.stored
    assert (tools.ran, len(model.payloads)) == (["c1", "c3"], 3)
    model.scripts = [calls(f"clock:d{number}") for number in range(3)]
    chat.do(say="And now?")
    model.will_say("Eleven.")
    found = chat.do(goOn=None)
    assert (chat.parts[-1]["text"], found["messages"]) == ("Eleven.", chat.stored)


def test_a_call_is_approved_or_denied(chats: list[Chat], model: Scripted, tools: Tools) -> None:
    chat, other = chats
    model.scripts = [calls("book:b1", "clock:c1")]
    assert chat.do(say="Book it.")["messages"] == chat.stored
    assert [part["state"] for part in chat.parts] == ["approval-requested", "output-available"]
    other.do(begin={"url": other.url, "id": other.id})
    model.will_say("Booked.")
    answer = {"id": chat.parts[0]["approval"]["id"], "approved": True}
    found = chat.do(decide=answer)
    assert (chat.parts[0]["output"], chat.parts[-1]["text"]) == ("Booked b1.", "Booked.")
    assert found["messages"] == chat.stored
    assert "Load the messages" in other.do(decide=answer)["error"], "the tab that decides later"
    assert tools.ran == ["c1", "b1"]
    model.scripts = [calls("book:b2")]
    chat.do(say="Another one.")
    model.will_say("Then not.")
    chat.do(decide={"id": chat.parts[0]["approval"]["id"], "approved": False, "reason": "Too far."})
    assert (chat.parts[0]["state"], chat.parts[-1]["text"]) == ("output-denied", "Then not.")
    assert (tools.ran, chat.found["messages"]) == (["c1", "b1"], chat.stored)


def test_another_tab_resumes_while_a_tool_runs_and_stops_the_next(
    chats: list[Chat], model: Scripted, tools: Tools
) -> None:
    chat, other = chats
    model.scripts = [calls("clock:c1", text="Let me see."), calls("wait:w1")]
    model.will_say("Done.")
    chat.begin_to(say="Wait.")
    assert tools.entered.wait(30)
    other.do(begin={"url": other.url, "id": other.id})
    other.do(resume=None)
    assert [part["state"] for part in other.parts] == ["done", "output-available", "input-available"]
    tools.gate.set()
    assert chat.done()["messages"] == other.do(end=None)["messages"] == chat.stored
    assert (chat.parts[-1]["text"], tools.ran) == ("Done.", ["c1", "w1"])
    tools.gate.clear()
    tools.entered.clear()
    model.scripts = [calls("wait:w2")]
    chat.begin_to(say="Wait again.")
    assert tools.entered.wait(30)
    assert httpx2.post(f"{other.url}/{other.id}/stop", timeout=30).json()["stopped"] is True
    assert chat.done()["messages"] == chat.stored
    assert chat.parts[-1]["state"] == "output-error"
