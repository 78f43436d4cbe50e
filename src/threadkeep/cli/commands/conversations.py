"""``threadkeep ls``, ``show``, ``branches`` and ``tree``: list conversations, and show one of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from typer import Option

from threadkeep.cli import options
from threadkeep.cli.options import ConversationId, Owner, Text, on_target
from threadkeep.cli.output import Column, clock, print_json, print_text, record
from threadkeep.cli.target import Target, iterate, note_other_tenants, open_conversation
from threadkeep.domain.stored import Page
from threadkeep.domain.transcripts import lines_of, said_in, title_of
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep import Branch, Conversation, Store, StoredItem, StoredResponse

    ReadItems = Callable[..., Page[StoredItem]]

LOOKED_AT: Final = 20  # items of a branch among which there should be a text
WIDTH: Final = 60  # characters of a text
CONVERSATIONS: Final = (
    Column("id", no_wrap=True), Column("last_activity", "last_activity_at", is_time=True, no_wrap=True, drop_order=6),
    Column("status", drop_order=3), Column("user", "user_id", drop_order=4), Column("model", drop_order=2),
    Column("title", drop_order=5), Column("labels", drop_order=1),
)  # fmt: skip
# What a list shows on demand: behind the columns of all lists
PREVIEW: Final = (Column("unread", "is_unread", drop_order=4), Column("preview"))
COUNTS: Final = (
    Column("items", "item_count", is_number=True),
    Column("responses", "response_count", is_number=True, drop_order=3),
    Column("branches", "branch_count", is_number=True, drop_order=2),
)
BRANCHES: Final = (
    *(Column(name, is_number=True) for name in ("number", "parent", "fork_position", "head")),
    Column("active"),
    Column("created_at", is_time=True, no_wrap=True, drop_order=1),
)
# What is known about a conversation without reading its items
FACTS: Final = (
    "id", "external_id", "user_id", "title", "labels", "properties", "status", "model", "created_at",
    "last_activity_at",
)  # fmt: skip
OrderBy = Annotated[
    Literal["activity", "created", "title"], Option("--order-by", help="Sort by the last activity, creation or title.")
]
Order = Annotated[
    Literal["asc", "desc"] | None, Option("--order", help="Default: newest first, and titles from the first letter on.")
]
UnreadBy = Annotated[Text, Option("--unread-by", metavar="ID", help="Only with something that this user has not seen.")]
Preview = Annotated[bool, Option("--preview", help="Show the newest text of each, and if there is something unread.")]
Counts = Annotated[bool, Option("--counts", help="Show the numbers of items, responses and branches.")]
Last = Annotated[int | None, Option("--last", metavar="N", min=0, help="Only the last N items.")]
Follow = Annotated[bool, Option("--follow", help="Go on printing what is appended, until interrupted.")]
Interval = Annotated[float, Option("--interval", metavar="SECONDS", min=0.1, help="With --follow: how often to look.")]
# title of an item (its first word) -> colour
COLOURS: Final = {"user": "green", "assistant": "cyan", "call": "yellow", "output": "yellow", "reasoning": "magenta"}


@on_target()
def ls(
    target: Target,
    *,
    user: options.OnlyUser = None,
    label: options.Labels = None,
    status: options.Status = "active",
    limit: options.Limit = 50,
    after: options.After = None,
    order_by: OrderBy = "activity",
    order: Order = None,
    unread_by: UnreadBy = None,
    preview: Preview = False,
    counts: Counts = False,
    external_id: Annotated[
        Text, Option("--external-id", metavar="ID", help="Only the conversation with this id of the application.")
    ] = None,
) -> None:
    """List conversations, most recently active first."""
    filters: dict[str, Any] = {"labels": options.labels_of(label), "status": options.status_of(status)}
    if external_id is not None and (preview or counts or unread_by is not None):
        raise InvalidOption("--external-id finds one conversation: leave out --preview, --counts and --unread-by.")
    shown = [*(COUNTS if counts else ()), *(PREVIEW if preview else ())]
    wanted = filters | {
        "user_id": user, "order_by": order_by, "order": order, "unread_by": unread_by, "after": after, "limit": limit,
    }  # fmt: skip
    with target.store() as store:
        page: Page[Any]
        if external_id is not None:
            page = Page(_with_external_id(store, external_id, user, filters))
        else:
            page = store.list_summaries(**wanted) if shown else store.list_conversations(**wanted)
    _report_list(target, page, shown)
    note_other_tenants(target, "these belong to")


def _report_list(target: Target, page: Page[Any], shown: list[Column]) -> None:
    """Print conversations, or with more columns summaries of them, which do not say the model."""
    known = tuple(name for name in FACTS if name != "model") if shown else FACTS
    names = [*known, *(column.key or column.title for column in shown)]
    columns = [column for column in CONVERSATIONS if (column.key or column.title) in known]
    records = [record(one, *names) for one in page]
    target.report_list("conversations", records, [*columns, *shown], empty="no such conversations", next=page.next)


def _with_external_id(store: Store, external_id: str, user: str | None, filters: dict[str, Any]) -> list[Conversation]:
    """Return the conversation with an external id, if it has these labels and this status."""
    owned = store if user is None else store.for_user(user)
    found = owned.find_conversation(external_id=external_id)
    if found is None or not filters["labels"].items() <= found.labels.items():
        return []
    return [found] if filters["status"] in {None, found.status} else []


@on_target()
def show(
    target: Target, *, id: ConversationId, branch: options.Branch = None, user: Owner = None, last: Last = None,
    follow: Follow = False, interval: Interval = 1.0,
) -> None:  # fmt: skip
    """Print a conversation as readable text.

    Shows messages, calls with their arguments, outputs, reasoning, and a note for each image or file.
    """
    with target.store(user=user) as store:
        conversation = open_conversation(store, id, branch)
        # readable text only names media; they may be large, or kept where the command line has no access
        read = partial(conversation.items, media="inline" if target.is_json else "reference")
        newest = None if last is None else list(islice(iterate(partial(read, order="desc")), last))
        items = list(iterate(read)) if newest is None else newest[::-1]
        if target.is_json:
            shown = [_item_record(stored) for stored in items]
            settings = record(conversation, "branch", "settings", "tools")
            print_json(record(conversation, *FACTS) | settings | {"items": shown})
        else:
            _print_head(conversation)
            print_items(conversation, items, has_responses=last is None)
        if follow:
            after = items[-1].position if items else -1
            _follow(read, after, interval, is_json=target.is_json)


def _item_record(stored: StoredItem) -> dict[str, Any]:
    about = record(stored, "position", "branch", "turn", "id", "author_id", "created_at")
    return about | {"item": stored.item.to_dict()}


def _follow(read: ReadItems, after: int, interval: float, *, is_json: bool) -> None:
    """Print what is appended, until the command is interrupted."""
    while True:
        sys.stdout.flush()
        time.sleep(interval)
        for stored in iterate(partial(read, after=after)):
            if is_json:
                print_json(_item_record(stored))
            else:
                print_item(stored)
            after = stored.position


def _print_head(conversation: Conversation) -> None:
    """Print information about the whole conversation."""
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
            print_text("  " + "\n      ".join(f"{name}: {value}".splitlines()), is_dim=True)


def print_items(conversation: Conversation, items: Iterable[StoredItem], *, has_responses: bool = True) -> None:
    """Print items of a conversation, and with the first item of each response, information about the response."""
    responses = {
        response.from_position: response
        for response in (iterate(conversation.responses) if has_responses else ())
        if response.to_position >= response.from_position
    }
    for stored in items:
        print_item(stored, responses.get(stored.position))


def print_item(stored: StoredItem, response: StoredResponse | None = None) -> None:
    """Print an item, with information about the response that begins with it."""
    item = stored.to_object()
    title = " ".join(title_of(item).split())  # a name with a line break would look like more than one item
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


@on_target()
def branches(target: Target, *, id: ConversationId, user: Owner = None) -> None:
    """List the branches of a conversation.

    Includes the last position that a branch shares with its parent, and the position of its last item; -1 means none.
    """
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        branches = list(iterate(conversation.branches))
    records = [
        record(branch, "number", "parent", "fork_position", "created_at")
        | {"head": branch.head_position, "active": branch.is_active}
        for branch in branches
    ]
    target.report_list("branches", records, BRANCHES, id=conversation.id)


class TreeLine(NamedTuple):
    """A branch in the tree: what is drawn before it, and the branch."""

    prefix: str
    branch: Branch


@on_target()
def tree(target: Target, *, id: ConversationId, user: Owner = None) -> None:
    """Print the branches of a conversation as a tree.

    Each with the positions of its own items, the position behind which it begins, and its first words.
    """
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        lines = list(tree_of(list(iterate(conversation.branches))))
        records = [record_of(conversation, line.branch) for line in lines]
    if target.is_json:
        print_json({"id": conversation.id, "branches": records})
        return
    for line, found in zip(lines, records, strict=True):
        print_text(line.prefix + text_of(found), is_bold=found["active"])


def tree_of(branches: Sequence[Branch]) -> Iterator[TreeLine]:
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
    known = record(branch, "number", "parent", "fork_position", "created_at")
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
