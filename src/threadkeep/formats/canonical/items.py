"""Items of Open Responses, one by one: what stands in `items.payload` and in the input of a request.

* Items that came from this format go back as they came, but for malformed arguments; how a request spelled them is
  kept under `spelling`, which means nothing to other formats.
* Of all others the format's own keys are sent; extras that users set for other formats are left out.
* Item ids keep the prefix that the service requires, or are left out; a call id of the wrong length becomes a hash.
* Reasoning goes only where it came from, and needs its encrypted content; `summary` is always sent.
* Item types that threadkeep does not know are sent as they are.

Source: OpenAI's API reference, "Responses", input items; the Open Responses specification, item params.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.call_kinds import BY_CALL, BY_OUTPUT
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical import keys
from threadkeep.formats.canonical.keys import ANSWER_KEYS, LONGEST_CALL_ID, NAME
from threadkeep.formats.canonical.parts import TOOL, own_parts, text_type, wire_parts
from threadkeep.formats.shared.arguments import sent_arguments
from threadkeep.formats.shared.parts import native_keys, own_block, own_keys, report_foreign
from threadkeep.formats.shared.reports import Context


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
            report_foreign(item, NAME, context, "native")
            wire = None if wire is None else wire | native_keys(item, NAME)
    wire = None if wire is None else as_input(wire, context)
    return {"id": wire["id"], **wire} if wire is not None and "id" in wire else wire


def as_input(item: JsonObject, context: Context) -> JsonObject:
    """An item without the keys that stand in answers alone, and with values that the input has."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return item
    output_only = keys.OUTPUT_KEYS | keys.OUTPUT_KEYS_OF.get(kind, frozenset())
    sent = _without(item, output_only)
    inner = sent.get(keys.OUTPUT_LISTS.get(kind, ""))
    if isinstance(inner, list):
        cleaned = [_without(one, keys.OUTPUT_KEYS) if isinstance(one, dict) else one for one in inner]
        sent = {**sent, keys.OUTPUT_LISTS[kind]: cleaned}
    for key, (known, nearest) in keys.INPUT_VALUES.get(kind, {}).items():
        value = sent.get(key)
        if value is not None and not (isinstance(value, str) and value in known):
            sent = {**sent, key: nearest}
            context.repair("range", key, f"The format has no {key} {value!r} of this item; {nearest!r} was sent.")
    return sent


def _without(thing: JsonObject, output_only: frozenset[str]) -> JsonObject:
    """An object without such keys; most have none."""
    if not any(key in output_only or key.startswith(keys.OUTPUT_PREFIX) for key in thing):
        return thing
    return {k: v for k, v in thing.items() if k not in output_only and not k.startswith(keys.OUTPUT_PREFIX)}


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
    return text if 0 < len(text) <= LONGEST_CALL_ID else f"call_{hashed(text)}"


def _own(item: JsonObject, context: Context) -> JsonObject | None:
    """An item that came from this format; `summary` stands though empty, which is how the format writes it."""
    kind = item["type"]
    if kind == "provider_item":
        return _block(item, context)
    kept = own_keys(item, ANSWER_KEYS.get(kind))
    parts = LISTS.get(kind)
    if parts is not None and isinstance(kept.get(parts), list):
        kept[parts] = own_parts(kept[parts])
    if kind == "function_call":
        kept["arguments"] = sent_arguments(item, context)
    elif kind == "reasoning":
        kept.setdefault("summary", [])
    return spelled(kept | native_keys(item, NAME), item.get("spelling"))


def _kept(item: JsonObject, context: Context) -> JsonObject:
    known = keys.ITEM_KEYS[item["type"]]
    kept = {key: value for key, value in item.items() if value is not None and key in known}
    if "id" in kept and not str(kept["id"]).startswith(keys.PREFIXES.get(item["type"], "")):
        context.repair("item_id", "id", f"The id {kept.pop('id')!r} was left out: it is not one of this service.")
    if kept.get("status", "completed") not in keys.ITEM_STATUSES:
        status = kept.pop("status")
        if item["type"] == "function_call_output":
            context.loss("status", "status", f"The format has no status {status!r} of an output.")
    return kept


def _message(item: JsonObject, context: Context) -> JsonObject | None:
    kept = _kept(item, context)
    role = kept["role"] = item["role"] if item["role"] in keys.ROLES else "user"
    if role != item["role"]:
        context.repair("role", "role", f"The format has no role {item['role']!r}; the message was sent as the user's.")
    content = item.get("content") or []
    kept["content"] = wire_parts(content, role, context, "content")
    if content and not kept["content"]:
        return None
    if kept.get("phase", "final_answer") not in keys.PHASES:
        del kept["phase"]
    return kept


def _function_call(item: JsonObject, context: Context) -> JsonObject:
    kept = _kept(item, context)
    kept["call_id"] = wire_call_id(item.get("call_id"), context)
    kept["name"] = context.name(item.get("name"))
    context.signature(item)
    kept["arguments"] = sent_arguments(item, context)
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
    payload = own_block(item, NAME, context, "")
    return payload if isinstance(payload, dict) else None


def _unknown(item: JsonObject, context: Context) -> JsonObject | None:
    if item.get("origin") is not None:
        context.loss("item", "", f"An item of type {item['type']}, which came from {item['origin']}, was left out.")
        return None
    kept = own_keys(item)
    kind = BY_CALL.get(item["type"]) or BY_OUTPUT.get(item["type"])
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
