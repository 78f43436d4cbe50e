"""Keys and blocks that only one format has, and parts that a format cannot send.

What came from the wire of a format goes back there as it came, and nowhere else: keys without a canonical name lie
under `native`, by format; blocks without a canonical type are a `provider_item`.

Pictures, files and videos: data URLs, media types, file names, and the notes that stand for what cannot be sent.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import base64_media_type, parse_data_url
from threadkeep.formats.shared.reports import Context

TEXTUAL: Final = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "javascript", "yaml", "x-yaml", "csv", "xhtml+xml", "sql", "graphql", "ld+json")
)
_TEXTUAL_ENDINGS: Final = ("+xml", "+json")

# media type -> ending of a file name, for files that came without a name
ENDINGS: Final = {
    "application/pdf": "pdf",
    "application/json": "json",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
_TYPES: Final = {ending: media_type for media_type, ending in ENDINGS.items()}
_PDF: Final = "JVBERi0"  # how base64 of a PDF begins
_URLS: Final = ("image_url", "video_url", "file_data", "file_url")
# keys that hold the source of a part, in the order in which one is named
_HOLDERS: Final = ("content", "output")  # where items hold parts
SOURCES: Final = ("filename", "image_url", "file_url", "video_url", "file_id", "file_data")
_LONGEST_SOURCE: Final = 200


def is_textual(media_type: str) -> bool:
    """Whether a file of this type is text that can stand in a message."""
    return media_type.startswith("text/") or media_type in TEXTUAL or media_type.endswith(_TEXTUAL_ENDINGS)


def is_base64(text: str) -> bool:
    """Whether a text is well-formed base64 and not empty."""
    return _bytes_of(text) is not None


def is_broken(url: str) -> bool:
    """Whether a URL is a base64 data URL that does not hold base64."""
    return base64_media_type(url) is not None and not is_base64(url.partition(",")[2])


def decoded_text(url: str) -> str | None:
    """The text in a base64 data URL; None when it is broken or not UTF-8."""
    parsed = parse_data_url(url)
    raw = None if parsed is None else _bytes_of(parsed[1])
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def in_base64(url: str) -> str:
    """A data URL in its base64 form; any other URL as it is.

    >>> in_base64("data:text/plain,a%20b")
    'data:text/plain;base64,YSBi'
    """
    if not url.startswith("data:") or base64_media_type(url) is not None:
        return url
    head, comma, text = url.removeprefix("data:").partition(",")
    if not comma or head.endswith(";base64"):
        return url
    return f"data:{head or 'text/plain'};base64,{base64.b64encode(unquote_to_bytes(text)).decode('ascii')}"


def url_of(part: JsonObject) -> str:
    """The URL of a picture, file or video, data URLs in their base64 form; empty where there is none.

    `file_data` may be bare base64, which OpenAI's APIs take: the file's name, or its beginning, tells its type.
    """
    key = next((key for key in _URLS if isinstance(part.get(key), str) and part[key].strip()), None)
    url = "" if key is None else str(part[key]).strip()
    if key == "file_data" and is_base64(url):
        ending = str(part.get("filename") or "").rpartition(".")[2].lower()
        media_type = "application/pdf" if url.startswith(_PDF) else _TYPES.get(ending, "application/octet-stream")
        return f"data:{media_type};base64,{url}"
    return in_base64(url)


def joined_base64(pieces: Iterable[str]) -> str:
    """Pieces of base64 as one text; each may be padded on its own. What is no base64 stays as it came."""
    pieces = [piece for piece in pieces if piece]
    ends = [index for index, piece in enumerate(pieces, 1) if piece.endswith("=")]
    if not ends or ends == [len(pieces)]:
        return "".join(pieces)
    starts = [0, *(end for end in ends if end < len(pieces))]
    parts = ["".join(pieces[start:end]) for start, end in zip(starts, [*starts[1:], len(pieces)], strict=True)]
    decoded = [_bytes_of(part) for part in parts]
    known = [part for part in decoded if part is not None]
    return base64.b64encode(b"".join(known)).decode("ascii") if len(known) == len(decoded) else "".join(pieces)


def source_of(part: JsonObject) -> str:
    """A short name of what a part shows: its file name, URL, id or media type."""
    for key in SOURCES:
        value = part.get(key)
        if isinstance(value, str) and value.strip():
            long = f"{value.strip()[:_LONGEST_SOURCE]}…" if key == "filename" else "long URL"
            return base64_media_type(value) or (value.strip() if len(value) <= _LONGEST_SOURCE else long)
    return "no source"


def parts_of(item: JsonObject) -> Iterator[Any]:
    """The parts of an item: of its content, and of its output."""
    for key in _HOLDERS:
        parts = item.get(key)
        yield from parts if isinstance(parts, list) else ()


def with_parts(item: JsonObject, change: Callable[[Any, str], Any]) -> JsonObject:
    """An item with other parts: `change` gets each part and its path."""
    for key in _HOLDERS:
        parts = item.get(key)
        if isinstance(parts, list):
            item = {**item, key: [change(part, f"{key}[{index}]") for index, part in enumerate(parts)]}
    return item


def note(part: JsonObject) -> str:
    """The text that stands for a part which cannot be sent."""
    return f"[{str(part.get('type')).removeprefix('input_')} not included: {source_of(part)}]"


def _bytes_of(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) or None
    except (binascii.Error, ValueError):
        return None


OURS: Final = frozenset({"origin", "native", "spelling"})  # keys of item objects that no wire has
TEXTS: Final = frozenset({"input_text", "output_text", "text"})
MEDIA: Final = frozenset({"input_image", "input_file", "input_video"})
BREAKPOINT: Final = "prompt_cache_breakpoint"  # the cache mark of a part in the Responses API
TEXT_KEYS: Final = 2  # how many keys a part has that is only text, as most are: its type and the text

# what makes the wire form of a part: the part, where to report, and the path of the part; None leaves it out
Mapper = Callable[[JsonObject, Context, str], Any]


def native_keys(thing: JsonObject, name: str) -> JsonObject:
    """The keys of an item, part or tool that came from the wire of a format."""
    native = thing.get("native")
    keys = native.get(name) if isinstance(native, dict) else None
    return keys if isinstance(keys, dict) else {}


def with_native_keys(thing: JsonObject, keys: JsonObject, name: str) -> JsonObject:
    """An item, part or tool with the keys that its wire had beyond the canonical ones, where there are any."""
    return {**thing, "native": {name: keys}} if keys else thing


# keys of parts that few formats have -> these formats, the loss in all others, and what is lost
_RARE: Final[dict[str, tuple[frozenset[str], str, str]]] = {
    "thought_signature": (
        frozenset({"gemini", "interactions"}),
        "signature",
        "The signature of a thought was left out",
    ),
    BREAKPOINT: (
        frozenset({"open_responses", "chat_completion", "messages"}),
        "cache_mark",
        "A cache mark was left out",
    ),
}
PRIVATE: Final = frozenset({"native", *_RARE})  # keys of parts that are looked at by `report_private`


def report_private(part: JsonObject, name: str, context: Context, path: str) -> None:
    """Report keys of a part that this format does not have: native ones, and those that only a few formats have."""
    report_foreign(part, name, context, path)
    for key, (formats, code, what) in _RARE.items():
        if part.get(key) is not None and name not in formats:
            context.loss(code, f"{path}.{key}", f"{what}: {name} has none.")


def report_foreign(thing: JsonObject, name: str, context: Context, path: str) -> None:
    """Report keys that came from the wire of other formats; one that holds null says that the wire had no such key."""
    native = thing.get("native")
    for other, keys in native.items() if isinstance(native, dict) else ():
        if other != name and isinstance(keys, dict) and not _is_null(keys):
            names = ", ".join(key for key, value in keys.items() if not _is_null(value))
            context.loss("native", path, f"Keys that only {other} has were left out: {names}.")


def report_breakpoint(part: JsonObject, context: Context, path: str) -> None:
    """Report a cache mark of the Responses API that the format has no place for."""
    if part.get(BREAKPOINT) is not None:
        context.loss("cache_mark", f"{path}.{BREAKPOINT}", "A cache mark was left out: the format has none here.")


def _is_null(value: Any) -> bool:
    """Whether a value is null, or holds nothing but nulls."""
    return all(map(_is_null, value.values())) if isinstance(value, dict) else value is None


def own_keys(thing: JsonObject, known: Collection[str] | None = None) -> JsonObject:
    """The keys of an item, part or tool that a wire can have; of those that are known, where that is said."""
    return {key: value for key, value in thing.items() if key not in OURS and (known is None or key in known)}


def split_native(thing: JsonObject, known: Collection[str], name: str) -> JsonObject:
    """An object from the wire, with the keys that have no canonical name put under `native`."""
    strange = {key: value for key, value in thing.items() if key not in known}
    if not strange:
        return thing
    split = {key: value for key, value in thing.items() if key in known}
    split["native"] = {name: strange}
    return split


def block(payload: Any, name: str) -> JsonObject:
    """A block of a format that has no canonical type, as a part or an item."""
    return {"type": "provider_item", "format": name, "payload": payload}


def own_block(thing: JsonObject, name: str, context: Context, path: str) -> Any:
    """The payload of a `provider_item` or `provider_tool` of this format; None, and a loss, for any other."""
    payload = thing.get("payload")
    if thing.get("format") == name:
        return payload
    kind = payload.get("type") if isinstance(payload, dict) else None
    named = f" of type {kind!r}" if isinstance(kind, str) else ""
    context.loss("provider_item", path, f"A block of {thing.get('format')}{named} was left out.")
    return None


def no_media(part: JsonObject, context: Context, path: str) -> None:
    """Leave a picture, file or video out."""
    context.loss("media", path, f"The format does not take this {part['type']} here: {source_of(part)}.")


def unknown_part(part: JsonObject, context: Context, path: str) -> None:
    """Leave a part out whose type the format has no form for."""
    context.loss("part", path, f"The format has no part of type {part['type']!r}.")


# part type -> what leaves it out, for formats and places that do not take it
NOT_SENT: Final[dict[str, Mapper]] = {
    "refusal": lambda _part, context, path: context.loss("refusal", path, "The refusal was left out."),
    **dict.fromkeys(
        ("reasoning_text", "summary_text"),
        lambda _part, context, path: context.loss("reasoning", path, "A text of reasoning was left out."),
    ),
    **dict.fromkeys(sorted(MEDIA), no_media),
}


# For formats in which applications keep what they show


def shown_refusal(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A refusal as a text."""
    context.repair("part_type", path, "A refusal was sent as a text: the format has no other form for it.")
    return {"type": "text", "text": part.get("refusal") or ""}


def shown_url(part: JsonObject, context: Context, path: str) -> str | None:
    """The URL of a picture, file or video; None, and a loss, where there is none that can be shown."""
    url = url_of(part)
    if url and not is_broken(url):
        return url
    code = "data_url" if url else "image_source" if part["type"] == "input_image" else "file_source"
    context.loss(code, path, f"There is no URL that can be shown: {source_of(part)}.")
    return None


def shown_type(part: JsonObject, url: str) -> str | None:
    """The media type of a picture, file or video: stated, or by its name; None where neither says it."""
    stated = base64_media_type(url) or part.get("media_type")
    if isinstance(stated, str) and stated:
        return stated
    return mimetypes.guess_type(str(part.get("filename") or url.partition("?")[0]))[0]


def plain_text(part: JsonObject, context: Context, path: str) -> JsonObject:
    """A text as a part of the format; its annotations are reported."""
    if part.get("annotations"):
        context.loss("annotations", path, "The annotations of the text were left out.")
    return {"type": "text", "text": part["text"]}
