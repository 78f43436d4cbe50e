"""Items and content parts of Open Responses, one by one: what stands in `items.payload` and in the input of a request.

* Items that came from this format go back as they came, but for malformed arguments; how a request spelled them is
  kept under `spelling`, which means nothing to other formats.
* Of all others the format's own keys are sent; extras that users set for other formats are left out.
* Item ids keep the prefix that the service requires, or are left out; a call id of the wrong length becomes a hash.
* Reasoning goes only where it came from, and needs its encrypted content; `summary` is always sent.
* Item types that threadkeep does not know are sent as they are.

Content parts:

* Text takes the part type of its role: output_text in assistant messages, input_text elsewhere.
* Parts that came from this format go back as they came; of all others only the keys that the format has are sent.
* An image has one source. Base64 data URLs of files are `file_data`, all other URLs `file_url`.
* Assistant messages hold no media, and videos stand only in tool outputs: a note stands in their place.

Source: OpenAI's API reference, "Responses", input items; the Open Responses specification, item params.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain import call_kinds, media, tool_names
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.formats.shared import arguments
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.reports import Context

NAME: Final = "open_responses"  # the format whose items these are
LONGEST_CALL_ID: Final = 64

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
ITEM_STATUSES: Final = frozenset({"in_progress", "completed", "incomplete"})
# item type -> the statuses it can have, where these are others
STATUSES: Final = {
    "file_search_call": ITEM_STATUSES | {"searching", "failed"},
    "web_search_call": ITEM_STATUSES | {"searching", "failed"},
    "image_generation_call": frozenset({"in_progress", "completed", "generating", "failed"}),
    "code_interpreter_call": ITEM_STATUSES | {"interpreting", "failed"},
    "computer_call_output": ITEM_STATUSES | {"failed"},
    "mcp_call": ITEM_STATUSES | {"calling", "failed"},
    "program_output": frozenset({"completed", "incomplete"}),
    "apply_patch_call": frozenset({"in_progress", "completed"}),
    "apply_patch_call_output": frozenset({"completed", "failed"}),
}
# the statuses that say that the end of an item is missing; of those that a type can have, the first one counts
_CUT: Final = ("incomplete", "failed", "in_progress")
PHASES: Final = frozenset({"commentary", "final_answer"})
DETAILS: Final = frozenset({"low", "high", "auto", "original"})

# item type -> its keys
ITEM_KEYS: Final = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset(
        {"type", "call_id", "name", "arguments", "id", "status", "namespace", "caller", "async"}
    ),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status", "name", "namespace", "caller"}),
    "reasoning": frozenset({"type", "id", "status", "encrypted_content", "summary", "content"}),
    "compaction": frozenset({"type", "id", "encrypted_content", "created_by"}),
    "item_reference": frozenset({"type", "id"}),
}  # fmt: skip
# item type -> its keys in an answer
ANSWER_KEYS: Final = {kind: keys | {"created_by"} for kind, keys in ITEM_KEYS.items()}
# keys that stand in answers alone, or that OpenAI's Agents SDK has for itself: the service's input has none of them
OUTPUT_KEYS: Final = frozenset({"created_by"})
OUTPUT_PREFIX: Final = "_agents_tool_"
# item type -> more of these
OUTPUT_KEYS_OF: Final = {"custom_tool_call_output": frozenset({"status"})}
# item type -> its key with a list of objects that have such keys, too
OUTPUT_LISTS: Final = {"shell_call_output": "output"}
# item type -> key -> the values that the input has, and what is sent for others
INPUT_VALUES: Final = {
    "computer_call_output": {"status": (ITEM_STATUSES, "incomplete")},
    "additional_tools": {"role": (frozenset({"developer"}), "developer")},
}
# part type -> its keys
PART_KEYS: Final = {
    "input_text": frozenset({"type", "text", "prompt_cache_breakpoint"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}),
    "input_file": frozenset(
        {"type", "file_data", "file_url", "file_id", "filename", "detail", "prompt_cache_breakpoint"}
    ),
    "input_video": frozenset({"type", "video_url"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
    "text": frozenset({"type", "text"}),
    "reasoning_text": frozenset({"type", "text"}),
    "summary_text": frozenset({"type", "text"}),
}  # fmt: skip
# item type -> the prefix that the service requires on its ids
PREFIXES: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
# kind of annotation -> its keys, all of which it needs
ANNOTATIONS: Final = {
    "url_citation": frozenset({"type", "url", "title", "start_index", "end_index"}),
    "file_citation": frozenset({"type", "file_id", "filename", "index"}),
    "container_file_citation": frozenset({"type", "container_id", "file_id", "filename", "start_index", "end_index"}),
    "file_path": frozenset({"type", "file_id", "index"}),
}


def cut_status(kind: str) -> str:
    """The status of an item of this type of which the end is missing.

    >>> cut_status("message"), cut_status("image_generation_call"), cut_status("apply_patch_call")
    ('incomplete', 'failed', 'in_progress')
    """
    known = STATUSES.get(kind, ITEM_STATUSES)
    return next(status for status in _CUT if status in known)


PartMapper = Callable[[JsonObject, str, Context, str], JsonObject | None]
ASSISTANT: Final = "assistant"
TOOL: Final = "tool"  # stands for a role in the parts of a tool output
_NO_FILES: Final = ("audio/", "video/")


def text_type(role: Any) -> str:
    """The part type that a text takes in a message of this role."""
    return "output_text" if role == ASSISTANT else "input_text"


def wire_parts(parts: list[Any], role: str, context: Context, path: str) -> list[JsonObject]:
    """The parts of a message or tool output as the format sends them."""
    wire = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        mapper = PARTS.get(part["type"])
        sent = shared.own_keys(part) if mapper is None else mapper(part, role, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, NAME, context, part_path)
            sent = None if sent is None else sent | shared.native_keys(part, NAME)
        if sent is not None:
            wire.append(sent)
    return wire


def own_parts(parts: list[Any]) -> list[Any]:
    """The parts of an item that goes back to this format: as they came."""
    return [
        part.get("payload")
        if part.get("type") == "provider_item"
        else shared.own_keys(part, PART_KEYS.get(part["type"])) | shared.native_keys(part, NAME)
        for part in parts
    ]


def _kept_part(part: JsonObject) -> JsonObject:
    known = PART_KEYS[part["type"]]
    return {key: value for key, value in part.items() if value is not None and key in known}


def _text(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    kept, kind = _kept_part(part), text_type(role)
    kept.pop("logprobs", None)
    if part["type"] != kind:
        context.repair("part_type", path, f"{part['type']} became {kind}, which is what the role {role} takes.")
        kept = {"type": kind, "text": part["text"]}
    if "annotations" in kept:
        kept["annotations"] = sent_annotations(kept["annotations"], context, path)
    return kept


def sent_annotations(annotations: list[Any], context: Context, path: str) -> list[JsonObject]:
    """The annotations that the format has; nested ones of Chat Completions are made flat."""
    kept = []
    for annotation in annotations:
        kind = annotation.get("type") if isinstance(annotation, dict) else None
        known = ANNOTATIONS.get(kind) if isinstance(kind, str) else None
        flat = {"type": kind, **annotation[kind]} if known and isinstance(annotation.get(kind), dict) else annotation
        if known is None or not known <= flat.keys():
            context.loss("annotations", path, f"An annotation of type {kind!r} was left out.")
            continue
        kept.append({key: value for key, value in flat.items() if key in known})
        if strange := ", ".join(sorted(flat.keys() - known)):
            context.loss("annotations", path, f"Keys that the format does not have were left out: {strange}.")
    return kept


def _refusal(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    if role == ASSISTANT:
        return _kept_part(part)
    context.repair("part_type", path, f"A refusal became text: the role {role} takes none.")
    return {"type": "input_text", "text": part["refusal"]}


def _noted(part: JsonObject, role: str, context: Context, path: str, why: tuple[str, str]) -> JsonObject:
    context.loss(why[0], path, f"{why[1]}: {shared.note(part)[1:-1]}.")
    return {"type": text_type(role), "text": shared.note(part)}


def _image(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    kept = _kept_part(part)
    for key in ("image_url", "file_id"):
        kept[key] = str(kept.get(key) or "").strip()
        if not kept[key]:
            del kept[key]
    if role == ASSISTANT:
        return _noted(part, role, context, path, ("media", "An assistant message holds no image"))
    if "image_url" not in kept:
        if "file_id" not in kept:
            return _noted(part, role, context, path, ("image_source", "The image has neither image_url nor file_id"))
    elif shared.is_broken(url := shared.in_base64(kept["image_url"])):
        return _noted(part, role, context, path, ("data_url", "The data URL of the image is broken"))
    else:
        kept["image_url"] = url
        if kept.pop("file_id", None):
            context.loss("image_source", path, "The image has both image_url and file_id; only the URL was sent.")
    if kept.get("detail", "auto") not in DETAILS:
        context.loss("media", f"{path}.detail", f"The format has no detail {kept.pop('detail')!r}.")
    return kept


def _file(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    if role == ASSISTANT:
        return _noted(part, role, context, path, ("media", "An assistant message holds no file"))
    url = shared.url_of(part)
    if media.base64_media_type(url) is not None:
        return _file_with_data(part, url, role, context, path)
    if part.get("file_data"):
        return _noted(part, role, context, path, ("data_url", "The file_data is not a data URL"))
    if not url and not part.get("file_id"):
        return _noted(part, role, context, path, ("file_source", "The file has no source"))
    return _kept_part(part)


def _file_with_data(part: JsonObject, url: str, role: str, context: Context, path: str) -> JsonObject:
    media_type = str(media.base64_media_type(url))
    if shared.is_broken(url) or media_type.startswith(_NO_FILES):
        return _noted(part, role, context, path, ("data_url", "The format takes no such file_data"))
    if media_type.startswith("image/"):
        context.repair("file_as_image", path, f"A file of type {media_type} was sent as an image.")
        return {"type": "input_image", "image_url": url}
    if part.get("file_url") and part.get("file_data"):
        context.loss("file_source", path, "The file has both file_data and file_url; only the data was sent.")
    file: JsonObject = {}
    for key, value in _kept_part(part).items():
        file |= {"file_data": url} if key in ("file_data", "file_url") else {key: value}
    return file


def _video(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    if role == TOOL and part.get("video_url"):
        return _kept_part(part)
    return _noted(part, role, context, path, ("media", "Only outputs of tools hold a video"))


PARTS: Final[dict[str, PartMapper]] = {
    **dict.fromkeys(("input_text", "output_text", "text", "reasoning_text", "summary_text"), _text),
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_video": _video,
    "provider_item": lambda part, _role, context, path: shared.own_block(part, NAME, context, path),
}


def _as_text(item: JsonObject) -> JsonObject:
    match item.get("content"):
        case [{"type": kind, "text": str(text), **others}] if kind == text_type(item.get("role")) and not others:
            return {**item, "content": text}
    return item


def _as_object(item: JsonObject) -> JsonObject:
    arguments = loads(item["arguments"])
    return {**item, "arguments": arguments} if isinstance(arguments, dict) else item


# word -> what it makes of an item in the usual spelling
WORDS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    "text": _as_text,  # content as a string
    "object": _as_object,  # arguments as an object
    # reasoning without the key
    "no summary": lambda item: {key: value for key, value in item.items() if key != "summary" or value},
    # a message or item reference without `type`
    "untyped": lambda item: {key: value for key, value in item.items() if key != "type"},
}


def spelled(item: JsonObject, words: Any) -> JsonObject:
    """An item of this format as the request spelled it."""
    for word, write in WORDS.items():
        if isinstance(words, list) and word in words:
            item = write(item)
    return item


def usual(item: JsonObject) -> tuple[JsonObject, list[str]]:
    """An item of a request in the usual spelling, and the words for the one it had."""
    words = []
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference"
        item = {**item, "type": kind}
        words.append("untyped")
    if kind == "message" and isinstance(item.get("content"), str):
        item = {**item, "content": [{"type": text_type(item.get("role")), "text": item["content"]}]}
        words.append("text")
    elif kind == "function_call" and isinstance(item.get("arguments"), dict):
        item = {**item, "arguments": dumps(item["arguments"]).decode()}
        words.append("object")
    elif kind == "reasoning" and item.get("summary") is None:
        words.append("no summary")
    return item, words


Mapper = Callable[[JsonObject, Context], JsonObject | None]
# item type -> its key with content parts
LISTS: Final = {"message": "content", "function_call_output": "output"}


def wire_item(item: JsonObject, context: Context) -> JsonObject | None:
    """An item as the format sends it, its id first, so that ids are compared unparsed; None, and a loss, for none."""
    if item.get("origin") == NAME:
        wire = _own(item, context)
    else:
        wire = ITEMS.get(item["type"], _unknown)(item, context)
        if "native" in item:
            shared.report_foreign(item, NAME, context, "native")
            wire = None if wire is None else wire | shared.native_keys(item, NAME)
    wire = None if wire is None else as_input(wire, context)
    return {"id": wire["id"], **wire} if wire is not None and "id" in wire else wire


def as_input(item: JsonObject, context: Context) -> JsonObject:
    """An item without the keys that stand in answers alone, and with values that the input has."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return item
    output_only = OUTPUT_KEYS | OUTPUT_KEYS_OF.get(kind, frozenset())
    sent = _without(item, output_only)
    inner = sent.get(OUTPUT_LISTS.get(kind, ""))
    if isinstance(inner, list):
        cleaned = [_without(one, OUTPUT_KEYS) if isinstance(one, dict) else one for one in inner]
        sent = {**sent, OUTPUT_LISTS[kind]: cleaned}
    for key, (known, nearest) in INPUT_VALUES.get(kind, {}).items():
        value = sent.get(key)
        if value is not None and not (isinstance(value, str) and value in known):
            sent = {**sent, key: nearest}
            context.repair("range", key, f"The format has no {key} {value!r} of this item; {nearest!r} was sent.")
    return sent


