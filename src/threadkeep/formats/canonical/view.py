"""Items as OpenAI's clients validate them: of every type they know, with all keys that they require.

* A message has its parts as a list; texts have their annotations, images a detail, calls and outputs a status.
* What another format brought along, and the format has no place for, is left out, as are blocks of other formats in
  what the model says, but for images and files: these become text, as do blocks in what others say.
* Blocks of other formats that stand by themselves are the items that OpenAI has for them (`blocks`).
* Types that the clients do not know, and blocks of items that threadkeep could not read, pass as they are.
* Reasoning keeps its encrypted content only where it came from OpenAI or the application.

Source: OpenAI's API reference, "Conversations", items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.canonical import blocks, entries, items
from threadkeep.formats.canonical.given import given_item, plain_form
from threadkeep.formats.canonical.items import sent_annotations, text_type, usual
from threadkeep.formats.shared.reports import Context

_ROLES: Final = frozenset({"unknown", "user", "assistant", "system", "critic", "discriminator", "developer", "tool"})
_THOUGHTS: Final = ("text", "thinking", "summary", "refusal")  # keys of parts of reasoning with a text
_COMPLETED: Final = "completed"
_CALL: Final = {"call_id": "", "status": _COMPLETED}
# item type -> what stands for keys that are required and were not given
REQUIRED: Final[dict[str, JsonObject]] = {
    "message": {"role": "unknown", "status": _COMPLETED, "content": []},
    "function_call": _CALL | {"name": "", "arguments": "{}"},
    "function_call_output": {"output": "", "status": _COMPLETED},
    "reasoning": {"summary": []},
    "compaction": {"encrypted_content": ""},
    "custom_tool_call": {"call_id": "", "name": "", "input": ""},
    "custom_tool_call_output": {"call_id": "", "output": ""},
    "file_search_call": {"queries": [], "status": _COMPLETED},
    "web_search_call": {"action": {"type": "search"}, "status": _COMPLETED},
    "image_generation_call": {"status": _COMPLETED},
    "code_interpreter_call": {"container_id": "", "status": _COMPLETED},
    "computer_call": _CALL | {"pending_safety_checks": []},
    "computer_call_output": _CALL | {"output": {"type": "computer_screenshot"}},
    "tool_search_call": {"arguments": {}, "execution": "server", "status": _COMPLETED},
    "tool_search_output": {"execution": "server", "status": _COMPLETED, "tools": []},
    "additional_tools": {"role": "developer", "tools": []},
    "configuration_update": {},
    "program": {"call_id": "", "code": "", "fingerprint": ""},
    "program_output": {"call_id": "", "result": "", "status": _COMPLETED},
    "local_shell_call": _CALL | {"action": {"type": "exec", "command": [], "env": {}}},
    "local_shell_call_output": {"output": ""},
    "shell_call": _CALL | {"action": {"commands": []}},
    "shell_call_output": _CALL | {"output": []},
    "apply_patch_call": _CALL | {"operation": {"type": "update_file", "path": "", "diff": ""}},
    "apply_patch_call_output": _CALL,
    "mcp_list_tools": {"server_label": "", "tools": []},
    "mcp_approval_request": {"arguments": "{}", "name": "", "server_label": ""},
    "mcp_approval_response": {"approval_request_id": "", "approve": False},
    "mcp_call": {"arguments": "{}", "name": "", "server_label": ""},
}
# … and keys that must be there, and may be null
_NULLABLE: Final = {"image_generation_call": ("result",), "code_interpreter_call": ("code", "outputs")}
_OUTPUT_PARTS: Final = frozenset({"input_text", "input_image", "input_file"})


def canonical_item(entry: entries.ItemEntry, item_id: str) -> Any:
    """The item of an entry, as OpenAI's clients validate it, under an id."""
    item = _known_form(entry)
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind not in REQUIRED:
        return item
    item = _whole({**item, "id": item_id}, REQUIRED[kind])
    for key in _NULLABLE.get(kind, ()):
        item.setdefault(key, None)
    item = _MAPPERS.get(kind, _as_it_is)(item, entry.origin)
    return {"id": item_id, "type": kind, **item}


def _known_form(entry: entries.ItemEntry) -> Any:
    """The item of an entry with the keys that its type has; what OpenAI gave may be of any type, or none."""
    full = entry.item()
    if full["type"] == "provider_item":
        if full.get("format") != items.NAME:
            return blocks.block_item(full)
        payload = full.get("payload")
        return usual(payload)[0] if isinstance(payload, dict) else payload
    item = plain_form(full)
    kind = full["type"]
    if kind in items.ANSWER_KEYS and entry.origin != items.NAME:
        known = items.ANSWER_KEYS[kind] | ({"summary", "upto"} if kind == "compaction" else set())
        item = {key: value for key, value in item.items() if key in known}
    return item


