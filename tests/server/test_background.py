"""Answers that nobody waits for: there are only so many, of each owner and in all, and they give their places back."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx2
import pytest
from sqlalchemy.exc import OperationalError

from tests.server.callers import Caller
from tests.waiting import wait_until
from threadkeep import InvalidOption
from threadkeep.http import KeyAuthentication, Upstream, UpstreamError, app, rest_app
from threadkeep.server import permissions
from threadkeep.server.objects import partial_item
from threadkeep.server.openai import responses
from threadkeep.server.service import Service, background_quota
from threadkeep.server.turns import Turn
from threadkeep.store.reading.reader import Reader

FACES = ["openai", "rest"]


class Hanging:
    """A provider that begins to answer, and goes on when it is released; or one that refuses."""

    def __init__(self) -> None:
        self.asked, self.is_refusing, self.has_ended, self.released = 0, False, False, asyncio.Event()

    async def ask(self, _payload: Any, model: str) -> AsyncGenerator[Any]:
        self.asked += 1
        if self.is_refusing:
            raise UpstreamError(400, None, "It refused.")
        delta = {"role": "assistant", "content": "Later."}
        try:
            yield {"id": "c1", "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            await self.released.wait()
            for _ in range(3):
                yield {"id": "c1", "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            yield {"id": "c1", "model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        finally:
            self.has_ended = True


class Place:
    """A server with a provider that hangs, and where to ask for answers."""

    def __init__(self, served: Any, face: str, **options: Any) -> None:
        self.hanging, self._served, self.face = Hanging(), served, face
        upstreams = {"*": Upstream("hanging", "chat_completion", self.hanging.ask)}
        made: Any = {"openai": app, "rest": rest_app}[face]
        options = {"auth": served.authenticate, **options}
        self.application = made(served._store, prefix="", upstreams=upstreams, **options)

    async def post(self, user: str = "ann", key: str | None = None, **body: Any) -> Caller:
        """Ask for an answer in a new conversation of a user, whose name is the key."""
        if self.face == "openai":
            return Caller(self.application, "/responses", key or user, model="m", input="When?", **body)
        conversation = await self._served.store.for_user(user).create_conversation(model="m")
        path = f"/conversations/{conversation.id}/messages"
        return Caller(self.application, path, key or user, content="When?", **body)

    async def in_background(self, user: str = "ann") -> Caller:
        """Ask for one in the background, and wait for what is answered."""
        poster = await self.post(user, background=True)
        await poster.answered()
        return poster

    async def has_asked(self, count: int) -> None:
        """Wait until the provider was asked so often, which it is after the answer to who asked in the background."""
        await asyncio.to_thread(wait_until, lambda: self.hanging.asked >= count)
        assert self.hanging.asked == count

    def client(self, user: str = "ann") -> httpx2.AsyncClient:
        """A client for further requests."""
        transport = httpx2.ASGITransport(app=self.application)
        headers = {"Authorization": f"Bearer {user}"}
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)

    async def end(self) -> None:
        """Let all answers end."""
        self.hanging.released.set()
        service = self.application.state.service
        await asyncio.wait_for(asyncio.gather(*service._tasks, return_exceptions=True), 20)
        await asyncio.sleep(0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two of an owner, and three in all."""
    init: Any = Service.__init__

    def made(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **{"background": background_quota(2, 3), **options})

    with monkeypatch.context() as patched:
        patched.setattr(Service, "__init__", made)
        yield


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("face", FACES)
def test_so_many_answers_are_in_the_background(served: Any, face: str) -> None:
    accepted = {"openai": 200, "rest": 202}[face]

    async def run() -> None:
        place = Place(served, face)
        assert [(await place.in_background()).status for _ in range(2)] == [accepted] * 2
        refused = await place.in_background()
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "too_many_in_background", "5")
        assert (await place.in_background("ben")).status == accepted
        busy = await place.in_background("cleo")
        assert (busy.status, busy.code, busy.headers["retry-after"]) == (503, "overloaded", "5")
        await place.has_asked(3)
        for user in ("ann", "cleo"):
            found = list(await served.store.for_user(user).list_conversations())
            assert sum([len((await one.items()).items) > 0 for one in found]) == (2 if user == "ann" else 0)
        await place.end()
        assert (await place.in_background()).status == accepted
        await place.end()

    served.runner.run(run())


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("face", FACES)
def test_requests_at_the_same_time_are_counted_one_by_one(served: Any, face: str) -> None:
    async def run() -> list[int]:
        place = Place(served, face)
        posters = [await place.post(background=True) for _ in range(10)]
        statuses = [await one.answered() for one in posters]
        await place.has_asked(2)
        await place.end()
        return sorted(statuses)

    accepted = {"openai": 200, "rest": 202}[face]
    assert served.runner.run(run()) == [accepted] * 2 + [429] * 8


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("face", FACES)
def test_what_is_refused_gives_its_place_back(served: Any, face: str) -> None:
    async def run() -> list[int]:
        place, statuses = Place(served, face), []
        place.hanging.is_refusing = True
        for _ in range(5):
            statuses.append((await place.in_background()).status)
            await place.end()
        assert place.hanging.asked == 5
        return statuses

    assert served.runner.run(run()) == [{"openai": 200, "rest": 202}[face]] * 5


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("stream", [False, True])
def test_answers_whose_clients_have_left_count_and_go_on(served: Any, *, stream: bool) -> None:
    async def run() -> None:
        place = Place(served, "rest")
        waiting = [await place.post(stream=stream) for _ in range(3)]
        tasks = place.application.state.service._tasks
        await asyncio.to_thread(wait_until, lambda: len(tasks) == 3)
        for one in waiting if stream else []:
            assert await one.begun() == 200
        background = await place.in_background()
        assert background.status == 202  # those whose clients wait do not count
        for one in waiting:
            await one.leave()
        assert len(tasks) == 4
        await place.has_asked(4)
        for how in ("background", "stream", "answer"):
            body: dict[str, Any] = {how: True}
            refused = await place.post(**body)
            assert (await refused.answered(), place.hanging.asked) == (429, 4)
        await place.end()
        store = served.store.for_user("ann")
        found = [await one.responses() for one in await store.list_conversations()]
        assert [one.status for answers in found for one in answers] == ["completed"] * 4
        answered = await place.post(stream=stream)
        assert await answered.answered() == (200 if stream else 201)

    served.runner.run(run())


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("face", FACES)
def test_an_answer_whose_time_is_over_gives_its_place_back(served: Any, face: str) -> None:
    async def run() -> None:
        place = Place(served, face, max_answer_seconds=0.5)
        for number in (1, 2, 3, 4):
            poster = await place.in_background()
            assert (poster.status < 300, place.hanging.asked <= number) == (True, True)
            await asyncio.to_thread(wait_until, lambda: not place.application.state.service._tasks)
            assert place.hanging.has_ended
        found = [await one.responses() for one in await served.store.for_user("ann").list_conversations()]
        assert [one.status for answers in found for one in answers] == ["incomplete"] * 4

    served.runner.run(run())


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", ["stream", "background", "answer"])
def test_a_stream_ends_with_its_key_and_other_answers_go_on(
    served: Any, face: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only a client that waits has an answer go on, it is cancelled, as when the client leaves."""
    monkeypatch.setattr(permissions, "RECHECK_SECONDS", 0.05)

    async def run() -> None:
        made, others = [await served.store.keys.create(user_id="ann") for _ in range(2)]
        place = Place(served, face, auth=KeyAuthentication(served._store, seconds=0))
        body: dict[str, Any] = {how: True}
        poster = await place.post(key=made.secret, **body)
        if how != "answer":
            await poster.begun()
        await place.has_asked(1)
        await served.store.keys.revoke(made.key.id)
        if how == "stream":
            await poster.answered()
        refused = await place.post(key=made.secret)
        assert (await refused.answered(), refused.code) == (401, "invalid_api_key")
        is_left = (face, how) == ("openai", "stream")
        assert place.hanging.has_ended == is_left
        await place.end()
        if how == "answer":
            assert await poster.answered() == {"openai": 200, "rest": 201}[face]
        answers = [await one.responses() for one in await served.store.for_user("ann").list_conversations()]
        assert [one.status for found in answers for one in found] == ["cancelled" if is_left else "completed"]
        again = await place.post(key=others.secret)
        assert await again.answered() == {"openai": 200, "rest": 201}[face]

    served.runner.run(run())


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "3600", None, True])
@pytest.mark.parametrize("make", [app, rest_app])
def test_the_time_of_an_answer_is_a_number_of_seconds(served: Any, make: Any, limit: Any) -> None:
    with pytest.raises(InvalidOption, match="max_answer_seconds must be a number of seconds above 0"):
        make(served._store, max_answer_seconds=limit)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("background", [False, True])
def test_a_server_that_stops_begins_no_answer(served: Any, face: str, *, background: bool) -> None:
    """Nobody would end it, so that it could be lost; the client is told to come again, and nothing is stored."""

    async def run() -> None:
        place = Place(served, face)
        await place.application.state.stop()
        refused = await place.post(background=background)
        assert (await refused.answered(), refused.code, refused.headers["retry-after"]) == (503, "stopping", "1")
        found = list(await served.store.for_user("ann").list_conversations())
        assert [len((await one.items()).items) for one in found] == ([0] if face == "rest" else [])
        assert place.hanging.asked == 0

    served.runner.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_who_waits_when_the_server_stops_gets_what_has_come(served: Any, *, stream: bool) -> None:
    async def run() -> tuple[int, str]:
        place = Place(served, "rest")
        poster = await place.post(stream=stream)
        await asyncio.to_thread(wait_until, lambda: len(place.application.state.service._tasks) == 1)
        await place.application.state.stop()
        return await poster.answered(), poster.text

    status, text = served.runner.run(run())
    assert status == (200 if stream else 201)
    assert '"status":"incomplete"' in text
    assert '"text":"Later."' in text


def test_what_goes_wrong_at_the_end_is_told(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ending(*_: Any) -> Any:
        raise OperationalError("SELECT", {}, Exception("The database is away."))

    async def run() -> tuple[int, Any]:
        place = Place(served, "rest")
        place.hanging.released.set()
        poster = await place.post()
        return await poster.answered(), poster.code

    monkeypatch.setattr(Turn, "ending", ending)
    assert served.runner.run(run()) == (503, "database")


@pytest.mark.parametrize("body", [{}, {"background": True}, {"stream": True}], ids=str)
def test_what_nobody_reads_is_not_kept(served: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an answer in the background, or one whose client has left."""
    queues = []

    class Queue(asyncio.Queue[Any]):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            queues.append(self)

    async def run() -> None:
        place = Place(served, "rest")
        poster = await place.post(**body)
        assert await poster.begun() == 200 if body.get("stream") else True
        if body.get("background"):
            await poster.answered()
        else:
            tasks = place.application.state.service._tasks
            await asyncio.to_thread(wait_until, lambda: len(tasks) == 1)
            await poster.leave()
        await place.end()

    monkeypatch.setattr(asyncio, "Queue", Queue)
    served.runner.run(run())
    assert sum(queue.qsize() for queue in queues) <= 1  # the end


def test_cancelling_ends_a_stream_whose_client_does_not_read(served: Any) -> None:
    """The provider is left, and the conversation can be gone on with; a client that reads on finds the end."""

    async def run() -> None:
        place = Place(served, "openai")
        poster = await place.post(stream=True)
        poster.reads.clear()
        await poster.begun()
        async with place.client() as http:
            [conversation] = (await http.get("/conversations")).json()["data"]
            [response] = await (await served.store.get_conversation(conversation["id"])).responses()
            assert (await http.post(f"/responses/{response.id}/cancel")).status_code == 200
            assert await ended(http, response.id) == "cancelled"
            place.hanging.released.set()
            again = {"model": "m", "input": "Now?", "conversation": conversation["id"]}
            assert (await http.post("/responses", json=again)).json()["status"] == "completed"
        assert not poster.task.done()
        poster.reads.set()
        await poster.answered()
        assert place.hanging.has_ended
        assert '"status":"cancelled"' in poster.text.strip().splitlines()[-1]

    served.runner.run(run())


async def ended(http: httpx2.AsyncClient, response: str) -> Any:
    """The status of a response, once its conversation can be gone on with."""
    async with asyncio.timeout(60), http.stream("GET", f"/responses/{response}?stream=true") as stream:
        [*_] = [line async for line in stream.aiter_lines()]  # which end with the response
    return (await http.get(f"/responses/{response}")).json()["status"]


@pytest.mark.parametrize("face", FACES)
def test_who_cancels_is_told_that_it_has_ended(served: Any, face: str) -> None:
    """As OpenAI tells it, with what had come by then."""

    async def run() -> Any:
        place = Place(served, face)
        poster = await place.in_background()
        made = json.loads(poster.text)
        async with place.client() as http:
            id_ = made["id"] if face == "openai" else made["response"]["id"]
            return (await http.post(f"/responses/{id_}/cancel")).json()

    cancelled = served.runner.run(run())
    assert cancelled["status"] == "cancelled"
    assert [part["text"] for item in cancelled["output"] for part in item["content"]] == ["Later."]


def test_waiting_for_the_end_reads_only_whether_it_has_come(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings and the items of a response in progress are read once, however long it takes."""
    read, looks = list[int](), list[int]()
    whole, stored = Reader.response, Reader.stored_response

    def counted(reader: Reader, *asked: Any) -> Any:
        read.append(1)
        return whole(reader, *asked)

    def looked(reader: Reader, wanted: str) -> Any:
        looks.append(1)
        return stored(reader, wanted)

    async def run() -> str:
        place = Place(served, "openai")
        poster = await place.in_background()
        async with place.client() as http:
            following = asyncio.ensure_future(ended(http, json.loads(poster.text)["id"]))
            while len(looks) < 5:  # noqa: ASYNC110 - which the server does
                await asyncio.sleep(0.01)
            assert len(read) == 1
            place.hanging.released.set()
            return str(await following)

    monkeypatch.setattr(responses, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(Reader, "response", counted)
    monkeypatch.setattr(Reader, "stored_response", looked)
    assert served.runner.run(run()) == "completed"


@pytest.mark.parametrize("most", [responses.MAX_FOLLOWED, 1])
@pytest.mark.parametrize("is_stream", [True, False])
def test_the_text_of_an_answer_in_the_background_is_streamed_while_it_comes(
    served: Any, monkeypatch: pytest.MonkeyPatch, most: int, *, is_stream: bool
) -> None:
    """To who asked for it, and to who retrieves it: once, and with the ids that it is stored with.

    What exceeds a limit comes with the end.
    """
    monkeypatch.setattr(responses, "MAX_FOLLOWED", most)

    async def run() -> list[Any]:
        place = Place(served, "openai")
        poster = await place.post(background=True, stream=is_stream)
        if not is_stream:
            await poster.answered()
            poster = Caller(place.application, f"/responses/{json.loads(poster.text)['id']}?stream=true", "ann")
        await asyncio.to_thread(wait_until, lambda: "Later." in poster.text)
        place.hanging.released.set()
        await poster.answered()
        lines = poster.text.splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    events = served.runner.run(run())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    [item] = events[-1]["response"]["output"]
    assert "".join(event["delta"] for event in deltas) == item["content"][0]["text"] == "Later." * 4
    assert deltas[0]["delta"] == "Later."
    assert {event["item_id"] for event in deltas} == {item["id"]}


def test_following_an_answer_looks_at_each_item_once(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And at none while nothing comes, however many items there are, and however long that takes."""
    looked, shown = list[int](), partial_item
    released, looks, stored = asyncio.Event(), list[int](), Reader.stored_response

    def counted(*arguments: Any) -> Any:
        looked.append(1)
        return shown(*arguments)

    def seen(reader: Reader, wanted: str) -> Any:
        looks.append(1)
        return stored(reader, wanted)

    async def ask(_payload: Any, _model: str) -> AsyncGenerator[Any]:
        def chunk(delta: Any, finish: str | None = None) -> Any:
            return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        for number in range(60):
            function = {"name": "look", "arguments": "{}"}
            yield chunk({"tool_calls": [{"index": number, "id": f"call_{number}", "function": function}]})
        await released.wait()
        yield chunk({}, "tool_calls")

    async def run() -> int:
        application = app(
            served._store, auth=served.authenticate, prefix="", upstreams={"*": Upstream("own", "chat_completion", ask)}
        )
        poster = Caller(application, "/responses", "ann", model="m", input="Hi", background=True, stream=True)
        await asyncio.to_thread(wait_until, lambda: "call_58" in poster.text)
        before = len(looks)
        while len(looks) < before + 5:  # noqa: ASYNC110 - which the server does
            await asyncio.sleep(0.01)
        released.set()
        await poster.answered()
        return poster.text.count("response.output_item.done")

    monkeypatch.setattr(responses, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(responses, "partial_item", counted)
    monkeypatch.setattr(Reader, "stored_response", seen)
    assert served.runner.run(run()) == 2 * 60  # with the name of the event before it
    assert len(looked) < 2 * 60


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("body", [{}, {"background": True}, {"stream": True}], ids=str)
def test_an_answer_in_a_conversation_that_was_deleted(
    served: Any, face: str, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It is not found; a stream says so with its last event, and the log has no error of the server."""

    async def run() -> Caller:
        place, store = Place(served, face), served.store.for_user("ann")
        poster = await place.post(**body)
        while not place.hanging.asked:  # noqa: ASYNC110 - the provider does not tell more
            await asyncio.sleep(0.01)
        if body:
            await poster.begun()
        [conversation] = await store.list_conversations()
        await store.delete_conversation(conversation.id)
        await place.end()
        await poster.answered()
        return poster

    poster = served.runner.run(run())
    if body.get("stream"):
        [*_, kind, data] = poster.text.strip().splitlines()
        assert kind == "event: error"
        told = json.loads(data.removeprefix("data: "))
        assert (told["type"], told["code"], told["param"]) == ("error", "not_found", None)
        assert ("sequence_number" in told) == (face == "openai")
    elif not body:
        assert poster.status == 404
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
