"""Statements on the change feed."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, bindparam, select

from threadkeep.db.functions import is_replica, key_now, snapshot_now
from threadkeep.db.models import changes
from threadkeep.db.queries.conversations import of_tenant

PRUNED: Final = 0  # the key of the row that says what was removed
_CHANGE: Final = tuple(changes.c[
    "id", "kind", "public_id", "branch", "from_position", "to_position", "created_at",
])  # fmt: skip


def _shown_in(snapshot: str) -> str:
    return f"pg_visible_in_snapshot(CAST(CAST(transaction_id AS text) AS xid8), CAST(:{snapshot} AS pg_snapshot))"


@cache
def feed_bounds() -> Select[Any]:
    """The newest key, what was removed up to which key and transaction, and the present.

    The present is a key; on PostgreSQL a snapshot as well, and whether the server is a replica (NULL elsewhere).
    """
    pruned = changes.alias("pruned")
    mark = [pruned.c.tenant_id == bindparam("tenant"), pruned.c.id == PRUNED]
    columns: list[ColumnElement[Any]] = [
        select(sa.func.max(changes.c.id)).where(*of_tenant(changes)).scalar_subquery().label("newest"),
        select(pruned.c.to_position).where(*mark).scalar_subquery().label("pruned_to"),
        select(pruned.c.transaction_id).where(*mark).scalar_subquery().label("pruned_transaction"),
        key_now().label("now"),
        snapshot_now().label("snapshot"),
        is_replica().label("is_replica"),
    ]
    return select(*columns)


@cache
def changes_after(*, upto: bool = False) -> Select[Any]:
    """Changes after a key, where `upto` up to another one."""
    where = [*of_tenant(changes), changes.c.id > bindparam("after")]
    if upto:
        where.append(changes.c.id <= bindparam("upto"))
    return select(*_CHANGE).where(*where).order_by(changes.c.id).limit(bindparam("limit"))


@cache
def changes_between() -> Select[Any]:
    """Changes that the snapshot `target` of PostgreSQL shows, and `base` does not; in transactions from `low` on.

    Its type for the numbers of transactions is only read from a text.
    """
    number = changes.c.transaction_id
    where = [*of_tenant(changes), changes.c.id > bindparam("after")]
    where += [number >= bindparam("low"), number < bindparam("high")]
    snapshots = sa.text(_shown_in("target")), sa.text(f"NOT {_shown_in('base')}")
    return select(*_CHANGE).where(*where, *snapshots).order_by(changes.c.id).limit(bindparam("limit"))


@cache
def keys_after() -> Select[Any]:
    """Keys of changes after one, up to another one."""
    where = [*of_tenant(changes), changes.c.id > bindparam("after"), changes.c.id <= bindparam("upto")]
    return select(changes.c.id).where(*where).order_by(changes.c.id).limit(bindparam("limit"))


@cache
def changes_within() -> Select[Any]:
    """How many changes there are after the key `floor`, and after `since`, up to `last`; and the last of them."""
    since = sa.func.sum(sa.case((changes.c.id > bindparam("since"), 1), else_=0))
    where = [*of_tenant(changes), changes.c.id > bindparam("floor"), changes.c.id <= bindparam("last")]
    newest = sa.func.max(changes.c.id).label("newest")
    return select(sa.func.count().label("found"), sa.func.coalesce(since, 0).label("found_since"), newest).where(*where)
