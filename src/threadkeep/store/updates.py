"""Changes of a conversation that are not appends: options, tools, labels, title, status, active branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from threadkeep.db.dialects import check_sizes, returns_updates
from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.conversations import CONVERSATION_READER, conversation_update
from threadkeep.db.tables import conversation_labels
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.options import json_output_text, settings_with, thinking
from threadkeep.domain.tools import Tool, tools_from, with_tools, without_tool
from threadkeep.errors import InvalidOption
from threadkeep.store.config_cache import ConfigCache, ToolTexts, settings_text, store_settings, store_tools
from threadkeep.store.conversations import ConversationInfo, label_rows, labels_text, raise_if_taken, state_of
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, idempotent, keep_outcome
from threadkeep.store.lineage import ConversationState, find_row, get_lineage, get_row
from threadkeep.store.refs import BranchRef, ConversationRef
from threadkeep.store.validation import label_texts, optional_identifier, title_text, whole_number

INFO: Final = frozenset(ConversationInfo.__annotations__)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a conversation that is not an append; what is absent stays."""

    method: str
    key: IdempotencyKey | None = None
    values: Mapping[str, Any] = field(default_factory=dict)  # columns, by name
    settings: Callable[[JsonObject], JsonObject] | None = None
    tools: Callable[[Sequence[JsonObject]], Sequence[JsonObject]] | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """A conversation as a change left it, and the tools that the change removed."""

    conversation: ConversationState
    removed_tools: Sequence[JsonObject] = ()


# Use cases


def update(handle: Handle, options: Mapping[str, Any], key: str | None) -> None:
    """Change options, title, labels, user_id or external_id; see `Conversation.update`."""
    info = {name: value for name, value in options.items() if name in INFO}
    settings = {name: value for name, value in options.items() if name not in INFO}
    settings_with({}, settings, sorted(INFO))  # what cannot be used is refused before anything begins
    values: dict[str, Any] = {
        name: optional_identifier(name, info[name]) for name in ("user_id", "external_id") if name in info
    }
    owner = handle.ref.scope.user
    if owner is not None and values.get("user_id", owner) != owner:
        raise InvalidOption(f"This store is for the user {owner!r}; it cannot give a conversation to another user.")
    if "title" in info:
        values["title"] = title_text(info["title"])
    change = Change(
        "update",
        IdempotencyKey.of(key, "update", dict(options)),
        values=values,
        settings=(lambda current: settings_with(current, settings)) if settings else None,
        labels=label_texts(info["labels"]) if "labels" in info else None,
    )
    _change(handle, change)


def request_json(handle: Handle, schema: Mapping[str, Any], options: Mapping[str, Any], key: str | None) -> None:
    """Ask for answers that are JSON; see `Conversation.json_output`."""
    json_output_text(None, schema, **options)  # what cannot be used is refused before anything begins

    def settings(current: JsonObject) -> JsonObject:
        return settings_with(current, {"text": json_output_text(current.get("text"), schema, **options)})

    key_ = IdempotencyKey.of(key, "json_output", [schema, options])
    _change(handle, Change("json_output", key_, settings=settings))


def think(handle: Handle, enabled: bool | None, options: Mapping[str, Any], key: str | None) -> None:
    """Ask for reasoning; see `Conversation.think`."""
    reasoning = {"reasoning": thinking(enabled, **options)}
    key_ = IdempotencyKey.of(key, "think", reasoning)
    _change(handle, Change("think", key_, settings=lambda current: settings_with(current, reasoning)))


def add_tools(handle: Handle, method: str, tools: Sequence[Tool], key: str | None) -> list[Tool]:
    """Offer tools; one of the same name is replaced in its place."""
    key_ = IdempotencyKey.of(key, method, [tool.to_dict() for tool in tools])
    _change(handle, Change(method, key_, tools=lambda current: with_tools(current, tools)))
    return list(tools)


def remove_tool(handle: Handle, name: str, key: str | None) -> Tool | None:
    """Offer a tool no longer; returns its definition, None when there was none."""
    key_ = IdempotencyKey.of(key, "remove_tool", name)
    result = _change(handle, Change("remove_tool", key_, tools=lambda current: without_tool(current, name)[0]))
    removed = tools_from(result.removed_tools)
    return removed[0] if removed else None


def clear_tools(handle: Handle, key: str | None) -> list[Tool]:
    """Offer no tools any more; returns their definitions."""
    key_ = IdempotencyKey.of(key, "clear_tools", None)
    return tools_from(_change(handle, Change("clear_tools", key_, tools=lambda _: [])).removed_tools)


