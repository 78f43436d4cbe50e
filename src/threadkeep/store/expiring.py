"""Months of raw bodies whose partitions go as a whole, and those that come, where PostgreSQL has partitions of months.

Dropping a partition locks all raw bodies for some milliseconds. It waits for that lock only shortly, because appends
wait behind it, and is tried again a little later, or by the next call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from threadkeep.db import months
from threadkeep.db.partitions import missing_months
from threadkeep.store.batches import Progress
from threadkeep.store.connections import sleep
from threadkeep.store.transactions import Transactions

LOG: Final = logging.getLogger("threadkeep")

PAUSES: Final = (0.2, 0.5, 1.0, 2.0, None)  # seconds after each attempt; None: it was the last one

# Why a partition is not made
_FOREIGN: Final = f"only the owner of {months.BODIES} makes it"
_LARGE: Final = (
    f"{months.DEFAULT} is so large that appends would wait while PostgreSQL looks through it; "
    "run `threadkeep db upgrade` when there are few"
)
_IN_DEFAULT: Final = f"{months.DEFAULT} has rows of this month, which therefore gets none"

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
        elif _patiently(transactions, partial(months.create_month, month=month)) is _NotNow:
            LOG.warning("The partition %s could not be made; rows of this month go into the default one.", month.name)


def remove_months(transactions: Transactions, tenant: int, before: datetime, progress: Progress | None) -> int:
    """Remove raw bodies whose months are over before a time and have none of another tenant; return how many."""
    if not transactions.commits_itself:  # in a transaction of the caller, nothing is locked that others need
        return 0
    found = transactions.read(lambda connection: _may(connection) and months.find_months(connection)) or ()
    removed = 0
    for month in found:
        if month.ends_at <= before:
            removed += _remove(transactions, tenant, month)
            if progress is not None:
                progress("raw bodies", removed)
    return removed


def _missing(connection: Connection) -> list[tuple[months.Month, str | None]]:
    """The months that have no partition, each with what keeps it from being made, found without a lock."""
    return [(month, _obstacle(connection, month)) for month in missing_months(connection)]


def _obstacle(connection: Connection, month: months.Month) -> str | None:
    if not _may(connection):
        return _FOREIGN
    if months.is_default_large(connection):
        return _LARGE
    return _IN_DEFAULT if months.is_in_default(connection, month) else None


def _may(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql" and months.may_change(connection)


def _remove(transactions: Transactions, tenant: int, month: months.Month) -> int:
    """Empty the partition of a month, then drop it, if only this tenant has rows there; return how many there were."""
    count = 0
    tenants = transactions.read(partial(months.tenants_in, month=month))
    if not tenants <= {tenant}:
        return 0
    if tenants:
        count = transactions.read(partial(months.count_bodies, month=month))
        if _patiently(transactions, partial(months.empty_month, month=month, tenant=tenant)) is not True:
            return 0  # its rows are removed one by one
    if _patiently(transactions, partial(months.drop_month, month=month)) is _NotNow:
        LOG.info("The partition %s is empty, and could not be dropped yet.", month.name)
    return count


def _patiently(transactions: Transactions, work: Callable[[Connection], T]) -> T | type[_NotNow]:
    """Do work that locks a table, trying a few times; return `_NotNow` if it never got the lock."""
    for pause in PAUSES:
        try:
            return transactions.write(partial(_impatient, work))
        except _NotNow:
            if pause is not None:
                sleep(pause)
    return _NotNow


def _impatient(work: Callable[[Connection], T], connection: Connection) -> T:
    try:
        return work(connection)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        raise _NotNow from error
