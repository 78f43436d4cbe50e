"""Quotas: how much of something each owner has at once, how much there is in all, and how often a key may ask."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, inf
from mmap import mmap
from pathlib import Path
from struct import Struct
from threading import Lock
from time import monotonic
from typing import Final

from starlette.exceptions import HTTPException

from threadkeep.errors import InvalidOption

MAX_BUCKETS: Final = 10_000  # keys whose rates are counted
RETRY_SECONDS: Final = 5  # after which a client that was refused may try again
GROWTH_SECONDS: Final = 30.0  # for which what grows waits for room
_PER_MINUTE: Final = 60.0
_BUCKET: Final = Struct("<Qdd")  # of which name, tokens, and when there were so many
_PLACES: Final = 32_768
_TRIED_PLACES: Final = 8


class Tally(Counter[Hashable]):
    """Per-owner counters, shared by all limits; an owner with nothing is not in it."""

    def add(self, name: Hashable, amount: int) -> None:
        """Add an amount, or with a negative one take it away."""
        self[name] += amount
        if not self[name]:
            del self[name]


class QuotaExceeded(HTTPException):
    """A request that is refused by a quota; `code` is the error's in its answer, if it has one of its own."""

    def __init__(self, status: int, detail: str, code: str | None, wait: int) -> None:
        super().__init__(status, detail, headers={"retry-after": str(wait)})
        self.code, self.wait = code, wait


class Quota:
    """How much of something each owner has at once, and all owners together, in a process.

    Owners are counted by name: by their key, or by tenant and user.
    """

    def __init__(
        self, most: int, in_all: float = inf, *, text: str, code: str | None = None, retry_after: int = RETRY_SECONDS
    ) -> None:
        """Set the limits, and what a refusal says: `{key}` in its text stands for "with this key".

        Where one owner has too much, the answer has status 429 and this code; where there is too much in all, 503.
        """
        self._most, self._in_all, self._text, self._code, self._wait = most, in_all, text, code, retry_after
        self._taken, self._lock = Tally(), Lock()

    @property
    def total(self) -> int:
        """How much there is in all."""
        return self._taken.total()

    def is_full(self, name: Hashable) -> bool:
        """Return whether an owner has as much as it may."""
        return self._taken[name] >= self._most

    def check(self, name: Hashable, amount: int = 1) -> None:
        """Raise QuotaExceeded where an owner may not have so much more."""
        if self._taken[name] + amount > self._most:
            raise QuotaExceeded(429, self._text.format(key=" with this key"), self._code, self._wait)
        if self._taken.total() + amount > self._in_all:
            raise QuotaExceeded(503, self._text.format(key=""), "overloaded", self._wait)

    def take(self, name: Hashable, amount: int = 1) -> None:
        """Count so much more for an owner; QuotaExceeded where it may not have it."""
        with self._lock:
            self.check(name, amount)
            self._taken.add(name, amount)

    def give_back(self, name: Hashable, amount: int = 1) -> None:
        """Count so much less."""
        with self._lock:
            self._taken.add(name, -amount)

    @contextmanager
    def counting(self, name: Hashable) -> Iterator[None]:
        """Count one for an owner while it lasts, however many it has."""
        with self._lock:
            self._taken.add(name, 1)
        try:
            yield
        finally:
            self.give_back(name)

    @contextmanager
    def taking(self, name: Hashable) -> Iterator[None]:
        """Take one for an owner, and give it back at the end; QuotaExceeded."""
        self.take(name)
        try:
            yield
        finally:
            self.give_back(name)


@dataclass(eq=False, slots=True)
class Growth:
    """Something that grows within a quota: its owner, how much it has, and while it waits for more, its turn."""

    name: Hashable
    size: int = 0
    turn: asyncio.Event | None = None
    is_refused: bool = False


