"""Removing stored content: a conversation, the content of a user, or content older than a given age.

Each use case is many small transactions. All of them can be repeated and continue where they were interrupted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from threadkeep.db.base import SEARCH_INDEX
from threadkeep.db.change_keys import key_at
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import conversations
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption
from threadkeep.store import anonymizing, api_keys, purging
from threadkeep.store.connections import sleep
from threadkeep.store.handle import StoreResources
from threadkeep.store.idempotency import IdempotencyKey
from threadkeep.store.media import collecting
from threadkeep.store.media.orphans import remove_orphans
from threadkeep.store.pacing import Breaks, Pace
from threadkeep.store.refs import Scope
from threadkeep.store.streaming.recovery import StreamRecovery
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import identifier, other_user

RECENT: Final = timedelta(hours=1)  # for which changes are kept in any case: somebody may be about to read them
CHECKPOINTS: Final = 20  # attempts to empty SQLite's write-ahead log, which readers may be using
MERGED_PAGES: Final = 500  # of the full-text index of SQLite, in one transaction
MERGED: Final = 2  # changes of a merge that has merged something

ORPHAN_AGE: Final = timedelta(days=1)  # no writer takes that long between its object and the row that names it

T = TypeVar("T")

Progress = Callable[[str, int], None]
"""Is called with what is being removed (such as "conversations") and how many of them have been removed so far."""


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The result of `erase_user`.

    Attributes:
        conversations: how many conversations were removed.
        attempts: how many ledger rows were made anonymous; their figures are kept.
        items: how many items in other users' conversations no longer name the user as their author.
        is_scrubbed: whether the text is also gone from the database files (SQLite), as far as is known: False without
            `vacuum`, or if a reader prevented it. None if the server decides.
    """

    conversations: int
    attempts: int
    items: int
    is_scrubbed: bool | None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What `retain` removed or, with `dry_run`, would remove.

    Attributes:
        raw_bodies: the number of raw response bodies.
        conversations: the number of conversations, with all their content.
        changes: the number of changes in the change feed.
    """

    raw_bodies: int
    conversations: int
    changes: int = 0


class _Removal:
    """Removes data of a tenant in many transactions; `progress` is called with what was removed and how many."""

    def __init__(
        self, transactions: Transactions, tenant: int, resources: StoreResources, progress: Progress | None = None
    ) -> None:
        self._transactions, self._tenant, self._blobs = transactions, tenant, resources.blobs
        if not (progress is None or callable(progress)):
            raise mismatch(InvalidOption, "a function", progress, "progress")
        self._progress = progress or (lambda _what, _count: None)
        self._recovery = StreamRecovery(resources.prices)
        self._pace, self._seconds = Pace(), 0.0  # of the last transaction
        is_sqlite = (
            transactions.keeps_history and transactions.read(lambda connection: connection.dialect.name) == "sqlite"
        )
        self._breaks = Breaks() if is_sqlite else None
        self.conversations = 0  # that are purged

    def write(self, batch: Callable[..., T], **which: Any) -> T:
        """Run one batch."""
        begun = monotonic()
        result = self._transactions.write(partial(batch, tenant=self._tenant, **which), is_repeatable=True)
        self._seconds = monotonic() - begun
        if self._breaks is not None:
            sleep(self._breaks.after(self._seconds))
        return result

    def write_timed(self, batch: Callable[..., T], **which: Any) -> T:
        """Run one batch, and learn from how long it takes."""
        result = self.write(batch, **which)
        self._pace.after(self._seconds)
        return result

    def repeat(self, batch: Callable[..., int], what: str, **which: Any) -> int:
        """Run batches until one has nothing to do; return the sum of their results."""
        total = 0
        while count := self.write(batch, **which):
            total += count
            self._progress(what, total)
        return total

    def repeat_quickly(self, batch: Callable[..., int], what: str, **which: Any) -> int:
        """The same with batches of as many rows (`limit`) as are quick."""
        total = 0
        while count := self.write_timed(batch, limit=self._pace.rows, **which):
            total += count
            self._progress(what, total)
        return total

    def change_found(self, find: Callable[..., list[purging.Place]], change: Callable[..., int], what: str) -> int:
        """Change rows that have to be looked for: all of them are looked at, in transactions that lock none."""
        total, after = 0, (-1, -1)
        while places := self._transactions.read(
            partial(find, tenant=self._tenant, after=after, limit=purging.BATCH_SIZE)
        ):
            after = places[-1]
            while places:
                some, places = places[: self._pace.rows], places[self._pace.rows :]
                total += self.write_timed(change, places=some)
                self._progress(what, total)
        return total

    def purge(self, keys: Sequence[int]) -> None:
        """Remove the rows of hidden conversations."""
        for key in keys:
            while self.write_timed(purging.purge_batch, key=key, recovery=self._recovery, limit=self._pace.rows):
                pass
            self.conversations += 1
            self._progress("conversations", self.conversations)

    def collect(self) -> None:
        """Remove media, options and tools that are no longer used."""
        self.collect_media()
        self.repeat(purging.collect_configs, "options and tools")

    def collect_media(self, *, is_strict: bool = False) -> None:
        """Remove media that are no longer used; `is_strict`: raise the errors of the blob store."""
        self.repeat(collecting.collect_uploads, "uploads")
        self.repeat(collecting.collect_media, "media")
        count, scope = 0, Scope(self._tenant, blobs=self._blobs)
        while aside := self.write(collecting.set_aside_media):
            if not collecting.remove_set_aside(self._transactions, scope, aside, is_strict=is_strict):
                return
            count += len(aside)
            self._progress("objects", count)


def check_blobs(transactions: Transactions, tenant: int, resources: StoreResources) -> None:
    """Refuse to go on if the objects of media could not be removed."""
    if resources.blobs is None and transactions.read(partial(collecting.has_objects, tenant=tenant)):
        raise InvalidOption("Media are kept in a blob store.", hint="Open the store with blobs=…, as for writing.")


def delete_conversation(
    transactions: Transactions, scope: Scope, resources: StoreResources, id: str, idempotency_key: str | None
) -> None:
    """See `Store.delete_conversation`."""
    once = IdempotencyKey.of(idempotency_key, "delete_conversation", [id, scope.user])
    key = transactions.write(
        lambda connection: purging.hide_conversation(connection, scope, id, once), is_repeatable=once is not None
    )
    removal = _Removal(transactions, scope.tenant, resources)
    removal.purge([key])
    removal.collect_media()


def purge_deleted(transactions: Transactions, scope: Scope, resources: StoreResources) -> int:
    """Remove rows left behind by interrupted deletions; return the number of conversations."""
    removal, are_deleted = _Removal(transactions, scope.tenant, resources), conversations.c.status == DELETED
    while keys := transactions.read(
        lambda connection: purging.find_conversations(connection, scope.tenant, are_deleted)
    ):
        removal.purge(keys)
    removal.collect_media()
    if resources.blobs is not None and transactions.keeps_history:
        remove_orphans(transactions, scope.tenant, resources.blobs, datetime.now(UTC) - ORPHAN_AGE)
    return removal.conversations


def erase_user(
    transactions: Transactions, scope: Scope, resources: StoreResources, user_id: str,
    progress: Progress | None = None, *, vacuum: bool = True,
) -> ErasureReport:  # fmt: skip
    """Remove all content of a user, and keep anonymous figures; see `Store.erase_user`."""
    user = identifier("user_id", user_id)
    if scope.user not in (None, user):
        raise other_user(scope.user, user)
    removal = _Removal(transactions, scope.tenant, resources, progress)
    check_blobs(transactions, scope.tenant, resources)
    while keys := removal.write(purging.hide_conversations, which=conversations.c.user_id == user):
        removal.repeat_quickly(anonymizing.clear_ledger, "attempts of others", user=user, keys=keys)
        removal.purge(keys)
    attempts = removal.repeat_quickly(anonymizing.anonymize_ledger, "attempts", user=user)
    find = partial(anonymizing.find_items, user=user)
    items = removal.change_found(find, partial(anonymizing.anonymize_items, user=user), "items")
    removal.repeat_quickly(anonymizing.delete_feedback, "feedback", user=user)
    removal.repeat_quickly(anonymizing.delete_reads, "marks", user=user)
    removal.repeat_quickly(api_keys.delete_keys, "keys", user=user)
    removal.repeat(collecting.collect_uploads, "uploads", user=user)
    removal.repeat_quickly(anonymizing.anonymize_approvals, "decisions", user=user)
    after: str | None = ""
    while after is not None:
        after = removal.write(anonymizing.collect_keys, after=after)
    removal.collect_media(is_strict=True)
    removal.collect()
    is_scrubbed = transactions.read(partial(scrub, vacuum=vacuum)) if transactions.keeps_history else None
    resources.configs.clear()
    resources.histories.clear()
    return ErasureReport(removal.conversations, attempts, items, is_scrubbed)


def retain(
    transactions: Transactions,
    scope: Scope,
    resources: StoreResources,
    ages: Mapping[str, timedelta | int | None],
    progress: Progress | None,
    *,
    dry_run: bool,
) -> RetentionReport:
    """Remove raw bodies and conversations older than these `ages` by name; see `Store.retain`."""
    scope.check_all_users("What is retained is decided for all users", "retain()")
    now = datetime.now(UTC)
    bodies_before, content_before, changes_before = (_moment_before(now, name, age) for name, age in ages.items())
    if bodies_before is content_before is changes_before:  # None
        hint = "Pass raw_bodies=, content= or changes=, in days."
        raise InvalidOption("It is not set how long anything is kept.", hint=hint)
    keys_before = 0 if changes_before is None else key_at(min(changes_before, now - RECENT))
    if dry_run:
        return RetentionReport(
            transactions.read(partial(purging.count_bodies, tenant=scope.tenant, before=bodies_before)),
            transactions.read(partial(purging.count_inactive, tenant=scope.tenant, before=content_before)),
            transactions.read(partial(purging.count_changes, tenant=scope.tenant, before=keys_before)),
        )
    removal, bodies = _Removal(transactions, scope.tenant, resources, progress), 0
    if bodies_before is not None:  # first, so that those of conversations that go count as a dry run counts them
        find = partial(purging.find_bodies, before=bodies_before)
        bodies = removal.change_found(find, purging.delete_bodies, "raw bodies")
    if content_before is not None:
        for status in purging.STATUSES:
            are_inactive = (conversations.c.status == status) & (conversations.c.last_activity_at < content_before)
            while keys := removal.write(purging.hide_conversations, which=are_inactive):
                removal.purge(keys)
        removal.collect()
    changes = removal.repeat_quickly(purging.prune_changes, "changes", before=keys_before) if keys_before else 0
    return RetentionReport(bodies, removal.conversations, changes)


def _moment_before(now: datetime, argument: str, age: object) -> datetime | None:
    """Return the time so many days (or a timedelta) ago; None stays None."""
    if age is None:
        return None
    if isinstance(age, int) and not isinstance(age, bool) and 0 <= age <= timedelta.max.days:
        age = timedelta(days=age)
    if not isinstance(age, timedelta) or age < timedelta(0):
        raise mismatch(InvalidOption, "a whole number of days, from 0 on, or a timedelta", age, argument)
    first = datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=1)  # nothing is older; all time zones can write it
    return now - age if age < now - first else first


def scrub(connection: Connection, *, vacuum: bool) -> bool | None:
    """Remove what deleted rows leave behind in the files of SQLite; return True if none of it is left in them.

    The rows were overwritten when they were deleted (`PRAGMA secure_delete`). Their words are in the full-text index
    until its parts are merged, and in the write-ahead log until a TRUNCATE checkpoint empties it, which an active
    reader can delay. Where SQLite moved rows from one page to another before, copies can be left in the first one,
    which only VACUUM removes: it rewrites the database. Servers decide themselves when to do this: None.
    """
    if connection.dialect.name != "sqlite":
        return None
    driver: Any = connection.connection.driver_connection
    try:
        merge_index(driver)
        if vacuum:
            driver.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        driver.rollback()
        return False  # there are other writers all the time; all rows are gone, and the call can be repeated
    is_empty = any(driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0 for _ in range(CHECKPOINTS))
    return is_empty and vacuum


def merge_index(driver: Any) -> None:
    """Merge all parts of the full-text index into one, in many transactions."""
    for (name,) in driver.execute("SELECT name FROM sqlite_master WHERE name = ?", [SEARCH_INDEX]).fetchall():
        pages = -MERGED_PAGES  # less than 0: of all parts, then go on with these
        while True:
            before = driver.total_changes
            driver.execute(f"INSERT INTO {name}({name}, rank) VALUES ('merge', ?)", [pages])  # noqa: S608 - a table of the schema
            driver.commit()
            if driver.total_changes - before < MERGED:
                break
            pages = MERGED_PAGES
