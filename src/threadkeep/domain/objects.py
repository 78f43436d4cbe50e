"""JSON from outside: copies of values, provider bodies, and the typed objects made from them.

`TypedObject` is the base class of content parts, items and tools. Known keys are fields; every other key is an *extra*
and is kept as it is. Extras never pass through Pydantic, which rejects lone surrogates in keys; nested values are
copied, so that the caller's JSON and ours never share a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject, loads, too_deep
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption, ThreadkeepError
from threadkeep.errors import shown as shown  # noqa: PLC0414 - what this layer uses most

E = TypeVar("E", bound=ThreadkeepError)
ErrorClass = type[InvalidItem | InvalidOption]
JsonList = Annotated[list[Any], BeforeValidator(lambda value: [] if value is None else value)]
# parts of Pydantic's messages other than the expected value
_NOISE: Final = re.compile(r"^(?:Value error, )?(?:Input should be )?|\bvalid |, unable to parse .*$")
_WORDS: Final = {"a dictionary": "a dict", "a boolean": "True or False"}  # as other messages say it
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
# keys that OpenAI's SDK adds next to text that it parses (`parse`, `stream`); the service rejects them
_PARSED: Final = frozenset({"parsed", "parsed_arguments"})
# keys whose values contain such text
_HOLDERS: Final = {
    "choices", "chunk", "content", "function", "item", "message", "output", "part", "response", "snapshot", "tool_calls"
}  # fmt: skip
_SSE_FIELDS: Final = frozenset({b"data", b"event", b"id", b"retry", b""})  # a line of the last kind is a comment
_LAST: Final = ("origin", "native")  # fields that are written after all others


def mismatch(error: type[E], expected: str, value: object, path: str, hint: str | None = None) -> E:
    """Return the error for a value at `path` that is not as expected."""
    return error(f"must be {expected}, not {shown(value)}.", argument=path, hint=hint)


def json_copy(value: Any, path: str, depth: int = 0) -> Any:
    """Deep-copy a JSON value (tuples become lists); raise InvalidItem if it has no JSON form, or too many levels."""
    if value.__class__ in _SCALARS:
        return value
    if depth >= MAX_DEPTH:
        raise too_deep(path)
    if isinstance(value, dict | Mapping):  # a dict is known at once
        for key in value:
            if not isinstance(key, str):
                raise InvalidItem(f"has the key {shown(key)}, which is not a string.", argument=path)
        return {key: json_copy(inner, path, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_copy(inner, path, depth + 1) for inner in value]
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
    return b"" if text == b"[DONE]" else text


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


class TypedObject(BaseModel):
    """A JSON object with a `type`: known keys are fields, all others are in `extra`.

    Attributes:
        origin: the wire format the object came in; None if the user created it.
        native: by format, keys received with the object that have no name of their own here; sent back as they came.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: str
    origin: str | None = None
    native: dict[str, Any] | None = None

    _error: ClassVar[ErrorClass] = InvalidItem
    _always: ClassVar[frozenset[str]] = frozenset()  # fields that are written even if they are empty
    _parts: ClassVar[str | None] = None  # the field that holds content parts
    _aside: ClassVar[frozenset[str]] = frozenset()  # fields that `to_object` leaves out
    _flattens: ClassVar[bool] = False  # a nested `extra` object means extras, unless the keys belong to someone else
    _keys: ClassVar[frozenset[str]] = frozenset()
    _plan: ClassVar[tuple[tuple[str, str, bool], ...]] = ()  # field, key, whether it is written even if empty
    _object_plan: ClassVar[tuple[tuple[str, str, bool], ...]] = ()  # the same for `to_object`

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        names = sorted(cls.model_fields, key=lambda name: name in _LAST)
        cls._plan = tuple((name, cls.model_fields[name].alias or name, name in cls._always) for name in names)
        cls._object_plan = tuple(row for row in cls._plan if row[0] not in cls._aside)
        cls._keys = frozenset(key for _, key, _ in cls._plan)
        cls._flattens = isinstance(cls.model_fields["type"].default, str) and "payload" not in cls._keys

    def __init__(self, /, **data: Any) -> None:
        self._fill(data, "")

    @classmethod
    def read(cls, data: Mapping[str, Any], path: str = "") -> Self:
        """Return the object described by a dict; errors begin with the path of the missing or wrong key."""
        result = cls.__new__(cls)
        result._fill(data, path)  # noqa: SLF001 - its own class
        return result

    def _fill(self, data: Mapping[str, Any], path: str) -> None:
        cls = type(self)
        keys, parts = cls._keys, cls._parts
        known: JsonObject = {}
        extras: JsonObject = {}
        for key, value in data.items():
            if value.__class__ not in _SCALARS and key != parts:
                value = copy_or_raise(cls._error, value, at(path, str(key)))  # noqa: PLW2901 - our copy takes its place
            if key in keys:
                known[key] = value
            else:
                extras[key] = value
        if extras:
            cls._check_extras(known, extras, path)
        cls._prepare(known, extras, path)
        try:
            cls.__pydantic_validator__.validate_python(known, self_instance=self)
        except ValidationError as error:
            raise cls._refusal(error, path) from error
        if extras:
            object.__setattr__(self, "__pydantic_extra__", extras)

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        """Convert other spellings to the fields."""

    @classmethod
    def _check_extras(cls, known: JsonObject, extras: JsonObject, path: str) -> None:
        for key in extras:
            if not isinstance(key, str):
                raise cls._error(f"has the key {shown(key)}, which is not a string.", argument=path or "The object")
        if cls._flattens and isinstance(extras.get("extra"), dict):
            for key, value in extras.pop("extra").items():
                (known if key in cls._keys else extras).setdefault(key, value)

    @classmethod
    def _refusal(cls, error: ValidationError, path: str) -> InvalidItem | InvalidOption:
        first = error.errors(include_url=False, include_context=False)[0]
        path = at(path, ".".join(str(step) for step in first["loc"]) or "type")
        if first["type"] == "missing":
            kind = cls.model_fields["type"].default
            name = kind if isinstance(kind, str) else cls.__name__
            return cls._error(f"is missing, and required in {name}.", argument=path)
        expected = _NOISE.sub("", first["msg"])
        return mismatch(cls._error, _WORDS.get(expected, expected), first["input"], path)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return set_values(super().__repr_args__())

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, which does not remember what the original was read from."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_given", None)
        return copied

    @property
    def extra(self) -> JsonObject:
        """A copy of the keys that are not fields."""
        return dict(self.__pydantic_extra__ or {})

    def to_object(self) -> JsonObject:
        """Return the object as used inside threadkeep: wire names of Open Responses, extras inline. Read-only."""
        result = self._written(self._object_plan)
        if self._parts is not None and isinstance(result.get(self._parts), list):
            result[self._parts] = [part.to_object() for part in result[self._parts]]
        return result

    def to_dict(self) -> JsonObject:
        """Return a copy as a dict: media under `url`, extras inline; null and empty lists are omitted."""
        result = self._written(self._plan)
        if self._parts is not None and isinstance(result.get(self._parts), list):
            result[self._parts] = [part.to_dict() for part in result[self._parts]]
        copied: JsonObject = json_copy(result, "")
        return copied

    def _written(self, plan: tuple[tuple[str, str, bool], ...]) -> JsonObject:
        values = self.__dict__
        result: JsonObject = {}
        for name, key, is_always in plan:
            value = values[name]
            if value is not None and (is_always or value != []):
                result[key] = value
        if self.__pydantic_extra__:
            result.update(self.__pydantic_extra__)
        return result


def set_values(pairs: Iterable[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    """Return the names and values that a repr shows: without those that are None or an empty list."""
    return [(name, value) for name, value in pairs if value is not None and value != []]


def by_type(union: Any) -> dict[str, Any]:
    """Return the classes of a union by the `type` of their objects, without classes for objects of any type."""
    return {kind: cls for cls in get_args(union) if isinstance(kind := cls.model_fields["type"].default, str)}
