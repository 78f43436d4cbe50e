"""``threadkeep show``: a conversation to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from threadkeep.cli.listing import facts_of
from threadkeep.cli.output import clock, iso, print_json, print_text
from threadkeep.cli.pages import every
from threadkeep.cli.place import AsJson, Branch, Id, OfUser, Tenant, Url, opened, place_of
from threadkeep.cli.transcript import lines_of, title_of

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.stored import StoredItem, StoredResponse
    from threadkeep.store.conversation import Conversation


# title of an item (its first word) -> colour
COLOURS: Final = {"user": "green", "assistant": "cyan", "call": "yellow", "output": "yellow", "reasoning": "magenta"}


def show(
    context: typer.Context,
    *,
    id: Id,
    branch: Branch = None,
    user: OfUser = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print a conversation to be read.

    Who said what, calls with their arguments, outputs, reasoning, and a note for each picture or file.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place, user=user) as store:
        conversation = store.get_conversation(id, branch=branch)
        if place.is_json:
            print_json(
                {
                    **facts_of(conversation),
                    "branch": conversation.branch,
                    "settings": conversation.settings,
                    "tools": conversation.tools,
                    "items": [item_object(stored) for stored in every(conversation.items)],
                }
            )
            return
        print_head(conversation)
        answers = answers_of(conversation)
        for stored in every(conversation.items):
            print_item(stored, answers.get(stored.position))


def answers_of(conversation: Conversation) -> dict[int, StoredResponse]:
    """The responses by the position of their first item."""
    found = every(conversation.responses)
    return {one.from_position: one for one in found if one.to_position >= one.from_position}


def print_head(conversation: Conversation) -> None:
    """Print what is known of a conversation as a whole."""
    facts: dict[str, Any] = {
        "title": conversation.title,
        "user": conversation.user_id,
        "external id": conversation.external_id,
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(conversation.labels.items())) or None,
        "model": conversation.model,
        "tools": ", ".join(str(tool.get("name") or tool.get("type")) for tool in conversation.tools) or None,
        "status": None if conversation.status == "active" else conversation.status,
        "branch": conversation.branch or None,
        "instructions": conversation.instructions,
    }
    print_text(conversation.id, is_bold=True)
    for name, value in facts.items():
        if value is not None:
            print_text("\n".join(f"  {line}" for line in f"{name}: {value}".splitlines()), is_dim=True)


def print_item(stored: StoredItem, answer: StoredResponse | None = None) -> None:
    """Print an item, with what is known of the answer that begins with it."""
    item = stored.item.to_dict()
    title = title_of(item)
    facts = [f"#{stored.position} {title}"]
    if stored.author_id is not None:
        facts.append(f"by {stored.author_id}")
    if stored.created_at is not None:
        facts.append(clock(stored.created_at))
    if answer is not None:
        facts += [word for word in (answer.model, answer.status, answer.format) if word is not None]
    print_text("")
    print_text(" · ".join(facts), is_bold=True, colour=COLOURS.get(title.partition(" ")[0]))
    for line in lines_of(item):
        print_text(f"  {line}".rstrip())


def item_object(stored: StoredItem) -> JsonObject:
    """A stored item as JSON."""
    return {
        "position": stored.position,
        "branch": stored.branch,
        "turn": stored.turn,
        "id": stored.id,
        "author_id": stored.author_id,
        "created_at": None if stored.created_at is None else iso(stored.created_at),
        "item": stored.item.to_dict(),
    }
