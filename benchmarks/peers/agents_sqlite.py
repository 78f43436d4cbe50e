"""openai-agents: `SQLiteSession`, items as JSON in rows."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson
from agents import SQLiteSession
from sqlalchemy import make_url

from benchmarks.data import INSTRUCTIONS, MODEL
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn

HEAD = {"model": MODEL, "instructions": INSTRUCTIONS}


def items_of(turn: Turn) -> list[Any]:
    """The items as the SDK's runner hands them to a session."""
    return [{"role": "user", "content": turn.text}, turn.item]


def text_of(item: Any) -> str:
    content = item["content"]
    return content if isinstance(content, str) else content[0]["text"]


class Chat(protocol.Chat):
    def __init__(self, loop: protocol.Loop, session: Any) -> None:
        self.loop, self.session = loop, session

    def append(self, turn: Turn) -> None:
        self.loop.run(self.session.add_items(items_of(turn)))

    def items(self) -> list[Any]:
        found: list[Any] = self.loop.run(self.session.get_items())
        return found

    def request(self) -> bytes:
        return orjson.dumps({**HEAD, "input": self.items()})

    def texts(self) -> list[str]:
        return [text_of(item) for item in self.items()]


class Adapter(protocol.Adapter):
    NAME = "openai-agents SQLiteSession"
    PACKAGE = "openai-agents"
    DATABASES: ClassVar[tuple[str, ...]] = ("sqlite",)
    NOTE = "no usage, no raw bodies, no users, no search"
    CHAT: ClassVar[type[Chat]] = Chat

    def __init__(self, url: str) -> None:
        self.loop, self.path = protocol.Loop(), make_url(url).database or ""
        self._opened: list[Any] = []

    def open(self, name: str) -> Chat:
        session = self.session(name)
        self._opened.append(session)
        return self.CHAT(self.loop, session)

    def session(self, name: str) -> Any:
        return SQLiteSession(name, self.path)

    def close(self) -> None:
        for session in self._opened:
            session.close()
        self.loop.close()
