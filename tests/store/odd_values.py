# ruff: noqa: DTZ001, DTZ901, E501, RUF001 - odd is what they are to be
"""Values that nobody should pass, and valid arguments beside which they are passed."""

from __future__ import annotations

import base64
import inspect
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.factories import a_call, a_completion, a_gemini_answer, a_message, a_picture, an_answer, an_output
from threadkeep import (
    AppendOptions,
    ImportOptions,
    NewOptions,
    Session,
    Store,
    ToolRegistry,
    Turns,
    UpdateOptions,
    UsageFilters,
    ViewOptions,
)
from threadkeep.errors import shown
from threadkeep.store.writing.conversations import ConversationInfo

MODEL = "gpt-5.4"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
DICTS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (AppendOptions, ConversationInfo, ImportOptions, NewOptions, UpdateOptions, UsageFilters, ViewOptions)
}


@dataclass
class World:
    """Where a method is called: a store and a conversation, and what belongs to somebody else."""

    store: Any
    conversation: Any
    foreign: Any


def deep(depth: int, inner: Any = 1, wrap: Callable[[Any], Any] = lambda value: [value]) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def looped(kind: type) -> Any:
    found = kind()
    found.append(found) if kind is list else found.update(self=found)
    return found


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


class Opaque:
    """An object of no known kind."""


class Raw(Opaque):
    """What an HTTP client or an SDK returns before it is read."""

    status_code = 200
    content = b"{}"

    def json(self) -> Any:
        return {}

    def __iter__(self) -> Any:
        return iter(())


def _given(value: Any, _: World) -> Any:
    return value


VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    -2,
    1.5,
    2**31,
    2**62,
    2**63,
    -(2**63) - 1,
    2**200,
    10**5000,
    math.nan,
    math.inf,
    1e308,
    "",
    " ",
    "x",
    "\x00",
    "\ud800",
    "%s :b ' \\",
    "9" * 5000,
    "-1",
    "1.1",
    "0.0",
    f"{2**63}.1",
    "١",
    b"",
    b"\xff",
    bytearray(b"{"),
    (),
    frozenset(),
    {1, 2},
    object,
    len,
    Decimal("NaN"),
    Path(),
    uuid.UUID(int=0),
    timedelta.max,
    timedelta(-1),
    timedelta(microseconds=1),
    datetime(2026, 1, 1),
    datetime.max,
    date.min,
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
    date.max,
    datetime(1, 1, 1, tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
    range(3),
    ...,
    Opaque(),
    Raw(),
    ToolRegistry(),
    Session(),
    Turns(1),
    "messages",
    "gemini",
    "converse",
    "open_responses",
    "chat_completion",
    "pydantic_ai",
    "no_format",
    "append",
    "branch",
    "raise",
    "active",
    "desc",
    "day",
    "model",
    "auto",
    "UTC",
    "../x",
    "a" * 400,
    "failed",
]
# By name: a function that makes the value, for some can be used only once
ODD: dict[str, Callable[[World], Any]] = {
    **{shown(value)[:30]: partial(_given, value) for value in VALUES},
    "long text": lambda _: "word " * 20_000,
    "many long words": lambda _: " ".join(f"word{number}*" for number in range(500)),
    "an empty list": lambda _: [],
    "a list in a list": lambda _: [[]],
    "a list of nothing": lambda _: [None],
    "a list of the same": lambda _: [a_message()] * 200,
    "a wide list": lambda _: list(range(2_000)),
    "an empty dict": lambda _: {},
    "a dict of numbers": lambda _: {1: 2},
    "a dict of nothing": lambda _: {"": None},
    "a dict of lists": lambda _: {"type": [], "role": {}, "content": 1},
    "a wide dict": lambda _: {str(number): number for number in range(2_000)},
    "a generator": lambda _: (one for one in (a_message(), 1)),
    "deep list": lambda _: deep(300),
    "deeper list": lambda _: deep(5_000),
    "deep dict": lambda _: deep(300, 1, lambda value: {"x": value}),
    "deeper dict": lambda _: deep(5_000, 1, lambda value: {"content": value}),
    "deep text": lambda _: "[" * 100_000,
    "deep type": lambda _: deep(300, {}, lambda value: {"type": "object", "properties": {"x": value}}),
    "wide and deep": lambda _: deep(12, 1, lambda value: [value, value]),
    "a list in itself": lambda _: looped(list),
    "a dict in itself": lambda _: looped(dict),
    "odd keys": lambda _: {"\x00": 1, "\ud800": 2, None: 3, (): 4},
    "an item": lambda _: a_message(),
    "a call": lambda _: a_call(),
    "an odd call": lambda _: a_call("c" * 5_000, "n" * 5_000, "[" * 5_000),
    "a picture": lambda _: a_picture(b"x" * 9_000),
    "an odd picture": lambda _: {"type": "input_image", "image_url": ["data:;base64,"]},
    "a foreign conversation": lambda world: world.foreign,
    "a foreign id": lambda world: world.foreign.id,
    "another id": lambda _: "conv_" + "f" * 32,
    "an id in capitals": lambda world: world.conversation.id.upper(),
    "its own id": lambda world: world.conversation.id,
    "a foreign request": lambda world: world.foreign.render("open_responses"),
    "a request": lambda world: world.conversation.render("messages"),
    "a foreign item": lambda world: world.foreign.get_item(0),
    "a response": lambda world: world.conversation.responses().items[0],
    "a plan": lambda world: world.foreign.plan_context_cache("gemini", threshold=-1),
    "a session": lambda world: world.foreign.session(),
    "the last moment": lambda _: cursor("9999-12-31T23:59:59.999999-23:59 1"),
    "the first moment": lambda _: cursor("0001-01-01T00:00:00+23:59 1"),
    "a moment of nobody": lambda _: cursor(f"2026-01-01T00:00:00+00:00 {2**63 - 1}"),
    "a moment too many": lambda _: cursor(f"2026-01-01T00:00:00+00:00 {2**64}"),
    "a naive moment": lambda _: cursor("2026-01-01T00:00:00 1"),
    "a cursor of text": lambda _: cursor("x y"),
}

