"""Wire formats: pure functions between conversations and the JSON of providers.

>>> get_format("chat_completion").name
'chat_completion'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.wire import FORMATS, Format, Rendered, RenderOptions, Snapshot, get_format
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption
from threadkeep.formats.chat_completion import request as chat_completion_request
from threadkeep.formats.chat_completion import response as chat_completion_response
from threadkeep.formats.open_responses import request as open_responses_request
from threadkeep.formats.open_responses import response as open_responses_response

if TYPE_CHECKING:
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session

__all__ = ["FORMATS", "Format", "WireFormat", "get_format"]

DEFAULTS: Final = RenderOptions()


class WireFormat:
    """A wire format by its functions."""

    def __init__(
        self,
        name: str,
        render: Callable[[Session | Snapshot, RenderOptions], Rendered],
        parse_response: Callable[[Any, Mapping[str, str] | None], Response],
    ) -> None:
        self.name = name
        self._render, self._parse_response = render, parse_response

    def __repr__(self) -> str:
        return f"<WireFormat {self.name}>"

    def render(self, session: Session | Snapshot, options: RenderOptions = DEFAULTS) -> Rendered:
        """Render a session, or a snapshot of stored items, as a request.

        Raises:
            CannotRender: no request that the provider would take can be made; LossError with `options.strict`.
        """
        return self._render(session, options)

    def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
        """Read a provider's response body.

        Raises:
            CannotParse: it is none; ProviderError when it is an error that the provider sent.
        """
        try:
            return self._parse_response(body, headers)
        except (InvalidItem, InvalidOption) as error:
            raise CannotParse(f"The {self.name} body holds something that cannot be kept: {error}") from error


for _format in (
    WireFormat("open_responses", open_responses_request.render, open_responses_response.parse_response),
    WireFormat("chat_completion", chat_completion_request.render, chat_completion_response.parse_response),
):
    FORMATS[_format.name] = _format
