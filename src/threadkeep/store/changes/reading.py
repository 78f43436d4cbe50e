"""Reading the change feed: what was committed, whole and in order, however long the transactions of writers take.

* SQLite has one writer at a time, whose keys are in the order of commits.
* PostgreSQL knows which transactions had ended at a moment: a cursor is such a snapshot, and what comes after it is
  what a later snapshot shows and it does not. A transaction of minutes holds nothing back.
* MySQL and MariaDB have nothing of the kind, but show the keys of uncommitted rows: what comes after the first of them
  waits. In case one appears behind the cursor after all (servers with clocks of their own, statements that waited), the
  cursor counts the latest changes; where there are more than it has seen, the feed goes back and repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from threadkeep.db import dialects
from threadkeep.db.change_keys import SERIALS
from threadkeep.db.dialects import planned_for_values
from threadkeep.db.queries import changes as queries
from threadkeep.domain.changes import Change, ChangePage
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.objects import mismatch
from threadkeep.errors import CursorExpired, InvalidOption
from threadkeep.store.changes.cursors import NOW, Cursor, Snapshot, cursor_from
from threadkeep.store.defaults import FEED_LAG
from threadkeep.store.refs import Scope
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import page_size

MOST_LAG: Final = 86_400.0
_ALL: Final = 2**31 - 1
# How long a row may take from its key to where it can be seen, in seconds
_SETTLED: Final = 0.1
_SECOND: Final = 1_000_000 * SERIALS  # in keys
_DIRTY: Final = text("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")

# The rows of a page, in order, the cursor after each of them, and the cursor after the page
Found = tuple[Sequence[Row[Any]], Callable[[int], Cursor], Cursor]


def read_changes(
    transactions: Transactions, scope: Scope, after: object, limit: int, lag: float = FEED_LAG
) -> ChangePage:
    """A page of the change feed; see `Store.changes`."""
    scope.check_all_users("The change feed is that of all users", "changes()")
    if not transactions.commits_itself:
        raise not_committed()
    size, keys = page_size(limit), int(_checked_lag(lag) * _SECOND)

    def read(connection: Connection) -> ChangePage:
        dialect = connection.dialect
        kind = "mysql" if dialects.is_mysql(dialect) else dialect.name
        cursor = cursor_from(None if after == NOW else after, kind, scope.tenant)
        bounds = connection.execute(queries.feed_bounds(dialect.name), {"tenant": scope.tenant}).one()
        feed = _FEEDS[kind](connection, cursor, bounds, keys)
        if after == NOW:
            return ChangePage([], str(feed.present()))
        if feed.is_expired():
            raise CursorExpired
        return _page(*feed.read(size))

    return transactions.read(read)


def not_committed() -> InvalidOption:
    """The error for reading the feed within a transaction of the caller."""
    hint = "Read it from the store that within() was called on."
    return InvalidOption("The change feed has what is committed, and cannot be read within a transaction.", hint=hint)


def _checked_lag(lag: object) -> float:
    if isinstance(lag, bool) or not isinstance(lag, int | float) or not 0 <= lag <= MOST_LAG:
        raise mismatch(InvalidOption, f"a number of seconds from 0 to {MOST_LAG:,.0f}", lag, "lag")
    return float(lag)


def _page(rows: Sequence[Row[Any]], after: Callable[[int], Cursor], end: Cursor) -> ChangePage:
    return ChangePage(
        [
            Change(
                row.id, row.kind, public_id_text(bytes(row.public_id)), row.branch, row.from_position,
                row.to_position, row.created_at, str(after(index)),
            )
            for index, row in enumerate(rows)
        ],
        str(end),
    )  # fmt: skip


class _Feed:
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


class _PostgresFeed(_Feed):
    """A feed by snapshots."""

    def present(self) -> Cursor:
        return replace(self.cursor, base=self._snapshot())

    def is_expired(self) -> bool:
        base, bounds = self.cursor.base, self.bounds
        if max(base, self.cursor.target or base, key=lambda one: one.xmax).xmax > Snapshot.parse(bounds.snapshot).xmax:
            return True
        if base.xmax == 1:  # from the beginning, which is wherever the feed begins
            return 0 < self.cursor.last < (bounds.pruned_to or 0)
        return (bounds.pruned_transaction or 0) >= base.xmin

    def read(self, size: int) -> Found:
        base, target = self.cursor.base, self.cursor.target or self._snapshot()
        snapshots = {"base": str(base), "target": str(target), "low": base.xmin, "high": target.xmax}
        with planned_for_values(self.connection):
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

    def _snapshot(self) -> Snapshot:
        """What is committed. A replica does not know which transactions are open, only the first of them."""
        found = Snapshot.parse(self.bounds.snapshot)
        return Snapshot(found.xmin, found.xmin) if self.bounds.is_replica else found


class _MysqlFeed(_Feed):
    """A feed that stops before the first row that is not committed."""

    def present(self) -> Cursor:
        now, since = self.bounds.now, max(self.bounds.now - int(MOST_LAG) * _SECOND, 0)
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
        settled = self.bounds.now - int(_SETTLED * _SECOND)
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


_FEEDS: Final[dict[str, type[_Feed]]] = {"sqlite": _Feed, "postgresql": _PostgresFeed, "mysql": _MysqlFeed}
