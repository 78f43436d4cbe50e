"""Parts of messages.

* Text of every kind is a text part; its thought signature goes with it, if it is one of this service.
* Pictures, files and videos go into the user's turns only.
* What came from this format goes back as it came.

Source: Google's Gemini API reference, "Content" and "Part"; "Thought signatures".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.gemini.media import media_part, own_media
from threadkeep.formats.gemini.spelling import overlaid, respelled, spelling_of
from threadkeep.formats.media import source_of
from threadkeep.formats.native import native_keys, own_block, report_foreign
from threadkeep.formats.reports import Context

Mapper = Callable[[JsonObject, Context, str], Any]
TEXTS: Final = frozenset({"input_text", "output_text", "text"})
MEDIA: Final = frozenset({"input_image", "input_file", "input_video"})


def wire_parts(parts: Sequence[Any], mappers: dict[str, Mapper], context: Context, path: str) -> list[JsonObject]:
    """The parts of a message, by the mappers of its role."""
    found = []
    for index, part in enumerate(parts):
        place = f"{path}[{index}]"
        sent = mappers.get(part["type"], _unknown)(part, context, place)
        if "native" in part:
            report_foreign(part, NAME, context, place)
            sent = None if sent is None else overlaid(sent, native_keys(part, NAME))
        if sent is not None:
            found.append(sent)
    return found


def own_part(part: JsonObject) -> Any:
    """A part of a message that came from this format, as it came."""
    if part["type"] == "provider_item":
        return part.get("payload")
    made = own_media(part) if part["type"] in MEDIA else _text(part, Context(), "")
    return respelled(overlaid(made, native_keys(part, NAME)), spelling_of(part).get("snake", ()))


def own_parts(parts: Sequence[Any], context: Context, path: str) -> list[Any]:
    """The parts of a message that came from this format."""
    found: list[Any] = []
    for index, part in enumerate(parts):
        is_own = part["type"] in TEXTS or part["type"] in MEDIA or part.get("format") == NAME
        found += [own_part(part)] if is_own else wire_parts([part], ASSISTANT, context, f"{path}[{index}]")
    return [part for part in found if part is not None]


def thought_parts(item: JsonObject, context: Context) -> list[JsonObject]:
    """The thoughts of a reasoning item that this service can read: its own, and those that the user put there."""
    if item.get("origin") not in (None, NAME):
        context.lose("reasoning", "", f"Reasoning was left out: it came from {item['origin']}.")
        return []
    found = []
    content = item.get("content")
    for index, thought in enumerate(content if isinstance(content, list) else ()):
        if isinstance(thought, dict) and thought.get("type") == "thinking":
            found.append(own_thought(thought))
        else:
            context.lose("reasoning", f"content[{index}]", "Reasoning was left out: it is no thought of this service.")
    if not found:
        context.lose("reasoning", "", "Reasoning was left out: it holds no thought of this service.")
    return found


def own_thought(thought: JsonObject) -> JsonObject:
    """A thought as a part."""
    made = {"thought": True, "text": thought.get("thinking") or ""}
    if thought.get("signature") is not None:
        made["thoughtSignature"] = thought["signature"]
    return respelled(overlaid(made, native_keys(thought, NAME)), spelling_of(thought).get("snake", ()))


def signature_of(thing: JsonObject) -> JsonObject:
    """The key of a part with the thought signature of a text or call; nothing where it has none."""
    found = thing.get("thought_signature")
    return {} if found is None or thing.get("origin") not in (None, NAME) else {"thoughtSignature": found}


def _text(part: JsonObject, context: Context, path: str) -> JsonObject:
    if part.get("annotations"):
        context.lose("annotations", path, "The annotations of the text were left out.")
    return {"text": part["text"]} | signature_of(part)


def _refusal(_part: JsonObject, context: Context, path: str) -> None:
    context.lose("refusal", path, "The refusal was left out.")


def _thought(_part: JsonObject, context: Context, path: str) -> None:
    context.lose("reasoning", path, "A text of reasoning was left out.")


def _block(part: JsonObject, context: Context, path: str) -> Any:
    return own_block(part, NAME, context, path)


def _lost(part: JsonObject, context: Context, path: str) -> None:
    context.lose("media", path, f"The format does not take this {part['type']} here: {source_of(part)}.")


def _unknown(part: JsonObject, context: Context, path: str) -> None:
    context.lose("part", path, f"The format has no part of type {part['type']!r}.")


ASSISTANT: Final[dict[str, Mapper]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "reasoning_text": _thought,
    "summary_text": _thought,
    "refusal": _refusal,
    "provider_item": _block,
    "input_image": _lost,
    "input_file": _lost,
    "input_video": _lost,
}
USER: Final[dict[str, Mapper]] = ASSISTANT | dict.fromkeys(sorted(MEDIA), media_part)
# canonical roles of messages with parts of their own -> mappers
PARTS: Final = {"assistant": ASSISTANT, "user": USER}
