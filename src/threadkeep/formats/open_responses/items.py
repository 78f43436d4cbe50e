"""Items of Open Responses, one by one: what stands in `items.payload` and in the input of a request.

* Items that came from this format go back as they came, but for malformed arguments.
* Of all others the format's own keys are sent; extras that users set for other formats are left out.
* Item ids keep the prefix that the service wants, or are left out; a call id of the wrong length becomes a hash.
* Reasoning goes only where it came from, and needs its encrypted content; `summary` is always sent.
* Item types that threadkeep does not know are sent as they are.

Source: OpenAI's API reference, "Responses", input items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.arguments import sent_arguments
from threadkeep.formats.names import hashed
from threadkeep.formats.native import OURS, native_keys, own_block, report_foreign
from threadkeep.formats.open_responses.content import TOOL, own_parts, wire_parts
from threadkeep.formats.open_responses.fields import (
    ANSWER_KEYS,
    ITEM_KEYS,
    ITEM_STATUSES,
    LONGEST_CALL_ID,
    NAME,
    PHASES,
    PREFIXES,
    ROLES,
)
from threadkeep.formats.open_responses.spelling import spelled
from threadkeep.formats.reports import Context

Mapper = Callable[[JsonObject, Context], JsonObject | None]
# item type -> its key with content parts
LISTS: Final = {"message": "content", "function_call_output": "output"}


def wire_item(item: JsonObject, context: Context) -> JsonObject | None:
    """An item object as the format sends it; None, and a loss, where it does not.

    An id is its first key, so that the ids of a whole request can be compared without parsing.
    """
    if item.get("origin") == NAME:
        found = _own(item, context)
    else:
        found = ITEMS.get(item["type"], _unknown)(item, context)
        if "native" in item:
            report_foreign(item, NAME, context, "native")
            found = None if found is None else found | native_keys(item, NAME)
    return {"id": found["id"], **found} if found is not None and "id" in found else found


def wire_call_id(call_id: object, context: Context) -> str:
    """A call id as the format takes it: 1 to 64 characters."""
    found = sized_call_id(call_id)
    if found != call_id:
        context.mend(
            "call_id", "call_id", f"The call id {call_id!r} became a hash: the format takes 1 to 64 characters."
        )
    return found


def sized_call_id(call_id: object) -> str:
    """A call id of 1 to 64 characters: the one given, or a hash of it."""
    text = str(call_id or "")
    return text if 0 < len(text) <= LONGEST_CALL_ID else f"call_{hashed(text)}"


def _own(item: JsonObject, context: Context) -> JsonObject | None:
    """An item that came from this format; `summary` stands though empty, which is how the format writes it."""
    kind = item["type"]
    if kind == "provider_item":
        return _block(item, context)
    known = ANSWER_KEYS.get(kind)
    kept = {key: value for key, value in item.items() if key not in OURS and (known is None or key in known)}
    parts = LISTS.get(kind)
    if parts is not None and isinstance(kept.get(parts), list):
        kept[parts] = own_parts(kept[parts])
    if kind == "function_call":
        kept["arguments"] = sent_arguments(item, context)
    elif kind == "reasoning":
        kept.setdefault("summary", [])
    return spelled(kept | native_keys(item, NAME), item.get("spelling"))


def _kept(item: JsonObject, context: Context) -> JsonObject:
    known = ITEM_KEYS[item["type"]]
    kept = {key: value for key, value in item.items() if value is not None and key in known}
    if "id" in kept and not str(kept["id"]).startswith(PREFIXES.get(item["type"], "")):
        context.mend("item_id", "id", f"The id {kept.pop('id')!r} was left out: it is not one of this service.")
    return kept


def _message(item: JsonObject, context: Context) -> JsonObject | None:
    kept = _kept(item, context)
    role = kept["role"] = _role(item["role"], context)
    content = item.get("content") or []
    kept["content"] = wire_parts(content, role, context, "content")
    if content and not kept["content"]:
        return None
    if kept.get("phase", "final_answer") not in PHASES:
        del kept["phase"]
    if kept.get("status", "completed") not in ITEM_STATUSES:
        del kept["status"]
    return kept


def _role(role: Any, context: Context) -> str:
    if role in ROLES:
        return str(role)
    context.mend("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
    return "user"


def _function_call(item: JsonObject, context: Context) -> JsonObject:
    kept = _kept(item, context)
    kept["call_id"] = wire_call_id(item.get("call_id"), context)
    kept["name"] = context.name(item.get("name"))
    kept["arguments"] = sent_arguments(item, context)
    if kept.get("status", "completed") not in ITEM_STATUSES:
        del kept["status"]
    return kept


def _function_call_output(item: JsonObject, context: Context) -> JsonObject:
    kept = _kept(item, context)
    kept["call_id"] = wire_call_id(item.get("call_id"), context)
    kept["output"] = _output(item.get("output"), context)
    if kept.get("status", "completed") not in ITEM_STATUSES:
        context.lose("status", "status", f"The format has no status {kept.pop('status')!r} of an output.")
    return kept


def _output(output: Any, context: Context) -> str | list[JsonObject]:
    if isinstance(output, list):
        return wire_parts(output, TOOL, context, "output") or ([] if not output else "")
    if output is None or isinstance(output, str):
        return output or ""
    return dumps(output).decode()


def _reasoning(item: JsonObject, context: Context) -> JsonObject | None:
    if item.get("origin") is not None or not item.get("encrypted_content"):
        context.lose("reasoning", "", "Reasoning was left out: it has no encrypted content of this provider.")
        return None
    kept = _kept(item, context)
    kept.pop("content", None)
    kept.setdefault("summary", [])
    if kept.get("status", "completed") not in ITEM_STATUSES:
        del kept["status"]
    return kept


def _compaction(item: JsonObject, context: Context) -> JsonObject | None:
    if item.get("origin") is not None or not item.get("encrypted_content"):
        context.lose("item", "", "A compaction was left out: it has no encrypted content of this provider.")
        return None
    return _kept(item, context)


def _block(item: JsonObject, context: Context) -> JsonObject | None:
    payload = own_block(item, NAME, context, "")
    return payload if isinstance(payload, dict) else None


def _unknown(item: JsonObject, context: Context) -> JsonObject | None:
    if item.get("origin") is not None:
        context.lose("item", "", f"An item of type {item['type']}, which came from {item['origin']}, was left out.")
        return None
    return {key: value for key, value in item.items() if key not in OURS}


ITEMS: Final[dict[str, Mapper]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
    "compaction": _compaction,
    "item_reference": _kept,
    "provider_item": _block,
}
