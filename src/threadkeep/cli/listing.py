"""``threadkeep ls``: which conversations there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from threadkeep.cli.output import Cell, Column, iso, note, print_json, print_table
from threadkeep.cli.place import AsJson, Labels, Tenant, Url, labels_of, opened, place_of

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.store.conversation import Conversation

COLUMNS: Final = (
    Column("id", is_kept=True),
    Column("last_activity", is_kept=True, exit=6),
    Column("status", exit=3),
    Column("user", exit=4),
    Column("model", exit=2),
    Column("title", exit=5),
    Column("labels", exit=1),
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
    external_id: Annotated[
        str | None, typer.Option("--external-id", metavar="ID", help="Only the one with this id of the application.")
    ] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List conversations, newest activity first."""
    place = place_of(context, url, tenant, is_json=as_json)
    labels, wanted = labels_of(label), None if status == "all" else status
    with opened(place) as store:
        if external_id is None:
            page = store.list_conversations(user_id=user, labels=labels, status=wanted, after=after, limit=limit)
            found, following = page.items, page.next
        else:
            one = (store if user is None else store.for_user(user)).find_conversation(external_id=external_id)
            found, following = [one] if one is not None and is_such(one, labels, wanted) else [], None
    if place.is_json:
        print_json({"conversations": [facts_of(one) for one in found], "next": following})
        return
    print_table(COLUMNS, [row_of(one) for one in found])
    if not found:
        note(f"threadkeep: no such conversations in {place.shown}")
    elif following is not None:
        note(f"threadkeep: there are more: --after {following}")


def is_such(conversation: Conversation, labels: Mapping[str, str], status: str | None) -> bool:
    """Whether a conversation has these labels and this status."""
    return labels.items() <= conversation.labels.items() and status in {None, conversation.status}


def row_of(conversation: Conversation) -> tuple[Cell, ...]:
    """A conversation in one row."""
    return (
        conversation.id,
        conversation.last_activity_at,
        conversation.status,
        conversation.user_id,
        conversation.model,
        conversation.title,
        " ".join(f"{key}={value}" for key, value in sorted(conversation.labels.items())) or None,
    )


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
