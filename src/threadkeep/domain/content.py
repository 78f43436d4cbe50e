"""Content parts: what messages and tool outputs consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import DEFAULT_MEDIA_TYPE, base64_media_type, data_url, url_bytes
from threadkeep.domain.objects import TypedObject, at, shown
from threadkeep.errors import InvalidItem

ASSISTANT: Final = "assistant"


def _list_or_empty(value: Any) -> Any:
    return [] if value is None else value


JsonList = Annotated[list[Any], BeforeValidator(_list_or_empty)]


class Part(TypedObject):
    """Any content part; the classes below are the known types."""

    type: str


class InputText(Part):
    """Text of a user, system or developer message, or of a tool output."""

    type: Literal["input_text"] = "input_text"
    text: str
    prompt_cache_breakpoint: Any = None


class Text(Part):
    """Text of no stated direction."""

    type: Literal["text"] = "text"
    text: str


class ReasoningText(Part):
    """Text of a model's reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class SummaryText(Part):
    """Text of a summary of a model's reasoning."""

    type: Literal["summary_text"] = "summary_text"
    text: str


class OutputText(Part):
    """Text that a model wrote."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: JsonList = Field(default_factory=list)
    logprobs: JsonList = Field(default_factory=list)


class Refusal(Part):
    """A model's refusal, in words."""

    type: Literal["refusal"] = "refusal"
    refusal: str


class MediaPart(Part):
    """A picture, file or video: one `url` (https, data, s3, gs …) or raw `data`, which becomes a data URL."""

    url: str | None = None

    def __init__(self, url: str | None = None, **extra: Any) -> None:
        self._fill({"url": url, **extra}, "")

    def _fill(self, data: Mapping[str, Any], path: str) -> None:
        raw = data.get("data")
        if isinstance(raw, bytes | bytearray | memoryview):
            others = {key: value for key, value in data.items() if key != "data"}
            if others.get("url") is not None:
                raise InvalidItem(f"{path or self.__class__.__name__} has both `url` and `data`. Give one of them.")
            media_type = others.get("media_type")
            data = {**others, "url": data_url(raw, media_type if isinstance(media_type, str) else DEFAULT_MEDIA_TYPE)}
        super()._fill(data, path)

    @property
    def data(self) -> bytes | None:
        """The bytes, when the `url` is a base64 data URL; else None.

        Raises:
            InvalidItem: the data URL does not hold base64.
        """
        return url_bytes(self.url)


class _OneName(MediaPart):
    """Media whose source has one name on the wire of Open Responses."""

    _wire_name: ClassVar[str]

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        given = extras.pop(cls._wire_name, None)
        if given is None:
            return
        if known.get("url") not in (None, given):
            raise InvalidItem(f"{at(path, 'url')} and {at(path, cls._wire_name)} differ. Give one of them.")
        known["url"] = given

    def to_object(self) -> JsonObject:
        """The part inside threadkeep, its source under the wire name."""
        return {self._wire_name if key == "url" else key: value for key, value in super().to_object().items()}


class InputImage(_OneName):
    """A picture."""

    type: Literal["input_image"] = "input_image"
    detail: str | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: Any = None

    _wire_name: ClassVar[str] = "image_url"


class InputVideo(_OneName):
    """A video."""

    type: Literal["input_video"] = "input_video"

    _wire_name: ClassVar[str] = "video_url"


class InputFile(MediaPart):
    """A file.

    On the wire of Open Responses a base64 data URL is `file_data` and any other URL is `file_url`. Where these names
    hold something else (`file_data` without a data URL, both at once), they stay what they are.
    """

    type: Literal["input_file"] = "input_file"
    filename: str | None = None
    file_id: str | None = None
    detail: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    prompt_cache_breakpoint: Any = None

    @classmethod
    def _prepare(cls, known: JsonObject, _extras: JsonObject, path: str, /) -> None:
        url = known.pop("url", None)
        if url is not None:
            name = _file_source(url)
            if known.get(name) not in (None, url):
                raise InvalidItem(f"{at(path, 'url')} and {at(path, name)} differ. Give one of them.")
            known[name] = url
        sources = [name for name in ("file_url", "file_data") if known.get(name) is not None]
        if len(sources) == 1 and _file_source(known[sources[0]]) == sources[0]:
            known["url"] = known.pop(sources[0])

    def to_object(self) -> JsonObject:
        """The part inside threadkeep, its source under the wire name."""
        return {_file_source(value) if key == "url" else key: value for key, value in super().to_object().items()}


def _file_source(url: object) -> str:
    return "file_data" if base64_media_type(url) else "file_url"


class ProviderPart(Part):
    """A block that only one provider knows: sent verbatim to its `format`, a reported loss elsewhere."""

    type: Literal["provider_item"] = "provider_item"
    format: str
    payload: Any

    _always: ClassVar[frozenset[str]] = frozenset({"payload"})
    _flattens: ClassVar[bool] = False


class UnknownPart(Part):
    """A part of a type that threadkeep does not know; all its keys are kept."""

    _flattens: ClassVar[bool] = False


# part type -> class
PARTS: Final[dict[str, type[Part]]] = {
    "input_text": InputText,
    "input_image": InputImage,
    "input_file": InputFile,
    "input_video": InputVideo,
    "output_text": OutputText,
    "refusal": Refusal,
    "text": Text,
    "reasoning_text": ReasoningText,
    "summary_text": SummaryText,
    "provider_item": ProviderPart,
}

Content = str | Part | Mapping[str, Any] | Sequence[str | Part | Mapping[str, Any]]


def part_from(value: object, role: str | None = None, path: str = "content") -> Part:
    """The content part that a text, dict or part stands for.

    Text, and a dict with `text` but no `type`, is `output_text` in an assistant message and `input_text` elsewhere.

    Raises:
        InvalidItem: it is no part; the message names `path`.
    """
    text_class = OutputText if role == ASSISTANT else InputText
    if isinstance(value, str):
        return text_class(text=value)
    if isinstance(value, dict):  # before Part and Mapping: those checks cost as much as reading the part
        if value.get("type") is None and "text" in value:
            return text_class.read({**value, "type": text_class.model_fields["type"].default}, path)
        return typed_part(value, path)
    if isinstance(value, Part):
        return value
    if isinstance(value, Mapping):
        return part_from(dict(value), role, path)
    raise InvalidItem(f"{path} is {shown(value)}, which is no content. Give text, a part, or a dict with a `type`.")


def typed_part(value: object, path: str) -> Part:
    """The content part of a part or of a dict that states its type, as tool outputs need it.

    Raises:
        InvalidItem: it is no part; the message names `path`.
    """
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and kind:
            return PARTS.get(kind, UnknownPart).read(value, path)
    elif isinstance(value, Part):
        return value
    raise InvalidItem(
        f"{path} is {shown(value)}, which is no content part. "
        'Give a dict with a `type`, such as {"type": "input_text", "text": "…"}.'
    )


def content_from(value: object, role: str | None = None, path: str = "content") -> list[Part]:
    """The parts of a message: from a text, a part, a dict, or a list of these.

    Raises:
        InvalidItem: it is no content; the message names the place, starting with `path`.
    """
    if isinstance(value, list | tuple):
        return [part_from(element, role, f"{path}[{index}]") for index, element in enumerate(value)]
    return [part_from(value, role, path)]
