"""What a conversation knows of itself, whichever face it has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.objects import json_copy
from threadkeep.domain.options import OptionAttributes
from threadkeep.domain.tools import Tool, tools_from
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.opening import Opened
from threadkeep.store.contents import Contents
from threadkeep.store.endings import LeftBehind
from threadkeep.store.place import Place
from threadkeep.store.plans import Plan, as_it_is
from threadkeep.store.state import State

T = TypeVar("T")
KEPT_ASIDE: Final = frozenset({"response_boundary", "imported"})  # kept with the options, and none of them


class Handle(OptionAttributes):
    """A conversation, pinned to one of its branches. Best one per thread or task; a shared one may read things twice.

    Session options can be read as attributes (``conversation.temperature``); `update` changes them. `replayed` is True
    when an earlier call with the same idempotency key had created it.
    """

    replayed: bool = False
    _remembers = True  # whether what was read stays true: not inside the caller's transaction

    def __init__(self, found: Opened, contents: Contents) -> None:
        self._found = found
        self._contents = contents
        self._place_found: Place | None = None
        self._remembered: list[State] = []

    @property
    def _place(self) -> Place:
        place = self._place_found
        if place is None:  # most of those in a list are never asked
            place = self._place_found = self._found.place()
        return place

    @property
    def _state(self) -> State:
        """What it remembers, once that is asked for; of threads that ask at once, the first one makes it."""
        if not self._remembered:
            self._remembered.append(State(self._found, self._contents.memories if self._remembers else None))
        return self._remembered[0]

    def _assign_option(self, name: str, value: object) -> None:  # noqa: ARG002 - what `Setting` calls
        """Refuse an assignment, which would store nothing.

        Raises:
            InvalidOption: always.
        """
        raise InvalidOption(f"{name} cannot be assigned, which would store nothing. Call update({name}=...).")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} branch {self.branch}>"

    @property
    def id(self) -> str:
        """The id to keep: ``conv_`` and 32 hexadecimal digits."""
        return self._place.public_id

    @property
    def branch(self) -> int:
        """The number of the branch this handle is on."""
        return self._place.branch

    @property
    def head(self) -> int:
        """The position of the last item on this branch that the handle knows of; -1 when there is none."""
        return self._state.head

    @property
    def external_id(self) -> str | None:
        """The application's own id."""
        found: str | None = self._state.found.facts.external_id
        return found

    @property
    def user_id(self) -> str | None:
        """Whose conversation it is."""
        found: str | None = self._state.found.facts.user_id
        return found

    @property
    def title(self) -> str | None:
        """A title for people."""
        found: str | None = self._state.found.facts.title
        return found

    @property
    def labels(self) -> dict[str, str]:
        """The application's own labels; never sent to a provider."""
        text = self._state.found.facts.labels
        return {} if text is None else loads(text)

    @property
    def status(self) -> str:
        """``active`` or ``archived``."""
        found: str = self._state.found.facts.status
        return found

    @property
    def created_at(self) -> datetime:
        """When it was created, aware, in UTC."""
        found: datetime = self._state.found.facts.created_at
        return found

    @property
    def last_activity_at(self) -> datetime:
        """When it was last appended to, as far as this handle has read, aware, in UTC."""
        found: datetime = self._state.found.facts.last_activity_at
        return found

    @property
    def settings(self) -> JsonObject:
        """A copy of the session options that are set."""
        found = self._state.found.settings
        return {name: json_copy(value, name) for name, value in found.items() if name not in KEPT_ASIDE}

    @property
    def _model(self) -> str | None:
        """The model that is asked, without a copy of all options."""
        found: str | None = self._state.found.settings.get("model")
        return found

    @property
    def tool_definitions(self) -> list[Tool]:
        """The tools, as values."""
        return tools_from(self._state.found.tools)

    @property
    def tools(self) -> list[JsonObject]:
        """A copy of the tool definitions, in order."""
        return [{key: json_copy(value, key) for key, value in tool.items()} for tool in self._state.found.tools]

    def _reading(self, action: Callable[..., Any], *arguments: Any, finish: Callable[[Any], T] = as_it_is) -> Plan[T]:
        return Plan(action, (self._place, *arguments), finish)

    def _writing(
        self, action: Callable[..., Any], *arguments: Any, finish: Callable[[Any], T] = as_it_is, is_keyed: bool = False
    ) -> Plan[T]:
        endings = LeftBehind(self._contents.prices)
        return Plan(action, (self._place, *arguments), finish, is_write=True, is_keyed=is_keyed, endings=endings)
