"""``threadkeep branches``: how a conversation went on in several ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from threadkeep.cli.output import Column, iso, print_json, print_table
from threadkeep.cli.pages import every
from threadkeep.cli.place import AsJson, Id, OfUser, Tenant, Url, opened, place_of

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.stored import Branch

COLUMNS: Final = (
    Column("number", is_number=True),
    Column("parent", is_number=True),
    Column("fork_position", is_number=True),
    Column("head", is_number=True),
    Column("active"),
    Column("created_at", is_kept=True, exit=1),
)


def branches(
    context: typer.Context,
    *,
    id: Id,
    user: OfUser = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List the branches of a conversation.

    The last position that a branch shares with its parent, and the position of its last item; -1 is before all items.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place, user=user) as store:
        found = list(every(store.get_conversation(id).branches))
    if place.is_json:
        print_json({"id": id, "branches": [facts_of(one) for one in found]})
        return
    print_table(
        COLUMNS,
        [
            (
                one.number,
                one.parent,
                one.fork_position,
                one.head_position,
                "yes" if one.is_active else "no",
                one.created_at,
            )
            for one in found
        ],
    )


def facts_of(branch: Branch) -> JsonObject:
    """What is known of a branch, as JSON."""
    return {
        "number": branch.number,
        "parent": branch.parent,
        "fork_position": branch.fork_position,
        "head": branch.head_position,
        "active": branch.is_active,
        "created_at": iso(branch.created_at),
    }
