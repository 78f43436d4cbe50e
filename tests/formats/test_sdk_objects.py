"""Objects of the vendors' own SDKs are read like the JSON they were made of: answers, events and requests."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from typing import Any

import pytest
from anthropic._models import construct_type as anthropic_type
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai import types as google
from openai._models import construct_type as openai_type
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from openai.types.responses import ResponseStreamEvent

from tests.formats.test_corpus import CORPUS
from threadkeep.domain.response import Response
from threadkeep.formats import get_format

Json = dict[str, Any]


@cache
def recorded(name: str) -> list[Json]:
    path = CORPUS / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"there is no recorded traffic in {CORPUS}; set THREADKEEP_CORPUS")
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


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


@pytest.mark.parametrize("name", OBJECTS)
def test_answers_of_an_sdk_are_read_like_their_json(name: str) -> None:
    make, _ = OBJECTS[name]
    for one in recorded(name):
        if isinstance(one["response"], dict):
            expected, found = Response.parse(one["response"], name), Response.parse(make(one["response"]), name)
            assert items(found) == items(expected), one["id"]
            assert (found.usage and found.usage.normalized) == (expected.usage and expected.usage.normalized), one["id"]
            assert found.status == expected.status


@pytest.mark.parametrize("name", OBJECTS)
def test_events_of_an_sdk_are_read_like_their_json(name: str) -> None:
    _, make = OBJECTS[name]
    for one in recorded(name):
        if one["events"] is None:
            continue
        plain, typed = get_format(name).assembler(), get_format(name).assembler()
        for event in one["events"]:
            plain.feed(event)
            typed.feed(make(event))
        assert items(typed.response) == items(plain.response), one["id"]


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
    for one in recorded("gemini"):
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
