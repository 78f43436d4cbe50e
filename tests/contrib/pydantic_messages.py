"""Messages of every kind that Pydantic AI has, made from seeds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from pydantic_ai import messages as m
from pydantic_ai.usage import RequestUsage

TEXTS = ("", "Is it raining in Lyon?", "naïve 🌧 \u2028 line", "x" * 700, '{"a": 1}', "<b>&amp;</b>")
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def at(random: Random) -> datetime:
    return NOON + timedelta(microseconds=random.randrange(10**9))


def user_content(random: Random) -> Any:
    return random.choice(
        [
            random.choice(TEXTS),
            m.TextContent(random.choice(TEXTS), metadata={"seen": True}),
            m.StructuredContent({"city": "Lyon"}, tag="place"),
            m.ImageUrl("https://example.org/a.png"),
            m.ImageUrl("https://example.org/b.png", force_download=True),
            m.AudioUrl("https://example.org/a.mp3"),
            m.VideoUrl("https://example.org/a.mp4"),
            m.DocumentUrl("https://example.org/a.pdf"),
            m.BinaryContent(random.randbytes(900), media_type="image/png"),
            m.BinaryContent(b"\xff\xfe\xfb?", media_type="application/pdf", identifier="file"),
            m.BinaryContent(b"RIFF", media_type="audio/wav"),
            m.CachePoint(),
            m.UploadedFile(file_id="file-1", provider_name="openai"),
        ]
    )


def request_part(random: Random) -> Any:
    text, call = random.choice(TEXTS), f"call_{random.randrange(3)}"
    kinds: list[Any] = [
        lambda: m.SystemPromptPart(text, timestamp=at(random)),
        lambda: m.SystemPromptPart(text, dynamic_ref="rules", timestamp=at(random)),
        lambda: m.UserPromptPart(text, timestamp=at(random)),
        lambda: m.UserPromptPart([user_content(random) for _ in range(random.randrange(4))], timestamp=at(random)),
        lambda: m.ToolReturnPart("weather", text, tool_call_id=call, timestamp=at(random)),
        lambda: m.ToolReturnPart("weather", {"rain": [1, None]}, call, metadata={"m": 1}, timestamp=at(random)),
        lambda: m.ToolReturnPart("weather", text, call, outcome="denied", timestamp=at(random)),
        lambda: m.InstructionDeltaPart(id=None, content=text),
        lambda: m.ToolAvailabilityDeltaPart(tools_added=["weather"]),
        lambda: m.CapabilityLoadDeltaPart(loaded=["maps"]),
        lambda: m.SpeechPart(speaker="user", transcript=text, audio=m.BinaryContent(b"RIFF", media_type="audio/wav")),
        lambda: m.ToolReturnPart(
            "weather", ["seen:", m.ImageUrl("https://example.org/a.png"), {"a": 1}], call, timestamp=at(random)
        ),
        lambda: m.ToolReturnPart("weather", m.BinaryContent(b"\xff\xfe", media_type="image/png"), call, timestamp=NOON),
        lambda: m.ToolReturnPart("weather", text, call, outcome="retried", timestamp=at(random)),
        lambda: tool_part("request", "return", "search_tools", "tool-search", {"discovered_tools": [{"name": "a"}]}),
        lambda: tool_part("request", "return", "load_capability", "capability-load", {"capability_id": "x"}),
        lambda: m.InstructionBaselinePart(instructions=[m.InstructionPart(text, name="rules")]),
        lambda: read_part("request", part_kind="model-settings-delta", settings={"service_tier": "flex"}),
        lambda: m.CompactionPart(content=text),
        # as earlier releases wrote it
        lambda: read_part("request", part_kind="retry-prompt", content=text, tool_name="weather", tool_call_id=call),
        lambda: read_part(
            "request", part_kind="retry-prompt", content=[{"type": "x", "loc": ["a"], "msg": "m", "input": 1}]
        ),
        lambda: m.RetryFeedbackPart(content="again", retry=m.RetryInfo(cause="validation_error"), timestamp=at(random)),
    ]
    return random.choice(kinds)()


def response_part(random: Random) -> Any:
    text, call = random.choice(TEXTS), f"call_{random.randrange(3)}"
    kinds: list[Any] = [
        lambda: m.TextPart(text, id="msg_1", provider_name="openai"),
        lambda: m.TextPart(text),
        lambda: m.ThinkingPart(text, signature="sig", provider_name="anthropic", id="t1"),
        lambda: m.ThinkingPart(""),
        lambda: m.CompactionPart(content="…", provider_name="openai"),
        lambda: m.FilePart(m.BinaryContent(b"png", media_type="image/png")),
        lambda: m.ToolCallPart("weather", {"city": "Lyon"}, call),
        lambda: m.ToolCallPart("weather", '{"city":', call, id="fc_1", provider_details={"a": 1}),
        lambda: m.ToolCallPart("weather", None, call),
        lambda: m.NativeToolCallPart("web_search", {"query": text}, call, provider_name="openai"),
        lambda: m.SpeechPart(speaker="assistant", transcript=text),
        lambda: tool_part("response", "call", "search_tools", "tool-search", {"queries": [text]}),
        lambda: tool_part("response", "call", "load_capability", "capability-load", {"id": "x"}),
        lambda: tool_part("response", "call", "tool_search", "tool-search", {"queries": [text]}, "builtin-"),
        lambda: tool_part("response", "return", "tool_search", "tool-search", {"discovered_tools": []}, "builtin-"),
        lambda: m.NativeToolReturnPart("web_search", ["found"], call, timestamp=at(random)),
    ]
    return random.choice(kinds)()


def read_part(kind: str, **part: Any) -> Any:
    """A part as Pydantic AI reads it."""
    fields = {"timestamp": NOON.isoformat(), "tool_call_id": "call_0", **part}
    (message,) = m.ModelMessagesTypeAdapter.validate_python([{"kind": kind, "parts": [fields]}])
    return message.parts[0]


def tool_part(kind: str, what: str, name: str, tool: str, value: Any, of: str = "") -> Any:
    """A call or return of a tool of Pydantic AI itself."""
    key = {"call": "args", "return": "content"}[what]
    return read_part(kind, part_kind=f"{of}tool-{what}", tool_name=name, tool_kind=tool, **{key: value})


def a_message(random: Random) -> Any:
    """A message as Pydantic AI reads it back from its own JSON, which makes a BinaryImage of a BinaryContent."""
    json = m.ModelMessagesTypeAdapter.dump_python([any_message(random)], mode="json")
    return m.ModelMessagesTypeAdapter.validate_python(json)[0]


def any_message(random: Random) -> Any:
    count = random.choice([0, 1, 1, 2, 4])
    if random.random() < 0.5:
        return m.ModelRequest(
            parts=[request_part(random) for _ in range(count)],
            instructions=random.choice([None, "Be brief."]),
            timestamp=random.choice([None, at(random)]),
            run_id=random.choice([None, "run"]),
            metadata=random.choice([None, {"a": [1]}]),
        )
    return m.ModelResponse(
        parts=[response_part(random) for _ in range(count)],
        usage=RequestUsage(
            input_tokens=random.randrange(1000),
            output_tokens=random.randrange(1000),
            cache_read_tokens=random.randrange(10),
            details={"accepted": 1},
            cost=random.choice([None, Decimal("0.0125")]),
        ),
        model_name=random.choice([None, "gpt-5.4"]),
        timestamp=at(random),
        provider_name=random.choice([None, "openai"]),
        provider_details=random.choice([None, {"finish": "stop"}]),
        provider_response_id=random.choice([None, "resp_1"]),
        finish_reason=random.choice([None, "stop", "tool_call"]),
    )
