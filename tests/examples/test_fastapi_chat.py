"""The example of a chat backend, against a scripted provider: what browsers see, and what is stored of it."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import multiprocessing
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import ClientDisconnect

from tests.factories import noise
from tests.server.callers import http_scope
from threadkeep import Rendered, Store

FILE = Path(__file__).parents[2] / "examples" / "fastapi_chat.py"
MOST_LINES = 280
LEAVING_KEY = "left"
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Provider:
    """Answers each request with the next script: texts, events to wait for, or an error to raise."""

    def __init__(self) -> None:
        self.scripts: list[list[str | Exception | asyncio.Event | dict[str, Any]]] = []
        self.payloads: list[dict[str, Any]] = []
        self.pause = 0.0

    async def ask(self, rendered: Rendered) -> AsyncIterator[dict[str, Any]]:
        self.payloads.append(rendered.payload)
        head = {"id": f"chatcmpl-{len(self.payloads)}", "object": "chat.completion.chunk", "model": "gpt-5.4"}
        for step in self.scripts.pop(0):
            await asyncio.sleep(self.pause)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            delta = step if isinstance(step, dict) else {"content": step}
            yield {**head, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield {**head, "choices": [], "usage": usage}


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: Provider) -> Any:
    """The example as a module of its own, with a database of its own."""
    monkeypatch.setenv("CHAT_DATABASE", f"sqlite:///{tmp_path}/chat.db")
    monkeypatch.delitem(sys.modules, "examples.fastapi_chat", raising=False)
    module = importlib.import_module("examples.fastapi_chat")
    monkeypatch.setattr(module, "ask", provider.ask)
    return module


def browsing(chat: Any, visit: Callable[[httpx2.AsyncClient], Awaitable[None]]) -> None:
    """What a browser does."""

    async def visited() -> None:
        transport = httpx2.ASGITransport(app=chat.app)
        headers = {"X-User": "ann"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://chat", headers=headers) as browser:
            await visit(browser)
        await chat.store.close()

    asyncio.run(visited())


async def new_conversation(browser: httpx2.AsyncClient) -> str:
    id_ = (await browser.post("/conversations")).json()["id"]
    return f"/conversations/{id_}"


def texts(history: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in history]


def test_it_is_short() -> None:
    assert len(FILE.read_text().splitlines()) < MOST_LINES


def test_an_answer_is_streamed_and_stored(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Hel", "lo"], ["Fine", "."]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        for text, answer in (("Hi", "Hello"), ("How are you?", "Fine.")):
            assert (await browser.post(f"{url}/messages", json={"text": text})).text == answer
        history = (await browser.get(url)).json()
        assert texts(history) == ["Hi", "Hello", "How are you?", "Fine."]
        assert [item["position"] for item in history] == [0, 1, 2, 3]
        assert texts((await browser.get(url, params={"before": 2})).json()) == ["Hi", "Hello"]
        [row] = (await browser.get("/usage")).json()
        assert (row["model"], row["attempts"], row["total_tokens"]) == ("gpt-5.4", 2, 30)
        assert (await browser.get("/usage", headers={"X-User": "ben"})).json() == []

    browsing(chat, visit)
    roles = [message["role"] for message in provider.payloads[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


def test_editing_and_regenerating_make_branches(chat: Any, provider: Provider, tmp_path: Path) -> None:
    provider.scripts = [["one"], ["two"], ["drei"], ["eins"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        await browser.post(f"{url}/messages", json={"text": "1"})
        await browser.post(f"{url}/messages", json={"text": "2"})
        assert (await browser.post(f"{url}/messages/2", json={"text": "3"})).text == "drei"
        assert texts((await browser.get(url)).json()) == ["1", "one", "3", "drei"]
        assert (await browser.post(f"{url}/messages/0")).text == "eins"
        assert texts((await browser.get(url)).json()) == ["1", "eins"]

    browsing(chat, visit)
    with Store(f"sqlite:///{tmp_path}/chat.db") as store:
        [conversation] = store.list_conversations()
        assert len(list(conversation.branches())) == 3
        assert texts([item.item.to_dict() for item in conversation.on_branch(0).transcript()]) == [
            "1",
            "one",
            "2",
            "two",
        ]


def test_an_edit_of_the_first_message(chat: Any, provider: Provider) -> None:
    provider.scripts = [["one"], ["two"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        await browser.post(f"{url}/messages", json={"text": "1"})
        await browser.post(f"{url}/messages/0", json={"text": "2"})
        assert texts((await browser.get(url)).json()) == ["2", "two"]

    browsing(chat, visit)


def test_others_find_nothing(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Hello"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        for response in (
            await browser.get(url, headers={"X-User": "ben"}),
            await browser.post(f"{url}/messages", json={"text": "Hi"}, headers={"X-User": "ben"}),
            await browser.get(f"/conversations/conv_{'0' * 32}"),
        ):
            assert response.status_code == 404
            assert "no conversation" in response.json()["detail"]

    browsing(chat, visit)


def test_a_retry_makes_one_answer_and_one_bill(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Hello"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        for _ in range(2):
            response = await browser.post(f"{url}/messages", json={"text": "Hi"}, headers={"Idempotency-Key": "1"})
            assert response.text == "Hello"
        assert texts((await browser.get(url)).json()) == ["Hi", "Hello"]
        [row] = (await browser.get("/usage")).json()
        assert (row["attempts"], row["total_tokens"]) == (1, 15)

    browsing(chat, visit)


def test_a_provider_that_fails_in_mid_stream(chat: Any, provider: Provider, tmp_path: Path) -> None:
    """What came is kept, and the conversation goes on."""
    provider.scripts = [["Hel", ConnectionError("gone")], ["Sorry."]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        with pytest.raises(ConnectionError):
            await browser.post(f"{url}/messages", json={"text": "Hi"})
        assert (await browser.post(f"{url}/messages", json={"text": "Still there?"})).text == "Sorry."
        assert texts((await browser.get(url)).json()) == ["Hi", "Hel", "Still there?", "Sorry."]

    browsing(chat, visit)
    assert statuses(tmp_path) == ["incomplete", "completed"]


def statuses(folder: Path) -> list[str | None]:
    """How the responses of the only conversation ended."""
    with Store(f"sqlite:///{folder}/chat.db") as store:
        [conversation] = store.list_conversations()
        assert conversation.usage().attempts == len(list(conversation.responses()))
        return [row.status for row in conversation.responses()]


async def leave(app: Any, path: str, body: dict[str, Any], after: int, version: str) -> bytes:
    """Read the first pieces of an answer and close the connection; from ASGI 2.4 on sending fails then."""
    received, gone = [], asyncio.Event()
    asked = iter([{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in asked:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if gone.is_set() and version >= "2.4":
            raise OSError
        if message["type"] == "http.response.body" and message.get("body"):
            received.append(message["body"])
            if len(received) == after:
                gone.set()

    headers = {"content-type": "application/json", "x-user": "ann", "idempotency-key": LEAVING_KEY}
    scope = http_scope(path, "POST", headers, asgi={"version": "3.0", "spec_version": version})
    with suppress(ClientDisconnect):
        await app(scope, receive, send)
    await asyncio.sleep(0.1)  # a generator that nothing refers to any more is closed by the loop
    return b"".join(received)


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_browser_that_leaves_in_mid_stream(chat: Any, provider: Provider, tmp_path: Path, version: str) -> None:
    """The answer is completed without it, and is there when the request is sent again."""
    words = [f"{number} " for number in range(100)]
    provider.scripts = [[*words]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        provider.pause = 0.002
        seen = await leave(chat.app, f"{url}/messages", {"text": "Count"}, after=5, version=version)
        assert "".join(words).startswith(seen.decode())
        response = await retried(browser, f"{url}/messages", {"text": "Count"}, LEAVING_KEY)
        assert response.text == "".join(words)
        assert texts((await browser.get(url)).json()) == ["Count", "".join(words)]

    browsing(chat, visit)
    assert statuses(tmp_path) == ["completed"]
    assert len(provider.payloads) == 1


async def retried(browser: httpx2.AsyncClient, url: str, body: Any, key: str) -> httpx2.Response:
    """The answer to a request that is sent again for as long as the server says when to."""
    while True:
        response = await browser.post(url, json=body, headers={"Idempotency-Key": key})
        if response.status_code != 409:
            return response
        await asyncio.sleep(int(response.headers["Retry-After"]) / 10)


@pytest.mark.slow
def test_a_server_that_is_killed_in_mid_stream(
    chat: Any, provider: Provider, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The same request answers anew: what the killed server had stored stays on a branch that nobody is shown."""
    with Store(f"sqlite:///{tmp_path}/chat.db", prices=[]) as store:
        conversation = store.for_user("ann").create_conversation(model="m")
        url, body = f"/conversations/{conversation.id}/messages", {"text": "Count"}

        async def ask_forever(browser: httpx2.AsyncClient) -> None:
            provider.scripts, provider.pause = [["word "] * 100_000], 0.01
            await browser.post(url, json=body, headers={"Idempotency-Key": "1"})

        process = multiprocessing.get_context("fork").Process(target=browsing, args=(chat, ask_forever))
        process.start()
        request.addfinalizer(process.kill)
        while not store.usage(by=("status",), conversation_id=conversation.id) and not list(conversation.responses()):
            time.sleep(0.05)
        time.sleep(1)
        process.kill()
        process.join()
        provider.scripts = [["Two."]]

        async def visit(browser: httpx2.AsyncClient) -> None:
            assert (await retried(browser, url, body, "1")).text == "Two."
            assert (await retried(browser, url, body, "1")).text == "Two."
            assert texts((await browser.get(url.removesuffix("/messages"))).json()) == ["Count", "Two."]

        browsing(chat, visit)
        assert len(provider.payloads) == 1
        assert [row.status for row in conversation.responses()] == ["incomplete", "completed"]


