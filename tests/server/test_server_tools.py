"""Tools of the application that run in the server, within an answer: rounds, approvals, stops, and other processes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import httpx2
import pytest
import uvicorn

from tests.databases import Database
from tests.ports import free_ports
from tests.processes import forked, pipe
from tests.server.scripts import FORMATS, Scripted, script
from tests.server.test_budgets import noted
from tests.server.test_chats import CHAT, LOOK, Page, texts
from tests.server.test_rest import Rest
from tests.server.test_runs import Agent
from tests.waiting import listens, wait_until
from threadkeep import AsyncStore, InvalidOption, ToolRegistry
from threadkeep.domain.call_kinds import LEFT_BEHIND
from threadkeep.http import Owner, Upstream, UpstreamError, rest_app, tool_context
from threadkeep.server.rest import tool_runs

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
HEAD: Json = {"id": "c1", "object": "chat.completion.chunk", "model": "gpt-5.4"}


def calls(*functions: str, text: str = "") -> list[Json]:
    """The events of an answer that calls functions, each written as ``name:call id``."""
    delta: Json = {"role": "assistant", **({"content": text} if text else {}), "tool_calls": []}
    for index, function in enumerate(functions):
        name, _, id_ = function.partition(":")
        arguments = json.dumps({"city": id_})
        delta["tool_calls"].append(
            {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        )
    choices: list[Json] = [{"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": "tool_calls"}]
    return [{**HEAD, "choices": [{"index": 0, **choice}]} for choice in choices]


def says(text: str) -> list[Json]:
    return script("chat_completion", [text])


class Application:
    """An application with tools, whose provider gives the next answer of a script."""

    def __init__(self) -> None:
        self.answers: list[list[Any]] = []
        self.payloads: list[Json] = []
        self.ran: list[str] = []
        self.users: list[Any] = []
        self.threads: set[int] = set()
        self.gate, self.entered = asyncio.Event(), asyncio.Event()
        self.release, self.began = threading.Event(), threading.Event()
        self.tools = ToolRegistry()
        for tool in (self.weather, self.time, self.book, self.fail, self.wait, self.block):
            self.tools.register(tool)
        self.upstream = Upstream("scripted", "chat_completion", self.ask)

    async def ask(self, payload: Json, _model: str) -> AsyncGenerator[Any]:
        self.payloads.append(payload)
        for event in self.answers.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event

    def weather(self, city: str) -> Json:
        """Say how the weather is."""
        self.threads.add(threading.get_ident())
        self._note(city)
        return {"rain": city}

    async def time(self, city: str) -> str:
        """Say what time it is."""
        self._note(city)
        return f"Ten in {city}."

    def book(self, city: str) -> str:
        """Book a trip."""
        self._note(city)
        return f"Booked {city}."

    def fail(self, city: str) -> str:
        """Fail."""
        self._note(city)
        raise next(iter([ValueError(f"No {city} on the map."), StopIteration("over")][city == "c2" :]))

    async def wait(self, city: str) -> str:
        """Wait for the gate."""
        self._note(city)
        self.entered.set()
        await self.gate.wait()
        return f"Waited in {city}."

    def block(self, city: str) -> str:
        """Block a thread."""
        self._note(city)
        self.began.set()
        self.release.wait(20)
        return f"Blocked in {city}."

    def _note(self, city: str) -> None:
        context = tool_context()
        self.ran.append(city)
        self.users.append((context.owner.user_id, context.conversation.user_id, context.call.call_id))

    def said(self, number: int = -1) -> list[Any]:
        """What the model was sent: texts, and outputs."""
        said = [one["content"] for one in self.payloads[number]["messages"] if one["role"] in ("user", "tool")]
        return [one if isinstance(one, str) else one[0]["text"] for one in said]

    def options(self, **more: Any) -> Json:
        return {"upstreams": {"m": self.upstream}, "tools": self.tools, "needs_approval": {"book"}, **more}


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def rest(served: Any, application: Application) -> Rest:
    return Rest(served, **application.options())


@pytest.fixture
def page(rest: Rest) -> Page:
    return ToolPage(rest.of("ann"))


class ToolPage(Page):
    """A page that goes on with its last message, as the reader of the SDK does."""

    def take(self, response: httpx2.Response) -> Json:
        assert response.status_code == 200, response.text
        assert response.text.endswith("data: [DONE]\n\n")
        last = self.messages[-1]
        self.messages = [*self.messages[: -1 if last["role"] == "assistant" else None], read(response.text, last)]
        return self.messages[-1]


def read(text: str, last: Json | None = None) -> Json:
    """What the reader of the SDK makes of a stream, and of the last message of its page."""
    message: Json = {"role": "assistant", "parts": []}
    for line in text.strip().split("\n\n")[:-1]:
        chunk = json.loads(line.removeprefix("data: "))
        if chunk["type"] == "start":
            message["id"] = chunk["messageId"]
            if last is not None and last["id"] == message["id"]:
                message = json.loads(json.dumps(last))
        else:
            take(message["parts"], chunk)
    return {key: message[key] for key in ("id", "role", "parts")}


def take(parts: list[Json], chunk: Json) -> None:
    kind = chunk["type"]
    if kind == "start-step":
        parts.append({"type": "step-start"})
    elif kind == "text-start":
        parts.append({"type": "text", "text": "", "state": "streaming"})
    elif kind == "text-delta":
        parts[-1]["text"] += chunk["delta"]
    elif kind == "text-end":
        parts[-1]["state"] = "done"
    elif kind == "tool-input-available":
        call = {"type": f"tool-{chunk['toolName']}", "toolCallId": chunk["toolCallId"], "state": "input-available"}
        parts.append({**call, "input": chunk["input"]})
    elif "toolCallId" in chunk and kind not in ("tool-input-start", "tool-input-delta"):
        [part] = [one for one in parts if one.get("toolCallId") == chunk["toolCallId"]]
        part |= {  # type: ignore[call-overload]
            "tool-output-available": {"state": "output-available", "output": chunk.get("output")},
            "tool-output-error": {"state": "output-error", "errorText": chunk.get("errorText")},
            "tool-output-denied": {"state": "output-denied"},
            "tool-approval-request": {"state": "approval-requested", "approval": {"id": chunk.get("approvalId")}},
        }[kind]


def without_approvals(message: Json) -> Json:
    """A message as a stream from its beginning makes it, in which an approval does not show once its call has run."""
    parts = [{key: value for key, value in part.items() if key != "approval"} for part in message["parts"]]
    return {**message, "parts": parts}


def chunk_types(text: str) -> list[str]:
    kinds = [json.loads(line.removeprefix("data: "))["type"] for line in text.strip().split("\n\n")[:-1]]
    return [kind for kind in kinds if not kind.endswith("-delta")]


def approved(message: Json, *, is_approved: bool = True) -> None:
    """Decide about all calls of a message that ask for it."""
    for part in message["parts"]:
        if part.get("state") == "approval-requested":
            part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": is_approved}}


# Rounds


def test_tools_run_within_the_answer_until_the_model_has_answered(page: Page, application: Application) -> None:
    application.answers = [calls("weather:c1", "time:c2", text="Let me see."), calls("weather:c3"), says("It rains.")]
    page.messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Weather?"}]}]
    response = page.post()
    assert chunk_types(response.text) == [
        "start", "start-step", "text-start", "text-end", "tool-input-start", "tool-input-available", "tool-input-start",
        "tool-input-available", "tool-output-available", "tool-output-available", "finish-step",
        "start-step", "tool-input-start", "tool-input-available", "tool-output-available", "finish-step",
        "start-step", "text-start", "text-end", "finish-step", "finish",
    ]  # fmt: skip
    answer = page.take(response)
    assert page.load()["messages"] == page.messages
    assert [part.get("output") for part in answer["parts"] if "output" in part] == [
        {"rain": "c1"}, "Ten in c2.", {"rain": "c3"},
    ]  # fmt: skip
    assert application.ran == ["c1", "c2", "c3"]
    assert application.users == [("ann", "ann", id_) for id_ in application.ran]
    assert application.said() == ["Weather?", '{"rain":"c1"}', "Ten in c2.", '{"rain":"c3"}']
    assert [tool["function"]["name"] for tool in application.payloads[0]["tools"]][:2] == ["weather", "time"]
    assert threading.get_ident() not in application.threads, "functions that are no coroutines run in threads"
    assert page.client.get("/usage").json()["data"][0]["attempts"] == 3, "a row in the ledger for each call"


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("face", ["chat", "ag-ui"])
def test_tools_run_over_any_upstream(served: Any, application: Application, format_name: str, face: str) -> None:
    model = Scripted(format_name)
    application.tools.register("look", parameters=SCHEMA, handler=application.weather)
    client = Rest(served, **application.options(upstreams={"m": model.upstream})).of("ann")
    model.will_say("Let me see.", calls=True)
    model.will_say("It rains.")
    shown: Any = ToolPage(client) if face == "chat" else Agent(client)
    shown.say("Weather?", *([1] if face == "chat" else []))
    assert shown.load()["messages"] == shown.messages
    assert (application.ran, len(model.payloads)) == (["Paris"], 2)
    assert "rain" in json.dumps(model.payloads[-1])


def failures(served: Any) -> dict[str, int]:
    """How many calls of each tool count as failed."""
    return {row.name: row.failed for row in served.call(served.store.for_user("ann").tool_usage)}


def test_a_tool_that_raises_is_an_output_that_failed(served: Any, page: Page, application: Application) -> None:
    application.answers = [calls("fail:c1", "fail:c2", "weather:c3"), says("Well.")]
    answer = page.say("Map?", 1)
    found = {part["toolCallId"]: part.get("errorText") for part in answer["parts"] if "toolCallId" in part}
    assert found == {"c1": "No c1 on the map.", "c2": "over", "c3": None}
    assert page.load()["messages"] == page.messages
    bad = calls("weather:c4")
    bad[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = '{"town": 1}'
    application.answers = [bad, says("Sorry.")]
    answer = page.say("And?", 2)
    assert "city" in answer["parts"][1]["errorText"]
    assert application.ran == ["c1", "c2", "c3"]
    assert failures(served) == {"fail": 2, "weather": 1}


@pytest.mark.parametrize("others", [(), ("time:c1",)])
def test_a_call_of_a_tool_that_there_is_not_has_an_output_that_says_so(
    page: Page, application: Application, others: tuple[str, ...]
) -> None:
    application.answers = [calls("dance:d1", *others), says("Sorry.")]
    answer = page.say("Dance.", 1, tools=[LOOK])
    assert answer["parts"][1]["errorText"] == "There is no tool named 'dance'."
    assert page.load()["messages"] == page.messages
    assert application.said() == ["Dance.", "There is no tool named 'dance'.", *(["Ten in c1."] if others else [])]


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "input_text"}, "item.output[0].text is missing"),
        ({"type": "input_image", "image_url": "data:image/png;base64,!"}, "does not contain base64"),
    ],
)
def test_an_output_that_cannot_be_stored_is_one_that_failed(
    page: Page, application: Application, part: Json, problem: str
) -> None:
    """The call would run again otherwise, whenever the page is sent."""

    def draw(city: str) -> list[Json]:
        application.ran.append(city)
        return [part]

    application.tools.register("draw", parameters=SCHEMA, handler=draw)
    application.answers = [calls("draw:c1"), says("Sorry.")]
    answer = page.say("Draw.", 1)
    assert (answer["parts"][1]["state"], problem in answer["parts"][1]["errorText"]) == ("output-error", True)
    assert page.load()["messages"] == page.messages
    assert (application.ran, texts(page.messages)[-1]) == (["c1"], "Sorry.")


def test_rounds_have_a_limit_after_which_a_page_goes_on(served: Any, application: Application) -> None:
    page = ToolPage(Rest(served, **application.options(max_rounds=2)).of("ann"))
    application.answers = [calls("time:c1"), calls("time:c2"), says("Done.")]
    page.say("Time?", 1)
    assert (len(application.payloads), application.ran) == (2, ["c1", "c2"])
    assert page.load()["messages"] == page.messages
    page.take(page.post())
    assert texts(page.load()["messages"]) == ["Time?", "Done."]
    assert page.load()["messages"] == page.messages


def test_a_round_that_failed_is_asked_for_again_without_its_tools(page: Page, application: Application) -> None:
    refused = UpstreamError(500, None, "Overloaded")
    application.answers = [calls("time:c1"), [refused], says("Done.")]
    page.messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Time?"}]}]
    response = page.post()
    assert "Overloaded" in response.text
    page.messages = page.load()["messages"]
    page.take(page.post())
    assert texts(page.load()["messages"]) == ["Time?", "Done."]
    assert application.ran == ["c1"]


@pytest.mark.parametrize("face", ["chat", "ag-ui"])
def test_a_round_takes_a_few_statements(served: Any, application: Application, database: Database, face: str) -> None:
    """Of its own, apart from those of an answer: one transaction reads what waits, and one stores each output."""
    client, taken = Rest(served, **application.options()).of("ann"), list[tuple[int, int]]()
    for rounds in (1, 1, 2):
        application.answers = [*(calls(f"time:c{number}") for number in range(rounds)), says("Ten.")]
        message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Time?"}], "content": "Time?"}
        ids = {"id": str(len(taken)), "threadId": str(len(taken)), "runId": "r"}
        keys = ("id", "messages") if face == "chat" else ("threadId", "runId", "messages")
        said = [{key: message[key] for key in message if key != ("content" if face == "chat" else "parts")}]
        body = {key: {**ids, "messages": said}[key] for key in keys}
        with noted(served._store) as (begun, executed):
            assert client.post(f"/{face}", json=body).status_code == 200
        taken.append((len(begun), len(executed)))
    round_ = taken[2][0] - taken[1][0], taken[2][1] - taken[1][1]
    if database.kind == "sqlite":
        assert round_ == (5, 40), "\n".join(executed)
    else:
        assert (round_[0] <= 8, round_[1] <= 52) == (True, True), "\n".join(executed)


# The client's tools, and approvals


def test_tools_of_the_page_and_of_the_server_in_one_answer(page: Page, application: Application) -> None:
    application.answers = [calls("look:p1", "time:c1", text="Both."), says("Done.")]
    answer = page.say("Time?", 1, tools=[LOOK])
    states = [(part["toolCallId"], part["state"]) for part in answer["parts"] if "toolCallId" in part]
    assert states == [("p1", "input-available"), ("c1", "output-available")]
    assert page.load()["messages"] == page.messages
    assert len(application.payloads) == 1
    answer["parts"][2] |= {"state": "output-available", "output": "seen"}
    page.take(page.post())
    assert application.said() == ["Time?", "Ten in c1.", "seen"]
    own = {**LOOK, "name": "time"}
    more = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "?"}]}
    page.messages.append(more)
    assert "runs in the server" in page.refusal(page.post(tools=[own]), 400)


def test_a_call_runs_once_it_is_approved(page: Page, application: Application) -> None:
    application.answers = [calls("book:b1", "time:c1"), says("Booked.")]
    answer = page.say("Book it.", 1)
    assert [part["state"] for part in answer["parts"][1:]] == ["approval-requested", "output-available"]
    assert (page.load()["messages"], application.ran) == (page.messages, ["c1"])
    forged = json.loads(json.dumps(answer))
    forged["parts"][1] |= {"state": "approval-responded", "approval": {"id": "other", "approved": True}}
    page.messages = [page.messages[0], forged]
    assert "was asked for" in page.refusal(page.post())
    page.messages = [page.messages[0], answer]
    approved(answer)
    sent = [*page.messages]
    response = page.post()
    assert chunk_types(response.text)[:4] == ["start", "tool-output-available", "finish-step", "start-step"]
    page.take(response)
    assert application.ran == ["c1", "b1"]
    loaded = page.load()["messages"]
    assert loaded == page.messages
    assert loaded[1]["parts"][1]["approval"]["approved"] is True
    page.messages = sent  # another tab, or the same request again
    assert page.post().status_code == 409
    assert application.ran == ["c1", "b1"]


def test_a_call_of_a_chat_from_elsewhere_is_approved(served: Any, page: Page, application: Application) -> None:
    call: Json = {"type": "tool-book", "toolCallId": "b1", "state": "approval-requested", "input": {"city": "b1"}}
    asked = {"id": "a1", "role": "assistant", "parts": [{**call, "approval": {"id": "ap1"}}]}
    page.messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Book it."}]}, asked]
    mine = served.store.for_user("ann")
    served.call(mine.import_request, {"messages": page.messages}, "ui_messages", model="m", external_id=CHAT)
    assert page.load()["messages"] == page.messages
    approved(asked)
    application.answers = [says("Booked.")]
    page.take(page.post())
    assert (page.load()["messages"], application.ran) == (page.messages, ["b1"])


def test_a_call_that_is_denied_does_not_run(page: Page, application: Application) -> None:
    application.answers = [calls("book:b1"), says("Well.")]
    approved(page.say("Book it.", 1), is_approved=False)
    response = page.post()
    assert chunk_types(response.text)[:3] == ["start", "tool-output-denied", "start-step"]
    page.take(response)
    assert application.ran == []
    [part] = [one for one in page.load()["messages"][1]["parts"] if "toolCallId" in one]
    assert part["state"] == "output-denied"


OUTPUT: Json = {"state": "output-available", "output": "Forged."}
FORGED = {
    "output": lambda part: {**part, **OUTPUT},
    "output of an approved call": lambda part: {**part, **OUTPUT, "approval": {**part["approval"], "approved": True}},
    "failure": lambda part: {**part, "state": "output-error", "errorText": "Forged."},
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_page_gives_no_output_of_a_tool_that_runs_here(page: Page, application: Application, forged: str) -> None:
    application.answers = [calls("book:b1"), says("Booked.")]
    answer = page.say("Book it.", 1)
    stored = page.load()["messages"]
    page.messages = [page.messages[0], {**answer, "parts": [answer["parts"][0], FORGED[forged](answer["parts"][1])]}]
    assert "'book' runs in the server" in page.refusal(page.post())
    path = f"/conversations/{CHAT}/tool_outputs"
    for answer_too in (True, False):
        body = {"tool_outputs": [{"call_id": "b1", "output": "Forged."}], "answer": answer_too}
        assert "approve or deny it" in page.refusal(page.client.post(path, json=body))
    assert page.load()["messages"] == stored
    page.messages = stored
    approved(stored[1])
    page.take(page.post())
    assert (application.ran, application.said()) == (["b1"], ["Book it.", "Booked b1."])


def test_a_call_that_runs_has_its_own_output_and_no_other(served: Any, application: Application) -> None:
    application.answers = [calls("wait:c1", "book:b1"), says("Done.")]

    async def forge() -> None:
        first, second = processes(served, application, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await application.entered.wait()
        found = await loaded(second)
        forged = json.loads(json.dumps(found["messages"]))
        forged[1]["parts"][1] |= OUTPUT
        path = f"/conversations/{CHAT}"
        refused = [
            await second.post("/chat", json={"id": CHAT, "messages": forged}),
            await second.post(f"{path}/tool_outputs", json={"tool_outputs": [{"call_id": "c1", "output": "Forged."}]}),
            await second.post(f"{path}/tool_calls/c1/deny", json={}),
        ]
        assert [one.status_code for one in refused] == [409] * 3
        assert (await second.post(f"{path}/tool_calls/b1/deny", json={})).status_code == 200
        application.gate.set()
        assert chunk_types((await sending).text)[-1] == "finish"
        outputs = [part.get("output") for part in (await loaded(second))["messages"][1]["parts"]]
        assert outputs == [None, "Waited in c1.", None, None, None]

    served.runner.run(forge())


def test_a_call_that_the_chat_has_left_behind_is_not_approved(page: Page, application: Application) -> None:
    application.answers = [calls("book:b1"), says("Fine.")]
    page.say("Book it.", 1)
    page.say("Never mind.", 2)
    left = page.load()["messages"][1]["parts"][1]
    assert (left["state"], left["errorText"]) == ("output-error", LEFT_BEHIND)
    text = page.refusal(page.client.post(f"/conversations/{CHAT}/tool_calls/b1/approve"))
    assert "After a new message of the user" in text
    assert application.ran == []
    thread = page.client.get(f"/ag-ui/{CHAT}").json()["messages"]
    assert [one["error"] for one in thread if one["role"] == "tool"] == [LEFT_BEHIND]
    assert "Tool result missing" in json.dumps(application.payloads[-1]), "models read what they know"


def test_approvals_may_depend_on_the_call(served: Any, application: Application) -> None:
    options = application.options(needs_approval=lambda call: call.arguments["city"] == "c2")
    page = ToolPage(Rest(served, **options).of("ann"))
    application.answers = [calls("time:c1", "time:c2")]
    answer = page.say("Time?", 1)
    assert [part["state"] for part in answer["parts"][1:]] == ["output-available", "approval-requested"]


# Other processes


def process(served: Any, application: Application, **options: Any) -> tuple[Any, httpx2.AsyncClient]:
    """An application of its own, as a process has it, and a client of it."""
    made = rest_app(served._store, auth=served.authenticate, **application.options(**options))
    headers, transport = {"Authorization": "Bearer ann"}, httpx2.ASGITransport(app=made)
    return made, httpx2.AsyncClient(transport=transport, base_url="http://localhost/api", headers=headers, timeout=30)


def processes(served: Any, *applications: Application) -> list[httpx2.AsyncClient]:
    return [process(served, one)[1] for one in applications]


ASKED: Json = {"id": CHAT, "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Go on."}]}]}


async def loaded(client: httpx2.AsyncClient) -> Json:
    found: Json = (await client.get(f"/chat/{CHAT}")).json()
    return found


def test_another_process_follows_all_rounds_while_tools_run(served: Any, application: Application) -> None:
    application.answers = [calls("time:c1", text="One. "), calls("wait:c2"), says("Two.")]

    async def follow() -> None:
        first, second = processes(served, application, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await application.entered.wait()
        found = await loaded(second)
        assert found["response_id"] is not None, "the answer is in progress while tools run"
        following = asyncio.ensure_future(second.get(f"/chat/{CHAT}/stream"))
        again = {"id": CHAT, "messages": found["messages"]}
        more = {"id": CHAT, "messages": [{"id": "u2", "role": "user", "parts": [{"type": "text", "text": "?"}]}]}
        for body in (again, more):
            refused = await second.post("/chat", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "answer_in_progress")
        await asyncio.sleep(0.2)
        with noted(served._store) as (_, executed):
            await asyncio.sleep(0.5)
        assert not any("threadkeep_items" in one for one in executed), "who follows reads nothing twice"
        application.gate.set()
        streams = [(await sending).text, (await following).text]
        stored = (await loaded(second))["messages"]
        assert [read(text) for text in streams] == [stored[1], stored[1]]
        assert (application.ran, texts(stored)) == (["c1", "c2"], ["Go on.", "One. ", "Two."])
        assert (await second.get(f"/chat/{CHAT}/stream")).status_code == 204

    served.runner.run(follow())


def test_tools_and_answers_go_on_when_the_page_leaves(served: Any, application: Application) -> None:
    application.answers = [calls("wait:c1"), calls("time:c2"), says("Done.")]

    async def leave() -> None:
        [client] = processes(served, application)
        sending = asyncio.ensure_future(client.post("/chat", json=ASKED))
        await application.entered.wait()
        sending.cancel()
        await asyncio.wait([sending])
        application.gate.set()
        await wait_for(lambda: ended(client))
        assert texts((await loaded(client))["messages"]) == ["Go on.", "Done."]
        assert application.ran == ["c1", "c2"]

    served.runner.run(leave())


@pytest.mark.parametrize("tool", ["wait", "block"])
def test_another_process_stops_tools(served: Any, application: Application, tool: str) -> None:
    application.answers = [calls(f"{tool}:c1", "time:c2"), says("Never."), says("Bye.")]

    async def stop() -> None:
        first, second = processes(served, application, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await (application.entered.wait() if tool == "wait" else asyncio.to_thread(application.began.wait))
        assert (await second.post(f"/chat/{CHAT}/stop")).json()["stopped"] is True
        text = (await sending).text
        assert chunk_types(text)[-1] == "abort"
        found = await loaded(second)
        assert found["response_id"] is None
        assert [part.get("errorText") for part in found["messages"][1]["parts"]] == [None, tool_runs.STOPPED, None]
        assert (application.ran, len(application.payloads)) == (["c1"], 1)
        application.release.set()

    served.runner.run(stop())
    assert failures(served) == {tool: 0, "time": 0}


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "kept"])
def test_before_each_further_call_it_is_looked_at_whether_tools_may_go_on(
    served: Any, application: Application, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """However little time each of them takes: none begins after a stop, and the lease does not end before they do."""
    monkeypatch.setattr(tool_runs, "CHECK_SECONDS", 60)
    monkeypatch.setattr(tool_runs, "RENEWAL_SECONDS", 0)
    application.answers = [calls("wait:c1", "look:c2"), says("Done.")]
    seen = list[Json]()

    async def kept() -> Json:
        [conversation] = (await served.store.list_conversations()).items
        found: Json = (await conversation.state(tool_runs.RUNNING)).value
        return found

    async def has_stop() -> bool:
        return "stopped" in await kept()

    async def look(city: str) -> str:
        application.ran.append(city)
        seen.append(await kept())
        return city

    application.tools.register("look", parameters=SCHEMA, handler=look)

    async def go_on() -> None:
        first, second = processes(served, application, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await application.entered.wait()
        seen.append(await kept())
        if is_stopped:
            stopping = asyncio.ensure_future(second.post(f"/chat/{CHAT}/stop"))
            await wait_for(has_stop)
        application.gate.set()
        end = chunk_types((await sending).text)[-1]
        if is_stopped:
            assert (await stopping).json()["stopped"] is True
            assert (application.ran, len(application.payloads), end) == (["c1"], 1, "abort")
        else:
            assert (application.ran, len(application.payloads), end) == (["c1", "c2"], 2, "finish")
            assert seen[1]["until"] > seen[0]["until"]

    served.runner.run(go_on())


def test_no_client_takes_a_conversation_from_its_tools(served: Any, application: Application) -> None:
    """A call would run twice, with what it does."""
    application.answers = [calls("wait:c1"), says("Done.")]

    async def take() -> None:
        first, second = processes(served, application, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await application.entered.wait()
        [conversation] = (await served.store.list_conversations()).items
        state = f"/conversations/{conversation.id}/states/{tool_runs.RUNNING}"
        assert (await second.get(state)).status_code == 200
        for refused in (await second.delete(state), await second.put(state, json={"value": {}})):
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
        again = {"id": CHAT, "messages": (await loaded(second))["messages"]}
        assert (await second.post("/chat", json=again)).status_code == 409
        application.gate.set()
        await sending
        assert application.ran == ["c1"]

    served.runner.run(take())


def test_who_follows_is_asked_for_approvals_and_sees_the_stop(served: Any, application: Application) -> None:
    application.answers = [calls("wait:c1", "book:b1"), calls("wait:c2", text="Again."), says("Never.")]

    async def follow() -> None:
        first, second = processes(served, application, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await application.entered.wait()
        following = asyncio.ensure_future(second.get(f"/chat/{CHAT}/stream"))
        await asyncio.sleep(0.3)
        application.gate.set()
        stored, message = (await loaded(second))["messages"], read((await following).text)
        assert [part["state"] for part in message["parts"][1:]] == ["output-available", "approval-requested"]
        assert message == read((await sending).text) == (await loaded(second))["messages"][1]

        application.gate.clear()
        application.entered.clear()
        said = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "And?"}]}
        sending = asyncio.ensure_future(first.post("/chat", json={"id": CHAT, "messages": [*stored, message, said]}))
        await application.entered.wait()
        following = asyncio.ensure_future(second.get(f"/chat/{CHAT}/stream"))
        await asyncio.sleep(0.3)
        assert (await second.post(f"/chat/{CHAT}/stop")).json()["stopped"] is True
        assert [chunk_types(text)[-1] for text in ((await sending).text, (await following).text)] == ["abort"] * 2

    served.runner.run(follow())


def test_two_tabs_run_an_approved_call_once(served: Any, application: Application) -> None:
    application.answers = [calls("wait:c1"), says("Done.")]
    _, client = process(served, application, needs_approval={"wait"})

    async def decide() -> None:
        message = read((await client.post("/chat", json=ASKED)).text)
        approved(message)
        body = {"id": CHAT, "messages": [*ASKED["messages"], message]}
        tabs = [asyncio.ensure_future(client.post("/chat", json=body)) for _ in range(3)]
        await application.entered.wait()
        following = asyncio.ensure_future(client.get(f"/chat/{CHAT}/stream"))
        await asyncio.sleep(0.3)
        application.gate.set()
        answers = [await tab for tab in tabs]
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
        stored = (await loaded(client))["messages"]
        assert read((await following).text) == without_approvals(stored[1])
        assert application.ran == ["c1"]

    served.runner.run(decide())


def test_a_killed_process_leaves_calls_with_which_another_goes_on(
    served: Any, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_runs, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(tool_runs, "RENEWAL_SECONDS", 60)
    hanging, application.answers = Application(), [says("Done.")]
    hanging.answers = [calls("wait:c1"), says("Never.")]
    application.gate.set()

    async def kill() -> None:
        first, second = processes(served, hanging, application)
        sending = asyncio.ensure_future(first.post("/chat", json=ASKED))
        await hanging.entered.wait()
        await wait_for(lambda: ended(second))  # its lease runs out
        found = await loaded(second)
        assert found["messages"][1]["parts"][1]["state"] == "input-available"
        going_on = await second.post("/chat", json={"id": CHAT, "messages": found["messages"]})
        assert going_on.status_code == 200, going_on.text
        stored = (await loaded(second))["messages"]
        assert read(going_on.text, found["messages"][1]) == stored[1]
        assert texts(stored) == ["Go on.", "Done."]
        hanging.gate.set()  # it was not dead after all
        await sending
        assert (await loaded(second))["messages"] == stored
        assert (hanging.ran, application.ran, len(hanging.payloads)) == (["c1"], ["c1"], 1)

    served.runner.run(kill())


async def ended(client: httpx2.AsyncClient) -> bool:
    return (await loaded(client))["response_id"] is None


async def wait_for(check: Callable[[], Awaitable[bool]]) -> None:
    while not await check():  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.1)


def blocking_process(url: str, tenant: str, port: int, began: Connection) -> None:
    """A server with a tool that does not end."""
    application = Application()
    application.answers = [calls("weather:c1", "hang:c2")]

    def hang(city: str) -> None:
        began.send(city)
        threading.Event().wait()

    application.tools.register(hang)
    tool_runs.LEASE_SECONDS = 1.0  # type: ignore[misc]
    tool_runs.RENEWAL_SECONDS = 0.0  # type: ignore[misc]
    made = rest_app(
        AsyncStore(url, tenants=True), auth=lambda _: Owner(user_id="ann", tenant=tenant), **application.options()
    )
    uvicorn.run(made, host="127.0.0.1", port=port, log_level="critical")


@pytest.mark.slow
def test_what_a_server_that_was_killed_has_run_is_not_run_again(
    served: Any, database: Database, application: Application
) -> None:
    """The tool in which it was killed is: it can know its call."""
    (receiver, sender), [port] = pipe(), free_ports(1)
    server = forked(blocking_process, database.url, served.tenant, port, sender)
    wait_until(lambda: listens(port), server.is_alive)

    def ask() -> None:
        with suppress(httpx2.HTTPError):
            httpx2.post(f"http://127.0.0.1:{port}/api/chat", json=ASKED, timeout=60)

    threading.Thread(target=ask, daemon=True).start()
    assert receiver.recv() == "c2"
    page = ToolPage(Rest(served, **application.options()).of("ann"))
    assert page.load()["response_id"] is not None
    server.kill()
    server.join(30)
    wait_until(lambda: page.load()["response_id"] is None, page.load)
    page.messages = page.load()["messages"]
    assert [part["state"] for part in page.messages[1]["parts"][1:]] == ["output-available", "input-available"]
    application.tools.register("hang", parameters=SCHEMA, handler=application.time)
    application.answers = [says("Done.")]
    page.take(page.post())
    assert (page.load()["messages"], application.ran) == (page.messages, ["c2"])
    assert page.client.get("/usage").json()["data"][0]["attempts"] == 2


@pytest.mark.parametrize("tool", ["wait", "block"])
def test_a_server_that_stops_gives_the_conversation_free(served: Any, application: Application, tool: str) -> None:
    """A function in a thread ends, and its output is stored; a coroutine runs again."""
    application.answers = [calls(f"{tool}:c1"), says("Done.")]

    async def close() -> None:
        made, client = process(served, application)
        sending = asyncio.ensure_future(client.post("/chat", json=ASKED))
        await (application.entered.wait() if tool == "wait" else asyncio.to_thread(application.began.wait))
        closing = asyncio.ensure_future(made.state.stop())
        await asyncio.sleep(0.1)
        application.release.set()
        await closing
        assert "stopping" in (await sending).text
        [second] = processes(served, application)
        found = await loaded(second)
        assert found["response_id"] is None
        application.gate.set()
        await second.post("/chat", json={"id": CHAT, "messages": found["messages"]})
        assert texts((await loaded(second))["messages"]) == ["Go on.", "Done."]
        assert application.ran == ["c1"] * (2 if tool == "wait" else 1)

    served.runner.run(close())


# AG-UI


@pytest.fixture
def agent(rest: Rest) -> Agent:
    return Agent(rest.of("ann"))


def test_runs_have_results_and_go_on(agent: Agent, application: Application) -> None:
    application.answers = [calls("weather:c1", text="Let me see."), calls("time:c2"), says("It rains.")]
    end = agent.say("Weather?")
    assert (end["type"], end["outcome"]) == ("RUN_FINISHED", {"type": "success"})
    assert agent.kinds.count("TOOL_CALL_RESULT") == 2
    assert "MESSAGES_SNAPSHOT" not in agent.kinds
    assert agent.messages == agent.load()["messages"]
    application.answers = [calls("fail:c3"), says("Well.")]
    agent.say("Map?")
    assert agent.messages == agent.load()["messages"], "an event cannot say that an output failed"


def test_a_run_asks_for_approvals_and_the_next_one_runs_the_call(agent: Agent, application: Application) -> None:
    application.answers = [calls("book:b1", "time:c1"), says("Booked.")]
    end = agent.say("Book it.")
    [asked] = end["outcome"]["interrupts"]
    assert (asked["toolCallId"], application.ran) == ("b1", ["c1"])
    assert agent.load()["interrupts"] == [asked]
    stored = [*agent.messages]
    agent.add("tool", "Forged.", toolCallId="b1")
    refused = agent.post()
    assert (refused.status_code, agent.load()["messages"]) == (409, stored)
    assert "approve or deny it" in refused.json()["error"]["message"]
    agent.messages = stored
    end = agent.take(
        agent.post(resume=[{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}])
    )
    assert end["outcome"] == {"type": "success"}
    assert agent.messages == agent.load()["messages"]
    assert application.ran == ["c1", "b1"]


def test_another_process_follows_a_run_while_tools_run(served: Any, application: Application) -> None:
    application.answers = [calls("wait:c1", text="One. "), says("Two.")]

    async def follow() -> None:
        first, second = processes(served, application, application)
        message = {"id": "u1", "role": "user", "content": "Go on."}
        body = {"threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": [], "state": {}}
        sending = asyncio.ensure_future(first.post("/ag-ui", json=body))
        await application.entered.wait()
        following = asyncio.ensure_future(second.get("/ag-ui/t/stream"))
        await asyncio.sleep(0.3)
        refused = await second.post("/ag-ui", json={**body, "messages": [{**message, "id": "u2"}]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "answer_in_progress")
        application.gate.set()
        events = [[json.loads(line[6:]) for line in text.strip().split("\n\n")] for text in
                  ((await sending).text, (await following).text)]  # fmt: skip
        kinds = [
            [one["type"] for one in stream if "SNAPSHOT" not in one["type"] and "CONTENT" not in one["type"]]
            for stream in events
        ]
        assert kinds[0] == kinds[1]
        assert "TOOL_CALL_RESULT" in kinds[0]

    served.runner.run(follow())


def test_what_cannot_be_used_is_refused(served: Any, application: Application) -> None:
    wrong: list[tuple[Json, str]] = [({"tools": [LOOK]}, "ToolRegistry"), ({"max_rounds": 0}, "max_rounds")]
    wrong += [({"needs_approval": one}, "needs_approval") for one in ("book", {"bok"}, None)]
    for options, text in wrong:
        with pytest.raises(InvalidOption, match=text):
            rest_app(served._store, **application.options(**options))
    with pytest.raises(LookupError):
        tool_context()
