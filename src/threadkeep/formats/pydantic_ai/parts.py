"""Content parts of any origin as the content of prompts, answers and tool returns.

* Media are URLs, or binary content for data URLs; the file id of a provider says nothing without its name, and is a
  loss. A file name becomes the identifier.
* Answers hold texts alone. System text and texts of answers are a part each.

Source: Pydantic AI's API reference, `pydantic_ai.messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.pydantic_ai.fields import NAME
from threadkeep.formats.pydantic_ai.own import URL_KINDS
from threadkeep.formats.shared.media import is_broken, note, source_of, url_of
from threadkeep.formats.shared.parts import (
    MEDIA,
    NOT_SENT,
    PRIVATE,
    TEXTS,
    Mapper,
    own_block,
    report_private,
    unknown_part,
)
from threadkeep.formats.shared.reports import Context


def user_content(parts: Sequence[JsonObject], context: Context, path: str) -> list[Any]:
    """The elements of a prompt or tool return."""
    return _sent(parts, _USER, context, path)


def texts(parts: Sequence[JsonObject], context: Context, path: str) -> list[str]:
    """The texts of a system message or an answer."""
    return _sent(parts, _TEXTS, context, path)


def _sent(parts: Sequence[JsonObject], mappers: dict[str, Mapper], context: Context, path: str) -> list[Any]:
    sent = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        value = mappers.get(part["type"], unknown_part)(part, context, part_path)
        if not PRIVATE.isdisjoint(part):
            report_private(part, NAME, context, part_path)
        if value is not None:
            sent.append(value)
    return sent


def _text(part: JsonObject, context: Context, path: str) -> str:
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return str(part["text"])


def _media(part: JsonObject, context: Context, path: str) -> Any:
    url = url_of(part)
    named = {"identifier": part["filename"]} if isinstance(part.get("filename"), str) else {}
    media_type = base64_media_type(url)
    if not url:
        code = "image_source" if part["type"] == "input_image" else "file_source"
        context.loss(code, path, f"There is no URL: {source_of(part)}.")
        return note(part)
    if media_type is None:
        return {"kind": URL_KINDS.get(part["type"], "document-url"), "url": url, **named, **_detail(part)}
    if is_broken(url):
        context.loss("data_url", path, f"The data URL is broken: {source_of(part)}.")
        return note(part)
    return {"kind": "binary", "data": url.partition(",")[2], "media_type": media_type, **named, **_detail(part)}


def _detail(part: JsonObject) -> JsonObject:
    return {"vendor_metadata": {"detail": part["detail"]}} if part.get("detail") is not None else {}


def _block(part: JsonObject, context: Context, path: str) -> Any:
    return own_block(part, NAME, context, path)


def _no_block(part: JsonObject, context: Context, path: str) -> None:
    """Leave a block out that stands where only texts do."""
    if own_block(part, NAME, context, path) is not None:
        context.loss("provider_item", path, "A block has no place in a message of this role.")


_TEXTS: Final[dict[str, Mapper]] = {**NOT_SENT, **dict.fromkeys(sorted(TEXTS), _text), "provider_item": _no_block}
_USER: Final[dict[str, Mapper]] = {**_TEXTS, **dict.fromkeys(sorted(MEDIA), _media), "provider_item": _block}
