"""The difference of two JSON values, and back.

An item is stored as the JSON text that Open Responses sends. What else is known of it (keys for other formats, the
spelling it came with) is kept beside it as an overlay: ``overlaid(base, overlay(full, base)) == full``.

An overlay is an object with some of the keys ``value`` (replaces the base), ``set`` and ``drop`` (keys of an object),
``in`` (overlays of the values under these keys), ``at`` (overlays of list elements, by index) and ``text`` (the base is
the text of a list with one part, and this is the type of that part).
"""

from __future__ import annotations

from typing import Any

from threadkeep.domain.jsontext import JsonObject


def overlay(full: Any, base: Any) -> JsonObject | None:
    """What must be laid over `base` to get `full`; None when they are the same JSON."""
    if isinstance(full, dict) and isinstance(base, dict):
        return _of_objects(full, base)
    if isinstance(full, list) and isinstance(base, list) and len(full) == len(base):
        inner = {str(i): found for i, (f, b) in enumerate(zip(full, base, strict=True)) if (found := overlay(f, b))}
        return {"at": inner} if inner else None
    if isinstance(base, str) and (kind := _type_of_text(full, base)) is not None:
        return {"text": kind}
    return None if _same(full, base) else {"value": full}


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


def _type_of_text(full: Any, base: str) -> Any:
    """The type of the part when `full` is a list with one part that says no more than this text."""
    match full:
        case [{"type": str(kind), "text": text, **others}] if text == base and not others:
            return kind
    return None


def _of_objects(full: JsonObject, base: JsonObject) -> JsonObject | None:
    found: JsonObject = {
        "set": {key: value for key, value in full.items() if key not in base},
        "drop": [key for key in base if key not in full],
        "in": {
            key: inner
            for key, value in full.items()
            if key in base and value is not base[key] and (inner := overlay(value, base[key]))
        },
    }
    return {name: part for name, part in found.items() if part} or None


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: True is not 1, and NaN is NaN."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        return type(one) is type(other) and repr(one) == repr(other)
    return bool(one == other)
