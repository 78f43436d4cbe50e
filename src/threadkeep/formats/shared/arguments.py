"""Arguments of function calls: JSON text, kept byte for byte, and repaired only where a provider would refuse it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

import orjson

from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject, check_depth, dumps
from threadkeep.errors import InvalidItem
from threadkeep.formats.shared.mending import sent_value
from threadkeep.formats.shared.reports import Context

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
