"""What is of a format that threadkeep does not read is refused by name, at every door, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from ag_ui import core as agui
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from tests.corpus import recorded
from tests.reference_cases import FORMATS
from threadkeep import CannotParse, InvalidItem, Session, Store
from threadkeep.domain.formats import other_body, other_event, other_message
from threadkeep.formats import FormatName, get_format

Json = dict[str, Any]

INTERACTIONS, AI_SDK, AG_UI = "Gemini's Interactions API", "the AI SDK", "AG-UI"
TEXT: Json = {"type": "text", "text": "On time."}
STEP: Json = {"type": "model_output", "content": [TEXT]}
UI_MESSAGE: Json = {"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, {**TEXT, "state": "done"}]}
NAMES: tuple[FormatName, ...] = (*FORMATS, "pydantic_ai", "ui_messages", "ag_ui")

BODIES: list[tuple[str, Json]] = [
    (INTERACTIONS, {"id": "i", "object": "interaction", "status": "completed", "steps": [STEP], "usage": {}}),
    (INTERACTIONS, {"id": "i", "status": "completed", "model": "gemini-3", "steps": [STEP]}),
    (INTERACTIONS, {"id": "i", "status": "in_progress", "steps": []}),
    (INTERACTIONS, {"id": "i", "status": "requires_action", "steps": [
        {"type": "thought", "signature": "QUJD"}, {"type": "function_call", "id": "c", "name": "f", "arguments": {}}]}),
    (AI_SDK, UI_MESSAGE),
    (AI_SDK, {"role": "assistant", "parts": [{"type": "tool-weather", "toolCallId": "c", "state": "input-available"}]}),
    (AI_SDK, {"role": "assistant", "content": [
        {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}}]}),
    (AG_UI, {"id": "m", "role": "assistant", "toolCalls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
    (AG_UI, {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi"}]}),
    ("Cohere's Chat API", {"finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [TEXT]}}),
    ("Ollama's own API", {"model": "llama", "message": {"role": "assistant", "content": "Hi"}, "done": True}),
    ("Ollama's own API", {"model": "llama", "response": "Hi", "done": False}),
    ("OpenAI's Realtime API", {"object": "realtime.response", "status": "completed", "output": []}),
    ("OpenAI's Assistants API", {"object": "thread.message", "role": "assistant", "content": [TEXT]}),
    ("OpenAI's Completions API", {"object": "text_completion", "choices": [{"text": "Hi", "index": 0}]}),
    ("a batch's results", {"custom_id": "1", "response": {"status_code": 200, "body": {}}}),
    ("a batch's results", {"custom_id": "1", "result": {"type": "succeeded", "message": {}}}),
    ("Bedrock's InvokeModel", {"inputTextTokenCount": 1, "results": [{"outputText": "Hi"}]}),
    ("Bedrock's InvokeModel", {"generation": "Hi", "prompt_token_count": 1, "stop_reason": "stop"}),
    ("Vertex AI's predict", {"predictions": [{"content": "Hi"}]}),
    ("LangChain's serialization", {"lc": 1, "type": "constructor", "id": ["langchain"], "kwargs": {"content": "Hi"}}),
]  # fmt: skip
EVENTS: list[tuple[str, Json]] = [
    (INTERACTIONS, {"event_type": "interaction.created", "interaction": {"id": "i"}}),
    (INTERACTIONS, {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}, "event_id": "e"}),
    (INTERACTIONS, {"event_type": "error", "error": {"message": "gone"}}),
    (AI_SDK, {"type": "start", "messageId": "m"}),
    (AI_SDK, {"type": "text-delta", "id": "t", "delta": "Hi"}),
    (AI_SDK, {"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {}}),
    (AI_SDK, {"type": "tool-output-error", "toolCallId": "c", "errorText": "no"}),
    (AI_SDK, {"type": "data-weather", "data": {}}),
    (AI_SDK, {"type": "error", "errorText": "no"}),
    (AI_SDK, {"type": "finish"}),
    *((AG_UI, {"type": kind.value, "event": {}, "name": "x"}) for kind in agui.EventType),
    ("Cohere's Chat API", {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}}),
    ("Ollama's own API", {"model": "llama", "message": {"role": "assistant", "content": "Hi"}, "done": False}),
    ("OpenAI's Realtime API", {"type": "conversation.item.created", "item": {}}),
    ("OpenAI's Completions API", {"object": "text_completion", "choices": [{"text": "Hi", "index": 0}]}),
    ("Gemini's Live API", {"serverContent": {"modelTurn": {"parts": [{"text": "Hi"}]}}}),
]
MESSAGES: list[tuple[str, Json]] = [
    (INTERACTIONS, {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}),
    (INTERACTIONS, STEP),
    (INTERACTIONS, {"type": "function_result", "call_id": "c", "result": "Rain"}),
    (INTERACTIONS, {"type": "google_search_call", "id": "s", "arguments": {"queries": ["a"]}}),
    (AI_SDK, UI_MESSAGE),
    (AI_SDK, {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}),
    (AI_SDK, {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": {}}]}),
    (AG_UI, BODIES[7][1]),
    (AG_UI, {"id": "m", "role": "tool", "toolCallId": "c", "content": "Rain"}),
    (AG_UI, {"id": "m", "role": "reasoning", "content": "I think."}),
    (AG_UI, {"id": "m", "role": "activity", "activityType": "PLAN", "content": {"steps": []}}),
    ("LangChain's serialization", BODIES[-1][1]),
]


def is_read(format_name: FormatName, name: str) -> bool:
    """Whether a body or message of a format is one of those that other formats refuse, and this one reads."""
    return (format_name, name) in (("ui_messages", AI_SDK), ("ag_ui", AG_UI))


def refusal(door: Callable[[], Any], name: str) -> str:
    """What a door says when it refuses something; it names its format, and says what to do."""
    with pytest.raises((CannotParse, InvalidItem)) as caught:
        door()
    assert name in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("format_name", NAMES)
def test_a_body_is_refused_by_the_name_of_its_format(format_name: FormatName) -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Hi")
        for name, body in BODIES:
            if is_read(format_name, name):
                continue
            refusal(partial(get_format(format_name).parse_response, body), name)
            refusal(partial(talk.add_response, body, format_name), name)
            assert (len(talk.transcript()), list(talk.responses())) == (1, [])


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_event_is_refused_by_the_name_of_its_format(format_name: FormatName) -> None:
    for name, event in EVENTS:
        refusal(partial(get_format(format_name).assembler().feed, event), name)


@pytest.mark.parametrize(("name", "message"), MESSAGES)
def test_a_message_is_refused_by_the_name_of_its_format(name: str, message: Json) -> None:
    session = Session(model="m")
    refusal(lambda: session.add_item(message), name)
    refusal(lambda: Session(model="m", input=[message]), name)
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="m", input="Hi")
        refusal(lambda: talk.add_item(message), name)
        for format_name in NAMES:
            if is_read(format_name, name):
                continue
            key = get_format(format_name).signs.turns
            request = {"model": "m", key: [message]}
            refusal(lambda name=format_name: talk.add_input([message], name), name)  # type: ignore[misc]
            refusal(lambda name=format_name: get_format(name).parse_request(request), name)  # type: ignore[misc] # noqa: B023
            refusal(lambda name=format_name: store.import_request(request, name), name)  # type: ignore[misc] # noqa: B023
        assert len(talk.transcript()) == 1
        assert len(store.list_conversations()) == 1


def test_a_run_of_ag_ui_is_no_request() -> None:
    run = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi"}]}
    refusal(lambda: get_format("chat_completion").parse_request(run), AG_UI)


@pytest.mark.parametrize("format_name", FORMATS)
def test_nothing_that_was_recorded_is_taken_for_another_format(format_name: FormatName) -> None:
    turns = get_format(format_name).signs.turns
    for one in recorded(format_name).values():
        request = one["request"] or {}
        for body in (request, one["response"]):
            assert body is None or other_body(body) is None, one["id"]
        for event in one["events"] or ():
            assert other_event(event) is None, one["id"]
        for turn in request.get(turns) or ():
            assert not isinstance(turn, dict) or other_message(turn) is None, one["id"]


def test_ordinary_values_are_of_no_other_format() -> None:
    message: Any = {"role": "assistant", "content": None, "tool_calls": []}
    assert TypeAdapter(ChatCompletionMessageParam).validate_python(message)
    for value in (message, {"role": "user", "parts": [{"text": "Hi"}]}, {"type": "error", "error": {"message": "x"}}):
        assert (other_body(value), other_event(value), other_message(value)) == (None, None, None)
