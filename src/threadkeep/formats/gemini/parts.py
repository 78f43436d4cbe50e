"""Parts of messages, in both directions.

* Text of every kind is a text part; its thought signature goes with it, if it is one of this service.
* Pictures, files and videos go into the user's turns only: `inlineData` with base64, `fileData` with an address. The
  media type is the one stated, else what the name's ending says, else what the kind of the part allows.
* What came from this format goes back as it came. Thought signatures stay with their part, also on an empty one.

Source: Google's Gemini API reference, "Content" and "Part"; "Thought signatures" and "File input methods".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.gemini import spelling
from threadkeep.formats.gemini.fields import NAME, SYSTEM_ROLES
from threadkeep.formats.shared import google
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.reports import Context


def wire_parts(
    parts: Sequence[Any], mappers: dict[str, shared.Mapper], context: Context, path: str
) -> list[JsonObject]:
    """The parts of a message, by the mappers of its role."""
    wire = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        sent = mappers.get(part["type"], shared.unknown_part)(part, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, NAME, context, part_path)
            sent = None if sent is None else spelling.overlaid(sent, shared.native_keys(part, NAME))
        if sent is not None:
            wire.append(sent)
    return wire


def own_part(part: JsonObject) -> Any:
    """A part of a message that came from this format, as it came."""
    if part["type"] == "provider_item":
        return part.get("payload")
    wire = own_media(part) if part["type"] in shared.MEDIA else _text(part, Context(), "")
    return _as_it_came(wire, part)


def own_parts(parts: Sequence[Any], context: Context, path: str) -> list[Any]:
    """The parts of a message that came from this format."""
    wire: list[Any] = []
    for index, part in enumerate(parts):
        is_own = part["type"] in shared.TEXTS or part["type"] in shared.MEDIA or part.get("format") == NAME
        wire += [own_part(part)] if is_own else wire_parts([part], ASSISTANT, context, f"{path}[{index}]")
    return [part for part in wire if part is not None]


def thought_parts(item: JsonObject, context: Context) -> list[JsonObject]:
    """The thoughts of a reasoning item that this service can read: its own, and those that the user put there."""
    if item.get("origin") not in google.READS:
        context.loss("reasoning", "", f"Reasoning was left out: it came from {item['origin']}.")
        return []
    wire, content = [], item.get("content")
    for index, thought in enumerate(content if isinstance(content, list) else ()):
        if isinstance(thought, dict) and thought.get("type") == "thinking":
            shared.report_foreign(thought, NAME, context, f"content[{index}]")
            wire.append(own_thought(thought))
        else:
            detail = "Reasoning was left out: it is not a thought of this service."
            context.loss("reasoning", f"content[{index}]", detail)
    if not wire:
        context.loss("reasoning", "", "Reasoning was left out: it holds no thought of this service.")
    return wire


def own_thought(thought: JsonObject) -> JsonObject:
    """A thought as a part."""
    wire = {"thought": True, "text": thought.get("thinking") or ""}
    if thought.get("signature") is not None:
        wire["thoughtSignature"] = thought["signature"]
    return _as_it_came(wire, thought)


def _as_it_came(wire: JsonObject, thing: JsonObject) -> JsonObject:
    """What a part or thought became, with the keys and in the spelling that it came with."""
    return spelling.respelled(
        spelling.overlaid(wire, shared.native_keys(thing, NAME)), spelling.spelling_of(thing).get("snake", ())
    )


def signature_of(thing: JsonObject) -> JsonObject:
    """The key of a part with the thought signature of a text or call; nothing where it has none."""
    signature = thing.get("thought_signature")
    return {} if signature is None or thing.get("origin") not in google.READS else {"thoughtSignature": signature}


def _text(part: JsonObject, context: Context, path: str) -> JsonObject:
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return {"text": part["text"]} | signature_of(part)


# Pictures, files and videos


def media_part(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A picture, file or video as the format sends it; a text that says what is missing where it cannot be sent."""
    media = google.sent_media(part, context, path)
    if media is None:
        return {"text": shared.note(part)}
    key, name = ("inlineData", "data") if media.is_inline else ("fileData", "fileUri")
    return {key: {"mimeType": media.media_type, name: media.content}}