OF_A_WORLD = {name for name, make in ODD.items() if "world" in inspect.signature(make).parameters}
PLAIN = sorted(set(ODD) - OF_A_WORLD)

TURNS: dict[str, Any] = {
    "open_responses": {"model": MODEL, "input": [a_message(), a_call(), an_output()]},
    "chat_completion": {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "x"}}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    },
    "messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"city": "Rome"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "AAAA"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"x": 1}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}],
    },
    "interactions": {
        "model": "gemini-3-pro",
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "Hi"}, {"type": "image", "mime_type": "image/png", "data": "AAAA"}]},
            {"type": "thought", "signature": "AAAA"},
            {"type": "function_call", "id": "c", "name": "f", "arguments": {}},
            {"type": "function_result", "call_id": "c", "result": {"x": 1}},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
    },
    "converse": {
        "modelId": "amazon.nova-pro-v1:0",
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"document": {"format": "pdf", "name": "a", "source": {"bytes": "AAAA"}}}, {"text": "Hi"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"json": {"x": 1}}]}}]},
        ],
    },
    "pydantic_ai": {
        "model": MODEL,
        "instructions": "Be brief.",
        "message_history": [
            {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Hi"}]},
            {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "t"}]},
            {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": "ok", "tool_call_id": "t"}]},
        ],
        "tools": [{"name": "f", "parameters_json_schema": SCHEMA}],
    },
    "ui_messages": {
        "model": MODEL,
        "messages": [
            {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
            {"id": "a1", "role": "assistant", "parts": [
                {"type": "tool-f", "toolCallId": "t", "state": "output-available", "input": {}, "output": "ok"},
            ]},
        ],
    },
    "ag_ui": {
        "model": MODEL, "threadId": "t", "runId": "r", "state": {},
        "messages": [
            {"id": "u1", "role": "user", "content": "Hi"},
            {"id": "a1", "role": "assistant", "toolCalls": [
                {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]},
            {"id": "t1", "role": "tool", "toolCallId": "t", "content": "ok"},
        ],
        "tools": [{"name": "f", "description": "", "parameters": SCHEMA}],
    },
}  # fmt: skip
LISTS = {  # else: messages
    "open_responses": "input", "gemini": "contents", "interactions": "input", "pydantic_ai": "message_history",
}  # fmt: skip
BODIES: dict[str, Any] = {
    "open_responses": an_answer("Hi", calls=("c1",)),
    "chat_completion": a_completion(),
    "messages": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "thinking", "thinking": "Hm", "signature": "x"}, {"type": "text", "text": "Paris."}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 24, "output_tokens": 5},
    },
    "gemini": a_gemini_answer(),
    "interactions": {
        "id": "int_1", "object": "interaction", "status": "completed", "model": "gemini-3-pro",
        "steps": [{"type": "thought", "signature": "AAAA"}, {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}],
        "usage": {"total_input_tokens": 1, "total_output_tokens": 2, "total_tokens": 3},
    },
    "converse": {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    },
    "pydantic_ai": {
        "kind": "response",
        "parts": [{"part_kind": "thinking", "content": "Hm"}, {"part_kind": "text", "content": "Hi"}],
        "usage": {"input_tokens": 1, "output_tokens": 2}, "model_name": MODEL,
    },
    "ui_messages": {
        "id": "a2", "role": "assistant", "parts": [{"type": "text", "text": "Hi"}],
        "metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}},
    },
    "ag_ui": {
        "newMessages": [{"id": "a2", "role": "assistant", "content": "Hi"}],
        "usage": [{"inputTokens": 1, "outputTokens": 2}],
    },
}  # fmt: skip


