"""Changes of a conversation that are not appends: options, tools, labels, title, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.db.dialects import returns_updates
from threadkeep.db.queries.conversations import DELETED, change
from threadkeep.db.tables import conversation_labels
from threadkeep.domain.jsontext import JsonObject
from threadkeep.store.actions import keys
from threadkeep.store.actions.conversations import label_rows, labels_text, raise_taken
from threadkeep.store.actions.entries import facts_of
from threadkeep.store.actions.opening import Opened, opened
from threadkeep.store.contents import Contents, ToolTexts, settings_text, store_settings, store_tools
from threadkeep.store.database import Replayed
from threadkeep.store.place import Once, Place


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a conversation that is not an append; what is absent stays."""

    values: Mapping[str, Any] = field(default_factory=dict)  # columns, by name
    settings: Callable[[JsonObject], JsonObject] | None = None
    tools: Callable[[Sequence[JsonObject]], Sequence[JsonObject]] | None = None
    labels: Mapping[str, str] | None = None
    method: str = "update"
    once: Once | None = None


def apply_change(connection: Connection, place: Place, wanted: Change, contents: Contents) -> Row[Any]:
    """Change a conversation; its row is locked first, so changes of options and tools build on each other.

    Raises:
        NotFound, InvalidOption, IdempotencyConflict: nothing was written.
    """
    scope, now = place.scope, datetime.now(UTC)
    facts = _changed(connection, place, {})
    if keys.outcome_of(connection, scope.tenant, place.key, wanted.once) is not None:
        raise Replayed(opened(connection, scope, facts, contents, place.branch))
    values = dict(wanted.values)
    if wanted.settings is not None:
        config = settings_text(wanted.settings(contents.settings(connection, scope.tenant, facts.config_hash)))
        store_settings(connection, scope.tenant, [config], now)
        values["config_hash"] = config.hash
    if wanted.tools is not None:
        tools = ToolTexts.of(wanted.tools(contents.tools(connection, scope.tenant, facts.tool_set_hash)))
        if tools is not None:
            store_tools(connection, scope.tenant, [tools], now)
        values["tool_set_hash"] = None if tools is None else tools.set.hash
    if wanted.labels is not None:
        values["labels"] = labels_text(wanted.labels)
        _replace_labels(connection, place, wanted.labels)
    if values:
        try:
            facts = _changed(connection, place, values)
        except IntegrityError as error:
            raise_taken([{"external_id": values.get("external_id")}], error)
            raise
    keys.record(connection, scope.tenant, place.key, wanted.once, now, kind=wanted.method)
    return facts


def _changed(connection: Connection, place: Place, values: Mapping[str, Any]) -> Row[Any]:
    """Run the UPDATE and read the row as it is now."""
    scope, has_returning = place.scope, returns_updates(connection.dialect)
    statement = change(*sorted(values), scoped=scope.is_scoped, returning=has_returning)
    parameters = scope.bound(key=place.key, **{f"new_{name}": value for name, value in values.items()})
    result = connection.execute(statement, parameters)
    facts = result.one_or_none() if has_returning else facts_of(connection, scope, "id", place.key)
    if facts is None:
        raise place.missing()
    return facts


def _replace_labels(connection: Connection, place: Place, labels: Mapping[str, str]) -> None:
    table = conversation_labels.c
    connection.execute(
        delete(conversation_labels).where(table.tenant_id == place.scope.tenant, table.conversation_id == place.key)
    )
    rows = label_rows(place.scope.tenant, place.key, labels)
    if rows:
        connection.execute(insert(conversation_labels), rows)


def change_and_open(connection: Connection, place: Place, wanted: Change, contents: Contents) -> Opened:
    """Like `apply_change`; returns the conversation as it is now."""
    facts = apply_change(connection, place, wanted, contents)
    return opened(connection, place.scope, facts, contents, place.branch)


def hide(connection: Connection, place: Place) -> None:
    """Take a conversation out of everybody's sight; its rows are purged afterwards.

    Raises:
        NotFound: it is not there.
    """
    _changed(connection, place, {})
    statement = change("external_id", "status", scoped=place.scope.is_scoped, returning=False)
    connection.execute(statement, place.scope.bound(key=place.key, new_status=DELETED, new_external_id=None))
