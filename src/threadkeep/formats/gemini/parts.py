"""Parts of messages, in both directions.

* Text of every kind is a text part; its thought signature goes with it, if it is one of this service.
* Pictures, files and videos go into the user's turns only.
* What came from this format goes back as it came. Thought signatures stay with their part, also on an empty one.

Source: Google's Gemini API reference, "Content" and "Part"; "Thought signatures".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.gemini.media import media_part, own_media
from threadkeep.formats.gemini.spelling import difference, noted, overlaid, respelled, spelling_of
from threadkeep.formats.shared.parts import (
    MEDIA,
    NOT_SENT,
    TEXTS,
    Mapper,
    native_keys,
    own_block,
    report_foreign,
    unknown_part,
)
from threadkeep.formats.shared.reports import Context


def wire_parts(parts: Sequence[Any], mappers: dict[str, Mapper], context: Context, path: str) -> list[JsonObject]:
    """The parts of a message, by the mappers of its role."""
    wire = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        sent = mappers.get(part["type"], unknown_part)(part, context, part_path)
        if "native" in part:
            report_foreign(part, NAME, context, part_path)
            sent = None if sent is None else overlaid(sent, native_keys(part, NAME))
        if sent is not None:
            wire.append(sent)
    return wire


def own_part(part: JsonObject) -> Any:
    """A part of a message that came from this format, as it came."""
    if part["type"] == "provider_item":
        return part.get("payload")
    wire = own_media(part) if part["type"] in MEDIA else _text(part, Context(), "")
    return respelled(overlaid(wire, native_keys(part, NAME)), spelling_of(part).get("snake", ()))


def own_parts(parts: Sequence[Any], context: Context, path: str) -> list[Any]:
    """The parts of a message that came from this format."""
    wire: list[Any] = []
    for index, part in enumerate(parts):
        is_own = part["type"] in TEXTS or part["type"] in MEDIA or part.get("format") == NAME
        wire += [own_part(part)] if is_own else wire_parts([part], ASSISTANT, context, f"{path}[{index}]")
    return [part for part in wire if part is not None]


def thought_parts(item: JsonObject, context: Context) -> list[JsonObject]:
    """The thoughts of a reasoning item that this service can read: its own, and those that the user put there."""
    if item.get("origin") not in (None, NAME):
        context.loss("reasoning", "", f"Reasoning was left out: it came from {item['origin']}.")
        return []
    wire = []
    content = item.get("content")
    for index, thought in enumerate(content if isinstance(content, list) else ()):
        if isinstance(thought, dict) and thought.get("type") == "thinking":
            wire.append(own_thought(thought))
        else:
            context.loss(
                "reasoning", f"content[{index}]", "Reasoning was left out: it is not a thought of this service."
            )
    if not wire:
        context.loss("reasoning", "", "Reasoning was left out: it holds no thought of this service.")
    return wire


def own_thought(thought: JsonObject) -> JsonObject:
    """A thought as a part."""
    wire = {"thought": True, "text": thought.get("thinking") or ""}
    if thought.get("signature") is not None:
        wire["thoughtSignature"] = thought["signature"]
    return respelled(overlaid(wire, native_keys(thought, NAME)), spelling_of(thought).get("snake", ()))


def signature_of(thing: JsonObject) -> JsonObject:
    """The key of a part with the thought signature of a text or call; nothing where it has none."""
    signature = thing.get("thought_signature")
    return {} if signature is None or thing.get("origin") not in (None, NAME) else {"thoughtSignature": signature}


def _text(part: JsonObject, context: Context, path: str) -> JsonObject:
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return {"text": part["text"]} | signature_of(part)


def _block(part: JsonObject, context: Context, path: str) -> Any:
    return own_block(part, NAME, context, path)


ASSISTANT: Final[dict[str, Mapper]] = {
    **NOT_SENT,
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "provider_item": _block,
}
USER: Final[dict[str, Mapper]] = ASSISTANT | dict.fromkeys(sorted(MEDIA), media_part)
# canonical roles of messages with parts of their own -> mappers
PARTS: Final = {"assistant": ASSISTANT, "user": USER}


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
    text = {"type": kind, "text": part["text"], **signature_in(part), **noted(names)}
    return with_native(text, part, own_part({"type": kind, "text": part["text"], **signature_in(part)}))


def thought_in(part: JsonObject, names: set[str]) -> JsonObject:
    """A thought, as a block of a reasoning item."""
    thought = {"type": "thinking", "thinking": part.get("text") or ""}
    if part.get("thoughtSignature") is not None:
        thought["signature"] = part["thoughtSignature"]
    return with_native({**thought, **noted(names)}, part, own_thought(thought))


def with_native(piece: JsonObject, part: JsonObject, wire: JsonObject) -> JsonObject:
    """A piece with a note of what its part says that it does not; `made` is what it says."""
    strange = difference(part, wire)
    return {**piece, "native": {NAME: strange}} if strange else piece


def signature_in(part: JsonObject) -> JsonObject:
    """The thought signature of a part from the wire, as a key of a text or call; nothing where it has none."""
    signature = part.get("thoughtSignature")
    return {} if signature is None else {"thought_signature": signature}
