"""Objects of the vendors' own SDKs are read like the JSON they were made of: answers, events and requests."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from anthropic._models import construct_type as anthropic_type
from anthropic.lib._parse._response import parse_response as parsed_message
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai import types as google
from openai import omit
from openai._models import construct_type as openai_type
from openai.lib._parsing._completions import parse_chat_completion
from openai.lib._parsing._responses import parse_response as parsed_response
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

from tests.corpus import assembled, recorded, response_of
from threadkeep.domain.response import Response
from threadkeep.formats import FormatName, get_format

Json = dict[str, Any]


def with_bytes(thing: Any) -> Any:
    """A Converse body as boto3 gives it: bytes where the wire has base64."""
    if isinstance(thing, list):
        return [with_bytes(one) for one in thing]
    if not isinstance(thing, dict):
        return thing
    is_bytes = {"bytes", "redactedContent"}
    return {
        key: base64.b64decode(value) if key in is_bytes and isinstance(value, str) else with_bytes(value)
        for key, value in thing.items()
    }


# format -> what makes the SDK's object of a body, and of an event
OBJECTS: dict[str, Any] = {
    "open_responses": (
        lambda body: openai_type(type_=OpenAIResponse, value=body),
        lambda event: openai_type(type_=ResponseStreamEvent, value=event),
    ),
    "chat_completion": (
        lambda body: openai_type(type_=ChatCompletion, value=body),
        lambda event: openai_type(type_=ChatCompletionChunk, value=event),
    ),
    "messages": (
        lambda body: anthropic_type(type_=AnthropicMessage, value=body),
        lambda event: anthropic_type(type_=RawMessageStreamEvent, value=event),
    ),
    "converse": (with_bytes, with_bytes),
}


def items(response: Response) -> list[Json]:
    return [item.to_dict() for item in response.output]


@pytest.mark.share(3)
@pytest.mark.parametrize("name", OBJECTS)
def test_answers_of_an_sdk_are_read_like_their_json(name: FormatName) -> None:
    make, _ = OBJECTS[name]
    for one in recorded(name).values():
        if isinstance(one["response"], dict):
            expected, found = Response.parse(one["response"], name), Response.parse(make(one["response"]), name)
            assert items(found) == items(expected), one["id"]
            assert (found.usage and found.usage.normalized) == (expected.usage and expected.usage.normalized), one["id"]
            assert found.status == expected.status


@pytest.mark.share(3)
@pytest.mark.parametrize("name", OBJECTS)
def test_events_of_an_sdk_are_read_like_their_json(name: FormatName) -> None:
    _, make = OBJECTS[name]
    for one in recorded(name).values():
        if one["events"] is None:
            continue
        typed = assembled(map(make, one["events"]), name)
        assert items(typed.response) == items(response_of(one)), one["id"]


def signatures(thing: Any) -> list[bytes]:
    """All thought signatures in a value, as bytes."""
    if isinstance(thing, dict):
        own = [
            base64.urlsafe_b64decode(value.translate(str.maketrans("+/", "-_")) + "==")
            for key, value in thing.items()
            if key == "thoughtSignature"
        ]
        return own + [found for value in thing.values() for found in signatures(value)]
    return [found for one in thing for found in signatures(one)] if isinstance(thing, list) else []


def test_answers_of_google_keep_their_texts_calls_and_signatures() -> None:
    count = 0
    for one in recorded("gemini").values():
        try:
            made = google.GenerateContentResponse.model_validate(one["response"])
        except (AttributeError, ValueError):
            continue  # the SDK does not know everything that the service sends
        count += 1
        expected, found = Response.parse(one["response"], "gemini"), Response.parse(made, "gemini")
        assert found.output_text == expected.output_text, one["id"]
        assert [call.name for call in found.tool_calls] == [call.name for call in expected.tool_calls], one["id"]
        assert signatures(items(found)) == signatures(items(expected)), one["id"]
    assert count > 200


class Trip(BaseModel):
    to: str


TRIP = '{"to": "Hull"}'


def answered(name: FormatName) -> Json:
    """An answer of JSON, and of a call where the format has both in one."""
    if name == "open_responses":
        part = {"type": "output_text", "text": TRIP, "annotations": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": TRIP}
        required = {"created_at": 1, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        output = [message, {**call, "status": "completed"}]
        return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": output, **required}
    if name == "messages":
        usage = {"input_tokens": 1, "output_tokens": 1}
        content = [{"type": "text", "text": TRIP}]
        said = {"role": "assistant", "model": "m", "content": content, "stop_reason": "end_turn", "usage": usage}
        return {"id": "msg_1", "type": "message", **said}
    called: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": TRIP}}
    message = {"role": "assistant", "content": TRIP, "tool_calls": [called]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


# format -> what its SDK makes of an answer when it is told to parse it
PARSING: dict[str, Any] = {
    "open_responses": lambda body: parsed_response(
        text_format=Trip, input_tools=omit, response=OpenAIResponse.model_validate(body)
    ),
    "chat_completion": lambda body: parse_chat_completion(
        response_format=Trip, input_tools=omit, chat_completion=ChatCompletion.model_validate(body)
    ),
    "messages": lambda body: parsed_message(output_format=Trip, response=AnthropicMessage.model_validate(body)),
}


@pytest.mark.parametrize("name", PARSING)
def test_what_an_sdk_parsed_is_not_part_of_the_answer(name: FormatName) -> None:
    """Services refuse the keys under which an SDK puts what it made of a text."""
    body = answered(name)
    assert items(Response.parse(PARSING[name](body), name)) == items(Response.parse(body, name))


def test_the_stream_of_the_sdk_gives_the_chunks_answer() -> None:
    """`client.chat.completions.stream()` tells each chunk within an event, and more events about it."""
    first = {"index": 0, "delta": {"role": "assistant", "content": TRIP}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**head, "choices": [choice]} for choice in (first, last)]
    plain, helped = get_format("chat_completion").assembler(), get_format("chat_completion").assembler()
    state, kinds = ChatCompletionStreamState(response_format=Trip, input_tools=omit), []
    for one in chunks:
        plain.feed(one)
        for event in state.handle_chunk(ChatCompletionChunk.model_validate(one)):
            helped.feed(event)
            kinds.append(event.type)
    assert kinds == ["chunk", "content.delta", "chunk", "content.done"]
    assert helped.response == plain.response
