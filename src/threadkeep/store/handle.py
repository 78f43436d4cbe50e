"""What a conversation knows of itself, whichever face it has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.tools import Tool, tools_from
from threadkeep.store.actions.opening import Opened
from threadkeep.store.contents import Contents
from threadkeep.store.place import Place
from threadkeep.store.plans import Plan, as_it_is
from threadkeep.store.state import State

T = TypeVar("T")


class Handle:
    """A conversation, pinned to one of its branches. Not to be shared between threads or tasks.

    `replayed` is True when an earlier call with the same idempotency key had created it.
    """

    replayed: bool = False

    def __init__(self, found: Opened, contents: Contents) -> None:
        self._found = found
        self._contents = contents

    @cached_property
    def _place(self) -> Place:
        return self._found.place()

    @cached_property
    def _state(self) -> State:
        return State(self._found)

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
        found: str | None = self._state.facts.external_id
        return found

    @property
    def user_id(self) -> str | None:
        """Whose conversation it is."""
        found: str | None = self._state.facts.user_id
        return found

    @property
    def title(self) -> str | None:
        """A title for people."""
        found: str | None = self._state.facts.title
        return found

    @property
    def labels(self) -> dict[str, str]:
        """The application's own labels; never sent to a provider."""
        text = self._state.facts.labels
        return {} if text is None else loads(text)

    @property
    def status(self) -> str:
        """``active`` or ``archived``."""
        found: str = self._state.facts.status
        return found

    @property
    def created_at(self) -> datetime:
        """When it was created, aware, in UTC."""
        found: datetime = self._state.facts.created_at
        return found

    @property
    def last_activity_at(self) -> datetime:
        """When it was last appended to, as far as this handle has read, aware, in UTC."""
        found: datetime = self._state.facts.last_activity_at
        return found

    @property
    def settings(self) -> JsonObject:
        """A copy of the session options that are set."""
        return dict(self._state.settings)

    @property
    def model(self) -> str | None:
        """The model that requests name."""
        return self._state.settings.get("model")

    @property
    def instructions(self) -> str | None:
        """The instructions that lead every request."""
        return self._state.settings.get("instructions")

    @property
    def tool_definitions(self) -> list[Tool]:
        """The tools, as values."""
        return tools_from(self._state.tools)

    @property
    def tools(self) -> list[JsonObject]:
        """A copy of the tool definitions, in order."""
        return list(self._state.tools)

    def _reading(self, action: Callable[..., Any], *arguments: Any, finish: Callable[[Any], T] = as_it_is) -> Plan[T]:
        return Plan(action, (self._place, *arguments), finish)

    def _writing(
        self, action: Callable[..., Any], *arguments: Any, finish: Callable[[Any], T] = as_it_is, is_keyed: bool = False
    ) -> Plan[T]:
        return Plan(action, (self._place, *arguments), finish, is_write=True, is_keyed=is_keyed)
