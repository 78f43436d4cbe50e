"""Typed objects: the base class of content parts, items and tools.

Known keys are fields; every other key is an *extra* and is kept as it is. Extras never pass through Pydantic, which
rejects lone surrogates in keys; nested values are copied, so that the caller's JSON and ours never share a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import SCALARS, ErrorClass, at, copy_or_raise, json_copy, mismatch, shown
from threadkeep.errors import InvalidItem, InvalidOption

# parts of Pydantic's messages other than the expected value
_NOISE: Final = re.compile(r"^(?:Value error, )?(?:Input should be )?|\bvalid |, unable to parse .*$")
_WORDS: Final = {"a dictionary": "a dict", "a boolean": "True or False"}  # as other messages say it
_LAST: Final = ("origin", "native")  # fields that are written after all others


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
    _required: ClassVar[frozenset[str]] = frozenset()  # fields without a default, which are written even if null
    _parts: ClassVar[str | None] = None  # the field that holds content parts
    _lists: ClassVar[tuple[str, ...]] = ()  # lists that are empty by default; null means the same
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
        cls._required = frozenset(name for name in names if cls.model_fields[name].is_required())
        cls._object_plan = tuple(row for row in cls._plan if row[0] not in cls._aside)
        cls._keys = frozenset(key for _, key, _ in cls._plan)
        cls._lists = tuple(name for name in names if cls.model_fields[name].default_factory is list)
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
            if value.__class__ not in SCALARS and key != parts:
                is_empty = value.__class__ is list and not value  # as lists of annotations mostly are
                value = [] if is_empty else copy_or_raise(cls._error, value, at(path, str(key)))  # noqa: PLW2901 - ours
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
    def _prepare(cls, known: JsonObject, _extras: JsonObject, _path: str, /) -> None:
        """Convert other spellings to the fields; here: null, of a list."""
        for key in cls._lists:
            if key in known and known[key] is None:
                known[key] = []

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
        """Return a copy as a dict: media under `url`, extras inline; null and empty lists are omitted.

        A block of a provider that is null keeps that: it is required.
        """
        result = self._written(self._plan)
        if self._parts is not None and isinstance(result.get(self._parts), list):
            result[self._parts] = [part.to_dict() for part in result[self._parts]]
        copied: JsonObject = json_copy(result, "")
        return copied

    def _written(self, plan: tuple[tuple[str, str, bool], ...]) -> JsonObject:
        values, required = self.__dict__, self._required
        result: JsonObject = {
            key: value
            for name, key, is_always in plan
            if ((value := values[name]) is not None or name in required) and (is_always or value != [])
        }
        if self.__pydantic_extra__:
            result.update(self.__pydantic_extra__)
        return result


def set_values(pairs: Iterable[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    """Return the names and values that a repr shows: without those that are None or an empty list."""
    return [(name, value) for name, value in pairs if value is not None and value != []]


def by_type(union: Any) -> dict[str, Any]:
    """Return the classes of a union by the `type` of their objects, without classes for objects of any type."""
    return {kind: cls for cls in get_args(union) if isinstance(kind := cls.model_fields["type"].default, str)}