def set_status(handle: Handle, status: str, key: str | None) -> None:
    """Archive a conversation, or take it back."""
    key_ = IdempotencyKey.of(key, "archive", status)
    _change(handle, Change("archive", key_, values={"status": status}))


def set_active_branch(handle: Handle, number: int, key: str | None) -> None:
    """Make a branch the one that is opened by default.

    Raises:
        NotFound: there is no such branch.
    """
    number = whole_number("number", number)
    key_ = IdempotencyKey.of(key, "set_active_branch", number)
    ref = handle.ref

    def check(connection: Connection) -> None:
        get_lineage(connection, ref.on(number), get_row(connection, ref))

    _change(handle, Change("set_active_branch", key_, values={"active_branch": number}), check)


# Writing


def _change(handle: Handle, change: Change, check: Callable[[Connection], None] | None = None) -> ChangeResult:
    ref, configs = handle.ref, handle.resources.configs

    def write(connection: Connection) -> ChangeResult:
        if check is not None:
            check(connection)
        return _write_change(connection, ref, configs, change)

    result = handle.transactions.write(write, is_repeatable=change.key is not None)
    handle.cache.change(result.conversation)
    handle.after_write()
    return result


def _write_change(connection: Connection, ref: BranchRef, configs: ConfigCache, change: Change) -> ChangeResult:
    """Change a conversation; its row is locked first, so changes of options and tools build on each other.

    Raises:
        NotFound, InvalidOption, IdempotencyConflict: nothing was written.
    """
    scope, now = ref.scope, datetime.now(UTC)
    row = update_row(connection, ref, {})

    def decode(outcome: JsonObject) -> ChangeResult:
        return ChangeResult(state_of(connection, scope, row, configs, ref.branch), outcome["removed_tools"])

    idempotent(connection, ref, change.key, decode)
    values, removed = dict(change.values), []
    if change.settings is not None:
        config = settings_text(change.settings(configs.settings(connection, scope.tenant, row.config_hash)))
        store_settings(connection, scope.tenant, [config], now)
        values["config_hash"] = config.hash
    if change.tools is not None:
        before = configs.tools(connection, scope.tenant, row.tool_set_hash)
        after = change.tools(before)
        removed = [tool for tool in before if tool not in after]
        values["tool_set_hash"] = _store_tool_set(connection, scope.tenant, after, now)
    if change.labels is not None:
        values["labels"] = labels_text(change.labels)
        _replace_labels(connection, ref, change.labels)
    if values:
        row = update_row(connection, ref, values)
    keep_outcome(connection, scope.tenant, ref.key, change.key, now, kind=change.method, removed_tools=removed)
    return ChangeResult(state_of(connection, scope, row, configs, ref.branch), removed)


def _store_tool_set(connection: Connection, tenant: int, tools: Sequence[JsonObject], now: datetime) -> bytes | None:
    texts = ToolTexts.of(tools)
    if texts is None:
        return None
    store_tools(connection, tenant, [texts], now)
    return texts.set.hash


def update_row(connection: Connection, ref: ConversationRef, values: Mapping[str, Any]) -> LazyRow:
    """Change columns of a conversation's row; its revision grows. Returns the row as it is now.

    Raises:
        NotFound: it does not exist (any more).
        InvalidOption: another conversation has the external_id.
    """
    scope, has_returning = ref.scope, returns_updates(connection.dialect)
    statement = conversation_update(*sorted(values), scoped=scope.user is not None, returning=has_returning)
    parameters = scope.parameters(key=ref.key, **{f"new_{name}": value for name, value in values.items()})
    check_sizes(connection, [values], "a conversation", [name for name in ("title", "labels") if name in values])
    try:
        if has_returning:
            rows = statement.fetch_all(connection, parameters)
            row = CONVERSATION_READER.read(connection.dialect, rows)[0] if rows else None
        else:
            statement.execute(connection, parameters)
            row = find_row(connection, scope, "id", ref.key)
    except IntegrityError as error:
        raise_if_taken([{"external_id": values.get("external_id")}], error)
        raise
    if row is None:
        raise ref.not_found()
    return row


def _replace_labels(connection: Connection, ref: ConversationRef, labels: Mapping[str, str]) -> None:
    table = conversation_labels.c
    connection.execute(
        delete(conversation_labels).where(table.tenant_id == ref.scope.tenant, table.conversation_id == ref.key)
    )
    rows = label_rows(ref.scope.tenant, ref.key, labels)
    if rows:
        connection.execute(insert(conversation_labels), rows)
