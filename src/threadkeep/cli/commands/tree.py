"""``threadkeep tree``: the branches of a conversation as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from threadkeep.cli import options, output
from threadkeep.cli.target import Target, iterate, open_conversation
from threadkeep.domain.transcripts import said_in

if TYPE_CHECKING:
    from threadkeep import Branch, Conversation, StoredItem

LOOKED_AT: Final = 20  # items of a branch among which there should be a text
WIDTH: Final = 60  # characters of a text


class TreeLine(NamedTuple):
    """A branch in the tree: what is drawn before it, and the branch."""

    prefix: str
    branch: Branch


@options.on_target()
def tree(target: Target, *, id: options.ConversationId, user: options.Owner = None) -> None:
    """Print the branches of a conversation as a tree.

    Each with the positions of its own items, the position behind which it begins, and its first words.
    """
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        lines = list(lines_of(list(iterate(conversation.branches))))
        records = [record_of(conversation, line.branch) for line in lines]
    if target.is_json:
        output.print_json({"id": conversation.id, "branches": records})
        return
    for line, found in zip(lines, records, strict=True):
        output.print_text(line.prefix + text_of(found), is_bold=found["active"])


def lines_of(branches: Sequence[Branch]) -> Iterator[TreeLine]:
    """The branches in the order of the tree: each below the one on which the item is that it begins behind."""
    children: dict[int, list[Branch]] = {}
    by_number = {branch.number: branch for branch in branches}
    for branch in branches[1:]:
        children.setdefault(owner_of(branch, by_number), []).append(branch)
    waiting = [("", "", branches[0])]
    while waiting:
        prefix, indent, branch = waiting.pop()
        yield TreeLine(prefix, branch)
        below = children.get(branch.number, [])
        for index, child in reversed(list(enumerate(below))):
            is_last = index == len(below) - 1
            corner, line = ("`-- ", "    ") if is_last else ("|-- ", "|   ")
            waiting.append((indent + corner, indent + line, child))


def owner_of(branch: Branch, by_number: Mapping[int, Branch]) -> int:
    """The branch that has the last item which a branch shares; a parent may share that one itself."""
    position, owner = branch.fork_position, by_number[branch.parent or 0]
    while owner.fork_position is not None and position is not None and position <= owner.fork_position:
        owner = by_number[owner.parent or 0]
    return owner.number


def record_of(conversation: Conversation, branch: Branch) -> dict[str, Any]:
    """What is known of a branch, with the position and the first words of its own items."""
    after = -1 if branch.fork_position is None else branch.fork_position
    own: Sequence[StoredItem] = ()
    if branch.head_position > after:
        own = conversation.on_branch(branch.number).items(after=after, limit=LOOKED_AT, media="reference").items
    texts = (said_in(stored.to_object()) for stored in own)
    known = output.record(branch, "number", "parent", "fork_position", "created_at")
    return known | {
        "head": branch.head_position,
        "active": branch.is_active,
        "from_position": own[0].position if own else None,
        "text": next((" ".join(text.split()) for text in texts if text.strip()), None),
    }


def text_of(found: Mapping[str, Any]) -> str:
    """A branch on one line."""
    after = "" if found["fork_position"] in (None, -1) else f" after #{found['fork_position']}"
    own = "no items" if found["from_position"] is None else f"#{found['from_position']} to #{found['head']}"
    text = found["text"] or ""
    words = text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
    return f"{found['number']}{' *' if found['active'] else ''}{after}: {own}{f'  {words}' if words else ''}"
