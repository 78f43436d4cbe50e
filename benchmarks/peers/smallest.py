"""The smallest possible floor: three tables on the bare driver, a turn in one transaction."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import orjson
from sqlalchemy import make_url

from benchmarks.databases import PostgresDriver, SqliteDriver
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn
from benchmarks.smallest import Smallest


class Chat(protocol.Chat):
    def __init__(self, smallest: Smallest, number: int) -> None:
        self._smallest, self._number = smallest, number

    def append(self, turn: Turn) -> None:
        self._smallest.append_at_once(self._number, (turn.text, turn.body))

    def request(self) -> bytes:
        return self._smallest.resume(self._number)

    def texts(self) -> list[str]:
        return [item["content"][0]["text"] for item in orjson.loads(self.request())["input"]]


class Adapter(protocol.Adapter):
    NAME = "smallest floor (by hand)"
    NOTE = "no ids of conversations or items, users, times, branches, options, search; writers can collide"

    def __init__(self, url: str) -> None:
        kind = "postgresql" if url.startswith("postgresql") else "sqlite"
        self._driver = (
            PostgresDriver(url) if kind == "postgresql" else SqliteDriver(make_url(url).database or "", "NORMAL")
        )
        self._smallest = Smallest(self._driver, kind)

    def open(self, name: str) -> Chat:
        return Chat(self._smallest, zlib.crc32(name.encode()))

    def load(self, conversations: Mapping[str, Sequence[Turn]]) -> None:
        """Items alone, as `threadkeep` imports them."""
        user = {"type": "message", "role": "user"}
        driver = self._driver
        driver.begin()
        driver.load(
            "item", ("conversation", "position", "body"),
            (
                (zlib.crc32(name.encode()), position, orjson.dumps(item).decode())
                for name, turns in conversations.items()
                for position, item in enumerate(
                    item
                    for turn in turns
                    for item in ({**user, "content": [{"type": "input_text", "text": turn.text}]}, turn.item)
                )
            ),
            prefix="",
        )  # fmt: skip
        driver.commit()

    def close(self) -> None:
        self._driver.close()
