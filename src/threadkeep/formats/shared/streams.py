"""What assemblers have in common: a stream is put together into the body that the provider would have sent whole.

A format's own assembler only knows how an event changes the body; reading the body is the work of `parse_response`, so
that a streamed response and the same response in one piece give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.formats import format_names, get_format
from threadkeep.domain.items import Item, changed_item
from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject, check_depth, loads, shallow
from threadkeep.domain.objects import body_object, event_text, is_done
from threadkeep.domain.other_formats import other_event
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
        self.is_over = False  # whether nothing can follow what has come
        self.error: Any = None  # the provider's error object, where an event stated one
        self._settled: list[Item] = []  # the items of the elements that are settled, for `partial`
        self._settled_count = 0  # of elements

    @property
    def body(self) -> JsonObject:
        """The body that the provider would have sent without streaming, as far as it has come; not to be changed."""
        raise NotImplementedError

    def add(self, event: JsonObject) -> None:
        """Take an event into the body."""
        raise NotImplementedError

    def is_last(self, event: JsonObject) -> bool:  # noqa: ARG002 - of a format whose usage may follow
        """Whether nothing of the response can follow an event."""
        return False

    @property
    def element_count(self) -> int:
        """How many elements of the output have come (blocks, parts or calls); 0 where they are only read together."""
        return 0

    def is_whole(self, element: int) -> bool:  # noqa: ARG002 - of a format whose elements are only read together
        """Whether the element with this index in the output will not grow."""
        return False

    def is_apart(self, element: int) -> bool:  # noqa: ARG002
        """Whether an element is an item of its own, whatever precedes and follows it."""
        return True

    def body_between(self, first: int, last: int | None) -> JsonObject:  # noqa: ARG002
        """The body with the elements of the output from `first` up to `last`, and without those before and after."""
        return self.body

    def note_change(self, element: int) -> None:
        """Take notice of a change of an element that may be settled."""
        if element < self._settled_count:
            self._settled, self._settled_count = [], 0

    @property
    def unsettled_count(self) -> int:
        """How many elements of the output `partial` reads again, since they may grow."""
        return self.element_count - self._settled_count

    def check(self, event: JsonObject) -> None:
        """Refuse an event that is not of this response; of a format that tells no responses apart, all are."""

    def refuse_other(self, event: JsonObject) -> None:
        """Refuse an event of a format that is not read, which would be passed over."""
        if (other := other_event(event)) is not None:
            problem = f"The event is of {other.name}, not of {self.name}: {shortened(event)}"
            raise CannotParse(problem, hint=other.advice)

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
        self.is_over = self.is_over or is_done(event)
        if self.is_over:
            self.check_late(event)
            return
        if (event := event_text(event)) == b"":
            return
        body = self._object_in(event)
        if not _is_event_of(body, self._signs):
            self.refuse_other(body)
            _refuse_event(body, self.name)
        self.check(body)
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
        self.is_over = self.is_last(body)

    def _object_in(self, event: Any) -> JsonObject:
        body = event if isinstance(event, dict) else body_object(event)
        if not isinstance(body, dict):
            problem = f"A {self.name} event is {shortened(body)}, not a JSON object."
            raise CannotParse(problem, hint="Feed the events one at a time.")
        return body

    def check_late(self, event: Any) -> None:
        """Refuse an event of another response after the end; whatever else a connection brings then is ignored."""
        try:
            text = event_text(event)
            body = {} if text == b"" else self._object_in(text)
        except FormatError:
            if isinstance(event, str | bytes | bytearray):
                return
            raise
        if _is_event_of(body, self._signs):
            self.check(body)

    @property
    def partial(self) -> Response:
        """The response as far as it has come, of status in_progress.

        Only what may still grow is read again.
        """
        response = self._tail()
        return response.model_copy(update={"status": "in_progress", "output": [*self._settled, *response.output]})

    def items_from(self, first: int) -> list[Item]:
        """The items of `partial` from an index on."""
        tail, settled = self._tail().output, len(self._settled)
        return [*self._settled[first:], *tail[max(first - settled, 0) :]]

    def _tail(self) -> Response:
        """The response with the items that may still grow."""
        self._settle()
        response = self._read(is_partial=True, first=self._settled_count)
        if self._settled_count and response is None:
            self.note_change(0)
            response = self._read(is_partial=True)
        return _with_open_calls(response or Response(format=self.name), self.open_calls)

    def _settle(self) -> None:
        """Read the elements that cannot change any more, up to one that is an item of its own."""
        count = self.element_count
        if count < self._settled_count:
            self.note_change(0)
        first = last = self._settled_count
        for index in range(first, count - 1):
            if not self.is_whole(index):
                break
            if self.is_apart(index + 1):
                last = index + 1
        if last > first and (response := self._read(is_partial=True, first=first, last=last + 1)) is not None:
            self._settled += response.output[:-1]  # the last one may be marked, as it is the end of what was read
            self._settled_count = last

    @property
    def response(self) -> Response:
        """The whole response; one whose stream broke off is incomplete, one that ended in an error failed."""
        response = self._read(is_partial=self.error is not None or not self.is_ended) or Response(format=self.name)
        if not self.is_ended:
            response = _with_open_calls(response, self.open_calls)
        if self.error is not None:
            response = response.model_copy(update={"status": "failed", "error": response.error or self.error})
        elif not self.is_ended or not response.is_final:
            details = response.incomplete_details or BROKEN_OFF
            response = response.model_copy(update={"status": "incomplete", "incomplete_details": details})
        return with_cut_call(response)

    def _read(self, *, is_partial: bool, first: int = 0, last: int | None = None) -> Response | None:
        """The response with the elements in that range; None where nothing has come yet that could be read."""
        response = self._parsed(first, last, is_partial=is_partial)
        if response is None or response.usage is None or self.is_counted:
            return response
        return response.model_copy(update={"usage": without_output(response.usage)})

    def _parsed(self, first: int, last: int | None, *, is_partial: bool) -> Response | None:
        body = self.body_between(first, last) if first or last is not None else self.body
        try:
            return self.parsed(body, first)
        except FormatError as error:
            if not isinstance(error.__cause__, InvalidItem | InvalidOption):
                if not is_partial:
                    raise
                return None
        return self.parsed(shallow(body), first)  # something is nested too deeply

    def parsed(self, body: JsonObject, first: int) -> Response:  # noqa: ARG002 - of a format that numbers no elements
        """The response of a body whose output begins with the element `first`."""
        return self._parse(body, self._headers)


def _with_open_calls(response: Response, call_ids: Collection[object]) -> Response:
    """A response whose calls that have not come whole say so: nobody may run them."""
    call_ids = {call_id for call_id in call_ids if isinstance(call_id, str) or call_id is LAST}
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


def _refuse_event(event: JsonObject, name: str) -> None:
    """Refuse an event of another format: the whole response would be passed over in silence."""
    others = [other for other in format_names() if _is_event_of(event, get_format(other).signs)]
    if others:
        raise CannotParse(
            f"The event is not of the format {name} but of {' or '.join(others)}: {shortened(event)}",
            hint=f"Name the format {' or '.join(map(repr, others))}.",
        )


def _is_event_of(event: JsonObject, signs: Signs) -> bool:
    """Whether an event is plainly of the format with these signs."""
    if str(event.get("type")).startswith(signs.event_types):
        return True
    return any(isinstance(event.get(key), kind) for key, kind in signs.events.items())
