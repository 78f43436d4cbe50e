"""What a wire format is, and the table of those that are registered.

The formats themselves live in `threadkeep.formats`, whose registry puts them into this table: sessions and responses
can name a format without this layer knowing any. Every import of `threadkeep` comes through here, so this module
imports nothing that costs time.
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
    """A call of the history that has no output yet."""

    call_id: str
    name: str


class Format(Protocol):
    """A wire format: pure functions between sessions and a provider's JSON."""

    @property
    def name(self) -> str:
        """The format's name."""

    @property
    def signs(self) -> Signs:
        """How its JSON looks."""

    @property
    def error_keys(self) -> ErrorKeys | None:
        """How its provider spells errors, where no other provider does."""

    @property
    def has_context_caches(self) -> bool:
        """Whether its provider gives context caches names, which requests refer to."""

    def render(self, session: Session | Snapshot, options: RenderOptions = ...) -> Rendered:
        """Render a session as a request."""

    def prefixes(self, session: Session | Snapshot, options: RenderOptions = ...) -> Prefixes | None:
        """What of a request an explicit cache can hold; None where the provider or the request takes no such cache."""

    def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
        """Read a provider's response body."""

    def parse_request(self, payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
        """Read a provider request."""

    def parse_turns(self, turns: Any, calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
        """Read what stands in the turn list of a request; the items of each turn."""

    def assembler(self, headers: Mapping[str, str] | None = None) -> StreamAssembler:
        """Something that puts the events of a stream together."""


_loaders: Final[dict[str, Callable[[], Format]]] = {}
_formats: Final[dict[str, Format]] = {}


def register_format(name: str, load: Callable[[], Format]) -> None:
    """Make a format known under its name; `load` gives it when it is first asked for."""
    _loaders[name] = load
    _formats.pop(name, None)


def format_names() -> tuple[str, ...]:
    """The names of the registered formats, in the order of their registration."""
    return tuple(_loaders)


def get_format(name: str) -> Format:
    """The wire format of that name; UnknownFormat where there is none."""
    key: object = name
    if not isinstance(key, str) or key not in _loaders:
        raise UnknownFormat(name, sorted(_loaders))
    if key not in _formats:
        _formats[key] = _loaders[key]()
    return _formats[key]
