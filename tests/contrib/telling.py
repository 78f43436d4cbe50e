"""Calls of models as instrumentations tell them, without any SDK."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.types import InputMessage, OutputMessage, TextPart, ToolCallRequestPart

SECRET = "the secret of the user"


def ask(hook: Any, question: str = SECRET, **arguments: Any) -> None:
    """A call of a model, as instrumentations tell it."""
    handler = TelemetryHandler(tracer_provider=TracerProvider(), completion_hook=hook)
    with handler.inference("openai", request_model="gpt-5.4") as call:
        call.input_messages = [InputMessage("user", [TextPart(question)])]
        called: Any = [ToolCallRequestPart(arguments, "look", "call_1")] if arguments else []
        call.output_messages = [OutputMessage("assistant", [TextPart("Yes."), *called], "stop")]
