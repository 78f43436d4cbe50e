"""Commands that change conversations: title, labels, archive, fork, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from threadkeep.cli.formatting import number_of
from threadkeep.cli.options import Branch, ConversationId, Owner, Yes, labels_of, on_target
from threadkeep.cli.output import print_json, print_text
from threadkeep.cli.target import Target, open_conversation
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep import Conversation, Store

Ids = Annotated[
    list[str], Argument(metavar="ID...", help="Ids of conversations, or their beginnings.", show_default=False)
]


def _opened(store: Store, ids: list[str]) -> list[Conversation]:
    """All of them, before anything is changed."""
    return list({one.id: one for one in (open_conversation(store, text) for text in ids)}.values())


@on_target()
def delete(target: Target, *, ids: Ids, user: Owner = None, yes: Yes = False) -> None:
    """Delete conversations; the ledger is kept."""
    with target.store(user=user) as store:
        found = [conversation.id for conversation in _opened(store, ids)]
        if not yes:
            named = ", ".join(found)
            raise InvalidOption(
                f"This deletes {number_of(len(found), 'conversation')} for good: {named}. Use --yes to confirm."
            )
        for one in found:
            store.delete_conversation(one)
    target.report({"deleted": found}, f"{number_of(len(found), 'conversation')} deleted.")


@on_target()
def archive(target: Target, *, ids: Ids, user: Owner = None) -> None:
    """Archive conversations, which hides them in lists."""
    with target.store(user=user) as store:
        found = _opened(store, ids)
        for conversation in found:
            conversation.archive()
    target.report({"archived": [one.id for one in found]}, f"{number_of(len(found), 'conversation')} archived.")


@on_target()
def unarchive(target: Target, *, ids: Ids, user: Owner = None) -> None:
    """Make archived conversations active again."""
    with target.store(user=user) as store:
        found = _opened(store, ids)
        for conversation in found:
            conversation.unarchive()
    target.report({"unarchived": [one.id for one in found]}, f"{number_of(len(found), 'conversation')} active again.")


@on_target()
def title(
    target: Target,
    *,
    id: ConversationId,
    text: Annotated[str | None, Argument(metavar="[TEXT]", help="The new title; default: print it.")] = None,
    remove: Annotated[bool, Option("--remove", help="Remove the title.")] = False,
    user: Owner = None,
) -> None:
    """Print, set or remove the title of a conversation."""
    if remove and text is not None:
        raise InvalidOption("Give a title, or --remove, but not both.")
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        if remove or text is not None:
            conversation.update(title=text)
        target.report({"id": conversation.id, "title": conversation.title}, conversation.title or "")


@on_target()
def label(
    target: Target,
    *,
    id: ConversationId,
    labels: Annotated[
        list[str] | None, Argument(metavar="[KEY=VALUE...]", help="Labels to set; without any, they are printed.")
    ] = None,
    remove: Annotated[
        list[str] | None, Option("--remove", metavar="KEY", help="Remove this label; can be repeated.")
    ] = None,
    user: Owner = None,
) -> None:
    """Print, set or remove labels of a conversation."""
    new, gone = labels_of(labels), set(remove or ())
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        if new or gone:
            kept = {name: value for name, value in conversation.labels.items() if name not in gone}
            conversation.update(labels=kept | new)
        lines = [f"{name}={value}" for name, value in sorted(conversation.labels.items())]
        target.report({"id": conversation.id, "labels": conversation.labels}, "\n".join(lines))


@on_target()
def fork(
    target: Target,
    *,
    id: ConversationId,
    at: Annotated[
        int | None, Option("--at", metavar="N", help="The last position that is shared; default: all.")
    ] = None,
    activate: Annotated[bool, Option("--activate", help="Make the new branch the active one.")] = False,
    branch: Branch = None,
    user: Owner = None,
) -> None:
    """Fork a conversation and print the number of the new branch."""
    with target.store(user=user) as store:
        forked = open_conversation(store, id, branch).fork(at=at)
        if activate:
            forked.set_active_branch(forked.branch)
    if target.is_json:
        print_json({"id": forked.id, "branch": forked.branch, "active": activate})
    else:
        print_text(str(forked.branch))