def _whole(given: Mapping[str, Any], required: Mapping[str, Any]) -> JsonObject:
    """An object with what stands for what it lacks."""
    whole = dict(given)
    for key, default in required.items():
        value = given.get(key)
        if isinstance(default, dict) and default and isinstance(value, dict):
            same = value.get("type") in (None, default.get("type"))
            whole[key] = {**default, **value} if same else value
        elif value is None or (isinstance(default, str) and key != "output" and not isinstance(value, str)):
            whole[key] = blocks.json_text(value) if isinstance(default, str) and value is not None else default
    return whole


def _is_one_of(value: Any, known: Collection[str]) -> bool:
    return isinstance(value, str) and value in known


def _as_it_is(item: JsonObject, _origin: str | None) -> JsonObject:
    return _with_status(item)


def _with_status(item: JsonObject) -> JsonObject:
    known = items.STATUSES.get(item["type"], items.ITEM_STATUSES)
    status = item.get("status")
    if status is None or _is_one_of(status, known):
        return item
    return {**item, "status": items.cut_status(item["type"]) if status in ("failed", "incomplete") else _COMPLETED}


def _without(item: JsonObject, *unless: tuple[str, type]) -> JsonObject:
    """An object without optional keys that hold something of another kind."""
    strange = {key for key, kind in unless if item.get(key) is not None and not isinstance(item[key], kind)}
    caller = item.get("caller")
    if isinstance(caller, dict) and not _is_one_of(caller.get("type"), ("direct", "program")):
        strange.add("caller")
    return {key: value for key, value in item.items() if key not in strange}


def _message(item: JsonObject, origin: str | None) -> JsonObject:
    role = item["role"] if item["role"] in _ROLES else "unknown"
    content = [part for part in _listed(item["content"]) if role != "assistant" or not _is_left_out(part)]
    parts = [_part(part, role, origin=origin) for part in content]
    message = _with_status({**item, "role": role, "content": parts})
    if message.get("phase") is not None and not _is_one_of(message["phase"], items.PHASES):
        del message["phase"]
    return message


def _function_call(item: JsonObject, _origin: str | None) -> JsonObject:
    kinds = (("namespace", str), ("caller", dict), ("async", bool), ("created_by", str))
    return _without(_with_status(item), *kinds)


def _output(item: JsonObject, origin: str | None) -> JsonObject:
    """The output of a function or custom tool, of which only texts, images and files can be parts."""
    output = item["output"]
    if isinstance(output, list):
        parts = [_part(part, "user", origin=origin) for part in output]
        output = [
            part if part.get("type") in _OUTPUT_PARTS else {"type": "input_text", "text": _part_text(part)}
            for part in parts
        ]
    elif not isinstance(output, str):
        output = blocks.json_text(output)
    kinds = (("call_id", str), ("name", str), ("namespace", str), ("caller", dict), ("created_by", str))
    return _without(_with_status({**item, "output": output}), *kinds)


def _reasoning(item: JsonObject, origin: str | None) -> JsonObject:
    texts = {
        key: [{"type": kind, "text": text} for part in _listed(item[key]) if (text := _thought(part)) is not None]
        for key, kind in (("summary", "summary_text"), ("content", "reasoning_text"))
        if item.get(key) is not None
    }
    if origin not in (None, items.NAME):  # only its own provider can read it
        item = {key: value for key, value in item.items() if key != "encrypted_content"}
    return _without(_with_status({**item, **texts}), ("encrypted_content", str))


def _thought(part: Any) -> str | None:
    """What a part of reasoning says; None for one that only its provider can read."""
    if not isinstance(part, dict):
        return blocks.json_text(part)
    return next((part[key] for key in _THOUGHTS if isinstance(part.get(key), str)), None)