def valid(name: str, world: World, wire: str) -> Any:
    """A value that a parameter of that name takes."""
    made: dict[str, Callable[[], Any]] = {
        "id": lambda: world.conversation.id, "format": lambda: wire, "payload": lambda: TURNS[wire],
        "body": lambda: BODIES[wire], "turns": lambda: TURNS[wire][LISTS.get(wire, "messages")],
        "content": lambda: "Hi", "input": lambda: "Hi", "item": a_message, "items": lambda: [a_message(), a_call("c9")],
        "session": Session, "sessions": lambda: [Session(), Session()],
        "plan": lambda: world.conversation.plan_context_cache("gemini", threshold=0), "schema": lambda: SCHEMA,
        "tools": lambda: [{"name": "t", "parameters": SCHEMA}], "names": lambda: "t", "number": int, "response": int,
        "position": int, "text": lambda: "word", "token": str, "value": lambda: {"step": 1},
        "labels": lambda: {"a": "b"}, "name": lambda: "name", "hash": lambda: "0" * 64, "user_id": lambda: "u",
        "external_id": lambda: "e", "call_id": lambda: "c1", "call": lambda: "c1", "output": lambda: "ok",
        "summary": lambda: "So far", "raw_bodies": lambda: 1, "effort": lambda: "low", "title": lambda: "T",
        "host": lambda: None, "beginning": lambda: world.conversation.id[:9], "lines": exported_lines,
        "other": lambda: getattr(world.store, "_wrapped", world.store),
    }  # fmt: skip
    return made[name]()


@cache
def exported_lines() -> list[str]:
    """An export of one conversation."""
    with Store("sqlite://") as store:
        store.create_conversation(model=MODEL)
        return list(store.export())


def parameters_of(method: Any) -> dict[str, inspect._ParameterKind]:
    """The names of a method's parameters, with those of its keyword arguments, and how they are passed."""
    found: dict[str, inspect._ParameterKind] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[parameter.name] = parameter.kind
        elif "Unpack" in str(parameter.annotation):
            words = DICTS[
                str(parameter.annotation).removeprefix("Unpack[").removeprefix("tk.").removesuffix("]")
            ].__annotations__
            found |= dict.fromkeys(words, parameter.KEYWORD_ONLY)
    return found


def required_of(method: Any) -> list[str]:
    """The parameters without which a method cannot be called, or that say what is to be done."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = [one.name for one in parameters if one.default is one.empty and one.kind not in kinds]
    return found + {
        "add_function_call_output": ["output"],
        "compact": ["summary"],
        "list_items": ["labels"],
        "backlog": ["raw_bodies"],
        "retain": ["raw_bodies"],
        "think": ["effort"],
    }.get(method.__name__, [])
