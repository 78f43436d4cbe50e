"""Steps and their contents, one by one, in both directions.

* A thought is a reasoning item: a block for each text of its summary, its signature at the last one. Signatures that
  other items of Gemini have become thoughts before them.
* Arguments are objects; a result is text, a list of contents, or an object, which is kept as JSON.
* Media are base64 with a media type, or an address. Messages of the model hold none but their own.
* What came from this format goes back as it came: what a step says beyond its item is a native key, and a spelling
  where it says nothing to others.

Source: the types of google-genai, `interactions`; Google's Gemini API reference, "Interactions".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads, value_at
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.canonical.entries import is_same
from threadkeep.formats.canonical.items import text_type
from threadkeep.formats.interactions.fields import CALL, NAME, RESULT, STEPS, SYSTEM_ROLES, THOUGHT
from threadkeep.formats.shared import google
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.arguments import object_arguments
from threadkeep.formats.shared.reports import Context

CONTENTS: Final = frozenset({"text", "image", "audio", "video", "document"})
# detail of an image -> resolution
_RESOLUTIONS: Final = {"low": "low", "high": "high"}
_SPELLED: Final = ("name", "is_error")  # keys of results that say nothing more than their item to others


def kind_of(thing: Any) -> str:
    """The type that a step or content states; empty where it states none."""
    kind = thing.get("type") if isinstance(thing, dict) else None
    return kind if isinstance(kind, str) else ""


def as_it_came(wire: JsonObject, thing: JsonObject) -> JsonObject:
    """What an item or part became, with the keys that it came with; null says that it came without."""
    native = shared.native_keys(thing, NAME)
    return {key: value for key, value in {**wire, **native}.items() if value is not None} if native else wire


def with_native(thing: JsonObject, came: JsonObject, wire: JsonObject) -> JsonObject:
    """An item or part with a note of what the wire had beyond what it becomes."""
    keys = [*came, *(key for key in wire if key not in came)]
    over = {key: came.get(key) for key in keys if not is_same(came.get(key), wire.get(key))}
    return shared.with_native_keys(thing, over, NAME)


# Contents, written


def contents(parts: Sequence[Any], role: str, context: Context, path: str) -> list[Any]:
    """The contents of a message or result."""
    mappers, wire = PARTS.get(role, PARTS["user"]), []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        sent = mappers.get(part["type"], shared.unknown_part)(part, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            shared.report_private(part, NAME, context, part_path)
            sent = None if sent is None else as_it_came(sent, part)
        if sent is not None:
            wire.append(sent)
    return wire


def texts_of(sent: Sequence[Any]) -> list[str]:
    """The texts among contents."""
    return [one["text"] for one in sent if isinstance(one, dict) and isinstance(one.get("text"), str)]


def own_contents(parts: Sequence[Any], context: Context, path: str) -> list[Any]:
    """The contents of a message or result that came from this format."""
    sent: list[Any] = []
    for index, part in enumerate(parts):
        is_own = part["type"] in shared.TEXTS or part["type"] in shared.MEDIA or part.get("format") == NAME
        sent += [_own_content(part)] if is_own else contents([part], "assistant", context, f"{path}[{index}]")
    return sent


def _own_content(part: JsonObject) -> Any:
    if part["type"] == "provider_item":
        return part.get("payload")
    is_media = part["type"] in shared.MEDIA
    return as_it_came(_own_media(part) if is_media else shared.plain_text(part, Context(), ""), part)


def _media(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A picture, file or video; a text that says what is missing where it cannot be sent."""
    media = google.sent_media(part, context, path)
    if media is None:
        return {"type": "text", "text": shared.note(part)}
    sent = {"type": _kind(part["type"], media.media_type), "mime_type": media.media_type}
    return sent | {"data" if media.is_inline else "uri": media.content} | _resolution(part)


def _own_media(part: JsonObject) -> JsonObject:
    source = next(str(part[key]) for key in ("image_url", "video_url", "file_data", "file_url") if part.get(key))
    spelling = part.get("spelling") or {}
    inline, stated = base64_media_type(source), part.get("media_type")
    if inline is None:
        sent = {"type": _kind(part["type"], stated), "uri": source} | ({"mime_type": stated} if stated else {})
    else:
        sent = {"type": _kind(part["type"], inline), "mime_type": inline, "data": source.partition(",")[2]}
    return sent | _resolution(part) | ({"type": spelling["type"]} if "type" in spelling else {})


