"""Histories that are larger than any request: they are refused before they are read, and leave others room."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2
import pytest
from sqlalchemy import event

from tests.factories import noise
from tests.server.test_responses import BODIES
from tests.server.test_rest import Rest
from tests.waiting import wait_until
from threadkeep.http import Upstream, rest_app
from threadkeep.server import service
from threadkeep.server.quotas import QuotaExceeded
from threadkeep.store.reading.overviews import request_bytes, settings_bytes

Json = dict[str, Any]
PICTURE = noise(300_000)
URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"


class Slow:
    """An upstream that answers when it may."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []
        self.may_answer = asyncio.Event()
        self.upstreams = {"*": Upstream("slow", "chat_completion", self.ask)}

    async def ask(self, payload: Any, model: str) -> AsyncGenerator[Any]:
        self.payloads.append(payload)
        await self.may_answer.wait()
        choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
        yield {"id": "c1", "model": model, "choices": [choice]}


def with_pictures(served: Any, user: str, count: int) -> Any:
    """A conversation with one picture many times, which is stored once."""
    conversation = served.call(served.store.for_user(user).create_conversation, model="m")
    part = {"type": "input_image", "image_url": URL}
    served.call(conversation.add_items, [{"role": "user", "content": [part]} for _ in range(count)])
    return conversation


def with_answer(served: Any, conversation: Any) -> str:
    """The id of a response that is added to a conversation."""
    served.call(conversation.add_response, BODIES["chat_completion"], "chat_completion")
    return str(served.call(conversation.get_response, 0).id)


def test_the_size_of_a_request_is_known_before_it_is_read(served: Any) -> None:
    conversation = with_pictures(served, "ann", 5)
    served.call(conversation.user, "x" * 1_000)
    branch = served.call(conversation.fork, at=1)
    served.call(branch.user, "y" * 100)
    for one in (conversation, branch):
        body = served.call(one.request_body, "open_responses")
        size = served.call(one.run_sync, request_bytes, 0)
        assert 0.9 * len(body) < size < 1.1 * len(body)
    of_all = served.call(branch.run_sync, request_bytes, 10**9)
    assert of_all > served.call(conversation.run_sync, request_bytes, 0)


