"""Function calls and their responses, one by one.

* Arguments and responses are objects; text that is not an object is the `result` of a response, or its `error`.
* Media of an output are parts of the response where the model takes them there, else parts next to it.
* A call without an id gets one that is derived from the body; `native` says that it came without.

Source: Google's Gemini API reference, "FunctionCall", "FunctionResponse"; "Function calling".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, canonical, dumps, value_at
from threadkeep.formats.canonical.entries import ItemEntry, changed_entry
from threadkeep.formats.gemini import parts
from threadkeep.formats.gemini.fields import NAME
from threadkeep.formats.gemini.spelling import noted, respelled, spelling_of
from threadkeep.formats.shared.arguments import object_arguments, object_of, sent_value
from threadkeep.formats.shared.parts import TEXTS, native_keys, report_breakpoint, report_foreign
from threadkeep.formats.shared.reports import Context

# what Google's documents say to send as the signature of a call that the model did not make:
# "skip_thought_signature_validator" in base64
NO_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

INTERACTIONS: Final = "interactions"  # the service's other API


def call_part(item: JsonObject, name: str, call_id: str | None, context: Context) -> JsonObject:
    """A call as a part, without the keys that it came with."""
    call = {"name": name, "args": object_arguments(item, context)} | ({"id": call_id} if call_id else {})
    # a model of this service may have made the call behind OpenAI's Chat Completions
    shown = value_at(native_keys(item, "chat_completion"), "extra_content.google.thought_signature")
    signature = parts.signature_of(item) or ({"thoughtSignature": shown} if isinstance(shown, str) else {})
    return {"functionCall": call, **signature}


def respelled_item(part: JsonObject, item: JsonObject) -> JsonObject:
    """A part of a call or response in the spelling that its item came in."""
    return respelled(part, spelling_of(item).get("snake", ()))


def is_nameless(item: JsonObject) -> bool:
    """Whether a call came without an id, so that the one it has here is not the provider's."""
    call = native_keys(item, NAME).get("functionCall")
    return isinstance(call, dict) and "id" in call and not call["id"]


def client_id(item: JsonObject) -> str | None:
    """The id that an output came with where its call has none: clients make ids, too."""
    call_id = value_at(native_keys(item, NAME), "functionResponse.id")
    return call_id if isinstance(call_id, str) else None


def response_part(name: str, response: JsonObject, call_id: str | None, media: list[Any] | None = None) -> JsonObject:
    """A part with what a function returned."""
    part = {"name": name, "response": response} | ({"id": call_id} if call_id else {})
    return {"functionResponse": part if media is None else {**part, "parts": media}}


def response_parts(
    item: JsonObject, name: str, call_id: str | None, context: Context, *, nests_media: bool
) -> list[JsonObject]:
    """An output as a `functionResponse` part, and parts for its media where these stand next to it."""
    output = item.get("output")
    context.caller(item)
    response = _response(item, output, context)
    media: list[Any] = [
        sent
        for index, part in enumerate(output if isinstance(output, list) else ())
        if part["type"] not in TEXTS
        for sent in parts.wire_parts([part], parts.USER, context, f"output[{index}]")
    ]
    nested = [part for part in media if nests_media and not (isinstance(part, dict) and "text" in part)]
    part = response_part(name, response, call_id, nested or None)
    return [part, *(part for part in media if part not in nested)]


def own_response(item: JsonObject, name: str, call_id: str | None, context: Context) -> JsonObject:
    """An output that came from this format, without the keys that it came with."""
    output = item.get("output")
    if not isinstance(output, list):
        return response_part(name, _result(output, context), call_id)
    texts = [part["text"] for part in output if part["type"] in TEXTS]
    if spelling_of(item).get("response") == "json":
        response = _object("".join(texts), context) or {}
    else:
        response = {"result": "\n".join(texts)} if texts else {}
    media = [parts.own_part(part) for part in output if part["type"] not in TEXTS]
    return response_part(name, response, call_id, media)