def named_thoughts(item: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The parts of the summary of reasoning, and its blocks, with names by which they are known in their item.

    A name says at which place clients have the text of a part; parts that say none are behind all that do.
    """
    named: list[tuple[str, Any]] = []
    for key in ("summary", "content"):
        parts = [*_listed(item[key])] if item.get(key) else []
        told = [one for one in parts if _thought(one) is not None]
        numbers, others = iter(range(len(told))), iter(range(len(told), len(parts)))
        named += [(f"{key[0]}{next(others if _thought(one) is None else numbers)}", one) for one in parts]
    return named


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _web_search(item: JsonObject, _origin: str | None) -> JsonObject:
    """A search for the web; the clients know sources that are URLs, and the service names others, too."""
    action = item["action"]
    if isinstance(action, dict) and isinstance(action.get("sources"), list):
        known = [one for one in action["sources"] if isinstance(one, dict) and one.get("type") == "url"]
        item = {**item, "action": {**action, "sources": known}}
    return _with_status(item)


_MAPPERS: Final[dict[str, Callable[[JsonObject, str | None], JsonObject]]] = {
    "web_search_call": _web_search,
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "reasoning": _reasoning,
}


# Content parts


def _is_left_out(part: Any) -> bool:
    """Whether a part is a block of another provider that is no medium, such as a call of a tool that it runs itself."""
    is_block = isinstance(part, dict) and part.get("type") == "provider_item" and part.get("format") != items.NAME
    return is_block and blocks.media_text(part) is None


def _part(part: Any, role: str, *, origin: str | None) -> JsonObject:
    if isinstance(part, dict) and part.get("type") == "provider_item" and part.get("format") == items.NAME:
        part = part.get("payload")
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return {"type": text_type(role), "text": _part_text(part), **_texts_of(role)}
    if role == "assistant" and origin not in (None, items.NAME) and (text := blocks.media_text(part)) is not None:
        return {"type": "output_text", "text": text, **_texts_of(role)}
    mapper = _PARTS.get(part["type"])
    if mapper is not None:
        return mapper(part)
    if origin == items.NAME and part["type"] != "provider_item":
        return part
    return {"type": text_type(role), "text": blocks.json_text(part.get("payload", part)), **_texts_of(role)}


def _texts_of(role: str) -> JsonObject:
    return {"annotations": [], "logprobs": []} if text_type(role) == "output_text" else {}


def _known(part: JsonObject) -> JsonObject:
    known = items.PART_KEYS.get(part["type"], part.keys())
    kept = {key: value for key, value in part.items() if key in known}
    return _without(kept, ("prompt_cache_breakpoint", dict))


def _text(part: JsonObject) -> JsonObject:
    return {**_known(part), "text": _part_text(part)}


def _output_text(part: JsonObject) -> JsonObject:
    text = _text(part)
    annotations = text.get("annotations")
    cited = [_cited(one, text["text"]) for one in annotations] if isinstance(annotations, list) else []
    text["annotations"] = sent_annotations(cited, Context(), "")
    text["logprobs"] = [_logprob(one) for one in _listed(text.get("logprobs")) if isinstance(one, dict)]
    return text


def _cited(annotation: Any, text: str) -> Any:
    """An annotation; a page that Claude cites, for a text that it is for as a whole, as the citation of a URL."""
    if not isinstance(annotation, dict) or annotation.get("type") != "web_search_result_location":
        return annotation
    named = {key: annotation[key] for key in ("url", "title") if isinstance(annotation.get(key), str)}
    return {"type": "url_citation", "title": "", "start_index": 0, "end_index": len(text), **named}


def _logprob(given: JsonObject) -> JsonObject:
    token = given.get("token")
    token = token if isinstance(token, str) else ""
    figures: JsonObject = {"token": token, "logprob": given.get("logprob") or 0.0}
    figures["bytes"] = given.get("bytes") or list(token.encode("utf-8", "surrogatepass"))
    tops = given.get("top_logprobs")
    figures["top_logprobs"] = [_top(one) for one in tops if isinstance(one, dict)] if isinstance(tops, list) else []
    return figures


def _top(given: JsonObject) -> JsonObject:
    return {key: value for key, value in _logprob(given).items() if key != "top_logprobs"}


def _refusal(part: JsonObject) -> JsonObject:
    refusal = part.get("refusal")
    return {**_known(part), "refusal": refusal if isinstance(refusal, str) else _part_text(part)}


def _image(part: JsonObject) -> JsonObject:
    image = _without(_known(part), ("image_url", str), ("file_id", str))
    return {**image, "detail": image["detail"] if _is_one_of(image.get("detail"), items.DETAILS) else "auto"}


def _file(part: JsonObject) -> JsonObject:
    file = _without(_known(part), *((key, str) for key in ("file_data", "file_url", "file_id", "filename")))
    if file.get("detail") is not None and not _is_one_of(file["detail"], ("auto", "low", "high")):
        del file["detail"]
    return file


def _video(part: JsonObject) -> JsonObject:
    """A video as the file that it is: messages and outputs have no other place for one."""
    url = part.get("video_url")
    key = "file_data" if base64_media_type(url) else "file_url"
    return {"type": "input_file", **({key: url} if isinstance(url, str) else {})}


def _part_text(part: Any) -> str:
    """The text of a part; the JSON of one that has none."""
    if isinstance(part, dict):
        for key in ("text", "refusal"):
            if isinstance(text := part.get(key), str):
                return text
    return blocks.json_text(part)


_PARTS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    **dict.fromkeys(("input_text", "text", "summary_text", "reasoning_text"), _text),
    "output_text": _output_text,
    "refusal": _refusal,
    "input_image": _image,
    "computer_screenshot": _image,
    "input_file": _file,
    "input_video": _video,
}


@dataclass(frozen=True, slots=True)
class StoredItemViews:
    """A stored item as OpenAI's clients validate it, and as it was given."""

    entry: entries.ItemEntry
    given_text: bytes | str | None = None

    @property
    def size(self) -> int:
        """The bytes of its texts, with its media."""
        return len(self.entry.payload or b"") + len(self.entry.rest or b"")

    def canonical(self, item_id: str) -> Any:
        """As OpenAI's clients validate it."""
        return canonical_item(self.entry, item_id)

    def given(self) -> Any:
        """As it was given."""
        return given_item(self.entry, self.given_text)
