"""Content parts: the elements of messages and tool outputs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import DEFAULT_MEDIA_TYPE, base64_media_type, data_url, parse_data_url
from threadkeep.domain.objects import at, mismatch
from threadkeep.domain.typed import TypedObject, by_type
from threadkeep.errors import InvalidItem


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
