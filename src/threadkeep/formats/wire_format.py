"""A wire format by its modules, which are loaded when they are first needed.

Each format is a package with the same four modules: ``request`` (`render`), ``response`` (`parse_response`),
``reading`` (`parse_request` and `parse_turns`) and ``stream`` (`assembler`). Those in WITH_CACHES have ``prefixes``,
too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.context_caches import Prefixes
from threadkeep.domain.items import Item, item_from_object
from threadkeep.domain.wire import AS_IT_IS, Assembler, Call, Rendered, RenderOptions, Snapshot
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption
from threadkeep.formats.entries import snapshot_of
from threadkeep.formats.texts import with_valid_texts

if TYPE_CHECKING:
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session

WITH_CACHES: Final = frozenset({"gemini"})  # formats of providers whose context caches have names


class WireFormat:
    """The wire format of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._modules: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<WireFormat {self.name}>"

    def _module(self, name: str) -> Any:
        found = self._modules.get(name)
        if found is None:
            found = self._modules[name] = import_module(f"threadkeep.formats.{self.name}.{name}")
        return found

    def render(self, session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
        """Render a session, or a snapshot of stored items, as a request.

        Raises:
            CannotRender: no request that the provider would take can be made; LossError with `options.strict`.
        """
        snapshot, repairs = with_valid_texts(snapshot_of(session), self.name)
        found: Rendered = self._module("request").render(snapshot, options)
        if repairs:
            found.repairs += [one for one in repairs if one.position is not None and one.position <= found.head]
        return found

    def prefixes(self, session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Prefixes | None:
        """What of a request an explicit cache can hold; None where the provider or the request takes no such cache.

        Raises:
            CannotRender: no request that the provider would take can be made.
        """
        found: Prefixes | None = None
        if self.name in WITH_CACHES:
            found = self._module("prefixes").prefixes(session, options)
        return found

    def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
        """Read a provider's response body.

        Raises:
            CannotParse: it is none; ProviderError when it is an error that the provider sent.
        """
        try:
            found: Response = self._module("response").parse_response(body, headers)
        except (InvalidItem, InvalidOption) as error:
            raise CannotParse(f"The {self.name} body holds something that cannot be kept: {error}") from error
        return found

    def parse_request(self, payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
        """Read a provider request: a dict, JSON text, or an object of the vendor's SDK.

        `render` of the session gives the request back. `model` and `stream` say what the payload does not.

        Raises:
            CannotParse: it is no request of this format.
        """
        try:
            found: Session = self._module("reading").parse_request(payload, model=model, stream=stream)
        except (InvalidItem, InvalidOption) as error:
            raise CannotParse(f"The {self.name} request holds something that cannot be kept: {error}") from error
        return found

    def parse_turns(self, turns: Any, calls: Sequence[Call] = ()) -> list[list[Item]]:
        """Read what stands in the turn list of a request (or one element of it); the items of each turn.

        Args:
            turns: a turn, a list of turns, or JSON text of these.
            calls: the calls that the history has open, for outputs that do not name theirs.

        Raises:
            CannotParse: they are no turns of this format.
        """
        try:
            found = self._module("reading").parse_turns(turns, calls)
            return [[item_from_object(item) for item in turn] for turn in found]
        except (InvalidItem, InvalidOption) as error:
            raise CannotParse(f"The {self.name} turns hold something that cannot be kept: {error}") from error

    def assembler(self, headers: Mapping[str, str] | None = None) -> Assembler:
        """Something that puts the events of a stream together: `feed` each of them, then take `response`."""
        found: Assembler = self._module("stream").assembler(headers)
        return found
