"""Content parts of Open Responses.

* Text takes the part type of its role: output_text in assistant messages, input_text elsewhere.
* Parts that came from this format go back as they came; of all others only the keys that the format has are sent.
* An image has one source. Base64 data URLs of files are `file_data`, all other URLs `file_url`.
* Assistant messages hold no media, and videos stand only in tool outputs: a note stands in their place.

Source: OpenAI's API reference, "Responses", input items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.canonical.keys import ANNOTATIONS, DETAILS, NAME, PART_KEYS
from threadkeep.formats.shared.media import in_base64, is_broken, note, url_of
from threadkeep.formats.shared.parts import PRIVATE, native_keys, own_block, own_keys, report_private
from threadkeep.formats.shared.reports import Context

Mapper = Callable[[JsonObject, str, Context, str], JsonObject | None]
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
        sent = own_keys(part) if mapper is None else mapper(part, role, context, part_path)
        if not PRIVATE.isdisjoint(part):
            report_private(part, NAME, context, part_path)
            sent = None if sent is None else sent | native_keys(part, NAME)
        if sent is not None:
            wire.append(sent)
    return wire


def own_parts(parts: list[Any]) -> list[Any]:
    """The parts of an item that goes back to this format: as they came."""
    return [
        part.get("payload")
        if part.get("type") == "provider_item"
        else own_keys(part, PART_KEYS.get(part["type"])) | native_keys(part, NAME)
        for part in parts
    ]


def _kept(part: JsonObject) -> JsonObject:
    known = PART_KEYS[part["type"]]
    return {key: value for key, value in part.items() if value is not None and key in known}


def _text(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    kept, kind = _kept(part), text_type(role)
    kept.pop("logprobs", None)
    if part["type"] != kind:
        context.repair("part_type", path, f"{part['type']} became {kind}, which is what the role {role} takes.")
        kept = {"type": kind, "text": part["text"]}
    if "annotations" in kept:
        kept["annotations"] = sent_annotations(kept["annotations"], context, path)
    return kept


def sent_annotations(annotations: list[Any], context: Context, path: str) -> list[JsonObject]:
    """The annotations that the format has; those of Chat Completions are nested, and are made flat."""
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
        return _kept(part)
    context.repair("part_type", path, f"A refusal became text: the role {role} takes none.")
    return {"type": "input_text", "text": part["refusal"]}


def _noted(part: JsonObject, role: str, context: Context, path: str, why: tuple[str, str]) -> JsonObject:
    context.loss(why[0], path, f"{why[1]}: {note(part)[1:-1]}.")
    return {"type": text_type(role), "text": note(part)}


def _image(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    kept = _kept(part)
    for key in ("image_url", "file_id"):
        kept[key] = str(kept.get(key) or "").strip()
        if not kept[key]:
            del kept[key]
    if role == ASSISTANT:
        return _noted(part, role, context, path, ("media", "An assistant message holds no image"))
    if "image_url" not in kept:
        if "file_id" not in kept:
            return _noted(part, role, context, path, ("image_source", "The image has neither image_url nor file_id"))
    elif is_broken(url := in_base64(kept["image_url"])):
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
    url = url_of(part)
    if base64_media_type(url) is not None:
        return _file_with_data(part, url, role, context, path)
    if part.get("file_data"):
        return _noted(part, role, context, path, ("data_url", "The file_data is not a data URL"))
    if not url and not part.get("file_id"):
        return _noted(part, role, context, path, ("file_source", "The file has no source"))
    return _kept(part)


def _file_with_data(part: JsonObject, url: str, role: str, context: Context, path: str) -> JsonObject:
    media_type = str(base64_media_type(url))
    if is_broken(url) or media_type.startswith(_NO_FILES):
        return _noted(part, role, context, path, ("data_url", "The format takes no such file_data"))
    if media_type.startswith("image/"):
        context.repair("file_as_image", path, f"A file of type {media_type} was sent as an image.")
        return {"type": "input_image", "image_url": url}
    if part.get("file_url") and part.get("file_data"):
        context.loss("file_source", path, "The file has both file_data and file_url; only the data was sent.")
    file: JsonObject = {}
    for key, value in _kept(part).items():
        file |= {"file_data": url} if key in ("file_data", "file_url") else {key: value}
    return file


def _video(part: JsonObject, role: str, context: Context, path: str) -> JsonObject:
    if role == TOOL and part.get("video_url"):
        return _kept(part)
    return _noted(part, role, context, path, ("media", "Only outputs of tools hold a video"))


PARTS: Final[dict[str, Mapper]] = {
    **dict.fromkeys(("input_text", "output_text", "text", "reasoning_text", "summary_text"), _text),
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_video": _video,
    "provider_item": lambda part, _role, context, path: own_block(part, NAME, context, path),
}
