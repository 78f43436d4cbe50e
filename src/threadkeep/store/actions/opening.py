"""Opening a conversation: enough of it for a handle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from threadkeep.db.prepared import Record
from threadkeep.db.queries.conversations import FACTS_READER
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Imported
from threadkeep.errors import NotFound
from threadkeep.store.actions.conversations import Filter, NewConversation, create_many, list_rows
from threadkeep.store.actions.entries import Lineage, facts_of, lineage_of
from threadkeep.store.actions.keys import outcome_of, record
from threadkeep.store.attempts import Replayed
from threadkeep.store.contents import Contents
from threadkeep.store.place import TENANT_WIDE, Configuration, Once, Place, Scope

CONFIG_HASH, TOOL_SET_HASH, ACTIVE_BRANCH = map(FACTS_READER.place, ("config_hash", "tool_set_hash", "active_branch"))


@dataclass(slots=True)
class Opened:
    """A conversation as it was found: enough for a handle, no items yet; `configured` names its options and tools."""

    scope: Scope
    facts: Record
    settings: JsonObject
    tools: Sequence[JsonObject]
    branch: int
    forked: Lineage | None = None  # of a branch that was forked off
    shared: dict[str, Any] = field(default_factory=dict)  # what formats remember of these options and tools
    configured: Configuration = field(init=False)

    def __post_init__(self) -> None:
        tools = self.facts.tool_set_hash
        self.configured = bytes(self.facts.config_hash), None if tools is None else bytes(tools)

    @property
    def imported(self) -> Imported | None:
        """Where the conversation came from, when it was imported."""
        found = self.settings.get("imported")
        return None if found is None else Imported.from_dict(found)

    @property
    def lineage(self) -> Lineage:
        """What the branch is made of."""
        return Lineage((), self.facts.head_position) if self.forked is None else self.forked

    def place(self) -> Place:
        """Where it is."""
        return Place(self.scope, self.facts.id, public_id_text(bytes(self.facts.public_id)), self.branch)


def find(
    connection: Connection, scope: Scope, column: str, value: Any, contents: Contents, branch: int | None = None
) -> Opened | None:
    """A conversation by id, public_id or external_id, on its active branch or another; None when there is none."""
    facts = facts_of(connection, scope, column, value)
    return None if facts is None else opened(connection, scope, facts, contents, branch)


def get(
    connection: Connection, scope: Scope, column: str, value: Any, contents: Contents, branch: int | None = None
) -> Opened:
    """Like `find`.

    Raises:
        NotFound: there is no such conversation or branch.
    """
    found = find(connection, scope, column, value, contents, branch)
    if found is None:
        shown = public_id_text(value) if isinstance(value, bytes) else value
        raise NotFound(f"There is no conversation {shown!r} here. It was deleted, or belongs to somebody else.")
    return found


def opened(
    connection: Connection, scope: Scope, facts: Record, contents: Contents, branch: int | None = None
) -> Opened:
    """A conversation whose row was read."""
    number: int = facts.active_branch if branch is None else branch
    configured = contents.configured(connection, scope.tenant, facts.config_hash, facts.tool_set_hash)
    found = Opened(scope, facts, configured.settings, configured.tools, number, shared=configured.shared)
    if number:
        found.forked = lineage_of(connection, found.place(), facts)
    return found


def create_and_open(
    connection: Connection, scope: Scope, new: NewConversation, contents: Contents
) -> tuple[Opened, bool]:
    """Create a conversation; the second value says whether an earlier call with the same key had made it.

    Raises:
        InvalidOption: another conversation has its external_id.
        IdempotencyConflict: the key was used with other content.
    """
    outcome = outcome_of(connection, scope.tenant, TENANT_WIDE, new.once)
    if outcome is not None:
        public_id = bytes.fromhex(outcome["public_id"])
        raise Replayed((get(connection, scope, "public_id", public_id, contents), True))
    public_id = create_many(connection, scope, [new])[0]
    return get(connection, scope, "public_id", public_id, contents), False


def create_batch(connection: Connection, scope: Scope, new: Sequence[NewConversation], once: Once | None) -> list[str]:
    """Create conversations; returns the ids that users see.

    Raises:
        InvalidOption, IdempotencyConflict: nothing was written.
    """
    outcome = outcome_of(connection, scope.tenant, TENANT_WIDE, once)
    if outcome is not None:
        raise Replayed(outcome["ids"])
    ids = [public_id_text(public_id) for public_id in create_many(connection, scope, new)]
    record(connection, scope.tenant, TENANT_WIDE, once, datetime.now(UTC), kind="conversations", ids=ids)
    return ids


def list_and_open(connection: Connection, scope: Scope, wanted: Filter, contents: Contents) -> list[Opened]:
    """A page of conversations; their options and tools are read in a few statements, if they are not known."""
    rows = list_rows(connection, scope, wanted)
    settings = contents.several_settings(connection, scope.tenant, {row[CONFIG_HASH] for row in rows})
    return [
        Opened(scope, facts, settings[row[CONFIG_HASH]], (), 0)
        if row[TOOL_SET_HASH] is None and not row[ACTIVE_BRANCH]
        else opened(connection, scope, facts, contents)
        for row, facts in zip(rows, FACTS_READER.records(connection.dialect, rows), strict=True)
    ]
