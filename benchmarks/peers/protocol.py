"""What is asked of every library."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from benchmarks.peers.turns import Turn

T = TypeVar("T")


class Chat(abc.ABC):
    """A conversation as an application holds it."""

    def prepare(self, turns: Sequence[Turn]) -> None:  # noqa: B027 - few have anything to do
        """Make of the turns what the library's own calls of a model would return."""

    @abc.abstractmethod
    def append(self, turn: Turn) -> None:
        """Store a turn; it is on the disk, as far as the database's setting goes, when this returns."""

    @abc.abstractmethod
    def request(self) -> bytes:
        """The next request, with everything that is stored now, as the JSON text that is sent."""

    @abc.abstractmethod
    def texts(self) -> list[str]:
        """All texts that are stored, in their order: of the user, of the model, of the user …"""


class Adapter(abc.ABC):
    """A library on one database.

    Attributes:
        NAME: what it is called in the tables.
        PACKAGE: the distribution whose version is shown; None for what is part of the benchmarks.
        DATABASES: on which it can be measured.
        NOTE: what it does not keep or do, compared with threadkeep.
        FORMATS: the formats that it can render besides the one of `Chat.request`.
    """

    NAME: ClassVar[str]
    PACKAGE: ClassVar[str | None] = None
    DATABASES: ClassVar[tuple[str, ...]] = ("sqlite", "postgresql")
    NOTE: ClassVar[str] = ""
    FORMATS: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __init__(self, url: str) -> None:
        """Open the database, ``sqlite:///path`` or ``postgresql://…``, and make the tables if they are missing."""

    @abc.abstractmethod
    def open(self, name: str) -> Chat:
        """A conversation of which nothing has been read; it is made if it does not exist."""

    def open_cold(self, name: str) -> Chat:
        """The same where nothing about it is kept in memory: as in a new process, on a connection that is open."""
        return self.open(name)

    def load(self, conversations: Mapping[str, Sequence[Turn]]) -> None:
        """Import conversations, as fast as the public interface allows."""
        for name, turns in conversations.items():
            chat = self.open(name)
            for turn in turns:
                chat.prepare([turn])
                chat.append(turn)

    def render(self, name: str, format: str) -> bytes:
        """The request in one of `FORMATS`, where nothing about the conversation is kept in memory."""
        raise NotImplementedError

    def search(self, word: str) -> int:
        """Look for a word in everything that is stored; returns how many of at most 20 matches were found."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - some have nothing to close
        """Close connections."""


class Loop:
    """Runs what a library only offers to asyncio."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def close(self) -> None:
        self._runner.close()
