"""Reading the change feed: what was committed, whole and in order, however long the transactions of writers take."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

from sqlalchemy import Connection, Row

from threadkeep.db import feeds, functions, models
from threadkeep.db.driver.inserting import TableRows, insert_rows
from threadkeep.domain import ids, jsontext
from threadkeep.domain.stored import CHANGED, Change, ChangeKind, ChangePage
from threadkeep.errors import CursorExpired, InvalidOption
from threadkeep.store.work import refs, validation
from threadkeep.store.work.transactions import Transactions

NOW: Final = "now"  # stands for the cursor of the present


def read_changes(
    transactions: Transactions, scope: refs.Scope, after: object, limit: int, lag: float = refs.FEED_LAG
) -> ChangePage:
    """A page of the change feed; see `Store.changes`."""
    scope.check_all_users("The change feed covers all users", "changes()")
    if not transactions.commits_itself:
        raise not_committed()
    size, keys = validation.page_size(limit), int(_checked_lag(lag) * feeds.SECOND)

    def read(connection: Connection) -> ChangePage:
        feed = feeds.feed_after(connection, None if after == NOW else after, scope.tenant, keys)
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
    if isinstance(lag, bool) or not isinstance(lag, int | float) or not 0 <= lag <= feeds.MOST_LAG:
        raise jsontext.mismatch(InvalidOption, f"a number of seconds from 0 to {feeds.MOST_LAG:,.0f}", lag, "lag")
    return float(lag)


def _page(rows: Sequence[Row[Any]], after: Callable[[int], feeds.Cursor], end: feeds.Cursor) -> ChangePage:
    return ChangePage(
        [
            Change(
                row.id, row.kind, ids.public_id_text(bytes(row.public_id)), row.branch, row.from_position,
                row.to_position, row.created_at, str(after(index)),
            )
            for index, row in enumerate(rows)
        ],
        str(end),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Writing the change feed: a row of each transaction that changed a conversation, inserted with its other rows

serial_numbers: Final = count(secrets.randbelow(functions.SERIALS))


def change_row(
    tenant: int,
    conversation: int,
    public_id: bytes,
    kind: ChangeKind,
    now: datetime,
    *,
    branch: int | None = None,
    from_position: int | None = None,
    to_position: int | None = None,
) -> dict[str, Any]:
    """A row of the feed."""
    return {
        "tenant_id": tenant, "conversation_id": conversation, "public_id": public_id, "kind": kind, "branch": branch,
        "from_position": from_position, "to_position": to_position, "created_at": now,
        "serial": next(serial_numbers) % functions.SERIALS, "of_tenant": tenant,
    }  # fmt: skip


def record_change(
    connection: Connection, ref: refs.ConversationRef, branch: int | None = None, more: TableRows = ()
) -> None:
    """Tell that something other than an append changed a conversation, whose lock the transaction has.

    `more`: rows of other tables to write with it.
    """
    public_id, now = ref.public_bytes, datetime.now(UTC)
    row = change_row(ref.scope.tenant, ref.key, public_id, CHANGED, now, branch=branch)
    insert_rows(connection, [*more, (models.changes, [row])])


def insert_changes(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of the feed alone."""
    insert_rows(connection, [(models.changes, list(rows))])
