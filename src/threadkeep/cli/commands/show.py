"""``threadkeep show``: a conversation to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from threadkeep.cli.commands.ls import record_of
from threadkeep.cli.options import Branch, ConversationId, Owner, on_target
from threadkeep.cli.output import clock, print_json, print_text, record
from threadkeep.cli.target import Target, iterate
from threadkeep.cli.transcript import lines_of, title_of

if TYPE_CHECKING:
    from threadkeep import Conversation, StoredItem, StoredResponse

# title of an item (its first word) -> colour
COLOURS: Final = {"user": "green", "assistant": "cyan", "call": "yellow", "output": "yellow", "reasoning": "magenta"}


@on_target()
def show(target: Target, *, id: ConversationId, branch: Branch = None, user: Owner = None) -> None:
    """Print a conversation to be read.

    Who said what, calls with their arguments, outputs, reasoning, and a note for each picture or file.
    """
    with target.store(user=user) as store:
        conversation = store.get_conversation(id, branch=branch)
        if target.is_json:
            print_json(
                {
                    **record_of(conversation),
                    "branch": conversation.branch,
                    "settings": conversation.settings,
                    "tools": conversation.tools,
                    "items": [
                        record(stored, "position", "branch", "turn", "id", "author_id", "created_at")
                        | {"item": stored.item.to_dict()}
                        for stored in iterate(conversation.items)
                    ],
                }
            )
        else:
            _print_head(conversation)
            print_items(conversation)


def _print_head(conversation: Conversation) -> None:
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


def print_items(conversation: Conversation) -> None:
    """Print the items of a conversation, and in front of the first item of a response what is known of that."""
    responses = {
        response.from_position: response
        for response in iterate(conversation.responses)
        if response.to_position >= response.from_position
    }
    for stored in iterate(conversation.items):
        print_item(stored, responses.get(stored.position))


def print_item(stored: StoredItem, response: StoredResponse | None = None) -> None:
    """Print an item, with what is known of the response that begins with it."""
    item = stored.item.to_dict()
    title = title_of(item)
    facts: list[str | None] = [f"#{stored.position} {title}"]
    if stored.author_id is not None:
        facts.append(f"by {stored.author_id}")
    if stored.created_at is not None:
        facts.append(clock(stored.created_at))
    if response is not None:
        facts += [response.model, response.status, response.format]
    print_text("")
    print_text(" · ".join(filter(None, facts)), is_bold=True, colour=COLOURS.get(title.partition(" ")[0]))
    for line in lines_of(item):
        print_text(f"  {line}".rstrip())
