"""Content parts of the Messages API, written and read.

* Text of every kind is a text block; citations of this format go along, other annotations do not.
* Pictures and files go into user messages and tool results; in assistant messages they are left out.
* Base64 pictures are JPEG, PNG, GIF or WebP; base64 documents are PDF; text goes as a text source. A URL goes before a
  file id. What the service does not take becomes a note, and a loss.
* A message of media alone that the format does not take says so in a note.
* Empty texts are refused and left out. What came from this format goes back as it came.

Reading gives parts of one message, calls, outputs and reasoning, in the order of the blocks. A block without a
canonical form is kept as it is: a part of the open message of its turn, or an item of its own, which closes open
reasoning. So is a block that would not come back as it was.

Source: Anthropic's API reference, "Messages", content blocks, image and document blocks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.media import base64_media_type, parse_data_url
from threadkeep.formats.messages.fields import NAME, PLAIN_TEXT, THOUGHTS
from threadkeep.formats.shared import parsing
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.parts import block
from threadkeep.formats.shared.reports import Context

# role (of tool outputs: tool) -> kinds of blocks that stand there; assistant messages hold texts and all other kinds
_HELD: Final = {
    "tool": frozenset({"text", "image", "search_result", "document", "tool_reference", "browser_state"}),
    "user": frozenset({"text", "tool_result", "image", "document", "search_result", "container_upload"}),
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
}
_CITATIONS: Final = frozenset(
    f"{place}_location" for place in ("char", "page", "content_block", "search_result", "web_search_result")
)
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
_ALIASES: Final = {"image/jpg": "image/jpeg"}  # other names of media types


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
    if role in _HELD:
        return kind in _HELD[role]
    return kind == "text" or (kind is not None and kind not in _HELD["user"] | _HELD["system"])


def wire_parts(parts: Sequence[JsonObject], role: str, context: Context, path: str) -> list[Any]:
    """The blocks of a message or tool output, by the mappers of its role."""
    mappers = PARTS[role]
    if len(parts) == 1 and len(part := parts[0]) == shared.TEXT_KEYS and part["type"] in shared.TEXTS and part["text"]:
        return [{"type": "text", "text": part["text"]}]
    wire = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        sent = mappers.get(part["type"], shared.unknown_part)(part, context, part_path)
        if len(part) > shared.TEXT_KEYS:
            sent = _with_keys(sent, part, role, context, part_path)
        if sent is not None:
            wire.append(sent)
    notes = [] if role == "system" else [part for part in parts if part["type"] in shared.MEDIA]
    return wire or [{"type": "text", "text": shared.note(part)} for part in notes]


def own_parts(parts: Sequence[JsonObject], role: str, context: Context, path: str) -> list[Any]:
    """The blocks of an item that came from this format: as they came."""
    wire = []
    for index, part in enumerate(parts):
        own = OWN_PARTS.get(part["type"])
        if own is not None:
            wire.append(_as_input(own(part) | shared.native_keys(part, NAME)))
        elif part["type"] != "provider_item":
            wire += wire_parts([part], role, context, path)
        elif (block := shared.own_block(part, NAME, context, f"{path}[{index}]")) is not None:
            wire.append(block)
    return wire


def _as_input(block: JsonObject) -> JsonObject:
    """A block whose citations lack the key that only answers have: it is refused (langchain-ai/langchain#32592)."""
    citations = block.get("citations")
    if not isinstance(citations, list) or not any(isinstance(one, dict) and "file_id" in one for one in citations):
        return block
    kept = [{k: v for k, v in one.items() if k != "file_id"} if isinstance(one, dict) else one for one in citations]
    return {**block, "citations": kept}


def _own_text(part: JsonObject) -> JsonObject:
    wire = {"type": "text", "text": part["text"]}
    return wire | ({"citations": part["annotations"]} if part.get("annotations") else {})


def _own_document(part: JsonObject) -> JsonObject:
    title = part.get("filename")
    return {"type": "document", "source": _own_source(part)} | ({} if title is None else {"title": title})


def _own_source(part: JsonObject) -> JsonObject:
    url: Any = part.get("image_url") or part.get("file_data") or part.get("file_url")
    if not url:
        return {"type": "file", "file_id": part.get("file_id")}
    media_type = base64_media_type(url)
    if media_type is None:
        return {"type": "url", "url": url}
    is_text = media_type == PLAIN_TEXT
    data = shared.decoded_text(url) if is_text else url.partition(",")[2]
    return {"type": "text" if is_text else "base64", "media_type": media_type, "data": data}


# part type -> what it was on the wire of this format
OWN_PARTS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    "input_text": _own_text,
    "output_text": _own_text,
    "input_image": lambda part: {"type": "image", "source": _own_source(part)},
    "input_file": _own_document,
}


