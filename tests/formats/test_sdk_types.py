"""Requests fit the types of the vendor's own SDK, where these say what the service takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.responses import ResponseInputItemParam, ToolParam
from pydantic import TypeAdapter

from tests.formats.conversations import CONVERSATIONS, Conversation
from threadkeep.errors import CannotRender
from threadkeep.formats import FormatName, get_format

# key of a request -> the type of each of its elements
TYPES: dict[str, dict[str, TypeAdapter[Any]]] = {
    "open_responses": {"input": TypeAdapter(ResponseInputItemParam), "tools": TypeAdapter(ToolParam)},
    "chat_completion": {
        "messages": TypeAdapter(ChatCompletionMessageParam),
        "tools": TypeAdapter(ChatCompletionToolUnionParam),
    },
}
# keys that the types require, and the service does not
TOLERATED: dict[str, dict[str, Any]] = {
    "output_text": {"annotations": []},
    "reasoning": {"id": "rs_0"},
    "web_search_call": {"id": "ws_0", "action": {"type": "search", "query": "q"}},
    "function": {"strict": None, "parameters": {}},
    "input_image": {"detail": "auto"},
}


def completed(thing: Any) -> Any:
    """A value with the keys that only the types ask for."""
    if isinstance(thing, list):
        return [completed(one) for one in thing]
    if not isinstance(thing, dict):
        return thing
    found = {key: completed(value) for key, value in thing.items()}
    is_answer = found.get("type") == "message" and found.get("role") == "assistant"
    return (
        TOLERATED.get(str(found.get("type")), {})
        | ({"id": "msg_0", "status": "completed"} if is_answer else {})
        | found
    )


def forced(thing: Any) -> None:
    """Look at everything: Pydantic checks the elements of an Iterable only when they are taken."""
    if isinstance(thing, dict):
        for value in thing.values():
            forced(value)
    elif isinstance(thing, Iterable) and not isinstance(thing, str | bytes):
        for value in thing:
            forced(value)


@pytest.mark.parametrize("format_name", sorted(TYPES))
@given(conversation=CONVERSATIONS)
def test_any_conversation_fits_the_types_of_the_sdk(format_name: FormatName, conversation: Conversation) -> None:
    try:
        payload = get_format(format_name).render(conversation.snapshot()).payload
    except CannotRender:
        payload = {}
    for key, adapter in TYPES[format_name].items():
        for element in payload.get(key, []):
            forced(adapter.validate_python(completed(element) if format_name == "open_responses" else element))
