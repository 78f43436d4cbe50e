"""What assemblers have in common: a stream is put together into the body that the provider would have sent whole.

A format's own assembler only knows how an event changes the body; reading the body is the work of `parse_response`, so
that a streamed response and the same response in one piece give the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain import formats, jsontext, stored
from threadkeep.domain.formats import format_names, get_format, other_event
from threadkeep.domain.items import Item, changed_item
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse, FormatError, InvalidItem, InvalidOption
from threadkeep.formats.canonical import entries, items
from threadkeep.formats.shared import pairing, parsing, usage
from threadkeep.formats.shared.provider_errors import shortened

_MARKS: Final = ("index", "id", "type")  # keys by which growing elements are distinguished


@dataclass(slots=True)
class TextPieces:
    """A text that has not been joined yet: where it belongs, its pieces, and how many characters they have."""

    holder: Any
    key: Any
    join: Callable[[Iterable[str]], str]
    pieces: list[str] = field(default_factory=list)
    length: int = 0


class GrowingTexts:
    """Texts in objects and lists that come piece by piece, and are joined when they are read.

    Until then, what their holder has under their key is only the beginning of the text.
    """

    def __init__(self) -> None:
        self._growing: dict[tuple[int, Any], TextPieces] = {}  # by the id of the holder, which is kept alive here

    def grow(self, holder: Any, key: Any, piece: Any, join: Callable[[Iterable[str]], str] = "".join) -> None:
        """Add to a text; what is no text is ignored. `join` makes the text of its pieces."""
        if not isinstance(piece, str):
            return
        growing = self._growing.get((id(holder), key))
        if growing is None:
            growing = self._growing[id(holder), key] = TextPieces(holder, key, join)
            if isinstance(holder, dict):
                holder.setdefault(key, "")  # the key stands where its text began, whenever the pieces are joined
        growing.pieces.append(piece)
        growing.length += len(piece)

    def length(self, holder: Any, key: Any) -> int:
        """The number of characters in all pieces of a text, before they are joined."""
        growing, text = self._growing.get((id(holder), key)), holder[key]
        return (len(text) if isinstance(text, str) else 0) + (0 if growing is None else growing.length)

    def settle(self, holder: Any, key: Any) -> Any:
        """Join the pieces of a text, if it has any; return what the holder has under the key."""
        growing = self._growing.pop((id(holder), key), None)
        if growing is not None:
            before = holder.get(key) if isinstance(holder, dict) else holder[key]
            pieces = [before, *growing.pieces] if isinstance(before, str) and before else growing.pieces
            holder[key] = growing.join(pieces)
        return holder.get(key) if isinstance(holder, dict) else holder[key]

    def forget(self, holder: Any, key: Any) -> None:
        """Drop the pieces of a text, because another one takes its place."""
        self._growing.pop((id(holder), key), None)

    def settle_all(self) -> None:
        """Join the pieces of all texts."""
        for growing in [*self._growing.values()]:
            self.settle(growing.holder, growing.key)


class GrowingList(list[Any]):
    """A list of JSON values that finds elements without going through all; `note` follows a change of an element."""

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        super().__init__()
        self._last: dict[tuple[str, Any], int] = {}  # key and value -> where the last element is that has it
        self._counts: Counter[bytes] = Counter()  # of the elements that have not grown, as far as they were asked for
        self._texts: list[bytes] = []
        self._grown: dict[tuple[Any, ...], dict[int, None]] = {}  # the places of those that have, by their marks
        for element in elements:
            self.append(element)

    def append(self, element: Any) -> None:
        """Add an element."""
        super().append(element)
        self._find_by(len(self) - 1)

    def note(self, place: int) -> None:
        """Take notice of a change of the element at a place."""
        self._find_by(place)
        self._count_texts()
        if self._texts[place]:
            self._counts[self._texts[place]] -= 1
            self._texts[place] = b""
        self._grown.setdefault(_marks(self[place]), {})[place] = None

    def _find_by(self, place: int) -> None:
        if isinstance(self[place], dict):
            for key in ("index", "id"):
                value = self[place].get(key)
                if isinstance(value, str | int):
                    self._last[key, value] = max(place, self._last.get((key, value), 0))

    def find(self, key: str, value: Any) -> int | None:
        """Where the last object is that has an `index` or `id`."""
        place = self._last.get((key, value)) if isinstance(value, str | int) else None
        return place if place is None or self[place].get(key) == value else None

    def holds(self, element: Any, texts: GrowingTexts | None = None) -> bool:
        """Whether there is an equal element; `texts` has the pieces of texts in those that have grown."""
        self._count_texts()
        if self._counts[jsontext.canonical(element)] > 0:
            return True
        return any(_is_equal(self[place], element, texts) for place in self._grown.get(_marks(element), ()))

    def _count_texts(self) -> None:
        for place in range(len(self._texts), len(self)):
            self._texts.append(jsontext.canonical(self[place]))
            self._counts[self._texts[place]] += 1


def _marks(element: Any) -> tuple[Any, ...]:
    values = (element.get(key) for key in _MARKS) if isinstance(element, dict) else ()
    return tuple(value if isinstance(value, str | int | float) else None for value in values)


def _is_equal(grown: Any, element: Any, texts: GrowingTexts | None) -> bool:
    """Whether an element that has grown equals another one; texts of another length are not joined for it."""
    if not isinstance(grown, dict) or not isinstance(element, dict) or grown.keys() != element.keys():
        return bool(grown == element)
    if texts is None:
        return grown == element
    strings = [key for key, value in element.items() if isinstance(value, str)]
    lengths = (isinstance(grown[key], str) and texts.length(grown, key) == len(element[key]) for key in strings)
    if not all(lengths):
        return False
    texts.settle_all()
    return grown == element


def growing(holder: dict[str, Any], key: str) -> GrowingList:
    """The list under a key, as one that grows."""
    known = holder.get(key)
    if not isinstance(known, GrowingList):
        known = holder[key] = GrowingList(known if isinstance(known, list) else ())
    return known


LAST: Final = object()  # stands for the last call that has come, whatever its id
NOT_KEPT: Final = "threadkeep:not_kept"  # key of an event of which something is kept as text, or not at all: why
_DEEP: Final = jsontext.MAX_DEPTH - 10  # a body has a few levels above the input of a call

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
    def body(self) -> jsontext.JsonObject:
        """The body that the provider would have sent without streaming, as far as it has come; not to be changed."""
        raise NotImplementedError

    def add(self, event: jsontext.JsonObject) -> None:
        """Take an event into the body."""
        raise NotImplementedError

    def is_last(self, event: jsontext.JsonObject) -> bool:  # noqa: ARG002 - of a format whose usage may follow
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

    def body_between(self, first: int, last: int | None) -> jsontext.JsonObject:  # noqa: ARG002
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

    def check(self, event: jsontext.JsonObject) -> None:
        """Refuse an event that is not of this response; of a format that tells no responses apart, all are."""

    def refuse_other(self, event: jsontext.JsonObject) -> None:
        """Refuse an event of a format that this one does not read, which would be passed over."""
        if (other := other_event(event, self.name)) is not None:
            problem = f"The event is of {other.name}, not of {self.name}: {shortened(event)}"
            raise CannotParse(problem, hint=other.advice)

    def output_in(self, event: jsontext.JsonObject) -> bool:  # noqa: ARG002 - of a format that tells no events apart
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

    def error_in(self, event: jsontext.JsonObject) -> Any:
        """The error that an event states; None when it states none."""
        return event.get("error") or None

    def feed(self, event: Any) -> None:
        """Take in the next event: a dict, JSON text, a line of server-sent events, or an SDK's object.

        Raises:
            CannotParse: it is not an event, one of another format, or nested too deeply.
        """
        self.is_over = self.is_over or jsontext.is_done(event)
        if self.is_over:
            self.check_late(event)
            return
        if not isinstance(event, dict) and (event := jsontext.event_text(event)) == b"":
            return
        body = self._object_in(event)
        if not _is_event_of(body, self._signs):
            self.refuse_other(body)
            # An event of another format is refused: the whole response would be passed over in silence
            if others := [name for name in format_names() if _is_event_of(body, get_format(name).signs)]:
                raise CannotParse(
                    f"The event is not of the format {self.name} but of {' or '.join(others)}: {shortened(body)}",
                    hint=f"Name the format {' or '.join(map(repr, others))}.",
                )
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

    def _object_in(self, event: Any) -> jsontext.JsonObject:
        body = event if isinstance(event, dict) else jsontext.body_object(event)
        if not isinstance(body, dict):
            problem = f"A {self.name} event is {shortened(body)}, not a JSON object."
            raise CannotParse(problem, hint="Feed the events one at a time.")
        return body

    def check_late(self, event: Any) -> None:
        """Refuse an event of another response after the end; whatever else a connection brings then is ignored."""
        try:
            text = jsontext.event_text(event)
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
            details = response.incomplete_details or stored.BROKEN_OFF
            response = response.model_copy(update={"status": "incomplete", "incomplete_details": details})
        return parsing.with_cut_call(response)

    def _read(self, *, is_partial: bool, first: int = 0, last: int | None = None) -> Response | None:
        """The response with the elements in that range; None where nothing has come yet that could be read."""
        response = self._parsed(first, last, is_partial=is_partial)
        if response is None or response.usage is None or self.is_counted:
            return response
        return response.model_copy(update={"usage": usage.without_output(response.usage)})

    def _parsed(self, first: int, last: int | None, *, is_partial: bool) -> Response | None:
        body = self.body_between(first, last) if first or last is not None else self.body
        try:
            return self.parsed(body, first)
        except FormatError as error:
            if not isinstance(error.__cause__, InvalidItem | InvalidOption):
                if not is_partial:
                    raise
                return None
        return self.parsed(jsontext.shallow(body), first)  # something is nested too deeply

    def parsed(self, body: jsontext.JsonObject, first: int) -> Response:  # noqa: ARG002 - of a format that numbers no elements
        """The response of a body whose output begins with the element `first`."""
        return self._parse(body, self._headers)


def _with_open_calls(response: Response, call_ids: Collection[object]) -> Response:
    """A response whose calls that have not come whole say so, because they must not be run."""
    call_ids = {call_id for call_id in call_ids if isinstance(call_id, str) or call_id is LAST}
    if not call_ids:
        return response
    output, is_last = list(response.output), True
    for index in range(len(output) - 1, -1, -1):
        thing = output[index].to_object()
        if thing["type"] in pairing.CALLS and (entries.call_id_of(thing) in call_ids or (is_last and LAST in call_ids)):
            output[index] = changed_item(output[index], status=items.cut_status(thing["type"]))
        is_last = is_last and thing["type"] not in pairing.CALLS
    return response.model_copy(update={"output": output})


def input_of(text: str) -> Any:
    """The input of a call, which came as text; the text where it is not JSON (yet), or too deep for a body of JSON."""
    try:
        value = jsontext.loads(text)
        if text.count("[") + text.count("{") > _DEEP:
            jsontext.check_depth(value, _DEEP)
    except ValueError:  # InvalidItem, too
        return text
    return value


def _is_event_of(event: jsontext.JsonObject, signs: formats.Signs) -> bool:
    """Whether an event is plainly of the format with these signs."""
    if str(event.get("type")).startswith(signs.event_types):
        return True
    for key, kind in signs.events.items():  # noqa: SIM110 - of each event; a generator takes longer
        if isinstance(event.get(key), kind):
            return True
    return False


class BlockAssembler(StreamAssembler):
    """Puts together a message whose blocks come under indexes, each with a start and a stop."""

    def __init__(self, name: str, parse: Parse, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(name, parse, headers)
        self._blocks: dict[int, jsontext.JsonObject] = {}
        self._order: list[int] = []  # the indexes of the blocks
        self._texts = GrowingTexts()
        self._open: dict[int, None] = {}  # indexes of blocks that have begun and not stopped

    @property
    def element_count(self) -> int:
        """How many blocks have come."""
        return len(self._order)

    def is_whole(self, element: int) -> bool:
        """Whether a block has stopped."""
        return self._order[element] not in self._open


def list_in(holder: jsontext.JsonObject, key: str) -> list[Any]:
    """The list under a key, a new one where there is none."""
    if not isinstance(holder.get(key), list):
        holder[key] = []
    elements: list[Any] = holder[key]
    return elements


def index_of(event: jsontext.JsonObject, usual: int) -> int:
    """The index that an event names; the usual one where it names none."""
    index = event.get("index")
    return index if type(index) is int else usual
