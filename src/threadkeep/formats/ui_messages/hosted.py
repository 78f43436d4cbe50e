"""What a model brings besides texts and calls: sources, files, and tools that its provider runs itself.

It is read from items as OpenAI's clients know them, whichever provider gave them, so that a page sees the same while an
answer is streamed and when it is loaded. Where a provider tells what a tool is given and what it found one by one, they
are one part.

Source: the AI SDK, its providers for OpenAI and Anthropic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence
from typing import Any, Final, get_args

from threadkeep.domain import ids
from threadkeep.domain.formats import FormatName
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical import blocks, entries, view
from threadkeep.formats.shared import pictures
from threadkeep.formats.shared.arguments import object_of
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.ui_messages import fields, parts

_FORMATS: Final = frozenset(get_args(FormatName))
_RUNNING: Final = frozenset({"in_progress", "incomplete", "searching", "interpreting", "generating", "calling"})
_ACTIONS: Final = {"open_page": "openPage", "find_in_page": "findInPage"}
# what a tool is given, None for an item that only says what it found; and what it found, None while it runs
_Read = tuple[JsonObject | None, JsonObject | None]


def text_part(text: str) -> JsonObject:
    """The part for a text of an answer: of one that stands for an image or a file, that one."""
    made = blocks.media_of_text(text)
    return {"type": "text", "text": text, "state": "done"} if made is None else parts.file_part(made, Context(), "")


def sources_of(item: JsonObject, place: int) -> list[JsonObject]:
    """The parts for what the texts of a message cite; `place` is the position of the message."""
    texts = [part for part in item.get("content") or () if isinstance(part.get("annotations"), list)]
    cited = [annotation for part in texts for annotation in part["annotations"]]
    found = (_source(annotation, f"{place}:source{number}") for number, annotation in enumerate(cited))
    return [source for source in found if all(isinstance(value, str) for value in source.values())]


def sources_in(item: JsonObject, entry: entries.ItemEntry) -> list[JsonObject]:
    """The parts for what the texts of a stored message cite."""
    has_any = any(part.get("annotations") for part in item.get("content") or ())
    return sources_of(view.canonical_item(entry, ""), entry.position) if has_any else []


def _source(annotation: JsonObject, id_: str) -> JsonObject:
    if annotation["type"] == "url_citation":
        return {"type": "source-url", "sourceId": id_, "url": annotation["url"], "title": annotation["title"]}
    is_path = annotation["type"] == "file_path"
    name = annotation["file_id" if is_path else "filename"]
    kind = "application/octet-stream" if is_path else "text/plain"
    return {"type": "source-document", "sourceId": id_, "mediaType": kind, "title": name, "filename": name}


def keys_lost(item: Any, written: Any) -> list[str]:
    """The names of keys in an item that parts of a message have not, or whose texts within the item they have not."""
    pairs = [*_keys_in(written)]
    text, known = "\n".join(value for _, value in pairs if isinstance(value, str)), {key for key, _ in pairs}
    inner = item.values() if isinstance(item, dict) else item
    within = {key for key, value in _keys_in([*inner]) if isinstance(value, str) and value not in text}
    return sorted({key for key, _ in _keys_in(item)} - known | within)


def _keys_in(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys in a value, with their values."""
    if isinstance(value, dict):
        yield from value.items()
        value = [*value.values()]
    for inner in value if isinstance(value, list) else ():
        yield from _keys_in(inner)


def is_shown(item: Any) -> bool:
    """Whether pages see an item that is neither a message nor a call of the client's."""
    kind = item.get("type") if isinstance(item, dict) else None
    is_picture = kind == "image_generation_call" and isinstance(item["result"], str)
    return is_picture or (isinstance(kind, str) and kind in _TOOLS)


