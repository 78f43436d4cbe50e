"""WebSockets pass through the recorder, and each of their requests is a call: with its history, lane and end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.servers import running
from tests.server.test_sockets import NESTED, Serving, Talk, refused_status, run, texts_in
from tests.waiting import wait_until
from threadkeep.http import RecordedUpstream, UpstreamError
from threadkeep.server.quotas import Quota
from threadkeep.server.recorder import passing
from threadkeep.server.recorder.sockets import SocketNotes
from threadkeep.server.service import socket_quota
from threadkeep.server.socket_history import SocketHistory

ASKED: Any = {"model": "chat_completion", "store": False}


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Serving]:
    """A provider that has WebSockets."""
    serving = Serving(tmp_path)
    made, store = serving.app()
    with running(made, store) as serving.url:
        yield serving


@pytest.fixture
def recorded(
    database: Database, provider: Serving, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Recorded]:
    options = {"spool": tmp_path / "spool"} if getattr(request, "param", None) == "spool" else {}
    upstream = RecordedUpstream("provider", "open_responses", provider.url)
    with recorder(database, upstreams=[upstream], **options) as made:
        yield made


def through(recorded: Recorded, work: Callable[[Talk], Awaitable[Any]], **headers: str) -> Any:
    """Connect OpenAI's client to the recorder."""
    serving = Serving(Path())
    serving.url = recorded.url
    return run(serving, work, extra_headers=headers)


@pytest.mark.parametrize("recorded", ["memory", "spool"], indirect=True)
def test_requests_of_a_connection_are_one_conversation(recorded: Recorded, provider: Serving) -> None:
    """With what each of them leaves out; a warm-up is in the ledger alone."""
    upstream = provider.scripted["chat_completion"]
    upstream.will_say("Let me see.", calls=True)
    upstream.will_say("It rains.")

    async def work(talk: Talk) -> None:
        warm = await talk.ask(input=[{"role": "developer", "content": "Be brief."}], generate=False, **ASKED)
        first = await talk.ask(input="Weather?", previous_response_id=warm.response.id, **ASKED)
        output = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
        last = await talk.ask(input=[output], previous_response_id=first.response.id, **ASKED)
        assert last.response.output[0].content[0].text == "It rains."

    through(recorded, work)
    recorded.wait_for(3)
    [conversation] = recorded.conversations()
    assert said(conversation) == [
        "user: Weather?", "assistant: Let me see.", 'look({"city":"Paris"})', "= Rain.", "assistant: It rains.",
    ]  # fmt: skip
    assert conversation.instructions == "Be brief."
    [row] = recorded.store.usage(by=("provider",))
    assert (row.provider, row.attempts, row.total_tokens) == ("provider", 3, 36)
    assert [row.attempts for row in conversation.usage(by=("provider",))] == [2]


@pytest.mark.parametrize("recorded", ["memory", "spool"], indirect=True)
def test_of_a_user_who_is_erased_meanwhile_it_keeps_figures_alone(recorded: Recorded, provider: Serving) -> None:
    """Whatever the connection brings later."""
    upstream = provider.scripted["chat_completion"]
    upstream.will_say("Sunny.")
    upstream.will_say("Rainy.")

    async def work(talk: Talk) -> None:
        first = await talk.ask(input="Weather?", **ASKED)
        await asyncio.to_thread(recorded.wait_for, 1)
        recorded.store.erase_user("ann", vacuum=False)
        await talk.ask(input="And now?", previous_response_id=first.response.id, **ASKED)

    through(recorded, work, **{"x-threadkeep-user": "ann"})
    recorded.wait_for(2)
    assert recorded.conversations() == []
    assert [(row.user_id, row.attempts) for row in recorded.store.usage(by=("user_id",))] == [(None, 2)]


def test_lanes_are_calls_of_their_own(recorded: Recorded, provider: Serving) -> None:
    """Of sub-agents, say, which fork from one response."""
    upstream = provider.scripted["chat_completion"]
    for text in ("Ten.", "Eleven.", "Twelve."):
        upstream.will_say(text)

    async def work(talk: Talk) -> None:
        first = (await talk.ask(input="When?", **ASKED)).response
        for lane in ("A", "B"):
            await talk.send(input=f"In {lane}?", stream_id=lane, previous_response_id=first.id, **ASKED)
        for _ in range(2):
            await talk.answer()

    through(recorded, work)
    recorded.wait_for(3)
    [conversation] = recorded.conversations()
    lines = {tuple(said(conversation.on_branch(branch.number))) for branch in conversation.branches()}
    assert {one[:3] for one in lines} == {
        ("user: When?", "assistant: Ten.", "user: In A?"), ("user: When?", "assistant: Ten.", "user: In B?"),
    }  # fmt: skip
    assert sum(row.attempts for row in conversation.usage(by=("provider",))) == 3
    assert {tuple(texts_in(payload)) for payload in upstream.payloads[1:]} == {
        ("When?", "Ten.", "In A?"), ("When?", "Ten.", "In B?"),
    }  # fmt: skip


