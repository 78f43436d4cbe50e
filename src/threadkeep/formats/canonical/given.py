"""Items exactly as an application gave them, in `items.given`: what differs from what is stored anyway.

The difference is to `items.payload` where the item came from Open Responses or the payload is all that is stored, else
to the whole item: never to something that a later release may compute in another way. NULL where nothing is different,
and where nobody gave an item of Open Responses, such as an answer of another format.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, decode, dumps, loads
from threadkeep.errors import DamagedRow
from threadkeep.formats.canonical.differences import applied, difference
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.items import LISTS
from threadkeep.formats.canonical.keys import NAME
from threadkeep.formats.shared.parts import native_keys, own_keys

_SAME: Final = b"{}"  # as the base is, where without a difference it would be shown in another form


def given_text(given: bytes, entry: Entry) -> bytes | None:
    """What is stored of the JSON text of an item that was given."""
    if given == entry.payload and entry.rest is None:
        return None
    base = _base(entry)
    over = difference(loads(given), base)
    if over is None:
        return None if difference(base, plain_form(base)) is None else _SAME
    return dumps(over)


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
