"""JSON text without loss.

orjson is fast, but it turns NaN into null, integers beyond 64 bits into floats, and refuses lone surrogates. Provider
bodies hold all three now and then, so every value is checked, and what orjson would change goes through the standard
library instead. Which of the two wrote a text is its codec, and is stored beside it.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import orjson

from threadkeep.errors import InvalidItem

JsonObject = dict[str, Any]

PLAIN: Final = 0  # orjson reads it back unchanged
EXACT: Final = 1  # only the standard library reads it back unchanged

MAX_DEPTH: Final = 200  # orjson writes at most 254 levels; a request wraps stored values in a few more

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
# Every digit as 0 and everything else as a blank: finds long numbers faster than a regular expression.
_DIGITS_AS_0: Final = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19


def encode(value: object) -> tuple[bytes, int]:
    """The JSON text of a value and its codec, PLAIN or EXACT.

    Raises:
        InvalidItem: the value holds something that JSON has no form for, or is nested deeper than MAX_DEPTH.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except TypeError as error:
        return _encode_exactly(value, error), EXACT
    # orjson writes numbers that are not finite as null; reading back and comparing is faster than a walk
    if b"null" in text and orjson.loads(text) != value and _has_unwritable_float(value):
        return _encode_exactly(value, None), EXACT
    if len(text) > 2 * MAX_DEPTH and text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        check_depth(value)
    return text, PLAIN


def encode_texts(value: object) -> tuple[bytes, int]:
    """The same for a shallow value that holds no numbers: nothing has to be looked for in its text."""
    try:
        return orjson.dumps(value, option=_OPTIONS), PLAIN
    except TypeError as error:
        return _encode_exactly(value, error), EXACT


def dumps(value: object) -> bytes:
    """The JSON text of a value, see `encode`."""
    return encode(value)[0]


def loads(text: bytes | str) -> Any:
    """The value of a JSON text, with every integer, float and surrogate as written.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply to be read.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if _is_risky(data):
        return _loads_exactly(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _loads_exactly(data)


def _is_risky(data: bytes) -> bool:
    """Whether orjson might read another value: integers of 19 and more digits. What is not finite it refuses."""
    return _LONG_NUMBER in data.translate(_DIGITS_AS_0)


def decode(text: bytes, codec: int) -> Any:
    """The value of a stored text, by the codec that `encode` gave for it."""
    return _loads_exactly(text) if codec & EXACT else orjson.loads(text)


def canonical(value: object) -> bytes:
    """One JSON text for all equal values (sorted keys), to be hashed."""
    try:
        if not _has_unwritable_float(value):
            return orjson.dumps(value, option=_OPTIONS | orjson.OPT_SORT_KEYS)
    except TypeError:
        pass
    return _encode_exactly(value, None, sort_keys=True)


def check_depth(value: object) -> None:
    """Refuse values nested deeper than MAX_DEPTH, without recursion.

    Raises:
        InvalidItem: the value is nested too deeply.
    """
    level, depth = _children([value]), 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidItem(f"JSON nested deeper than {MAX_DEPTH} levels cannot be stored. Send it as text instead.")
        children = [child for node in level for child in _children(node)]
        level = list({id(child): child for child in children}.values())  # once each: a list may hold itself twice


def _children(node: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node
    return [value for value in values if isinstance(value, dict | list | tuple)]


def _encode_exactly(value: object, cause: Exception | None, *, sort_keys: bool = False) -> bytes:
    check_depth(value)
    _check_keys(value)
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys).encode("ascii")
    except (TypeError, ValueError) as error:
        raise InvalidItem(f"This value has no JSON form: {error}.") from (cause or error)


def _check_keys(value: object) -> None:
    """The standard library writes other keys as strings, which would not come back as they were."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    raise InvalidItem(f"The key {key!r} of an object is not a string. JSON keys are strings.")
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)


def _has_unwritable_float(value: object) -> bool:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, float):
            if not math.isfinite(node):
                return True
        elif isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)
    return False


def _loads_exactly(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply to be read") from error
