"""What assemblers have in common: a stream is put together into the body that the provider would have sent whole.

A format's own assembler only knows how an event changes the body; reading the body is the work of `parse_response`, so
that a streamed answer and the same answer in one piece give the same response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response, body_object
from threadkeep.errors import CannotParse, FormatError, ProviderError
from threadkeep.formats.envelopes import other_stream, provider_error, shortened

BROKEN_OFF: Final = {"reason": "stream_ended"}  # why a response whose stream broke off is incomplete

Parse = Callable[[Any, Mapping[str, str] | None], Response]


class StreamAssembler:
    """Puts the events of a stream together. Subclasses say how an event changes the body.

    Attributes:
        is_ended: whether the provider said that the answer is whole.
        error: the error that an event told, as the provider's error object; None when there was none.
    """

    def __init__(self, name: str, parse: Parse, headers: Mapping[str, str] | None = None) -> None:
        self._name, self._parse, self._headers = name, parse, headers
        self.is_ended = False
        self.error: Any = None

    @property
    def body(self) -> JsonObject:
        """The body that the provider would have sent without streaming, as far as it has come; not to be changed."""
        raise NotImplementedError

    def add(self, event: JsonObject) -> None:
        """Take an event into the body."""
        raise NotImplementedError

    def error_in(self, event: JsonObject) -> Any:
        """The error that an event tells, None when it tells none."""
        return event.get("error") or None

    def feed(self, event: Any) -> None:
        """Take in the next event: a dict, JSON text, or an SDK's object.

        Raises:
            CannotParse: it is no event, or one of another format.
        """
        found = body_object(event)
        if not isinstance(found, dict):
            raise CannotParse(f"A {self._name} event is {shortened(found)}, not a JSON object. Feed events one by one.")
        other = other_stream(found, self._name)
        if other is not None:  # else the whole answer would be passed over in silence
            raise CannotParse(f"This is no {self._name} event but one of {other}; name that format: {shortened(found)}")
        error = self.error_in(found)
        if error is not None:
            self.error = error
        self.add(found)

    @property
    def partial(self) -> Response:
        """The response as far as it has come, of status in_progress."""
        return self._read().model_copy(update={"status": "in_progress"})

    @property
    def response(self) -> Response:
        """The whole response; one whose stream broke off is incomplete, one that ended in an error failed."""
        found = self._read()
        if self.error is not None:
            return found.model_copy(update={"status": "failed", "error": found.error or self.error})
        if not self.is_ended:
            details = found.incomplete_details or BROKEN_OFF
            return found.model_copy(update={"status": "incomplete", "incomplete_details": details})
        return found

    def _read(self) -> Response:
        try:
            return self._parse(self.body, self._headers)
        except FormatError:  # nothing has come yet that could be read
            return Response(format=self._name)


def told_error(error: Any) -> ProviderError:
    """The error that an event told, as an exception."""
    envelope = {"error": error}
    return provider_error(envelope) or ProviderError(shortened(error))
