"""Work in many small transactions: purging, erasing a user, keeping things only so long.

Each piece of work is a generator of plans: it yields what is to be run next and is sent the result, so that the sync
and the async store follow the same steps. Every step can be repeated, and what was interrupted goes on where it ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from threadkeep.domain.objects import shown
from threadkeep.errors import Conflict, InvalidOption
from threadkeep.store.actions.erasing import (
    anonymize_items,
    anonymize_ledger,
    clear_ledger,
    collect_contents,
    count_bodies_before,
    count_quiet_since,
    drop_bodies_before,
    forget_creations,
    hide_of_user,
    hide_quiet,
)
from threadkeep.store.actions.purging import collect_blobs, deleted_keys, purge_batch
from threadkeep.store.actions.streams import Endings
from threadkeep.store.actions.tenants import delete_tenant, hide_tenant
from threadkeep.store.plans import Plan, Steps

AT_ONCE: Final = 100  # conversations that are looked up at once
ROUNDS: Final = 10  # attempts to remove a tenant for which somebody makes conversations
CHECKPOINTS: Final = 20  # attempts to empty SQLite's write-ahead log, which readers may be using

# Told what is being done and how much of it has been done
Progress = Callable[[str, int], None]


def no_progress(what: str, count: int) -> None:
    """For those who don't want to know."""


@dataclass(frozen=True, slots=True)
class Erased:
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
class Retained:
    """What was, or with `dry_run` would be, removed because it was old.

    Attributes:
        raw_bodies: raw bodies of provider answers.
        conversations: conversations with all their content.
    """

    raw_bodies: int
    conversations: int


def _write(action: Callable[..., Any], *arguments: Any) -> Plan[Any]:
    return Plan(action, arguments, is_write=True, is_keyed=True)


def purging(tenant: int, key: int, endings: Endings) -> Steps[None]:
    """Remove the rows of a deleted conversation."""
    while (yield _write(purge_batch, tenant, key, endings)):
        pass


def collecting(tenant: int) -> Steps[None]:
    """Remove media that nothing points at any more."""
    while (yield _write(collect_blobs, tenant)):
        pass


def purging_deleted(tenant: int, endings: Endings) -> Steps[int]:
    """Remove the rows of deleted conversations that an interrupted deletion left; how many there were."""
    count = 0
    while keys := (yield Plan(deleted_keys, (tenant, AT_ONCE))):
        for key in keys:
            yield from purging(tenant, key, endings)
        count += len(keys)
    yield from collecting(tenant)
    return count


def deleting_tenant(tenant: int, endings: Endings) -> Steps[None]:
    """Remove a tenant with everything; again from the start where somebody makes conversations meanwhile.

    Raises:
        Conflict: somebody does not stop.
    """
    for _ in range(ROUNDS):
        yield _write(hide_tenant, tenant)
        yield from purging_deleted(tenant, endings)
        try:
            yield _write(delete_tenant, tenant)
        except IntegrityError:  # a conversation needs its options
            continue
        return
    raise Conflict("Somebody goes on making conversations of this tenant. Delete it again when nobody does.")


def erasing(tenant: int, user: str, progress: Progress, *, scrubs: bool, endings: Endings) -> Steps[Erased]:
    """Remove every trace of a user's content, and keep the figures without a name."""
    count = 0
    while keys := (yield _write(hide_of_user, tenant, user, AT_ONCE)):
        while (yield _write(clear_ledger, tenant, user, keys)):
            pass
        for key in keys:
            yield from purging(tenant, key, endings)
            count += 1
            progress("conversations", count)
    attempts = yield from _repeated(anonymize_ledger, "attempts", progress, tenant, user)
    items = yield from _repeated(anonymize_items, "items", progress, tenant, user)
    after: str | None = ""
    while after is not None:
        _, after = yield _write(forget_creations, tenant, after)
    yield from _repeated(collect_blobs, "media", progress, tenant)
    yield from _repeated(collect_contents, "options and tools", progress, tenant)
    return Erased(count, attempts, items, (yield Plan(scrub)) if scrubs else None)


def retaining(
    tenant: int,
    raw_bodies: timedelta | None,
    content: timedelta | None,
    progress: Progress,
    *,
    is_dry: bool,
    endings: Endings,
) -> Steps[Retained]:
    """Remove raw bodies and conversations that are older than they are to be kept."""
    now = datetime.now(UTC)
    bodies = quiet = 0
    if raw_bodies is not None:  # first, so that those of conversations that go count as a dry run counts them
        bodies = yield from _dropping_bodies(tenant, _before(now, raw_bodies), progress, is_dry=is_dry)
    if content is not None:
        moment = _before(now, content)
        quiet = yield from _dropping_content(tenant, moment, progress, is_dry=is_dry, endings=endings)
    return Retained(bodies, quiet)


def _before(now: datetime, age: timedelta) -> datetime:
    """The moment so long ago; nothing is older than the first day that can be written."""
    first = datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=1)  # clocks of other time zones can write it, too
    return now - age if age < now - first else first


def _dropping_content(
    tenant: int, moment: datetime, progress: Progress, *, is_dry: bool, endings: Endings
) -> Steps[int]:
    if is_dry:
        count: int = yield Plan(count_quiet_since, (tenant, moment))
        return count
    done = 0
    while keys := (yield _write(hide_quiet, tenant, moment, AT_ONCE)):
        for key in keys:
            yield from purging(tenant, key, endings)
            done += 1
            progress("conversations", done)
    yield from _repeated(collect_blobs, "media", progress, tenant)
    yield from _repeated(collect_contents, "options and tools", progress, tenant)
    return done


def _dropping_bodies(tenant: int, moment: datetime, progress: Progress, *, is_dry: bool) -> Steps[int]:
    if is_dry:
        count: int = yield Plan(count_bodies_before, (tenant, moment))
        return count
    done, after = 0, (-1, -1)
    while after is not None:
        count, after = yield _write(drop_bodies_before, tenant, moment, after)
        done += count
        progress("raw bodies", done)
    return done


def _repeated(action: Callable[..., Any], what: str, progress: Progress, *arguments: Any) -> Steps[int]:
    total = 0
    while count := (yield _write(action, *arguments)):
        total += count
        progress(what, total)
    return total


def scrub(connection: Connection) -> bool | None:
    """Overwrite what was deleted in the files of SQLite; True when nothing of it is left in them.

    VACUUM writes the database anew, a TRUNCATE checkpoint empties the write-ahead log; a reader that is still at work
    can hold the latter up. Servers do this in a time of their own: None.
    """
    if connection.dialect.name != "sqlite":
        return None
    driver: Any = connection.connection.driver_connection
    indexes = driver.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%USING fts5%'").fetchall()
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


def kept_for(name: str, value: object) -> timedelta | None:
    """How long something is kept: a timedelta, or a number of days.

    Raises:
        InvalidOption: it is neither, or negative.
    """
    if value is None or (isinstance(value, timedelta) and value >= timedelta(0)):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= timedelta.max.days:
        return timedelta(days=value)
    raise InvalidOption(f"{name} is a number of days or a timedelta, not {shown(value)}.")
