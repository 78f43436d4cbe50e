"""The example of an MCP client: it starts the server as a process of its own."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from threadkeep import Store
from threadkeep.contrib.mcp import mcp_server


@pytest.fixture(scope="module")
def notes() -> Any:
    return importlib.import_module("examples.mcp_notes")


@pytest.fixture(autouse=True)
def same_packages(notes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that the example starts sees what this one sees."""
    made = notes.server

    def server(url: str) -> StdioServerParameters:
        parameters: StdioServerParameters = made(url)
        environment = {**(parameters.env or {}), "PYTHONPATH": os.pathsep.join(sys.path)}
        return parameters.model_copy(update={"env": environment})

    monkeypatch.setattr(notes, "server", server)


@pytest.mark.slow
def test_it_finds_what_was_said(notes: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with Store(url) as store:
        conversation = store.create_conversation(title="Trip")
        conversation.add_items(
            [
                {"role": "user", "content": "Which hotel did we book?"},
                {"role": "assistant", "content": "The one by the river in Lyon."},
            ]
        )
        store.create_conversation(title="Other", input="Hello!")
    head, *lines = asyncio.run(notes.main(url, "river lyon"))
    assert re.fullmatch(r"Trip \(\d{4}-\d\d-\d\d\)", head)
    assert lines == ["  user: Which hotel did we book?", "  assistant: The one by the river in Lyon."]


def test_it_says_what_is_wrong(notes: Any) -> None:
    async def ask() -> None:
        with Store("sqlite://") as store:
            async with Client(mcp_server(store)) as client:
                with pytest.raises(notes.Refused, match="no word to search for"):
                    await notes.told(client, "search_conversations", query="…")

    asyncio.run(ask())
