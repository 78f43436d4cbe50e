"""JSON of any size, a value at a time: lines, and the elements of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import IO, Any, Final, NamedTuple

from threadkeep.contrib.importers.converting import converted
from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.records import Skipped, Transcript
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, MissingExtra

NOT_JSON: Final = "it is not JSON"
NOT_AN_OBJECT: Final = "it is not an object"


class Found(NamedTuple):
    """An object of a file, and where it was."""

    where: str
    value: JsonObject


def json_lines(input: Input) -> Iterator[Found | Skipped]:
    """The objects of JSON Lines."""
    with input.open() as file:
        for number, line in enumerate(file, 1):
            text, where = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, f"{input.name}, line {number}"
            if not text.strip():
                continue
            try:
                value: Any = loads(text)
            except ValueError:
                yield Skipped(where, NOT_JSON)
                continue
            yield Found(where, value) if isinstance(value, dict) else Skipped(where, NOT_AN_OBJECT)


def transcripts_of(
    objects: Iterable[Found | Skipped], convert: Callable[[Found], Transcript | Skipped]
) -> Iterator[Transcript | Skipped]:
    """The conversation of each object; or why there is none."""
    for found in objects:
        yield found if isinstance(found, Skipped) else converted(found.where, convert, found)


def json_documents(input: Input, pattern: str) -> Iterator[Found | Skipped]:
    """The objects in the lists of a file, or in the members of an archive whose names match.

    Raises:
        CannotParse: it has no such member, or one is not JSON.
        MissingExtra: ijson is not installed.
    """
    parts = input.documents(pattern)
    if not parts:
        raise CannotParse(f"{input.name} has no file with conversations.")
    for part in parts:
        yield from json_elements(input, part)


def json_elements(input: Input, part: str | None = None) -> Iterator[Found | Skipped]:
    """The objects of a JSON list, one after the other; of a document that is an object, that object.

    Raises:
        CannotParse: it is not JSON from here on.
        MissingExtra: ijson is not installed.
    """
    ijson = _ijson()
    where = input.name if part is None else f"{input.name}/{part}"
    with input.open(part) as file:
        begin = _first_byte(file)
        prefix, at = ("item", 0) if begin == b"[" else ("", 0)
        try:
            for at, value in enumerate(ijson.items(_After(begin, file), prefix)):
                _make_floats(value)
                place = f"{where}[{at}]" if prefix else where
                yield Found(place, value) if isinstance(value, dict) else Skipped(place, NOT_AN_OBJECT)
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


def _ijson() -> Any:
    try:
        import ijson  # noqa: PLC0415 - of an extra that only large documents need
    except ImportError as error:
        raise MissingExtra("importers", "Importing JSON documents of other software") from error
    return ijson


def _first_byte(file: IO[bytes]) -> bytes:
    """The first byte that is not white space, behind a byte order mark."""
    while (byte := file.read(1)) and (byte.isspace() or byte in b"\xef\xbb\xbf"):
        pass
    return byte


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