def _kind(part_type: str, media_type: Any) -> str:
    if part_type != "input_file":
        return part_type.removeprefix("input_")
    kind = str(media_type).partition("/")[0]
    return kind if kind in CONTENTS - {"text"} else "document"


def _resolution(part: JsonObject) -> JsonObject:
    word = _RESOLUTIONS.get(str(part.get("detail"))) if part["type"] == "input_image" else None
    return {"resolution": word} if word else {}


ASSISTANT: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    **dict.fromkeys(sorted(shared.TEXTS), shared.plain_text),
    "provider_item": lambda part, context, path: shared.own_block(part, NAME, context, path),
}
# role of a message -> mappers of its parts
PARTS: Final = {
    "user": ASSISTANT | dict.fromkeys(sorted(shared.MEDIA), _media),
    **dict.fromkeys(("assistant", *sorted(SYSTEM_ROLES)), ASSISTANT),
}


# Steps, written


def own_message(item: JsonObject, context: Context) -> JsonObject:
    """A message that came from this format."""
    step = {"type": STEPS.get(str(item.get("role")), STEPS["user"])}
    return as_it_came(step | {"content": own_contents(item.get("content") or (), context, "content")}, item)


def signature_of(thing: JsonObject) -> str | None:
    """The thought signature of a text or call that a model of Google's gave, if it is one that the service reads."""
    # a model of this service may have made the call behind OpenAI's Chat Completions
    shown = value_at(shared.native_keys(thing, "chat_completion"), "extra_content.google.thought_signature")
    own = thing.get("thought_signature") if thing.get("origin") in google.READS else None
    return next((signature for signature in (own, shown) if isinstance(signature, str)), None)


def thoughts(item: JsonObject, context: Context) -> list[JsonObject]:
    """The thoughts that a reasoning item holds: the service's own, and those that the user put there."""
    if item.get("origin") not in google.READS:
        context.loss("reasoning", "", f"Reasoning was left out: it came from {item['origin']}.")
        return []
    steps = list(_thoughts(item, context))
    if item.get("origin") == NAME:
        return [as_it_came(steps[0] if steps else {"type": THOUGHT}, item), *steps[1:]]
    if not steps:
        context.loss("reasoning", "", "Reasoning was left out: it holds no thought of this service.")
    return steps


def _thoughts(item: JsonObject, context: Context) -> Iterator[JsonObject]:
    summary: list[Any] = []
    content = item.get("content")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        kind = kind_of(block)
        if kind in CONTENTS:
            summary.append(block)
        elif kind != "thinking":
            context.loss("reasoning", f"content[{index}]", "Reasoning was left out: it is no thought of this service.")
        else:
            text, signature = block.get("thinking") or "", block.get("signature")
            if text or signature is None:
                summary.append(as_it_came({"type": "text", "text": text}, block))
            if signature is not None:
                yield {"type": THOUGHT, "signature": signature} | ({"summary": summary} if summary else {})
                summary = []
    if summary:
        yield {"type": THOUGHT, "summary": summary}


def call_step(item: JsonObject, name: str, call_id: str, context: Context) -> JsonObject:
    """A call, without the keys that it came with."""
    return {"type": CALL, "id": call_id, "name": name, "arguments": object_arguments(item, context)}


def result_step(item: JsonObject, name: str, call_id: str, context: Context) -> JsonObject:
    """What a function returned."""
    context.caller(item)
    output, status = item.get("output"), item.get("status")
    if status == "incomplete":
        context.loss("status", "status", "The format has no status 'incomplete' of an output.")
    if isinstance(output, list):
        output = contents(output, "user", context, "output")
    elif not isinstance(output, str | dict):
        output = "" if output is None else dumps(output).decode()
    step: JsonObject = {"type": RESULT, "call_id": call_id, "name": name, "result": output}
    return step | ({"is_error": True} if status == "failed" else {})


