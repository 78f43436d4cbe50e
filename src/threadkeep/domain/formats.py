"""What a wire format is, and the table of registered formats.

The formats themselves live in `threadkeep.formats`, whose registry adds them to this table: sessions and responses can
name a format without this layer knowing any. Every import of `threadkeep` imports this module, so it imports nothing
slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from threadkeep.errors import UnknownFormat

if TYPE_CHECKING:
    from threadkeep.domain.context_caches import Prefixes
    from threadkeep.domain.items import Item
    from threadkeep.domain.rendering import Rendered, RenderOptions
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session
    from threadkeep.formats import FormatName as FormatName  # noqa: PLC0414 - for this layer

    # Types alone: what this layer runs is below the formats.
    from threadkeep.formats.base import ErrorKeys, Signs
    from threadkeep.formats.canonical.snapshots import Snapshot
    from threadkeep.formats.shared.streams import StreamAssembler


class OpenCall(NamedTuple):
    """A function call in the history that has no output yet."""

    call_id: str
    name: str


class Format(Protocol):
    """A wire format: pure functions between sessions and a provider's JSON."""

    @property
    def name(self) -> str:
        """The format's name."""

    @property
    def signs(self) -> Signs:
        """How to recognize its JSON."""

    @property
    def error_keys(self) -> ErrorKeys | None:
        """How its provider spells errors, if it differs from all other providers."""

    @property
    def has_context_caches(self) -> bool:
        """Whether its provider has named context caches that requests refer to."""

    def render(self, session: Session | Snapshot, options: RenderOptions = ...) -> Rendered:
        """Render a session as a request."""

    def prefixes(self, session: Session | Snapshot, options: RenderOptions = ...) -> Prefixes | None:
        """Return what an explicit cache can hold of a request; None if the provider or the request cannot use one."""

    def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
        """Parse a provider's response body."""

    def parse_request(self, payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
        """Parse a provider request."""

    def parse_turns(self, turns: Any, calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
        """Parse the contents of a request's turn list; return the items of each turn."""

    def assembler(self, headers: Mapping[str, str] | None = None) -> StreamAssembler:
        """Return an assembler, which combines the events of a stream into a response."""


_loaders: Final[dict[str, Callable[[], Format]]] = {}
_formats: Final[dict[str, Format]] = {}


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
