"""States: small named JSON values beside a conversation, such as the progress of an agent's run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from threadkeep.db.queries.annotations import conversation_lock, states_of
from threadkeep.db.queries.annotations import states_called as named_states
from threadkeep.domain.annotations import State
from threadkeep.domain.jsontext import JsonObject, loads, loads_stored
from threadkeep.store.changes.rows import record_change
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, idempotent, keep_outcome
from threadkeep.store.refs import ConversationRef
from threadkeep.store.state_writes import NewState, delete_written, write_states
from threadkeep.store.validation import identifier, optional_identifier, page_size


def find_state(handle: Handle, name: str) -> State | None:
    """The state of that name; see `Conversation.state`."""
    ref, wanted = handle.ref, identifier("name", name)
    states = handle.transactions.read_any(lambda connection: _read(connection, ref, wanted))
    return states[0] if states else None


def list_states(handle: Handle, after: str | None, limit: int) -> list[State]:
    """The states of a conversation, by name; see `Conversation.states`."""
    ref, start, size = handle.ref, optional_identifier("after", after), page_size(limit)
    return handle.transactions.read_any(lambda connection: _read(connection, ref, after=start, limit=size))


def states_called(handles: Sequence[Handle], name: str) -> list[State | None]:
    """The state of that name of each of some conversations of a store, or None; in one statement."""
    if not handles:
        return []
    wanted, scope, keys = identifier("name", name), handles[0].ref.scope, [handle.ref.key for handle in handles]

    def read(connection: Connection) -> dict[int, State]:
        rows = connection.execute(named_states(), {"tenant": scope.tenant, "keys": keys, "name": wanted})
        return {key: _state(*row) for key, *row in rows}

    found = handles[0].transactions.read_any(read)
    return [found.get(key) for key in keys]


def _read(
    connection: Connection, ref: ConversationRef, name: str | None = None, *, after: str | None = None, limit: int = 1
) -> list[State]:
    scope, wanted = ref.scope, {key: value for key, value in (("name", name), ("after", after)) if value is not None}
    statement = states_of(scoped=scope.user is not None, named=name is not None, is_later=after is not None)
    rows = connection.execute(statement, scope.parameters(key=ref.key, limit=limit, **wanted)).all()
    if not rows:
        raise ref.not_found()
    return [_state(*row) for row in rows if row.name is not None]


def _state(name: str, text: str, version: int, updated_at: datetime) -> State:
    return State(name, loads_stored(text, "conversation_states", f"name {name!r}"), version, updated_at)


def set_state(handle: Handle, name: str, value: Any, expected_version: int | None, key: str | None) -> State:
    """Write a state; see `Conversation.set_state`."""
    ref, state = handle.ref, NewState.of(name, value, expected_version)
    text = state.text or ""
    once = IdempotencyKey.of(key, "set_state", [state.name, text])

    def write(connection: Connection) -> State:
        def decode(outcome: JsonObject) -> State:
            return State(state.name, loads(text), outcome["version"], datetime.fromisoformat(outcome["at"]))

        now = datetime.now(UTC)
        lock_conversation(connection, ref)
        idempotent(connection, ref, once, decode)
        (stored,) = write_states(connection, ref, [state], now)
        record_change(connection, ref)
        outcome = {"kind": "state", "version": stored.version, "at": now.isoformat()}
        keep_outcome(connection, ref.scope.tenant, ref.key, once, now, **outcome)
        return State(state.name, loads(text), stored.version, now)

    return handle.transactions.write(write, is_repeatable=once is not None)


def delete_state(handle: Handle, name: str, expected_version: int | None, key: str | None) -> bool:
    """Delete a state; see `Conversation.delete_state`."""
    ref, state = handle.ref, NewState.deleted(name, expected_version)
    once = IdempotencyKey.of(key, "delete_state", state.name)

    def write(connection: Connection) -> bool:
        now = datetime.now(UTC)
        lock_conversation(connection, ref)
        idempotent(connection, ref, once, lambda outcome: outcome["existed"])
        existed = delete_written(connection, ref, state, now)
        if existed:
            record_change(connection, ref)
        keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind="state", existed=existed)
        return existed

    return handle.transactions.write(write, is_repeatable=once is not None)


def lock_conversation(connection: Connection, ref: ConversationRef) -> None:
    """Make the other writers of a conversation wait; neither its revision nor its last activity changes."""
    scope = ref.scope
    statement = conversation_lock(scoped=scope.user is not None)
    if not statement.execute(connection, scope.parameters(key=ref.key)):
        raise ref.not_found()
