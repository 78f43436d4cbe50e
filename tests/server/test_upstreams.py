"""Upstreams over HTTP, and clients that leave: real servers on this machine."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from binascii import crc32
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager
from threading import Event
from typing import Any

import botocore.session
import httpx2
import openai
import pytest
from anthropic.types import MessageCountTokensParams
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import InputTokenCountParams
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.databases import Database
from tests.ports import free_ports
from tests.server.scripts import FORMATS, script
from tests.server.servers import running
from tests.waiting import wait_until
from tests.wires import SPOKEN
from threadkeep import AsyncStore, InvalidOption, Store
from threadkeep.formats import NAMES, FormatName
from threadkeep.http import Owner, Upstream, app, http_upstream
from threadkeep.server.provider_answers import EventData
from threadkeep.server.recorder.targets import RecordedUpstream
from threadkeep.server.upstreams import shown_url
from threadkeep.store.streaming.background import at_once_or_within

Json = dict[str, Any]

PATHS = {
    "open_responses": "/v1/responses",
    "chat_completion": "/v1/chat/completions",
    "messages": "/v1/messages",
    "gemini": "/v1/models/the%20model:streamGenerateContent?alt=sse",
    "interactions": "/v1/interactions",
    "converse": "/v1/model/the%20model/converse-stream",
}
GOOGLES = ("x-goog-api-key", "secret")
KEYS = {"messages": ("x-api-key", "secret"), "gemini": GOOGLES, "interactions": GOOGLES}


def amazon_message(event: dict[str, Any]) -> bytes:
    """An event in the framing of Amazon's event streams."""
    [(kind, value)] = event.items()
    headers = b""
    for name, text in ((":event-type", kind), (":message-type", "event"), (":content-type", "application/json")):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
    payload = json.dumps(value).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


