"""Previews: the beginning of the newest text that was said in a conversation, read from the rows near its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.lists import JSON_LENGTH, branches_at, newest_messages
from threadkeep.domain.searching import beginning_of, text_in
from threadkeep.store.lineage import Lineage, lineage_from, root_lineage
from threadkeep.store.refs import Scope

# How many positions before the end of a branch are looked at, and how many where there is no text among these
REACHES: Final = (64, 1_024)
MAX_RANGES: Final = 4  # of a conversation: parts of forks, and between removed items


def previews_of(connection: Connection, scope: Scope, rows: Sequence[LazyRow]) -> dict[int, str]:
    """Previews of the active branches of conversations, by key; in three statements at most."""
    lineages = _lineages(connection, scope, rows)
    rows = [row for row in rows if row.id in lineages]  # not those deleted, with their branches, since they were read
    found: dict[int, str] = {}
    for reach in REACHES:
        ranges = [
            (row.id, *one) for row in rows if row.id not in found
            for one in _last_ranges(lineages[row.id], row.active_branch, reach)
        ]  # fmt: skip
        if ranges:
            for key, json in connection.execute(newest_messages(scope.tenant, ranges)):
                if key not in found and (text := beginning_of(text_in("message", json, JSON_LENGTH))):
                    found[key] = text
        rows = [row for row in rows if row.id not in found and row.next_position > reach]
    return found


def _lineages(connection: Connection, scope: Scope, rows: Sequence[LazyRow]) -> Mapping[int, Lineage]:
    """The lineages of the active branches, by the keys of the conversations."""
    forks = [(row.id, row.active_branch) for row in rows if row.active_branch]
    found = {row.id: root_lineage(row) for row in rows if not row.active_branch}
    if forks:
        for branch in connection.execute(branches_at(scope.tenant, forks)):
            found[branch.conversation_id] = lineage_from(branch)
    return found


def _last_ranges(lineage: Lineage, branch: int, reach: int) -> Iterator[tuple[int, int, int]]:
    """The last positions of a branch, as (branch, after, up to), the newest first."""
    for number, after, upto in list(reversed(lineage.ranges(branch, -1, lineage.head)))[:MAX_RANGES]:
        low = max(after, upto - reach)
        yield number, low, upto
        reach -= upto - low
        if reach <= 0:
            return
