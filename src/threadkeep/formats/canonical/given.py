"""Items exactly as an application gave them, in `items.given`: what differs from what is stored anyway.

The difference is to `items.payload` where the item came from Open Responses or the payload is all that is stored, else
to the whole item: never to something that a later release may compute in another way. NULL where nothing is different,
and where nobody gave an item of Open Responses, such as an answer of another format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject, decode, dumps, loads
from threadkeep.errors import DamagedRow
from threadkeep.formats.canonical.differences import applied, difference
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.items import LISTS
from threadkeep.formats.canonical.keys import ANSWER_KEYS, NAME, PART_KEYS, ROLES
from threadkeep.formats.shared.parts import native_keys, own_keys

if TYPE_CHECKING:
    from threadkeep.domain.items import Given

_TEXT_KEYS: Final = frozenset({"type", "text", "annotations", "logprobs", "refusal"})
_NONE: Final[frozenset[str]] = frozenset()
_MOST_SHAPES: Final = 1_000
Shape = tuple[Any, ...]
_known: Final[dict[Shape | None, str | None]] = {}  # shape of an item -> what is stored of it
_SAME: Final = "{}"  # as the base is, where without a difference it would be shown in another form


def given_text(given: Given | None, entry: Entry) -> str | None:
    """What is stored of the JSON text of an item that was given."""
    if given is None or (given.text == entry.payload and entry.rest is None):
        return None
    if entry.rest is not None or given.shape == ():
        return _text(loads(given.text), entry)
    value, shape = None, given.shape
    if shape is None or shape[0] != entry.origin:
        value = loads(given.text)
        shape = shape_of(value, entry.origin)
    if shape in _known:  # as those of most answers are
        return _known[shape]
    text = _text(loads(given.text) if value is None else value, entry)
    if shape is not None and len(_known) < _MOST_SHAPES:
        _known[shape] = text
    return text


def _text(value: Any, entry: Entry) -> str | None:
    base = _base(entry)
    over = difference(value, base)
    if over is None:
        return None if difference(base, plain_form(base)) is None else _SAME
    return dumps(over).decode()


def shape_of(item: JsonObject, origin: str | None) -> Shape | None:
    """What decides about the text of an item of which the payload is all that is stored; None where more does.

    Hardly any answer has a shape of its own: what differs is which keys there are and which of them hold nothing. All
    that has a shape are objects of texts, nulls and empty lists, and a list of these.
    """
    kind, role, content = item.get("type"), item.get("role"), item.get("content")
    keys = item.keys() - {"origin"} if origin is not None and item.get("origin") == origin else item.keys()
    if not isinstance(kind, str) or not keys <= ANSWER_KEYS.get(kind, _NONE) or role not in (None, *ROLES):
        return None
    shape: list[Any] = [origin, _own_shape(item, parts="content")]
    if isinstance(content, list):
        shape += [_own_shape(part) if _is_text(part) else None for part in content]
    return None if None in shape[1:] else tuple(shape)


def _is_text(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in PART_KEYS and part.keys() <= _TEXT_KEYS


def _own_shape(thing: JsonObject, parts: str | None = None) -> Shape | None:
    """The shape of an item or part, without what is in its list of parts."""
    shape: list[Any] = [thing.get("type"), thing.get("role")]
    for key, value in thing.items():
        if value.__class__ is str:
            shape.append(key)
        elif value is None or value == [] or (key == parts and isinstance(value, list)):
            shape += (key, None if value is None else ())
        else:
            return None
    return tuple(shape)


def given_item(entry: Entry, text: bytes | str | None) -> Any:
    """The item as it was given; else as an object of Open Responses, from what is known of it."""
    base = _base(entry)
    if text is None:
        return plain_form(base)
    try:
        return applied(base, loads(text))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        problem = f"what was given does not fit the item ({error!r})"
        raise DamagedRow("items", f"position {entry.position}", problem) from error


def plain_form(item: Any) -> Any:
    """An item without the keys that only threadkeep has, and with those that the format's own wire had."""
    if not isinstance(item, dict):
        return item
    bare = _bare(item)
    parts = bare.get(LISTS.get(bare.get("type"), ""))  # type: ignore[arg-type]  # a type of any kind is looked up
    if isinstance(parts, list):
        bare[LISTS[bare["type"]]] = [_bare(part) if isinstance(part, dict) else part for part in parts]
    return bare


def _bare(thing: JsonObject) -> JsonObject:
    return own_keys(thing) | native_keys(thing, NAME)


def _base(entry: Entry) -> Any:
    if entry.payload is not None and (entry.origin == NAME or entry.rest is None):
        return decode(entry.payload, entry.codec)
    return {key: value for key, value in entry.item().items() if key != "origin"}
