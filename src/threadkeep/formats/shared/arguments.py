"""Arguments of function calls: JSON text, kept byte for byte, and repaired only where a provider would refuse it.

Texts that are not Unicode and numbers that are not finite are stored as they came, but cannot be sent. JSON has no form
for NaN and the infinities, and while its escapes can express lone surrogates, providers and HTTP clients refuse them.
They stand for bytes that were not UTF-8 (``errors="surrogateescape"``), or came in as JSON escapes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject, check_depth, dumps
from threadkeep.domain.rendering import Loss, Repair
from threadkeep.errors import InvalidItem
from threadkeep.formats.shared.reports import Context

Report = Loss | Repair
_LONE: Final = re.compile("[\ud800-\udfff]")
# numbers that no float can hold have an exponent of three digits, or many digits
_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]|NaN|Infinity|[eE]\+?\d{3}|\d{200}")
_TEXT: Final = "Characters that are not Unicode were sent as U+FFFD."
_NUMBER: Final = "A number that is NaN or infinite was not sent: JSON has none."


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    return text.isascii() or _LONE.search(text) is None


@dataclass(slots=True)
class Mending:
    """Makes values that can be sent of JSON values, and remembers what it changed."""

    has_texts: bool = False
    has_numbers: bool = False

    def value(self, value: Any) -> Any:
        r"""The value with U+FFFD for what is not Unicode, and without numbers that are not finite: null in lists.

        >>> Mending().value({"a": ["x\udcff", 1, float("nan")], "b": float("inf")}) == {"a": ["x\ufffd", 1, None]}
        True
        """
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            kept = {key: inner for key, inner in value.items() if not self._is_no_number(inner)}
            return {self._text(key): self.value(inner) for key, inner in kept.items()}
        if isinstance(value, list | tuple):
            return [None if self._is_no_number(inner) else self.value(inner) for inner in value]
        return value

    def _text(self, text: str) -> str:
        if is_unicode(text):
            return text
        self.has_texts = True
        return _LONE.sub("\ufffd", text)

    def _is_no_number(self, value: Any) -> bool:
        if not isinstance(value, float) or math.isfinite(value):
            return False
        self.has_numbers = True
        return True

    def reports(self, position: int | None, path: str) -> list[Report]:
        """What it did, for the place of the value."""
        found: list[Report] = [Loss("number", position, path, _NUMBER)] if self.has_numbers else []
        return [*found, Repair("invalid_text", position, path, _TEXT)] if self.has_texts else found


def sent_value(value: Any, text: str, context: Context, path: str) -> Any:
    """A value that was read from a text of an item, in which escapes stand for what cannot be sent."""
    if not _ESCAPED.search(text):
        return value
    mending = Mending()
    value = mending.value(value)
    for report in mending.reports(context.position, path):
        if isinstance(report, Loss):
            context.losses.append(report)
        else:
            context.repairs.append(report)
    return value


EMPTY: Final = "{}"
_LONG_NUMBER: Final = re.compile(r"\d{19}")  # orjson rounds longer ones


def sent_arguments(item: JsonObject, context: Context) -> str:
    """The arguments of a call as JSON text; what is not JSON becomes an empty object, which is reported."""
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        if is_json(arguments):
            return arguments
        if arguments.strip():
            detail = f"The arguments of {item.get('name')!r} are not JSON and were sent as an empty object."
            context.repair("malformed_arguments", "arguments", detail)
        else:
            context.repair("empty_arguments", "arguments", "Empty arguments were sent as an empty object.")
        return EMPTY
    return arguments_text(arguments)


def object_arguments(item: JsonObject, context: Context) -> JsonObject:
    """The arguments of a call as an object, a custom tool's free text in one; for others an empty one, reported."""
    if item["type"] == "custom_tool_call":
        return {"input": item.get("input") or ""}
    arguments = item.get("arguments")
    value = object_of(arguments, float) if isinstance(arguments, str) else {} if arguments is None else arguments
    if isinstance(value, dict):
        return sent_value(value, arguments, context, "arguments") if isinstance(arguments, str) else value
    detail = f"The arguments of {item.get('name')!r} are not a JSON object and were sent as an empty one."
    context.repair("malformed_arguments", "arguments", detail)
    return {}


def arguments_text(value: Any) -> str:
    """The arguments of a call as a provider gave them, as text: some give an object, some nothing."""
    if isinstance(value, str):
        return value
    return EMPTY if value is None else dumps(value).decode()


def is_json(text: str) -> bool:
    """Whether a text is JSON, strictly by the standard, which allows the lone surrogates that orjson refuses."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return _read_exactly(text, float) is not None
    return True


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def object_of(text: str, parse_float: Callable[[str], float] = _finite) -> JsonObject | None:
    """The object that a text is the JSON of; None for anything else, and for an object that cannot be sent as JSON.

    A number that no float can hold makes it such an object, unless `parse_float` reads it.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = _read_exactly(text, parse_float) if _LONG_NUMBER.search(text) else orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _read_exactly(text, parse_float)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        try:
            check_depth(value)
        except InvalidItem:
            return None
    return value if isinstance(value, dict) else None


def _read_exactly(text: str, parse_float: Callable[[str], float]) -> Any:
    """The value of what orjson refuses or rounds: lone surrogates and long integers are JSON, NaN is not."""
    try:
        return json.loads(text, parse_float=parse_float, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
