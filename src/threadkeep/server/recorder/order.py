"""The order in which the calls of an owner are stored: an answer before the calls of a client that had it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from heapq import heappop, heappush
from itertools import count
from threading import Lock


class CallQueue:
    """The calls of an owner, each with its beginning and its end as numbers; a call costs little, however many wait."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.numbers = count()
        self.ended: OrderedDict[QueuePlace, int] = OrderedDict()  # but not stored yet, by their ends
        self.waiting: list[tuple[int, QueuePlace, asyncio.Event]] = []  # a heap, by their beginnings

    def place(self) -> QueuePlace:
        """Return the place of a call that begins now."""
        return QueuePlace(self)

    def is_due(self, place: QueuePlace) -> bool:
        """Whether all calls are stored that had ended when that one began."""
        return not self.ended or next(iter(self.ended.values())) > place.begun


class QueuePlace:
    """A call in a line."""

    __slots__ = ("__weakref__", "_has_left", "_line", "begun")

    def __init__(self, line: CallQueue) -> None:
        self._line, self._has_left = line, False
        with line.lock:
            self.begun = next(line.numbers)

    def end(self) -> None:
        """Note that the client has the answer: calls that begin from now on are stored after this one."""
        with self._line.lock:
            if not self._has_left:
                self._line.ended[self] = next(self._line.numbers)

    async def turn(self) -> None:
        """Wait until the calls are stored that had ended when this one began."""
        line = self._line
        with line.lock:
            if line.is_due(self):
                return
            is_next = asyncio.Event()
            heappush(line.waiting, (self.begun, self, is_next))
        await is_next.wait()

    def leave(self) -> None:
        """Let those follow that wait for this call: it is stored, or cannot be."""
        line = self._line
        with line.lock:
            self._has_left = True
            line.ended.pop(self, None)
            while line.waiting and line.is_due(line.waiting[0][1]):
                heappop(line.waiting)[2].set()
