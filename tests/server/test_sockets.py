"""The Responses API over a WebSocket: OpenAI's own client connects, and each answer is that of a `POST /responses`."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import reduce
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import openai
import pytest
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.scripts import FORMATS, Scripted
from tests.server.servers import running
from tests.server.test_creation import TOOL
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.http import Owner, Upstream, UpstreamError, app
from threadkeep.server.connections import Patience, protocol, socket_protocol
from threadkeep.server.limits import Limits
from threadkeep.server.openai import sockets
from threadkeep.server.quotas import Quota
from threadkeep.server.site import site
from threadkeep.server.socket_history import RememberedResponse, SocketHistory

EVENT: Any = TypeAdapter(ResponsesServerEvent)
USERS = {"Bearer key-of-ann": "ann", "Bearer key-of-ben": "ben"}


def who_calls(request: Any) -> Owner | None:
    name = USERS.get(request.headers.get("authorization", ""))
    return None if name is None else Owner(user_id=name)


class Serving:
    """A server with scripted upstreams, and what it stores."""

    def __init__(self, folder: Path) -> None:
        self.database = f"sqlite:///{folder}/chat.db"
        self.scripted = {name: Scripted(name) for name in FORMATS}
        self.url = ""
        self.service: Any = None

    @property
    def store(self) -> Store:
        return Store(self.database)

    def app(self, upstreams: Any = None, **options: Any) -> tuple[Any, AsyncStore]:
        mine = AsyncStore(self.database)
        upstreams = upstreams or {name: one.upstream for name, one in self.scripted.items()}
        made = app(mine, auth=who_calls, prefix="", upstreams=upstreams, **options)
        self.service = made.state.service
        return made, mine


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a server as `threadkeep serve` does."""
    with ExitStack() as stack:

        def serve(limits: Limits | None = None, **options: Any) -> Serving:
            serving = Serving(tmp_path)
            made, mine = serving.app(**options)
            whole = site({"/v1": made}, store=mine, limits=limits)
            patience = Patience(100)
            protocols: Any = {"parser": protocol(patience), "ws": socket_protocol(patience)}
            serving.url = stack.enter_context(running(whole, mine, **protocols)) + "/v1"
            return serving

        yield serve


@pytest.fixture
def serving(start: Callable[..., Serving]) -> Serving:
    return start()