def _response(item: JsonObject, output: Any, context: Context) -> JsonObject:
    """What a tool returned, as an object; `error` is where this service looks for failures."""
    if isinstance(output, list):
        for index, part in enumerate(output):
            if part["type"] in TEXTS:
                report_foreign(part, NAME, context, f"output[{index}]")
                report_breakpoint(part, context, f"output[{index}]")
        response: JsonObject = {"result": "\n".join(part["text"] for part in output if part["type"] in TEXTS)}
    else:
        response = _result(output, context)
    status = item.get("status")
    if status == "failed" and "error" not in response:
        return {"error": response.get("result") if response.keys() == {"result"} else response}
    if status == "incomplete":
        context.loss("status", "status", "The format has no status 'incomplete' of an output.")
    return response


def _object(text: str, context: Context) -> JsonObject | None:
    value = object_of(text)
    return value and sent_value(value, text, context, "output")


def _result(output: Any, context: Context) -> JsonObject:
    if output is None or isinstance(output, str):
        value = _object(output or "", context)
        return {"result": output or ""} if value is None else value
    return output if isinstance(output, dict) else {"result": dumps(output).decode()}


def with_signatures(entries: Sequence[ItemEntry]) -> Sequence[ItemEntry]:
    """The entries with the signatures of thoughts of the Interactions API at what these led to, as this API has them.

    It has thoughts of their own before a call or text; here the call or text has the signature.
    """
    places = [index for index, entry in enumerate(entries) if _is_thought_apart(entry)]
    if not places:
        return entries
    placed = list(entries)
    for index in places:
        if index + 1 < len(placed) and placed[index + 1].turn == placed[index].turn:
            placed[index : index + 2] = _signed(placed[index], placed[index + 1])
    return [entry for entry in placed if not (_is_thought_apart(entry) and _is_blank(entry.item()))]


def _is_thought_apart(entry: ItemEntry) -> bool:
    return entry.type == "reasoning" and entry.origin == INTERACTIONS


def _is_blank(thought: JsonObject) -> bool:
    """Whether a thought says nothing, and has no signature of its own."""
    return all(block == {"type": "thinking", "thinking": ""} for block in thought.get("content") or ())


def _signed(entry: ItemEntry, after: ItemEntry) -> list[ItemEntry]:
    """A thought and what it led to, which gets the signature of the thought, if it can have one."""
    thought, item = entry.item(), after.item()
    blocks, content = thought.get("content") or [], item.get("content") or []
    last = next((one for one in reversed(blocks) if "signature" in one), None)
    text = next((part for part in content if part["type"] in TEXTS), None)
    if last is None or (text is None and after.type != "function_call"):
        return [entry, after]
    signature = {"thought_signature": last["signature"]}
    if text is None:
        item |= signature
    else:
        item["content"] = [{**part, **signature} if part is text else part for part in content]
    bare = {key: value for key, value in last.items() if key != "signature"}
    thought["content"] = [bare if one is last else one for one in blocks]
    return [changed_entry(entry, thought), changed_entry(after, item)]


# Reading


MADE: Final = "gemini_call_"


class Ids:
    """Ids for the calls of one response: their own, else ``gemini_call_<seed>_<number>``."""

    def __init__(self, seed: str, first: int = 0) -> None:
        self._seed, self._numbers = seed, count(first)

    def take(self, own: Any) -> str:
        """The id of the next call."""
        number = next(self._numbers)
        return own if isinstance(own, str) and own else f"{MADE}{self._seed}_{number}"


def seed_of(value: Any) -> str:
    """Eight hexadecimal digits that stand for a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()[:8]


def is_call(part: JsonObject) -> bool:
    """Whether a part is a call that can be kept as one."""
    call = part.get("functionCall")
    if not isinstance(call, dict):
        return False
    is_named = isinstance(call.get("name"), str | None) and isinstance(call.get("id"), str | None)
    return is_named and isinstance(call.get("args"), dict | None) and parts.is_signed(part)


def call_item(part: JsonObject, names: set[str], ids: Ids) -> JsonObject:
    """A call."""
    call = part["functionCall"]
    item: JsonObject = {
        "type": "function_call",
        "call_id": ids.take(call.get("id")),
        "name": call.get("name") or "",
        "arguments": dumps(call.get("args") or {}).decode(),
        "origin": NAME,
        **parts.signature_in(part),
    }
    wire = call_part(item, item["name"], item["call_id"], Context())
    return parts.with_native({**item, **noted(names)}, part, wire)
