"""What is said in the demo, read from the package's data."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final, TypedDict

from threadkeep.domain.jsontext import JsonObject

# wire format that a provider answers in -> what is known of the call beside its answer; in the order of the answers
PROVIDERS: Final[dict[str, dict[str, Any]]] = {
    "open_responses": {"provider": "openai", "latency_ms": 4_180},
    "chat_completion": {"provider": "openrouter", "latency_ms": 1_020},
}

# wire format that no provider answers in -> the model that would be asked
OTHER_MODELS: Final = {
    "messages": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro-preview",
    "converse": "us.amazon.nova-2-lite-v1:0",
}


class Script(TypedDict):
    """What all but the providers say."""

    conversation: JsonObject
    tools: list[JsonObject]
    question: list[JsonObject]
    tool_outputs: dict[str, str]  # by the function's name
    models: dict[str, str]  # by wire format
    follow_up: str


def load_script() -> Script:
    """The options, tools, question and tool outputs of the demo."""
    from threadkeep.domain.jsontext import dumps, loads

    script: Script = loads(_read("demo"))
    script["tool_outputs"] = {name: dumps(output).decode() for name, output in script["tool_outputs"].items()}
    return script


def body_of(format: str) -> bytes:
    """The body of a provider's answer, byte for byte."""
    return _read(f"answer_{format}")


def _read(name: str) -> bytes:
    return files("threadkeep.cli").joinpath("data", f"{name}.json").read_bytes()
