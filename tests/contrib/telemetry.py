"""SDKs under OpenTelemetry's own instrumentations, in front of a provider on a port of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types
from openai import AsyncOpenAI
from opentelemetry.sdk.trace import TracerProvider

from tests.server.recorder.provider import Provider
from threadkeep import Store
from threadkeep.contrib.opentelemetry import ThreadkeepCompletionHook

# imported where they are used, for they import all of their SDKs
INSTRUMENTORS = {
    "genai.openai": "OpenAIInstrumentor",
    "genai.anthropic": "AnthropicInstrumentor",
    "google_genai": "GoogleGenAiSdkInstrumentor",
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GPT, CLAUDE, GEMINI = "gpt-5.4", "claude-sonnet-5", "gemini-2.5-pro"


@dataclass
class Application:
    """What an application has: clients of three providers, a hook, and the store in which its calls are."""

    provider: Provider
    url: str
    store: Store
    hook: ThreadkeepCompletionHook
    tracers: TracerProvider

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="sk-none", max_retries=0)

    def async_openai(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="sk-none", max_retries=0)

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.url, api_key="sk-none", max_retries=0)

    def gemini(self) -> genai.Client:
        return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=self.url))

    def stored(self) -> list[Any]:
        """The conversations, once all calls so far are stored."""
        assert self.hook.flush(30), self.hook.counts()
        return list(self.store.list_conversations(status=None, order_by="created", order="asc"))

    def ledger(self) -> dict[str, int]:
        """The status of calls, and how many there are of each."""
        assert self.hook.flush(30), self.hook.counts()
        rows = self.store.usage(by="status")
        return {str(row.status): row.attempts for row in rows}


@contextmanager
def instrumented(hook: Any, tracers: TracerProvider) -> Iterator[None]:
    """The three SDKs under instrumentation, as `opentelemetry-instrument` does it."""
    made = [
        getattr(import_module(f"opentelemetry.instrumentation.{module}"), name)()
        for module, name in INSTRUMENTORS.items()
    ]
    for one in made:
        # the check of versions refuses newer ones of google-genai than were released when it was written
        one.instrument(tracer_provider=tracers, completion_hook=hook, skip_dep_check=True)
    try:
        yield
    finally:
        for one in made:
            one.uninstrument()


def chat(client: openai.OpenAI, *words: str, stream: bool = False, **options: Any) -> Any:
    """Ask with a history of questions and answers, in turns; returns the answer's text."""
    roles = ("user", "assistant")
    messages: Any = [{"role": roles[index % 2], "content": word} for index, word in enumerate(words)]
    if not stream:
        return client.chat.completions.create(model=GPT, messages=messages, **options).choices[0].message.content
    usage: Any = {"include_usage": True}
    events = client.chat.completions.create(model=GPT, messages=messages, stream=True, stream_options=usage, **options)
    return "".join(event.choices[0].delta.content or "" for event in events if event.choices)
