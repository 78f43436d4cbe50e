"""What a wire format is, and the table of registered formats.

The registry in `threadkeep.formats` fills the table: this layer knows no format. Every import of `threadkeep` imports
this module, so it imports nothing slow.

Each format is a package with the same rooms (`_ROOMS`); it may lack ``stream`` and ``context_caches``. A room is loaded
when its function is first asked for, and from then on the function is an attribute of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from threadkeep.errors import CannotParse, InvalidOption, UnknownFormat

if TYPE_CHECKING:
    from threadkeep.domain.context_caches import Prefixes
    from threadkeep.domain.items import Item
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.rendering import Rendered, RenderOptions
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session
    from threadkeep.domain.usage import Usage

    # Types alone: what this layer runs is below the formats.
    from threadkeep.formats import FormatName as FormatName  # noqa: PLC0414 - for this layer
    from threadkeep.formats.base import ErrorKeys, MediaUrls, Signs
    from threadkeep.formats.canonical.snapshots import Snapshot
    from threadkeep.formats.shared.streams import StreamAssembler


class OpenCall(NamedTuple):
    """A function call in the history that has no output yet."""

    call_id: str
    name: str


# function of a format -> the room it is in
_ROOMS: Final = {
    "render": "request",
    "prefixes": "context_caches",
    "parse_response": "parse_response",
    "usage_of": "parse_response",
    "parse_request": "parse_request",
    "parse_turns": "parse_request",
    "assembler": "stream",
}


class Format:
    """A wire format: pure functions between sessions and a provider's JSON.

    What is not of the format, or cannot be stored, is a CannotParse to all that read, and an error body a ProviderError
    to `parse_response`. `render` raises CannotRender where there is no model, nothing to send, or settings exclude each
    other, and LossError where `options.strict` is set and the request is not exact.
    """

    def __init__(
        self,
        name: str,
        package: str,
        signs: Signs,
        *,
        error_keys: ErrorKeys | None = None,
        media_urls: MediaUrls | None = None,
        has_streams: bool = True,
        has_context_caches: bool = False,
        sent_by: str | None = "threadkeep.formats.shared.sending",
    ) -> None:
        self.name: Final = name
        self.package: Final = package  # where its rooms are
        self.signs: Final = signs
        self.error_keys: Final = error_keys  # where no other provider spells errors so
        self.media_urls: Final = media_urls  # None: media are sent as they are
        self.has_streams: Final = has_streams
        # whether its provider gives context caches names, which requests refer to
        self.has_context_caches: Final = has_context_caches
        self.sent_by: Final = sent_by  # the module that makes arguments for SDKs; None: no SDK sends its requests

    def __repr__(self) -> str:
        return f"Format({self.name!r})"

    if TYPE_CHECKING:

        def render(self, session: Session | Snapshot, options: RenderOptions = ...) -> Rendered:
            """Render a session as a request."""

        def prefixes(self, session: Session | Snapshot, options: RenderOptions = ...) -> Prefixes | None:
            """Return what an explicit cache can hold of a request; None if there can be none."""

        def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
            """Parse a provider's response body."""

        def usage_of(self, usage: JsonObject) -> Usage:
            """Read a provider's usage object."""

        def parse_request(self, payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
            """Parse a provider request."""

        def parse_turns(self, turns: Any, calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
            """Parse the contents of a request's turn list; return the items of each turn."""

        def assembler(self, headers: Mapping[str, str] | None = None) -> StreamAssembler:
            """Return an assembler, which combines the events of a stream into a response."""

        def arguments(self, rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> JsonObject:
            """Return the arguments with which a method of an SDK sends a request."""

    else:

        def __getattr__(self, name: str) -> Any:
            if name not in _ROOMS and name != "arguments":
                raise AttributeError(f"A format has no attribute {name!r}.")
            function = self.__dict__[name] = self._function(name)
            return function

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "arguments":
            return self._no_arguments if self.sent_by is None else import_module(self.sent_by).arguments
        if name == "assembler" and not self.has_streams:
            return self._no_assembler
        if name == "prefixes" and not self.has_context_caches:
            return lambda _session, _options=None: None
        function: Callable[..., Any] = getattr(import_module(f"{self.package}.{_ROOMS[name]}"), name)
        return function

    def _no_arguments(self, *_: object) -> None:
        raise InvalidOption(f"No method of an SDK sends requests of the format {self.name}.", argument="method")

    def _no_assembler(self, _headers: object = None) -> None:
        raise CannotParse(f"The format {self.name} has no streams.", hint="Parse the whole body with parse_response().")


_loaders: Final[dict[str, Callable[[], Format]]] = {}
_formats: Final[dict[str, Format]] = {}


def set_format_name(names: Any) -> None:
    """Let annotations find `FormatName` here: the type of the names of the formats, which stand above this layer."""
    globals()["FormatName"] = names


def register_format(name: str, load: Callable[[], Format]) -> None:
    """Register a format by name; `load` provides it when it is first requested."""
    _loaders[name] = load
    _formats.pop(name, None)


def format_names() -> tuple[str, ...]:
    """Return the names of the registered formats, in order of registration."""
    return tuple(_loaders)


def get_format(name: str) -> Format:
    """Return the wire format with that name; raise UnknownFormat if there is none."""
    key: object = name
    if not isinstance(key, str) or key not in _loaders:
        raise UnknownFormat(name, sorted(_loaders))
    if key not in _formats:
        _formats[key] = _loaders[key]()
    return _formats[key]
