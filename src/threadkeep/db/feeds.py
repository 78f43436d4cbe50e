"""Change feeds after a cursor, which each kind of database reads in another way.

* SQLite has one writer at a time, whose keys are in the order of commits.
* PostgreSQL knows which transactions had ended at a moment: a cursor is such a snapshot, and what comes after it is
  what a later snapshot shows and it does not. A transaction of minutes holds nothing back.
* MySQL and MariaDB have nothing of the kind, but show the keys of uncommitted rows: what comes after the first of them
  waits. In case one appears behind the cursor after all (servers with clocks of their own, statements that waited), the
  cursor counts the latest changes; where there are more than it has seen, the feed goes back and repeats them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, text

from threadkeep.db import backends, functions, sessions
from threadkeep.db.queries import changes as queries
from threadkeep.domain.jsontext import dumps, loads
from threadkeep.errors import InvalidOption, shown

_SUM_BYTES: Final = 4
_BIG: Final = 2**63
MOST_LAG: Final = 86_400.0
_ALL: Final = 2**31 - 1
# How long a row may take from its key to where it can be seen, in seconds
_SETTLED: Final = 0.1
SECOND: Final = 1_000_000 * functions.SERIALS  # in keys
_DIRTY: Final = text("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")


class PgSnapshot(NamedTuple):
    """Which transactions of PostgreSQL had ended: those below `xmax`, except `xmin` and others that are `open`.

    `xmin` is the lowest that was open.
    """

    xmin: int = 1
    xmax: int = 1
    open: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> PgSnapshot:
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
    base: PgSnapshot = field(default_factory=PgSnapshot)
    target: PgSnapshot | None = None
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
        return Cursor(kind, tenant, last, PgSnapshot.parse(base), None if target is None else PgSnapshot.parse(target))
    if kind == "mysql":
        floor, count = more
        return Cursor(kind, tenant, last, floor=floor, count=count)
    return Cursor(kind, tenant, last)


# The rows of a page, in order, the cursor after each of them, and the cursor after the page
Found = tuple[Sequence[Row[Any]], Callable[[int], Cursor], Cursor]


class ChangeFeed:
    """A feed after a cursor; `lag` is a number of keys."""

    def __init__(self, connection: Connection, cursor: Cursor, bounds: Row[Any], lag: int) -> None:
        self.connection, self.cursor, self.bounds, self.lag = connection, cursor, bounds, lag

    def present(self) -> Cursor:
        """The cursor after everything that is committed."""
        return replace(self.cursor, last=self.bounds.newest or 0)

    def is_expired(self) -> bool:
        """Whether changes after the cursor were removed, or it is of a later state of this database."""
        last, bounds = self.cursor.last, self.bounds
        return last > 0 and (last < (bounds.pruned_to or 0) or last > (bounds.newest or 0))

    def read(self, size: int) -> Found:
        """The next changes."""
        rows = self.fetch(queries.changes_after(), after=self.cursor.last, limit=size)
        last = rows[-1].id if rows else self.cursor.last
        return rows, lambda index: replace(self.cursor, last=rows[index].id), replace(self.cursor, last=last)

    def fetch(self, statement: Any, **parameters: Any) -> Sequence[Row[Any]]:
        """The rows of a statement."""
        return self.connection.execute(statement, {"tenant": self.cursor.tenant, **parameters}).all()


class _PostgresFeed(ChangeFeed):
    """A feed by snapshots."""

    def present(self) -> Cursor:
        return replace(self.cursor, base=self._snapshot())

    def is_expired(self) -> bool:
        base, bounds = self.cursor.base, self.bounds
        if (
            max(base, self.cursor.target or base, key=lambda one: one.xmax).xmax
            > PgSnapshot.parse(bounds.snapshot).xmax
        ):
            return True
        if base.xmax == 1:  # from the beginning, which is wherever the feed begins
            return 0 < self.cursor.last < (bounds.pruned_to or 0)
        return (bounds.pruned_transaction or 0) >= base.xmin

    def read(self, size: int) -> Found:
        base, target = self.cursor.base, self.cursor.target or self._snapshot()
        snapshots = {"base": str(base), "target": str(target), "low": base.xmin, "high": target.xmax}
        with sessions.planned_for_values(self.connection):
            rows = self.fetch(queries.changes_between(), after=self.cursor.last, limit=size + 1, **snapshots)
        within = replace(self.cursor, target=target)
        end = replace(self.cursor, base=target, target=None, last=0)
        if self.cursor.target is not None and not rows:
            self.cursor = end
            return self.read(size)
        if len(rows) > size:
            rows = rows[:size]
            end = replace(within, last=rows[-1].id)
        return rows, lambda index: replace(within, last=rows[index].id), end

    def _snapshot(self) -> PgSnapshot:
        """What is committed. A replica does not know which transactions are open, only the first of them."""
        found = PgSnapshot.parse(self.bounds.snapshot)
        return PgSnapshot(found.xmin, found.xmin) if self.bounds.is_replica else found


class _MysqlFeed(ChangeFeed):
    """A feed that stops before the first row that is not committed."""

    def present(self) -> Cursor:
        now, since = self.bounds.now, max(self.bounds.now - int(MOST_LAG) * SECOND, 0)
        upto = self._first_open(since, now) - 1
        floor = min(upto, max(now - self.lag, 0))
        count, _, last = self._count(floor, upto, floor)
        return replace(self.cursor, last=last or floor, floor=floor, count=count)

    def is_expired(self) -> bool:
        last, bounds = self.cursor.last, self.bounds
        is_later = self.cursor.count > 0 and last > (bounds.newest or 0)
        return is_later or 0 < last < (bounds.pruned_to or 0)

    def read(self, size: int) -> Found:
        start = self._start()
        settled = self.bounds.now - int(_SETTLED * SECOND)
        keys = self._open_or_not(queries.keys_after(), after=start.last, upto=settled, limit=size)
        rows: Sequence[Row[Any]] = []
        if keys:
            rows = self.fetch(queries.changes_after(upto=True), after=start.last, upto=keys[-1].id, limit=size)
            first_open = min({row.id for row in keys} - {row.id for row in rows}, default=settled + 1)
            rows = [row for row in rows if row.id < first_open]

        def after(index: int) -> Cursor:
            return replace(start, last=rows[index].id, count=start.count + index + 1)

        return rows, after, after(len(rows) - 1) if rows else start

    def _start(self) -> Cursor:
        """Where to go on: after the last change, unless others have appeared before it."""
        cursor = self.cursor
        floor = min(cursor.last, max(self.bounds.now - self.lag, cursor.floor))
        count, count_since, _ = self._count(cursor.floor, cursor.last, floor)
        if count > cursor.count:
            return replace(cursor, last=cursor.floor, count=0)
        return replace(cursor, floor=floor, count=count_since)

    def _count(self, floor: int, last: int, since: int) -> tuple[int, int, int | None]:
        row = self.fetch(queries.changes_within(), floor=floor, last=last, since=since)[0]
        return row.found, int(row.found_since), row.newest

    def _first_open(self, after: int, upto: int) -> int:
        """The first key in a range whose row is not committed; the one after the range if there is none."""
        count = self._open_or_not(queries.changes_within(), floor=after, last=upto, since=after)[0].found
        if count == self._count(after, upto, after)[0]:
            return upto + 1
        keys = {"after": after, "upto": upto, "limit": _ALL}
        open_or_not = {row.id for row in self._open_or_not(queries.keys_after(), **keys)}
        return min(open_or_not - {row.id for row in self.fetch(queries.keys_after(), **keys)}, default=upto + 1)

    def _open_or_not(self, statement: Any, **parameters: Any) -> Sequence[Row[Any]]:
        """The rows of a statement, with those that are not committed."""
        self.connection.rollback()
        self.connection.execute(_DIRTY)
        rows = self.fetch(statement, **parameters)
        self.connection.rollback()
        return rows


_FEEDS: Final[dict[str, type[ChangeFeed]]] = {"sqlite": ChangeFeed, "postgresql": _PostgresFeed, "mysql": _MysqlFeed}


def feed_after(connection: Connection, after: object, tenant: int, lag: int) -> ChangeFeed:
    """The feed of a tenant after the cursor of a text; `lag` is a number of keys.

    Raises:
        InvalidOption: it is no cursor, or one of another database or tenant.
    """
    kind = backends.backend_of(connection).name
    cursor = cursor_from(after, kind, tenant)
    bounds = connection.execute(queries.feed_bounds(), {"tenant": tenant}).one()
    return _FEEDS[kind](connection, cursor, bounds, lag)