class Talk:
    """A connection of OpenAI's client, whose types judge what comes."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def ask(self, **body: Any) -> Any:
        """The last event of the answer to one request."""
        await self.send(**body)
        return (await self.answer())[-1]

    async def send(self, **body: Any) -> None:
        await self.connection.send({"type": "response.create", **body})

    async def answer(self) -> list[Any]:
        """The events up to the end of an answer."""
        events: list[Any] = []
        while not events or events[-1].type not in sockets._ENDS:
            events.append(EVENT.validate_json(await self.connection.recv_bytes()))
        return events


@asynccontextmanager
async def talking(serving: Serving, user: str = "ann", **options: Any) -> AsyncIterator[Talk]:
    client = openai.AsyncOpenAI(base_url=serving.url, api_key=f"key-of-{user}")
    async with client, client.responses.connect(**options) as connection:
        yield Talk(connection)


def run(serving: Serving, work: Callable[[Talk], Awaitable[Any]], **options: Any) -> Any:
    async def inside() -> Any:
        async with talking(serving, **options) as talk:
            return await work(talk)

    return asyncio.run(inside())


def texts_in(payload: Any) -> list[str]:
    """The texts of a request in Chat Completions."""
    contents = [message["content"] for message in payload["messages"]]
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


def test_a_message_after_its_user_was_erased_is_not_stored(serving: Serving) -> None:
    """However it is asked for: the connection began before. A new one goes on."""
    upstream = serving.scripted["chat_completion"]

    async def work(talk: Talk) -> None:
        upstream.will_say("Sunny.")
        await talk.ask(model=upstream.format, input="Weather?")
        serving.store.erase_user("ann", vacuum=False)
        refused = await talk.ask(model=upstream.format, input="And now?")
        assert (refused.type, refused.error.code, len(upstream.payloads)) == ("error", "not_found", 1)
        upstream.will_say("Rainy.")
        found = await talk.ask(model=upstream.format, input="And now?", store=False)
        assert found.type == "response.completed"
        assert [row.user_id for row in serving.store.usage(by=("user_id",))] == [None]

    run(serving, work)
    assert serving.store.list_conversations().items == []
    upstream.will_say("Sunny.")
    run(serving, lambda talk: talk.ask(model=upstream.format, input="Weather?"))
    assert [one.user_id for one in serving.store.list_conversations()] == ["ann"]


@pytest.mark.parametrize("store", [True, False])
def test_a_tool_loop_sends_only_what_is_new(serving: Serving, *, store: bool) -> None:
    """Over every upstream, and with `store: false`, too: then only the connection knows what was said."""

    async def work(talk: Talk) -> None:
        for format_, upstream in serving.scripted.items():
            upstream.will_say("Let me ", "see.", calls=True)
            upstream.will_say("It rains.")
            asked: Any = {"model": format_, "tools": [TOOL], "store": store}
            first = (await talk.ask(input="Weather?", **asked)).response
            assert (first.status, first.store, first.usage.total_tokens) == ("completed", store, 18), format_
            output = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
            second = (await talk.ask(input=[output], previous_response_id=first.id, **asked)).response
            assert second.output[0].content[0].text == "It rains.", format_
            sent = str(upstream.payloads[-1])
            assert [sent.count(text) for text in ("Weather?", "Let me see.", "Rain.")] == [1, 1, 1], format_

    run(serving, work)
    with serving.store as kept:
        found = kept.list_conversations().items
        counts = [len(kept.get_conversation(one.id).items().items) for one in found]
        assert counts == [5] * len(FORMATS) * store
        rows = kept.usage(by=("provider", "user_id"))
        assert [(row.user_id, row.attempts, row.total_tokens) for row in rows] == [("ann", 2, 36)] * len(FORMATS)


def test_the_events_are_those_of_a_stream(serving: Serving) -> None:
    upstream = serving.scripted["messages"]
    upstream.will_say("At ", "ten.")
    upstream.will_say("At ", "ten.")
    client = openai.OpenAI(base_url=serving.url, api_key="key-of-ann")
    over_http: list[Any] = [
        event.type for event in client.responses.create(model="messages", input="When?", stream=True)
    ]

    async def work(talk: Talk) -> Any:
        await talk.send(model="messages", input="When?", presence_penalty=0.5, frobnicate=True)
        return await talk.answer()

    events = run(serving, work)
    assert [event.type for event in events] == over_http
    assert events[0].headers["x-threadkeep-losses"].count("frobnicate") == 1


def test_a_warm_up_is_remembered_and_asks_nobody(serving: Serving) -> None:
    upstream = serving.scripted["chat_completion"]
    asked: Any = {"model": "chat_completion", "store": False}

    async def work(talk: Talk) -> Any:
        said = [{"type": "message", "role": "developer", "content": "Be brief."}]
        warm = (await talk.ask(input=said, generate=False, **asked)).response
        assert (warm.status, warm.output, warm.usage) == ("completed", [], None)
        assert upstream.payloads == []
        upstream.will_say("Ten.")
        first = await talk.ask(input="When?", previous_response_id=warm.id, **asked)
        upstream.will_say("Eleven.")
        await talk.ask(input="And then?", previous_response_id=first.response.id, **asked)
        refused = await talk.ask(input="Hi", generate=False, model="unknown")
        return refused.status, refused.error.code

    assert run(serving, work) == (404, "model_not_found")
    assert texts_in(upstream.payloads[-1]) == ["Be brief.", "When?", "Ten.", "And then?"]
    with serving.store as kept:
        assert [row.attempts for row in kept.usage(by=("provider",))] == [2]


def test_lanes_are_answered_at_once_and_each_in_order(start: Callable[..., Serving]) -> None:
    free, asked = asyncio.Event(), list[str]()

    async def ask(payload: Any, _model: str) -> AsyncIterator[Any]:
        text = texts_in(payload)[-1]
        asked.append(text)
        if text == "slow":
            await free.wait()
        if text == "fast":
            free.set()
        choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        yield {"id": "c", "model": "m", "choices": [choice]}

    serving = start(upstreams={"m": Upstream("any", "chat_completion", ask)})  # type: ignore[arg-type]

    async def work(talk: Talk) -> list[Any]:
        for lane, text in (("A", "slow"), ("A", "next"), ("B", "fast")):
            await talk.send(model="m", input=text, stream_id=lane)
        return [event for _ in range(3) for event in await talk.answer()]

    events = run(serving, work)
    assert {event.stream_id for event in events} == {"A", "B"}
    ended = [event for event in events if event.type == "response.completed"]
    said = [(event.stream_id, event.response.output[0].content[0].text) for event in ended]
    assert [one for one in said if one[0] == "A"] == [("A", "slow"), ("A", "next")]
    assert asked.index("fast") < asked.index("next")


def test_a_lane_goes_on_with_a_response_of_another(serving: Serving) -> None:
    upstream = serving.scripted["chat_completion"]
    for text in ("Ten.", "Eleven.", "Twelve."):
        upstream.will_say(text)
    asked: Any = {"model": "chat_completion", "store": False}

    async def work(talk: Talk) -> None:
        first = (await talk.ask(input="When?", stream_id="A", **asked)).response
        for lane in ("A", "B"):
            await talk.ask(input=f"In {lane}?", stream_id=lane, previous_response_id=first.id, **asked)

    run(serving, work)
    assert [texts_in(payload) for payload in upstream.payloads[1:]] == [
        ["When?", "Ten.", "In A?"],
        ["When?", "Ten.", "In B?"],
    ]


# What is refused


NESTED: Any = reduce(lambda inner, _: [inner], range(300), cast("Any", []))
REFUSED: dict[str, tuple[Any, int, str]] = {
    "nested too deeply": (
        {"type": "response.create", "model": "messages", "input": NESTED},
        400, "invalid_value",
    ),
    "no JSON": ("{", 400, "invalid_json"),
    "no object": ("[]", 400, "invalid_value"),
    "another event": ({"type": "session.update"}, 400, "invalid_value"),
    "no model": ({"type": "response.create"}, 400, "missing_required_parameter"),
    "no input": ({"type": "response.create", "model": "messages", "input": 1}, 400, "invalid_type"),
    "unknown model": ({"type": "response.create", "model": "gpt", "input": "Hi"}, 404, "model_not_found"),
    "background": ({"type": "response.create", "model": "messages", "background": True}, 400, "unsupported_value"),
    "lane": ({"type": "response.create", "model": "messages", "stream_id": 1}, 400, "invalid_type"),
    "many values": (json.dumps([1] * 60_000), 413, "request_too_large"),
    "long": (json.dumps("x" * 2_000_000), 413, "request_too_large"),
    "previous": (
        {"type": "response.create", "model": "messages", "input": "Hi", "previous_response_id": "resp_1"}, 400,
        "previous_response_not_found",
    ),
}  # fmt: skip


def test_errors_are_events_and_the_connection_goes_on(start: Callable[..., Serving]) -> None:
    serving = start(max_body_bytes=1_000_000)

    async def work(talk: Talk) -> list[Any]:
        found = []
        for message, *expected in REFUSED.values():
            await talk.connection.send_raw(message if isinstance(message, str) else json.dumps(message))
            [event] = await talk.answer()
            found.append((expected, [event.status, event.error.code]))
        serving.scripted["messages"].will_say("Hi.")
        found.append((["completed"], [(await talk.ask(model="messages", input="Hi")).response.status]))
        return found

    assert [(expected, seen) for expected, seen in run(serving, work) if expected != seen] == []


def test_what_an_upstream_refuses_is_an_event_and_forgets_what_it_went_on_with(serving: Serving) -> None:
    """As at OpenAI: whoever repeats the request brings all of it."""
    upstream = serving.scripted["chat_completion"]
    upstream.will_say("Ten.")
    upstream.scripts.append([UpstreamError(429, None, "Slow down.", "7")])
    asked: Any = {"model": "chat_completion", "store": False}

    async def work(talk: Talk) -> tuple[Any, Any]:
        first = (await talk.ask(input="When?", **asked)).response
        asked["previous_response_id"] = first.id
        return await talk.ask(input="And?", **asked), await talk.ask(input="And?", **asked)

    slow, gone = run(serving, work)
    assert (slow.status, slow.error.message, slow.error.headers["retry-after"]) == (429, "Slow down.", "7")
    assert (gone.status, gone.error.code) == (400, "previous_response_not_found")


def test_steering_is_refused_with_what_to_do(serving: Serving) -> None:
    async def work(talk: Talk) -> Any:
        await talk.connection.send({"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop"})
        return EVENT.validate_json(await talk.connection.recv_bytes())

    event = run(serving, work)
    assert (event.type, event.error.code, event.steer.input) == (
        "response.steer.failed", "steering_not_supported", "Stop",
    )  # fmt: skip


def refused_status(url: str, **headers: str) -> int:
    async def inside() -> int:
        try:
            async with open_socket(f"ws{url.removeprefix('http')}/responses", additional_headers=headers):
                return 101
        except InvalidStatus as error:
            return error.response.status_code

    return asyncio.run(inside())


def test_keys_are_checked_at_the_handshake_and_with_each_request(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert refused_status(serving.url) == 401
    assert refused_status(serving.url, authorization="Bearer wrong") == 401
    assert caplog.text == ""
    serving.scripted["messages"].will_say("Hi.")
    made = run(serving, lambda talk: talk.ask(model="messages", input="Hi"))

    async def of_others(talk: Talk) -> Any:
        return await talk.ask(model="messages", input="Hi", previous_response_id=made.response.id)

    assert run(serving, of_others, user="ben").error.code == "previous_response_not_found"

    async def revoked(talk: Talk) -> Any:
        monkeypatch.delitem(USERS, "Bearer key-of-ann")
        return await talk.ask(model="messages", input="Hi")

    assert run(serving, revoked).status == 401


# Limits


def test_an_owner_has_so_many_connections(serving: Serving) -> None:
    object.__setattr__(serving.service, "sockets", Quota(1, text="Too many WebSockets are open{key}"))

    async def work(_talk: Talk) -> list[int]:
        return [
            await asyncio.to_thread(refused_status, serving.url, authorization=f"Bearer key-of-{user}")
            for user in ("ann", "ben")
        ]

    assert run(serving, work) == [429, 101]
    assert refused_status(serving.url, authorization="Bearer key-of-ann") == 101


def test_an_owner_has_so_many_bytes(serving: Serving) -> None:
    """What does not fit is not remembered, and a message that does not is refused."""
    quota = Quota(3_000, text="Too many bytes{key}", code="too_many_websocket_bytes")
    object.__setattr__(serving.service, "socket_bytes", quota)
    for text in ("x" * 2_000, "y" * 2_000):
        serving.scripted["messages"].will_say(text)
    asked: Any = {"model": "messages", "store": False}

    async def work(talk: Talk) -> list[Any]:
        first, second = [(await talk.ask(input="Hi", **asked)).response.id for _ in range(2)]
        gone = await talk.ask(input="Hi", previous_response_id=first, **asked)
        large = await talk.ask(input="z" * 3_000, **asked)
        twice = await talk.ask(input="Hi", previous_response_id=second, **asked)  # the request has all of it, too
        return [gone.error.code, large.error.code, twice.error.code]

    too_many = "too_many_websocket_bytes"
    assert run(serving, work) == ["previous_response_not_found", too_many, too_many]
    wait_until(lambda: quota._taken.total() == 0)


def test_a_response_counts_once() -> None:
    """Also one whose id comes again, as those of some providers do; others give way to requests that go on."""
    quota = Quota(100, text="Too many bytes{key}")
    history = SocketHistory(quota, "ann")
    for id_ in ("resp_1", "resp_2", "resp_2"):
        history.remember(id_, RememberedResponse(None, (b"x" * 40,)))
    assert quota._taken.total() == 80
    assert history.take_again("resp_2") == 40
    assert [history.take_again(id_) for id_ in ("resp_1", "resp_3")] == [0, 0]
    quota.give_back("ann", 40)
    history.close()
    assert quota._taken.total() == 0


def test_a_connection_has_so_many_requests_at_once(start: Callable[..., Serving]) -> None:
    async def ask(_payload: Any, _model: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield {}

    serving = start(upstreams={"m": Upstream("any", "chat_completion", ask)})  # type: ignore[arg-type]

    async def work(talk: Talk) -> Any:
        for number in range(sockets.MAX_REQUESTS + 1):
            await talk.send(model="m", input="Hi", stream_id=str(number % 3))
        return (await talk.answer())[-1]

    refused = run(serving, work)
    assert (refused.status, refused.error.code) == (429, "too_many_requests_of_connection")
    wait_until(lambda: not serving.service._waiting)


@pytest.mark.parametrize(("limit", "code"), [("IDLE_SECONDS", 1000), ("MAX_SECONDS", 1000)])
def test_a_connection_ends(serving: Serving, monkeypatch: pytest.MonkeyPatch, limit: str, code: int) -> None:
    monkeypatch.setattr(sockets, limit, 0.2)

    async def work(talk: Talk) -> Any:
        await asyncio.sleep(0.3)
        event = await talk.ask(model="messages", input="Hi") if limit == "MAX_SECONDS" else None
        with pytest.raises(ConnectionClosed) as closed:
            await talk.connection.recv_bytes()
        return closed.value.rcvd and closed.value.rcvd.code, event and event.error.code

    expected = "websocket_connection_limit_reached" if limit == "MAX_SECONDS" else None
    assert run(serving, work) == (code, expected)


def test_a_client_that_leaves_ends_its_answers(start: Callable[..., Serving]) -> None:
    """They are stored as cancelled, as over HTTP."""

    async def ask(_payload: Any, _model: str) -> AsyncIterator[Any]:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "At"}, "finish_reason": None}]}
        await asyncio.Event().wait()

    serving = start(upstreams={"m": Upstream("any", "chat_completion", ask)})  # type: ignore[arg-type]

    async def work(talk: Talk) -> None:
        await talk.send(model="m", input="When?")
        event = EVENT.validate_json(await talk.connection.recv_bytes())
        while event.type != "response.output_text.delta":
            event = EVENT.validate_json(await talk.connection.recv_bytes())

    run(serving, work)
    with serving.store as kept:
        wait_until(lambda: [row.status for row in kept.usage(by=("status",))] == ["cancelled"])


def test_what_is_sent_as_a_handshake_is_no_other_request(serving: Serving) -> None:
    """What follows a handshake at once is not answered, and one with a body is none."""
    address = urlsplit(serving.url)
    offer = (
        f"host: {address.netloc}\r\nauthorization: Bearer key-of-ann\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    behind = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer key-of-ann\r\n\r\n"
    texts = {
        f"GET /v1/responses HTTP/1.1\r\n{offer}\r\n{behind}": [b"101"],
        f"GET /v1/responses HTTP/1.1\r\n{offer}content-length: 2\r\n\r\n{{}}{behind}": [b"426", b"200"],
        f"GET /v1/responses HTTP/1.1\r\n{offer.replace('websocket', 'h2c', 1)}\r\n{behind}": [b"405", b"200"],
        f"{behind}GET /v1/responses HTTP/1.1\r\n{offer}\r\n": [b"200", b"426"],
    }
    for text, statuses in texts.items():
        with socket.create_connection((address.hostname, address.port), timeout=5) as peer:
            peer.sendall(text.encode())
            peer.settimeout(1)
            found = b""
            try:
                while piece := peer.recv(65_536):
                    found += piece
            except TimeoutError:
                pass
        assert re.findall(rb"HTTP/1\.1 (\d+)", found) == statuses, text


def test_a_server_of_another_application_has_it_too(tmp_path: Path) -> None:
    """Mounted, and with the uvicorn of that application."""
    serving = Serving(tmp_path)
    made, mine = serving.app()
    serving.scripted["messages"].will_say("Hi.")
    with running(Starlette(routes=[Mount("/llm", made)]), mine) as url:
        serving.url = f"{url}/llm"
        assert run(serving, lambda talk: talk.ask(model="messages", input="Hi")).response.status == "completed"


def test_kept_requests_are_one_conversation(start: Callable[..., Serving]) -> None:
    serving = start(store_false="keep")
    upstream = serving.scripted["chat_completion"]
    asked: Any = {"model": "chat_completion", "store": False}

    async def work(talk: Talk) -> None:
        said = [{"type": "message", "role": "developer", "content": "Be brief."}]
        before = (await talk.ask(input=said, generate=False, **asked)).response.id
        for text in ("Ten.", "Eleven."):
            upstream.will_say(text)
            before = (await talk.ask(input="When?", previous_response_id=before, **asked)).response.id

    run(serving, work, extra_headers={"session-id": "abc"})
    with serving.store as kept:
        [conversation] = kept.list_conversations()
        assert [getattr(item.item, "text", None) for item in conversation.items()] == [
            "When?", "Ten.", "When?", "Eleven.",
        ]  # fmt: skip
