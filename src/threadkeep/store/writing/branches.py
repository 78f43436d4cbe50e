"""Branches of a conversation: forking, opening and listing them; nothing here loads items as objects."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.db.queries.conversations import branches_of, unused_branch
from threadkeep.domain.stored import Branch, Page
from threadkeep.errors import InvalidOption
from threadkeep.store.reading.history import reopen_conversation
from threadkeep.store.work import idempotency, positions, refs, validation
from threadkeep.store.work import refs as lineages
from threadkeep.store.work.handle import Handle


def fork(
    handle: Handle, at: int | str | None, before: int | str | None, key: str | None
) -> tuple[lineages.ConversationState, bool]:
    """Make a branch with the items up to and including an item, or before it; returns it, on that branch.

    The second value says whether an earlier call with the same key had made it.
    """
    ref, configs, is_before = handle.ref, handle.resources.configs, before is not None
    if is_before and at is not None:
        raise InvalidOption("cannot be given together with at.", argument="before")
    name, given = ("before", before) if is_before else ("at", at)
    item = None if given is None else validation.item_argument(name, given)
    key_ = idempotency.IdempotencyKey.of(key, "fork", [ref.branch, item, *([name] if is_before else [])])

    def write(connection: Connection) -> tuple[lineages.ConversationState, bool]:
        def opened(number: int) -> lineages.ConversationState:
            return reopen_conversation(connection, ref, configs, number)

        now, position = datetime.now(UTC), item
        if isinstance(position, str):
            position = refs.position_of_id(connection, ref, lineages.lock_lineage(connection, ref), position)
        number = positions.fork(connection, ref, position, now, is_before=is_before)
        idempotency.idempotent(connection, ref, key_, lambda outcome: (opened(outcome["branch"]), True))
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, key_, now, kind="fork", branch=number)
        return opened(number), False

    result = handle.transactions.write(write, is_repeatable=key_ is not None)
    handle.after_write()
    return result


def open_branch(handle: Handle, number: int) -> lineages.ConversationState:
    """The conversation, on another branch."""
    ref, configs, branch = handle.ref, handle.resources.configs, validation.whole_number("number", number)
    return handle.transactions.read_any(lambda connection: reopen_conversation(connection, ref, configs, branch))


def find_unused(handle: Handle, at: int) -> lineages.ConversationState | None:
    """The conversation on a branch that was forked off this one at a position, and has no items; None for none.

    It may have had some that were removed, or answers without output, but has no response in progress.
    """
    ref, configs = handle.ref, handle.resources.configs

    def read(connection: Connection) -> lineages.ConversationState | None:
        number: int | None = connection.execute(unused_branch(), ref.parameters(parent=ref.branch, at=at)).scalar()
        return None if number is None else reopen_conversation(connection, ref, configs, number)

    return handle.transactions.read(read)


def list_branches(handle: Handle, after: int | str | None, limit: int) -> Page[Branch]:
    """A page of branches, by number; branch 0 is the conversation as it began."""
    ref, start, size = handle.ref, validation.cursor_position(after), validation.page_size(limit)
    last = -1 if start is None else validation.whole_number("after", start)

    def read(connection: Connection) -> list[Branch]:
        row = lineages.get_row(connection, ref)
        active = row.active_branch
        page = []
        if last < 0:
            page.append(Branch(0, None, None, row.head_position, is_active=active == 0, created_at=row.created_at))
        limit = size + 1 - len(page)
        for branch in connection.execute(branches_of(), ref.parameters(after=max(last, 0), limit=limit)):
            place = (branch.number, branch.parent, branch.fork_position, branch.head_position)
            page.append(Branch(*place, is_active=active == branch.number, created_at=branch.created_at))
        return page

    return Page.of(handle.transactions.read_any(read), size, lambda branch: str(branch.number))