def own_media(part: JsonObject) -> JsonObject:
    """A part that came from this format, as it came."""
    source = next(str(part[key]) for key in ("image_url", "video_url", "file_data", "file_url") if part.get(key))
    media_type = base64_media_type(source)
    if media_type is None:
        blob = {"mimeType": part.get("media_type"), "fileUri": source, "displayName": part.get("filename")}
        return {"fileData": {key: value for key, value in blob.items() if value is not None}}
    data = spelling.base64_as(source.partition(",")[2], spelling.spelling_of(part).get("base64", ()))
    blob = {"mimeType": media_type, "data": data, "displayName": part.get("filename")}
    return {"inlineData": {key: value for key, value in blob.items() if value is not None}}


ASSISTANT: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "provider_item": lambda part, context, path: shared.own_block(part, NAME, context, path),
}
USER: Final[dict[str, shared.Mapper]] = ASSISTANT | dict.fromkeys(sorted(shared.MEDIA), media_part)
# role of a message -> mappers of its parts
PARTS: Final = {"user": USER, **dict.fromkeys(("assistant", *sorted(SYSTEM_ROLES)), ASSISTANT)}


# Reading


def is_text(part: JsonObject) -> bool:
    """Whether a part is a text."""
    return isinstance(part.get("text"), str) and is_signed(part)


def is_thought(part: JsonObject) -> bool:
    """Whether a part is a thought; one may have no text, and only a signature."""
    is_bare = part.keys() <= {"thought", "thoughtSignature"} and is_signed(part)
    return part.get("thought") is True and (is_bare or is_text(part))


def is_signed(part: JsonObject) -> bool:
    """Whether a part has no thought signature, or one that can be kept."""
    return isinstance(part.get("thoughtSignature"), str | None)


def text_in(part: JsonObject, names: set[str], kind: str) -> JsonObject:
    """A text."""
    text = {"type": kind, "text": part["text"], **signature_in(part)}
    return with_native({**text, **spelling.noted(names)}, part, own_part(text))


def thought_in(part: JsonObject, names: set[str]) -> JsonObject:
    """A thought, as a block of a reasoning item."""
    thought = {"type": "thinking", "thinking": part.get("text") or ""}
    if part.get("thoughtSignature") is not None:
        thought["signature"] = part["thoughtSignature"]
    return with_native({**thought, **spelling.noted(names)}, part, own_thought(thought))


def with_native(piece: JsonObject, part: JsonObject, wire: JsonObject) -> JsonObject:
    """A piece with a note of what its part says beyond `wire`, which is what the piece becomes."""
    return shared.with_native_keys(piece, spelling.difference(part, wire), NAME)


def signature_in(part: JsonObject) -> JsonObject:
    """The thought signature of a part from the wire, as a key of a text or call; nothing where it has none."""
    signature = part.get("thoughtSignature")
    return {} if signature is None else {"thought_signature": signature}


def media_in(part: JsonObject, names: set[str]) -> JsonObject | None:
    """The canonical form of a part with `inlineData` or `fileData`; None for what has none. `names` is its spelling."""
    key = "inlineData" if "inlineData" in part else "fileData"
    if not isinstance(part.get(key), dict) or part.keys() >= {"inlineData", "fileData"}:
        return None
    holder: JsonObject = {name: value for name, value in part[key].items() if value is not None}
    media_type = holder.get("mimeType", "")
    source = _source_in(holder, key, media_type)
    if source is None or not isinstance(media_type, str):
        return None
    media = google.media_of(media_type, source[0]) | spelling.noted(names, base64=source[1])
    media |= {"media_type": media_type} if key == "fileData" and media_type else {}
    media |= {"filename": holder["displayName"]} if isinstance(holder.get("displayName"), str) else {}
    return media if own_media(media) == {key: holder} else None


def _source_in(holder: JsonObject, key: str, media_type: Any) -> tuple[str, list[str]] | None:
    """The URL of a medium, and how its base64 is spelled."""
    data, uri = holder.get("data"), holder.get("fileUri")
    if key == "inlineData":
        standard = spelling.standard_base64(data) if isinstance(data, str) else None
        return None if standard is None else (f"data:{media_type};base64,{standard[0]}", standard[1])
    return (uri, []) if isinstance(uri, str) and uri and not uri.startswith("data:") else None
