"""Spelling: what the service takes in more than one form, noted when read so that it goes back as it came.

* Keys are camel case or snake case.
* Bytes are base64 of either alphabet, padded or not.

Source: the JSON mapping of Protocol Buffers, by which Google's APIs read requests.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject

# keys whose objects belong to the protocol, and not to the user: of parts, and of the head of a request
CONTAINERS: Final = frozenset({"inlineData", "fileData", "functionCall", "functionResponse"})
HEAD: Final = frozenset(
    {"generationConfig", "thinkingConfig", "toolConfig", "functionCallingConfig", "systemInstruction"}
)
_SNAKE: Final = re.compile(r"(?<=.)_([a-z])")
_HUMP: Final = re.compile(r"([A-Z])")
_TO_URL: Final = str.maketrans("+/", "-_")
_TO_STANDARD: Final = str.maketrans("-_", "+/")
URL, UNPADDED = "url", "unpadded"


def camel(key: str) -> str:
    """A key in camel case, if snake case gives it back.

    >>> camel("mime_type"), camel("_x"), camel("mimeType")
    ('mimeType', '_x', 'mimeType')
    """
    if not isinstance(key, str):  # what is no JSON is refused where it is stored
        return key
    name = _SNAKE.sub(lambda match: match[1].upper(), key) if "_" in key else key
    return name if snake(name) == key else key


def snake(key: str) -> str:
    """A key in snake case."""
    return _HUMP.sub(lambda match: f"_{match[1].lower()}", key)


def levelled(thing: JsonObject, names: set[str], inside: Collection[str] = CONTAINERS) -> JsonObject:
    """A part, or another object of the protocol, with its keys in camel case; those that were not go to `names`."""
    level: JsonObject = {}
    for key, value in thing.items():
        name = camel(key)
        if name != key and name in thing:
            name = key
        elif name != key:
            names.add(name)
        level[name] = _inner(name, value, inside, lambda inner: levelled(inner, names, inside))
    return level


def read_part(part: Any) -> tuple[JsonObject, set[str]]:
    """A part with its keys in camel case, and which of them were not; nothing of what is no object."""
    names: set[str] = set()
    return levelled(part, names) if isinstance(part, dict) else {}, names


def respelled(thing: JsonObject, names: Collection[str], inside: Collection[str] = CONTAINERS) -> JsonObject:
    """An object of the protocol with keys in snake case where it had them."""
    if not names:
        return thing
    return {
        snake(key) if key in names else key: _inner(key, value, inside, lambda inner: respelled(inner, names, inside))
        for key, value in thing.items()
    }


def _inner(name: str, value: Any, inside: Collection[str], spell: Any) -> Any:
    if name in inside and isinstance(value, dict):
        return spell(value)
    if name == "parts" and inside is CONTAINERS and isinstance(value, list):
        return [spell(element) if isinstance(element, dict) else element for element in value]
    return value


def noted(names: Iterable[str], **others: Any) -> JsonObject:
    """The `spelling` of an item, part or tool, as a key of it; nothing when it is the usual one."""
    spelling = {**({"snake": sorted(names)} if names else {}), **{key: value for key, value in others.items() if value}}
    return {"spelling": spelling} if spelling else {}


def spelling_of(thing: JsonObject) -> JsonObject:
    """The `spelling` of an item, part or tool, see `noted`."""
    spelling = thing.get("spelling")
    return spelling if isinstance(spelling, dict) else {}


def standard_base64(text: str) -> tuple[str, list[str]] | None:
    """Base64 in the usual alphabet, padded, and how it was spelled; None when it is none."""
    words = []
    standard = text
    if "-" in text or "_" in text:
        standard = text.translate(_TO_STANDARD)
        words.append(URL)
    if len(standard) % 4 and not standard.endswith("="):
        standard += "=" * (-len(standard) % 4)
        words.append(UNPADDED)
    try:
        is_exact = base64.b64encode(binascii.a2b_base64(standard, strict_mode=True)).decode("ascii") == standard
    except (binascii.Error, ValueError):
        return None
    return (standard, words) if standard and is_exact and base64_as(standard, words) == text else None


def base64_as(text: str, words: Collection[str]) -> str:
    """Base64 in the spelling that it had."""
    if UNPADDED in words:
        text = text.rstrip("=")
    return text.translate(_TO_URL) if URL in words else text


def overlaid(thing: JsonObject, over: JsonObject) -> JsonObject:
    """A part with the keys that it came with laid over it; null says that it came without."""
    merged = dict(thing)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif key in CONTAINERS and isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = overlaid(merged[key], value)
        else:
            merged[key] = value
    return merged


def difference(goal: JsonObject, base: JsonObject) -> JsonObject:
    """What must be laid over `base` to get `goal`."""
    over: JsonObject = {}
    for key in [*goal, *(key for key in base if key not in goal)]:
        value, other = goal.get(key), base.get(key)
        if value is other or (type(value) is type(other) and value == other):
            continue
        if key in CONTAINERS and isinstance(value, dict) and isinstance(other, dict):
            value = difference(value, other)
        over[key] = value
    return over