class GrowthQuota(Quota):
    """A quota of what grows. What finds no room waits until others end; where all wait, the newest is refused.

    What waits goes on one by one, the oldest first, so that as few as possible are refused.
    """

    def __init__(
        self, most: int, in_all: float = inf, *, text: str, code: str | None = None, seconds: float = GROWTH_SECONDS
    ) -> None:
        """Set the limits; `seconds`: how long something waits for room."""
        super().__init__(most, in_all, text=text, code=code)
        self._seconds, self._growing = seconds, dict[Growth, None]()  # oldest first

    @property
    def growing_count(self) -> int:
        """How many things grow."""
        return len(self._growing)

    @property
    def waiting_count(self) -> int:
        """How many wait for room."""
        return sum(one.turn is not None for one in self._growing)

    @contextmanager
    def growing(self, name: Hashable) -> Iterator[Growth]:
        """Count what grows while it lasts; then, one of each owner goes on that waits for room: the oldest.

        Where two end before it does, so does the one after it.
        """
        self._growing[growth := Growth(name)] = None
        try:
            yield growth
        finally:
            del self._growing[growth]
            self.give_back(name, growth.size)
            turns = ((one.name, one.turn) for one in reversed(self._growing) if one.turn is not None)
            for turn in {owner: turn for owner, turn in turns if not turn.is_set()}.values():
                turn.set()

    async def grow(self, growth: Growth, size: int) -> None:
        """Count a new size; QuotaExceeded where there is no room, and none comes."""
        is_in_time = True
        while True:
            try:
                self.take(growth.name, size - growth.size)
            except QuotaExceeded:
                if not is_in_time or growth.is_refused or self._gives_way(growth, size):
                    raise
                is_in_time = await self._has_turn(growth)
            else:
                growth.size, growth.is_refused = size, False
                return

    def _gives_way(self, growth: Growth, size: int) -> bool:
        """Where all others wait, refuse the newest; return whether it is this one."""
        is_owners = self._taken[growth.name] + size - growth.size > self._most
        rivals = [one for one in self._growing if one.name == growth.name or not is_owners]
        if any(one.turn is None or one.turn.is_set() for one in rivals if one is not growth):
            return False
        newest = rivals[-1]
        if newest.turn is not None:
            newest.is_refused = True
            newest.turn.set()
        return newest is growth

    async def _has_turn(self, growth: Growth) -> bool:
        """Wait for others to end; return whether one has in time."""
        growth.turn = asyncio.Event()
        try:
            async with asyncio.timeout(self._seconds):
                return await growth.turn.wait()
        except TimeoutError:
            return False
        finally:
            growth.turn = None


class Rates:
    """How often each key may ask: a bucket of tokens, which fills again with time.

    Each process counts by itself: with several, a key may ask as many times as often (but see `SharedRates`).
    """

    def __init__(self, per_minute: float) -> None:
        """A bucket has the requests of a minute, so that a client that was idle may send them at once."""
        if not per_minute >= 1:
            raise InvalidOption("must be at least 1.", argument="per_minute")
        self._capacity, self._per_second = per_minute, per_minute / _PER_MINUTE
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, and when there were so many

    def take(self, name: Hashable) -> float:
        """Take a token of a bucket; return 0, or in how many seconds there will be one."""
        self._buckets[name], wait = self._taken(self._buckets.get(name), monotonic())
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait

    def _taken(self, bucket: tuple[float, float] | None, now: float) -> tuple[tuple[float, float], float]:
        """A bucket from which a token was taken now, if there is one, and in how many seconds there will be one."""
        tokens, then = bucket or (self._capacity, now)
        tokens = min(self._capacity, tokens + (now - then) * self._per_second)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._per_second
        return (tokens if wait else tokens - 1, now), wait

    def check(self, name: Hashable) -> None:
        """Take a token; QuotaExceeded where there is none."""
        if wait := self.take(name):
            raise QuotaExceeded(429, "There were too many requests with this key", None, ceil(wait))


class SharedRates(Rates):
    """The same for several processes together, whose buckets are in a file that all of them have in memory.

    A bucket is at one of a few places that its name stands for. Where other names have all of them, the one that was
    used longest ago gives way.
    """

    def __init__(self, per_minute: float, path: Path) -> None:
        """`path`: the file, which the first process makes."""
        super().__init__(per_minute)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        os.ftruncate(self._file, _PLACES * _BUCKET.size)
        self._table, self._guard = mmap(self._file, _PLACES * _BUCKET.size), Lock()

    def take(self, name: Hashable) -> float:
        """Take a token of a bucket; return 0, or in how many seconds there will be one."""
        import fcntl  # noqa: PLC0415 - not on Windows

        mark = int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest()) or 1
        places = [(mark + number) % _PLACES * _BUCKET.size for number in range(_TRIED_PLACES)]
        with self._guard:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                found = {place: _BUCKET.unpack_from(self._table, place) for place in places}
                place = min(found, key=lambda one: (found[one][0] != mark, found[one][2]))
                bucket = found[place][1:] if found[place][0] == mark else None
                (tokens, now), wait = self._taken(bucket, monotonic())
                _BUCKET.pack_into(self._table, place, mark, tokens, now)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
        return wait
