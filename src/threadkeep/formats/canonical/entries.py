"""Items as rows: what is stored of an item.

`items.payload` is the item as Open Responses sends it, whatever is rendered around it; `items.rest` is an overlay with
everything else that is known of the item, such as keys for other formats: ``overlaid(base, overlay(full, base)) ==
full``. The store writes what `entry_of` gives, and a session without a database renders through it, too: there is one
way from items to requests.

An overlay is an object with some of the keys ``value`` (replaces the base), ``set`` and ``drop`` (keys of an object),
``in`` (overlays of the values under these keys), ``at`` (overlays of list elements, by index) and ``text`` (the base is
the text of a list with one part, and this is the type of that part).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from threadkeep.domain.call_kinds import reference_of
from threadkeep.domain.jsontext import PLAIN, JsonObject, decode, encode, encode_texts
from threadkeep.errors import DamagedRow
from threadkeep.formats.canonical.items import ITEM_KEYS, LONGEST_CALL_ID, NAME, PART_KEYS, ROLES, wire_item
from threadkeep.formats.shared.reports import Context


def overlay(full: Any, base: Any) -> JsonObject | None:
    """What must be laid over `base` to get `full`; None when they are the same JSON."""
    if isinstance(full, dict) and isinstance(base, dict):
        return _of_objects(full, base)
    if isinstance(full, list) and isinstance(base, list) and len(full) == len(base):
        inner = {str(i): over for i, (f, b) in enumerate(zip(full, base, strict=True)) if (over := overlay(f, b))}
        return {"at": inner} if inner else None
    if isinstance(base, str) and (kind := type_of_text(full, base)) is not None:
        return {"text": kind}
    return None if is_same(full, base) else {"value": full}


def overlaid(base: Any, over: JsonObject | None) -> Any:
    """`base` with an overlay laid over it; neither is changed."""
    if over is None:
        return base
    if "value" in over:
        return over["value"]
    if "text" in over:
        return [{"type": over["text"], "text": base}]
    if "at" in over:
        inner = over["at"]
        return [overlaid(element, inner.get(str(i))) for i, element in enumerate(base)]
    dropped = over.get("drop", ())
    result = {key: value for key, value in base.items() if key not in dropped}
    for key, inner in over.get("in", {}).items():
        result[key] = overlaid(base[key], inner)
    result.update(over.get("set", {}))
    return result


def _of_objects(full: JsonObject, base: JsonObject) -> JsonObject | None:
    shared = [key for key in full if key in base and full[key] is not base[key]]
    parts: JsonObject = {
        "set": {key: value for key, value in full.items() if key not in base},
        "drop": [key for key in base if key not in full],
        "in": {key: inner for key in shared if (inner := overlay(full[key], base[key]))},
    }
    return {name: part for name, part in parts.items() if part} or None


def type_of_text(full: Any, base: str) -> Any:
    """The type of the part when `full` is a list with one part that says no more than this text."""
    match full:
        case [{"type": str(kind), "text": text, **others}] if text == base and not others:
            return kind
    return None


def is_same(left: Any, right: Any) -> bool:
    """Equal as JSON: True is not 1, and NaN is NaN."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, float) or isinstance(right, float):
        return type(left) is type(right) and repr(left) == repr(right)
    return bool(left == right)


_MESSAGE_KEYS: Final = frozenset({"type", "role", "content"})
_OUTPUT_KEYS: Final = frozenset({"type", "call_id", "output"})
_TEXT_KEYS: Final = frozenset({"type", "text"})
_TEXTS: Final = frozenset(kind for kind, keys in PART_KEYS.items() if keys >= _TEXT_KEYS)
_TEXT_TYPES: Final = {role: "output_text" if role == "assistant" else "input_text" for role in ROLES}
_OWN_KEYS: Final = ITEM_KEYS["message"] | {"origin"}
_NONE: Final[frozenset[str]] = frozenset()


class ItemEntry(NamedTuple):
    """One stored item as the formats read it, see the module: a few columns, and JSON text not parsed until needed."""

    position: int
    type: str
    role: str | None = None
    turn: int | None = None  # items of one wire message or response share it; None: built by the user
    seen: int | None = None  # on items of a response: the last position that its request showed
    call_id: str | None = None
    origin: str | None = None  # the format it came in; None: built by the user
    payload: bytes | None = None
    rest: bytes | None = None
    codec: int = 0
    maker: str | None = None  # who gave it, see `domain.makers`; None: not known, or no answer of a model

    def item(self) -> JsonObject:
        """The item as a JSON object, user extras inline; DamagedRow where the stored texts are no item."""
        text, codec = self.payload, self.codec
        try:
            item: Any = None if text is None else decode(text, codec) if codec else orjson.loads(text)
            if self.rest is not None:
                item = overlaid(item, decode(self.rest, self.codec))
            elif self.origin is not None:
                item["origin"] = self.origin
            full: JsonObject = item
            full["type"]  # an item has one
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise DamagedRow("items", f"position {self.position}", f"its JSON is not an item ({error!r})") from error
        return full