class Provider:
    """A provider that answers each request with a script of its format, or refuses it."""

    def __init__(self, format_: str, below: str = "/") -> None:
        self.format, self._below = format_, below
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.application = Starlette(routes=[Route("/{path:path}", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        path = request.scope["raw_path"].decode() + (f"?{request.url.query}" if request.url.query else "")
        self.requests.append((path, dict(request.headers), await request.json()))
        if not path.startswith(self._below):
            return JSONResponse({"error": {"message": "Not here."}}, 404)
        if self.status != 200:
            return JSONResponse({"error": {"message": "Not like this."}}, self.status)
        events = script(self.format, ["Let me ", "see."], calls=True)
        if self.format == "converse":
            body = b"".join(map(amazon_message, events))
        else:
            body = b": a comment\n\n" + b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
            body += b"data: [DONE]\n\n" if self.format == "chat_completion" else b""
        return Response(body, media_type="text/event-stream")


def test_there_is_a_provider_of_each_format_that_is_spoken() -> None:
    assert set(FORMATS) == set(PATHS) == set(SPOKEN)


@pytest.mark.parametrize("format_", sorted(set(NAMES) - set(SPOKEN)))
def test_a_format_in_which_nobody_answers_has_no_upstream(format_: Any) -> None:
    with pytest.raises(InvalidOption, match="in which no provider answers"):
        http_upstream("provider", format_, "http://localhost/v1")
    with pytest.raises(InvalidOption, match="in which no provider answers"):
        RecordedUpstream("provider", format_, "http://localhost/v1")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_each_format_is_asked_over_http(served: Any, format_: Any) -> None:
    provider = Provider(format_)
    with running(provider.application) as url:
        upstream = http_upstream("provider", format_, f"{url}/v1/", key="secret")
        client = served.client(upstreams={"*": upstream})
        found = client.responses.create(model="the model", input="Weather?")
        assert found.output_text == "Let me see."
        assert found.output[-1].name == "look"
        provider.status = 429
        answer = served.http(upstreams={"*": upstream}).post("/responses", json={"model": "the model", "input": "Hi"})
        assert (answer.status_code, "Not like this." in answer.text) == (429, True)
        served.call(upstream.close)
    [(path, headers, payload), _] = provider.requests
    name, value = KEYS.get(format_, ("authorization", "Bearer secret"))
    assert (path, headers[name]) == (PATHS[format_], value)
    assert "Weather?" in json.dumps(payload)


VERSIONED = [(format_, "/v1beta" if format_ in {"gemini", "interactions"} else "/v1") for format_ in FORMATS]


@pytest.mark.parametrize(("format_", "version"), [pair for pair in VERSIONED if pair[0] != "converse"])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_version_of_an_api_may_be_left_out(served: Any, format_: Any, version: str) -> None:
    """Clients of some providers want it in the base URL, and those of others without."""
    provider = Provider(format_, below=f"/api{version}/")
    with running(provider.application) as url:
        upstream = http_upstream("provider", format_, f"{url}/api")
        client = served.client(upstreams={"*": upstream})
        for _ in range(2):
            assert client.responses.create(model="the model", input="Weather?").output_text == "Let me see."
        served.call(upstream.close)
    path = PATHS[format_].removeprefix("/v1")
    assert [path for path, *_ in provider.requests] == [f"/api{path}", *[f"/api{version}{path}"] * 2]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_server_without_versions_is_asked_once(served: Any) -> None:
    provider = Provider("chat_completion")
    with running(provider.application) as url:
        upstream = http_upstream("provider", "chat_completion", url)
        served.client(upstreams={"*": upstream}).responses.create(model="m", input="Hi")
        served.call(upstream.close)
    assert [path for path, *_ in provider.requests] == ["/chat/completions"]


@pytest.mark.parametrize("base", ["", "/v1"])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_url_that_is_not_found_is_named(served: Any, base: str) -> None:
    provider = Provider("messages", below="/elsewhere/")
    with running(provider.application) as url:
        upstream = http_upstream("provider", "messages", url.replace("//", "//me:hunter2@") + base)
        answer = served.http(upstreams={"*": upstream}).post("/responses", json={"model": "m", "input": "Hi"})
        served.call(upstream.close)
    assert answer.status_code == 404
    address = url.replace("//", "//***@") + "/v1/messages"
    assert f"provider answered with status 404 at {address}. Not here." in answer.json()["error"]["message"]
    assert [path for path, *_ in provider.requests] == list(dict.fromkeys([f"{base}/messages", "/v1/messages"]))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_an_answer_that_is_no_stream_is_told_as_such(served: Any) -> None:
    """A host that does not know `stream`, or a page of a proxy in front of it."""

    async def answer(_request: Request) -> Response:
        return Response("<p>Welcome", media_type="text/html")

    with running(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])) as url:
        upstream = http_upstream("host", "chat_completion", f"{url}/v1/")
        answered = served.http(upstreams={"*": upstream}).post("/responses", json={"model": "m", "input": "Hi"})
        served.call(upstream.close)
    message = "host answered without a stream of events: the type of its answer is text/html, instead of"
    assert (answered.status_code, message in answered.json()["error"]["message"]) == (502, True)


class Slow:
    """An upstream that writes until it is left."""

    def __init__(self) -> None:
        self.was_left = Event()
        self.upstream = Upstream("slow", "chat_completion", self.ask)

    async def ask(self, _payload: Any, _model: str) -> AsyncGenerator[Any]:
        try:
            for _ in range(600):
                yield {"id": "c", "choices": [{"index": 0, "delta": {"content": "la "}, "finish_reason": None}]}
                await asyncio.sleep(0.05)
        finally:
            self.was_left.set()


@pytest.fixture
def tenant(database: Database) -> Iterator[tuple[str, Any]]:
    with Store(database.url, tenants=True) as store:
        name = f"tenant {time.time_ns()}"
        yield name, store.create_tenant(name)


def served_to(database: Database, name: str, slow: Slow) -> AbstractContextManager[str]:
    store = AsyncStore(database.url, tenants=True)
    return running(app(store, auth=lambda _: Owner(tenant=name), upstreams={"*": slow.upstream}), store)


def ended(store: Any) -> Any:
    """The only response, once it has ended."""
    [conversation] = store.list_conversations()
    wait_until(lambda: [one.status for one in conversation.responses()] != ["in_progress"])
    [response] = conversation.responses()
    return conversation, response


def test_what_came_before_the_client_left_is_stored(database: Database, tenant: tuple[str, Any]) -> None:
    slow, (name, store) = Slow(), tenant
    with served_to(database, name, slow) as url, httpx2.Client(base_url=url, timeout=60) as http:
        body = {"model": "m", "input": "Sing.", "stream": True}
        with http.stream("POST", "/v1/responses", json=body) as stream:
            for line in stream.iter_lines():
                if "output_text.delta" in line:
                    break
        assert slow.was_left.wait(20)
        conversation, response = ended(store)
        assert response.status == "cancelled"
        assert [item.item.type for item in conversation.transcript()] == ["message", "message"]
        [row] = conversation.usage(by="status")
        assert (row.status, row.attempts) == ("cancelled", 1)


def test_a_server_that_stops_ends_what_it_streams(database: Database, tenant: tuple[str, Any]) -> None:
    slow, (name, store) = Slow(), tenant
    with served_to(database, name, slow) as url:
        body = {"model": "m", "input": "Sing.", "background": True}
        assert httpx2.post(f"{url}/v1/responses", json=body, timeout=60).json()["status"] == "queued"
    assert slow.was_left.wait(20)
    _, response = ended(store)
    assert response.status == "incomplete"


def test_another_process_cancels_an_answer_in_the_background(database: Database, tenant: tuple[str, Any]) -> None:
    slow, (name, store) = Slow(), tenant
    with served_to(database, name, slow) as url, served_to(database, name, slow) as other:
        body = {"model": "m", "input": "Sing.", "background": True}
        id_ = httpx2.post(f"{url}/v1/responses", json=body, timeout=60).json()["id"]
        assert httpx2.post(f"{other}/v1/responses/{id_}/cancel", timeout=60).status_code == 200
        assert slow.was_left.wait(20)
        assert ended(store)[1].status == "cancelled"


@pytest.mark.parametrize(
    "url", ["ftp://ann:hunter2@a.example", "https://ann:hunter2@", "ann:hunter2@a.example", "https://ann:hunter2@[::1"]
)
def test_errors_do_not_show_the_password_of_a_url(url: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        RecordedUpstream("a", "messages", url)
    assert "hunter2" not in str(refused.value)


def test_urls_are_shown_without_what_is_secret() -> None:
    shown = {
        "https://ann:hunter2@a.example/v1": "https://***@a.example/v1", "https://a.example/@v1": "https://a.example/@v1",
        "https://a.example/v1?key=hunter2": "https://a.example/v1?key=***", "http://[::1]:80": "http://[::1]:80",
    }  # fmt: skip
    assert {url: shown_url(url) for url in shown} == shown


# Conversations that switch providers between turns


def answering(name: str, format: FormatName, asked: list[Json]) -> Upstream:
    """A provider whose answers have reasoning that only it can read."""
    reasoning = {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": "sealed"}
    text = {"type": "output_text", "text": "Yes.", "annotations": []}
    message = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [text]}
    start = {"id": f"resp_{name}", "object": "response", "status": "in_progress", "model": "m", "output": []}
    ended = {**start, "status": "completed", "output": [reasoning, message]}
    begun = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}
    events: dict[str, list[Json]] = {
        "open_responses": [
            {"type": "response.created", "sequence_number": 0, "response": start},
            {"type": "response.completed", "sequence_number": 1, "response": ended},
        ],
        "messages": [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "Hm."}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sealed"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Yes."}},
            {"type": "content_block_stop", "index": 1},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ],
    }

    async def ask(payload: Json, _model: str) -> AsyncGenerator[Any]:
        asked.append(payload)
        for event in events[format]:
            yield event

    return Upstream(name, format, ask)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("format", "first", "second", "is_sent"),
    [
        ("open_responses", "openai", "openai", True),
        ("open_responses", "openai", "azure", False),
        ("open_responses", "azure", "openai", False),
        ("open_responses", "openai-eu", "openai-us", False),
        ("open_responses", "openai", "xai", False),
        ("messages", "anthropic", "anthropic", True),
        ("messages", "zai", "anthropic", False),
        ("messages", "anthropic", "minimax", False),
    ],
)
def test_an_upstream_gets_what_it_has_sealed_itself(
    format: FormatName, first: str, second: str, *, is_sent: bool, stream: bool
) -> None:
    asked: list[Json] = []
    table = {f"a-{first}": answering(first, format, asked), f"b-{second}": answering(second, format, asked)}

    async def talk() -> httpx2.Headers:
        server = app(AsyncStore("sqlite://"), auth=lambda _request: Owner(user_id="u"), upstreams=table)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=server), base_url="http://x") as client:
            begun = (await client.post("/v1/responses", json={"model": f"a-{first}", "input": "One?"})).json()
            body = {"model": f"b-{second}", "input": "Two?", "previous_response_id": begun["id"], "stream": stream}
            answer = await client.post("/v1/responses", json=body)
            assert answer.status_code == 200, answer.text
            return answer.headers

    headers = asyncio.run(talk())
    assert ("sealed" in json.dumps(asked[1])) is is_sent
    assert ("reasoning" in headers.get("x-threadkeep-losses", "")) is not is_sent


