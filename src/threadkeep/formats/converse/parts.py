"""Content blocks of Converse: texts, media, cache points, and blocks that came from this format.

* Blank texts are refused and left out: in messages, in system text, and inside of tool results.
* Media go into user messages and tool results; what cannot be sent becomes a note in its place.
* A part with `cache_point` is followed by a cache point, but inside of tool results, which hold none.
* Blocks that came from this format go back as they came, with the keys that have no canonical name.

Reading gives reasoning, messages, calls and results, in the order of the blocks:

* Neighbouring texts and media are one message, neighbouring reasoning blocks one item.
* What a model says besides text, calls and reasoning (results of the provider's own tools too) is a block of this
  format, and so is what a user message holds besides text, media and results.
* Text with citations, and guarded text, are texts; the block is kept with them.

Source: Amazon Bedrock's API reference, "ContentBlock", "SystemContentBlock", "ToolResultContentBlock".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.converse import media
from threadkeep.formats.converse.fields import NAME, OUTPUT_STATUSES
from threadkeep.formats.converse.media import MEDIA, Kind, document_name, kind_of_file, media_part, source_block
from threadkeep.formats.shared import arguments, parsing, reports
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.parts import Mapper, native_keys, note, url_of

JSON_SPELLING: Final = "json"  # how a text part of a tool result says that it came as JSON
_LIFETIMES: Final = frozenset({"5m", "1h"})


@dataclass(slots=True)
class WriteContext(reports.Context):
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
        return {"json": arguments.sent_value(loads(part["text"]), part["text"], context, path)}
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

_CALL: Final = "tool_use"  # type that some answers state of a call, and that requests do not have
_ITEMS: Final = frozenset({"function_call", "function_call_output"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_SERVER_CALL: Final = "server_tool_use"  # type of a call that the provider answers itself
_CALL_KEYS: Final = frozenset({"toolUseId", "name", "input"})
_RESULT_KEYS: Final = frozenset({"toolUseId", "content", "status"})
_THOUGHT_KEYS: Final = frozenset({"text", "signature"})


class BlockReader:
    """Collects the items of one message; what is odd about calls is kept when it came in a request."""

    def __init__(self, role: str, *, is_answer: bool = False) -> None:
        self.items: list[JsonObject] = []
        self._role, self._is_answer = role, is_answer
        self._is_model = role == "assistant"
        self._text_type = "output_text" if self._is_model else "input_text"

    def read(self, blocks: Sequence[Any]) -> list[JsonObject]:
        """The items of all blocks."""
        for wire in blocks:
            key = next(iter(wire), "") if isinstance(wire, dict) and len(wire) == 1 else ""
            if key in MEDIA:
                thing = media_part(key, wire[key])
            else:
                thing = READERS[key](self, wire[key]) if key in READERS else None
            self._put(shared.block(wire, NAME) if thing is None else thing)
        return self.items

    def text(self, text: Any) -> JsonObject | None:
        """A text."""
        return {"type": self._text_type, "text": text} if isinstance(text, str) else None

    def guarded(self, content: Any) -> JsonObject | None:
        """A text that the guardrail looks at."""
        match content:
            case {"text": {"text": str(text)}}:
                return {"type": self._text_type, "text": text, **_native({"guardContent": content})}
        return None

    def cited(self, content: Any) -> JsonObject | None:
        """A text with its citations."""
        match content:
            case {"content": [{"text": str()}, *_] as pieces}:
                text = "".join(piece.get("text", "") for piece in pieces if isinstance(piece, dict))
                part: JsonObject = {"type": self._text_type, "text": text}
                if self._is_model and isinstance(content.get("citations"), list):
                    part["annotations"] = [annotation(citation, text) for citation in content["citations"]]
                return {**part, **_native({"citationsContent": content})}
        return None

    def call(self, call: Any) -> JsonObject | None:
        """A call of a function; calls of the provider's own tools stay blocks."""
        if not self._is_model or not is_call(call):
            return None
        # Keys of a call that go back; an answer that says what kind of call it is says what its item says
        known = {*_CALL_KEYS, "type"} if self._is_answer and call.get("type") == _CALL else _CALL_KEYS
        odd = {key: value for key, value in call.items() if key not in known}
        if not self._is_answer and "input" in call and not isinstance(call["input"], dict):
            odd["input"] = call["input"]
        return {
            "type": "function_call",
            "call_id": str(call.get("toolUseId") or ""),
            "name": str(call.get("name") or ""),
            "arguments": arguments.arguments_text(call.get("input")),
            **_native(odd),
        }

    def result(self, result: Any) -> JsonObject | None:
        """What a function returned; results of the provider's own tools stay blocks."""
        if self._is_model or not isinstance(result, dict) or not isinstance(result.get("content"), list):
            return None
        status = result.get("status")
        item: JsonObject = {"type": "function_call_output", "call_id": str(result.get("toolUseId") or "")}
        item["output"] = _output(result["content"])
        native = {key: value for key, value in result.items() if key not in _RESULT_KEYS}
        if isinstance(status, str) and status in OUTPUT_STATUSES:
            item["status"] = OUTPUT_STATUSES[status]
        elif status is not None:
            native["status"] = status
        return {**item, **_native(native)}

    def reasoning(self, content: Any) -> JsonObject | None:
        """A piece of reasoning, readable or not."""
        return _thinking(content) if self._is_model else None

    def _put(self, thing: JsonObject) -> None:
        """Take in an item, a thought, or a part; a block without an open message is an item, but in system content."""
        kind, items, role = thing["type"], self.items, self._role
        is_in_message = bool(items) and items[-1]["type"] == "message"
        if kind == "provider_item" and role != "system" and not is_in_message:
            items.append({**thing, "role": role, "origin": NAME})
        elif kind in _ITEMS:
            items.append({**thing, "origin": NAME})
        elif kind in _THOUGHTS:
            parsing.open_parts(items, "reasoning", NAME, summary=[]).append(thing)
        else:
            parsing.open_parts(items, "message", NAME, role=role).append(thing)


