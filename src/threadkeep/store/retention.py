"""Removing what is stored: a conversation, what is kept of a user, what has been kept long enough.

Each use case is many small transactions. All of them can be repeated: what was interrupted goes on where it ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries.search import INDEX
from threadkeep.domain.objects import shown
from threadkeep.errors import InvalidOption
from threadkeep.store.handle import StoreResources
from threadkeep.store.idempotency import IdempotencyKey
from threadkeep.store.purging import (
    BodyCursor,
    anonymize_items,
    anonymize_ledger,
    clear_ledger,
    collect_configs,
    collect_keys,
    collect_media,
    count_bodies,
    count_inactive,
    delete_bodies,
    deleted_keys,
    hide_conversation,
    hide_inactive,
    hide_of_user,
    purge_batch,
)
from threadkeep.store.refs import Scope
from threadkeep.store.streaming.recovery import StreamRecovery
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import identifier

BATCH_CONVERSATIONS: Final = 100  # that are hidden in one transaction
CHECKPOINTS: Final = 20  # attempts to empty SQLite's write-ahead log, which readers may be using

# Is told what is being removed, and how many of them have been removed so far
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What was erased of a user.

    Attributes:
        conversations: how many conversations were removed.
        attempts: how many rows of the ledger were made anonymous; their figures stay.
        items: how many items in conversations of others no longer name the user as their author.
        is_scrubbed: whether the texts are gone from the database's files, too (SQLite); None where the server decides.
    """

    conversations: int
    attempts: int
    items: int
    is_scrubbed: bool | None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What was, or with `dry_run` would be, removed because it was old.

    Attributes:
        raw_bodies: how many raw bodies of provider responses.
        conversations: how many conversations with all their content.
    """

    raw_bodies: int
    conversations: int


def delete_conversation(
    transactions: Transactions, scope: Scope, resources: StoreResources, id: str, idempotency_key: str | None
) -> None:
    """Delete a conversation: it is gone at once, then its rows are removed. Its ledger rows stay.

    Raises:
        NotFound: there is no conversation of that id here.
        IdempotencyConflict: the key was used with other content.
        InvalidOption: the key cannot be used.
    """
    once = IdempotencyKey.of(idempotency_key, "delete_conversation", [id, scope.user])
    key = transactions.write(
        lambda connection: hide_conversation(connection, scope, id, once), is_repeatable=once is not None
    )
    _purge_conversation(transactions, scope.tenant, key, StreamRecovery(resources.prices))
    _repeat(transactions, partial(collect_media, tenant=scope.tenant))


def purge_deleted(transactions: Transactions, scope: Scope, resources: StoreResources) -> int:
    """Remove the rows of deleted conversations that an interrupted deletion left; returns how many there were."""
    tenant, recovery, count = scope.tenant, StreamRecovery(resources.prices), 0
    while keys := transactions.read(lambda connection: deleted_keys(connection, tenant, BATCH_CONVERSATIONS)):
        count = _purge(transactions, tenant, keys, recovery, None, count)
    _repeat(transactions, partial(collect_media, tenant=tenant))
    return count


def erase_user(
    transactions: Transactions, scope: Scope, resources: StoreResources, user_id: str, progress: Progress | None = None
) -> ErasureReport:
    """Remove every trace of a user's content, and keep the figures without a name.

    Raises:
        InvalidOption: the store is for another user, or the id cannot be one.
    """
    user = identifier("user_id", user_id)
    if scope.user not in (None, user):
        raise InvalidOption(f"must be {scope.user!r}, whose store this is, not {user!r}.", argument="user_id")
    tenant, recovery, count = scope.tenant, StreamRecovery(resources.prices), 0
    hide = partial(hide_of_user, tenant=tenant, user=user, limit=BATCH_CONVERSATIONS)
    while keys := transactions.write(hide, is_repeatable=True):
        _repeat(transactions, partial(clear_ledger, tenant=tenant, user=user, keys=keys))
        count = _purge(transactions, tenant, keys, recovery, progress, count)
    attempts = _repeat(transactions, partial(anonymize_ledger, tenant=tenant, user=user), "attempts", progress)
    items = _repeat(transactions, partial(anonymize_items, tenant=tenant, user=user), "items", progress)
    after: str | None = ""
    while after is not None:
        after = transactions.write(partial(collect_keys, tenant=tenant, after=after), is_repeatable=True)
    _collect(transactions, tenant, progress)
    is_scrubbed = transactions.read(scrub) if transactions.keeps_history else None
    resources.configs.clear()
    resources.histories.clear()
    return ErasureReport(count, attempts, items, is_scrubbed)


def retain(
    transactions: Transactions,
    scope: Scope,
    resources: StoreResources,
    *,
    raw_bodies: timedelta | int | None = None,
    content: timedelta | int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RetentionReport:
    """Remove raw bodies and conversations that are older than they are to be kept; see `Store.retain`.

    Raises:
        InvalidOption: neither is set, one of them is not a length of time, or the store is for one user.
    """
    if scope.user is not None:
        raise InvalidOption(
            f"What is retained is decided for all users, and this store is for the user {scope.user!r} only.",
            hint="Call retain() on the store that for_user() was called on.",
        )
    bodies_age, content_age = retention_period("raw_bodies", raw_bodies), retention_period("content", content)
    if bodies_age is None and content_age is None:
        raise InvalidOption("It is not set how long anything is kept.", hint="Pass raw_bodies= or content=, in days.")
    now, tenant = datetime.now(UTC), scope.tenant
    bodies = inactive = 0
    if bodies_age is not None:  # first, so that those of conversations that go count as a dry run counts them
        before = _moment_before(now, bodies_age)
        if dry_run:
            bodies = transactions.read(partial(count_bodies, tenant=tenant, before=before))
        else:
            bodies = _remove_bodies(transactions, tenant, before, progress)
    if content_age is not None:
        before = _moment_before(now, content_age)
        if dry_run:
            inactive = transactions.read(partial(count_inactive, tenant=tenant, before=before))
        else:
            inactive = _remove_inactive(transactions, tenant, before, StreamRecovery(resources.prices), progress)
    return RetentionReport(bodies, inactive)


def retention_period(argument: str, value: object) -> timedelta | None:
    """How long something is kept: a timedelta, or a number of days; None stays None.

    Raises:
        InvalidOption: it is neither, or negative.
    """
    if value is None or (isinstance(value, timedelta) and value >= timedelta(0)):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= timedelta.max.days:
        return timedelta(days=value)
    raise InvalidOption(f"must be a number of days, from 0 on, or a timedelta, not {shown(value)}.", argument=argument)


def _moment_before(now: datetime, age: timedelta) -> datetime:
    """The moment so long ago; nothing is older than the first day that can be written."""
    first = datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=1)  # clocks of other time zones can write it, too
    return now - age if age < now - first else first


def _remove_bodies(transactions: Transactions, tenant: int, before: datetime, progress: Progress | None) -> int:
    count = 0
    after: BodyCursor | None = (-1, -1)
    while after is not None:
        batch = partial(delete_bodies, tenant=tenant, before=before, after=after)
        deleted, after = transactions.write(batch, is_repeatable=True)
        count += deleted
        if progress is not None:
            progress("raw bodies", count)
    return count


def _remove_inactive(
    transactions: Transactions, tenant: int, before: datetime, recovery: StreamRecovery, progress: Progress | None
) -> int:
    count = 0
    hide = partial(hide_inactive, tenant=tenant, before=before, limit=BATCH_CONVERSATIONS)
    while keys := transactions.write(hide, is_repeatable=True):
        count = _purge(transactions, tenant, keys, recovery, progress, count)
    _collect(transactions, tenant, progress)
    return count


def _purge(
    transactions: Transactions,
    tenant: int,
    keys: Sequence[int],
    recovery: StreamRecovery,
    progress: Progress | None,
    count: int,
) -> int:
    """Remove the rows of conversations, after having removed those of `count`; returns of how many now."""
    for key in keys:
        _purge_conversation(transactions, tenant, key, recovery)
        count += 1
        if progress is not None:
            progress("conversations", count)
    return count


def _purge_conversation(transactions: Transactions, tenant: int, key: int, recovery: StreamRecovery) -> None:
    while transactions.write(lambda connection: purge_batch(connection, tenant, key, recovery), is_repeatable=True):
        pass


def _collect(transactions: Transactions, tenant: int, progress: Progress | None) -> None:
    _repeat(transactions, partial(collect_media, tenant=tenant), "media", progress)
    _repeat(transactions, partial(collect_configs, tenant=tenant), "options and tools", progress)


def _repeat(
    transactions: Transactions,
    batch: Callable[[Connection], int],
    name: str = "",
    progress: Progress | None = None,
) -> int:
    """Run batches until one has nothing to do; returns the sum of what they say."""
    total = 0
    while count := transactions.write(batch, is_repeatable=True):
        total += count
        if progress is not None:
            progress(name, total)
    return total


def scrub(connection: Connection) -> bool | None:
    """Overwrite what was deleted in the files of SQLite; True when nothing of it is left in them.

    VACUUM writes the database anew, a TRUNCATE checkpoint empties the write-ahead log; a reader that is still at work
    can hold the latter up. Servers do this in a time of their own: None.
    """
    if connection.dialect.name != "sqlite":
        return None
    driver: Any = connection.connection.driver_connection
    indexes = driver.execute("SELECT name FROM sqlite_master WHERE name = ?", [INDEX]).fetchall()
    try:
        for (name,) in indexes:
            driver.execute(f"INSERT INTO {name}({name}) VALUES ('optimize')")  # noqa: S608 - a table of the schema
            driver.commit()
        driver.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        driver.rollback()
        return False  # somebody writes all the time; all rows are gone, and the call can be repeated
    return any(driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0 for _ in range(CHECKPOINTS))
