"""Changes of a conversation that are not appends: options, tools, labels, title, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.db.dialects import check_sizes, returns_updates
from threadkeep.db.prepared import Record
from threadkeep.db.queries.conversations import DELETED, FACTS_READER, changing
from threadkeep.db.tables import conversation_labels
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.jsontext import JsonObject
from threadkeep.store.actions import keys
from threadkeep.store.actions.conversations import label_rows, labels_text, raise_taken
from threadkeep.store.actions.entries import facts_of
from threadkeep.store.actions.opening import Opened, opened
from threadkeep.store.attempts import Replayed
from threadkeep.store.contents import Contents, ToolTexts, settings_text, store_settings, store_tools
from threadkeep.store.place import TENANT_WIDE, Once, Place, Scope


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a conversation that is not an append; what is absent stays."""

    values: Mapping[str, Any] = field(default_factory=dict)  # columns, by name
    settings: Callable[[JsonObject], JsonObject] | None = None
    tools: Callable[[Sequence[JsonObject]], Sequence[JsonObject]] | None = None
    labels: Mapping[str, str] | None = None
    method: str = "update"
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """A conversation as a change left it, and the tools that the change took away."""

    conversation: Opened
    removed_tools: Sequence[JsonObject] = ()


def change(connection: Connection, place: Place, wanted: Change, contents: Contents) -> Changed:
    """Change a conversation; its row is locked first, so changes of options and tools build on each other.

    Raises:
        NotFound, InvalidOption, IdempotencyConflict: nothing was written.
    """
    scope, now = place.scope, datetime.now(UTC)
    facts = _updated(connection, place, {})
    outcome = keys.outcome_of(connection, scope.tenant, place.key, wanted.once)
    if outcome is not None:
        raise Replayed(Changed(opened(connection, scope, facts, contents, place.branch), outcome["removed_tools"]))
    values, removed = dict(wanted.values), []
    if wanted.settings is not None:
        config = settings_text(wanted.settings(contents.settings(connection, scope.tenant, facts.config_hash)))
        store_settings(connection, scope.tenant, [config], now)
        values["config_hash"] = config.hash
    if wanted.tools is not None:
        before = contents.tools(connection, scope.tenant, facts.tool_set_hash)
        after = wanted.tools(before)
        removed = [tool for tool in before if tool not in after]
        values["tool_set_hash"] = _stored_tools(connection, scope.tenant, after, now)
    if wanted.labels is not None:
        values["labels"] = labels_text(wanted.labels)
        _replace_labels(connection, place, wanted.labels)
    if values:
        facts = _updated(connection, place, values)
    keys.record(connection, scope.tenant, place.key, wanted.once, now, kind=wanted.method, removed_tools=removed)
    return Changed(opened(connection, scope, facts, contents, place.branch), removed)


def _stored_tools(connection: Connection, tenant: int, tools: Sequence[JsonObject], now: datetime) -> bytes | None:
    found = ToolTexts.of(tools)
    if found is None:
        return None
    store_tools(connection, tenant, [found], now)
    return found.set.hash


def _updated(connection: Connection, place: Place, values: Mapping[str, Any]) -> Record:
    """Run the UPDATE and read the row as it is now."""
    scope, has_returning = place.scope, returns_updates(connection.dialect)
    statement = changing(*sorted(values), scoped=scope.is_scoped, returning=has_returning)
    parameters = scope.bound(key=place.key, **{f"new_{name}": value for name, value in values.items()})
    check_sizes(connection, [values], "a conversation", [name for name in ("title", "labels") if name in values])
    try:
        if has_returning:
            rows = statement.rows(connection, parameters)
            found = FACTS_READER.records(connection.dialect, rows)[0] if rows else None
        else:
            statement.execute(connection, parameters)
            found = facts_of(connection, scope, "id", place.key)
    except IntegrityError as error:
        raise_taken([{"external_id": values.get("external_id")}], error)
        raise
    if found is None:
        raise place.missing()
    return found


def _replace_labels(connection: Connection, place: Place, labels: Mapping[str, str]) -> None:
    table = conversation_labels.c
    connection.execute(
        delete(conversation_labels).where(table.tenant_id == place.scope.tenant, table.conversation_id == place.key)
    )
    rows = label_rows(place.scope.tenant, place.key, labels)
    if rows:
        connection.execute(insert(conversation_labels), rows)


def find_and_hide(connection: Connection, scope: Scope, id: str, once: Once | None) -> int:
    """Take a conversation out of everybody's sight; returns its key: its rows are to be purged.

    Raises:
        NotFound, IdempotencyConflict: nothing was written.
    """
    outcome = keys.outcome_of(connection, scope.tenant, TENANT_WIDE, once)
    if outcome is not None:
        raise Replayed(outcome["key"])
    facts = facts_of(connection, scope, "public_id", public_id_bytes(id))
    if facts is None:
        raise Place(scope, 0, id).missing()
    place = Place(scope, facts.id, id)
    keys.record(connection, scope.tenant, TENANT_WIDE, once, datetime.now(UTC), kind="deleted", key=place.key)
    _updated(connection, place, {})
    statement = changing("external_id", "status", scoped=scope.is_scoped, returning=False)
    statement.execute(connection, scope.bound(key=place.key, new_status=DELETED, new_external_id=None))
    return place.key
