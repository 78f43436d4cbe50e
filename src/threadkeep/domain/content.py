"""Content parts, the elements of messages and tool outputs, and `TypedObject`, the base of parts, items and tools.

Known keys are fields; every other key is an *extra* and is kept as it is. Extras never pass through Pydantic, which
rejects lone surrogates in keys; nested values are copied, so that the caller's JSON and ours never share a list.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threadkeep.domain.jsontext import SCALARS, ErrorClass, JsonObject, at, copy_or_raise, json_copy, mismatch
from threadkeep.domain.media import DEFAULT_MEDIA_TYPE, base64_media_type, data_url, parse_data_url
from threadkeep.errors import InvalidItem, InvalidOption, did_you_mean, shown

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


class InputText(TypedObject):
    """Text in a user, system or developer message, or in a tool output."""

    type: Literal["input_text"] = "input_text"
    text: str
    prompt_cache_breakpoint: Any = None

    if TYPE_CHECKING:  # constructors that take extras; type checkers would derive others from the fields alone

        def __init__(self, *, text: str, **extra: Any) -> None: ...


class Text(TypedObject):
    """Text that is marked neither as input nor as output."""

    type: Literal["text"] = "text"
    text: str


class ReasoningText(TypedObject):
    """The text of a model's reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class SummaryText(TypedObject):
    """The text of a summary of a model's reasoning."""

    type: Literal["summary_text"] = "summary_text"
    text: str


class OutputText(TypedObject):
    """Text written by a model."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] = Field(default_factory=list)

    if TYPE_CHECKING:

        def __init__(self, *, text: str, **extra: Any) -> None: ...


class Refusal(TypedObject):
    """A model's refusal."""

    type: Literal["refusal"] = "refusal"
    refusal: str

    if TYPE_CHECKING:

        def __init__(self, *, refusal: str, **extra: Any) -> None: ...


class MediaPart(TypedObject):
    """Base class of images, files and videos.

    The source is a `url` (https, data, s3, gs …), or bytes passed as `data`, which are converted to a data URL. In the
    JSON of Open Responses, it has another name.
    """

    url: str | None = None

    _source: ClassVar[str]

    def __init__(self, url: str | None = None, **extra: Any) -> None:
        self._fill({"url": url, **extra}, "")

    def _fill(self, data: Mapping[str, Any], path: str) -> None:
        raw = data.get("data")
        if isinstance(raw, bytes | bytearray | memoryview):
            others = {key: value for key, value in data.items() if key != "data"}
            if others.get("url") is not None:
                name = path or self.__class__.__name__
                raise InvalidItem("has both `url` and `data`.", argument=name, hint="Pass only one of them.")
            media_type = others.get("media_type")
            data = {**others, "url": data_url(raw, media_type if isinstance(media_type, str) else DEFAULT_MEDIA_TYPE)}
        super()._fill(data, path)

    @property
    def data(self) -> bytes | None:
        """The bytes, if the `url` is a base64 data URL; otherwise None.

        Raises:
            InvalidItem: the data URL does not contain base64.
        """
        parsed = parse_data_url(self.url)
        try:
            return None if parsed is None else base64.b64decode(parsed[1], validate=True)
        except ValueError as error:
            hint = "Make it with threadkeep.data_url()."
            raise InvalidItem(f"The data URL does not contain base64: {error}.", hint=hint) from error

    @classmethod
    def _wire_key(cls, url: object) -> str:  # noqa: ARG003 - used by files
        """Return the key of a source in the JSON of Open Responses."""
        return cls._source

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        source = extras.pop(cls._source, None)
        if source is not None:
            if not isinstance(source, str):
                raise mismatch(InvalidItem, "a string", source, at(path, cls._source))
            _check_same(known.get("url"), source, path, cls._source)
            known["url"] = source

    def to_object(self) -> JsonObject:
        """The part inside threadkeep, its source under the wire key."""
        return {self._wire_key(value) if key == "url" else key: value for key, value in super().to_object().items()}


class InputImage(MediaPart):
    """An image."""

    type: Literal["input_image"] = "input_image"
    detail: str | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: Any = None

    _source: ClassVar[str] = "image_url"

    if TYPE_CHECKING:

        def __init__(self, url: str | None = None, **extra: Any) -> None: ...


class InputVideo(MediaPart):
    """A video."""

    type: Literal["input_video"] = "input_video"

    _source: ClassVar[str] = "video_url"

    if TYPE_CHECKING:

        def __init__(self, url: str | None = None, **extra: Any) -> None: ...