def entry_of(
    item: JsonObject, *, position: int, turn: int | None = None, seen: int | None = None, maker: str | None = None
) -> ItemEntry:
    """The stored form of an item object; InvalidItem where JSON has no form for it, or it is nested too deeply."""
    plain = _plain_payload(item)
    if plain is not None:
        get = item.get
        text, codec = encode_texts(plain[0]) if plain[1] else encode(plain[0])
        return ItemEntry(
            position, item["type"], get("role"), turn, seen, get("call_id"), get("origin"), text, None, codec, maker
        )
    # It says more than what is sent of it, or is sent in another form
    full = {**item, "summary": item.get("summary") or []} if item["type"] == "reasoning" else item
    payload = wire_item(full, Context())
    bare = _without_origin(full)  # the origin has a column of its own
    # A payload is made of the item's own values, so equal is the same.
    over = overlay(full, payload) if bare != payload and overlay(bare, payload) is not None else None
    sent, sent_codec = (None, PLAIN) if payload is None else encode(payload)
    rest, rest_codec = (None, PLAIN) if over is None else encode(over)
    role, origin = item.get("role"), item.get("origin")
    return ItemEntry(
        position=position,
        type=item["type"],
        role=role if isinstance(role, str) else None,
        turn=turn,
        seen=seen,
        call_id=call_id_of(item),
        origin=origin if isinstance(origin, str) else None,
        payload=sent,
        rest=rest,
        codec=sent_codec | rest_codec,
        maker=maker,
    )


def _plain_payload(item: JsonObject) -> tuple[JsonObject, bool] | None:
    """The payload of an item that is sent as it stands, and whether it holds only texts; most items are such."""
    kind = item["type"]
    if kind == "message":
        texts = _texts_in(item.get("content"))
        if texts is not None and _has_keys(item, _MESSAGE_KEYS) and texts == _TEXT_TYPES.get(item["role"]):
            return _without_origin(item), True
        return _own_payload(item, texts) if _is_as_it_came(item, texts) else None
    if kind == "function_call_output" and _has_keys(item, _OUTPUT_KEYS):
        call_id = item["call_id"]
        if isinstance(item["output"], str) and isinstance(call_id, str) and 0 < len(call_id) <= LONGEST_CALL_ID:
            return _without_origin(item), True
    return None


def _has_keys(item: JsonObject, keys: frozenset[str]) -> bool:
    """Whether an item has these keys and no others but its origin."""
    return item.keys() >= keys and len(item) == len(keys) + ("origin" in item)


def _without_origin(item: JsonObject) -> JsonObject:
    return {key: value for key, value in item.items() if key != "origin"} if "origin" in item else item


def _texts_in(content: Any) -> str | None:
    """The type of the parts of a content of plain texts, all of one type; None for any other content."""
    text_type: str | None = None
    for part in content if isinstance(content, list) else ():
        kind = part["type"]
        if part.keys() != _TEXT_KEYS or (text_type is not None and kind != text_type):
            return None
        text_type = kind
    return text_type


def _is_as_it_came(item: JsonObject, texts: str | None) -> bool:
    """Whether a message came from this format and has nothing beyond the format's own keys, as most responses do."""
    if item.get("origin") != NAME or not item.keys() <= _OWN_KEYS or not isinstance(item.get("role"), str):
        return False
    if texts is not None:
        return texts in _TEXTS
    content = item.get("content")
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.keys() <= PART_KEYS.get(part["type"], _NONE) for part in content
    )


def _own_payload(item: JsonObject, texts: str | None) -> tuple[JsonObject, bool]:
    """The payload of a message that is sent as it came, its id first."""
    payload = _without_origin(item)
    payload = {"id": payload["id"], **payload} if "id" in payload else payload
    return payload, texts is not None and all(isinstance(payload[key], str) for key in payload if key != "content")


def call_id_of(item: JsonObject) -> str | None:
    """The call id of a call or output; also of a call that only its own provider knows, so that it can be answered."""
    call_id = reference_of(item)
    if item["type"] == "provider_item" and isinstance(item.get("payload"), dict):
        payload = item["payload"]
        is_call = (payload.get("type") == "custom" and "custom" in payload) or "function" in payload
        call_id = payload.get("id") if is_call else None
    return call_id if isinstance(call_id, str) else None


def changed_entry(entry: ItemEntry, item: JsonObject) -> ItemEntry:
    """The entry of an item that is sent in another form than it was stored in, at the same place."""
    return entry_of(item, position=entry.position, turn=entry.turn, seen=entry.seen, maker=entry.maker)


def is_behind_gap(before: ItemEntry | None, entry: ItemEntry) -> bool:
    """Whether what stands right before an item in its answer is not there; `turn` is where that begins."""
    last = -1 if before is None else before.position
    return entry.turn is not None and 0 <= entry.turn < entry.position and last < entry.position - 1
