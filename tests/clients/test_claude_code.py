"""Claude Code through the recorder: each session is one conversation, with the bill that Claude Code counts itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.clients.conftest import Home, Server, program
from tests.clients.test_codex import messages
from tests.server.scripts import Scripted
from tests.server.servers import running
from threadkeep import AsyncStore, Store
from threadkeep.http import RecordedUpstream, recorder_app

BASH = ("call_1", "Bash", {"command": "echo hi", "description": "Says hi."})


@pytest.fixture(scope="session")
def claude() -> Path:
    return program("claude")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A recorder in front of a provider of Messages that answers by a script."""
    upstream = Scripted("messages")

    async def answer(request: Request) -> Response:
        upstream.payloads.append(await request.json())
        events = upstream.scripts.pop(0)

        async def texts() -> AsyncIterator[str]:
            for event in events:
                yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"

        return StreamingResponse(texts(), media_type="text/event-stream")

    provider = Starlette(routes=[Route("/v1/messages", answer, methods=["POST"])])
    url = f"sqlite:///{tmp_path}/recorded.db"
    mine = AsyncStore(url)
    with ExitStack() as stack:
        behind = stack.enter_context(running(provider))
        recorder = recorder_app(mine, [RecordedUpstream.named(f"anthropic=messages@{behind}")])
        at = stack.enter_context(running(recorder, mine))
        yield Server(f"{at}/anthropic", stack.enter_context(Store(url)), upstream)


@pytest.fixture
def ask(claude: Path, home: Home, server: Server) -> Callable[..., Any]:
    """Runs a turn headless, and returns its result."""
    home.environment |= {
        "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none", "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1",
    }  # fmt: skip

    def run(prompt: str, *more: str) -> Any:
        options = [
            "-p",
            prompt,
            "--output-format",
            "json",
            "--model",
            "claude-sonnet-5",
            "--allowedTools",
            "Bash",
            *more,
        ]
        [result] = home.run(claude, *options)
        return result

    return run


def test_a_session_is_one_conversation(server: Server, ask: Callable[..., Any]) -> None:
    server.upstream.scripts += [messages(0, (BASH,)), messages(1, (BASH,)), messages(2, (BASH,))]
    first = ask("Say hi.")
    again = ask("And again.", "--continue")
    assert [one["result"] for one in (first, again)] == ["Done.", "Done."]
    assert first["session_id"] == again["session_id"]
    [conversation] = server.store.list_conversations()
    assert conversation.external_id == f"claude-code:{first['session_id']}"
    calls = [item.given() for item in conversation.items() if item.item.type == "function_call"]
    assert [call["name"] for call in calls] == ["Bash"]
    messages_of: list[Any] = [item.item for item in conversation.items() if item.item.type == "message"]
    texts = [message.text for message in messages_of if message.role == "assistant"]
    assert texts == ["Done.", "Done."]
    [row] = conversation.usage(by=("provider",))
    counted = [one["usage"]["output_tokens"] for one in (first, again)]
    assert (row.attempts, row.output_tokens, sum(counted)) == (3, 21, 21)
