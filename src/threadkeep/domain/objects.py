"""JSON from outside: copies of values, provider bodies, and the errors for what is not as expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from threadkeep.domain.jsontext import MAX_DEPTH, loads, too_deep
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption, ThreadkeepError
from threadkeep.errors import shown as shown  # noqa: PLC0414 - what this layer uses most

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