def add(message: MutableSequence[Any], item: JsonObject, place: int) -> JsonObject:
    """Add an item that is shown to the parts of a message; return the part that is new, or says more now."""
    if item["type"] == "image_generation_call":
        media_type = pictures.shown_type(f",{item['result']}") or "image/png"
        part: JsonObject = {"type": "file", "mediaType": media_type}
        part["url"] = f"data:{media_type};base64,{item['result']}"
    else:
        name, read = _TOOLS[item["type"]]
        given, found = read(item)
        if given is None and (earlier := _earlier(message, name)) is not None:
            earlier |= _outcome(item, {**earlier.pop("output", {}), **(found or {})})
            return earlier
        part = _named(name, item) | {"toolCallId": _call_id(item, place), "input": given or {}}
        part |= {"providerExecuted": True, **_outcome(item, found)}
    message.append(part)
    return part


def _named(name: str, item: JsonObject) -> JsonObject:
    if name:
        return {"type": f"{fields.STATIC}{name}"}
    is_server = item["server_label"] not in _FORMATS
    return {"type": fields.DYNAMIC, "toolName": f"mcp.{item['name']}" if is_server else item["name"]}


def _call_id(item: JsonObject, place: int) -> str:
    """The id of the call: the item's own, or one by its position."""
    id_ = str(item.get("id") or "")
    return id_ if id_ and ids.place_of(id_) is None else f"hosted_{place}"


def _outcome(item: JsonObject, found: JsonObject | None) -> JsonObject:
    if item.get("status") == "failed":
        return {"state": fields.ERROR, "errorText": blocks.text_in(item.get("error")) or "The tool failed."}
    if found is None or item.get("status") in _RUNNING:
        return {"state": fields.AVAILABLE}
    return {"state": fields.OUTPUT, "output": found}


def _earlier(parts: MutableSequence[Any], name: str) -> JsonObject | None:
    """The part of the call, in this step, that an outcome is of: the first one that has none."""
    step: list[JsonObject] = []
    for part in reversed(parts):
        if part == fields.STEP:
            break
        step.insert(0, part)
    kind = f"{fields.STATIC}{name}" if name else fields.DYNAMIC
    return next((part for part in step if part.get("type") == kind and _is_open(part)), None)


def _is_open(part: JsonObject) -> bool:
    """Whether a call may have a further outcome."""
    output = part.get("output")
    is_search = isinstance(output, dict) and "action" in output and "sources" not in output
    return bool(part.get("providerExecuted")) and (part["state"] == fields.AVAILABLE or is_search)


def _searched(item: JsonObject) -> _Read:
    action: JsonObject = item["action"] if isinstance(item["action"], dict) else {}
    found = {"sources": action["sources"]} if "sources" in action else {}
    if found and not action.get("query") and not action.get("queries"):
        return None, found
    kind = action.get("type")
    rest = {key: value for key, value in action.items() if key not in ("type", "sources") and value is not None}
    return {}, {"action": {"type": _ACTIONS.get(str(kind), kind), **rest}, **found}


def _interpreted(item: JsonObject) -> _Read:
    found = None if item["outputs"] is None else {"outputs": item["outputs"]}
    if item["code"] is None and found is not None:
        return None, found
    container = {"containerId": item["container_id"]} if item["container_id"] else {}
    return {"code": item["code"] or "", **container}, found


def _looked_up(item: JsonObject) -> _Read:
    return {}, {"queries": item["queries"], "results": item.get("results")}


def _called(item: JsonObject) -> _Read:
    given = object_of(item["arguments"]) or {}
    has_outcome = item.get("output") is not None or item.get("error") is not None
    found = {key: item[key] for key in ("output", "error") if item.get(key) is not None} if has_outcome else None
    if item["server_label"] in _FORMATS or not item["server_label"]:
        return (None, found) if has_outcome and not given else (given, found)
    if found is not None:
        found |= {"type": "call", "serverLabel": item["server_label"], "name": item["name"]}
        found |= {"arguments": item["arguments"]}
    return given, found


# type of an item -> the name of the tool, "" for one that the item names; and what reads it
_TOOLS: Final[dict[str, tuple[str, Callable[[JsonObject], _Read]]]] = {
    "web_search_call": ("web_search", _searched),
    "code_interpreter_call": ("code_interpreter", _interpreted),
    "file_search_call": ("file_search", _looked_up),
    "mcp_call": ("", _called),
}
