"""What assemblers have in common: a stream is put together into the body that the provider would have sent whole.

A format's own assembler only knows how an event changes the body; reading the body is the work of `parse_response`, so
that a streamed response and the same response in one piece give the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.formats import format_names, get_format
from threadkeep.domain.items import changed_item
from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject, canonical, check_depth, loads, shallow
from threadkeep.domain.objects import body_object, event_text
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, FormatError, InvalidItem, InvalidOption
from threadkeep.formats.canonical.entries import call_id_of
from threadkeep.formats.canonical.keys import cut_status
from threadkeep.formats.shared.endings import with_cut_call
from threadkeep.formats.shared.pairing import CALLS
from threadkeep.formats.shared.provider_errors import shortened
from threadkeep.formats.shared.usage import without_output

if TYPE_CHECKING:
    from threadkeep.formats.base import Signs

BROKEN_OFF: Final = {"reason": "stream_ended"}  # why a response whose stream broke off is incomplete

LAST: Final = object()  # stands for the last call that has come, whatever its id
NOT_KEPT: Final = "threadkeep:not_kept"  # key of an event of which something is kept as text, or not at all: why
_DEEP: Final = MAX_DEPTH - 10  # a body has a few levels above the input of a call

Parse = Callable[[Any, Mapping[str, str] | None], Response]


class StreamAssembler:
    """Puts the events of a stream together. Subclasses say how an event changes the body."""

    def __init__(self, name: str, parse: Parse, headers: Mapping[str, str] | None = None) -> None:
        self.name, self._parse, self._headers = name, parse, headers
        self._signs = get_format(name).signs
        self.has_events = False
        self.has_output = False  # whether a part of the output has come
        self.problems: list[str] = []  # why events were not taken in as they came
        self.is_ended = False  # whether the provider said that the response is whole
        self.error: Any = None  # the provider's error object, where an event stated one

    @property
    def body(self) -> JsonObject:
        """The body that the provider would have sent without streaming, as far as it has come; not to be changed."""
        raise NotImplementedError

    def add(self, event: JsonObject) -> None:
        """Take an event into the body."""
        raise NotImplementedError

    def output_in(self, event: JsonObject) -> bool:  # noqa: ARG002 - of a format that tells no events apart
        """Whether an event brings a part of the output."""
        return True

    @property
    def is_counted(self) -> bool:
        """Whether the provider has counted the whole output, as far as it reports usage."""
        return self.is_ended

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls that have not come whole, as the provider gave them; `LAST` is the last call that came.

        Calls whose arguments are no JSON yet need not be named.
        """
        return ()

    def error_in(self, event: JsonObject) -> Any:
        """The error that an event states; None when it states none."""
        return event.get("error") or None

    def feed(self, event: Any) -> None:
        """Take in the next event: a dict, JSON text, a line of server-sent events, or an SDK's object.

        Raises:
            CannotParse: it is not an event, one of another format, or nested too deeply.
        """
        if (event := event_text(event)) == b"":
            return
        body = event if isinstance(event, dict) else body_object(event)
        if not isinstance(body, dict):
            problem = f"A {self.name} event is {shortened(body)}, not a JSON object."
            raise CannotParse(problem, hint="Feed the events one at a time.")
        if not _is_event_of(body, self._signs):
            others = [name for name in format_names() if _is_event_of(body, get_format(name).signs)]
            if others:  # otherwise the whole response would be passed over in silence
                raise CannotParse(
                    f"The event is not of the format {self.name} but of {' or '.join(others)}: {shortened(body)}",
                    hint=f"Name the format {' or '.join(map(repr, others))}.",
                )
        if NOT_KEPT in body:
            body = dict(body)
            self.problems.append(str(body.pop(NOT_KEPT)))
        if (error := self.error_in(body)) is not None:
            self.error = error
        try:
            self.add(body)
        except InvalidItem as error:
            raise CannotParse(f"The {self.name} event cannot be kept: {error}") from error
        self.has_events = True
        self.has_output = self.has_output or self.output_in(body)

    @property
    def partial(self) -> Response:
        """The response as far as it has come, of status in_progress."""
        response = _with_open_calls(self._read(is_partial=True), self.open_calls)
        return response.model_copy(update={"status": "in_progress"})

    @property
    def response(self) -> Response:
        """The whole response; one whose stream broke off is incomplete, one that ended in an error failed."""
        response = self._read(is_partial=self.error is not None or not self.is_ended)
        if not self.is_ended:
            response = _with_open_calls(response, self.open_calls)
        if self.error is not None:
            response = response.model_copy(update={"status": "failed", "error": response.error or self.error})
        elif not self.is_ended or not response.is_final:
            details = response.incomplete_details or BROKEN_OFF
            response = response.model_copy(update={"status": "incomplete", "incomplete_details": details})
        return with_cut_call(response)

    def _read(self, *, is_partial: bool) -> Response:
        response = self._parsed(is_partial=is_partial)
        if response.usage is None or self.is_counted:
            return response
        return response.model_copy(update={"usage": without_output(response.usage)})

    def _parsed(self, *, is_partial: bool) -> Response:
        try:
            return self._parse(self.body, self._headers)
        except FormatError as error:
            if not isinstance(error.__cause__, InvalidItem | InvalidOption):
                if not is_partial:
                    raise
                return Response(format=self.name)  # nothing has come yet that could be read
        return self._parse(shallow(self.body), self._headers)  # something is nested too deeply


