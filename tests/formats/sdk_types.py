"""The types of the vendors' own SDKs, where these say what the service takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from anthropic.types import MessageParam, ToolUnionParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.responses import ResponseInputItemParam, ToolParam
from pydantic import TypeAdapter, ValidationError

Json = dict[str, Any]

# key of a request -> the type of each of its elements
TYPES: dict[str, dict[str, Any]] = {
    "open_responses": {"input": ResponseInputItemParam, "tools": ToolParam},
    "chat_completion": {"messages": ChatCompletionMessageParam, "tools": ChatCompletionToolUnionParam},
    "messages": {"messages": MessageParam, "tools": ToolUnionParam},
}
# keys that the types require, and the service does not
TOLERATED: dict[str, Json] = {
    "output_text": {"annotations": []},
    "reasoning": {"id": "rs_0"},
    "web_search_call": {"id": "ws_0", "action": {"type": "search", "query": "q"}},
    "function": {"strict": None, "parameters": {}},
    "input_image": {"detail": "auto"},
    # null where there is nothing, which the service says in answers
    "image_generation_call": {"result": None},
    "code_interpreter_call": {"code": None, "outputs": None},
    "double_click": {"keys": None},
}


@cache
def adapter_of(format_name: str, key: str) -> TypeAdapter[Any]:
    """What validates the elements of a key of a request."""
    return TypeAdapter(TYPES[format_name][key])


def unfit(payload: Json, format_name: str) -> Iterator[str]:
    """What the types of a format refuse."""
    for key in TYPES[format_name]:
        adapter = adapter_of(format_name, key)
        for element in payload.get(key, []):
            try:
                forced(adapter.validate_python(completed(element) if format_name == "open_responses" else element))
            except ValidationError as error:
                yield f"types: {error}"


def completed(thing: Any) -> Any:
    """A value with the keys that only the types ask for."""
    if isinstance(thing, list):
        return [completed(one) for one in thing]
    if not isinstance(thing, dict):
        return thing
    found = {key: completed(value) for key, value in thing.items()}
    parts = found.get("content")
    is_answer = (
        found.get("type") == "message"
        and found.get("role") == "assistant"
        and isinstance(parts, list)
        and all(part.get("type") in ("output_text", "refusal") for part in parts)
    )
    if found.get("type") == "image_generation_call" and isinstance(found.get("error"), dict):
        found["error"] = {"code": None, "param": None, **found["error"]}
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
