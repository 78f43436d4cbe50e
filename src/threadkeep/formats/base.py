"""What a wire format is: its declaration, which is its package's `FORMAT`, and its rooms.

Each format is a package with the same rooms, of which it may lack two. A room is loaded when its function is first
asked for, and from then on the function is an attribute of the format: nothing stands in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, NoReturn

from threadkeep.errors import CannotParse

# function of a format, as `threadkeep.domain.formats.Format` describes it -> the room that has it
ROOMS: Final = {
    "render": "request",
    "parse_response": "parse_response",
    "parse_request": "parse_request",
    "parse_turns": "parse_request",
    "assembler": "stream",  # not where the responses are never streamed
    "prefixes": "context_caches",  # only where the provider gives its context caches names
}


@dataclass(frozen=True, slots=True)
class Signs:
    """How a format's JSON looks, so that an error about a body of another format can name that format."""

    turns: str  # the key of a request that holds its history
    body: Mapping[str, type]  # keys that only its response bodies have -> the type of their values
    events: Mapping[str, type] = field(default_factory=dict)  # the same for the events of its streams
    event_types: tuple[str, ...] = ()  # how the types of its events begin


@dataclass(frozen=True, slots=True)
class ErrorKeys:
    """Where a provider's error bodies say what happened, beyond the shapes that all formats know."""

    holders: tuple[str, ...]  # keys of objects that may hold the others; these may also stand in the body itself
    type: str  # the key of the kind of error
    code: str
    messages: tuple[str, ...]  # keys of the sentence for people; the first one with a value counts


@dataclass(frozen=True)
class Format:
    """A wire format: pure functions between sessions and a provider's JSON, see `threadkeep.domain.formats.Format`."""

    name: str
    package: str = field(repr=False)  # where its rooms are
    signs: Signs = field(repr=False)
    error_keys: ErrorKeys | None = field(default=None, repr=False)  # where no other provider spells errors so
    has_streams: bool = True
    has_context_caches: bool = False  # whether its provider gives context caches names, which requests refer to

    def __getattr__(self, name: str) -> Any:
        """A function of a room, which is an attribute from then on."""
        if name not in ROOMS:
            raise AttributeError(f"A format has no {name!r}.", name=name, obj=self)
        if name == "assembler" and not self.has_streams:
            function: Any = self._no_assembler
        elif name == "prefixes" and not self.has_context_caches:
            function = _no_prefixes
        else:
            function = getattr(import_module(f"{self.package}.{ROOMS[name]}"), name)
        self.__dict__[name] = function
        return function

    def _no_assembler(self, _headers: object = None) -> NoReturn:
        raise CannotParse(f"The format {self.name} has no streams.", hint="Parse the whole body with parse_response().")


def _no_prefixes(_session: object, _options: object = None) -> None:
    return None
