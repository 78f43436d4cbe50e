"""Pictures and documents of the Messages API.

* Base64 pictures are JPEG, PNG, GIF or WebP; base64 documents are PDF; text goes as a text source.
* A URL wins over a file id. What the service does not take becomes a note, and a loss.

Source: Anthropic's API reference, "Messages", image and document blocks.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type
from threadkeep.formats.media import decoded_text, in_base64, is_base64, is_textual, note, source_of
from threadkeep.formats.messages.fields import IMAGES, PDF, PLAIN_TEXT
from threadkeep.formats.reports import Context

# media types that have another name for the service
ALIASES: Final = {"image/jpg": "image/jpeg"}
# kind of source -> what holds it
_WORDS: Final = {"input_image": "image_source", "input_file": "file_source"}


def image(part: JsonObject, context: Context, path: str) -> JsonObject:
    """An image block, or a note where there is no picture that the service takes."""
    url = in_base64(str(part.get("image_url") or "").strip())
    media_type = base64_media_type(url)
    if media_type is None:
        return _elsewhere("image", url, part, context, path)
    return _inline_image(ALIASES.get(media_type, media_type), url, part, context, path)


def _inline_image(media_type: str, url: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    data = url.partition(",")[2]
    if not is_base64(data):
        return _noted("data_url", "The data URL is broken", part, context, path)
    if media_type not in IMAGES:
        return _noted("media", f"The service takes no pictures of type {media_type}", part, context, path)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def document(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A document block (an image block for pictures), or a note where there is no file that the service takes."""
    url = in_base64(str(part.get("file_data") or part.get("file_url") or "").strip())
    own_type = base64_media_type(url)
    if own_type is not None:
        found = _inline_document(str(part.get("media_type") or own_type), url, part, context, path)
    else:
        found = _elsewhere("document", url, part, context, path)
    if found["type"] == "document":
        found |= {"title": part["filename"]} if part.get("filename") else {}
        found |= {"citations": part["citations"]} if part.get("citations") is not None else {}
    return found


def _inline_document(media_type: str, url: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    data = url.partition(",")[2]
    media_type = ALIASES.get(media_type, media_type)
    if not is_base64(data):
        return _noted("data_url", "The data URL is broken", part, context, path)
    if media_type == PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": data}}
    if media_type in IMAGES:
        context.mend("file_as_image", path, f"A file of type {media_type} was sent as an image.")
        return _inline_image(media_type, url, part, context, path)
    text = decoded_text(url) if is_textual(media_type) else None
    if text is None or not text.strip():
        return _noted("media", f"The service takes no files of type {media_type}", part, context, path)
    return {"type": "document", "source": {"type": "text", "media_type": PLAIN_TEXT, "data": text}}


def _elsewhere(kind: str, url: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    """A block whose source is a URL or a file that the service keeps."""
    if url:
        return {"type": kind, "source": {"type": "url", "url": url}}
    if part.get("file_id"):
        return {"type": kind, "source": {"type": "file", "file_id": part["file_id"]}}
    return _noted(_WORDS[part["type"]], "There is neither a URL nor a file_id", part, context, path)


def _noted(code: str, why: str, part: JsonObject, context: Context, path: str) -> JsonObject:
    context.lose(code, path, f"{why}: {source_of(part)}.")
    return {"type": "text", "text": note(part)}


def own_source(part: JsonObject) -> JsonObject:
    """The source of an image or document that came from this format."""
    url: Any = part.get("image_url") or part.get("file_data") or part.get("file_url")
    if not url:
        return {"type": "file", "file_id": part.get("file_id")}
    media_type = base64_media_type(url)
    if media_type is None:
        return {"type": "url", "url": url}
    if media_type == PLAIN_TEXT:
        return {"type": "text", "media_type": PLAIN_TEXT, "data": decoded_text(url)}
    return {"type": "base64", "media_type": media_type, "data": url.partition(",")[2]}
