"""Writing states, small named JSON values beside a conversation: compared and swapped while it is locked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.dialects import check_sizes, insert_or_replace
from threadkeep.db.queries.annotations import state_removal, state_versions_of
from threadkeep.db.tables import conversation_states
from threadkeep.domain.annotations import StateWrite
from threadkeep.domain.jsontext import dumps
from threadkeep.domain.objects import mismatch, shown
from threadkeep.errors import InvalidItem, InvalidOption, StateConflict, TooLarge
from threadkeep.store.refs import ConversationRef
from threadkeep.store.validation import MAX_NUMBER, identifier, whole_number

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
            text = dumps(value)
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
    rows = connection.execute(state_versions_of(connection.dialect.name), ref.parameters())
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
    check_sizes(connection, rows, "a state", ("value",))
    connection.execute(insert_or_replace(connection, conversation_states, "version", "value", "updated_at"), rows)
    return [StoredVersion(row["version"], row["value"] is not None, now) for row in rows]


def delete_written(connection: Connection, ref: ConversationRef, state: NewState, now: datetime) -> bool:
    """Delete a state of a locked conversation; returns whether there was one.

    Its version stays, so that whoever read it before cannot overwrite a new one of that name. Those of the states that
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
