"""Content blocks of Converse: texts, media, cache points, and blocks that came from this format.

* Blank texts are refused and left out: in messages, in system text, and inside of tool results.
* Media go into user messages and tool results; what cannot be sent becomes a note in its place.
* A part with `cache_point` is followed by a cache point, but inside of tool results, which hold none.
* Blocks that came from this format go back as they came, with the keys that have no canonical name.

Source: Amazon Bedrock's API reference, "ContentBlock", "SystemContentBlock", "ToolResultContentBlock".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.converse import media
from threadkeep.formats.converse.fields import NAME
from threadkeep.formats.converse.media import Kind, document_name, kind_of_file, source_block
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.media import note, url_of
from threadkeep.formats.shared.mending import read_value
from threadkeep.formats.shared.parts import Mapper, native_keys
from threadkeep.formats.shared.reports import Context

JSON_SPELLING: Final = "json"  # how a text part of a tool result says that it came as JSON
_LIFETIMES: Final = frozenset({"5m", "1h"})


@dataclass(slots=True)
class WriteContext(Context):
    """A context that also knows the documents of the request, and what becomes of the item that is looked at."""

    documents: media.DocumentNames = field(default_factory=media.DocumentNames)
    is_as_came: bool = False  # whether the item stood in the very request that is sent again
    model: str = ""


def blocks_of(
    parts: Sequence[JsonObject], mappers: Mapping[str, Mapper], context: WriteContext, path: str
) -> list[Any]:
    """The blocks of a message, tool result or system text, by the mappers of that place."""
    if (
        len(parts) == 1
        and len(part := parts[0]) == shared.TEXT_KEYS
        and part["type"] in shared.TEXTS
        and part["text"].strip()
    ):
        return [{"text": part["text"]}]
    blocks = []
    for index, part in enumerate(parts):
        where = f"{path}[{index}]"
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, NAME, context, where)
        sent = mappers.get(part["type"], shared.unknown_part)(part, context, where)
        if sent is not None:
            blocks.append(sent)
            blocks += () if mappers is RESULT else cache_point(part)
    return blocks


def is_blank(block: JsonObject) -> bool:
    """Whether a block is a text of white space."""
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def results_first(blocks: list[JsonObject]) -> list[JsonObject]:
    """Tool results, each with the cache point behind it, before everything else."""
    results: list[JsonObject] = []
    others: list[JsonObject] = []
    is_first = False
    for block in blocks:
        is_first = "toolResult" in block or ("cachePoint" in block and is_first)
        (results if is_first else others).append(block)
    return results + others


def cache_point(thing: JsonObject) -> list[JsonObject]:
    """The cache point that a part, item or tool asks for."""
    point = thing.get("cache_point")
    if point is None or point is False:
        return []
    lifetime = point.get("ttl") if isinstance(point, dict) else None
    return [{"cachePoint": {"type": "default"} | ({"ttl": lifetime} if lifetime in _LIFETIMES else {})}]


def _text(part: JsonObject, context: WriteContext, path: str) -> Any:
    if own := native_keys(part, NAME):
        return own
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    if part["text"].strip() or context.is_as_came:
        return {"text": part["text"]}
    context.repair("blank_text", path, "A blank text was left out.")
    return None


def _result_text(part: JsonObject, context: WriteContext, path: str) -> Any:
    spelling = part.get("spelling")
    if isinstance(spelling, dict) and spelling.get(NAME) == JSON_SPELLING:
        return {"json": read_value(part["text"], context, path)}
    return _text(part, context, path)


def _image(part: JsonObject, context: WriteContext, path: str) -> JsonObject:
    url = url_of(part)
    if not url and not part.get("file_id"):
        return _noted(part, context, path, "image_source", "The image has no URL")
    return _medium(part, url, media.IMAGE, context, path)


def _file(part: JsonObject, context: WriteContext, path: str) -> JsonObject:
    url = url_of(part)
    if not url and not part.get("file_id") and not native_keys(part, NAME):
        return _noted(part, context, path, "file_source", "The file has no source")
    kind = kind_of_file(part, url)
    if kind is media.IMAGE:
        context.repair("file_as_image", path, "A picture that was given as a file was sent as a picture.")
    return _medium(part, url, kind, context, path)


def _file_in_result(part: JsonObject, context: WriteContext, path: str) -> JsonObject:
    if kind_of_file(part, url_of(part)) is media.AUDIO:
        return _noted(part, context, path, "media", "A tool result holds no sound")
    return _file(part, context, path)


def _video(part: JsonObject, context: WriteContext, path: str) -> JsonObject | None:
    url = url_of(part)
    if url and source_block(url) is None and base64_media_type(url) is None and not native_keys(part, NAME):
        shared.no_media(part, context, path)
        return None
    return _medium(part, url, media.VIDEO, context, path)


def _medium(part: JsonObject, url: str, kind: Kind, context: WriteContext, path: str) -> JsonObject:
    """A block of media; the keys that came from this format win."""
    own = native_keys(part, NAME).get(kind.block) or {}
    block: JsonObject = {"format": own["format"] if "format" in own else _format(part, url, kind, context, path)}
    if block["format"] is None and "format" not in own:
        return _noted(part, context, path, "media", "Its format is unknown, or Converse does not take it")
    if kind is media.DOCUMENT:
        block["name"] = _name(part, url, own, context, path)
    block["source"] = own.get("source") or source_block(url)
    if block["source"] is None:
        code = "media" if base64_media_type(url) is None else "data_url"
        return _noted(part, context, path, code, "It is neither base64 data nor an object in S3")
    return {kind.block: {key: value for key, value in {**own, **block}.items() if value is not None}}


def _format(part: JsonObject, url: str, kind: Kind, context: WriteContext, path: str) -> str | None:
    media_format = media.format_of(part, url, kind)
    if (
        media_format is None
        and kind is media.DOCUMENT
        and source_block(url) is not None
        and media.is_text_document(part, url)
    ):
        context.loss("media", path, "The type of the file was left out: Converse has no such format; it went as text.")
        return media.PLAIN_TEXT
    return media_format


def _name(part: JsonObject, url: str, own: JsonObject, context: WriteContext, path: str) -> Any:
    name = own.get("name") or document_name(part, url)
    if not isinstance(name, str):
        return name
    if context.is_as_came:
        context.documents.keep(name)
        return name
    sent, given = context.documents.unique(name), part.get("filename")
    if isinstance(given, str) and given and sent not in (given, given.rpartition(".")[0]) and "name" not in own:
        context.repair("name", f"{path}.filename", f"{given!r} was sent as {sent!r}: names are letters, digits, -()[].")
    return sent


def _noted(part: JsonObject, context: WriteContext, path: str, code: str, why: str) -> JsonObject:
    context.loss(code, path, f"{why}: {note(part)[1:-1]}.")
    return {"text": note(part)}


def own_object(thing: JsonObject, context: WriteContext, path: str) -> JsonObject | None:
    """The payload of a block of this format; None, and a loss, for one of another, and for what is not an object."""
    payload = shared.own_block(thing, NAME, context, path)
    if payload is not None and not isinstance(payload, dict):
        context.loss("provider_item", path, "A block that is not an object was left out.")
    return payload if isinstance(payload, dict) else None


# part type -> mapper, by the place where the part stands: system text and what the model says, what the user says, and
# what tools return
SYSTEM: Final[dict[str, Any]] = {
    **shared.NOT_SENT,
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "provider_item": own_object,
}
USER: Final[dict[str, Any]] = {**SYSTEM, "input_image": _image, "input_file": _file, "input_video": _video}
RESULT: Final[dict[str, Any]] = {
    **USER,
    "input_text": _result_text,
    "output_text": _result_text,
    "text": _result_text,
    "input_file": _file_in_result,
}
