"""What files of coding agents have in common: blocks of answers as items of the format that was spoken, and usage.

Agents keep what models say in blocks of their own, and often what a provider needs to get it back: ids and signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.records import Answer
from threadkeep.domain import formats, items, jsontext
from threadkeep.domain.items import ItemInput
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import figure


@dataclass(frozen=True, slots=True)
class AnswerBlock:
    """A block of an answer.

    Attributes:
        kind: `text`, `thinking` or `call`.
        text: what was said or thought.
        id: of the item, as the provider calls it.
        signature: what the provider signed, or encrypted.
        call_id, name, namespace, arguments: of a call.
    """

    kind: str
    text: str = ""
    id: str | None = None
    signature: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: Any = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of a call: input with what was cached, output with reasoning; None where the file does not say."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None

    @classmethod
    def beside(cls, input: Any, cached: Any, written: Any, output: Any, reasoning: Any = None) -> TokenCounts:
        """Counts of a file in which the input is what was not cached; reasoning that is given is no output there."""
        parts = [figure(one) for one in (input, cached, written)]
        made = [figure(one) for one in (output, reasoning)]
        return cls(
            None if parts[0] is None else sum(one or 0 for one in parts),
            None if made[0] is None else sum(one or 0 for one in made), parts[1], parts[2], made[1],
        )  # fmt: skip

    def usage(self, format: str) -> JsonObject | None:
        """The usage object of a format; None if nothing was counted, as for a call that failed."""
        if not self.input and not self.output:
            return None
        rest = (self.input or 0) - (self.cached or 0) - (self.written or 0)
        return USAGE.get(format, USAGE["open_responses"])(self, rest)


# format -> its usage object, of counts and the input that was not cached
USAGE: Final[Mapping[str, Callable[[TokenCounts, int], JsonObject]]] = {
    "open_responses": lambda counts, _: {
        "input_tokens": counts.input, "output_tokens": counts.output,
        "input_tokens_details": _known(cached_tokens=counts.cached, cache_write_tokens=counts.written),
        "output_tokens_details": _known(reasoning_tokens=counts.reasoning),
    },
    "chat_completion": lambda counts, _: {
        "prompt_tokens": counts.input, "completion_tokens": counts.output,
        "prompt_tokens_details": _known(cached_tokens=counts.cached),
        "completion_tokens_details": _known(reasoning_tokens=counts.reasoning),
    },
    "messages": lambda counts, rest: _known(
        input_tokens=rest, output_tokens=counts.output, cache_read_input_tokens=counts.cached,
        cache_creation_input_tokens=counts.written,
    ),
    "gemini": lambda counts, _: _known(
        promptTokenCount=counts.input, cachedContentTokenCount=counts.cached, thoughtsTokenCount=counts.reasoning,
        candidatesTokenCount=(counts.output or 0) - (counts.reasoning or 0),
    ),
    "converse": lambda counts, rest: _known(
        inputTokens=rest, outputTokens=counts.output, cacheReadInputTokens=counts.cached,
        cacheWriteInputTokens=counts.written,
    ),
}  # fmt: skip


def _known(**counts: int | None) -> JsonObject:
    return {name: count for name, count in counts.items() if count is not None}


def moment(milliseconds: Any) -> datetime | None:
    """A time in milliseconds."""
    return make.time_of({"at": milliseconds / 1000}, "at") if isinstance(milliseconds, int | float) else None


def properties(value: Any, names: Mapping[str, str]) -> dict[str, str]:
    """The texts of an object by their names as properties."""
    return {name: text for key, name in names.items() if (text := make.text_of(value, key))}


def inline_part(kind: str | None, data: str | None) -> JsonObject:
    """A picture or file that a message has in base64, as a content part."""
    url = f"data:{kind or 'image/png'};base64,{data or ''}"
    is_image = (kind or "image/").startswith("image/")
    return {"type": "input_image", "image_url": url} if is_image else {"type": "input_file", "file_data": url}


def item_of(value: JsonObject) -> ItemInput:
    """An item object that a format has read: most are stored as they are."""
    return items.usual_object(value) or items.item_from_object(value)


def answer_items(format: str, blocks: Sequence[AnswerBlock]) -> Sequence[ItemInput]:
    """What a model said, as items of the format that was spoken; of a format without own blocks, plain items."""
    if not blocks:
        return ()
    turn = TURNS.get(format, _items)(blocks)
    parsed = formats.get_format(format if format in TURNS else "open_responses").parse_turns(turn)
    return [item for turn_items in parsed for item in turn_items]


def _items(blocks: Iterable[AnswerBlock]) -> list[JsonObject]:
    items: list[JsonObject] = []
    for block in blocks:
        about: JsonObject = {} if block.id is None else {"id": block.id}
        match block.kind:
            case "thinking":
                item = make.reasoning(summary=[block.text] if block.text else [])
                item = {key: value for key, value in item.items() if key != "content"}
                about |= {} if block.signature is None else {"encrypted_content": block.signature}
            case "call":
                item = make.call(block.name, block.arguments, block.call_id) | {"status": "completed"}
                about |= {} if block.namespace is None else {"namespace": block.namespace}
            case _:
                [item] = make.message("assistant", [make.text_part(block.text, "assistant", [])])
                item["status"] = "completed"
        items.append(about | item)
    return items


def _chat(blocks: Sequence[AnswerBlock]) -> list[JsonObject]:
    said, thought = ("".join(one.text for one in blocks if one.kind == kind) for kind in ("text", "thinking"))
    message: JsonObject = {"role": "assistant"} | ({"reasoning_content": thought} if thought else {})
    calls = [
        {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": _json(one.arguments)}}
        for one in blocks
        if one.kind == "call"
    ]
    return [message | {"content": said or None} | ({"tool_calls": calls} if calls else {})]


def _messages(blocks: Sequence[AnswerBlock]) -> list[JsonObject]:
    content: list[JsonObject] = []
    for one in blocks:
        if one.kind == "thinking":
            content.append({"type": "thinking", "thinking": one.text, "signature": one.signature or ""})
        elif one.kind == "call":
            given = one.arguments if isinstance(one.arguments, dict) else {}
            content.append({"type": "tool_use", "id": one.call_id, "name": one.name, "input": given})
        else:
            content.append({"type": "text", "text": one.text})
    return [{"role": "assistant", "content": content}]


def _gemini(blocks: Sequence[AnswerBlock]) -> list[JsonObject]:
    parts: list[JsonObject] = []
    for one in blocks:
        signed = {} if one.signature is None else {"thoughtSignature": one.signature}
        if one.kind == "call":
            call = {"id": one.call_id, "name": one.name, "args": one.arguments}
            parts.append({"functionCall": call} | signed)
        else:
            parts.append({"text": one.text} | ({"thought": True} if one.kind == "thinking" else {}) | signed)
    return [{"role": "model", "parts": parts}]


TURNS: Final[Mapping[str, Callable[[Sequence[AnswerBlock]], list[JsonObject]]]] = {
    "open_responses": _items, "chat_completion": _chat, "messages": _messages, "gemini": _gemini,
}  # fmt: skip


def _json(value: Any) -> str:
    return value if isinstance(value, str) else jsontext.dumps({} if value is None else value).decode()


def answer(
    format: str, counts: TokenCounts, *, id: str | None = None, model: str | None = None, provider: str | None = None,
    status: str = "completed", reason: str | None = None, times: tuple[Any, Any] = (None, None),
) -> Answer:  # fmt: skip
    """A response; `times` are the milliseconds at which it was asked for and had ended."""
    begun, ended = times
    is_timed = all(isinstance(one, int | float) for one in times) and ended >= begun
    return Answer(
        format=format, id=id, model=model, provider=provider, usage=counts.usage(format), status=status,
        finish_reason=reason, latency_ms=ended - begun if is_timed else None,
    )  # fmt: skip