def test_a_second_message_meanwhile_is_refused(chat: Any, provider: Provider) -> None:
    refused = asyncio.Event()
    provider.scripts = [["slow, ", refused, "and ends"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        first = asyncio.ensure_future(browser.post(f"{url}/messages", json={"text": "Count"}))
        while not provider.payloads:  # noqa: ASYNC110 - the provider has no event to wait for
            await asyncio.sleep(0.01)
        second = await browser.post(f"{url}/messages", json={"text": "Hurry"})
        assert second.status_code == 409
        assert "still being streamed" in second.json()["detail"]
        assert 1 <= int(second.headers["Retry-After"]) <= 5
        refused.set()
        assert (await first).text == "slow, and ends"

    browsing(chat, visit)


# Tools, images, variants, feedback, usage


def a_call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call_{name}", "type": "function", "function": function}]}


def test_tools_run_until_the_model_has_answered(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Wait. ", a_call("count_words", text="a b c")], ["Three."]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        response = await browser.post(f"{url}/messages", json={"text": "Count: a b c"})
        assert response.text == "Wait. Three."
        history = (await browser.get(url)).json()
        assert [item["type"] for item in history] == [
            "message", "message", "function_call", "function_call_output", "message",
        ]  # fmt: skip
        assert history[3]["output"] == "3"

    browsing(chat, visit)
    assert [tool["function"]["name"] for tool in provider.payloads[0]["tools"]] == ["count_words", "send_mail"]


def test_a_model_is_told_what_was_wrong_with_its_call(chat: Any, provider: Provider) -> None:
    provider.scripts = [[a_call("count_words", words="a")], ["Sorry."]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        assert (await browser.post(f"{url}/messages", json={"text": "Hi"})).text == "Sorry."

    browsing(chat, visit)
    assert "text" in provider.payloads[1]["messages"][-1]["content"]


@pytest.mark.parametrize("approved", [True, False])
def test_the_user_decides_about_calls(chat: Any, provider: Provider, approved: bool) -> None:
    provider.scripts = [[a_call("send_mail", to="ben", text="Hello")], ["Done."]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        assert (await browser.post(f"{url}/messages", json={"text": "Write to Ben"})).text == ""
        assert len(provider.payloads) == 1
        [call] = (await browser.get(f"{url}/calls")).json()
        assert (call["name"], call["arguments"]) == ("send_mail", {"to": "ben", "text": "Hello"})
        other = await browser.post(f"{url}/calls/call_send_mail", json={"approved": True}, headers={"X-User": "ben"})
        assert other.status_code == 404
        for _ in range(2):  # the second one is a retry
            answer = await browser.post(
                f"{url}/calls/call_send_mail", json={"approved": approved}, headers={"Idempotency-Key": "1"}
            )
            assert answer.status_code == 200
        assert (await browser.post(f"{url}/calls/call_send_mail", json={"approved": True})).status_code == 409
        assert (await browser.get(f"{url}/calls")).json() == []
        history = (await browser.get(url)).json()
        assert texts([history[-1]]) == ["Done."]

    browsing(chat, visit)
    assert len(provider.payloads) == 2
    output = provider.payloads[1]["messages"][-1]["content"]
    assert output == ("Sent 5 characters to ben." if approved else "The user does not want this.")


def test_images_are_named_in_the_history(chat: Any, provider: Provider) -> None:
    provider.scripts = [["A lot of noise."]]
    picture = noise(20_000)
    url_of_picture = f"data:image/png;base64,{base64.b64encode(picture).decode()}"

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        images = [url_of_picture, "https://elsewhere.example/secret.png"]
        await browser.post(f"{url}/messages", json={"text": "What is it?", "images": images})
        [_, part] = (await browser.get(url)).json()[0]["content"]
        found = await browser.get(f"/media/{part['url']}")
        assert (found.content, found.headers["content-type"]) == (picture, "image/png")
        for name in (part["url"], "nothing"):
            response = await browser.get(f"/media/{name}", headers={"X-User": "ben"})
            assert response.status_code in {400, 404}

    browsing(chat, visit)
    [_, part] = provider.payloads[0]["messages"][-1]["content"]
    assert part["image_url"]["url"] == url_of_picture


def test_variants_are_counted_and_shown(chat: Any, provider: Provider) -> None:
    provider.scripts = [["one"], ["uno"], ["eins"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        await browser.post(f"{url}/messages", json={"text": "1"})
        for _ in range(2):
            await browser.post(f"{url}/messages/0")
        position = (await browser.get(url)).json()[1]["position"]
        found = (await browser.get(f"{url}/messages/{position}/variants")).json()
        assert (found["number"], found["count"]) == (3, 3)
        first = found["variants"][0]
        assert (await browser.put(f"{url}/branch", json={"number": first["branch"]})).status_code == 200
        assert texts((await browser.get(url)).json()) == ["1", "one"]
        assert (await browser.put(f"{url}/branch", json={"number": 77})).status_code == 404
        assert (await browser.post(f"{url}/messages/1", json={"text": "not mine"})).status_code == 400

    browsing(chat, visit)


async def listed(browser: httpx2.AsyncClient, **parameters: str) -> dict[str, Any]:
    """The list of conversations."""
    listing: dict[str, Any] = (await browser.get("/conversations", params=parameters)).json()
    return listing


def test_conversations_are_listed_with_previews(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Hello\nAnn"], ["Fine."]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        assert await listed(browser) == {"conversations": [], "next": None}
        first, second = [await new_conversation(browser) for _ in range(2)]
        for url, text in ((second, "How are you?"), (first, "Hi")):
            await browser.post(f"{url}/messages", json={"text": text})
        newest, oldest = (await listed(browser))["conversations"]
        assert f"/conversations/{newest['id']}" == first
        assert (newest["preview"], newest["item_count"]) == ("Fine.", 2)
        assert (oldest["preview"], oldest["title"]) == ("Hello Ann", None)
        assert newest["last_activity_at"] > oldest["last_activity_at"]
        for _ in range(20):
            await new_conversation(browser)
        page = await listed(browser)
        assert len(page["conversations"]) == 20
        assert [one["id"] for one in (await listed(browser, after=page["next"]))["conversations"]] == [
            newest["id"], oldest["id"],
        ]  # fmt: skip
        assert (await browser.get("/conversations", params={"after": "nowhere"})).status_code == 400
        assert (await browser.get("/conversations", headers={"X-User": "ben"})).json()["conversations"] == []

    browsing(chat, visit)


def test_an_answer_is_unread_until_the_user_has_seen_it(chat: Any, provider: Provider) -> None:
    words = [f"{number} " for number in range(100)]
    provider.scripts = [["Hello"], [*words]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        async def unread() -> list[bool]:
            return [one["is_unread"] for one in (await listed(browser))["conversations"]]

        url = await new_conversation(browser)
        await browser.post(f"{url}/messages", json={"text": "Hi"})
        assert await unread() == [False]
        provider.pause = 0.002
        await leave(chat.app, f"{url}/messages", {"text": "Count"}, after=5, version="2.3")
        while chat.answering:
            await asyncio.wait(set(chat.answering))
        assert await unread() == [True]
        await browser.get(url, params={"before": 1})
        assert await unread() == [True]
        await browser.get(url)
        assert await unread() == [False]

    browsing(chat, visit)


def test_answers_are_rated(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Hello"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        await browser.post(f"{url}/messages", json={"text": "Hi"})
        for rating, shown in ((1, [1]), (-1, [-1]), (None, [])):
            await browser.put(f"{url}/messages/1/feedback", json={"rating": rating})
            assert (await browser.get(url)).json()[1]["ratings"] == shown

    browsing(chat, visit)


def test_an_answer_can_be_stopped(chat: Any, provider: Provider, tmp_path: Path) -> None:
    provider.scripts = [["word "] * 400]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        assert (await browser.post(f"{url}/stop")).json() is False
        provider.pause = 0.01
        answer = asyncio.ensure_future(browser.post(f"{url}/messages", json={"text": "Count"}))
        while not provider.payloads:  # noqa: ASYNC110 - the provider has no event to wait for
            await asyncio.sleep(0.01)
        assert (await browser.post(f"{url}/stop")).json() is True
        assert 0 < len((await answer).text) < 400 * len("word ")

    browsing(chat, visit)
    assert statuses(tmp_path) == ["cancelled"]


def test_the_page_of_usage(chat: Any, provider: Provider) -> None:
    provider.scripts = [["Hello"]]

    async def visit(browser: httpx2.AsyncClient) -> None:
        url = await new_conversation(browser)
        await browser.post(f"{url}/messages", json={"text": "Hi"})
        page = await browser.get("/usage.html")
        assert page.headers["content-type"].startswith("text/html")
        assert "<td>gpt-5.4</td><td>1</td><td>10</td><td>5</td>" in page.text

    browsing(chat, visit)
