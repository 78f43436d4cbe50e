"""The items of a Converse message: reasoning, messages, calls and results, in the order of the blocks.

* Neighbouring texts and media are one message, neighbouring reasoning blocks one item.
* What a model says besides text, calls and reasoning (results of the provider's own tools too) is a block of this
  format, and so is what a user message holds besides text, media and results.
* Text with citations, and guarded text, are texts; the block is kept with them.

Source: Amazon Bedrock's API reference, "ContentBlock".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.converse.fields import NAME, OUTPUT_STATUSES
from threadkeep.formats.converse.media import MEDIA, media_part
from threadkeep.formats.converse.parts import JSON_SPELLING
from threadkeep.formats.shared.arguments import arguments_text
from threadkeep.formats.shared.parts import block, open_parts

_CALL: Final = "tool_use"  # type that some answers state of a call, and that requests do not have
_ITEMS: Final = frozenset({"function_call", "function_call_output"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_SERVER_CALL: Final = "server_tool_use"  # type of a call that the provider answers itself
_CALL_KEYS: Final = frozenset({"toolUseId", "name", "input"})
_RESULT_KEYS: Final = frozenset({"toolUseId", "content", "status"})
_THOUGHT_KEYS: Final = frozenset({"text", "signature"})


class Reader:
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
            self._put(block(wire, NAME) if thing is None else thing)
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
        return {
            "type": "function_call",
            "call_id": str(call.get("toolUseId") or ""),
            "name": str(call.get("name") or ""),
            "arguments": arguments_text(call.get("input")),
            **_native(self._odd_keys(call)),
        }

    def _odd_keys(self, call: JsonObject) -> JsonObject:
        """Keys of a call that go back; an answer that says what kind of call it is says what its item says."""
        known = {*_CALL_KEYS, "type"} if self._is_answer and call.get("type") == _CALL else _CALL_KEYS
        odd = {key: value for key, value in call.items() if key not in known}
        if not self._is_answer and "input" in call and not isinstance(call["input"], dict):
            odd["input"] = call["input"]
        return odd

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
            open_parts(items, "reasoning", NAME, summary=[]).append(thing)
        else:
            open_parts(items, "message", NAME, role=role).append(thing)


def is_call(call: Any) -> bool:
    """Whether what a model says is the call of a function; calls of the provider's own tools stay blocks."""
    return isinstance(call, dict) and call.get("type") != _SERVER_CALL


READERS: Final[dict[str, Callable[[Reader, Any], JsonObject | None]]] = {
    "text": Reader.text,
    "guardContent": Reader.guarded,
    "citationsContent": Reader.cited,
    "toolUse": Reader.call,
    "toolResult": Reader.result,
    "reasoningContent": Reader.reasoning,
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
    return block(wire, NAME) if part is None else part


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
