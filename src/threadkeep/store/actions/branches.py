"""Branches of a conversation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.db.queries.conversations import branches_of
from threadkeep.domain.stored import Branch
from threadkeep.store.actions import keys, numbers
from threadkeep.store.actions.changes import Change, Changed, change
from threadkeep.store.actions.entries import facts_at, lineage_of
from threadkeep.store.actions.opening import Opened, get
from threadkeep.store.attempts import Replayed
from threadkeep.store.contents import Contents
from threadkeep.store.place import Once, Place


def _fork(connection: Connection, place: Place, at: int | None, once: Once | None, contents: Contents) -> int:
    """Make a branch with the items up to and including a position; returns its number.

    Raises:
        NotFound, IdempotencyConflict: nothing was written.
    """
    now = datetime.now(UTC)
    number = numbers.fork(connection, place, at, now)
    outcome = keys.outcome_of(connection, place.scope.tenant, place.key, once)
    if outcome is not None:
        raise Replayed((get(connection, place.scope, "id", place.key, contents, outcome["branch"]), True))
    keys.record(connection, place.scope.tenant, place.key, once, now, kind="fork", branch=number)
    return number


def list_branches(connection: Connection, place: Place, after: int, limit: int) -> list[Branch]:
    """A page of branches, by number; branch 0 is the conversation as it began."""
    facts = facts_at(connection, place)
    found = []
    if after < 0:
        found.append(
            Branch(0, None, None, facts.head_position, is_active=facts.active_branch == 0, created_at=facts.created_at)
        )
    parameters = {"tenant": place.scope.tenant, "key": place.key, "after": max(after, 0), "limit": limit - len(found)}
    for row in connection.execute(branches_of(), parameters):
        is_active = facts.active_branch == row.number
        found.append(
            Branch(
                row.number,
                row.parent,
                row.fork_position,
                row.head_position,
                is_active=is_active,
                created_at=row.created_at,
            )
        )
    return found


def fork_and_open(
    connection: Connection, place: Place, at: int | None, once: Once | None, contents: Contents
) -> tuple[Opened, bool]:
    """Make a branch with the items up to and including a position; returns the conversation, on that branch.

    The second value says whether an earlier call with the same key had made it.

    Raises:
        NotFound, IdempotencyConflict: nothing was written.
    """
    number = _fork(connection, place, at, once, contents)
    return get(connection, place.scope, "id", place.key, contents, number), False


def activate(connection: Connection, place: Place, number: int, once: Once | None, contents: Contents) -> Changed:
    """Make a branch the one that is opened by default.

    Raises:
        NotFound: there is no such branch.
    """
    lineage_of(connection, replace(place, branch=number), facts_at(connection, place))
    wanted = Change(values={"active_branch": number}, method="set_active_branch", once=once)
    return change(connection, place, wanted, contents)