def _without(thing: JsonObject, output_only: frozenset[str]) -> JsonObject:
    """An object without such keys; most have none."""
    if not any(key in output_only or key.startswith(OUTPUT_PREFIX) for key in thing):
        return thing
    return {k: v for k, v in thing.items() if k not in output_only and not k.startswith(OUTPUT_PREFIX)}


def wire_call_id(call_id: object, context: Context) -> str:
    """A call id as the format takes it: 1 to 64 characters."""
    sent = sized_call_id(call_id)
    if sent != call_id:
        detail = f"The call id {call_id!r} became a hash: the format takes 1 to 64 characters."
        context.repair("call_id", "call_id", detail)
    return sent


def sized_call_id(call_id: object) -> str:
    """A call id of 1 to 64 characters: the one given, or a hash of it."""
    text = str(call_id or "")
    return text if 0 < len(text) <= LONGEST_CALL_ID else f"call_{tool_names.hashed(text)}"


def _own(item: JsonObject, context: Context) -> JsonObject | None:
    """An item that came from this format; `summary` stands though empty, which is how the format writes it."""
    kind = item["type"]
    if kind == "provider_item":
        return _block(item, context)
    kept = shared.own_keys(item, ANSWER_KEYS.get(kind))
    parts = LISTS.get(kind)
    if parts is not None and isinstance(kept.get(parts), list):
        kept[parts] = own_parts(kept[parts])
    if kind == "function_call":
        kept["arguments"] = arguments.sent_arguments(item, context)
    elif kind == "reasoning":
        kept.setdefault("summary", [])
    return spelled(kept | shared.native_keys(item, NAME), item.get("spelling"))


