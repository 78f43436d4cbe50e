"""The common ground of content parts, items and tools: typed JSON objects that lose nothing.

Known keys are fields; every other key is an *extra* and is kept as it is. Extras never pass through Pydantic, which
takes no lone surrogates in keys; nested values are copied, so that the caller's JSON and ours never share a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from threadkeep.domain.jsontext import MAX_DEPTH, JsonObject
from threadkeep.errors import InvalidItem, InvalidOption

ErrorClass = type[InvalidItem | InvalidOption]
# what Pydantic's messages say beside what is expected
_NOISE: Final = re.compile(r"^(?:Value error, )?(?:Input should be )?|\bvalid |, unable to parse .*$")
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
# keys that OpenAI's SDK puts beside the texts that it parses (`parse`, `stream`); its service refuses them
_PARSED: Final = frozenset({"parsed", "parsed_arguments"})
# keys under which such texts stand
_HOLDERS: Final = frozenset(
    {
        "choices", "chunk", "content", "function", "item", "message", "output", "part", "response", "snapshot",
        "tool_calls",
    }
)  # fmt: skip
_shown = Repr()
_shown.maxstring = _shown.maxother = 80


def shown(value: object) -> str:
    """A value for an error message: short, whatever its size."""
    try:
        return _shown.repr(value)
    except ValueError:  # an integer of too many digits
        return f"a very large {type(value).__name__}"


def json_copy(value: Any, where: str, depth: int = 0) -> Any:
    """A deep copy of a JSON value (tuples become lists).

    Raises:
        InvalidItem: the value has no JSON form, or is nested too deeply; the message names `where`.
    """
    if value.__class__ in _SCALARS:
        return value
    if depth >= MAX_DEPTH:
        raise InvalidItem(f"{where} is nested deeper than {MAX_DEPTH} levels. Send it as text instead.")
    if isinstance(value, dict | Mapping):  # a dict is known at once
        for key in value:
            if not isinstance(key, str):
                raise InvalidItem(f"{where} has the key {shown(key)}, which is not a string. JSON keys are strings.")
        return {key: json_copy(inner, where, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_copy(inner, where, depth + 1) for inner in value]
    if isinstance(value, str | int | float):
        return value
    raise InvalidItem(
        f"{where} holds {shown(value)}, a {type(value).__name__}, which has no JSON form. "
        "Give text, numbers, booleans, None, lists or dicts."
    )


def dumped(value: Any) -> Any:
    """The JSON values of an object of a vendor's SDK (a Pydantic model); any other value as it is.

    SDKs make objects of whatever the service sends, also where it does not fit their types: no warning is due for that.
    """
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    return _as_it_came(dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))


def _as_it_came(value: Any) -> Any:
    """JSON values without what an SDK made of texts; schemas, inputs and arguments are not looked into."""
    if isinstance(value, list):
        return [_as_it_came(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _as_it_came(inner) if key in _HOLDERS else inner for key, inner in value.items() if key not in _PARSED}


def at(path: str, key: str) -> str:
    """The place of a key below a path, for messages: ``input[2].content``."""
    return f"{path}.{key}" if path else key


class TypedObject(BaseModel):
    """A JSON object with a `type`: known keys as fields, all others in `extra`.

    Attributes:
        origin: the wire format in which the object came; None when the user made it.
        native: by format, keys that came with it and have no name of their own here; they go back as they came.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    origin: str | None = None
    native: dict[str, Any] | None = None

    _error: ClassVar[ErrorClass] = InvalidItem
    _always: ClassVar[frozenset[str]] = frozenset()  # fields that are written though they are empty
    _parts: ClassVar[str | None] = None  # the field that holds content parts
    _aside: ClassVar[frozenset[str]] = frozenset()  # fields that `to_object` leaves out
    _flattens: ClassVar[bool] = True  # a nested `extra` object means extras
    _keys: ClassVar[frozenset[str]] = frozenset()
    _plan: ClassVar[tuple[tuple[str, str, bool], ...]] = ()  # field, key, is written though empty
    _object_plan: ClassVar[tuple[tuple[str, str, bool], ...]] = ()  # the same for `to_object`

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        inherited = [name for name in TypedObject.model_fields if name in cls.model_fields]
        names = [name for name in cls.model_fields if name not in inherited] + inherited
        cls._plan = tuple((name, cls.model_fields[name].alias or name, name in cls._always) for name in names)
        cls._object_plan = tuple(row for row in cls._plan if row[0] not in cls._aside)
        cls._keys = frozenset(key for _, key, _ in cls._plan)

    def __init__(self, /, **data: Any) -> None:
        self._fill(data, "")

    @classmethod
    def read(cls, data: Mapping[str, Any], path: str = "") -> Self:
        """The object that a dict describes.

        Raises:
            InvalidItem: it lacks a key or holds a wrong value; the message names the place, starting with `path`.
        """
        made = cls.__new__(cls)
        made._fill(data, path)  # noqa: SLF001 - its own class
        return made

    def _fill(self, data: Mapping[str, Any], path: str) -> None:
        cls = type(self)
        keys, parts = cls._keys, cls._parts
        known: JsonObject = {}
        extras: JsonObject = {}
        for key, value in data.items():
            if value.__class__ not in _SCALARS and key != parts:
                value = cls._copy(value, at(path, str(key)))  # noqa: PLW2901 - our copy takes its place
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
        """Bring other spellings into the form of the fields."""

    @classmethod
    def _check_extras(cls, known: JsonObject, extras: JsonObject, path: str) -> None:
        for key in extras:
            if not isinstance(key, str):
                raise cls._error(f"{path or 'the object'} has the key {shown(key)}, which is not a string.")
        if cls._flattens and isinstance(extras.get("extra"), dict):
            for key, value in extras.pop("extra").items():
                (known if key in cls._keys else extras).setdefault(key, value)

    @classmethod
    def _copy(cls, value: Any, where: str) -> Any:
        try:
            return json_copy(value, where)
        except InvalidItem as error:
            raise (error if cls._error is InvalidItem else cls._error(str(error))) from None

    @classmethod
    def _refusal(cls, error: ValidationError, path: str) -> InvalidItem | InvalidOption:
        first = error.errors(include_url=False, include_context=False)[0]
        place = at(path, ".".join(str(step) for step in first["loc"]) or "type")
        kind = cls.model_fields["type"].default if "type" in cls.model_fields else None
        name = kind if isinstance(kind, str) else cls.__name__
        if first["type"] == "missing":
            return cls._error(f"{place} is missing. Give it: {name} does not work without.")
        expected = _NOISE.sub("", first["msg"])
        return cls._error(f"{place} is {shown(first['input'])}; {name} takes {expected} there.")

    @property
    def extra(self) -> JsonObject:
        """A copy of the keys that are no fields; empty when there are none."""
        return dict(self.__pydantic_extra__ or {})

    def to_object(self) -> JsonObject:
        """The object inside threadkeep: wire names of Open Responses, extras inline. Not to be changed."""
        found = self._written(self._object_plan)
        if self._parts is not None and isinstance(found.get(self._parts), list):
            found[self._parts] = [part.to_object() for part in found[self._parts]]
        return found

    def to_dict(self) -> JsonObject:
        """The object for users, a copy: media under `url`, extras inline; null and empty lists are left out."""
        found = self._written(self._plan)
        if self._parts is not None and isinstance(found.get(self._parts), list):
            found[self._parts] = [part.to_dict() for part in found[self._parts]]
        copied: JsonObject = json_copy(found, "")
        return copied

    def _written(self, plan: tuple[tuple[str, str, bool], ...]) -> JsonObject:
        values = self.__dict__
        found: JsonObject = {}
        for name, key, is_always in plan:
            value = values[name]
            if value is not None and (is_always or value != []):
                found[key] = value
        if self.__pydantic_extra__:
            found.update(self.__pydantic_extra__)
        return found
