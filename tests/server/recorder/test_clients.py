"""The official clients, unmodified: through the recorder they get what they get without it, and it is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from tests.server.recorder.conftest import Recorded, said
from tests.server.recorder.provider import EVENTS, JSON, Reply, failure, stream, whole
from tests.server.scripts import COMPRESS

pytestmark = pytest.mark.one_database

QUESTION = "Weather in Paris?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


# Each way to ask: a client at a base URL, with the question, answered plainly or as a stream


def chat_completions(url: str, *, streams: bool) -> list[Any]:
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-of-the-provider") as client:
        messages: Any = [{"role": "user", "content": QUESTION}]
        if not streams:
            made = client.chat.completions.create(model="gpt-5.4", messages=messages, tools=[tool])
            return [made.to_dict()]
        options: Any = {"include_usage": True}
        events = client.chat.completions.create(
            model="gpt-5.4", messages=messages, tools=[tool], stream=True, stream_options=options
        )
        return [event.to_dict() for event in events]


def async_chat_completions(url: str, *, streams: bool) -> list[Any]:
    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-of-the-provider") as client:
            messages: Any = [{"role": "user", "content": QUESTION}]
            if not streams:
                made = await client.chat.completions.create(model="gpt-5.4", messages=messages)
                return [made.to_dict()]
            events = await client.chat.completions.create(model="gpt-5.4", messages=messages, stream=True)
            return [event.to_dict() async for event in events]

    return asyncio.run(ask())


def responses(url: str, *, streams: bool) -> list[Any]:
    tool: Any = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-of-the-provider") as client:
        if not streams:
            return [client.responses.create(model="gpt-5.4", input=QUESTION, tools=[tool]).to_dict()]
        events = client.responses.create(model="gpt-5.4", input=QUESTION, tools=[tool], stream=True)
        return [event.to_dict() for event in events]


def messages(url: str, *, streams: bool) -> list[Any]:
    tool: Any = {"name": "look", "input_schema": PARAMETERS}
    asked: Any = {"model": "claude-sonnet-5", "max_tokens": 100, "messages": [{"role": "user", "content": QUESTION}]}
    with anthropic.Anthropic(base_url=url, api_key="sk-ant-of-the-provider") as client:
        if not streams:
            return [client.messages.create(**asked, tools=[tool]).to_dict()]
        with client.messages.stream(**asked, tools=[tool]) as events:
            return [*(event.to_dict() for event in events), events.get_final_message().to_dict()]


def gemini(url: str, *, streams: bool) -> list[Any]:
    function = types.FunctionDeclaration(name="look", parameters_json_schema=PARAMETERS)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[function])])
    client = genai.Client(api_key="AIza-of-the-provider", http_options=types.HttpOptions(base_url=url))
    with client:
        asked: Any = {"model": "gemini-3-pro", "contents": QUESTION, "config": config}
        if not streams:
            return [client.models.generate_content(**asked).model_dump(mode="json", exclude={"sdk_http_response"})]
        events = client.models.generate_content_stream(**asked)
        return [event.model_dump(mode="json", exclude={"sdk_http_response"}) for event in events]


def interactions(url: str, *, streams: bool) -> list[Any]:
    tool: Any = {"type": "function", "name": "look", "parameters": PARAMETERS}
    client = genai.Client(api_key="AIza-of-the-provider", http_options=types.HttpOptions(base_url=url))
    with client:
        asked: Any = {"model": "gemini-3-pro", "input": QUESTION, "tools": [tool]}
        if not streams:
            return [client.interactions.create(**asked).model_dump(mode="json")]
        return [event.model_dump(mode="json") for event in client.interactions.create(**asked, stream=True)]


CLIENTS: dict[str, tuple[str, Callable[..., list[Any]]]] = {
    "openai, chat completions": ("chat_completion", chat_completions),
    "openai, chat completions, async": ("chat_completion", async_chat_completions),
    "openai, responses": ("open_responses", responses),
    "anthropic": ("messages", messages),
    "google-genai": ("gemini", gemini),
    "google-genai, interactions": ("interactions", interactions),
}
PARTS = ["Let me ", "see \u2028 ü."]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streamed"])
def test_a_client_gets_what_it_gets_without_it(recorded: Recorded, client: str, streams: bool) -> None:
    format_, ask = CLIENTS[client]
    reply = stream(format_, PARTS, calls=True) if streams else whole(format_, "".join(PARTS), calls=True)
    recorded.provider.says(reply, reply)
    directly, through = ask(recorded.direct, streams=streams), ask(recorded.url, streams=streams)
    assert through == directly
    first, second = recorded.provider.calls
    assert (second.method, second.target, second.body) == (first.method, first.target, first.body)
    assert without_host(second.headers) == without_host(first.headers)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation) == [f"user: {QUESTION}", f"assistant: {''.join(PARTS)}", 'look({"city":"Paris"})']
    [response] = conversation.responses()
    assert response.status == "completed"
    row = conversation.usage()
    assert (row.attempts, row.input_tokens, row.output_tokens) == (1, 11, 7)


def without_host(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Headers apart from those about the connection, and the timing of the client."""
    return sorted((name, value) for name, value in headers if name not in ("host", "connection", "traceparent"))