def _with_open_calls(response: Response, call_ids: Collection[object]) -> Response:
    """A response whose calls that have not come whole say so: nobody may run them."""
    call_ids = [call_id for call_id in call_ids if call_id is not None]
    if not call_ids:
        return response
    output, is_last = list(response.output), True
    for index in range(len(output) - 1, -1, -1):
        thing = output[index].to_object()
        if thing["type"] in CALLS and (call_id_of(thing) in call_ids or (is_last and LAST in call_ids)):
            output[index] = changed_item(output[index], status=cut_status(thing["type"]))
        is_last = is_last and thing["type"] not in CALLS
    return response.model_copy(update={"output": output})


def input_of(text: str) -> Any:
    """The input of a call, which came as text; the text where it is not JSON (yet), or too deep for a body of JSON."""
    try:
        value = loads(text)
        if text.count("[") + text.count("{") > _DEEP:
            check_depth(value, _DEEP)
    except ValueError:  # InvalidItem, too
        return text
    return value


def _is_event_of(event: JsonObject, signs: Signs) -> bool:
    """Whether an event is plainly of the format with these signs."""
    if str(event.get("type")).startswith(signs.event_types):
        return True
    return any(isinstance(event.get(key), kind) for key, kind in signs.events.items())


class GrowingList(list[Any]):
    """A list of JSON values that finds elements without going through all; `note` follows a change of an element."""

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        super().__init__()
        self._last: dict[tuple[str, Any], int] = {}  # key and value -> where the last element is that has it
        self._texts: list[bytes] = []  # of the elements, as far as they were asked for
        self._counts: Counter[bytes] = Counter()
        self._changed: set[int] = set()
        for element in elements:
            self.append(element)

    def append(self, element: Any) -> None:
        """Add an element."""
        super().append(element)
        self.note(len(self) - 1)

    def note(self, place: int) -> None:
        """Take notice of a change of the element at a place."""
        self._changed.add(place)
        if isinstance(self[place], dict):
            for key in ("index", "id"):
                value = self[place].get(key)
                if isinstance(value, str | int):
                    self._last[key, value] = max(place, self._last.get((key, value), 0))

    def find(self, key: str, value: Any) -> int | None:
        """Where the last object is that has an `index` or `id`."""
        place = self._last.get((key, value)) if isinstance(value, str | int) else None
        return place if place is None or self[place].get(key) == value else None

    def holds(self, element: Any) -> bool:
        """Whether there is an equal element."""
        for place in sorted(self._changed):
            text = canonical(self[place])
            if place < len(self._texts):
                self._counts[self._texts[place]] -= 1
                self._texts[place] = text
            else:
                self._texts.append(text)
            self._counts[text] += 1
        self._changed.clear()
        return self._counts[canonical(element)] > 0


def growing(holder: dict[str, Any], key: str) -> GrowingList:
    """The list under a key, as one that grows."""
    known = holder.get(key)
    if not isinstance(known, GrowingList):
        known = holder[key] = GrowingList(known if isinstance(known, list) else ())
    return known
