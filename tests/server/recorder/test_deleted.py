"""Calls whose conversation is deleted while they are recorded: on the bill once, with what the provider told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import Recorded
from tests.server.recorder.provider import Reply, failure, stream, whole
from tests.server.recorder.test_stored_streams import AS_LIST, GEMINI, MESSAGES, spool_one, store_what_waits
from tests.waiting import wait_until
from threadkeep import Store
from threadkeep.server import sessions

CALL = MESSAGES[1]


@pytest.fixture
def after_placing(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Any], Any]]:
    """What is done with the conversation of a call once it is found, before its answer is stored."""
    work: list[Callable[[Any], Any]] = []

    async def placed_and_deleted(*args: Any) -> Any:
        conversation = await sessions.placed(*args)
        for one in work:
            await one(conversation)
        return conversation

    monkeypatch.setattr("threadkeep.server.recorder.storing.placed", placed_and_deleted)
    return work


def bill(store: Store) -> list[tuple[Any, ...]]:
    rows = store.usage(by="status")
    return [(row.status, row.attempts, row.input_tokens, row.output_tokens) for row in rows]


@pytest.mark.parametrize("length", [1, 3_000], ids=["short", "long"])
def test_a_stream_is_on_the_bill_with_its_tokens(recorded: Recorded, length: int) -> None:
    """Also a long one, of which parts would be written after the deletion."""
    named, reply = recorded.store.create_conversation(), stream("messages", [str(n) * length for n in range(9)])
    reply.hold_after = 4
    recorded.provider.says(reply)
    headers = {"x-threadkeep-conversation": named.id}
    with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=CALL, headers=headers, timeout=30) as answer:
        wait_until(lambda: [one.status for one in named.responses()] == ["in_progress"])
        recorded.store.delete_conversation(named.id)
        recorded.provider.release.set()
        assert answer.read().count(b"content_block_delta") == 2 * 9
    recorded.wait_for(1)
    assert bill(recorded.store) == [("completed", 1, 11, 7)]
    assert recorded.conversations() == []


@pytest.mark.parametrize(
    ("path", "reply", "billed"),
    [
        ("/v1/messages", stream("messages", ["One."]), ("completed", 1, 11, 7)),
        ("/v1/messages", whole("messages", "One."), ("completed", 1, 11, 7)),
        ("/v1/messages", failure(500, "No."), ("failed", 1, None, None)),
    ],
    ids=["stream", "plain", "failed"],
)
def test_so_is_one_whose_conversation_is_gone_before_the_answer_begins(
    recorded: Recorded, after_placing: list[Any], path: str, reply: Reply, billed: tuple[Any, ...]
) -> None:
    async def delete(conversation: Any) -> None:
        await asyncio.to_thread(recorded.store.delete_conversation, conversation.id)

    after_placing.append(delete)
    recorded.provider.says(reply)
    assert httpx2.post(recorded.url + path, json=CALL, timeout=30).status_code == reply.status
    recorded.wait_for(1)
    assert bill(recorded.store) == [billed]
    assert recorded.conversations() == []


@pytest.mark.parametrize(
    "reply", [stream("messages", ["One."]), whole("messages", "One."), None], ids=["stream", "plain", "list"]
)
def test_and_one_that_waits_in_a_spool(
    database: Database, tmp_path: Path, after_placing: list[Any], reply: Reply | None
) -> None:
    """It is tried again: its conversation was begun under its key, and is not begun a second time."""
    call = MESSAGES if reply is not None else GEMINI
    tenant = spool_one(database, tmp_path, call, reply or AS_LIST)
    with Store(database.url, tenants=True) as opened:
        store = opened.for_tenant(tenant)

        async def delete(conversation: Any) -> None:
            await asyncio.to_thread(store.delete_conversation, conversation.id)

        after_placing.append(delete)
        asyncio.run(store_what_waits(database.url, tmp_path, "recorded", "failed"))
        assert bill(store) == [("completed", 1, 11, 7)]
        assert list(store.list_conversations(status=None)) == []