# Errors, and what clients do about them


def gemini_without_retries(url: str) -> None:
    with genai.Client(api_key="AIza-of-the-provider", http_options=types.HttpOptions(base_url=url)) as client:
        client.models.generate_content(model="gemini-3-pro", contents=QUESTION)


def messages_without_retries(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="sk-ant-of-the-provider", max_retries=0) as client:
        client.messages.create(
            model="claude-sonnet-5", max_tokens=100, messages=[{"role": "user", "content": QUESTION}]
        )


def responses_without_retries(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-of-the-provider", max_retries=0) as client:
        client.responses.create(model="gpt-5.4", input=QUESTION)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
@pytest.mark.parametrize("ask", [gemini_without_retries, messages_without_retries, responses_without_retries])
def test_errors_are_what_they_are_without_it(recorded: Recorded, ask: Callable[[str], None], status: int) -> None:
    reply = failure(status, "Not with sk-ant-REDACTED.", **{"retry-after": "0"})
    recorded.provider.says(reply, reply)
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError, errors.APIError)) as directly:
        ask(recorded.direct)
    with pytest.raises(directly.type) as through:
        ask(recorded.url)
    assert str(through.value) == str(directly.value)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation) == [f"user: {QUESTION}"]
    [row] = conversation.usage(by="status")
    assert (row.status, row.attempts) == ("failed", 1)


@pytest.mark.parametrize("client", ["openai, chat completions", "openai, responses", "anthropic"])
def test_retries_are_attempts_of_one_conversation(recorded: Recorded, client: str) -> None:
    format_, ask = CLIENTS[client]
    again = {"retry-after-ms": "1"}
    recorded.provider.says(failure(429, "Slowly.", **again), failure(503, "Later.", **again), whole(format_, "Fine."))
    ask(recorded.url, streams=False)
    recorded.wait_for(3)
    [conversation] = recorded.conversations()
    assert said(conversation) == [f"user: {QUESTION}", "assistant: Fine."]
    assert {row.status: row.attempts for row in conversation.usage(by="status")} == {"failed": 2, "completed": 1}


# What is compressed


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streamed"])
def test_compressed_answers_stay_as_they_are(recorded: Recorded, encoding: str, streams: bool) -> None:
    format_, ask = CLIENTS["anthropic"]
    reply = stream(format_, PARTS) if streams else whole(format_, "".join(PARTS))
    body = COMPRESS[encoding](b"".join(reply.chunks))
    half = len(body) // 2
    headers = {**reply.headers, "content-encoding": encoding, "content-length": str(len(body))}
    compressed = Reply(200, headers, [body[:half], body[half:]])
    recorded.provider.says(compressed, compressed)
    directly, through = ask(recorded.direct, streams=streams), ask(recorded.url, streams=streams)
    assert through == directly
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation)[1:] == [f"assistant: {''.join(PARTS)}"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_requests_are_read(recorded: Recorded, encoding: str) -> None:
    recorded.provider.says(whole("open_responses", "Fine."))
    body = COMPRESS[encoding](b'{"model": "gpt-5.4", "input": "Hello"}')
    headers = {"content-type": "application/json", "content-encoding": encoding}
    answer = httpx2.post(f"{recorded.url}/v1/responses", content=body, headers=headers)
    assert answer.status_code == 200
    [call] = recorded.provider.calls
    assert (call.body, call.header("content-encoding")) == (body, encoding)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Hello", "assistant: Fine."]


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streamed"])
def test_the_rest_of_a_paused_answer_follows_what_there_is_of_it(recorded: Recorded, streams: bool) -> None:
    """google-genai 3.6.1 asks again by itself, with the same contents and the token, and its chat keeps both parts."""
    ends = [{"finishReason": "CONTINUATION", "continuationToken": "dG9rZW4="}, {"finishReason": "STOP"}]
    for text, end in zip(("Ham", "burg is a city.", "Yes."), [*ends, ends[1]], strict=True):
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **end}
        body = json.dumps({"candidates": [candidate]})
        recorded.provider.says(Reply(200, EVENTS if streams else JSON, [f"{'data: ' * streams}{body}\n\n".encode()]))
    options = types.HttpOptions(base_url=recorded.url)
    with genai.Client(api_key="AIza-of-the-provider", http_options=options) as client:
        chat = client.chats.create(model="gemini-3-pro")
        for calls, question in ((2, QUESTION), (3, "Sure?")):
            _ = [*chat.send_message_stream(question)] if streams else chat.send_message(question)
            recorded.wait_for(calls)
            [conversation] = recorded.conversations()
            assert "continuationToken" not in conversation.request_payload("gemini")
    assert said(conversation) == [
        f"user: {QUESTION}", "assistant: Ham", "assistant: burg is a city.", "user: Sure?", "assistant: Yes.",
    ]  # fmt: skip
    assert [branch.number for branch in conversation.branches()] == [0]
    assert conversation.usage().attempts == 3
