"""Messages of Pydantic AI as items, and items as messages; plain JSON, as `ModelMessagesTypeAdapter` writes it.

Each part of a message is one item. What an item has no place for is kept beside it, as what it was read from, so that
messages come back as they were. Parts that only Pydantic AI knows become items that other APIs leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from threadkeep.domain.items import Item, item_from, with_given
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.stored import StoredItem

NAME: Final = "pydantic_ai"
REQUEST, RESPONSE = "request", "response"
_ROLES: Final = {"assistant": RESPONSE}  # of a message -> kind of the message of Pydantic AI; else it is a request
_RESPONSE_TYPES: Final = frozenset({"function_call", "reasoning"})
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})


def items_of(message: JsonObject) -> list[Item]:
    """The items of a message: one for each part, or one for a message without parts."""
    fields = {key: value for key, value in message.items() if key != "parts"}
    parts: Sequence[JsonObject] = message.get("parts") or ()
    if not parts:
        return [with_given(item_from({"type": f"{NAME}:empty"}), {NAME: {"message": fields}})]
    items = []
    for number, part in enumerate(parts):
        mapper = _MAPPERS.get(part.get("part_kind", ""))
        item = (None if mapper is None else mapper(part)) or {"type": f"{NAME}:{part.get('part_kind')}"}
        kept = {"part": part} if number else {"part": part, "message": fields}
        items.append(with_given(item_from(item), {NAME: kept}))
    return items


def message_of(items: Sequence[StoredItem]) -> JsonObject:
    """The message that items were made of; of items that were redacted since, what is left of them."""
    values = [item.given() for item in items]
    kept: list[JsonObject] = [value.get(NAME) or {} for value in values]
    fields = kept[0].get("message") or {"kind": _kind_of(values[0])}
    parts = []
    for value, one in zip(values, kept, strict=True):
        if "part" in one:
            parts.append(one["part"])
        elif _kind_of(value) == fields["kind"]:  # else it is none of this message
            parts += _parts_of(value)
    return {**fields, "parts": parts}


def messages_of(items: Iterable[StoredItem]) -> Iterator[JsonObject]:
    """The messages that any items amount to: requests and responses in turn."""
    objects = [(item.given(), item) for item in items]
    for kind, group in groupby(objects, lambda pair: _kind_of(pair[0])):
        parts = [part for value, _ in group for part in (_own_part(value) or _parts_of(value))]
        if parts:
            yield {"kind": kind, "parts": parts}


def _own_part(value: JsonObject) -> list[JsonObject]:
    own = value.get(NAME)
    return [own["part"]] if isinstance(own, dict) and "part" in own else []


def _kind_of(value: JsonObject) -> str:
    own = value.get(NAME)
    if isinstance(own, dict) and "part" in own:
        return RESPONSE if own["part"].get("part_kind") in _RESPONSE_PARTS else REQUEST
    if value.get("type") in _RESPONSE_TYPES:
        return RESPONSE
    return _ROLES.get(value.get("role", ""), REQUEST)


# Parts as items


def _message(role: str, *content: JsonObject) -> JsonObject:
    return {"type": "message", "role": role, "content": list(content)}


def _system(part: JsonObject) -> JsonObject:
    return _message("system", {"type": "input_text", "text": part["content"]})


def _user(part: JsonObject) -> JsonObject | None:
    content = part["content"]
    parts = [content] if isinstance(content, str) else content
    shown = [shown for one in parts if (shown := _user_content(one)) is not None]
    return _message("user", *shown) if shown else None


def _user_content(value: Any) -> JsonObject | None:
    if isinstance(value, str):
        return {"type": "input_text", "text": value}
    kind, media_type = value.get("kind"), value.get("media_type") or ""
    if kind in {"text-content", "structured-content"} and isinstance(value.get("content"), str):
        return {"type": "input_text", "text": value["content"]}
    if kind == "image-url":
        return {"type": "input_image", "image_url": value["url"]}
    if kind == "document-url":
        return {"type": "input_file", "file_url": value["url"]}
    if kind == "binary":
        data = f"data:{media_type};base64,{_standard(value['data'])}"
        is_image = media_type.startswith("image/")
        return {"type": "input_image", "image_url": data} if is_image else {"type": "input_file", "file_data": data}
    return None


def _standard(text: str) -> str:
    """Base64 as data URLs have it; Pydantic writes that of URLs."""
    return text.replace("-", "+").replace("_", "/")


def _tool_return(part: JsonObject) -> JsonObject | None:
    if not part.get("tool_call_id") or not part.get("tool_name"):
        return _message("user", {"type": "input_text", "text": _text(part.get("content"))})
    output = _text(part.get("content"))
    return {"type": "function_call_output", "call_id": part["tool_call_id"], "output": output}


def _feedback(part: JsonObject) -> JsonObject:
    return _message("user", {"type": "input_text", "text": _text(part.get("content"))})


def _text(content: Any) -> str:
    return content if isinstance(content, str) else dumps(content).decode()


def _answer(part: JsonObject) -> JsonObject:
    return _message("assistant", {"type": "output_text", "text": part["content"]})


def _thinking(part: JsonObject) -> JsonObject:
    content = [{"type": "reasoning_text", "text": part["content"]}] if part.get("content") else []
    return {"type": "reasoning", "summary": [], "content": content}


def _tool_call(part: JsonObject) -> JsonObject:
    arguments = part.get("args")
    text = "{}" if arguments is None else _text(arguments)
    return {"type": "function_call", "call_id": part["tool_call_id"], "name": part["tool_name"], "arguments": text}


# part_kind -> the item of a part; parts of other kinds have no item in the terms of Open Responses
_MAPPERS: Final[dict[str, Callable[[JsonObject], JsonObject | None]]] = {
    "system-prompt": _system,
    "user-prompt": _user,
    "tool-return": _tool_return,
    "retry-prompt": _tool_return,
    "retry-feedback": _feedback,
    "text": _answer,
    "thinking": _thinking,
    "tool-call": _tool_call,
}
_RESPONSE_PARTS: Final = frozenset(
    {"text", "thinking", "tool-call", "builtin-tool-call", "builtin-tool-return", "compaction", "file", "speech"}
)


# Items as parts


def _parts_of(value: JsonObject) -> list[JsonObject]:
    """An item of any origin as parts; none for what Pydantic AI has no part for."""
    kind = f"{NAME}:empty" if NAME in value else value.get("type", "message")
    if kind == "function_call":
        arguments = value.get("arguments") or "{}"
        call = {"tool_name": value.get("name") or "", "args": arguments, "tool_call_id": value.get("call_id") or ""}
        return [{"part_kind": "tool-call", **call}]
    if kind == "function_call_output":
        output = value.get("output")
        text = output if isinstance(output, str) else "\n".join(_texts(output))
        return [{"part_kind": "tool-return", "tool_name": "", "content": text, "tool_call_id": value.get("call_id")}]
    if kind == "reasoning":
        text = "\n\n".join([*_texts(value.get("summary")), *_texts(value.get("content"))])
        return [{"part_kind": "thinking", "content": text}] if text else []
    if kind != "message":
        return []
    return _parts_of_message(value)


def _parts_of_message(value: JsonObject) -> list[JsonObject]:
    role, content = value.get("role"), value.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []
    if role == "assistant":
        return [{"part_kind": "text", "content": text} for text in _texts(parts)]
    if role != "user":
        return [{"part_kind": "system-prompt", "content": "\n\n".join(_texts(parts))}]
    shown = [one for part in parts if (one := _content_of(part)) is not None]
    return [{"part_kind": "user-prompt", "content": shown}] if shown else []


def _content_of(part: JsonObject) -> Any:
    if part.get("type") in _TEXTS:
        return part.get("text") or ""
    url = part.get("image_url") or part.get("url") or part.get("file_data") or part.get("file_url")
    if not isinstance(url, str):
        return None
    head, _, data = url.partition(";base64,")
    if head.startswith("data:"):
        return {"kind": "binary", "data": data, "media_type": head.removeprefix("data:")}
    kind = "image-url" if part.get("type") == "input_image" else "document-url"
    return {"kind": kind, "url": url}


def _texts(parts: Any) -> list[str]:
    return [part["text"] for part in parts or () if isinstance(part, dict) and part.get("type") in _TEXTS]


def with_tool_names(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """Messages in which returns of tools name the tool that was called, which items of other origin do not."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        parts = []
        for part in message["parts"]:
            if part["part_kind"] == "tool-call":
                names[part["tool_call_id"]] = part["tool_name"]
            is_unnamed = part["part_kind"] == "tool-return" and not part["tool_name"]
            name = names.get(part["tool_call_id"], "unknown") if is_unnamed else None
            parts.append(part if name is None else part | {"tool_name": name})
        named.append(message | {"parts": parts})
    return named
