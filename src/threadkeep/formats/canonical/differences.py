"""Differences of JSON values, which also keep the order of keys: ``applied(base, difference(full, base))`` is `full`.

They are overlays like those of `entries`, with more words: ``order`` (of an object's keys), ``plain`` (the base is a
list with one part, and this is its text) and ``parsed`` (the base is the JSON text of this). A text that the base has,
too, and that is so long that it counts, is not stored twice: a difference with such texts is an object with ``over``,
the difference without them, and ``texts``, which lists for each its path, the path in the base, and where it begins in
the text there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import InvalidItem
from threadkeep.formats.canonical.entries import is_same, type_of_text

_LONG: Final = 512  # characters of a text that is not stored twice
Path = list[str | int]


def difference(full: Any, base: Any) -> JsonObject | None:
    """What makes `full` of `base`; None where both are the same JSON, with their keys in the same order."""
    over = _over(full, base)
    return None if over is None else _without_copies(over, base)


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


def _without_copies(over: JsonObject, base: Any) -> JsonObject:
    """A difference in which no long text stands that the base has, too."""
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
