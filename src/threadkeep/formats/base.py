"""What a wire format is: its declaration, which is its package's `FORMAT`, and its rooms.

Each format is a package with the same rooms: ``request`` (`render`), ``parse_request`` (`parse_request`,
`parse_turns`), ``parse_response`` (`parse_response`) and ``stream`` (`assembler`), which a format may lack. A format
whose provider gives its context caches names has ``context_caches`` (`prefixes`), too. A room is loaded when its
function is first asked for, and from then on the function is an attribute of the format: nothing stands in between.

What is not of the format, or cannot be stored, is a CannotParse to all that read, and an error body a ProviderError to
`parse_response`. `render` raises CannotRender where there is no model, nothing to send, or settings exclude each other,
and LossError where `options.strict` is set and the request is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from threadkeep.errors import CannotParse

if TYPE_CHECKING:
    from threadkeep.domain.context_caches import Prefixes
    from threadkeep.domain.items import Item
    from threadkeep.domain.rendering import Rendered
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session
    from threadkeep.formats.shared.streams import StreamAssembler


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

    @cached_property
    def render(self) -> Callable[..., Rendered]:
        """`render` of the room ``request``."""
        return self._function("request", "render")

    @cached_property
    def parse_response(self) -> Callable[..., Response]:
        """`parse_response` of its room."""
        return self._function("parse_response", "parse_response")

    @cached_property
    def parse_request(self) -> Callable[..., Session]:
        """`parse_request` of its room."""
        return self._function("parse_request", "parse_request")

    @cached_property
    def parse_turns(self) -> Callable[..., list[list[Item]]]:
        """`parse_turns` of the room ``parse_request``."""
        return self._function("parse_request", "parse_turns")

    @cached_property
    def assembler(self) -> Callable[..., StreamAssembler]:
        """`assembler` of the room ``stream``."""
        return self._function("stream", "assembler") if self.has_streams else self._no_assembler

    @cached_property
    def prefixes(self) -> Callable[..., Prefixes | None]:
        """`prefixes` of the room ``context_caches``."""
        return self._function("context_caches", "prefixes") if self.has_context_caches else _no_prefixes

    def _function(self, room: str, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(f"{self.package}.{room}"), name)
        return function

    def _no_assembler(self, _headers: object = None) -> NoReturn:
        raise CannotParse(f"The format {self.name} has no streams.", hint="Parse the whole body with parse_response().")


def _no_prefixes(_session: object, _options: object = None) -> None:
    return None
