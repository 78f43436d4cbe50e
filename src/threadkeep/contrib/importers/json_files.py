"""JSON of any size, a value at a time: lines, the elements of lists, and the base of sources that export them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import IO, Any, ClassVar, Final, NamedTuple

from threadkeep.contrib.importers import inputs, items
from threadkeep.contrib.importers.records import Skipped, Transcript, converted
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, MissingExtra

NOT_JSON: Final = "it is not JSON"
NOT_WHOLE: Final = "it is not JSON, or not whole yet"  # of a last line without an end
NOT_AN_OBJECT: Final = "it is not an object"


class FileObject(NamedTuple):
    """An object of a file, and where it was: in which file or element of one, and in which line."""

    place: str
    value: JsonObject
    line: int | None = None

    @property
    def where(self) -> str:
        """Where it was, for the report."""
        return self.place if self.line is None else f"{self.place}, line {self.line}"


def json_lines(input: inputs.Input) -> Iterator[FileObject | Skipped]:
    """The objects of JSON Lines."""
    name = input.name
    with input.open() as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            try:
                value: Any = loads(text)
            except ValueError:
                if text.strip():
                    yield Skipped(f"{name}, line {number}", NOT_JSON if line.endswith(b"\n") else NOT_WHOLE)
                continue
            found = FileObject(name, value, number)
            yield found if isinstance(value, dict) else Skipped(found.where, NOT_AN_OBJECT)


def skipped_lines(input: inputs.Input, take: Callable[[FileObject], object]) -> Iterator[Skipped]:
    """Give each object of JSON Lines to a function, and yield what is none."""
    for found in json_lines(input):
        if isinstance(found, Skipped):
            yield found
        else:
            take(found)


class JsonExport:
    """Software that exports its conversations as JSON objects: in a file, or in an archive with their attachments.

    Attributes:
        name: what it is called, see `Source`.
        documents: a pattern for the names of files in an archive that have conversations; None: there are no archives.
    """

    name: ClassVar[str]
    documents: ClassVar[str | None] = None

    def has_keys(self, keys: frozenset[str]) -> bool:
        """Return whether an object with these keys is one of its conversations."""
        raise NotImplementedError

    def transcript(self, found: FileObject, files: items.Attachments) -> Transcript | Skipped:
        """Return the conversation of an object; or why it is none."""
        raise NotImplementedError

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether the first object of a file is one of its conversations."""
        parts = [None] if self.documents is None else input.documents(self.documents)[:1]
        return any(self.has_keys(input.first_keys(part)) for part in parts)

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a file.

        Raises:
            CannotParse: it has none, or is not JSON.
            MissingExtra: ijson is not installed.
        """
        parts = [None] if self.documents is None else input.documents(self.documents)
        if not parts:
            raise CannotParse(f"{input.name} has no file with conversations.")
        with items.attachments(input) as files:
            for found in (found for part in parts for found in json_elements(input, part)):
                if isinstance(found, Skipped):
                    yield found
                else:
                    yield converted(found.where, self.transcript, found, files)


def json_elements(input: inputs.Input, part: str | None = None) -> Iterator[FileObject | Skipped]:
    """The objects of a JSON list, one after the other; of a document that is an object, that object.

    Raises:
        CannotParse: it is not JSON from here on.
        MissingExtra: ijson is not installed.
    """
    try:
        import ijson  # noqa: PLC0415 - of an extra that only large documents need
    except ImportError as error:
        raise MissingExtra("importers", "Importing JSON documents of other software") from error
    where = input.name if part is None else f"{input.name}/{part}"
    with input.open(part) as file:
        # The first byte that is not white space, behind a byte order mark
        while (byte := file.read(1)) and (byte.isspace() or byte in b"\xef\xbb\xbf"):
            pass
        begin = byte
        prefix, at = ("item", 0) if begin == b"[" else ("", 0)
        try:
            for at, value in enumerate(ijson.items(_After(begin, file), prefix)):
                _make_floats(value)
                place = f"{where}[{at}]" if prefix else where
                yield FileObject(place, value) if isinstance(value, dict) else Skipped(place, NOT_AN_OBJECT)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise CannotParse(f"{where} is not JSON behind element {at}: {error}.") from error


def _make_floats(value: Any) -> None:
    """Put floats in place of decimal numbers: with its own floats, ijson takes no integers of more than 64 bits."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        places = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for place, inner in places:
            if isinstance(inner, Decimal):
                node[place] = float(inner)
            elif isinstance(inner, dict | list):
                waiting.append(inner)


class _After:
    """A file whose first byte was read."""

    def __init__(self, first: bytes, file: IO[bytes]) -> None:
        self._first, self._file = first, file

    def read(self, size: int = -1) -> bytes:
        """Read bytes; what ijson asks for first is nothing, to see what comes."""
        if size == 0:
            return b""
        first, self._first = self._first, b""
        return first or self._file.read(size)
