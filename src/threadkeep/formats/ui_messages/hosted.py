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
REQUEST, DECISION = "mcp_approval_request", "mcp_approval_response"
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
        id_ = _call_id(item, place)
        earlier = _part_of(message, id_)
        if earlier is None and given is None:
            earlier = _earlier(message, name)
        if earlier is not None:
            earlier |= _outcome(item, {**earlier.pop("output", {}), **(found or {})})
            return earlier
        part = _named(name, item) | {"toolCallId": id_, "input": given or {}}
        part |= {"providerExecuted": True, **_outcome(item, found)}
        if item["type"] == REQUEST:
            part |= {"state": fields.REQUESTED, "approval": {"id": id_}}
    message.append(part)
    return part


def note(message: MutableSequence[Any], item: JsonObject) -> JsonObject | None:
    """Note in the part of a call its output, or a decision about it; return that part, or None where there is none."""
    is_decision = item["type"] == DECISION
    part = _part_of(message, _call_id(item, 0))
    if part is None or not is_decision:
        return None if part is None else add(message, item, 0)
    reason = {"reason": item["reason"]} if isinstance(item.get("reason"), str) else {}
    part["approval"] = {**part.get("approval", {}), "approved": item["approve"], **reason}
    part["state"] = fields.RESPONDED if item["approve"] else fields.DENIED
    return part


def _part_of(parts: MutableSequence[Any], call_id: str) -> JsonObject | None:
    """The part of the call of a hosted tool with this id."""
    tools = [part for part in parts if isinstance(part, dict) and part.get("providerExecuted")]
    return next((part for part in tools if part.get("toolCallId") == call_id), None)


def _named(name: str, item: JsonObject) -> JsonObject:
    if name:
        return {"type": f"{fields.STATIC}{name}"}
    is_server = item["server_label"] not in _FORMATS
    return {"type": fields.DYNAMIC, "toolName": f"mcp.{item['name']}" if is_server else item["name"]}


def _call_id(item: JsonObject, place: int) -> str:
    """The id of the call: that which its output or decision names, the item's own, or one by its position."""
    id_ = str(item.get("approval_request_id") or item.get("call_id") or item.get("id") or "")
    return id_ if id_ and ids.place_of(id_) is None else f"hosted_{place}"


def _outcome(item: JsonObject, found: JsonObject | None) -> JsonObject:
    if item.get("status") == "failed":
        return {"state": fields.ERROR, "errorText": _error_in(item) or "The tool failed."}
    if found is None or item.get("status") in _RUNNING:
        return {"state": fields.AVAILABLE}
    return {"state": fields.OUTPUT, "output": found}


def _error_in(item: JsonObject) -> str:
    return next((text for key in ("error", "output") if (text := blocks.text_in(item.get(key)))), "")


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


def _with(*keys: str, is_output: bool = False) -> Callable[[JsonObject], _Read]:
    """What reads these keys of a call, or of an output."""

    def read(item: JsonObject) -> _Read:
        said = {key: item[key] for key in keys if item.get(key) is not None}
        return (None, said) if is_output else (said, None)

    return read


# type of an item -> the name of the tool, "" for one that the item names; and what reads it
_TOOLS: Final[dict[str, tuple[str, Callable[[JsonObject], _Read]]]] = {
    "web_search_call": ("web_search", _searched),
    "code_interpreter_call": ("code_interpreter", _interpreted),
    "file_search_call": ("file_search", _looked_up),
    "mcp_call": ("", _called),
    REQUEST: ("", _called),
    "shell_call": ("shell", _with("action")),
    "shell_call_output": ("shell", _with("output", is_output=True)),
    "local_shell_call": ("local_shell", _with("action")),
    "local_shell_call_output": ("local_shell", _with("output", is_output=True)),
    "apply_patch_call": ("apply_patch", _with("operation")),
    "apply_patch_call_output": ("apply_patch", _with("status", "output", is_output=True)),
    "computer_call": ("computer_use", _with("action", "actions", "pending_safety_checks")),
    "computer_call_output": ("computer_use", _with("output", is_output=True)),
    "tool_search_call": ("tool_search", _with("arguments", "execution")),
    "tool_search_output": ("tool_search", _with("tools", is_output=True)),
    "program": ("program", _with("code")),
    "program_output": ("program", _with("result", is_output=True)),
}
# types of items with which the application answers calls
ANSWERS: Final = frozenset({DECISION, *(kind for kind in _TOOLS if kind.endswith("_output"))})