def test_settings_and_tools_count_for_a_request(served: Any) -> None:
    """Also where its input is short: while it is answered, they are in memory as often as a history is."""
    function = {"type": "function", "name": "look", "description": "d" * 600_000, "parameters": {"type": "object"}}
    slow, body = Slow(), {"model": "m", "input": "Hi", "instructions": "x" * 500_000, "tools": [function]}

    async def run() -> None:
        application = served.application(upstreams=slow.upstreams)
        transport = httpx2.ASGITransport(app=application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/v1") as http:
            answer = await http.post("/responses", json={**body, "background": True})
            assert answer.is_success
            counted = application.state.service.request_bytes
            conversation = await served.store.get_conversation(answer.json()["conversation"]["id"])
            assert counted.total == await conversation.run_sync(settings_bytes) > 1_100_000
            slow.may_answer.set()
            await asyncio.to_thread(wait_until, lambda: not counted.total)

    served.runner.run(run())


# which request -> its path, and what it says of the conversation and the response at its end
REFUSED: dict[str, tuple[str, Callable[[str, str], Json]]] = {
    "responses": ("/responses", lambda id_, _: {"conversation": id_}),
    "not stored": ("/responses", lambda _, response: {"previous_response_id": response, "store": False}),
    "compact": ("/responses/compact", lambda _, response: {"previous_response_id": response}),
    "input_tokens": ("/responses/input_tokens", lambda id_, _: {"conversation": id_}),
    "rest": ("", lambda *_: {}),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_too_large_is_refused_and_leaves_nothing(
    served: Any, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_REQUEST_BYTES", 1_000_000)
    conversation = with_pictures(served, "ann", 3)
    response = with_answer(served, conversation)
    slow, read, engine = Slow(), list[bool](), served._store.sync.handle.root.engine
    slow.may_answer.set()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        read.append("content" in statement.partition("FROM")[0] and "blobs" in statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        path, of_place = REFUSED[which]
        if path:
            body = {"model": "m", "input": "And now?", **of_place(conversation.id, response)}
            answer = served.http(upstreams=slow.upstreams).post(path, json=body)
        else:
            answer = (
                Rest(served, upstreams=slow.upstreams)
                .of("ann")
                .post(f"/conversations/{conversation.id}/messages", json={"content": "And now?"})
            )
    finally:
        event.remove(engine, "before_cursor_execute", note)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (413, "request_too_large", "conversation")
    assert (slow.payloads, any(read)) == ([], False)
    assert len(served.call(conversation.transcript, media="reference")) == 5
    assert [row.attempts for row in served.call(served.store.usage, by=("model",))] == [1]


def test_only_what_a_request_goes_on_with_has_to_fit(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not stored, after an earlier response of a conversation that has become too large since."""
    conversation = with_pictures(served, "ann", 2)
    response = with_answer(served, conversation)
    later = with_pictures(served, "ann", 1)  # its picture is known
    served.call(conversation.add_items, [one.given() for one in served.call(later.transcript)] * 3)
    monkeypatch.setattr(service, "MAX_REQUEST_BYTES", 1_000_000)
    slow = Slow()
    slow.may_answer.set()
    body = {"model": "m", "input": "And now?", "previous_response_id": response, "store": False}
    assert served.http(upstreams=slow.upstreams).post("/responses", json=body).status_code == 200
    assert [message["role"] for message in slow.payloads[0]["messages"]].count("user") == 3


def test_histories_of_answers_that_are_not_stored_leave_room_for_others(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SMALL", 10_000), ("OF_OWNER", 1_300_000), ("IN_ALL", 2_000_000)):
        monkeypatch.setattr(service, name, value)
    slow = Slow()
    response = with_answer(served, with_pictures(served, "ann", 2))
    body = {"model": "m", "input": "And now?", "previous_response_id": response, "store": False}

    async def run() -> None:
        application = served.application(upstreams=slow.upstreams)
        transport = httpx2.ASGITransport(app=application)
        headers = {"Authorization": "Bearer ann"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/v1", headers=headers) as http:
            first = asyncio.create_task(http.post("/responses", json=body))
            await asyncio.to_thread(wait_until, lambda: slow.payloads)
            refused = await http.post("/responses", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_large_requests")
            slow.may_answer.set()
            assert (await first).status_code == 200
            assert application.state.service.request_bytes.total == 0

    served.runner.run(run())


def test_large_requests_leave_room_for_others(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they are answered; what is small always has room."""
    for name, value in (("SMALL", 10_000), ("OF_OWNER", 1_300_000), ("IN_ALL", 2_000_000)):
        monkeypatch.setattr(service, name, value)
    large = {user: with_pictures(served, user, 2).id for user in ("ann", "ben", "cyd")}
    second = with_pictures(served, "ann", 2).id
    small = served.call(served.store.for_user("cyd").create_conversation, model="m").id

    async def ask() -> list[int]:
        slow = Slow()
        application = rest_app(served._store, auth=served.authenticate, upstreams=slow.upstreams)

        async def say(user: str, conversation: str) -> int:
            headers = {"Authorization": f"Bearer {user}"}
            transport, url = httpx2.ASGITransport(app=application), "http://localhost/api"
            async with httpx2.AsyncClient(transport=transport, base_url=url, headers=headers) as http:
                answer = await http.post(f"/conversations/{conversation}/messages", json={"content": "And now?"})
            return answer.status_code

        async def waiting(user: str, conversation: str, count: int) -> asyncio.Future[int]:
            task = asyncio.ensure_future(say(user, conversation))
            for _ in range(2_000):
                if len(slow.payloads) >= count or task.done():
                    break
                await asyncio.sleep(0.005)
            return task

        tasks = [await waiting("ann", large["ann"], 1)]
        refused = [await say("ann", second)]
        tasks.append(await waiting("ben", large["ben"], 2))
        refused.append(await say("cyd", large["cyd"]))
        tasks.append(await waiting("cyd", small, 3))
        slow.may_answer.set()
        return [*refused, *await asyncio.gather(*tasks), await say("cyd", large["cyd"])]

    assert served.runner.run(ask()) == [429, 503, 201, 201, 201, 201]


def test_room_is_given_back() -> None:
    quota, size = service.request_quota(), service.MAX_REQUEST_BYTES
    for _ in range(2):
        quota.take("ann", size)
    with pytest.raises(QuotaExceeded) as refused:
        quota.take("ann", size)
    assert (refused.value.status_code, refused.value.code) == (429, "too_many_large_requests")
    for _ in range(2):
        quota.give_back("ann", size)
    quota.take("ann", size)


def asked_of_pages(conversation: str) -> list[tuple[str, str, Any]]:
    """What pages of web clients ask, in a conversation that is there: each of it reads the whole history."""
    said = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    run: Any = {"threadId": conversation, "runId": "r", "messages": [{"id": "u1", "role": "user", "content": "Hi"}]}
    run |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return [
        ("GET", f"/chat/{conversation}", None),
        ("POST", "/chat", {"id": conversation, "messages": [said]}),
        ("GET", f"/ag-ui/{conversation}", None),
        ("GET", f"/ag-ui/{conversation}/stream", None),
        ("POST", "/ag-ui", run),
    ]


@pytest.mark.parametrize(
    ("size", "status", "code"), [(2_000_000, 429, "too_many_bodies"), (1, 413, "request_too_large")]
)
def test_a_page_reads_a_history_for_which_there_is_room(
    served: Any, monkeypatch: pytest.MonkeyPatch, size: int, status: int, code: str
) -> None:
    """It counts before it is read, as the bodies of answers do."""
    monkeypatch.setattr(service, "MAX_REQUEST_BYTES", size)
    conversation = with_pictures(served, "ann", 3).id
    slow, read = Slow(), list[bool]()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        read.append("content" in statement.partition("FROM")[0] and "blobs" in statement)

    http = Rest(served, upstreams=slow.upstreams, max_bodies_bytes=800_000).of("ann")
    event.listen(served._store.sync.handle.root.engine, "before_cursor_execute", note)
    try:
        for method, path, body in asked_of_pages(conversation):
            answer = http.request(method, path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), path
    finally:
        event.remove(served._store.sync.handle.root.engine, "before_cursor_execute", note)
    assert (slow.payloads, any(read)) == ([], False)
    roomy = Rest(served, upstreams=slow.upstreams).of("ann")
    if code == "too_many_bodies":
        assert roomy.get(f"/chat/{conversation}").is_success
