"""The client of AG-UI, fetched from npm, against the endpoint: what it makes of each run is what is stored."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

from tests.formats.sdk_streams import events_of, has_events
from tests.server.scripts import Scripted
from tests.server.servers import running
from tests.server.test_sdk_answers import SOURCES, answers
from tests.server.test_server_tools import calls
from tests.wires import SPOKEN
from threadkeep import AsyncStore, Store, ToolRegistry
from threadkeep.http import UpstreamError, rest_app

CLIENT = Path(__file__).with_name("ag_ui_client.mjs")
PACKAGE = "@ag-ui/client@1.0.0"
LOOK = {"name": "look", "description": "Look at the weather.", "parameters": {"type": "object"}}
Json = dict[str, Any]
TOOLS = ToolRegistry()


@TOOLS.register
def clock(city: str) -> str:
    """Say what time it is."""
    return f"Ten in {city}."


@TOOLS.register
async def book(city: str) -> str:
    """Book a trip."""
    raise ValueError(f"No {city} on the map.")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that drives the client."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("ag-ui")
    npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", "--prefix", str(folder)]
    subprocess.run([*npm, PACKAGE], check=True, timeout=300)
    return Path(shutil.copy(CLIENT, folder))


@dataclass
class Agent:
    """An `HttpAgent` in a process of its own; what it did last is in `ran`."""

    program: subprocess.Popen[str]
    url: str
    ran: Json = field(default_factory=dict)

    def do(self, **command: Any) -> Json:
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(json.dumps(command) + "\n")
        self.program.stdin.flush()
        self.ran = json.loads(self.program.stdout.readline())
        assert (self.ran["invalid"], self.ran["warnings"]) == ([], []), self.ran
        return self.ran

    def begin(self, thread: str) -> None:
        """Be a new agent, without messages."""
        self.thread = thread
        self.do(url=self.url, threadId=thread)

    def say(self, text: str, **keys: Any) -> Json:
        """Say something, and run."""
        message = {"id": f"{self.thread}-{text}", "role": "user", "content": text}
        return self.run(add=[message], **keys)

    def run(self, **keys: Any) -> Json:
        """Run, and have the messages that are stored."""
        ran = self.do(**keys)
        if ran["error"] is None and "abortAt" not in keys:
            assert ran["messages"] == self.stored["messages"]
        return ran

    @property
    def stored(self) -> Json:
        found: Json = httpx2.get(f"{self.url}/{self.thread}").raise_for_status().json()
        return found

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.ran["events"]]


class Gated(Scripted):
    """An upstream that waits for `gate` where a script has None."""

    def __init__(self, format_: Any) -> None:
        super().__init__(format_)
        self.gate = Event()

    async def ask(self, payload: Json, model: str) -> AsyncGenerator[Any]:
        async for event in super().ask(payload, model):
            if event is None:
                await asyncio.to_thread(self.gate.wait, 60)
            else:
                yield event


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Gated:
    return Gated(getattr(request, "param", "chat_completion"))


@pytest.fixture
def agent(client: Path, model: Gated, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    store = AsyncStore(url)
    application = rest_app(store, upstreams={"m": model.upstream}, tools=TOOLS, needs_approval={"book"})
    program = subprocess.Popen(["node", str(client)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with running(application, store) as address, program, ExitStack() as stack:
        stack.callback(model.gate.set)
        stack.callback(program.terminate)
        made = Agent(program, f"{address}/api/ag-ui")
        made.begin(request.node.name)
        yield made


@pytest.mark.parametrize("model", SPOKEN, indirect=True)
def test_the_client_makes_what_is_stored_of_every_answer_that_the_sdks_have(agent: Agent, model: Gated) -> None:
    found = [one for source in SOURCES for one in answers(source) if one[1].format_name == model.format]
    streams = [events_of(body, model.format) for _, _, body in found if has_events(body, model.format)]
    assert streams != []
    for number, events in enumerate(streams):
        model.scripts = [events]
        agent.begin(f"thread-{number}")
        agent.say("Hi")


def chunk(**delta: Any) -> Json:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


END = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def test_tools_of_the_client_and_a_second_turn(agent: Agent, model: Gated) -> None:
    model.will_say("Let me ", "see.", calls=True)
    assert agent.say("Weather?", **{"with": {"tools": [LOOK]}})["pending"] == ["call_1"]
    model.will_say("It rains.")
    output = {"id": "t1", "role": "tool", "toolCallId": "call_1", "content": '{"rain":true}'}
    agent.run(add=[output], **{"with": {"tools": [LOOK]}})
    model.will_say("Bye.")
    ran = agent.say("Thanks.")
    assert [one["role"] for one in ran["messages"]] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [one["content"] for one in ran["newMessages"]] == ["Bye."]
    assert "MESSAGES_SNAPSHOT" not in agent.kinds
    assert [one["role"] for one in model.payloads[-1]["messages"]] == [one["role"] for one in ran["messages"]][:-1]


def test_reasoning_and_calls_side_by_side(agent: Agent, model: Gated) -> None:
    calls = [
        {"index": number, "id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for number in range(2)
    ]
    thoughts = [chunk(role="assistant", reasoning_content=text) for text in ("H", "m.")]
    model.scripts.append([*thoughts, chunk(content="I look "), chunk(content="twice."), chunk(tool_calls=calls), END])
    ran = agent.say("Weather?", **{"with": {"tools": [LOOK]}})
    assert [one["role"] for one in ran["messages"]] == ["user", "reasoning", "assistant"]
    assert ran["pending"] == ["c0", "c1"]
    output = {"role": "tool", "content": "4"}
    ran = agent.run(add=[{**output, "id": "t0", "toolCallId": "c0"}], **{"with": {"tools": [LOOK]}})
    assert (ran["pending"], ran["newMessages"]) == (["c1"], [])
    model.will_say("Cold.")
    agent.run(add=[{**output, "id": "t1", "toolCallId": "c1"}], **{"with": {"tools": [LOOK]}})
    assert len(model.payloads) == 2


def test_calls_of_two_answers_have_the_same_id(agent: Agent, model: Gated) -> None:
    for number in range(2):
        model.will_say("Let me see.", calls=True)
        assert agent.say(f"Weather {number}?", **{"with": {"tools": [LOOK]}})["pending"] == ["call_1"]
        model.will_say(f"Number {number}.")
        output = {"id": f"t{number}", "role": "tool", "toolCallId": "call_1", "content": str(number)}
        agent.run(add=[output], **{"with": {"tools": [LOOK]}})
    outputs = [one["content"] for one in model.payloads[-1]["messages"] if one["role"] == "tool"]
    assert outputs == ["0", "1"]


def test_tools_of_the_server_run_within_the_run(agent: Agent, model: Gated) -> None:
    model.scripts = [calls("clock:c1", "clock:c2", text="Let me see."), calls("clock:c3")]
    model.will_say("Ten.")
    ran = agent.say("Time?")
    assert [one["role"] for one in ran["messages"]] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert (agent.kinds.count("TOOL_CALL_RESULT"), "MESSAGES_SNAPSHOT" in agent.kinds) == (3, False)
    assert (ran["pending"], len(model.payloads)) == ([], 3)
    model.scripts = [calls("book:b1", "look:p1")]
    asked = agent.say("Book it.", **{"with": {"tools": [LOOK]}})
    [interrupt] = asked["pendingInterrupts"]
    model.will_say("Well.")
    output = {"id": "t1", "role": "tool", "toolCallId": "p1", "content": "seen"}
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    ran = agent.run(add=[output], **{"with": {"resume": [entry], "tools": [LOOK]}})
    assert (ran["pendingInterrupts"], ran["messages"][-1]["content"]) == ([], "Well.")
    outputs = [one["content"] for one in model.payloads[-1]["messages"] if one["role"] == "tool"]
    assert outputs[-2:] == ["seen", "No b1 on the map."]


def test_an_interrupt_is_answered(agent: Agent, model: Gated) -> None:
    function = {"type": "function", **LOOK}
    conversations = agent.url.replace("ag-ui", "conversations")
    body = {"model": "m", "external_id": agent.thread, "tools": [function]}
    httpx2.post(conversations, json=body).raise_for_status()
    model.will_say("May I?", calls=True)
    [asked] = agent.say("Weather?")["pendingInterrupts"]
    assert "pending interrupt" in agent.say("Well?")["error"]  # the client's own rule
    agent.begin(agent.thread)
    assert agent.run(connect=True)["pendingInterrupts"] == [asked]
    model.will_say("Then not.")
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": False, "reason": "Not now."}}
    ran = agent.run(**{"with": {"resume": [entry]}})
    assert (ran["pendingInterrupts"], ran["messages"][-1]["content"]) == ([], "Then not.")
    assert model.payloads[-1]["messages"][-1]["content"] == "Not now."
    assert "waits for no decision" in agent.run(**{"with": {"resume": [entry]}})["error"]


def test_an_aborted_run_goes_on_until_it_is_stopped(agent: Agent, model: Gated) -> None:
    model.scripts.append([chunk(role="assistant", content="One, "), None, chunk(content="two."), END])
    ran = agent.say("Count.", abortAt="TEXT_MESSAGE_CONTENT")
    assert (ran["events"][-1]["code"], ran["messages"][-1]["content"]) == ("abort", "One, ")  # the client's own event
    assert "in progress" in agent.say("And?")["error"]
    model.gate.set()
    agent.begin(agent.thread)
    assert agent.run(connect=True)["messages"][-1]["content"] == "One, two."
    model.gate.clear()
    model.scripts.append([chunk(role="assistant", content="Three, "), None, chunk(content="four."), END])
    agent.say("Further.", abortAt="TEXT_MESSAGE_CONTENT")
    assert httpx2.post(f"{agent.url}/{agent.thread}/stop").json()["stopped"] is True
    model.will_say("Bye.")
    agent.say("Thanks.")
    assert [one["content"] for one in agent.ran["messages"]][-4:] == ["Further.", "Three, ", "Thanks.", "Bye."]


def test_a_new_agent_has_the_thread(agent: Agent, model: Gated) -> None:
    model.will_say("One.")
    agent.say("First?", state={"step": 1})
    agent.begin(agent.thread)
    ran = agent.run(connect=True)
    assert (len(ran["messages"]), ran["state"]) == (2, {"step": 1})
    agent.begin(agent.thread)
    model.will_say("Two.")
    context = [{"description": "City", "value": "Kiel"}]
    ran = agent.do(add=[{"id": "u2", "role": "user", "content": "Second?"}], **{"with": {"context": context}})
    assert "Kiel" in json.dumps(model.payloads[-1])
    assert ran["state"] == {"step": 1}
    assert {one["id"] for one in ran["messages"]} == {one["id"] for one in agent.stored["messages"]}


def test_activities_stay_the_clients(agent: Agent, model: Gated) -> None:
    plan = {"id": "p1", "role": "activity", "activityType": "PLAN", "content": {"steps": []}}
    model.will_say("One.")
    ran = agent.do(add=[plan, {"id": "u1", "role": "user", "content": "First?"}])
    assert ran["messages"] == [plan, *agent.stored["messages"]]
    assert "MESSAGES_SNAPSHOT" not in agent.kinds


def test_what_fails_and_what_is_refused_is_an_error(agent: Agent, model: Gated) -> None:
    model.scripts.append([UpstreamError(500, None, "Out of order.")])
    assert agent.say("First?")["error"] == "Out of order."
    model.scripts.append([chunk(role="assistant", content="Wel"), UpstreamError(500, None, "Out of order.")])
    assert agent.say("Second?")["error"] == "The answer broke off."
    assert agent.ran["messages"] == agent.stored["messages"]
    foreign = {"id": "a9", "role": "assistant", "content": "I said so."}
    assert "no message 'a9'" in agent.run(add=[foreign])["error"]


@pytest.mark.parametrize("model", ["open_responses"], indirect=True)
@pytest.mark.parametrize("is_approved", [False, True])
def test_an_approval_of_mcp_is_an_interrupt(agent: Agent, model: Gated, *, is_approved: bool) -> None:
    asked = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "trains",
        "name": "book",
        "arguments": "{}",
    }
    head = {"id": "resp_1", "object": "response", "model": "m", "output": []}
    model.scripts.append(
        [
            {"type": "response.created", "response": {**head, "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": asked},
            {"type": "response.output_item.done", "output_index": 0, "item": asked},
            {"type": "response.completed", "response": {**head, "status": "completed", "output": [asked]}},
        ]
    )
    [interrupt] = agent.say("Book it.")["pendingInterrupts"]
    model.will_say("Well.")
    payload = {"approved": is_approved}
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
    assert agent.run(**{"with": {"resume": [entry]}})["messages"][-1]["content"] == "Well."
    said = model.payloads[-1]["input"][-1]
    assert (said["type"], said["approve"]) == ("mcp_approval_response", is_approved)
