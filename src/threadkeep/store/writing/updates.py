"""Changes of a conversation that are not appends: options, tools, labels, title, status, active branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.db import backends, driver, models, search
from threadkeep.db.queries.conversations import CONVERSATION_READER, conversation_update
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.options import json_output_text, settings_with, thinking
from threadkeep.domain.session import Session
from threadkeep.domain.tools import Tool, removed_tools, tools_from, with_tools, without_tool
from threadkeep.store.changes.feed import record_change
from threadkeep.store.reading.history import state_of
from threadkeep.store.work import caches, erasures, idempotency, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import ConversationRef, ConversationState, find_row, get_lineage, get_row
from threadkeep.store.writing import conversations

INFO: Final = frozenset(conversations.ConversationInfo.__annotations__) - {
    conversations.CREATED_AT,
    conversations.ITEMS_CREATED_AT,
}


@dataclass(frozen=True, slots=True)
class Revision:
    """A change of a conversation that is not an append; what is absent stays."""

    values: Mapping[str, Any] = field(default_factory=dict)  # columns, by name
    settings: Callable[[JsonObject], JsonObject] | None = None
    tools: Callable[[Sequence[JsonObject]], Sequence[JsonObject]] | None = None
    labels: Mapping[str, str] | None = None
    check: Callable[[Connection], object] | None = None  # is called first


# Use cases


def update(handle: Handle, options: Mapping[str, Any], key: str | None) -> None:
    """See `Conversation.update`."""
    info = {name: value for name, value in options.items() if name in INFO}
    settings = {name: value for name, value in options.items() if name not in INFO}
    settings_with({}, settings)  # what cannot be used is refused before anything begins
    values: dict[str, Any] = {
        name: validation.optional_identifier(name, info[name]) for name in ("user_id", "external_id") if name in info
    }
    owner = handle.ref.scope.user
    if owner is not None and values.get("user_id", owner) != owner:
        raise validation.other_user(owner, values["user_id"])
    if "title" in info:
        values["title"] = validation.title_text(info["title"])
    if "properties" in info:
        values["properties"] = conversations.texts_by_name(validation.property_texts(info["properties"]))
    change = Revision(
        values=values,
        settings=(lambda current: settings_with(current, settings)) if settings else None,
        labels=validation.label_texts(info["labels"]) if "labels" in info else None,
    )
    _change(handle, "update", key, dict(options), change)


def request_json(handle: Handle, schema: Mapping[str, Any], options: Mapping[str, Any], key: str | None) -> None:
    """See `Conversation.json_output`."""
    json_output_text(None, schema, **options)  # what cannot be used is refused before anything begins

    def settings(current: JsonObject) -> JsonObject:
        return settings_with(current, {"text": json_output_text(current.get("text"), schema, **options)})

    _change(handle, "json_output", key, [schema, options], Revision(settings=settings))


def think(handle: Handle, enabled: bool | None, options: Mapping[str, Any], key: str | None) -> None:
    """See `Conversation.think`."""
    reasoning = {"reasoning": thinking(enabled, **options)}
    _change(handle, "think", key, reasoning, Revision(settings=lambda current: settings_with(current, reasoning)))


def add_tools(handle: Handle, method: str, tools: Sequence[Tool], key: str | None) -> list[Tool]:
    """Offer tools; one of the same name is replaced in its place."""
    definitions = [tool.to_dict() for tool in tools]
    _change(handle, method, key, definitions, Revision(tools=lambda current: with_tools(current, tools)))
    return list(tools)


def remove_tool(handle: Handle, name: str, key: str | None) -> Tool | None:
    """See `Conversation.remove_tool`."""
    change = Revision(tools=lambda current: without_tool(current, name)[0])
    removed = tools_from(_change(handle, "remove_tool", key, name, change))
    return removed[0] if removed else None


def clear_tools(handle: Handle, key: str | None) -> list[Tool]:
    """See `Conversation.clear_tools`."""
    return tools_from(_change(handle, "clear_tools", key, None, Revision(tools=lambda _: [])))


def set_status(handle: Handle, status: str, key: str | None) -> None:
    """Archive a conversation, or take it back."""
    _change(handle, "archive", key, status, Revision(values={"status": status}))


def set_active_branch(handle: Handle, number: int, key: str | None) -> None:
    """See `Conversation.set_active_branch`."""
    number, ref = validation.whole_number("number", number), handle.ref
    change = Revision(
        values={"active_branch": number},
        check=lambda connection: get_lineage(connection, ref.on(number), get_row(connection, ref)),
    )
    _change(handle, "set_active_branch", key, number, change)


def put_back(handle: Handle, before: Session, given: Session) -> None:
    """Give a conversation the options and tools that it had before, where it still has those it was given since."""
    was, now = before.settings, given.settings
    names = [name for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
    former, latter = before.tools, given.tools

    def settings(current: JsonObject) -> JsonObject:
        return settings_with(current, {name: was.get(name) for name in names if current.get(name) == now.get(name)})

    def tools(current: Sequence[JsonObject]) -> Sequence[JsonObject]:
        return former if list(current) == latter else current

    if names or former != latter:
        change = Revision(settings=settings if names else None, tools=tools if former != latter else None)
        _change(handle, "put_back", None, None, change)


# Writing


def _change(handle: Handle, method: str, key: str | None, arguments: Any, change: Revision) -> Sequence[JsonObject]:
    """Change a conversation; returns the definitions of the tools that are removed by it."""
    once, known = idempotency.IdempotencyKey.of(key, method, arguments), handle.cache.conversation
    conversation, removed = handle.transactions.write(
        lambda connection: _write_change(connection, handle, known, method, once, change),
        is_repeatable=once is not None,
    )
    handle.cache.change(conversation, known)
    handle.after_write()
    return removed


def _write_change(
    connection: Connection,
    handle: Handle,
    known: ConversationState,
    method: str,
    key: idempotency.IdempotencyKey | None,
    change: Revision,
) -> tuple[ConversationState, Sequence[JsonObject]]:
    """The row is locked first, so changes of options and tools build on each other."""
    ref, configs, now = handle.ref, handle.resources.configs, datetime.now(UTC)
    if change.check is not None:
        change.check(connection)
    scope, tenant = ref.scope, ref.scope.tenant
    row = update_row(connection, ref, {}, is_change=False)
    is_outdated = known.is_outdated or known.row.revision != row.revision - 1  # what the handle has read of the items

    def decode(outcome: JsonObject) -> tuple[ConversationState, Sequence[JsonObject]]:
        state = state_of(connection, scope, row, configs, ref.branch)
        state.is_outdated = True  # the revision of the row is taken back
        return state, outcome["removed_tools"]

    idempotency.idempotent(connection, ref, key, decode)
    values, removed = dict(change.values), list[JsonObject]()
    if change.settings is not None:
        config = caches.settings_text(change.settings(configs.settings(connection, tenant, row.config_hash)))
        caches.store_settings(connection, tenant, [config], now)
        values["config_hash"] = config.hash
    if change.tools is not None:
        before = configs.tools(connection, tenant, row.tool_set_hash)
        after = change.tools(before)
        removed = removed_tools(before, after)
        texts = caches.ToolTexts.of(after)
        if texts is not None:
            caches.store_tools(connection, tenant, [texts], now)
        values["tool_set_hash"] = None if texts is None else texts.set.hash
    if change.labels is not None:
        values["labels"] = conversations.texts_by_name(change.labels)
        table = models.conversation_labels.c
        is_of_conversation = [table.tenant_id == tenant, table.conversation_id == ref.key]
        connection.execute(delete(models.conversation_labels).where(*is_of_conversation))
        if rows := conversations.label_rows(tenant, ref.key, change.labels):
            connection.execute(insert(models.conversation_labels), rows)
    if values:
        values |= _of_index(connection, ref, row, values)
        row = update_row(connection, ref, values)
        erasures.check_users(connection, scope, [values.get("user_id")])
    idempotency.keep_outcome(connection, tenant, ref.key, key, now, kind=method, removed_tools=removed)
    conversation = state_of(connection, scope, row, configs, ref.branch)
    conversation.is_outdated = is_outdated
    return conversation, removed


def _of_index(
    connection: Connection, ref: ConversationRef, row: driver.LazyRow, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The columns that let the search see a conversation again, where its index knows whose it is."""
    if "user_id" not in values:
        return {}
    now, before = (
        search.search_of(connection).scope(ref.scope.tenant, user) for user in (values["user_id"], row.user_id)
    )
    return {} if now == before else {"search_from": 0}


def update_row(
    connection: Connection, ref: ConversationRef, values: Mapping[str, Any], *, is_change: bool = True
) -> driver.LazyRow:
    """Change columns of a conversation's row; its revision grows. Returns the row as it is now.

    The change feed tells of it unless it is not a change yet, but only a lock.
    """
    scope, has_returning = ref.scope, backends.backend_of(connection).has_returning
    statement = conversation_update(*sorted(values), scoped=scope.user is not None, returning=has_returning)
    parameters = scope.parameters(key=ref.key, **{f"new_{name}": value for name, value in values.items()})
    backends.check_sizes(
        connection, [values], "a conversation", [name for name in ("title", "labels") if name in values]
    )
    try:
        if has_returning:
            rows = statement.fetch_all(connection, parameters)
            row = CONVERSATION_READER.read(connection, rows)[0] if rows else None
        else:
            statement.execute(connection, parameters)
            row = find_row(connection, scope, "id", ref.key)
    except IntegrityError as error:
        conversations.raise_if_taken(scope, [{"external_id": values.get("external_id")}], error)
        raise
    if row is None:
        raise ref.not_found()
    if is_change:
        record_change(connection, ref)
    return row