# Texts and blocks


def _text(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    if not part["text"]:
        context.repair("blank_text", path, "An empty text was left out: the service refuses it.")
        return None
    return {"type": "text", "text": part["text"]}


def _text_of_tool(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    """A text without citations, as in tool results."""
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return _text(part, context, path)


def _marked(mapper: shared.Mapper) -> shared.Mapper:
    """A mapper that gives its blocks the cache mark of their parts."""

    def marked(part: JsonObject, context: Context, path: str) -> Any:
        block, mark = mapper(part, context, path), part.get("cache_control")
        return block if block is None or mark is None else block | {"cache_control": mark}

    return marked


def _with_keys(sent: Any, part: JsonObject, role: str, context: Context, path: str) -> Any:
    """A block with the keys that its part came with, and its cache mark by the Responses API's name.

    Results of tools have no such mark inside.
    """
    if not shared.PRIVATE.isdisjoint(part):
        shared.report_private(part, NAME, context, path)
        sent = sent | shared.native_keys(part, NAME) if isinstance(sent, dict) else sent
    if part.get(shared.BREAKPOINT) is None or not isinstance(sent, dict):
        return sent
    if role == "tool":
        shared.report_breakpoint(part, context, path)
        return sent
    return sent if "cache_control" in sent else sent | {"cache_control": {"type": "ephemeral"}}


_marked_text: Final = _marked(_text)


def _output_text(part: JsonObject, context: Context, path: str) -> JsonObject | None:
    wire: JsonObject | None = _marked_text(part, context, path)
    citations = []
    for annotation in part.get("annotations") or ():
        kind = block_type(annotation)
        if kind in _CITATIONS:
            citations.append(annotation)
        else:
            context.loss("annotations", path, f"An annotation of type {kind!r} was left out.")
    return wire | {"citations": citations} if wire and citations else wire


def _block(role: str, part: JsonObject, context: Context, path: str) -> Any:
    """A block of this format, where messages of that role hold it."""
    block = shared.own_block(part, NAME, context, path)
    if block is None or stands_in(block, role):
        return block
    context.loss("provider_item", path, f"A block of type {block_type(block)!r} has no place in a {role} message.")
    return None


# Pictures and documents


def _image(part: JsonObject, context: Context, path: str) -> JsonObject:
    """An image block, or a note where the service takes no such picture."""
    url = shared.in_base64(str(part.get("image_url") or "").strip())
    media_type = base64_media_type(url)
    if media_type is None:
        return _elsewhere("image", url, part, context, path)
    return _inline_image(_ALIASES.get(media_type, media_type), url, part, context, path)


def _inline_image(media_type: str, url: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    data = url.partition(",")[2]
    if not shared.is_base64(data):
        return _noted("data_url", "The data URL is broken", part, context, path)
    if media_type not in _IMAGES:
        return _noted("media", f"The service takes no pictures of type {media_type}", part, context, path)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _document(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A document block (an image block for pictures), or a note where the service takes no such file."""
    url = shared.url_of(part)
    own_type = base64_media_type(url)
    if own_type is not None:
        wire = _inline_document(str(part.get("media_type") or own_type), url, part, context, path)
    else:
        wire = _elsewhere("document", url, part, context, path)
    if wire["type"] == "document":
        wire |= {"title": part["filename"]} if part.get("filename") else {}
        wire |= {"citations": part["citations"]} if part.get("citations") is not None else {}
    return wire


def _inline_document(media_type: str, url: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    data = url.partition(",")[2]
    media_type = _ALIASES.get(media_type, media_type)
    if not shared.is_base64(data):
        return _noted("data_url", "The data URL is broken", part, context, path)
    if media_type == _PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": _PDF, "data": data}}
    if media_type in _IMAGES:
        context.repair("file_as_image", path, f"A file of type {media_type} was sent as an image.")
        return _inline_image(media_type, url, part, context, path)
    text = shared.decoded_text(url) if shared.is_textual(media_type) else None
    if text is None or not text.strip():
        why = f"The service takes no files of type {media_type}"
        if shared.is_textual(media_type):
            why = "The text is not UTF-8" if text is None else "The text is empty"
        return _noted("media", why, part, context, path)
    return {"type": "document", "source": {"type": "text", "media_type": PLAIN_TEXT, "data": text}}


def _elsewhere(kind: str, url: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    """A block whose source is a URL or a file that the service keeps."""
    if url:
        return {"type": kind, "source": {"type": "url", "url": url}}
    if part.get("file_id"):
        return {"type": kind, "source": {"type": "file", "file_id": part["file_id"]}}
    code = "image_source" if part["type"] == "input_image" else "file_source"
    return _noted(code, "There is neither a URL nor a file_id", part, context, path)


def _noted(code: str, why: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    context.loss(code, path, f"{why}: {shared.source_of(part)}.")
    return {"type": "text", "text": shared.note(part)}


_ANYWHERE: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    "input_text": _marked_text,
    "output_text": _output_text,
    "text": _marked_text,
}
_MEDIA: Final[dict[str, shared.Mapper]] = {"input_image": _marked(_image), "input_file": _marked(_document)}
# role (of tool outputs: tool) -> part type -> mapper
PARTS: Final[dict[str, dict[str, shared.Mapper]]] = {
    "user": {**_ANYWHERE, **_MEDIA, "provider_item": partial(_block, "user")},
    "assistant": {**_ANYWHERE, "provider_item": partial(_block, "assistant")},
    "system": {**_ANYWHERE, "output_text": _marked_text, "provider_item": partial(_block, "system")},
    "tool": {
        **_ANYWHERE,
        **dict.fromkeys(shared.TEXTS, _text_of_tool),
        **_MEDIA,
        "provider_item": partial(_block, "tool"),
    },
}


def part_of(wire: Any, role: str) -> JsonObject:
    """A block as a content part; one that the part would not give back stays a block."""
    kind = wire.get("type") if isinstance(wire, dict) else None
    if kind == "text" and wire.keys() == {"type", "text"} and isinstance(wire["text"], str):  # most blocks
        return {"type": "output_text" if role == "assistant" else "input_text", "text": wire["text"]}
    if kind not in (("text",) if role == "assistant" else tuple(READERS)):
        return block(wire, NAME)
    keys = {key: value for key, value in wire.items() if value is not None}
    part = READERS[kind](keys, role)
    if part is None or OWN_PARTS[part["type"]](part) | shared.native_keys(part, NAME) != keys:
        return block(wire, NAME)
    return part


def _read_text(wire: JsonObject, role: str) -> JsonObject | None:
    if not isinstance(wire.get("text"), str):
        return None
    if role != "assistant":
        return shared.split_native(wire, ("type", "text"), NAME) | {"type": "input_text"}
    if wire.get("citations") == []:
        del wire["citations"]
    if not isinstance(wire.get("citations", []), list):
        return None
    part = shared.split_native(wire, ("type", "text", "citations"), NAME) | {"type": "output_text"}
    citations = part.pop("citations", None)
    return part | ({"annotations": citations} if citations else {})


def _read_image(wire: JsonObject, _role: str) -> JsonObject | None:
    key, source = _source_of(wire)
    if key is None:
        return None
    native = _native(wire, ("type", "source"))
    return {**native, "type": "input_image", "file_id" if key == "file_id" else "image_url": source}


def _read_document(wire: JsonObject, _role: str) -> JsonObject | None:
    (key, source), title = _source_of(wire), wire.get("title")
    if key is None or not isinstance(title, str | None):
        return None
    named = {} if title is None else {"filename": title}
    return {**_native(wire, ("type", "source", "title")), "type": "input_file", key: source, **named}


def _native(wire: JsonObject, known: Collection[str]) -> JsonObject:
    """The keys of a block that have no canonical name, as a key of its part or item."""
    strange = {key: value for key, value in wire.items() if key not in known and value is not None}
    return {"native": {NAME: strange}} if strange else {}


def _source_of(wire: JsonObject) -> tuple[str | None, str]:
    """Where a document is, as the key of a file and its value: a data URL, a URL, or a file of the service."""
    match wire.get("source"):
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            url = f"data:{media_type};base64,{data}"
            return ("file_data" if parse_data_url(url) == (media_type, data) else None), url
        case {"type": "text", "media_type": "text/plain", "data": str(data)}:
            encoded = base64.b64encode(data.encode("utf-8", "replace")).decode("ascii")
            return "file_data", f"data:{PLAIN_TEXT};base64,{encoded}"
        case {"type": "url", "url": str(url)} if url:
            return "file_url", url
        case {"type": "file", "file_id": str(file_id)} if file_id:
            return "file_id", file_id
    return None, ""


# kind of block -> what reads it as a content part
READERS: Final[dict[str, Callable[[JsonObject, str], JsonObject | None]]] = {
    "text": _read_text,
    "image": _read_image,
    "document": _read_document,
}


def call_of(wire: JsonObject) -> JsonObject | None:
    """A tool_use block as an item; None where it is not whole."""
    call_id, name, given = wire.get("id"), wire.get("name"), wire.get("input")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(given, dict | str | None):
        return None
    arguments = given if isinstance(given, str) else dumps(given or {}).decode()
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, "origin": NAME}
    return item | _native(wire, ("type", "id", "name", "input"))


def output_of(wire: JsonObject) -> JsonObject | None:
    """A tool_result block as an item; None where the item would not give it back."""
    call_id, content, is_error = wire.get("tool_use_id"), wire.get("content"), wire.get("is_error")
    is_regular = isinstance(call_id, str) and isinstance(content, str | list | None)
    if not is_regular or is_error not in (None, True, False):
        return None
    output = [part_of(inner, "tool") for inner in content] if isinstance(content, list) else content
    item = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    if is_error is not None:
        item["status"] = "failed" if is_error else "completed"
    return item | _native(wire, ("type", "tool_use_id", "content", "is_error"))


def items_of(blocks: Iterable[Any], role: str) -> list[JsonObject]:
    """The item objects of a message's blocks; neighbours of one kind share an item."""
    items: list[JsonObject] = []
    for wire in blocks:
        kind = block_type(wire)
        if kind in THOUGHTS and role == "assistant":
            parsing.open_parts(items, "reasoning", NAME).append(wire)
            continue
        reader = _ITEMS.get((kind, role))
        item = None if reader is None else reader(wire)
        if item is None:
            part = part_of(wire, role)
            is_in_message = bool(items) and items[-1]["type"] == "message"
            if part["type"] != "provider_item" or role != "assistant" or is_in_message:
                parsing.open_parts(items, "message", NAME, role=role).append(part)
                continue
            item = {**part, "origin": NAME}
        items.append(item)
    return items


def compaction_of(wire: JsonObject) -> JsonObject | None:
    """A compaction block as an item; None for one that failed, which means nothing."""
    summary = wire.get("content")
    if not isinstance(summary, str) or not summary.strip():
        return None
    return {"type": "compaction", "summary": summary, "origin": NAME} | _native(wire, ("type", "content"))


# kind of block and role of its message -> what reads it as an item
_ITEMS: Final[dict[tuple[Any, str], Callable[[JsonObject], JsonObject | None]]] = {
    ("tool_use", "assistant"): call_of,
    ("tool_result", "user"): output_of,
    ("compaction", "assistant"): compaction_of,
}
