"""Content blocks of Converse: texts, media, cache points, and blocks that came from this format.

* Empty texts are refused in messages and left out there; inside of tool results they are taken.
* Media go into user messages and tool results; what cannot be sent becomes a note in its place.
* A part with `cache_point` is followed by a cache point, but inside of tool results, which hold none.
* Blocks that came from this format go back as they came, with the keys that have no canonical name.

Source: Amazon Bedrock's API reference, "ContentBlock", "SystemContentBlock", "ToolResultContentBlock".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.converse.fields import NAME
from threadkeep.formats.converse.media import (
    AUDIO,
    DOCUMENT,
    IMAGE,
    PLAIN_TEXT,
    VIDEO,
    DocumentNames,
    Kind,
    document_name,
    format_of,
    is_text_document,
    kind_of_file,
    source_block,
    url_of,
)
from threadkeep.formats.media import note, source_of
from threadkeep.formats.native import native_keys, own_block, report_foreign
from threadkeep.formats.reports import Context

TEXTS: Final = frozenset({"input_text", "output_text", "text"})
JSON_SPELLING: Final = "json"  # how a text part of a tool result says that it came as JSON
_PLAIN: Final = 2  # keys of a part that is only text: its type and the text
_LIFETIMES: Final = frozenset({"5m", "1h"})


@dataclass(slots=True)
class Place(Context):
    """A context that also knows the documents of the request, and what becomes of the item that is looked at.

    Attributes:
        is_as_came: whether the item stood in the very request that is sent again.
    """

    documents: DocumentNames = field(default_factory=DocumentNames)
    is_as_came: bool = False


Mapper = Callable[[JsonObject, Place, str], Any]


def blocks_of(parts: Sequence[JsonObject], mappers: Mapping[str, Mapper], place: Place, path: str) -> list[Any]:
    """The blocks of a message, tool result or system text, by the mappers of that place."""
    if len(parts) == 1 and len(part := parts[0]) == _PLAIN and part["type"] in TEXTS and part["text"]:
        return [{"text": part["text"]}]
    found = []
    for index, part in enumerate(parts):
        where = f"{path}[{index}]"
        if "native" in part:
            report_foreign(part, NAME, place, where)
        sent = mappers.get(part["type"], _unknown)(part, place, where)
        if sent is not None:
            found.append(sent)
            found += () if mappers is RESULT else cache_point(part)
    return found


def cache_point(thing: JsonObject) -> list[JsonObject]:
    """The cache point that a part, item or tool asks for."""
    wanted = thing.get("cache_point")
    if wanted is None or wanted is False:
        return []
    lifetime = wanted.get("ttl") if isinstance(wanted, dict) else None
    return [{"cachePoint": {"type": "default"} | ({"ttl": lifetime} if lifetime in _LIFETIMES else {})}]


def _text(part: JsonObject, place: Place, path: str) -> Any:
    if own := native_keys(part, NAME):
        return own
    if part.get("annotations"):
        place.lose("annotations", path, "The annotations of the text were left out.")
    if part["text"] or place.is_as_came:
        return {"text": part["text"]}
    place.mend("blank_text", path, "An empty text was left out.")
    return None


def _result_text(part: JsonObject, place: Place, path: str) -> Any:
    spelling = part.get("spelling")
    if isinstance(spelling, dict) and spelling.get(NAME) == JSON_SPELLING:
        return {"json": loads(part["text"])}
    return _text(part, place, path) if part["text"] else {"text": ""}


def _image(part: JsonObject, place: Place, path: str) -> JsonObject:
    url = url_of(part)
    if not url and not part.get("file_id"):
        return _noted(part, place, path, "image_source", "The image has no URL")
    return _medium(part, url, IMAGE, place, path)


def _file(part: JsonObject, place: Place, path: str) -> JsonObject:
    url = url_of(part)
    if not url and not part.get("file_id") and not native_keys(part, NAME):
        return _noted(part, place, path, "file_source", "The file has no source")
    kind = kind_of_file(part, url)
    if kind is IMAGE:
        place.mend("file_as_image", path, "A picture that was given as a file was sent as a picture.")
    return _medium(part, url, kind, place, path)


def _file_in_result(part: JsonObject, place: Place, path: str) -> JsonObject:
    if kind_of_file(part, url_of(part)) is AUDIO:
        return _noted(part, place, path, "media", "A tool result holds no sound")
    return _file(part, place, path)


def _video(part: JsonObject, place: Place, path: str) -> JsonObject | None:
    url = url_of(part)
    if url and source_block(url) is None and base64_media_type(url) is None and not native_keys(part, NAME):
        _lost(part, place, path)
        return None
    return _medium(part, url, VIDEO, place, path)


def _medium(part: JsonObject, url: str, kind: Kind, place: Place, path: str) -> JsonObject:
    """A block of media; the keys that came from this format win."""
    own = native_keys(part, NAME).get(kind.block) or {}
    found: JsonObject = {"format": own["format"] if "format" in own else _format(part, url, kind, place, path)}
    if found["format"] is None and "format" not in own:
        return _noted(part, place, path, "media", "The format cannot be told, or Converse does not take it")
    if kind is DOCUMENT:
        found["name"] = _name(part, url, own, place)
    found["source"] = own.get("source") or source_block(url)
    if found["source"] is None:
        code = "media" if base64_media_type(url) is None else "data_url"
        return _noted(part, place, path, code, "It is neither base64 data nor an object in S3")
    return {kind.block: {key: value for key, value in {**own, **found}.items() if value is not None}}


def _format(part: JsonObject, url: str, kind: Kind, place: Place, path: str) -> str | None:
    found = format_of(part, url, kind)
    if found is None and kind is DOCUMENT and source_block(url) is not None and is_text_document(part, url):
        place.lose("media", path, "The type of the file was left out: Converse has no such format; it went as text.")
        return PLAIN_TEXT
    return found


def _name(part: JsonObject, url: str, own: JsonObject, place: Place) -> Any:
    name = own.get("name") or document_name(part, url)
    if place.is_as_came:
        place.documents.keep(name)
        return name
    return place.documents.unique(name) if isinstance(name, str) else name


def _noted(part: JsonObject, place: Place, path: str, code: str, why: str) -> JsonObject:
    place.lose(code, path, f"{why}: {note(part)[1:-1]}.")
    return {"text": note(part)}


def _lost(part: JsonObject, place: Place, path: str) -> None:
    place.lose("media", path, f"Converse does not take this {part['type']} here: {source_of(part)}.")


def _refusal(_part: JsonObject, place: Place, path: str) -> None:
    place.lose("refusal", path, "The refusal was left out.")


def _thought(_part: JsonObject, place: Place, path: str) -> None:
    place.lose("reasoning", path, "A text of reasoning was left out.")


def _block(part: JsonObject, place: Place, path: str) -> Any:
    return own_object(part, place, path)


def own_object(thing: JsonObject, place: Place, path: str) -> JsonObject | None:
    """The payload of a block of this format; None, and a loss, for one of another, and for what is no object."""
    found = own_block(thing, NAME, place, path)
    if found is not None and not isinstance(found, dict):
        place.lose("provider_item", path, "A block that is no object was left out.")
    return found if isinstance(found, dict) else None


def _unknown(part: JsonObject, place: Place, path: str) -> None:
    place.lose("part", path, f"Converse has no part of type {part['type']!r}.")


_WORDS: Final[dict[str, Mapper]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _refusal,
    "reasoning_text": _thought,
    "summary_text": _thought,
    "provider_item": _block,
}
_NO_MEDIA: Final[dict[str, Mapper]] = {"input_image": _lost, "input_file": _lost, "input_video": _lost}
# part type -> mapper, by the place where the part stands; items that came from this format hold what they held
SYSTEM: Final = {**_WORDS, **_NO_MEDIA}
ASSISTANT: Final = SYSTEM
USER: Final[dict[str, Mapper]] = {**_WORDS, "input_image": _image, "input_file": _file, "input_video": _video}
OWN: Final = USER
RESULT: Final[dict[str, Mapper]] = {
    **USER,
    "input_text": _result_text,
    "output_text": _result_text,
    "text": _result_text,
    "input_file": _file_in_result,
}
