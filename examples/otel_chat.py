"""A chat in a terminal whose calls OpenTelemetry reports, and threadkeep stores: nothing in it knows of a database.

pip install "threadkeep[otel]" opentelemetry-sdk opentelemetry-instrumentation-genai-openai openai
export OPENAI_API_KEY=…
python otel_chat.py lyon "Is it raining in Lyon?"
threadkeep --url sqlite:///calls.db ls
"""

from __future__ import annotations

import os
import sys
from typing import Any

import openai
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from threadkeep.contrib.opentelemetry import ThreadkeepCompletionHook, conversation_context

MODEL = "gpt-5.4"
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def answer(client: openai.OpenAI, question: str) -> str:
    """Ask until no tool is called any more."""
    messages: Any = [{"role": "user", "content": question}]
    while True:
        made = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
        message = made.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "It is raining."} for call in message.tool_calls
        ]


def main(name: str, question: str) -> None:
    hook = ThreadkeepCompletionHook(os.environ.get("CHAT_DATABASE", "sqlite:///calls.db"))
    OpenAIInstrumentor().instrument(tracer_provider=TracerProvider(), completion_hook=hook)
    with openai.OpenAI() as client, conversation_context(name, user_id=os.environ.get("USER")):
        print(answer(client, question))  # noqa: T201 - a program


if __name__ == "__main__":
    main(sys.argv[1], " ".join(sys.argv[2:]))
