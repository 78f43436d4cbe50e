"""Items exactly as an application gave them, in `items.given`: what differs from what is stored anyway.

The difference is to `items.payload` where the item came from Open Responses or the payload is all that is stored, else
to the whole item: never to something that a later release may compute in another way. NULL where nothing is different,
and where no item of Open Responses was given, such as an answer of another format.

Differences of JSON values, which also keep the order of keys: ``applied(base, difference(full, base))`` is `full`.

They are overlays as in `entries`, with more words: ``order`` (of an object's keys), ``plain`` (the base is a
list with one part, and this is its text) and ``parsed`` (the base is the JSON text of this). A text that the base has,
too, and that is so long that it counts, is not stored twice: a difference with such texts is an object with ``over``,
the difference without them, and ``texts``, which lists for each its path, the path in the base, and where it begins in
the text there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject, decode, dumps, loads
from threadkeep.errors import DamagedRow, InvalidItem
from threadkeep.formats.canonical.entries import ItemEntry, is_same, type_of_text
from threadkeep.formats.canonical.items import ANSWER_KEYS, LISTS, NAME, PART_KEYS, ROLES
from threadkeep.formats.shared.parts import native_keys, own_keys

if TYPE_CHECKING:
    from threadkeep.domain.items import Given

_TEXT_KEYS: Final = frozenset({"type", "text", "annotations", "logprobs", "refusal"})
_NONE: Final[frozenset[str]] = frozenset()
_MOST_SHAPES: Final = 1_000
Shape = tuple[Any, ...]
_known: Final[dict[Shape | None, str | None]] = {}  # shape of an item -> what is stored of it
_SAME: Final = "{}"  # as the base is, where without a difference it would be shown in another form


def given_text(given: Given | None, entry: ItemEntry) -> str | None:
    """What is stored of the JSON text of an item that was given."""
    if given is None or (given.text == entry.payload and entry.rest is None):
        return None
    if entry.rest is not None or given.shape == ():
        return _text(loads(given.text), entry)
    value, shape = None, given.shape
    if shape is None or shape[0] != entry.origin:
        value = loads(given.text)
        shape = shape_of(value, entry.origin)
    if shape in _known:  # as for most answers
        return _known[shape]
    text = _text(loads(given.text) if value is None else value, entry)
    if shape is not None and len(_known) < _MOST_SHAPES:
        _known[shape] = text
    return text


def _text(value: Any, entry: ItemEntry) -> str | None:
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


def given_item(entry: ItemEntry, text: bytes | str | None) -> Any:
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


def _base(entry: ItemEntry) -> Any:
    if entry.payload is not None and (entry.origin == NAME or entry.rest is None):
        return decode(entry.payload, entry.codec)
    return {key: value for key, value in entry.item().items() if key != "origin"}


_LONG: Final = 512  # characters of a text that is not stored twice
Path = list[str | int]


def difference(full: Any, base: Any) -> JsonObject | None:
    """What makes `full` of `base`; None where both are the same JSON, with their keys in the same order."""
    over = _over(full, base)
    if over is None:
        return None
    # No long text stands in it that the base has, too
    long = [(path, text) for path, text in _long_texts(over, [])]
    if not long:
        return over
    known: dict[str, tuple[Path, int]] = {}
    for path, text in _long_texts(base, []):
        head, comma, _ = text.partition(",")  # of a data URL, what it encodes may stand alone
        known[text] = (path, 0)
        if comma:
            start = len(head) + 1
            known.setdefault(text[start:], (path, start))
    places = [(path, *known[text]) for path, text in long if text in known and path]
    if not places:
        return over
    whole = loads(dumps(over))
    for path, *_ in places:
        *way, last = path
        _at(whole, way)[last] = ""
    return {"over": whole, "texts": [list(place) for place in places]}


def applied(base: Any, over: JsonObject | None) -> Any:
    """The value that a difference was made of; `base` is not changed."""
    if over is not None and "over" in over:
        whole = loads(dumps(over["over"]))
        for path, path_in_base, start in over["texts"]:
            *way, last = path
            _at(whole, way)[last] = _at(base, path_in_base)[start:]
        over = whole
    return _applied(base, over)


def _over(full: Any, base: Any) -> JsonObject | None:
    if isinstance(full, dict):
        if isinstance(base, dict):
            return _of_objects(full, base)
        return {"parsed": 1} if isinstance(base, str) and _is_json_of(base, full) else {"value": full}
    if isinstance(full, list) and isinstance(base, list) and len(full) == len(base):
        inner = {str(i): over for i, (f, b) in enumerate(zip(full, base, strict=True)) if (over := _over(f, b))}
        return {"at": inner} if inner else None
    return _of_texts(full, base) or (None if is_same(full, base) else {"value": full})


def _of_texts(full: Any, base: Any) -> JsonObject | None:
    """The difference of a text to the list with one part that says the same, or the other way round."""
    if isinstance(full, str) and type_of_text(base, full) is not None:
        return {"plain": 1}
    if isinstance(base, str) and (kind := type_of_text(full, base)) is not None and list(full[0]) == ["type", "text"]:
        return {"text": kind}
    return None


def _of_objects(full: JsonObject, base: JsonObject) -> JsonObject | None:
    inner = {key: over for key in full if key in base and (over := _over(full[key], base[key]))}
    added = {key: value for key, value in full.items() if key not in base}
    parts: JsonObject = {"set": added, "drop": [key for key in base if key not in full], "in": inner}
    order = list(full)
    if order != [*(key for key in base if key in full), *added]:
        parts["order"] = order
    return {name: part for name, part in parts.items() if part} or None


def _applied(base: Any, over: JsonObject | None) -> Any:
    if over is None:
        return base
    for word, make in _WORDS.items():
        if word in over:
            return make(base, over[word])
    dropped, inner = over.get("drop", ()), over.get("in", {})
    kept = {key: _applied(value, inner.get(key)) for key, value in base.items() if key not in dropped}
    kept.update(over.get("set", {}))
    return {key: kept[key] for key in over["order"]} if "order" in over else kept


# word -> what makes the value of the base and of what stands under the word
_WORDS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "value": lambda _, value: value,
    "plain": lambda base, _: base[0]["text"],
    "parsed": lambda base, _: loads(base),
    "text": lambda base, kind: [{"type": kind, "text": base}],
    "at": lambda base, inner: [_applied(element, inner.get(str(i))) for i, element in enumerate(base)],
}


def _is_json_of(text: str, value: JsonObject) -> bool:
    try:
        return dumps(loads(text)) == dumps(value)
    except (ValueError, InvalidItem):
        return False


def _long_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        if len(value) >= _LONG:
            yield path, value
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _long_texts(inner, [*path, key])


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value