def own_result(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """A result that came from this format."""
    output, words = item.get("output"), item.get("spelling") or {}
    if isinstance(output, list):
        output = own_contents(output, context, "output")
    elif words.get("result") == "object" and isinstance(output, str):
        output = loads(output)
    step: JsonObject = {"type": RESULT, "call_id": call_id, "result": output}
    step |= {"is_error": True} if item.get("status") == "failed" else {}
    return as_it_came(step | {key: words[key] for key in _SPELLED if key in words}, item)


# Reading


def item_in(step: JsonObject) -> JsonObject:
    """A step as an item; one that has not the form of its type, or is the service's own, is a block."""
    known = {key: value for key, value in step.items() if value is not None}
    item = _item_in(known)
    return {**shared.block(step, NAME), "origin": NAME} if item is None else item


def _item_in(step: JsonObject) -> JsonObject | None:
    match step:
        case {"type": "user_input" | "model_output" as kind} if isinstance(step.get("content", []), list):
            role = next(role for role, one in STEPS.items() if one == kind)
            content = [_part_in(one, role) for one in step.get("content", ())]
            item = {"type": "message", "role": role, "content": content, "origin": NAME}
            return with_native(item, step, own_message(item, Context()))
        case {"type": "thought"}:
            return _thought_in(step)
        case {"type": "function_call", "id": str(call_id), "name": str(name), "arguments": dict() | str() as arguments}:
            text = arguments if isinstance(arguments, str) else dumps(arguments).decode()
            item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": text, "origin": NAME}
            return with_native(item, step, call_step(item, name, call_id, Context()))
        case {"type": "function_result", "call_id": str(call_id), "result": str() | list() | dict()}:
            return _result_in(step, call_id)
    return None


def _result_in(step: JsonObject, call_id: str) -> JsonObject:
    words: JsonObject = {key: step[key] for key in _SPELLED if key in step and step[key] is not True}
    output: Any = step["result"]
    if isinstance(output, dict):
        words["result"], output = "object", dumps(output).decode()
    elif isinstance(output, list):
        output = [_part_in(one, "user") for one in output]
    item: JsonObject = {"type": "function_call_output", "call_id": call_id, "output": output, "origin": NAME}
    item |= {"status": "failed"} if step.get("is_error") is True else {}
    item |= {"spelling": words} if words else {}
    return with_native(item, step, own_result(item, call_id, Context()))


def _thought_in(step: JsonObject) -> JsonObject | None:
    summary, signature = step.get("summary", []), step.get("signature")
    if not isinstance(summary, list) or not all(isinstance(one, dict) for one in summary):
        return None
    if not isinstance(signature, str | None):
        return None
    content: list[JsonObject] = []
    for one in summary:
        if one.get("type") == "text" and isinstance(one.get("text"), str):
            block = {"type": "thinking", "thinking": one["text"]}
            content.append(with_native(block, one, {"type": "text", "text": one["text"]}))
        elif kind_of(one) in CONTENTS:
            content.append(one)
        else:
            return None
    if signature is not None:
        if not content or content[-1]["type"] != "thinking" or not content[-1]["thinking"]:
            content.append({"type": "thinking", "thinking": ""})
        content[-1]["signature"] = signature
    item: JsonObject = {"type": "reasoning", "content": content, "origin": NAME}
    return with_native(item, step, next(_thoughts(item, Context()), {"type": THOUGHT}))


def _part_in(content: Any, role: str) -> JsonObject:
    known = {key: value for key, value in content.items() if value is not None} if isinstance(content, dict) else {}
    part = None
    if known.get("type") == "text" and isinstance(known.get("text"), str):
        part = {"type": text_type(role), "text": known["text"]}
    elif kind_of(known) in CONTENTS - {"text"}:
        part = _media_in(known)
    return shared.block(content, NAME) if part is None else with_native(part, known, _own_content(part))


def _media_in(content: JsonObject) -> JsonObject | None:
    """The part of a picture, sound, video or document; None for what has no source that can be kept."""
    part = _source_in(content)
    if part is None:
        return None
    if part["type"] == "input_image" and content.get("resolution") in _RESOLUTIONS.values():
        part["detail"] = content["resolution"]
    wire = _own_media(part)
    part |= {"spelling": {"type": content["type"]}} if wire["type"] != content["type"] else {}
    return part if all(wire.get(key) == content.get(key) for key in ("data", "uri")) else None


def _source_in(content: JsonObject) -> JsonObject | None:
    stated = content.get("mime_type")
    match content:
        case {"data": _, "uri": _}:
            return None
        case {"data": str(data), "mime_type": str()} if shared.is_base64(data):
            return google.media_of(str(stated), f"data:{stated};base64,{data}")
        case {"uri": str(uri)} if uri and not uri.startswith("data:"):
            part = google.media_of(str(stated or f"{content['type']}/"), uri)
            return part | ({"media_type": stated} if isinstance(stated, str) and stated else {})
    return None