MARKS = b"data: a", b"data:b", b"data", b"data: ", b": c", b"event: x", b"datax: 1", b" ", "\u2028ä".encode(), b"\xff"
ENDS = b"\n", b"\r\n", b"\r", b"\n\n", b""


@given(st.lists(st.tuples(st.sampled_from(MARKS), st.sampled_from(ENDS)), max_size=8), st.integers(1, 9))
def test_the_data_of_events_are_those_that_httpx_reads(parts: list[tuple[bytes, bytes]], size: int) -> None:
    text = b"".join(mark + end for mark, end in parts) + b"\n"  # httpx takes a return at the end for two
    response = httpx2.Response(
        200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=text,
        request=httpx2.Request("POST", "http://x"),
    )  # fmt: skip
    events = EventData()
    found = [data for first in range(0, len(text), size) for data in events.feed(text[first : first + size])]
    assert [*found, *events.end()] == [event.data for event in httpx2.EventSource(response) if event.data]


def test_a_return_at_the_end_is_an_empty_line() -> None:
    events = EventData()
    assert [*events.feed(b"data: a\n\r"), *events.end()] == ["a"]


async def _events(*pauses: float) -> AsyncGenerator[int]:
    for number, pause in enumerate(pauses):
        if pause:
            await asyncio.sleep(pause)
        yield number


