"""Content parts of the Messages API.

* Text of every kind is a text block; citations of this format go along, other annotations do not.
* Pictures and files go into user messages and tool results; in assistant messages they are left out.
* A message of media alone that the format does not take says so in a note.
* Empty texts are refused and left out. What came from this format goes back as it came.

Source: Anthropic's API reference, "Messages", content blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.media import note, source_of
from threadkeep.formats.messages.fields import CITATIONS, NAME, RESULT_BLOCKS, SYSTEM_BLOCKS, USER_BLOCKS
from threadkeep.formats.messages.media import document, image, own_source
from threadkeep.formats.native import native_keys, own_block, report_foreign
from threadkeep.formats.reports import Context

Mapper = Callable[[JsonObject, Context, str], JsonObject | None]
_PLAIN: Final = 2  # keys of a part that is only text: its type and the text
_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_MEDIA: Final = frozenset({"input_image", "input_file", "input_video"})


def wire_parts(parts: Sequence[JsonObject], role: str, context: Context, path: str) -> list[Any]:
    """The blocks of a message or tool output, by the mappers of its role."""
    mappers = PARTS[role]
    if len(parts) == 1 and len(part := parts[0]) == _PLAIN and part["type"] in _TEXTS and part["text"]:
        return [{"type": "text", "text": part["text"]}]
    found = []
    for index, part in enumerate(parts):
        place = f"{path}[{index}]"
        sent = mappers.get(part["type"], _unknown)(part, context, place)
        if "native" in part:
            report_foreign(part, NAME, context, place)
            sent = sent | native_keys(part, NAME) if isinstance(sent, dict) else sent
        if sent is not None:
            found.append(sent)
    notes = [] if role == "system" else [part for part in parts if part["type"] in _MEDIA]
    return found or [{"type": "text", "text": note(part)} for part in notes]


def own_parts(parts: Sequence[JsonObject], role: str, context: Context, path: str) -> list[Any]:
    """The blocks of an item that came from this format: as they came."""
    found = []
    for index, part in enumerate(parts):
        own = OWN_PARTS.get(part["type"])
        if own is not None:
            found.append(own(part) | native_keys(part, NAME))
        elif part["type"] == "provider_item":
            found += [block for block in [own_block(part, NAME, context, f"{path}[{index}]")] if block is not None]
        else:
            found += wire_parts([part], role, context, path)
    return found


def _own_text(part: JsonObject) -> JsonObject:
    found = {"type": "text", "text": part["text"]}
    return found | ({"citations": part["annotations"]} if part.get("annotations") else {})


def _own_image(part: JsonObject) -> JsonObject:
    return {"type": "image", "source": own_source(part)}


def _own_document(part: JsonObject) -> JsonObject:
    title = part.get("filename")
    return {"type": "document", "source": own_source(part)} | ({} if title is None else {"title": title})


# part type -> what it was on the wire of this format
OWN_PARTS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    "input_text": _own_text,
    "output_text": _own_text,
    "input_image": _own_image,
    "input_file": _own_document,
}


def _text(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    """A text alone, which is how texts stand in tool results."""
    if part.get("annotations"):
        context.lose("annotations", path, "The annotations of the text were left out.")
    return _plain_text(part, context, path)


def _plain_text(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    if not part["text"]:
        context.mend("blank_text", path, "An empty text was left out: the service refuses it.")
        return None
    return {"type": "text", "text": part["text"]}


def _marked_text(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    return _marked(_plain_text(part, context, path), part)


def _output_text(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    found = _marked_text(part, context, path)
    citations = []
    for one in part.get("annotations") or ():
        kind = block_type(one)
        if kind in CITATIONS:
            citations.append(one)
        else:
            context.lose("annotations", path, f"An annotation of type {kind!r} was left out.")
    return found | {"citations": citations} if found and citations else found


def _image(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    return _marked(image(part, context, path), part)


def _document(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    return _marked(document(part, context, path), part)


def _marked(block: JsonObject | None, part: JsonObject) -> JsonObject | None:
    """A block with the cache mark that the user put on the part."""
    if block is None or part.get("cache_control") is None:
        return block
    return block | {"cache_control": part["cache_control"]}


def _lost_media(part: JsonObject, context: Context, path: str) -> None:
    context.lose("media", path, f"The format does not take this {part['type']} here: {source_of(part)}.")


def _refusal(_part: JsonObject, context: Context, path: str) -> None:
    context.lose("refusal", path, "The refusal was left out.")


def _thought(_part: JsonObject, context: Context, path: str) -> None:
    context.lose("reasoning", path, "A text of reasoning was left out.")


def _unknown(part: JsonObject, context: Context, path: str) -> None:
    context.lose("part", path, f"The format has no part of type {part['type']!r}.")


def _block(role: str) -> Mapper:
    """A block of this format, where messages of that role hold it."""

    def mapper(part: JsonObject, context: Context, path: str) -> Any:
        block = own_block(part, NAME, context, path)
        if block is None or stands_in(block, role):
            return block
        context.lose("provider_item", path, f"A block of type {block_type(block)!r} has no place in a {role} message.")
        return None

    return mapper


def block_type(block: Any) -> str | None:
    """The type of a block; None when it has none."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else None


def text_of(block: Any) -> str | None:
    """The text of a text block; None for everything else."""
    text = block.get("text") if block_type(block) == "text" else None
    return text if isinstance(text, str) else None


def stands_in(block: Any, role: str) -> bool:
    """Whether messages of a role (or tool results) hold such a block."""
    kind = block_type(block)
    if kind is None:
        return False
    held = {"tool": kind in RESULT_BLOCKS, "user": kind in USER_BLOCKS, "system": kind in SYSTEM_BLOCKS}
    return kind == "text" or held.get(role, kind not in USER_BLOCKS | SYSTEM_BLOCKS)


_ANYWHERE: Final[dict[str, Mapper]] = {
    "input_text": _marked_text,
    "output_text": _output_text,
    "text": _marked_text,
    "refusal": _refusal,
    "reasoning_text": _thought,
    "summary_text": _thought,
    "input_image": _lost_media,
    "input_file": _lost_media,
    "input_video": _lost_media,
}
# role (of tool outputs: tool) -> part type -> mapper
PARTS: Final[dict[str, dict[str, Mapper]]] = {
    "user": {**_ANYWHERE, "input_image": _image, "input_file": _document, "provider_item": _block("user")},
    "assistant": {**_ANYWHERE, "provider_item": _block("assistant")},
    "system": {**_ANYWHERE, "output_text": _marked_text, "provider_item": _block("system")},
    "tool": {
        **_ANYWHERE,
        "input_text": _text,
        "output_text": _text,
        "text": _text,
        "input_image": _image,
        "input_file": _document,
        "provider_item": _block("tool"),
    },
}
