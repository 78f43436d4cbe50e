"""JSON text without loss.

orjson is fast, but it turns NaN into null, integers beyond 64 bits into floats, and refuses lone surrogates. Provider
bodies contain all three now and then, so every value is checked, and what orjson would change goes through the standard
library instead. Which of the two wrote a text is its codec, and is stored beside it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any, Final

import orjson

from threadkeep.errors import DamagedRow, InvalidItem, shown

JsonObject = dict[str, Any]
"""A JSON object."""

PLAIN: Final = 0  # orjson reads it back unchanged
EXACT: Final = 1  # only the standard library reads it back unchanged

MAX_DEPTH: Final = 200  # of what is stored …
REQUEST_DEPTH: Final = 250  # … and of requests, which wrap stored values in a few more; orjson writes at most 254
SHALLOW: Final = 100  # levels that are left of what is nested more deeply than that; an item wraps them in a few more

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
# Every digit as 0 and everything else as a blank: finds long numbers faster than a regular expression.
_DIGITS_AS_0: Final = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19


def encode(value: object, limit: int = MAX_DEPTH) -> tuple[bytes, int]:
    """The JSON text of a value and its codec, PLAIN or EXACT.

    InvalidItem where it contains something that has no JSON form, or is nested deeper than `limit`.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except TypeError as error:
        return _encode_exactly(value, error, limit), EXACT
    # orjson writes numbers that are not finite as null; reading back and comparing is faster than a walk
    if b"null" in text and orjson.loads(text) != value and _has_unwritable_float(value):
        return _encode_exactly(value, None, limit), EXACT
    if len(text) > 2 * limit and text.count(b"[") + text.count(b"{") > limit:
        check_depth(value, limit)
    return text, PLAIN


def encode_texts(value: object) -> tuple[bytes, int]:
    """The same for a shallow value without numbers, whose text needs no check."""
    try:
        return orjson.dumps(value, option=_OPTIONS), PLAIN
    except TypeError as error:
        return _encode_exactly(value, error), EXACT


def dumps(value: object, limit: int = MAX_DEPTH) -> bytes:
    """The JSON text of a value, see `encode`."""
    return encode(value, limit)[0]


def loads(text: bytes | str) -> Any:
    """The value of a JSON text, with every integer, float and surrogate as written; ValueError where it is not JSON."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if _LONG_NUMBER in data.translate(_DIGITS_AS_0):  # integers that orjson would change
        return _loads_exactly(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # also for what is not finite
        return _loads_exactly(data)


def loads_stored(text: bytes | str, table: str, row: str) -> Any:
    """The value of a text that threadkeep wrote; DamagedRow, which names the row, where it is no JSON any more."""
    try:
        return loads(text)
    except ValueError as error:
        raise DamagedRow(table, row, error) from error


def decode(text: bytes, codec: int) -> Any:
    """The value of a stored text, by the codec that `encode` gave for it."""
    return _loads_exactly(text) if codec & EXACT else orjson.loads(text)


def canonical(value: object) -> bytes:
    """One JSON text for all equal values (sorted keys), to be hashed."""
    try:
        text = orjson.dumps(value, option=_OPTIONS | orjson.OPT_SORT_KEYS)
    except TypeError:
        return _encode_exactly(value, None, sort_keys=True)
    return _encode_exactly(value, None, sort_keys=True) if b"null" in text and _has_unwritable_float(value) else text


def bytes_as_text(value: Any) -> Any:
    """A value with its bytes as base64 text; the value itself where it contains none."""
    try:
        orjson.dumps(value, option=_OPTIONS)  # which refuses bytes, and is much faster than a walk
    except TypeError:
        check_depth(value)
        return _bytes_as_text(value)
    return value


def _bytes_as_text(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {key: _bytes_as_text(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_bytes_as_text(inner) for inner in value]
    return value


def dumps_any(value: Any) -> bytes:
    """The JSON text of a value; of a shallow copy, where the value itself has none."""
    try:
        return dumps(value)
    except InvalidItem:
        return dumps(shallow(value))


def shallow(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A copy of a value that has no JSON text, for it is nested too deeply or not JSON: texts stand for such parts."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict | list | tuple) and len(above) < SHALLOW and id(value) not in above:
        inner = (*above, id(value))
        if isinstance(value, dict):
            return {str(key): shallow(element, inner) for key, element in value.items()}
        return [shallow(element, inner) for element in value]
    if value is None or isinstance(value, str | float):
        return value
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"({type(value).__name__} that cannot be written)"
    return value if isinstance(value, int) else text


def check_depth(value: object, limit: int = MAX_DEPTH) -> None:
    """Refuse values nested deeper than `limit`, without recursion."""
    level, depth = _children([value]), 0
    while level:
        depth += 1
        if depth > limit:
            raise too_deep("The JSON")
        children = [child for node in level for child in _children(node)]
        level = list({id(child): child for child in children}.values())  # once each: a list may contain itself twice


def too_deep(path: str) -> InvalidItem:
    """The error for a value that is nested deeper than MAX_DEPTH."""
    return InvalidItem(f"is nested deeper than {MAX_DEPTH} levels.", argument=path, hint="Store it as text instead.")


def _children(node: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node
    return [value for value in values if isinstance(value, dict | list | tuple)]


def _encode_exactly(
    value: object, cause: Exception | None, limit: int = MAX_DEPTH, *, sort_keys: bool = False
) -> bytes:
    check_depth(value, limit)
    for node in _nodes(value):  # the standard library writes other keys as strings, which would not come back
        for key in node if isinstance(node, dict) else ():
            if not isinstance(key, str):
                raise InvalidItem(f"The key {shown(key)} of a JSON object must be a string.")
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys).encode("ascii")
    except (TypeError, ValueError) as error:
        raise InvalidItem(f"The value has no JSON form: {error}.") from (cause or error)


def _has_unwritable_float(value: object) -> bool:
    return any(isinstance(node, float) and not math.isfinite(node) for node in _nodes(value))


def _nodes(value: object) -> Iterator[object]:
    """A value and all values in it, without recursion."""
    pending = [value]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)


def _loads_exactly(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply to be read") from error