def _kept(item: JsonObject, context: Context) -> JsonObject:
    known = ITEM_KEYS[item["type"]]
    kept = {key: value for key, value in item.items() if value is not None and key in known}
    if "id" in kept and not str(kept["id"]).startswith(PREFIXES.get(item["type"], "")):
        context.repair("item_id", "id", f"The id {kept.pop('id')!r} was left out: it is not one of this service.")
    if kept.get("status", "completed") not in ITEM_STATUSES:
        status = kept.pop("status")
        if item["type"] == "function_call_output":
            context.loss("status", "status", f"The format has no status {status!r} of an output.")
    return kept


def _message(item: JsonObject, context: Context) -> JsonObject | None:
    kept = _kept(item, context)
    role = kept["role"] = item["role"] if item["role"] in ROLES else "user"
    if role != item["role"]:
        context.repair("role", "role", f"The format has no role {item['role']!r}; the message was sent as the user's.")
    content = item.get("content") or []
    kept["content"] = wire_parts(content, role, context, "content")
    if content and not kept["content"]:
        return None
    if kept.get("phase", "final_answer") not in PHASES:
        del kept["phase"]
    return kept


def _function_call(item: JsonObject, context: Context) -> JsonObject:
    kept = _kept(item, context)
    kept["call_id"] = wire_call_id(item.get("call_id"), context)
    kept["name"] = context.name(item.get("name"))
    context.signature(item)
    kept["arguments"] = arguments.sent_arguments(item, context)
    return kept


