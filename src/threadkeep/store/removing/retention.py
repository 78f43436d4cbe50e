"""Removing stored content: a conversation, the content of a user, or content older than a given age.

Each use case is many small transactions. All of them can be repeated and continue where they were interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Column, Connection, Select, case, false, func, select
from sqlalchemy.exc import DBAPIError

from threadkeep.db import backends, functions, models, partitions, search
from threadkeep.db.models import conversations, response_bodies
from threadkeep.db.queries.conversations import DELETED
from threadkeep.domain.reports import Backlog, Due, ErasureReport, RetentionReport
from threadkeep.errors import Conflict, InvalidOption, shown
from threadkeep.store.media import collecting
from threadkeep.store.removing import purging, rules
from threadkeep.store.removing.batches import FOUND, Batches, Progress
from threadkeep.store.removing.purging import STATUSES, changes_before
from threadkeep.store.work import connections, erasures, idempotency, validation
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.refs import Scope
from threadkeep.store.work.transactions import Transactions

RECENT: Final = timedelta(hours=1)  # for which changes are kept in any case: somebody may be about to read them


# What is older is due, of raw bodies, conversations and changes; None: nothing is
Moments = tuple[datetime | None, datetime | None, datetime | None]


def limits_of(ages: Mapping[str, timedelta | int | None], *, whole_months: bool) -> Moments:
    """Return since when each of `raw_bodies`, `content` and `changes` is kept, given for how long.

    Raises:
        InvalidOption: none of them is given, or one is not a length of time.
    """
    now = datetime.now(UTC)
    bodies, content, changes = (validation.moment_before(now, name, age) for name, age in ages.items())
    if bodies is content is changes:  # None
        hint = "Pass raw_bodies=, content= or changes=, in days."
        raise InvalidOption("It is not set how long anything is kept.", hint=hint)
    if whole_months and bodies is not None:
        bodies = bodies.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return bodies, content, None if changes is None else min(changes, now - RECENT)


# ---------------------------------------------------------------------------------------------------------------------
# Removing stored content: a conversation, the content of a user, or content older than a given age

ORPHAN_AGE: Final = timedelta(days=1)  # no writer takes that long between its object and the row that names it


def check_blobs(transactions: Transactions, tenant: int, resources: StoreResources) -> None:
    """Refuse to go on if the objects of media could not be removed."""
    if resources.blobs is None and transactions.read(partial(collecting.has_objects, tenant=tenant)):
        raise InvalidOption("Media are kept in a blob store.", hint="Open the store with blobs=…, as for writing.")


def delete_conversation(
    transactions: Transactions, scope: Scope, resources: StoreResources, id: str, idempotency_key: str | None
) -> None:
    """See `Store.delete_conversation`."""
    once = idempotency.IdempotencyKey.of(idempotency_key, "delete_conversation", [id, scope.user])
    hide = partial(purging.hide_conversation, scope=scope, id=id, key=once)
    key = transactions.write(hide, is_repeatable=once is not None)
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
        collecting.remove_orphans(transactions, scope.tenant, resources.blobs, datetime.now(UTC) - ORPHAN_AGE)


def erase_user(
    transactions: Transactions, scope: Scope, resources: StoreResources, user_id: str,
    progress: Progress | None = None, *, vacuum: bool = True,
) -> ErasureReport:  # fmt: skip
    """Remove all content of a user, and keep anonymous figures; see `Store.erase_user`."""
    user = validation.identifier("user_id", user_id)
    if scope.user not in (None, user):
        raise validation.other_user(scope.user, user)
    removal = Batches(transactions, scope.tenant, resources, progress)
    check_blobs(transactions, scope.tenant, resources)
    note = partial(erasures.note_erasure, tenant=scope.tenant, user=user, now=datetime.now(UTC))
    transactions.write(note, is_repeatable=True)
    is_alone = removal.wait_for_writers(rules.counts_of_user(scope.tenant, user))
    removal.purge_found(conversations.c.user_id == user, lambda keys: removal.run(rules.attempts_of_others(user, keys)))
    counts = {rows.table: removal.run(rows) for rows in rules.rows_of_user(user)}
    after: str | None = ""
    while after is not None:
        unused, after = removal.find(rules.find_unused_keys, after=after, limit=FOUND)
        removal.change_these(rules.delete_unused_keys, unused, "idempotency keys")
    removal.forget_uploads(user, is_strict=True)
    removal.collect(is_strict=True)
    if transactions.commits_itself:
        is_scrubbed = transactions.read(partial(scrub, vacuum=vacuum))
    else:  # that the caller commits first
        is_scrubbed = None if transactions.read(backends.backend_of).is_server else False
    resources.configs.clear()
    resources.histories.clear()
    if not is_alone:
        problem = f"A transaction that began before the erasure of {shown(user)} is still open, and may write the name."
        raise Conflict(problem, hint="What is committed was removed. Call this again when it has ended.")
    return ErasureReport(removal.conversations, counts[models.usage_records], counts[models.items], is_scrubbed)


def scrub(connection: Connection, *, vacuum: bool) -> bool | None:
    """Remove what deleted rows leave behind in files; True if none of it is left in them, None if servers see to it."""
    return backends.backend_of(connection).scrub(connection, search.search_of(connection).merge_all, vacuum=vacuum)


def retain(
    transactions: Transactions, scope: Scope, resources: StoreResources, ages: Mapping[str, timedelta | int | None],
    progress: Progress | None, *, dry_run: bool, whole_months: bool,
) -> RetentionReport:  # fmt: skip
    """Remove raw bodies and conversations older than these `ages` by name; see `Store.retain`."""
    scope.check_all_users("What is retained is decided for all users", "retain()")
    bodies_before, content_before, changed_before = limits_of(ages, whole_months=whole_months)
    key = 0 if changed_before is None else functions.key_at(changed_before)  # of the first change that is kept
    old_bodies = _older(response_bodies.c.created_at, bodies_before, name="raw bodies", is_indexed=False)
    inactive = _older(conversations.c.last_activity_at, content_before)
    if dry_run:
        with_status = replace(inactive, which=inactive.which & conversations.c.status.in_(STATUSES))  # as its index has
        counts = [transactions.read(partial(one.count, tenant=scope.tenant)) for one in (old_bodies, with_status)]
        counts.append(transactions.read(partial(purging.count_changes, tenant=scope.tenant, before=key)))
        return RetentionReport(*counts)
    removal, bodies = Batches(transactions, scope.tenant, resources, progress), 0
    if bodies_before is not None:  # first, so that those of conversations that go count as a dry run counts them
        bodies = remove_months(transactions, scope.tenant, bodies_before, progress)
        bodies = removal.run(old_bodies, bodies)
    if content_before is not None:
        removal.purge_found(inactive.which)
        removal.collect()
    due = removal.conversations  # as a dry run counts them: those that were deleted before are not due
    if removal.has_hidden():
        _finish_deletions(transactions, scope, resources, removal)
    make_months(transactions)
    changes = removal.repeat(purging.prune_changes, "changes", before=key) if key else 0
    return RetentionReport(bodies, due, changes)


def _older(column: Column[Any], before: datetime | None, **kind: Any) -> rules.Rows:
    """The rows of a table that are older than a time; none without a time."""
    return rules.Rows(column.table, false() if before is None else column < before, **kind)


# ---------------------------------------------------------------------------------------------------------------------
# What retention has to remove, found out without reading all of it

COUNTED: Final = 10_000  # rows of a kind that are looked at


def find_backlog(
    transactions: Transactions, scope: Scope, ages: Mapping[str, timedelta | int | None], *, whole_months: bool
) -> Backlog:
    """See `Store.backlog`."""
    scope.check_all_users("What is retained is decided for all users", "backlog()")
    limits = limits_of(ages, whole_months=whole_months)
    return transactions.read(partial(_find, tenant=scope.tenant, limits=limits))


def _find(connection: Connection, tenant: int, limits: Moments) -> Backlog:
    """Indexes have the longest inactive conversations first, of each status, and the oldest changes."""
    talks, changed, (bodies_before, content_before, changed_before) = models.conversations.c, models.changes.c, limits
    of_status = {
        status: select(talks.last_activity_at).where(talks.tenant_id == tenant, talks.status == status)
        for status in STATUSES
    }
    inactive = changes = None
    if content_before is not None:
        is_due, order = talks.last_activity_at < content_before, talks.last_activity_at
        inactive = _due(connection, *(one.where(is_due).order_by(order) for one in of_status.values()))
    if changed_before is not None:
        are_old = changes_before(connection, tenant, functions.key_at(changed_before))
        old = select(changed.created_at).where(*are_old).order_by(changed.id)
        changes = _due(connection, old)
    bodies = None if bodies_before is None else _bodies(connection, tenant, bodies_before)
    return Backlog(bodies, inactive, changes, _due(connection, of_status[DELETED]).count)


def _due(connection: Connection, *kinds: Select[Any]) -> Due:
    """Count rows, of each statement up to a limit; the least time in their only column is that of the oldest."""
    parts = [rows.limit(COUNTED).subquery() for rows in kinds]
    counts = [connection.execute(select(func.count(), func.min(part.c[0]))).one() for part in parts]
    times = [oldest for _, oldest in counts if oldest is not None]
    return Due(
        sum(count for count, _ in counts), max(count for count, _ in counts) >= COUNTED, min(times, default=None)
    )


def _bodies(connection: Connection, tenant: int, before: datetime) -> Due:
    """Partitions of months have old ones only; elsewhere, those with the lowest keys are likely to be the oldest."""
    table = models.response_bodies.c
    rows = select(table.created_at).where(table.tenant_id == tenant)
    if partitions.find_months(connection) is not None:
        return _due(connection, rows.where(table.created_at < before))
    some = rows.order_by(table.conversation_id, table.number).limit(COUNTED).subquery()
    is_due = some.c.created_at < before
    statement = select(func.count(), func.count(case((is_due, 1))), func.min(some.c.created_at))
    looked_at, count, oldest = connection.execute(statement).one()
    return Due(count, looked_at >= COUNTED, oldest if count else None)


# ---------------------------------------------------------------------------------------------------------------------
# Months of raw bodies whose partitions go as a whole, and those that come, where PostgreSQL has partitions of months
#
# Dropping a partition locks all raw bodies for some milliseconds. It waits for that lock only shortly, because appends
# wait behind it, and is tried again a little later, or by the next call.

LOG: Final = logging.getLogger("threadkeep")

PAUSES: Final = (0.2, 0.5, 1.0, 2.0, None)  # seconds after each attempt; None: it was the last one

T = TypeVar("T")


class _NotNow(Exception):
    """A statement did not get its lock in time, or was refused; nothing is changed."""


def make_months(transactions: Transactions) -> None:
    """Make the partitions of this month and the next ones; those that cannot be made are made by a later call."""
    if not transactions.commits_itself:
        return
    for month, obstacle in transactions.read(_missing):
        if obstacle is not None:
            LOG.warning("The partition %s is missing, and %s.", month.name, obstacle)
        elif _patiently(transactions, partial(partitions.create_month, month=month)) is _NotNow:
            LOG.warning("The partition %s could not be made; rows of this month go into the default one.", month.name)


def remove_months(transactions: Transactions, tenant: int, before: datetime, progress: Progress | None) -> int:
    """Remove raw bodies whose months are over before a time and have none of another tenant; return how many."""
    if not transactions.commits_itself:  # in a transaction of the caller, nothing is locked that others need
        return 0
    found = (
        transactions.read(lambda connection: partitions.may_change(connection) and partitions.find_months(connection))
        or ()
    )
    removed = 0
    for month in found:
        if month.ends_at <= before:
            removed += _remove_month(transactions, tenant, month)
            if progress is not None:
                progress("raw bodies", removed)
    return removed


def _missing(connection: Connection) -> list[tuple[partitions.Month, str | None]]:
    """The months that have no partition, each with what keeps it from being made, found without a lock."""
    missing = partitions.missing_months(connection)
    if missing and not partitions.may_change(connection):
        return [(month, f"only the owner of {partitions.BODIES} makes it") for month in missing]
    if missing and partitions.is_default_large(connection):
        large = f"{partitions.DEFAULT} is so large that appends would wait while PostgreSQL looks through it"
        return [(month, f"{large}; run `threadkeep db upgrade` when there are few") for month in missing]
    taken = f"{partitions.DEFAULT} has rows of this month, which therefore gets none"
    return [(month, taken if partitions.is_in_default(connection, month) else None) for month in missing]


def _remove_month(transactions: Transactions, tenant: int, month: partitions.Month) -> int:
    """Empty the partition of a month, then drop it, if only this tenant has rows there; return how many there were."""
    count = 0
    tenants = transactions.read(partial(partitions.tenants_in, month=month))
    if not tenants <= {tenant}:
        return 0
    if tenants:
        count = transactions.read(partial(partitions.count_bodies, month=month))
        if _patiently(transactions, partial(partitions.empty_month, month=month, tenant=tenant)) is not True:
            return 0  # its rows are removed one by one
    if _patiently(transactions, partial(partitions.drop_month, month=month)) is _NotNow:
        LOG.info("The partition %s is empty, and could not be dropped yet.", month.name)
    return count


def _patiently(transactions: Transactions, work: Callable[[Connection], T]) -> T | type[_NotNow]:
    """Do work that locks a table, trying a few times; return `_NotNow` if it never got the lock."""

    def impatient(connection: Connection) -> T:
        try:
            return work(connection)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            raise _NotNow from error

    for pause in PAUSES:
        try:
            return transactions.write(impatient)
        except _NotNow:
            if pause is not None:
                connections.sleep(pause)
    return _NotNow
