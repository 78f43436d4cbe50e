"""Cursors of the change feed: how far it has been read, as a text that only the same feed takes back."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from threadkeep.domain.jsontext import dumps, loads
from threadkeep.domain.objects import shown
from threadkeep.errors import InvalidOption

NOW: Final = "now"  # stands for the cursor of the present
_SUM_BYTES: Final = 4
_BIG: Final = 2**63


class Snapshot(NamedTuple):
    """Which transactions of PostgreSQL had ended: those below `xmax`, except `xmin` and others that are `open`.

    `xmin` is the lowest that was open.
    """

    xmin: int = 1
    xmax: int = 1
    open: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """A snapshot as PostgreSQL writes it; ValueError for other texts."""
        xmin, xmax, some = text.split(":")
        return cls(int(xmin), int(xmax), tuple(map(int, some.split(","))) if some else ())

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.open))}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a feed has been read.

    On SQLite and MySQL up to the change `last`. On PostgreSQL everything that `base` shows, and if there is a `target`,
    what it shows up to the change `last`. On MySQL, there were `count` changes after `floor` and up to `last`.
    """

    kind: str  # of the database
    tenant: int
    last: int = 0
    base: Snapshot = field(default_factory=Snapshot)
    target: Snapshot | None = None
    floor: int = 0
    count: int = 0

    def __str__(self) -> str:
        parts: list[object] = [self.kind, self.tenant, self.last]
        if self.kind == "postgresql":
            parts += [str(self.base), None if self.target is None else str(self.target)]
        elif self.kind == "mysql":
            parts += [self.floor, self.count]
        text = dumps(parts)
        return base64.urlsafe_b64encode(_sum(text) + text).decode().rstrip("=")


def _sum(text: bytes) -> bytes:
    return blake2b(text, digest_size=_SUM_BYTES).digest()


def cursor_from(after: object, kind: str, tenant: int) -> Cursor:
    """The cursor of a text; None is the beginning of the feed."""
    if after is None:
        return Cursor(kind, tenant)
    try:
        found = _parsed(after)
    except (ValueError, TypeError, RecursionError) as error:
        hint = 'Give the cursor of a change or page, None for the beginning, or "now".'
        problem = f"is not a cursor of the change feed: {shown(after)}."
        raise InvalidOption(problem, argument="after", hint=hint) from error
    if (found.kind, found.tenant) != (kind, tenant):
        raise InvalidOption("is a cursor of another database or tenant.", argument="after")
    return found


def _parsed(after: object) -> Cursor:
    if not isinstance(after, str) or not after.isascii():
        raise TypeError("not a text")
    data = base64.urlsafe_b64decode(after + "=" * (-len(after) % 4))
    text = data[_SUM_BYTES:]
    if _sum(text) != data[:_SUM_BYTES]:
        raise ValueError("another checksum")
    kind, tenant, last, *more = loads(text)
    numbers = [tenant, last, *(more if kind == "mysql" else ())]
    if not all(isinstance(number, int) and 0 <= number < _BIG for number in numbers):
        raise ValueError("not the numbers of a cursor")
    if kind == "postgresql":
        base, target = more
        return Cursor(kind, tenant, last, Snapshot.parse(base), None if target is None else Snapshot.parse(target))
    if kind == "mysql":
        floor, count = more
        return Cursor(kind, tenant, last, floor=floor, count=count)
    return Cursor(kind, tenant, last)
