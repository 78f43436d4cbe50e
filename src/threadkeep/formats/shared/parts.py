"""Keys and blocks that only one format has, and parts that a format cannot send.

What came from the wire of a format goes back there as it came, and nowhere else: keys without a canonical name lie
under `native`, by format; blocks without a canonical type are a `provider_item`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.media import source_of
from threadkeep.formats.shared.reports import Context

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
    "thought_signature": (frozenset({"gemini"}), "signature", "The signature of a thought was left out"),
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


def open_parts(items: list[JsonObject], kind: str, name: str, **keys: Any) -> list[Any]:
    """The content of the last item, if it is of that type; else of a new one that came from the format of that name."""
    if not items or items[-1]["type"] != kind:
        items.append({"type": kind, **keys, "content": [], "origin": name})
    content: list[Any] = items[-1]["content"]
    return content


def own_block(thing: JsonObject, name: str, context: Context, path: str) -> Any:
    """The payload of a `provider_item` or `provider_tool` of this format; None, and a loss, for any other."""
    payload = thing.get("payload")
    if thing.get("format") == name:
        return payload
    kind = payload.get("type") if isinstance(payload, dict) else None
    named = f" of type {kind!r}" if isinstance(kind, str) else ""
    context.loss("provider_item", path, f"A block of {thing.get('format')}{named} was left out.")
    return None


def _no_reasoning(_part: JsonObject, context: Context, path: str) -> None:
    """Leave a text of reasoning out."""
    context.loss("reasoning", path, "A text of reasoning was left out.")


def no_media(part: JsonObject, context: Context, path: str) -> None:
    """Leave a picture, file or video out."""
    context.loss("media", path, f"The format does not take this {part['type']} here: {source_of(part)}.")


def unknown_part(part: JsonObject, context: Context, path: str) -> None:
    """Leave a part out whose type the format has no form for."""
    context.loss("part", path, f"The format has no part of type {part['type']!r}.")


# part type -> what leaves it out, for formats and places that do not take it
NOT_SENT: Final[dict[str, Mapper]] = {
    "refusal": lambda _part, context, path: context.loss("refusal", path, "The refusal was left out."),
    **dict.fromkeys(("reasoning_text", "summary_text"), _no_reasoning),
    **dict.fromkeys(sorted(MEDIA), no_media),
}