def is_call(call: Any) -> bool:
    """Whether what a model says is the call of a function; calls of the provider's own tools stay blocks."""
    return isinstance(call, dict) and call.get("type") != _SERVER_CALL


READERS: Final[dict[str, Callable[[BlockReader, Any], JsonObject | None]]] = {
    "text": BlockReader.text,
    "guardContent": BlockReader.guarded,
    "citationsContent": BlockReader.cited,
    "toolUse": BlockReader.call,
    "toolResult": BlockReader.result,
    "reasoningContent": BlockReader.reasoning,
}


def _native(keys: JsonObject) -> JsonObject:
    return {"native": {NAME: keys}} if keys else {}


def _output(blocks: list[Any]) -> str | list[JsonObject]:
    """The output in the content of a tool result: text, or parts where there is more than a text."""
    match blocks:
        case [{"text": str(text), **others}] if not others:
            return text
    return [_result_part(wire) for wire in blocks]


def _result_part(wire: Any) -> JsonObject:
    match wire:
        case {"text": str(text), **others} if not others:
            return {"type": "input_text", "text": text}
        case {"json": value, **others} if not others:
            return {"type": "input_text", "text": dumps(value).decode(), "spelling": {NAME: JSON_SPELLING}}
    kind = next(iter(wire), "") if isinstance(wire, dict) and len(wire) == 1 else ""
    part = media_part(kind, wire[kind]) if kind in MEDIA else None
    return shared.block(wire, NAME) if part is None else part


def _thinking(content: Any) -> JsonObject | None:
    """A piece of reasoning as Anthropic's own API has it; None for what it does not have."""
    match content:
        case {"redactedContent": str(data), **others} if not others:
            return {"type": "redacted_thinking", "data": data}
        case {"reasoningText": dict(text), **others} if not others and text.keys() <= _THOUGHT_KEYS:
            thought = {"type": "thinking", "thinking": text.get("text") or ""}
            return thought if text.get("signature") is None else {**thought, "signature": text["signature"]}
    return None


def annotation(citation: Any, text: str) -> JsonObject:
    """A citation as an annotation of the text that it stands for; one of a web page is one of everywhere."""
    match citation:
        case {"location": {"web": {"url": str(url)}}}:
            title = citation.get("title") or ""
            return {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": len(text)}
    return {"type": "citation", "citation": citation}
