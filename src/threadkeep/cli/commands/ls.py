"""``threadkeep ls``: which conversations there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Option

from threadkeep.cli.commands.tenants import tenants_of
from threadkeep.cli.options import After, Labels, Limit, OnlyUser, Status, Text, labels_of, on_target, status_of
from threadkeep.cli.output import Column, note, record
from threadkeep.cli.target import Target

if TYPE_CHECKING:
    from threadkeep import Conversation

COLUMNS: Final = (
    Column("id", no_wrap=True),
    Column("last_activity", "last_activity_at", is_time=True, no_wrap=True, drop_order=6),
    Column("status", drop_order=3),
    Column("user", "user_id", drop_order=4),
    Column("model", drop_order=2),
    Column("title", drop_order=5),
    Column("labels", drop_order=1),
)


@on_target()
def ls(
    target: Target,
    *,
    user: OnlyUser = None,
    label: Labels = None,
    status: Status = "active",
    limit: Limit = 50,
    after: After = None,
    external_id: Annotated[
        Text, Option("--external-id", metavar="ID", help="Only the one with this id of the application.")
    ] = None,
) -> None:
    """List conversations, newest activity first."""
    filters: dict[str, Any] = {"labels": labels_of(label), "status": status_of(status)}
    with target.store() as store:
        if external_id is None:
            page = store.list_conversations(user_id=user, after=after, limit=limit, **filters)
            conversations, next_page = list(page), page.next
        else:
            owned = store if user is None else store.for_user(user)
            conversation = owned.find_conversation(external_id=external_id)
            conversations = [conversation] if conversation and _has_labels_and_status(conversation, **filters) else []
            next_page = None
    records = [record_of(conversation) for conversation in conversations]
    target.report_list("conversations", records, COLUMNS, empty="no such conversations", next=next_page)
    if target.tenant is None and (others := [row["name"] for row in tenants_of(target) if row["name"] != "default"]):
        note(f"threadkeep: these are of the tenant 'default'; --tenant NAME shows those of {_some(others)}")


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004


def _has_labels_and_status(conversation: Conversation, labels: dict[str, str], status: str | None) -> bool:
    """Whether a conversation has these labels and this status; None is any."""
    return labels.items() <= conversation.labels.items() and status in {None, conversation.status}


def record_of(conversation: Conversation) -> dict[str, Any]:
    """What is known of a conversation without reading its items."""
    names = ("id", "external_id", "user_id", "title", "labels", "status", "model", "created_at", "last_activity_at")
    return record(conversation, *names)
