"""The example of a chat with Pydantic AI, called as the AI SDK's `useChat` does."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic_ai.models.test import TestModel

Browser = httpx2.AsyncClient


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module of its own, with a database of its own."""
    monkeypatch.setenv("CHAT_DATABASE", f"sqlite:///{tmp_path}/chat.db")
    monkeypatch.delitem(sys.modules, "examples.pydantic_ai_chat", raising=False)
    return importlib.import_module("examples.pydantic_ai_chat")


def browsing(chat: Any, visit: Callable[[Callable[[str], Browser]], Awaitable[None]]) -> None:
    def browser(user: str) -> Browser:
        headers = {"X-User": user} if user else {}
        return Browser(transport=httpx2.ASGITransport(app=chat.app), base_url="http://chat", headers=headers)

    async def visited() -> None:
        with chat.agent.override(model=TestModel(call_tools=[], custom_output_text="It is raining.")):
            await visit(browser)
        await chat.store.close()

    asyncio.run(visited())


def posted(text: str, *, trigger: str = "submit-message") -> dict[str, Any]:
    message = {"id": text, "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"trigger": trigger, "id": "chat-1", "messages": [message]}


def test_a_chat_is_continued_listed_searched_and_counted(chat: Any) -> None:
    async def visit(browser: Callable[[str], Browser]) -> None:
        async with browser("ann") as ann:
            for text in ("Is it raining in Lyon?", "And in Nice?"):
                answer = await ann.post("/chat", json=posted(text))
                assert "data-conversation-saved" in answer.text
            found = await chat.store.find_conversation(external_id="chat-1")
            assert [item.item.role for item in await found.transcript()] == ["user", "assistant"] * 2
            page = (await ann.get("/conversations")).json()
            assert page["conversations"][0] | {"at": ""} == {"id": "chat-1", "preview": "It is raining.", "at": ""}
            assert len((await ann.get("/search", params={"q": "Nice"})).json()) == 1
            assert (await ann.get("/usage")).json()[0]["attempts"] == 2

    browsing(chat, visit)


def test_an_answer_given_again_leaves_the_first_on_a_branch(chat: Any) -> None:
    async def visit(browser: Callable[[str], Browser]) -> None:
        async with browser("ann") as ann:
            await ann.post("/chat", json=posted("Is it raining?"))
            await ann.post("/chat", json=posted("Is it raining?", trigger="regenerate-message"))
            found = await chat.store.find_conversation(external_id="chat-1")
            assert len(await found.transcript()) == 2
            assert len((await found.branches()).items) == 2

    browsing(chat, visit)


def test_others_do_not_reach_a_conversation(chat: Any) -> None:
    async def visit(browser: Callable[[str], Browser]) -> None:
        async with browser("ann") as ann, browser("ben") as ben, browser("") as nobody:
            await ann.post("/chat", json=posted("Is it raining?"))
            assert (await ben.post("/chat", json=posted("What did she say?"))).status_code == 404
            assert (await ben.get("/conversations")).json()["conversations"] == []
            assert (await ben.get("/search", params={"q": "raining"})).json() == []
            assert (await nobody.get("/conversations")).status_code == 401

    browsing(chat, visit)
