"""Removing stored content: a conversation, the content of a user, or content older than a given age.

Each use case is many small transactions. All of them can be repeated and continue where they were interrupted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.base import SEARCH_INDEX
from threadkeep.db.fts_levels import lower_levels
from threadkeep.db.tables import conversations
from threadkeep.errors import InvalidOption
from threadkeep.store import anonymizing, api_keys, expiring, purging
from threadkeep.store.batches import FOUND, Batches, Progress
from threadkeep.store.handle import StoreResources
from threadkeep.store.idempotency import IdempotencyKey
from threadkeep.store.media import collecting
from threadkeep.store.media.orphans import remove_orphans
from threadkeep.store.pacing import Change, Find
from threadkeep.store.refs import Scope
from threadkeep.store.retaining import limits_of
from threadkeep.store.search.index import log_broken_index
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import identifier, other_user

CHECKPOINTS: Final = 20  # attempts to empty SQLite's write-ahead log, which readers may be using
MERGED_PAGES: Final = 500  # of the full-text index of SQLite, in one transaction
MERGED: Final = 2  # changes of a merge that has merged something

_BROKEN: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)  # what a full-text index says that lacks something

ORPHAN_AGE: Final = timedelta(days=1)  # no writer takes that long between its object and the row that names it


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


# What names a user in conversations of others and elsewhere: how it is found and changed, and what it is
_BESIDE: Final[tuple[tuple[Find, Change, str], ...]] = (
    (anonymizing.find_feedback, anonymizing.delete_feedback, "feedback"),
    (anonymizing.find_reads, anonymizing.delete_reads, "marks"),
    (api_keys.find_keys, api_keys.delete_keys, "keys"),
    (anonymizing.find_approvals, anonymizing.anonymize_approvals, "decisions"),
)


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
    removal = Batches(transactions, scope.tenant, resources)
    removal.purge([key])
    removal.forget_uploads()


def purge_deleted(transactions: Transactions, scope: Scope, resources: StoreResources) -> int:
    """Remove rows left behind by interrupted deletions; return the number of conversations."""
    removal = Batches(transactions, scope.tenant, resources)
    _finish_deletions(transactions, scope, resources, removal)
    return removal.conversations


def _finish_deletions(transactions: Transactions, scope: Scope, resources: StoreResources, removal: Batches) -> None:
    """Remove what interrupted deletions have left, and objects that killed writers have left."""
    removal.purge_hidden()
    removal.collect_media()
    if resources.blobs is not None and transactions.commits_itself:
        remove_orphans(transactions, scope.tenant, resources.blobs, datetime.now(UTC) - ORPHAN_AGE)


def erase_user(
    transactions: Transactions, scope: Scope, resources: StoreResources, user_id: str,
    progress: Progress | None = None, *, vacuum: bool = True,
) -> ErasureReport:  # fmt: skip
    """Remove all content of a user, and keep anonymous figures; see `Store.erase_user`."""
    user = identifier("user_id", user_id)
    if scope.user not in (None, user):
        raise other_user(scope.user, user)
    removal = Batches(transactions, scope.tenant, resources, progress)
    check_blobs(transactions, scope.tenant, resources)
    removal.purge_found(conversations.c.user_id == user, partial(_clear_attempts, removal, user))
    attempts = removal.change(partial(anonymizing.find_attempts, user=user), anonymizing.anonymize_attempts, "attempts")
    find = partial(anonymizing.find_items, user=user)
    items = removal.change_behind(find, partial(anonymizing.anonymize_items, user=user), "items")
    for find_rows, change, what in _BESIDE:
        removal.change(partial(find_rows, user=user), partial(change, user=user), what)
    after: str | None = ""
    while after is not None:
        unused, after = removal.find(anonymizing.find_keys, after=after, limit=FOUND)
        removal.change_these(anonymizing.delete_keys, unused, "idempotency keys")
    removal.forget_uploads(user, is_strict=True)
    removal.collect(is_strict=True)
    is_scrubbed = transactions.read(partial(scrub, vacuum=vacuum)) if transactions.commits_itself else None
    resources.configs.clear()
    resources.histories.clear()
    return ErasureReport(removal.conversations, attempts, items, is_scrubbed)


def _clear_attempts(removal: Batches, user: str, keys: list[int]) -> None:
    """Clear provider data of attempts in conversations from before they were the user's."""
    find = partial(anonymizing.find_attempts_of_others, user=user, conversations=keys)
    removal.change(find, anonymizing.clear_attempts, "attempts of others")


def retain(
    transactions: Transactions,
    scope: Scope,
    resources: StoreResources,
    ages: Mapping[str, timedelta | int | None],
    progress: Progress | None,
    *,
    dry_run: bool,
    whole_months: bool,
) -> RetentionReport:
    """Remove raw bodies and conversations older than these `ages` by name; see `Store.retain`."""
    scope.check_all_users("What is retained is decided for all users", "retain()")
    limits = limits_of(ages, whole_months=whole_months)
    bodies_before, content_before, keys_before = limits.bodies, limits.content, limits.key
    if dry_run:
        return RetentionReport(
            transactions.read(partial(purging.count_bodies, tenant=scope.tenant, before=bodies_before)),
            transactions.read(partial(purging.count_inactive, tenant=scope.tenant, before=content_before)),
            transactions.read(partial(purging.count_changes, tenant=scope.tenant, before=keys_before)),
        )
    removal, bodies = Batches(transactions, scope.tenant, resources, progress), 0
    if bodies_before is not None:  # first, so that those of conversations that go count as a dry run counts them
        bodies = expiring.remove_months(transactions, scope.tenant, bodies_before, progress)
        find = partial(purging.find_bodies, before=bodies_before)
        remove = partial(purging.delete_bodies, before=bodies_before)
        bodies = removal.change_behind(find, remove, "raw bodies", bodies)
    if content_before is not None:
        removal.purge_found(conversations.c.last_activity_at < content_before)
        removal.collect()
    due = removal.conversations  # as a dry run counts them: those that were deleted before are not due
    if removal.has_hidden():
        _finish_deletions(transactions, scope, resources, removal)
    expiring.make_months(transactions)
    changes = removal.repeat(purging.prune_changes, "changes", before=keys_before) if keys_before else 0
    return RetentionReport(bodies, due, changes)


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
        is_merged = _try_to_merge(driver)
        if vacuum:
            driver.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        driver.rollback()
        return False  # there are other writers all the time; all rows are gone, and the call can be repeated
    is_empty = any(driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0 for _ in range(CHECKPOINTS))
    return is_empty and is_merged and vacuum


def _try_to_merge(driver: Any) -> bool:
    """Merge the full-text index; return False if it is broken, and has to be rebuilt."""
    try:
        merge_index(driver)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in _BROKEN:
            raise
        driver.rollback()
        log_broken_index(error)
        return False
    return True


def merge_index(driver: Any) -> None:
    """Merge all parts of the full-text index into one, in many transactions."""
    for (name,) in driver.execute("SELECT name FROM sqlite_master WHERE name = ?", [SEARCH_INDEX]).fetchall():
        pages = -MERGED_PAGES  # less than 0: of all parts, then go on with these
        while True:
            before = driver.total_changes
            driver.execute(f"INSERT INTO {name}({name}, rank) VALUES ('merge', ?)", [pages])  # noqa: S608 - a table of the schema
            is_done = driver.total_changes - before < MERGED
            if pages < 0:
                lower_levels(driver)
            driver.commit()
            if is_done:
                break
            pages = MERGED_PAGES