def test_errors_and_clients_that_leave_are_attempts(recorded: Recorded, provider: Serving) -> None:
    upstream = provider.scripted["chat_completion"]
    upstream.scripts.append([UpstreamError(429, None, "Slow down.")])

    async def refused(talk: Talk) -> Any:
        return await talk.ask(input="When?", **ASKED)

    assert through(recorded, refused).status == 429
    waiting = asyncio.Event()

    async def slow(_payload: Any, _model: str) -> Any:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "At"}, "finish_reason": None}]}
        await waiting.wait()

    object.__setattr__(upstream.upstream, "ask", slow)

    async def leaves(talk: Talk) -> None:
        await talk.send(input="And then?", **ASKED)
        while b"output_text.delta" not in await talk.connection.recv_bytes():
            pass

    through(recorded, leaves)
    recorded.wait_for(2)
    rows = recorded.store.usage(by=("status",))
    assert {(row.status, row.attempts) for row in rows} == {("failed", 1), ("incomplete", 1)}


def test_what_is_not_to_be_recorded_passes(recorded: Recorded, provider: Serving) -> None:
    provider.scripted["chat_completion"].will_say("Ten.")
    ended = through(recorded, lambda talk: talk.ask(input="When?", **ASKED), **{"x-threadkeep-record": "off"})
    assert ended.response.status == "completed"
    assert (recorded.conversations(), recorded.counts["recorded"]) == ([], 0)


def test_what_cannot_be_stored_passes(recorded: Recorded, provider: Serving) -> None:
    """And its connection goes on."""
    provider.scripted["chat_completion"].will_say("Ten.")

    async def work(talk: Talk) -> tuple[int, str]:
        refused = await talk.ask(input=NESTED, **ASKED)
        return refused.status, (await talk.ask(input="When?", **ASKED)).response.status

    assert through(recorded, work) == (400, "completed")
    recorded.wait_for(1, unreadable=1)


def ended(number: int) -> Iterator[Any]:
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": f"Answer {number}.", "annotations": []}]  # type: ignore[assignment]
    head = {"id": f"resp_{number}", "object": "response", "model": "m"}
    yield {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**head, "status": "completed", "output": []}}