class InputFile(MediaPart):
    """A file.

    In the JSON of Open Responses, a base64 data URL is `file_data`, and any other URL is `file_url`. If these keys have
    unexpected values (`file_data` without a data URL, or both at once), they are kept as they are.
    """

    type: Literal["input_file"] = "input_file"
    filename: str | None = None
    file_id: str | None = None
    detail: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    prompt_cache_breakpoint: Any = None

    if TYPE_CHECKING:

        def __init__(self, url: str | None = None, **extra: Any) -> None: ...

    @classmethod
    def _wire_key(cls, url: object) -> str:
        return "file_data" if base64_media_type(url) else "file_url"

    @classmethod
    def _prepare(cls, known: JsonObject, _extras: JsonObject, path: str, /) -> None:
        url = known.pop("url", None)
        if url is not None:
            key = cls._wire_key(url)
            _check_same(known.get(key), url, path, key)
            known[key] = url
        sources = [key for key in ("file_url", "file_data") if known.get(key) is not None]
        if len(sources) == 1 and cls._wire_key(known[sources[0]]) == sources[0]:
            known["url"] = known.pop(sources[0])


def _check_same(one: object, other: object, path: str, key: str) -> None:
    if one is not None and one != other:
        raise InvalidItem(f"differs from {at(path, key)}.", argument=at(path, "url"), hint="Pass only one of them.")


class ProviderPart(TypedObject):
    """A block that only one provider supports: sent verbatim in its `format`, reported as a loss in others."""

    type: Literal["provider_item"] = "provider_item"
    format: str
    payload: Any

    _always: ClassVar[frozenset[str]] = frozenset({"payload"})


class UnknownPart(TypedObject):
    """A part of a type unknown to threadkeep; all its keys are kept."""


Part: TypeAlias = (
    InputText | InputImage | InputFile | InputVideo | OutputText | Refusal | Text | ReasoningText | SummaryText
    | ProviderPart | UnknownPart
)  # fmt: skip
"""A content part of any type; `isinstance` and `match` distinguish them."""
Content: TypeAlias = str | Part | Mapping[str, Any] | Sequence[str | Part | Mapping[str, Any]]
"""The content of a message: text, a part, a dict that describes one, or a list of these."""

PARTS: Final[dict[str, type[Part]]] = by_type(Part)
PART_TYPES: Final = frozenset({*PARTS, "computer_screenshot"})
# types of items that would be lost as content: no call would find its output there
_TURNS: Final = frozenset({"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"})


def part_from(value: object, role: str | None = None, path: str = "content") -> Part:
    """Return the content part for a text, dict or part.

    Text, and a dict with `text` but no `type`, becomes `output_text` in an assistant message and `input_text`
    elsewhere.
    """
    text_class = OutputText if role == "assistant" else InputText
    if isinstance(value, str):
        return text_class(text=value)
    if isinstance(value, dict):  # before the others: those checks cost as much as reading the part
        if value.get("type") is None and "text" in value:
            return text_class.read({key: inner for key, inner in value.items() if key != "type"}, path)
        return typed_part(value, path)
    if isinstance(value, Part):
        return value
    if isinstance(value, Mapping):
        return part_from(dict(value), role, path)
    hint = "Of a part, also a dict with a `type` will do."
    raise mismatch(InvalidItem, "text, a content part or a list of these", value, path, hint)


def typed_part(value: object, path: str) -> Part:
    """Return the content part of a part, or of a dict with a type, as tool outputs require."""
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and kind:
            if kind in _TURNS:
                problem = f"is a {kind}, which is an item of its own and no content."
                raise InvalidItem(problem, argument=path, hint="Append it with add_item().")
            return PARTS.get(kind, UnknownPart).read(value, path)
    elif isinstance(value, Part):
        return value
    hint = 'Pass a dict with a `type`, such as {"type": "input_text", "text": "…"}.'
    raise mismatch(InvalidItem, "a content part", value, path, hint)


def content_from(value: object, role: str | None = None, path: str = "content") -> list[Part]:
    """Return the parts of a message: from a text, a part, a dict, or a list of these."""
    if isinstance(value, list | tuple):
        return [part_from(element, role, f"{path}[{index}]") for index, element in enumerate(value)]
    return [part_from(value, role, path)]


def refuse_unknown_parts(parts: Iterable[object], given: object, path: str) -> None:
    """Refuse parts of unknown types that an application wrote as dicts; `UnknownPart` marks a new type as meant."""
    named = given if isinstance(given, list | tuple) else [given]
    for index, part in enumerate(parts):
        if not isinstance(part, UnknownPart) or part.origin is not None or part.type in PART_TYPES:
            continue
        if not any(part is one for one in named):
            hint = "For a new type of a provider, pass UnknownPart(type=…, …)."
            raise unknown_word(part.type, PART_TYPES, "type of content part", f"{path}[{index}].type", hint)


def unknown_word(word: str, known: Collection[str], what: str, path: str, hint: str = "") -> InvalidItem:
    """The error for a word that is not known, with those that may have been meant."""
    meant = did_you_mean(get_close_matches(word.lower(), sorted(known), n=1))
    return InvalidItem(f"is the unknown {what} {shown(word)}.", argument=path, hint=f"{meant}{hint}".strip() or None)