def _function_call_output(item: JsonObject, context: Context) -> JsonObject:
    kept = _kept(item, context)
    if item.get("call_id") is not None or not item.get("name"):  # an output may name its tool in place of a call
        kept["call_id"] = wire_call_id(item.get("call_id"), context)
    output = item.get("output")
    if isinstance(output, list):
        kept["output"] = wire_parts(output, TOOL, context, "output") or ("" if output else [])
    else:
        kept["output"] = (output or "") if isinstance(output, str | None) else dumps(output).decode()
    return kept


def _encrypted(item: JsonObject, context: Context) -> JsonObject | None:
    """Reasoning or a compaction, which only the provider that encrypted it can read."""
    is_reasoning = item["type"] == "reasoning"
    if item.get("origin") is not None or not item.get("encrypted_content"):
        code, what = ("reasoning", "Reasoning") if is_reasoning else ("item", "A compaction")
        context.loss(code, "", f"{what} was left out: it has no encrypted content of this provider.")
        return None
    kept = _kept(item, context)
    if is_reasoning:
        kept.pop("content", None)
        kept.setdefault("summary", [])
    return kept


def _block(item: JsonObject, context: Context) -> JsonObject | None:
    payload = shared.own_block(item, NAME, context, "")
    return payload if isinstance(payload, dict) else None


def _unknown(item: JsonObject, context: Context) -> JsonObject | None:
    if item.get("origin") is not None:
        context.loss("item", "", f"An item of type {item['type']}, which came from {item['origin']}, was left out.")
        return None
    kept = shared.own_keys(item)
    kind = call_kinds.BY_CALL.get(item["type"]) or call_kinds.BY_OUTPUT.get(item["type"])
    if kind is not None and isinstance(kept.get("call_id"), str):
        kept["call_id"] = wire_call_id(kept["call_id"], context)
    return kept


ITEMS: Final[dict[str, Mapper]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _encrypted,
    "compaction": _encrypted,
    "item_reference": _kept,
    "provider_item": _block,
}
