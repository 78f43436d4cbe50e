"""The parts of UIMessages as items, and content of other origin as parts.

* A user's or system message is one item. An assistant's message is an item for each part, in turns: what the model
  said in a step, then the outputs of its tools; a steering message is the user's.
* Ids, encrypted reasoning and signatures in the metadata of a provider are those of the format that this provider
  speaks, which is then the origin of the item: they go back to their maker.
* Parts of reasoning that have one item id are one item, with a summary of several parts.
* What an item has no place for stays with it, so that the part comes back equal (`own`). A part that has no canonical
  form, or would not come back, is a block: sources, data, custom parts, tools that a provider runs itself.

Source: the AI SDK, `UIMessage`, `convertToModelMessages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.canonical import blocks
from threadkeep.formats.canonical.entries import overlay
from threadkeep.formats.shared import arguments
from threadkeep.formats.shared import parts as shared
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.ui_messages import fields, own

Turns = list[list[JsonObject]]


def turns_of(message: JsonObject) -> Turns:
    """The item objects of a message, in turns; what the message says besides its parts is with the first one."""
    kept = {key: value for key, value in message.items() if key != "parts"}
    role, parts = message.get("role"), message["parts"]
    if role not in fields.ROLES or not parts:
        return [[{**shared.block(message, fields.NAME), "origin": fields.NAME}]]
    if role == "assistant":
        turns = _steps(parts)
    else:
        content = [_content(part) for part in parts]
        turns = [[{"type": "message", "role": role, "content": content, "origin": fields.NAME}]]
    _note(turns[0][0], message=kept)
    return turns


def _note(thing: JsonObject, **keys: Any) -> None:
    """Keep something of a UIMessage with an item or content part."""
    spelling = thing.setdefault("spelling", {})
    spelling[fields.UI] = {**spelling.get(fields.UI, {}), **{key: value for key, value in keys.items() if value}}


def _steps(parts: Sequence[Any]) -> Turns:
    """The turns of an assistant's message."""
    turns: Turns = []
    said: list[JsonObject] = []
    outputs: list[JsonObject] = []
    steps = 0

    def close() -> None:
        turns.extend(turn for turn in ([*said], [*outputs]) if turn)
        said.clear()
        outputs.clear()

    for index, part in enumerate(parts):
        if part == fields.STEP and index < len(parts) - 1:
            close()
            steps += 1
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "reasoning" and not steps and said and _joined(said[-1], part):
            continue
        items = _items(part)
        _note(items[0], steps=steps)
        steps = 0
        if items[0]["type"] == "message" and items[0]["role"] == "user":
            close()
            turns.append(items)
        else:
            said.append(items[0])
            outputs += items[1:]
    close()
    return turns


def _items(part: Any) -> list[JsonObject]:
    """The item of a part, and the output of a tool; a block where the part would not come back."""
    kind = part.get("type") if isinstance(part, dict) else None
    items: list[JsonObject] | None = None
    if kind in ("text", "file"):
        items = _said(part)
    elif kind == "reasoning":
        items = _thought(part)
    elif kind == fields.STEERING:
        items = _steered(part)
    elif kind == fields.DYNAMIC or (isinstance(kind, str) and kind.startswith(fields.STATIC)):
        items = _tool(part)
    if items is not None:
        written = own.parts_of(items[0])
        for output in items[1:]:
            written[0] |= own.output_keys(output)
        if overlay([part], written) is None:
            return items
    item = {**shared.block(part, fields.NAME), "origin": fields.NAME}
    _note(item)
    return [item]


def _kept(part: JsonObject, said: Sequence[str]) -> tuple[JsonObject, JsonObject]:
    """The keys of a part that its item does not say: those that no model sees, and others."""
    rest = {key: value for key, value in part.items() if key not in said}
    silent = {key: value for key, value in rest.items() if key in fields.SILENT}
    return silent, {key: value for key, value in rest.items() if key not in silent}


