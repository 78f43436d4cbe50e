"""Creating, finding, changing and removing conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.db.cursors import Row
from threadkeep.db.dialects import check_sizes
from threadkeep.db.prepared import insertion
from threadkeep.db.queries.conversations import ACTIVE, listing
from threadkeep.db.tables import conversation_labels, conversations
from threadkeep.domain.ids import new_key, new_public_id
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.errors import InvalidOption
from threadkeep.store.actions import keys
from threadkeep.store.actions.items import insert_rows
from threadkeep.store.contents import Text, ToolTexts, settings_text, store_settings, store_tools
from threadkeep.store.drafts import Draft
from threadkeep.store.place import TENANT_WIDE, Once, Scope

INSERT_CONVERSATION: Final = insertion(conversations)


@dataclass(frozen=True, slots=True)
class NewConversation:
    """A conversation to be created, with what it begins with."""

    settings: JsonObject
    tools: Sequence[JsonObject] = ()
    drafts: Sequence[Draft] = ()
    turns: Sequence[int | None] = ()  # for each draft; offsets from its first position
    user_id: str | None = None
    external_id: str | None = None
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    once: Once | None = None


def create_many(connection: Connection, scope: Scope, new: Sequence[NewConversation]) -> list[bytes]:
    """Create conversations in a few statements; returns their public ids."""
    now = datetime.now(UTC)
    prepared = [_prepared(scope, one, now) for one in new]
    store_settings(connection, scope.tenant, [one.config for one in prepared], now)
    for one, made in zip(new, prepared, strict=True):
        keys.record(
            connection, scope.tenant, TENANT_WIDE, one.once, now,
            kind="conversation", public_id=made.row["public_id"].hex(),
        )  # fmt: skip
    tools = [one.tools for one in prepared if one.tools is not None]
    if tools:
        store_tools(connection, scope.tenant, tools, now)
    rows = [one.row for one in prepared]
    check_sizes(connection, rows, "a conversation", ("title", "labels"))
    try:
        INSERT_CONVERSATION.execute_many(connection, rows)
    except IntegrityError as error:
        raise_taken(rows, error)
        raise
    labels = [label for one in prepared for label in one.labels]
    if labels:
        connection.execute(insert(conversation_labels), labels)
    items = [item for one in prepared for item in one.items]
    insert_rows(connection, items, [draft for one in new for draft in one.drafts], now)
    return [row["public_id"] for row in rows]


@dataclass(frozen=True, slots=True)
class _Prepared:
    row: dict[str, Any]
    config: Text
    tools: ToolTexts | None
    labels: list[dict[str, Any]]
    items: list[dict[str, Any]]


def _prepared(scope: Scope, new: NewConversation, now: datetime) -> _Prepared:
    key, config, tools = new_key(), settings_text(new.settings), ToolTexts.of(new.tools)
    count = len(new.drafts)
    row = {
        "tenant_id": scope.tenant,
        "id": key,
        "public_id": new_public_id(),
        "external_id": new.external_id,
        "user_id": new.user_id,
        "title": new.title,
        "labels": labels_text(new.labels),
        "status": ACTIVE,
        "config_hash": config.hash,
        "tool_set_hash": None if tools is None else tools.set.hash,
        "active_branch": 0,
        "next_position": count,
        "next_response": 0,
        "next_branch": 1,
        "head_position": count - 1,
        "revision": 0,
        "created_at": now,
        "last_activity_at": now,
        "streams": None,
        "search_from": 0 if count or new.title is not None else None,
    }
    place = {"tenant_id": scope.tenant, "conversation_id": key, "branch": 0, "seen": None, "created_at": now}
    turns = new.turns or [None] * count
    items = [
        draft.row(place, position, turn) for position, (draft, turn) in enumerate(zip(new.drafts, turns, strict=True))
    ]
    return _Prepared(row, config, tools, label_rows(scope.tenant, key, new.labels), items)


def labels_text(labels: Mapping[str, str]) -> str | None:
    """The labels as the row of a conversation holds them."""
    return dumps(dict(labels)).decode() if labels else None


def label_rows(tenant: int, conversation: int, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows that conversations are found by."""
    place = {"tenant_id": tenant, "conversation_id": conversation}
    return [{**place, "key": name, "value": value} for name, value in labels.items()]


def raise_taken(rows: Sequence[Mapping[str, Any]], error: IntegrityError) -> None:
    """Say which external_id is taken; a return means that the error is about something else."""
    wanted = [row["external_id"] for row in rows if row["external_id"] is not None]
    if wanted:
        raise InvalidOption(
            f"Another conversation has the external_id {wanted[0]!r}"
            + (" (or one of the others of this batch)" if len(wanted) > 1 else "")
            + ". find_conversation(external_id=...) finds it."
        ) from error


@dataclass(frozen=True, slots=True)
class Filter:
    """Which conversations a listing shows."""

    user_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    status: str | None = ACTIVE  # None: active and archived
    after: tuple[datetime, int] | None = None
    limit: int = 50


def list_rows(connection: Connection, scope: Scope, wanted: Filter) -> Sequence[Row]:
    """A page of conversations, newest activity first."""
    user = scope.user if scope.user is not None else wanted.user_id
    if scope.user is not None and wanted.user_id not in {None, scope.user}:
        return []
    statement = listing(
        user=user is not None,
        statuses=wanted.status is not None,
        labels=len(wanted.labels),
        after=wanted.after is not None,
    )
    parameters: dict[str, Any] = {"tenant": scope.tenant, "limit": wanted.limit}
    if user is not None:
        parameters["user"] = user
    if wanted.status is not None:
        parameters["status"] = wanted.status
    if wanted.after is not None:
        parameters["after_at"], parameters["after_id"] = wanted.after
    for number, (name, value) in enumerate(sorted(wanted.labels.items())):
        parameters[f"key_{number}"], parameters[f"value_{number}"] = name, value
    return statement.rows(connection, parameters)