@pytest.mark.parametrize(("pauses", "expected"), [((0, 0), [0, 1]), ((0, 0.001, 0), [0, 1, 2]), ((0, 30), [0, "late"])])
def test_what_is_in_memory_needs_no_time(pauses: tuple[float, ...], expected: list[Any]) -> None:
    async def read() -> list[Any]:
        events, found = _events(*pauses), list[Any]()
        while True:
            limit = asyncio.timeout(0.02 if max(pauses) > 1 else None)
            try:
                found.append(await at_once_or_within(limit, anext(events)))
            except StopAsyncIteration:
                return found
            except TimeoutError:
                return [*found, "late"]

    assert asyncio.run(read()) == expected


def test_waiting_for_an_event_can_be_cancelled() -> None:
    async def cancel() -> None:
        waiting = asyncio.ensure_future(at_once_or_within(asyncio.timeout(None), anext(_events(30))))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancel())


# How many tokens an input has

COUNTED: dict[str, tuple[str, Json]] = {
    "open_responses": ("/v1/responses/input_tokens", {"object": "response.input_tokens", "input_tokens": 7}),
    "messages": ("/v1/messages/count_tokens", {"input_tokens": 7}),
    "gemini": ("/v1/models/the%20model:countTokens", {"totalTokens": 7}),
    "converse": ("/v1/model/the%20model/count-tokens", {"inputTokens": 7}),
}


def is_valid_count(format_: str, body: Json) -> bool:
    """Whether a provider's SDK has all that is sent."""
    match format_:
        case "open_responses":
            return body.keys() <= InputTokenCountParams.__annotations__.keys()
        case "messages":
            return body.keys() <= MessageCountTokensParams.__annotations__.keys()
        case "gemini":
            return [*body] == ["generateContentRequest"] and "contents" in body["generateContentRequest"]
    shape = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("CountTokens")
    return not ParamValidator().validate({"modelId": "m", **body}, shape.input_shape).has_errors()


