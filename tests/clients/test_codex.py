"""Codex works on `/v1/responses` over every upstream, and what it does through the recorder is one conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.clients import CLIENTS, Home
from tests.clients.conftest import Server, program
from tests.waiting import wait_until
from threadkeep.domain.jsontext import dumps

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n"
# the calls that models give, one after the other
CALLS = (("call_1", "exec_command", {"cmd": "echo hi"}), ("call_2", "apply_patch", {"input": PATCH}))
SIGNATURE = "c2lnbmVk"
OTHERS = ("chat_completion", "messages")


def chat(number: int) -> list[Any]:
    head = {"id": f"c{number}", "object": "chat.completion.chunk", "model": "m"}
    call = CALLS[number] if number < len(CALLS) else None
    delta: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if call is not None:
        function = {"name": call[1], "arguments": dumps(call[2]).decode()}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": call[0], "type": "function", "function": function}],
        }
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, {**head, "choices": [end]},
        {**head, "choices": [], "usage": usage},
    ]  # fmt: skip


def messages(number: int, calls: Sequence[tuple[str, str, Any]] = CALLS) -> list[Any]:
    """The same, each after a signed thought."""
    call = calls[number] if number < len(calls) else None
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "Done."}
    if call is not None:
        block = {"type": "tool_use", "id": call[0], "name": call[1], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": dumps(call[2]).decode()}
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    pieces = [(thought, {"type": "thinking_delta", "thinking": "Look."}), (block, delta)]
    signature = {"type": "signature_delta", "signature": f"{SIGNATURE}{number}"}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    events: list[Any] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 11, "output_tokens": 1}}}
    ]
    for index, (begun, piece) in enumerate(pieces):
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events.append({"type": "content_block_delta", "index": index, "delta": piece})
        events += [] if index else [{"type": "content_block_delta", "index": 0, "delta": signature}]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use" if call else "end_turn"}
    return [*events, {"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]


SCRIPTS: dict[str, Callable[[int], list[Any]]] = {"chat_completion": chat, "messages": messages}


@pytest.fixture(scope="session")
def codex() -> Path:
    return program(CLIENTS["codex"].path)


def run(codex: Path, home: Home, server: Server, *more: str, prompt: str = "Say hi.") -> list[Any]:
    """Run a turn headless; return its events."""
    home.environment["CODEX_API_KEY"] = "none"
    options = ["--skip-git-repo-check", "--json", "-m", "gpt-5.5", "-c", f'openai_base_url="{server.url}"']
    command = [codex, "exec", "--dangerously-bypass-approvals-and-sandbox", *options, *more, prompt]
    return [json.loads(line) for line in home.run(command).splitlines() if line.startswith("{")]


def said(events: list[Any]) -> list[str]:
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"]


@pytest.mark.parametrize("format_", OTHERS)
def test_it_works_and_only_its_bill_is_kept(
    codex: Path, home: Home, serving: Callable[..., Server], format_: str
) -> None:
    server = serving(format_)
    server.upstream.scripts += [SCRIPTS[format_](number) for number in range(3)]
    events = run(codex, home, server)
    assert said(events) == ["Done."]
    assert (home.work / "a.txt").read_text() == "hello\n"
    assert events[-1]["usage"]["output_tokens"] == 21
    assert [(row.attempts, row.total_tokens) for row in server.store.usage(by=("provider",))] == [(3, 54)]
    assert (server.connections.count("websocket"), len(server.upstream.payloads)) == (1, 3)  # a warm-up asks nobody
    assert server.store.list_conversations().items == []
    if format_ == "messages":  # its signed thoughts come back with the outputs of tools
        assert [f"{SIGNATURE}{number}" in str(server.upstream.payloads[-1]) for number in range(2)] == [True, True]


@pytest.mark.parametrize("format_", OTHERS)
def test_a_session_that_is_resumed_is_one_conversation(
    codex: Path, home: Home, serving: Callable[..., Server], format_: str
) -> None:
    server = serving(format_, store_false="keep")
    server.upstream.scripts += [SCRIPTS[format_](number) for number in (0, 1, 2, 2)]
    run(codex, home, server)
    assert said(run(codex, home, server, "resume", "--last", prompt="And again.")) == ["Done."]
    [conversation] = server.store.list_conversations()
    calls = [item for item in conversation.items() if item.item.type == "function_call"]
    assert [call.item.name for call in calls] == ["exec_command", "apply_patch"]  # type: ignore[union-attr]
    assert [row.attempts for row in conversation.usage(by=("provider",))] == [4]


@pytest.mark.parametrize("format_", OTHERS)
def test_the_recorder_has_the_same(codex: Path, home: Home, recording: Callable[[str], Server], format_: str) -> None:
    """Over a WebSocket: its warm-up is counted beside the conversation."""
    server = recording(format_)
    server.upstream.scripts += [SCRIPTS[format_](number) for number in range(3)]
    assert said(run(codex, home, server)) == ["Done."]
    wait_until(lambda: [row.attempts for row in server.store.usage(by=("provider",))] == [4])  # the last one is late
    [conversation] = server.store.list_conversations()
    calls = [item.given() for item in conversation.items() if item.item.type in ("function_call", "custom_tool_call")]
    assert [call["name"] for call in calls] == ["exec_command", "apply_patch"]
    assert calls[-1]["input"] == PATCH
    [row] = conversation.usage(by=("provider",))
    assert (row.attempts, row.total_tokens) == (3, 54)
    assert server.connections.count("websocket") == 1