def steered(*, is_explicit: bool) -> Any:
    """A provider of which a response is steered twice, the second time in vain."""

    async def provide(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive_json()
        created, *rest = ended(0)
        await websocket.send_json(created)
        for _ in range(2):
            steer = await websocket.receive_json()
        await websocket.send_json({"type": "response.steer.failed", "sequence_number": 1, "error": {}, "steer": steer})
        for event in rest:
            await websocket.send_json(event)
        if is_explicit:
            await websocket.receive_json()
        for event in ended(1):
            await websocket.send_json(event)
        await websocket.close()

    return provide


@pytest.mark.parametrize("is_explicit", [True, False])
def test_what_is_said_in_between_begins_the_next_request(database: Database, *, is_explicit: bool) -> None:
    """The provider goes on by itself, or waits for its client; what it gives back was not said."""

    async def work(talk: Talk) -> None:
        await talk.send(model="m", input="When?", store=False)
        await talk.connection.recv_bytes()
        for text in ("Rather tomorrow.", "Or never."):
            await talk.connection.send({"type": "response.steer", "previous_response_id": "resp_0", "input": text})
        while b"response.completed" not in await talk.connection.recv_bytes():
            pass
        if is_explicit:
            await talk.send(model="m", input="And where?", previous_response_id="resp_0", store=False)
        while b"response.completed" not in await talk.connection.recv_bytes():
            pass

    with running(Starlette(routes=[WebSocketRoute("/v1/responses", steered(is_explicit=is_explicit))])) as direct:
        upstream = RecordedUpstream("provider", "open_responses", f"{direct}/v1")
        with recorder(database, upstreams=[upstream]) as recorded:
            through(recorded, work)
            recorded.wait_for(2)
            [conversation] = recorded.conversations()
            more = ["user: And where?"] if is_explicit else []
            assert said(conversation) == [
                "user: When?", "assistant: Answer 0.", "user: Rather tomorrow.", *more, "assistant: Answer 1.",
            ]  # fmt: skip


# What waits


def with_room(monkeypatch: pytest.MonkeyPatch, most: int) -> Quota:
    quota = Quota(most, text="Too many bytes{key}", code="too_many_websocket_bytes")
    monkeypatch.setattr(passing, "socket_bytes_quota", lambda: quota)
    return quota


def test_requests_that_are_never_answered_have_so_many_bytes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has no room is refused, also of a lane that is new, and nothing is left when its client has left."""
    quota, seen = with_room(monkeypatch, 25_000), list[Any]()

    async def provide(websocket: WebSocket) -> None:
        await websocket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                seen.append((await websocket.receive_json())["stream_id"])

    async def work(talk: Talk) -> list[Any]:
        for lane in "ABC":
            await talk.send(model="m", input="x" * 10_000, stream_id=lane)
        [refused] = await talk.answer()
        await asyncio.to_thread(wait_until, lambda: len(seen) == 2)
        return [refused.status, refused.error.code, refused.stream_id, quota.total > 20_000]

    with running(Starlette(routes=[WebSocketRoute("/v1/responses", provide)])) as direct:
        upstream = RecordedUpstream("provider", "open_responses", f"{direct}/v1")
        with recorder(database, upstreams=[upstream]) as recorded:
            assert through(recorded, work) == [429, "too_many_websocket_bytes", "C", True]
            wait_until(lambda: quota.total == 0)
            recorded.wait_for(2)
    assert seen == ["A", "B"]


def test_an_answer_without_room_passes_and_is_not_remembered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded whole; the request that goes on with it is, too."""
    quota, totals = with_room(monkeypatch, 8_000), list[int]()

    async def provide(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive_json()
        created, done, completed = ended(0)
        done["item"]["content"][0]["text"] = "x" * 3_000
        for event in (created, *[done] * 5, completed):
            await websocket.send_json(event)
        await websocket.receive_json()
        totals.append(quota.total)
        for event in ended(1):
            await websocket.send_json(event)
        await websocket.receive()

    async def work(talk: Talk) -> None:
        for previous in (None, "resp_0"):
            await talk.send(model="m", input="Hi", previous_response_id=previous, store=False)
            while b"response.completed" not in await talk.connection.recv_bytes():
                pass

    with running(Starlette(routes=[WebSocketRoute("/v1/responses", provide)])) as direct:
        upstream = RecordedUpstream("provider", "open_responses", f"{direct}/v1")
        with recorder(database, upstreams=[upstream]) as recorded:
            through(recorded, work)
            recorded.wait_for(2)
            [conversation] = recorded.conversations()
            assert [len(line) for line in said(conversation)] == [8, 3_011, 8, 20]
    assert [0 < total < 2_000 for total in totals] == [True]  # the second request alone
    assert quota.total == 0


def test_a_lane_that_is_answered_leaves_nothing() -> None:
    """However many a connection has, one after the other."""
    notes = SocketNotes(lambda: None, SocketHistory(quota := Quota(10_000, text="Too many"), "ann"))

    async def run() -> None:
        for lane in range(1_000):
            assert (
                notes.note_sent(json.dumps({"type": "response.create", "input": "Hi", "stream_id": str(lane)})) is None
            )
            failed = {"type": "response.failed", "stream_id": str(lane), "response": {"id": f"resp_{lane}"}}
            await notes.note_received(json.dumps(failed))

    asyncio.run(run())
    assert (quota.total, len(notes._lanes)) == (0, 0)


# Handshakes, and how connections end


@pytest.mark.parametrize(("status", "seen"), [(404, 426), (405, 426), (200, 426), (401, 401), (429, 429), (503, 503)])
def test_a_provider_may_refuse_a_handshake(database: Database, status: int, seen: int) -> None:
    """Where it has no WebSockets, Codex is sent to HTTP at once."""

    async def answer(_request: Request) -> Response:
        return JSONResponse({"error": {"message": "Not here."}}, status, {"retry-after": "7"})

    handshake = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    handshake["sec-websocket-key"] = "A" * 22 + "=="
    with running(Starlette(routes=[Route("/v1/responses", answer)]), ws="none") as direct:
        upstream = RecordedUpstream("provider", "open_responses", direct)
        with recorder(database, upstreams=[upstream]) as recorded:
            found = httpx2.get(f"{recorded.url}/v1/responses", headers=handshake)
    assert found.status_code == seen
    assert seen == 426 or (found.json()["error"]["message"], found.headers["retry-after"]) == ("Not here.", "7")


def test_both_sides_see_how_the_other_closes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the provider sees the headers of its client, without ours."""
    monkeypatch.setattr(passing, "socket_quota", lambda: socket_quota(1))
    seen = list[Any]()

    async def provide(websocket: WebSocket) -> None:
        seen.append(dict(websocket.headers))
        await websocket.accept("realtime")
        await websocket.send_bytes(await websocket.receive_bytes())
        await websocket.close(4_001, "Enough.")

    async def connect(url: str) -> tuple[Any, ...]:
        given = {"authorization": "Bearer sk-1", "x-threadkeep-key": "mine", "x-more": "1"}
        options: Any = {"additional_headers": given, "subprotocols": ["realtime"]}
        async with open_socket(f"ws{url}/v1/realtime?model=m", **options) as one:
            refused = await asyncio.to_thread(refused_status, f"http{url}/v1")
            await one.send(b"\x00\xff")
            found = await one.recv()
            with pytest.raises(ConnectionClosed) as closed:
                await one.recv()
            frame = closed.value.rcvd
            return one.subprotocol, refused, found, frame and (frame.code, frame.reason)

    with ExitStack() as stack:
        direct = stack.enter_context(running(Starlette(routes=[WebSocketRoute("/v1/realtime", provide)])))
        upstream = RecordedUpstream("provider", "open_responses", direct)
        recorded = stack.enter_context(recorder(database, upstreams=[upstream]))
        found = asyncio.run(connect(recorded.url.removeprefix("http")))
    assert found == ("realtime", 429, b"\x00\xff", (4_001, "Enough."))
    [headers] = seen
    assert (headers["authorization"], headers["x-more"]) == ("Bearer sk-1", "1")
    assert "mine" not in json.dumps(headers)
