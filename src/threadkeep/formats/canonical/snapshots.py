"""All that a request is rendered from, of a stored conversation or of a session."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import mismatch
from threadkeep.domain.rendering import ImportInfo
from threadkeep.domain.session import Session
from threadkeep.errors import InvalidOption
from threadkeep.formats.canonical.entries import Entry, entry_of


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the provider holds of a conversation: its newest response, and where on our side that response ends."""

    previous_response_id: str | None
    boundary: int  # position of the last item that the provider has; -1 when it has none


@dataclass(slots=True)
class Snapshot:
    """All that a request is rendered from: options, tools and the items of one branch, in order."""

    settings: JsonObject  # session options by name; unset ones are absent
    tools: Sequence[JsonObject]
    entries: Sequence[Entry]
    state: ServerState | None = None
    imported: ImportInfo | None = None
    memo: dict[str, Any] | None = field(default=None, compare=False)  # what formats remember of these very items
    shared: dict[str, Any] = field(default_factory=dict, compare=False)  # … and of these options and tools
    turns_before: int = 0  # how many turns (see `windowed`) lie before `entries`, of which only the end was read
    gaps: Collection[int] = frozenset()  # positions of a session's items whose answer lacks what was before them
    configured: tuple[bytes, bytes | None] | None = None  # the hashes of options and tools that are stored


def snapshot_of(session: Session | Snapshot) -> Snapshot:
    """What a request of this session is rendered from; a snapshot is returned as it is."""
    if isinstance(session, Snapshot):
        return session
    if not isinstance(session, Session):
        hint = "Pass a Session; of a conversation, what its session() returns, or call its render()."
        raise mismatch(InvalidOption, "a Session", session, "session", hint)
    settings = {name: value for name, value in session.settings.items() if value is not None}
    entries = [
        entry_of(item.to_object(), position=position, turn=turn, maker=maker)
        for position, (item, turn, maker) in enumerate(zip(session.items, session.turns, session.makers, strict=True))
    ]
    return Snapshot(
        settings=settings,
        tools=session.tools,
        entries=entries,
        state=initial_state(settings, session.response_boundary - 1),
        imported=session.imported,
        memo={},
        gaps=session.gaps,
    )


def initial_state(settings: JsonObject, boundary: int = -1) -> ServerState | None:
    """The server state that the settings name; None when they name none."""
    previous = settings.get("previous_response_id")
    if previous is None and settings.get("conversation") is None:
        return None
    return ServerState(previous_response_id=previous, boundary=boundary)
