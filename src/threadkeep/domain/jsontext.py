"""JSON text without loss, and values from outside: copies, provider bodies, and the errors for what does not fit.

orjson is fast, but it turns NaN into null, integers beyond 64 bits into floats, and refuses lone surrogates. Provider
bodies contain all three now and then, so every value is checked, and what orjson would change goes through the standard
library instead. Which of the two wrote a text is its codec, and is stored with it.

What orjson returns occupies 4 KiB at least, and up to thirteen times its length, as long as it is kept. All texts are
therefore copied, which takes a few nanoseconds.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import orjson

from threadkeep.errors import CannotParse, DamagedRow, InvalidItem, InvalidOption, ThreadkeepError, shown

JsonObject = dict[str, Any]
"""A JSON object."""

PLAIN: Final = 0  # orjson reads it back unchanged
EXACT: Final = 1  # only the standard library reads it back unchanged

MAX_DEPTH: Final = 200  # of what is stored …
REQUEST_DEPTH: Final = 254  # … and of requests, which wrap stored values in a few more: all that orjson writes
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
        text = b"%b" % orjson.dumps(value, option=_OPTIONS)
    except TypeError as error:
        return _encode_exactly(value, error, limit), EXACT
    # orjson writes numbers that are not finite as null; reading back and comparing is faster than a walk
    if b"null" in text and orjson.loads(text) != value and _has_unwritable_float(value):
        return _encode_exactly(value, None, limit), EXACT
    if limit < REQUEST_DEPTH and len(text) > 2 * limit and text.count(b"[") + text.count(b"{") > limit:
        check_depth(value, limit)
    return text, PLAIN


def encode_texts(value: object) -> tuple[bytes, int]:
    """The same for a shallow value without numbers, whose text needs no check."""
    try:
        return b"%b" % orjson.dumps(value, option=_OPTIONS), PLAIN
    except TypeError as error:
        return _encode_exactly(value, error), EXACT


def dumps(value: object, limit: int = MAX_DEPTH) -> bytes:
    """The JSON text of a value, see `encode`."""
    return encode(value, limit)[0]


def dumps_finite(value: object) -> bytes:
    """The JSON text of a value for readers of JSON alone: null stands for a number that is not finite."""
    text, codec = encode(value)
    return text if codec == PLAIN else _encode_exactly(json.loads(text, parse_constant=lambda _: None), None)


def loads(text: bytes | str, *, is_finite: bool = False) -> Any:
    """The value of a JSON text, with every integer, float and surrogate as written; ValueError where it is not JSON.

    `is_finite`: numbers that are not finite, which JSON has not, are InvalidItem.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if _LONG_NUMBER not in data.translate(_DIGITS_AS_0):  # integers that orjson would change
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:  # also for what is not finite
            pass
    value = _loads_exactly(data)
    if is_finite:
        check_finite(value)
    return value


def read_line(text: bytes) -> Any:
    """The value of a JSON text that can be stored as a line as it came; `UNSET` for any other text.

    That is one that orjson reads, which is of one line, and not nested deeper than `MAX_DEPTH`.
    """
    if b"\n" not in text and text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        try:
            return UNSET if _LONG_NUMBER in text.translate(_DIGITS_AS_0) else orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    return UNSET


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
        text = b"%b" % orjson.dumps(value, option=_OPTIONS | orjson.OPT_SORT_KEYS)
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


def check_finite(value: object, path: str = "") -> None:
    """Refuse a number in a value at `path` that is not finite, without recursion; the error says where it is."""
    pending: list[tuple[Any, object]] = [((), value)]  # the keys that lead to a node, innermost first, as nested pairs
    while pending:
        keys, node = pending.pop()
        if isinstance(node, float) and not math.isfinite(node):
            raise mismatch(InvalidItem, "a finite number", node, at(path, _path(keys)) if keys else path)
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list | tuple) else ()
        pending += [((key, keys), each) for key, each in inner if isinstance(each, float | dict | list | tuple)]


def _path(keys: Any) -> str:
    path: list[str] = []
    while keys:
        key, keys = keys
        path.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(path)).removeprefix(".")


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


E = TypeVar("E", bound=ThreadkeepError)
ErrorClass = type[InvalidItem | InvalidOption]
SCALARS: Final = frozenset({str, int, float, bool, type(None)})
# keys that OpenAI's SDK adds next to text that it parses (`parse`, `stream`); the service rejects them
_PARSED: Final = frozenset({"parsed", "parsed_arguments"})
# keys whose values contain such text
_HOLDERS: Final = {
    "choices", "chunk", "content", "function", "item", "message", "output", "part", "response", "snapshot", "tool_calls"
}  # fmt: skip
DONE: Final = b"[DONE]"  # what some formats send after the last event
_LONGEST_DONE: Final = 100  # characters, with blanks around it
_SSE_FIELDS: Final = frozenset({b"data", b"event", b"id", b"retry", b""})  # a line of the last kind is a comment


class _Unset:
    def __repr__(self) -> str:
        return "<unset>"


UNSET: Final[Any] = _Unset()  # of arguments that may be None


