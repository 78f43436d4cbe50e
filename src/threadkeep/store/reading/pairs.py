"""Pairs: pages of two branches, of one conversation or two, that are compared with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.queries.lists import branches_at
from threadkeep.domain.stored import Branch
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.items import ItemWindow
from threadkeep.store.reading.overviews import ThreadPage, plain_page
from threadkeep.store.work import refs
from threadkeep.store.work.handle import Handle


class ComparedPage(NamedTuple):
    """A page without annotations and totals, its lineage as branches, and the options of responses by number."""

    conversation: Conversation
    page: ThreadPage
    settings: Mapping[int, Mapping[str, Any]]


def read_compared(
    pair: Sequence[tuple[Conversation, int | None]], start: int | None, limit: int
) -> tuple[list[ComparedPage], int]:
    """Return pages of two branches from a position on, in one transaction, and that position.

    By default, two branches of one conversation begin with the last item that they share. Conversations are open on
    their first branches; a branch may be None, the active one.

    Raises:
        NotFound: there is no such branch.
    """
    handles = [conversation.handle for conversation, _ in pair]
    found = [
        handle.ref.on(handle.conversation.row.active_branch if branch is None else branch)
        for handle, (_, branch) in zip(handles, pair, strict=True)
    ]
    tenant, configs = found[0].scope.tenant, handles[0].resources.configs

    def read(connection: Connection) -> tuple[list[ComparedPage], int]:
        lineages = _lineages(connection, handles, found)
        first = start if start is not None else _shared_upto(found, lineages)
        window = ItemWindow(first - 1 if first else None, limit=limit + 1, media="reference", is_joined=True)
        pages = []
        for (conversation, _), ref, lineage in zip(pair, found, lineages, strict=True):
            page = plain_page(connection, ref, lineage, window, first)
            hashes = {one.number: one.config_hash for one in page.responses}
            known = configs.settings_by_hash(connection, tenant, {*hashes.values()})
            page = page._replace(branches=_chain(conversation, ref, lineage))
            pages.append(ComparedPage(conversation, page, {number: known[one] for number, one in hashes.items()}))
        return pages, first

    return handles[0].transactions.read_any(read)


def _lineages(connection: Connection, handles: Sequence[Handle], found: Sequence[refs.BranchRef]) -> list[refs.Lineage]:
    """The lineages of branches; all forks are read in one statement."""
    forks, known = [(ref.key, ref.branch) for ref in found if ref.branch], {}
    if forks:
        rows = connection.execute(branches_at(found[0].scope.tenant, forks))
        known = {(row.conversation_id, row.number): refs.lineage_from(row) for row in rows}
    for ref in found:
        if ref.branch and (ref.key, ref.branch) not in known:
            raise refs.branch_not_found(ref)
    return [
        known[ref.key, ref.branch] if ref.branch else refs.root_lineage(handle.conversation.row)
        for handle, ref in zip(handles, found, strict=True)
    ]


def _shared_upto(found: Sequence[refs.BranchRef], lineages: Sequence[refs.Lineage]) -> int:
    """The last position that two branches of one conversation share; 0 without any."""
    if found[0].key != found[1].key:
        return 0
    ranges = [lineage.ranges(ref.branch, -1, lineage.head) for ref, lineage in zip(found, lineages, strict=True)]
    shared = 0
    for one, other in zip(*ranges, strict=False):
        if one[:2] == other[:2]:
            shared = min(one[2], other[2])
        if one != other:
            break
    return shared


def _chain(conversation: Conversation, ref: refs.BranchRef, lineage: refs.Lineage) -> list[Branch]:
    """The branches that a branch consists of."""
    chain: list[Branch] = []
    parent, created_at = None, conversation.handle.conversation.row.created_at
    for number, fork, last in lineage.ranges(ref.branch, -1, lineage.head):
        if number != parent:
            place = (number, parent, None if parent is None else fork, last)
            chain.append(Branch(*place, is_active=False, created_at=created_at))
        parent = number
    return chain
