"""Runs of AG-UI: what is new is said, tools, decisions, states, and answers that another process follows or stops."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx2
import pytest

from tests.factories import noise
from tests.formats import agui_samples as samples
from tests.server.scripts import FORMATS, Scripted, script
from tests.server.test_chats import Gate, processes
from tests.server.test_rest import Rest
from threadkeep.formats import get_format
from threadkeep.http import UpstreamError

Json = dict[str, Any]
LOOK: Json = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
THREAD = "thread-1"


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Scripted:
    return Scripted(getattr(request, "param", "chat_completion"))


any_upstream = pytest.mark.parametrize("model", [*FORMATS], indirect=True)


@pytest.fixture
def rest(served: Any, model: Scripted) -> Rest:
    return Rest(served, upstreams={"m": model.upstream})


@pytest.fixture
def agent(rest: Rest) -> Agent:
    return Agent(rest.of("ann"))


class Agent:
    """What `HttpAgent` does: the messages and the state that it has, and what it sends."""

    def __init__(self, client: httpx2.Client, thread: str = THREAD) -> None:
        self.client, self.thread = client, thread
        self.messages: list[Json] = []
        self.state: Any = {}
        self.runs = self.added = 0
        self.events: list[Json] = []

    def input(self, **keys: Any) -> Json:
        self.runs += 1
        said = [one for one in self.messages if one["role"] != "activity"]
        body = {
            "threadId": self.thread,
            "runId": f"run-{self.runs}",
            "messages": said,
            "state": self.state,
            "tools": [],
        }
        return {**body, "context": [], "forwardedProps": {}, "protocolVersion": "1.0", **keys}

    def post(self, **keys: Any) -> httpx2.Response:
        return self.client.post("/ag-ui", json=self.input(**keys))

    def add(self, role: str, content: str, **keys: Any) -> Json:
        self.added += 1
        message = {"id": f"{role}-{self.added}", "role": role, "content": content, **keys}
        self.messages.append(message)
        return message

    def say(self, text: str, **keys: Any) -> Json:
        self.add("user", text)
        return self.take(self.post(**keys))

    def take(self, response: httpx2.Response) -> Json:
        """Read a stream into the messages, as the client does; return its last event."""
        assert response.status_code == 200, response.text
        self.events = [json.loads(line.removeprefix("data: ")) for line in response.text.strip().split("\n\n")]
        assembler = get_format("ag_ui").assembler()
        for event in self.events:
            if event["type"] == "MESSAGES_SNAPSHOT":
                self.messages, assembler = event["messages"], get_format("ag_ui").assembler()
            elif event["type"] == "STATE_SNAPSHOT":
                self.state = event["snapshot"]
            else:
                assembler.feed(event)
        assert assembler.problems == []
        self.messages += assembler.body["newMessages"]
        return self.events[-1]

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    def load(self) -> Json:
        found: Json = self.client.get(f"/ag-ui/{self.thread}").json()
        return found

    def refusal(self, response: httpx2.Response, status: int = 409) -> str:
        assert response.status_code == status, response.text
        found: str = response.json()["error"]["message"]
        return found


@any_upstream
def test_what_clients_make_of_the_events_is_what_they_load(agent: Agent, model: Scripted) -> None:
    model.will_say("Let me see. ", "Well.", calls=True)
    end = agent.say("Weather?", tools=[LOOK])
    assert end["outcome"] == {"type": "success", "pendingToolCallIds": ["call_1"]}
    assert (end["threadId"], end["runId"]) == (THREAD, "run-1")
    assert (end["usage"][0]["inputTokens"], end["usage"][0]["outputTokens"]) == (11, 7)
    assert "MESSAGES_SNAPSHOT" not in agent.kinds
    assert [one["role"] for one in agent.messages] == ["user", "assistant"]
    assert agent.load()["messages"] == agent.messages
    model.will_say("It rains.")
    agent.add("tool", '{"rain":true}', toolCallId="call_1")
    end = agent.take(agent.post(tools=[LOOK]))
    assert end["outcome"] == {"type": "success"}
    model.will_say("Bye.")
    agent.say("Thanks.")
    found = agent.load()
    assert found["messages"] == agent.messages
    assert [one["role"] for one in agent.messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert (found["response_id"], found["interrupts"], found["pending_tool_call_ids"]) == (None, [], [])
    assert len(model.payloads) == 3


def test_a_client_that_has_less_gets_the_messages(agent: Agent, model: Scripted) -> None:
    model.will_say("One.")
    agent.say("First?")
    stored, agent.messages = agent.messages, []
    model.will_say("Two.")
    agent.say("Second?")
    assert agent.kinds[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert agent.messages == agent.load()["messages"]
    assert agent.messages[:2] == stored
    # An answer of which it has seen the beginning alone
    agent.messages[-1]["content"] = "Tw"
    model.will_say("Three.")
    agent.say("Third?")
    assert agent.messages == agent.load()["messages"]


def test_what_does_not_fit_is_refused_with_what_to_do(agent: Agent, model: Scripted) -> None:
    assert "no chat 'thread-1'" in agent.refusal(agent.post())
    model.will_say("One.", calls=True)
    agent.say("First?", tools=[LOOK])
    shown = [*agent.messages]
    more: Json = {"id": "u2", "role": "user", "content": "More?"}
    for messages, text in [
        (shown[:1], "wait for their outputs"),
        ([*shown, {**shown[1], "id": "other"}], "no message 'other'"),
        ([*shown, {"id": "r", "role": "reasoning", "content": "Hm."}, more], "no message 'r'"),
        ([{**shown[0], "content": "Changed?"}, more], "forwardedProps.messageId"),
        ([more, *shown], "is not the last one"),
        ([*shown, {"id": "t", "role": "tool", "toolCallId": "c9", "content": "4"}], "'c9' is not one that waits"),
        ([*shown, {"id": "t", "role": "tool", "toolCallId": ["c9"], "content": "4"}, more], "is not one that waits"),
    ]:
        agent.messages = messages
        assert text in agent.refusal(agent.post()), messages
    agent.messages = [*shown]
    assert "waits for no decision 'i1'" in agent.refusal(
        agent.post(resume=[{"interruptId": "i1", "status": "cancelled"}])
    )
    model.will_say("Two.")
    agent.say("Second?")
    stored, agent.messages = agent.messages, [*shown, more]
    assert "is not the last one" in agent.refusal(agent.post())
    for wrong in ([more, more], [{**more, "id": 7}], [{"id": "u2", "role": None}]):
        agent.messages = wrong
        assert "an id of its own" in agent.refusal(agent.post(), 400)
    assert agent.load()["messages"] == stored
    assert len(model.payloads) == 2


def test_a_message_that_was_sent_before_is_not_answered_twice(agent: Agent, model: Scripted) -> None:
    model.will_say("One.")
    agent.say("First?")
    agent.messages.pop()
    assert "was sent before" in agent.refusal(agent.post())
    model.will_say("Two.")
    agent.take(agent.post(forwardedProps={"trigger": "regenerate-message"}))
    assert "MESSAGES_SNAPSHOT" not in agent.kinds
    assert agent.messages == agent.load()["messages"]
    assert [one["content"] for one in agent.messages] == ["First?", "Two."]
    model.will_say("Three.")
    agent.messages = [{"id": "u9", "role": "user", "content": "Second?"}]
    agent.take(agent.post(forwardedProps={"messageId": "user-1"}))
    assert [one["content"] for one in agent.load()["messages"]] == ["Second?", "Three."]
    assert len(agent.client.get(f"/conversations/{THREAD}/branches").json()["data"]) == 3


def test_ids_of_clients_that_look_like_those_of_answers(agent: Agent, model: Scripted) -> None:
    for number in (1, 5, 6):
        model.will_say("Yes.")
        agent.messages.append({"id": f"msg_{number}", "role": "user", "content": "Well?"})
        agent.take(agent.post())
        assert agent.load()["messages"] == agent.messages
        assert "MESSAGES_SNAPSHOT" not in agent.kinds
    assert [one["id"] for one in agent.messages] == ["msg_1", "msg_2", "msg_5", "msg_3", "msg_6", "msg_7"]


def test_functions_of_others_wait_for_a_decision(agent: Agent, rest: Rest, model: Scripted) -> None:
    """An application has a function, which it runs itself once a person allows it."""
    made = agent.client.post(
        "/conversations", json={"model": "m", "external_id": THREAD, "tools": [{"type": "function", **LOOK}]}
    )
    assert made.status_code == 201
    for is_approved in (True, False):
        model.will_say("Let me see.", calls=True)
        end = agent.say("Weather?")
        [asked] = end["outcome"]["interrupts"]
        assert end["outcome"]["type"] == "interrupt"
        assert (asked["reason"], asked["toolCallId"]) == ("tool_approval", "call_1")
        assert agent.load()["interrupts"] == [asked]
        entry = {"interruptId": asked["id"], "status": "resolved"}
        assert "must have approved" in agent.refusal(agent.post(resume=[entry]), 400)
        if not is_approved:
            model.will_say("I may not look.")
        end = agent.take(agent.post(resume=[{**entry, "payload": {"approved": is_approved, "reason": "No."}}]))
        assert end["outcome"] == {"type": "success", **({"pendingToolCallIds": ["call_1"]} if is_approved else {})}
        assert "waits for no decision" in agent.refusal(agent.post(resume=[{**entry, "status": "cancelled"}]))
        if is_approved:  # the application runs the call, and its client has the model go on
            calls = agent.client.get(f"/conversations/{THREAD}/tool_calls").json()["data"]
            assert [call["approval"]["decision"] for call in calls] == ["approved"]
            output = {"tool_outputs": [{"call_id": "call_1", "output": "4"}], "answer": False}
            assert agent.client.post(f"/conversations/{THREAD}/tool_outputs", json=output).is_success
            model.will_say("4 degrees.")
            agent.take(agent.post())
        assert agent.messages == agent.load()["messages"]


def test_states_are_shared(agent: Agent, model: Scripted) -> None:
    agent.state = {"steps": [1]}
    model.will_say("One.")
    agent.say("First?")
    assert "STATE_SNAPSHOT" not in agent.kinds
    assert agent.load()["state"] == {"steps": [1]}
    agent.state = {}
    model.will_say("Two.")
    agent.say("Second?")
    assert agent.state == {"steps": [1]}
    agent.state = {"steps": []}
    model.will_say("Three.")
    agent.say("Third?")
    assert agent.client.get(f"/conversations/{THREAD}/states/ag_ui").json()["value"] == {"steps": []}


def test_the_model_sees_the_context_of_a_run_alone(agent: Agent, model: Scripted) -> None:
    model.will_say("One.")
    context = [{"description": "Where the user is", "value": "Kiel"}]
    agent.say("First?", context=context, forwardedProps={"threshold": 3, "model": "m"})
    assert "Kiel" in json.dumps(model.payloads[-1])
    model.will_say("Two.")
    agent.say("Second?")
    assert "Kiel" not in json.dumps(model.payloads[-1])
    assert agent.messages == agent.load()["messages"]


def test_what_is_not_heeded_is_reported(agent: Agent, model: Scripted) -> None:
    model.will_say("One.")
    agent.add("user", "First?")
    response = agent.post(forwardedProps={"threshold": 3})
    assert response.headers["x-threadkeep-losses"] == "option=forwardedProps.threshold"
    agent.take(response)
    agent.add("user", "Second?")
    refused = agent.client.post(
        "/ag-ui", json=agent.input(forwardedProps={"threshold": 3}), headers={"x-threadkeep-strict": "1"}
    )
    assert "forwardedProps.threshold" in agent.refusal(refused, 400)
    assert "must be a text" in agent.refusal(agent.post(forwardedProps={"model": 3}), 400)


def test_threads_belong_to_their_owners(rest: Rest, agent: Agent, model: Scripted) -> None:
    model.will_say("One.")
    agent.state = {"secret": 1}
    agent.say("First?")
    other = Agent(rest.of("bob"))
    found = other.load()
    assert (found["messages"], found["state"], found["conversation_id"]) == ([], None, None)
    other.take(other.client.get(f"/ag-ui/{THREAD}/stream"))
    assert (other.messages, other.state) == ([], {})
    assert other.client.post(f"/ag-ui/{THREAD}/stop").json()["stopped"] is False
    id_ = agent.load()["conversation_id"]
    for path in (f"/ag-ui/{id_}", f"/ag-ui/{id_}/stream"):
        assert other.client.get(path).status_code == 404
    other.messages = agent.messages
    assert other.post(threadId=id_).status_code == 404


def test_a_client_connects_to_a_thread(agent: Agent, model: Scripted) -> None:
    model.will_say("One.", calls=True)
    agent.state = {"a": 1}
    agent.say("First?", tools=[LOOK])
    again = Agent(agent.client)
    end = again.take(agent.client.get(f"/ag-ui/{THREAD}/stream"))
    assert (again.messages, again.state) == (agent.messages, {"a": 1})
    assert (end["runId"], end["outcome"]["pendingToolCallIds"]) == ("run-1", ["call_1"])


def test_pictures_come_back_as_they_were_sent(agent: Agent, model: Scripted) -> None:
    source = {"type": "data", "value": base64.b64encode(noise(20_000)).decode(), "mimeType": "image/png"}
    content = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
    agent.messages = [{"id": "u1", "role": "user", "content": content}]
    model.will_say("Noise.")
    agent.take(agent.post())
    model.will_say("Bye.")
    agent.say("Thanks.")
    assert "MESSAGES_SNAPSHOT" not in agent.kinds
    assert agent.messages == agent.load()["messages"]
    assert source["value"] in json.dumps(model.payloads[-1])


def test_strange_messages_are_shown_and_gone_on_with(served: Any, rest: Rest, model: Scripted) -> None:
    odd = samples.assistant("Hi", toolCalls="c1")
    for number, message in enumerate([*samples.STRANGE, odd]):
        conversation = served.call(served.store.for_user("ann").create_conversation, model="m")
        served.call(conversation.add_input, [samples.user(id="u0"), message], "ag_ui")
        agent = Agent(rest.of("ann"), conversation.id)
        agent.take(agent.client.get(f"/ag-ui/{conversation.id}/stream"))
        assert agent.messages == [samples.user(id="u0"), message]
        agent.messages = []
        model.will_say("Well.", calls=True)
        assert agent.say(f"{number}?", tools=[LOOK])["type"] == "RUN_FINISHED"
        assert agent.messages == agent.load()["messages"]


ASKED: Json = {"threadId": THREAD, "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "Go on."}]}


async def begun(client: httpx2.AsyncClient) -> Json:
    """The thread, once it is being answered."""
    while True:
        found: Json = (await client.get(f"/ag-ui/{THREAD}")).json()
        if found.get("response_id") is not None:
            return found
        await asyncio.sleep(0.02)


def test_another_process_follows_a_run_from_its_beginning(served: Any) -> None:
    async def reload() -> None:
        gate = Gate()
        first, second = processes(served, gate)
        sending = asyncio.ensure_future(first.post("/ag-ui", json=ASKED))
        assert [one["id"] for one in (await begun(second))["messages"]] == ["u1"]
        more = {**ASKED, "messages": [*ASKED["messages"], {"id": "u2", "role": "user", "content": "Hello?"}]}
        assert "in progress" in (await second.post("/ag-ui", json=more)).json()["error"]["message"]
        following = asyncio.ensure_future(second.get(f"/ag-ui/{THREAD}/stream"))
        await asyncio.sleep(0.3)
        gate.event.set()
        agents = [Agent(httpx2.Client()) for _ in range(2)]
        agents[0].messages = [*ASKED["messages"]]
        ends = [agents[0].take(await sending), agents[1].take(await following)]
        loaded = (await second.get(f"/ag-ui/{THREAD}")).json()["messages"]
        assert agents[0].messages == agents[1].messages == loaded
        assert loaded[-1]["content"] == "One. Two."
        assert ends[0] == ends[1]

    served.runner.run(reload())


def test_another_process_stops_a_run(served: Any) -> None:
    async def stop() -> None:
        first, second = processes(served, Gate())
        sending = asyncio.ensure_future(first.post("/ag-ui", json=ASKED))
        await begun(second)
        assert (await second.post(f"/ag-ui/{THREAD}/stop")).json()["stopped"] is True
        agent = Agent(httpx2.Client())
        agent.messages = [*ASKED["messages"]]
        assert agent.take(await sending)["outcome"] == {"type": "cancelled"}
        loaded = (await second.get(f"/ag-ui/{THREAD}")).json()
        assert (loaded["response_id"], loaded["messages"]) == (None, agent.messages)
        assert agent.messages[-1]["content"] == "One. "

    served.runner.run(stop())


@any_upstream
def test_errors_end_a_run(agent: Agent, model: Scripted) -> None:
    model.scripts.append([UpstreamError(500, None, "Out of order.")])
    end = agent.say("First?")
    assert (end["type"], end["message"]) == ("RUN_ERROR", "Out of order.")
    model.scripts.append(
        [*script(model.format, ["A", "t ", "t", "e", "n"])[:4], UpstreamError(500, None, "Out of order.")]
    )
    end = agent.say("Second?")
    assert (end["type"], end["message"].startswith(("Out of order.", "The answer broke off."))) == ("RUN_ERROR", True)
    assert agent.messages == agent.load()["messages"]
    model.will_say("Well.")
    agent.say("Third?")
    assert agent.messages == agent.load()["messages"]