def mismatch(error: type[E], expected: str, value: object, path: str, hint: str | None = None) -> E:
    """Return the error for a value at `path` that is not as expected."""
    return error(f"must be {expected}, not {shown(value)}.", argument=path, hint=hint)


def json_copy(value: Any, path: str, depth: int = 0) -> Any:
    """Deep-copy a JSON value (tuples become lists); raise InvalidItem if it has no JSON form, or too many levels."""
    if value.__class__ in SCALARS:
        return value
    if depth >= MAX_DEPTH:
        raise too_deep(path)
    if isinstance(value, dict | Mapping):  # a dict is known at once
        for key in value:
            if not isinstance(key, str):
                raise InvalidItem(f"has the key {shown(key)}, which is not a string.", argument=path)
        return {
            key: inner if inner.__class__ in SCALARS else json_copy(inner, path, depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [inner if inner.__class__ in SCALARS else json_copy(inner, path, depth + 1) for inner in value]
    if isinstance(value, str | int | float):
        return value
    hint = "Use text, numbers, booleans, None, lists and dicts."
    problem = f"contains {shown(value)}, a {type(value).__name__}, which has no JSON form."
    raise InvalidItem(problem, argument=path, hint=hint)


def copy_or_raise(error: ErrorClass, value: Any, path: str) -> Any:
    """Like `json_copy`, with errors of this class."""
    try:
        return json_copy(value, path)
    except InvalidItem as refusal:
        raise error(refusal.message, argument=refusal.argument, hint=refusal.hint) from None


def body_object(body: Any) -> Any:
    """Return a provider's body as JSON values: from such values, JSON text (or CannotParse), or an SDK object."""
    if body.__class__ is dict:  # nearly always
        return body
    if isinstance(body, str | bytes | bytearray):
        try:
            return loads(body if isinstance(body, str) else bytes(body))
        except ValueError as error:
            raise CannotParse(
                f"The body is not JSON: {error}. It is: {shown(body)}.", hint="Pass the body as the provider sent it."
            ) from error
    return dumped(body)


def event_text(event: Any) -> Any:
    """The JSON text of an event that came as text or as server-sent events have it; empty for lines that are none.

    What is no text is returned as it is.
    """
    if not isinstance(event, str | bytes | bytearray):
        return event
    text = (event.encode("utf-8", "surrogatepass") if isinstance(event, str) else bytes(event)).strip()
    if text.startswith(b"{"):  # which no field does
        return text
    lines = [line.strip().partition(b":") for line in text.splitlines()]
    if all(colon and name in _SSE_FIELDS for name, colon, _ in lines):
        text = b"\n".join(value.strip() for name, _, value in lines if name == b"data")
    return b"" if text == DONE else text


def is_done(event: Any) -> bool:
    """Whether an event is the word that ends a stream: ``[DONE]``, as text or as a line of server-sent events."""
    if not isinstance(event, str | bytes | bytearray) or len(event) > _LONGEST_DONE:
        return False
    text = event.encode("utf-8", "surrogatepass") if isinstance(event, str) else bytes(event)
    return text.strip().removeprefix(b"data:").strip() == DONE


def parsed_arguments(text: str, whose: str) -> Any:
    """Return the parsed arguments of a call; raise InvalidItem if they are not JSON."""
    try:
        return loads(text)
    except ValueError as error:
        raise InvalidItem(
            f"The arguments {whose} are not JSON: {error}. They are: {shown(text)}.",
            hint="Respond to the call with an output that says so.",
        ) from error


def dumped(value: Any) -> Any:
    """Return the JSON values of an SDK object (a Pydantic model); any other value unchanged.

    SDKs create objects from whatever the service sends, even if it does not match their types; no warning is needed.
    """
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    return _without_parsed(dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))


def _without_parsed(value: Any) -> Any:
    """Return JSON values without what an SDK parsed from text; schemas, inputs and arguments are not searched."""
    if isinstance(value, list):
        return [_without_parsed(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_parsed(inner) if key in _HOLDERS else inner for key, inner in value.items() if key not in _PARSED
    }


def at(path: str, key: str) -> str:
    """Return the path of a key below a path, for messages: ``input[2].content``."""
    return f"{path}.{key}" if path else key


def value_at(body: Any, target: str) -> Any:
    """What stands at a place of a request; None where nothing does."""
    for key in target.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


def place(body: JsonObject, target: str, value: Any) -> None:
    """Put a value at its place in a request; dots in the target lead into objects."""
    *outer, last = target.split(".")
    for key in outer:
        body = body.setdefault(key, {})
    body[last] = value


def with_value(body: JsonObject, path: str, value: Any) -> JsonObject:
    """A request with another value at a place; None takes it out. The given one is not changed."""
    key, _, inner = path.partition(".")
    held = body.get(key)
    result = with_value(held if isinstance(held, dict) else {}, inner, value) if inner else value
    if result is None:
        return {name: other for name, other in body.items() if name != key}
    return {**body, key: result}


def merged(body: JsonObject, over: JsonObject) -> JsonObject:
    """A request with another laid over it, objects key by key."""
    result = dict(body)
    for key, value in over.items():
        held = result.get(key)
        result[key] = merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result
