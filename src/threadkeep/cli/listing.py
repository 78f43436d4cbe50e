"""``threadkeep ls``: which conversations there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from threadkeep.cli.output import Column, iso, note, print_json, print_table
from threadkeep.cli.place import AsJson, Labels, Tenant, Url, labels_of, opened, place_of

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.store.conversation import Conversation

COLUMNS: Final = (
    Column("id", is_kept=True),
    Column("last_activity"),
    Column("status"),
    Column("user"),
    Column("model"),
    Column("title"),
    Column("labels"),
)


def ls(
    context: typer.Context,
    *,
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Only conversations of this user.")] = None,
    label: Labels = None,
    status: Annotated[
        Literal["active", "archived", "all"], typer.Option("--status", help="Only conversations of this status.")
    ] = "active",
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option("--after", metavar="NEXT", help="Go on where an earlier page ended.")
    ] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List conversations, newest activity first."""
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place) as store:
        page = store.list_conversations(
            user_id=user,
            labels=labels_of(label),
            status=None if status == "all" else status,
            after=after,
            limit=limit,
        )
    if place.is_json:
        print_json({"conversations": [facts_of(found) for found in page], "next": page.next})
        return
    rows = [
        (
            found.id,
            found.last_activity_at,
            found.status,
            found.user_id,
            found.model,
            found.title,
            " ".join(f"{key}={value}" for key, value in sorted(found.labels.items())) or None,
        )
        for found in page
    ]
    print_table(COLUMNS, rows)
    if not rows:
        note(f"threadkeep: no such conversations in {place.shown}")
    elif page.next is not None:
        note(f"threadkeep: there are more: --after {page.next}")


def facts_of(conversation: Conversation) -> JsonObject:
    """What is known of a conversation without reading its items, as JSON."""
    return {
        "id": conversation.id,
        "external_id": conversation.external_id,
        "user_id": conversation.user_id,
        "title": conversation.title,
        "labels": conversation.labels,
        "status": conversation.status,
        "model": conversation.model,
        "created_at": iso(conversation.created_at),
        "last_activity_at": iso(conversation.last_activity_at),
    }
