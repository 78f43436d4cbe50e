"""A judge of message histories: what Pydantic AI itself would refuse, repair or leave out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

Json = dict[str, Any]
ARGUMENTS = {"message_history", "model", "instructions", "model_settings", "metadata"}  # of Agent.run
TOOLS = TypeAdapter(list[ToolDefinition])  # of an ExternalToolset


def refused(payload: Json) -> list[str]:
    """What is wrong with the arguments of a run; empty if nothing is."""
    settings = payload.get("model_settings", {}).keys() - ModelSettings.__annotations__.keys()
    found = [f"argument: {key}" for key in sorted(payload.keys() - ARGUMENTS - {"tools"})]
    found += [f"setting: {key}" for key in sorted(settings)]
    try:
        TOOLS.validate_python(payload.get("tools", []))
        messages = ModelMessagesTypeAdapter.validate_python(payload["message_history"])
    except ValidationError as error:
        return [*found, f"types: {error}"]
    return [*found, *_unpaired(messages)]


def _unpaired(messages: list[Any]) -> Iterator[str]:
    """Calls that are not answered by the request behind them, and returns that answer no call."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    if part.tool_call_id not in waiting:
                        yield f"a return answers no call: {part.tool_call_id!r}"
                    else:
                        waiting.remove(part.tool_call_id)
        assert isinstance(message, ModelRequest | ModelResponse)
        if waiting:
            yield f"calls are not answered: {waiting}"
            waiting = []
        waiting = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
    if waiting:
        yield f"calls are not answered: {waiting}"