def _taken(part: JsonObject, kind: str, native: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Ids and signatures in the metadata of a part, by their keys here, and what is kept of the metadata."""
    key = fields.CALL_METADATA if kind == "function_call" else fields.METADATA
    given = part.get(key)
    metadata: JsonObject = given if isinstance(given, dict) else {}
    for provider, values in metadata.items():
        keys = fields.LIFTED[kind].get(fields.FORMATS.get(provider, ""), {})
        values = values if isinstance(values, dict) else {}  # noqa: PLW2901 - what is no object holds nothing
        taken = {name: values[name] for name in keys if isinstance(values.get(name), str) and values[name]}
        if taken:
            rest = {name: value for name, value in values.items() if name not in taken}
            others = {name: value for name, value in metadata.items() if name != provider}
            others |= {provider: rest} if rest else {}
            del native[key]
            native |= {key: others} if others else {}
            return {keys[name]: value for name, value in taken.items()}, {"provider": provider, "words": sorted(taken)}
    return {}, {}


def _finished(item: JsonObject, silent: JsonObject, native: JsonObject, kept: JsonObject) -> JsonObject:
    words = kept.get("words") or []
    _note(item, part=silent, provider=kept.get("provider"), words=words)
    item.setdefault("origin", fields.FORMATS.get(kept.get("provider") or "", fields.NAME))
    return shared.with_native_keys(item, native, fields.NAME)


def _said(part: JsonObject) -> list[JsonObject] | None:
    """A text or file of the assistant."""
    content = _content(part)
    if content["type"] == "provider_item":
        return None
    if content["type"] != "output_text" and part["type"] == "file":
        return [_finished({"type": "message", "role": "assistant", "content": [content]}, {}, {}, {})]
    silent, native = _kept(part, ("type", "text"))
    taken, kept = _taken(part, "message", native)
    text: JsonObject = {"type": "output_text", "text": part["text"]}
    if "signature" in taken:
        text["thought_signature"] = taken.pop("signature")
    return [_finished({"type": "message", "role": "assistant", "content": [text], **taken}, silent, native, kept)]


def _thought(part: JsonObject) -> list[JsonObject] | None:
    """A part of reasoning: in the form of the format that its signature is of."""
    text = part.get("text")
    if not isinstance(text, str):
        return None
    silent, native = _kept(part, ("type", "text"))
    taken, kept = _taken(part, "reasoning", native)
    origin = fields.FORMATS.get(kept.get("provider") or "")
    item: JsonObject = {"type": "reasoning"}
    if origin == "open_responses":
        item |= {**taken, "summary": [{"type": "summary_text", "text": text}] if text else []}
        _note(item, parts=[{"part": silent, **kept}])
        item["origin"] = origin
        return [shared.with_native_keys(item, native, fields.NAME)]
    if origin is None:
        item["content"] = [{"type": "reasoning_text", "text": text}]
    elif "data" in taken:
        item["content"] = [{"type": "redacted_thinking", "data": taken["data"]}]
    else:
        item["content"] = [{"type": "thinking", "thinking": text, **taken}]
    return [_finished(item, silent, native, kept)]


def _joined(item: JsonObject, part: JsonObject) -> bool:
    """Add a part of reasoning to the item of the one before, if both have one item id; return whether they do."""
    ui = own.spelling_of(item) or {}
    (added, *_) = _thought(part) or [{}]
    is_same = "parts" in ui and "id" in item and added.get("id") == item["id"]
    if not is_same or not item["summary"] or not added["summary"]:
        return False
    native = shared.native_keys(added, fields.NAME)
    kept = {**(own.spelling_of(added) or {})["parts"][0], **({"native": native} if native else {})}
    whole = {**item, **added, "summary": [*item["summary"], *added["summary"]]}
    whole["spelling"] = {fields.UI: {**ui, "parts": [*ui["parts"], kept]}}
    whole.pop("native", None)
    whole |= {"native": item["native"]} if "native" in item else {}
    if overlay([*own.parts_of(item), part], own.parts_of(whole)) is not None:
        return False
    item.update(whole)
    return True


def _steered(part: JsonObject) -> list[JsonObject] | None:
    """What the user said between two steps."""
    parts = part.get("parts")
    if not isinstance(parts, list) or not parts:
        return None
    item = {"type": "message", "role": "user", "content": [_content(one) for one in parts], "origin": fields.NAME}
    _note(item, part={key: value for key, value in part.items() if key != "parts"})
    return [item]


def _tool(part: JsonObject) -> list[JsonObject] | None:
    """A call, and its output where it has one; None for a tool that the provider runs itself."""
    kind, state, call_id = part["type"], part.get("state"), part.get("toolCallId")
    name = part.get("toolName") if kind == fields.DYNAMIC else kind.removeprefix(fields.STATIC)
    named = [value for value in (name, call_id) if isinstance(value, str) and value]
    if len(named) < len((name, call_id)) or state not in fields.STATES or part.get("providerExecuted"):
        return None
    silent, native = _kept(part, ("toolCallId", "toolName", "input", "output", "errorText", "resultProviderMetadata"))
    if kind != fields.DYNAMIC:
        silent.pop("type")
    taken, kept = _taken(part, "function_call", native)
    words = kept.get("words", []) if "input" in part else [*kept.get("words", ()), "no input"]
    given = part.get("input", {})
    call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": dumps(given).decode(), **taken}
    if state == fields.STREAMING:
        call["status"] = "incomplete"
    call = _finished(call, silent, native, {**kept, "words": words})
    output = _output(part)
    if output is None:
        return [call]
    words, said = output
    rest = {key: part[key] for key in ("resultProviderMetadata",) if key in part}
    result = {"type": "function_call_output", "call_id": call_id, **said}
    return [call, _finished(result, {}, rest, {"words": words})]


def _output(part: JsonObject) -> tuple[list[str], JsonObject] | None:
    """How the output of a tool is spelled, and what it says; None where there is none yet."""
    state, output, approval = part["state"], part.get("output"), part.get("approval")
    approval = approval if isinstance(approval, dict) else {}
    if state == fields.OUTPUT:
        if isinstance(output, str):
            return [], {"output": output}
        return (["json"], {"output": dumps(output).decode()}) if "output" in part else (["no output"], {"output": ""})
    if state == fields.ERROR and isinstance(part.get("errorText"), str):
        return ["error"], {"output": part["errorText"], "status": "failed"}
    if state in fields.ANSWERED or (state == fields.RESPONDED and approval.get("approved") is False):
        return ["denied"], {"output": approval.get("reason") or fields.DENIAL, "status": "failed"}
    return None


# Content


def _content(part: Any) -> JsonObject:
    """A part of a user's or system message, or a file of the assistant, as a content part."""
    kind = part.get("type") if isinstance(part, dict) else None
    content: JsonObject | None = None
    if kind == "text" and isinstance(part.get("text"), str):
        content = {"type": "input_text", "text": part["text"]}
        said = ("type", "text")
    elif kind == "file" and isinstance(part.get("url"), str) and isinstance(part.get("mediaType"), str) and part["url"]:
        content, said = _media(part["url"], part["mediaType"]), ("type", "url")
        content |= {"filename": part["filename"]} if isinstance(part.get("filename"), str) else {}
    if content is not None:
        silent, native = _kept(part, said)
        _note(content, part=silent)
        content = shared.with_native_keys(content, native, fields.NAME)
        if overlay(part, own.content_of(content)) is None:
            return content
    return shared.block(part, fields.NAME)


def _media(url: str, media_type: str) -> JsonObject:
    if media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    if media_type.startswith("video/"):
        return {"type": "input_video", "video_url": url}
    return {"type": "input_file", "file_data" if base64_media_type(url) else "file_url": url}


def written_parts(parts: Sequence[JsonObject], context: Context, path: str, *, is_annotated: bool = False) -> list[Any]:
    """Content of another origin as parts of a message; `is_annotated`: the caller writes their annotations."""
    written = []
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        if own.spelling_of(part) is not None:
            written.append(own.content_of(part))
            continue
        value = _WRITTEN.get(part["type"], shared.unknown_part)(part, context, part_path)
        if not shared.PRIVATE.isdisjoint(part):
            kept = {key: value for key, value in part.items() if not is_annotated or key != "thought_signature"}
            shared.report_private(kept, fields.NAME, context, part_path)
        if part.get("annotations") and not is_annotated:
            context.loss("annotations", part_path, "The annotations of the text were left out.")
        if value is not None:
            written.append(value)
    return written


def output_value(output: Any, context: Context) -> Any:
    """The output of a tool, of another origin, as applications have it: JSON as its value, texts as one."""
    if isinstance(output, list):
        written = written_parts(output, context, "output")
        if all(isinstance(one, dict) and one.keys() == {"type", "text"} for one in written):
            return "\n".join(one["text"] for one in written)
        return {"type": "content", "value": written}
    if isinstance(output, str) and output.lstrip()[:1] in ("{", "[") and arguments.is_json(output):
        return loads(output)
    return "" if output is None else output


def file_part(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A picture, file or video as a part; a note where it has no URL."""
    url = shared.shown_url(part, context, path)
    if url is None:
        return {"type": "text", "text": shared.note(part)}
    detail, name = part.get("detail"), part.get("filename")
    named = {"filename": name} if isinstance(name, str) else {}
    metadata = {fields.METADATA: {"openai": {"imageDetail": detail}}} if detail is not None else {}
    kind = {"input_image": "image/", "input_video": "video/"}.get(part["type"])
    media_type = shared.shown_type(part, url) or "application/octet-stream"
    is_stated = base64_media_type(url) or part.get("media_type")
    if kind is not None and not is_stated and not media_type.startswith(kind):
        media_type = f"{kind}*"
    return {"type": "file", "mediaType": media_type, "url": url, **named, **metadata}


def _block(part: JsonObject, context: Context, path: str) -> Any:
    """A block of this format, or a picture or file that a model has made."""
    made = blocks.made_medium(part)
    return shared.own_block(part, fields.NAME, context, path) if made is None else file_part(made, context, path)


_WRITTEN: Final[dict[str, shared.Mapper]] = {
    **shared.NOT_SENT,
    **dict.fromkeys(sorted(shared.TEXTS), lambda part, _context, _path: {"type": "text", "text": part["text"]}),
    **dict.fromkeys(sorted(shared.MEDIA), file_part),
    "refusal": shared.shown_refusal,
    "provider_item": _block,
}
