"""Requests at the same time: each is answered with what it brings, or refused, and then nothing of it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2
import pytest

from threadkeep.http import Owner, Upstream, UpstreamError, rest_app

ROUNDS = 8
NAMES = ("ada", "bob", "cyd", "dan")


class Recording:
    """An upstream that says "Yes.", and knows what it was asked."""

    def __init__(self) -> None:
        self.payloads: list[dict[str, Any]] = []
        self.refuses = False
        self.upstreams = {"*": Upstream("local", "chat_completion", self.ask)}

    async def ask(self, payload: Any, model: str) -> AsyncGenerator[Any]:
        self.payloads.append(payload)
        await asyncio.sleep(0)
        if self.refuses:
            raise UpstreamError(429, None, "Too many.")
        for delta, reason in (({"role": "assistant", "content": "Yes."}, None), ({}, "stop")):
            yield {"id": "1", "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def texts(payload: dict[str, Any], role: str) -> list[str]:
    found = [message["content"] for message in payload["messages"] if message["role"] == role]
    return [content if isinstance(content, str) else content[0]["text"] for content in found]


def together(served: Any, application: Any, work: Callable[[httpx2.AsyncClient], Any]) -> Any:
    """What a coroutine function makes of a client."""

    async def run() -> Any:
        transport = httpx2.ASGITransport(app=application)
        headers = {"Authorization": "Bearer ann"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await work(client)

    return served.runner.run(run())


def request_of(name: str, **place: Any) -> dict[str, Any]:
    tool = {"type": "function", "name": f"tool_{name}", "parameters": {"type": "object"}, "strict": False}
    return {"model": name, "input": f"I am {name}.", "instructions": f"You serve {name}.", "tools": [tool], **place}


def test_each_answer_is_given_with_the_settings_of_its_own_request(served: Any) -> None:
    upstream = Recording()

    async def work(client: httpx2.AsyncClient) -> None:
        for _ in range(ROUNDS):
            first = (await client.post("/v1/responses", json={"model": "m", "input": "Hello."})).json()["id"]
            upstream.payloads.clear()
            asked = (client.post("/v1/responses", json=request_of(name, previous_response_id=first)) for name in NAMES)
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200] * len(NAMES)
            for payload in upstream.payloads:
                name = payload["model"]
                assert texts(payload, "system") == [f"You serve {name}."]
                assert texts(payload, "user") == ["Hello.", f"I am {name}."]
                assert [tool["function"]["name"] for tool in payload["tools"]] == [f"tool_{name}"]

    together(served, served.application(upstreams=upstream.upstreams), work)


@pytest.mark.parametrize(
    ("path", "asked"),
    [("responses", {"input": "Hello."}), ("chat/completions", {"messages": [{"role": "user", "content": "Hello."}]})],
)
def test_equal_requests_of_clients_that_name_no_session_have_conversations_of_their_own(
    served: Any, path: str, asked: Any
) -> None:
    """None goes on with what another one has said, which is not answered yet."""

    async def work(client: httpx2.AsyncClient) -> None:
        body = {"model": "m", "store": False, **asked}
        answers = await asyncio.gather(*(client.post(f"/v1/{path}", json=body) for _ in NAMES))
        assert [answer.status_code for answer in answers] == [200] * len(NAMES)

    together(served, served.application(upstreams=Recording().upstreams, store_false="keep"), work)
    found = served.call(served.store.list_conversations).items
    said = [[one.item.text for one in served.call(conversation.items)] for conversation in found]
    assert said == [["Hello.", "Yes."]] * len(NAMES)


def test_what_is_refused_because_of_another_answer_is_not_there(served: Any) -> None:
    upstream = Recording()

    async def work(client: httpx2.AsyncClient) -> None:
        for _ in range(ROUNDS):
            conversation = (await client.post("/v1/conversations", json={})).json()["id"]
            upstream.payloads.clear()
            asked = (client.post("/v1/responses", json=request_of(name, conversation=conversation)) for name in NAMES)
            answers = dict(zip(NAMES, await asyncio.gather(*asked), strict=True))
            for refused in (answer for answer in answers.values() if answer.status_code != 200):
                assert (refused.status_code, refused.json()["error"]["code"]) == (400, "conversation_locked")
            items = (await client.get(f"/v1/conversations/{conversation}/items?order=asc")).json()["data"]
            said = [item["content"][0]["text"] for item in items if item["role"] == "user"]
            answered = [name for name in NAMES if answers[name].status_code == 200]
            assert sorted(said) == [f"I am {name}." for name in answered]
            assert sorted(payload["model"] for payload in upstream.payloads) == answered

    together(served, served.application(upstreams=upstream.upstreams), work)


def test_a_message_that_is_refused_because_of_another_answer_is_not_there(served: Any) -> None:
    upstream = Recording()

    async def work(client: httpx2.AsyncClient) -> None:
        for _ in range(ROUNDS):
            path = f"/api/conversations/{(await client.post('/api/conversations', json={'model': 'm'})).json()['id']}"
            asked = (client.post(f"{path}/messages", json={"content": name, "model": name}) for name in NAMES)
            answers = dict(zip(NAMES, await asyncio.gather(*asked), strict=True))
            items = (await client.get(f"{path}/messages?order=asc")).json()["data"]
            messages = [item["item"] for item in items]
            said = [message["content"][0]["text"] for message in messages if message["role"] == "user"]
            assert sorted(said) == [name for name in NAMES if answers[name].status_code == 201]
            assert said

    together(served, rest_app(served._store, auth=served.authenticate, upstreams=upstream.upstreams), work)


def test_a_request_that_was_refused_leaves_one_unused_branch_at_most(served: Any) -> None:
    """The branch of a request that goes on after an earlier response is used by the next one."""
    upstream = Recording()

    async def work(client: httpx2.AsyncClient) -> None:
        first = (await client.post("/v1/responses", json={"model": "m", "input": "Hello."})).json()
        place = {"previous_response_id": first["id"]}
        await client.post("/v1/responses", json=request_of("ada", **place))
        upstream.refuses = True
        for _ in range(3):
            assert (await client.post("/v1/responses", json=request_of("bob", **place))).status_code == 429
        upstream.refuses = False
        upstream.payloads.clear()
        assert (await client.post("/v1/responses", json=request_of("bob", **place))).status_code == 200
        assert texts(upstream.payloads[0], "user") == ["Hello.", "I am bob."]
        store = await served._store.for_tenant(served.tenant)
        conversation = await store.for_user("ann").get_conversation(first["conversation"]["id"])
        branches = await conversation.branches()
        assert [(branch.number, branch.head_position) for branch in branches][:1] == [(0, 3)]
        assert len(branches.items) == 2

    together(served, served.application(upstreams=upstream.upstreams), work)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_who_takes_a_name_that_another_takes_is_told_that_name(served: Any, method: str) -> None:
    async def work(client: httpx2.AsyncClient) -> None:
        path = "/api/conversations"
        made = [(await client.post(path, json={})).json()["id"] for _ in NAMES]
        places = [path] * len(NAMES) if method == "POST" else [f"{path}/{id_}" for id_ in made]
        asked = (client.request(method, place, json={"external_id": "trip"}) for place in places)
        answers = sorted(await asyncio.gather(*asked), key=lambda answer: answer.status_code)
        assert answers[0].is_success
        for refused in answers[1:]:
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["param"]) == (400, "invalid_value", "external_id")
            assert error["message"] == "Another conversation has the external_id 'trip'."

    together(served, rest_app(served._store, auth=served.authenticate), work)


@pytest.mark.parametrize(
    "change", [{"model": "eve"}, {"instructions": "Lie."}, {"input": []}, {"input": "Else."}, {"temperature": 1}],
    ids=["model", "instructions", "nothing", "input", "temperature"],
)  # fmt: skip
def test_a_key_stands_for_one_request(served: Any, change: dict[str, Any]) -> None:
    upstream = Recording()

    async def work(client: httpx2.AsyncClient) -> None:
        conversation = (await client.post("/v1/conversations", json={})).json()["id"]
        headers, body = {"Idempotency-Key": "k"}, request_of("ada", conversation=conversation)
        first = await client.post("/v1/responses", json=body, headers=headers)
        again = await client.post("/v1/responses", json={**body, "stream": False}, headers=headers)
        assert again.json()["id"] == first.json()["id"]
        other = await client.post("/v1/responses", json={**body, **change}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
        assert len(upstream.payloads) == 1

    together(served, served.application(upstreams=upstream.upstreams), work)


@pytest.mark.parametrize("user", ["ann", None])
def test_a_chat_is_begun_once(served: Any, user: str | None) -> None:
    """The others are refused with words about the chat, whether they find it or not."""
    upstream = Recording()

    async def work(client: httpx2.AsyncClient) -> None:
        for number in range(ROUNDS):
            upstream.payloads.clear()
            said = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello."}]}]
            run: dict[str, Any] = {
                "runId": "r",
                "state": None,
                "tools": [],
                "context": [],
                "forwardedProps": {"model": "m"},
            }
            chat = ("/api/chat", {"id": f"chat-{number}", "messages": said, "model": "m"})
            run |= {"threadId": f"t-{number}", "messages": [{"id": "u1", "role": "user", "content": "Hello."}]}
            thread = ("/api/ag-ui", run)
            for path, body in (chat, thread):
                answers = await asyncio.gather(*(client.post(path, json=body) for _ in NAMES))
                refused = [one.json()["error"] for one in answers if one.status_code == 409]
                assert len(refused) == len(NAMES) - 1, [one.text for one in answers]
                assert "external_id" not in str(refused)
            assert len(upstream.payloads) == 2

    owner = Owner(user_id=user, tenant=served.tenant)
    made = rest_app(served._store, auth=lambda _: owner, upstreams=upstream.upstreams)
    together(served, made, work)
