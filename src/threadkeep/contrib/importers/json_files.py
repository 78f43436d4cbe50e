"""JSON of any size, a value at a time: lines, and the elements of lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.records import Skipped
from threadkeep.domain.jsontext import JsonObject, loads

NOT_JSON = "it is not JSON"
NOT_AN_OBJECT = "it is not an object"


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
