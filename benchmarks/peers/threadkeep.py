"""threadkeep as it is by default, with the search on: a turn in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson
from sqlalchemy import create_engine, make_url

import threadkeep
from benchmarks.data import INSTRUCTIONS, MODEL, USER
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn
from threadkeep import Conversation, NewSession, Session, Store
from threadkeep.formats import FormatName

PAGE: Final = 20
OPTIONS: Final[Any] = {"model": MODEL, "instructions": INSTRUCTIONS, "temperature": 0.7}


class Chat(protocol.Chat):
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def append(self, turn: Turn) -> None:
        self._conversation.add_turn(turn.text, turn.body, "open_responses")

    def request(self) -> bytes:
        return self._conversation.request_body("open_responses")

    def texts(self) -> list[str]:
        return [item["content"][0]["text"] for item in orjson.loads(self.request())["input"]]


class Adapter(protocol.Adapter):
    NAME = "threadkeep"
    NOTE = "its search index is written by every 128th write"
    FORMATS: ClassVar[tuple[str, ...]] = ("open_responses", "chat_completion", "messages", "gemini", "converse")
    CHAT: ClassVar[type[Chat]] = Chat

    def __init__(self, url: str) -> None:
        if url.startswith("postgresql"):
            engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
            threadkeep.schema.upgrade(engine)
            engine.dispose()
        self._store = Store(url)
        self._forgetful = Store(url, memory_bytes=0)
        self._ids: dict[str, str] = {}

    def open(self, name: str) -> Chat:
        return self.CHAT(self._store.get_conversation(self._id_of(name)))

    def open_cold(self, name: str) -> Chat:
        return self.CHAT(self._forgetful.get_conversation(self._id_of(name)))

    def _id_of(self, name: str) -> str:
        """An application knows the id; here the name of the benchmark is looked up once."""
        if name not in self._ids:
            found = self._store.find_conversation(external_id=name)
            if found is None:
                found = self._store.create_conversation(**OPTIONS, user_id=USER, external_id=name)
            self._ids[name] = found.id
        return self._ids[name]

    def load(self, conversations: Mapping[str, Sequence[Turn]]) -> None:
        self._store.save_many(
            NewSession(_session(turns), user_id=USER, external_id=name) for name, turns in conversations.items()
        )

    def render(self, name: str, format: str) -> bytes:
        wire: FormatName = format  # type: ignore[assignment] # one of FORMATS
        return self._forgetful.get_conversation(self._id_of(name)).request_body(wire)

    def search(self, word: str) -> int:
        return len(self._store.search(word, limit=PAGE))

    def close(self) -> None:
        self._store.close()
        self._forgetful.close()


def _session(turns: Sequence[Turn]) -> Session:
    return Session(**OPTIONS, input=_items(turns))


def _items(turns: Sequence[Turn]) -> list[Any]:
    user = {"type": "message", "role": "user"}
    return [
        item
        for turn in turns
        for item in (
            {**user, "content": [{"type": "input_text", "text": turn.text}]},
            {**turn.item, "origin": "open_responses"},
        )
    ]
