"""``threadkeep branches``: the branches of a conversation."""

from __future__ import annotations

from typing import Final

from threadkeep.cli.options import ConversationId, Owner, on_target
from threadkeep.cli.output import Column, record
from threadkeep.cli.target import Target, iterate

COLUMNS: Final = (
    Column("number", is_number=True),
    Column("parent", is_number=True),
    Column("fork_position", is_number=True),
    Column("head", is_number=True),
    Column("active"),
    Column("created_at", is_time=True, no_wrap=True, drop_order=1),
)


@on_target()
def branches(target: Target, *, id: ConversationId, user: Owner = None) -> None:
    """List the branches of a conversation.

    The last position that a branch shares with its parent, and the position of its last item; -1 is before all items.
    """
    with target.store(user=user) as store:
        branches = list(iterate(store.get_conversation(id).branches))
    records = [
        record(branch, "number", "parent", "fork_position", "created_at")
        | {"head": branch.head_position, "active": branch.is_active}
        for branch in branches
    ]
    target.report_list("branches", records, COLUMNS, id=id)