def test_counting_has_as_long_as_an_answer(served: Any) -> None:
    async def waits(_payload: Json, _model: str) -> int:
        await asyncio.Event().wait()
        return 7

    upstream = Upstream("slow", "messages", answering("slow", "messages", []).ask, count=waits)
    client = served.client(upstreams={"m": upstream}, max_answer_seconds=0.2)
    with pytest.raises(openai.InternalServerError, match=r"more than 0\.2 seconds") as refused:
        client.responses.input_tokens.count(model="m", input="Hi")
    assert refused.value.status_code == 504


def test_the_provider_counts_what_would_be_sent(served: Any) -> None:
    """With what it goes on with; nothing is stored, and Chat Completions has no such endpoint."""
    asked, answer = list[tuple[str, Json]](), dict[str, Any]()

    async def counted(request: Request) -> Response:
        asked.append((request.scope["raw_path"].decode(), await request.json()))
        return JSONResponse(*answer["next"])

    provider = Starlette(routes=[Route("/{path:path}", counted, methods=["POST"])])
    with running(provider) as url:
        upstreams = {name: http_upstream(name, name, f"{url}/v1", key="secret", model="the model") for name in FORMATS}
        client = served.client(upstreams=upstreams)
        conversation = client.conversations.create(items=[{"role": "user", "content": "Before."}]).id
        tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
        body: Any = {"input": "Weather?", "instructions": "Be brief.", "tools": [tool], "conversation": conversation}
        for name, (path, value) in COUNTED.items():
            answer["next"] = value, 200
            assert client.responses.input_tokens.count(model=name, **body).input_tokens == 7, name
            sent_to, sent = asked.pop()
            assert (sent_to, is_valid_count(name, sent)) == (path, True), sent
            assert all(text in str(sent) for text in ("Before.", "Weather?", "Be brief.", "look")), name
        answer["next"] = {"error": {"message": "Slow down."}}, 429
        with pytest.raises(openai.RateLimitError, match=r"Slow down\."):
            client.responses.input_tokens.count(model="messages", input="Hi")
        answer["next"] = {"input_tokens": "many"}, 200
        with pytest.raises(openai.InternalServerError, match="number of tokens"):
            client.responses.input_tokens.count(model="messages", input="Hi")
        with pytest.raises(openai.BadRequestError, match="tokenizer"):
            client.responses.input_tokens.count(model="chat_completion", input="Hi")
        for upstream in upstreams.values():
            served.call(upstream.close)
    assert len(asked) == 2
    assert served.call(served.store.usage, by=("provider",)) == []
    assert len(client.conversations.items.list(conversation).data) == 1


# Refusals

MISTAKEN = "Incorrect API key: shop-key-1, or sk-proj-abcdef.\nFind yours."
SAID = {
    "openai": {"error": {"message": MISTAKEN}},
    "google": [{"error": {"message": MISTAKEN}}],
    "aws": {"message": MISTAKEN},
    "text": {"error": MISTAKEN},
}


@pytest.mark.parametrize("body", SAID.values(), ids=SAID)
@pytest.mark.parametrize("is_background", [False, True])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_a_provider_says_of_the_key_is_in_the_log_alone(
    served: Any, body: Any, *, is_background: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_request: Request) -> Response:
        return JSONResponse(body, 401)

    with running(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])) as url:
        upstream = http_upstream("shop", "chat_completion", f"{url}/v1/", key="shop-key-1")
        http = served.http(upstreams={"*": upstream})
        asked = {"model": "m", "input": "Hi", "stream": is_background, "background": is_background}
        shown = http.post("/responses", json=asked).text
        served.call(upstream.close)
    assert "shop answered with status 401." in shown
    assert "Incorrect" not in shown
    expected = "An upstream failed: shop answered with status 401. Incorrect API key: ***, or sk-***. Find yours."
    assert expected in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_provider_that_cannot_be_reached_is_told_in_words(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    upstream = http_upstream("shop", "chat_completion", f"http://127.0.0.1:{free_ports(1)[0]}/v1")
    answer = served.http(upstreams={"*": upstream}).post("/responses", json={"model": "m", "input": "Hi"})
    served.call(upstream.close)
    assert (answer.status_code, answer.json()["error"]["message"]) == (502, "shop could not be reached.")
    assert any("shop could not be reached. (ConnectError: " in record.getMessage() for record in caplog.records)
