"""States, small named JSON values of a conversation: compared and swapped while it is locked, and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db import backends, models
from threadkeep.db.driver import inserting
from threadkeep.db.queries.annotations import conversation_lock, state_removal, state_versions_of, states_of
from threadkeep.db.queries.annotations import states_called as named_states
from threadkeep.domain.jsontext import EXACT, JsonObject, check_finite, encode, loads, loads_stored, mismatch
from threadkeep.domain.stored import State, StateWrite
from threadkeep.errors import InvalidItem, InvalidOption, StateConflict, TooLarge, shown
from threadkeep.store.changes.feed import record_change
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.idempotency import IdempotencyKey, idempotent, keep_outcome
from threadkeep.store.work.refs import ConversationRef
from threadkeep.store.work.validation import MAX_NUMBER, identifier, optional_identifier, page_size, whole_number

MAX_STATES: Final = 100  # of a conversation, and as many versions of deleted ones
MAX_STATE_BYTES: Final = 1024 * 1024  # of the JSON text of one


class NewState(NamedTuple):
    """A state that is about to be written; `text` None deletes it."""

    name: str
    text: str | None
    expected_version: int | None = None

    @classmethod
    def of(cls, name: object, value: object, expected_version: object = None, argument: str = "value") -> NewState:
        """A value as it is going to be stored."""
        try:
            text, codec = encode(value)
            if codec == EXACT:
                check_finite(value)
        except InvalidItem as error:
            hint = "Pass dicts, lists, texts, numbers, booleans and None."
            raise InvalidOption(f"is not JSON. {error}", argument=argument, hint=hint) from error
        if len(text) > MAX_STATE_BYTES:
            size = f"{len(text):,} bytes of JSON; at most {MAX_STATE_BYTES:,} can be stored"
            raise TooLarge(
                f"The state {shown(name)} has {size}.",
                hint="Append what grows as items, and keep their position in the state.",
            )
        return cls(identifier("name", name), text.decode(), _version(expected_version))

    @classmethod
    def deleted(cls, name: object, expected_version: object = None) -> NewState:
        """A state that is to be deleted."""
        return cls(identifier("name", name), None, _version(expected_version))


def _version(value: object) -> int | None:
    if value is None:
        return None
    version = whole_number("expected_version", value)
    if version < 0:
        raise mismatch(InvalidOption, "a version, or 0 for a state that must not exist", value, "expected_version")
    return version


def new_states(states: object) -> tuple[NewState, ...]:
    """The option `states` of an append: values, or StateWrite, by name."""
    if states is None:
        return ()
    if not isinstance(states, Mapping):
        raise mismatch(InvalidOption, "a dict of values by name", states, "states")
    return tuple(
        NewState.of(name, value.value, value.expected_version, f"states[{shown(name)}]")
        if isinstance(value, StateWrite)
        else NewState.of(name, value, None, f"states[{shown(name)}]")
        for name, value in states.items()
    )


class StoredVersion(NamedTuple):
    """What is known of a state that was written before."""

    version: int
    exists: bool
    updated_at: datetime


def check_states(
    connection: Connection, ref: ConversationRef, states: Sequence[NewState]
) -> Mapping[str, StoredVersion]:
    """Refuse states, before any is written: StateConflict, or TooLarge for too many. Returns what is there."""
    rows = connection.execute(state_versions_of(), ref.parameters())
    found = {row.name: StoredVersion(row.version, bool(row.exists), row.updated_at) for row in rows}
    for state in states:
        current = _current(found, state.name)
        if state.expected_version not in {None, current}:
            raise StateConflict(state.name, state.expected_version or 0, current)
    names = {name for name, stored in found.items() if stored.exists}
    added = {state.name for state in states if state.text is not None} - names
    if added and len(names) + len(added) > MAX_STATES:
        problem = f"The conversation would have {len(names) + len(added):,} states; at most {MAX_STATES} can be stored."
        raise TooLarge(problem, hint="Delete some with delete_state(), or keep them in one JSON object.")
    return found


def _current(found: Mapping[str, StoredVersion], name: str) -> int:
    stored = found.get(name)
    return stored.version if stored is not None and stored.exists else 0


def write_states(
    connection: Connection,
    ref: ConversationRef,
    states: Sequence[NewState],
    now: datetime,
    found: Mapping[str, StoredVersion] | None = None,
) -> list[StoredVersion]:
    """Write states of a locked conversation, all or none, unless `found` says that they were checked.

    Returns what is there of each now.
    """
    if found is None:
        found = check_states(connection, ref, states)
    versions = [found[state.name].version + 1 if state.name in found else 1 for state in states]
    pairs = zip(states, versions, strict=True)
    rows: list[dict[str, Any]] = [
        ref.columns(name=state.name, version=min(version, MAX_NUMBER), value=state.text, updated_at=now)
        for state, version in pairs
    ]
    backends.check_sizes(connection, rows, "a state", ("value",))
    inserting.insert_or_replace(connection, models.conversation_states, rows, "version", "value", "updated_at")
    return [StoredVersion(row["version"], row["value"] is not None, now) for row in rows]


def delete_written(connection: Connection, ref: ConversationRef, state: NewState, now: datetime) -> bool:
    """Delete a state of a locked conversation; returns whether there was one.

    Its version stays, so that an earlier reader cannot overwrite a new one of that name. The versions of states that
    were deleted longest ago go, if there are many.
    """
    found = check_states(connection, ref, [state])
    if not _current(found, state.name):
        return False
    write_states(connection, ref, [state], now)
    deleted = sorted((stored.updated_at, name) for name, stored in found.items() if not stored.exists)
    if forgotten := [name for _, name in deleted[: max(0, len(deleted) + 1 - MAX_STATES)]]:
        connection.execute(state_removal(), ref.parameters(names=forgotten))
    return True


def find_state(handle: Handle, name: str) -> State | None:
    """The state of that name; see `Conversation.state`."""
    ref, wanted = handle.ref, identifier("name", name)
    states = handle.transactions.read_any(lambda connection: read_states(connection, ref, wanted))
    return states[0] if states else None


def list_states(handle: Handle, after: str | None, limit: int) -> list[State]:
    """The states of a conversation, by name; see `Conversation.states`."""
    ref, start, size = handle.ref, optional_identifier("after", after), page_size(limit)
    return handle.transactions.read_any(lambda connection: read_states(connection, ref, after=start, limit=size))


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


def read_states(
    connection: Connection, ref: ConversationRef, name: str | None = None, *, after: str | None = None, limit: int = 1
) -> list[State]:
    """The state of a name, or a page of all, in a transaction."""
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
