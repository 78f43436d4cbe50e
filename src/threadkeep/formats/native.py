"""Keys and blocks that came from the wire of one format: they go back there as they came, and nowhere else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Snapshot
from threadkeep.formats.reports import Context

OURS: Final = frozenset({"origin", "native", "spelling"})  # keys of item objects that no wire has


def native_keys(thing: JsonObject, name: str) -> JsonObject:
    """The keys of an item, part or tool that came from the wire of a format."""
    native = thing.get("native")
    found = native.get(name) if isinstance(native, dict) else None
    return found if isinstance(found, dict) else {}


def report_foreign(thing: JsonObject, name: str, context: Context, path: str) -> None:
    """Report keys that came from the wire of other formats; one that holds null says that the wire had no such key."""
    native = thing.get("native")
    for other, found in native.items() if isinstance(native, dict) else ():
        if other != name and isinstance(found, dict) and not _says_nothing(found):
            keys = ", ".join(key for key, value in found.items() if not _says_nothing(value))
            context.lose("native", path, f"Keys that only {other} has were left out: {keys}.")


def _says_nothing(value: Any) -> bool:
    """Whether a value is null through and through."""
    return all(map(_says_nothing, value.values())) if isinstance(value, dict) else value is None


def report_imported(snapshot: Snapshot, name: str, context: Context) -> None:
    """Report the keys of an imported request that only its own format has."""
    imported = snapshot.imported
    if imported is None or imported.format == name:
        return
    found = (snapshot.settings.get("extra") or {}).get(imported.format)
    for key in found if isinstance(found, dict) else ():
        context.lose("native", f"extra.{imported.format}.{key}", f"Only {imported.format} has {key}; it was left out.")


def split_native(thing: JsonObject, known: Collection[str], name: str) -> JsonObject:
    """An object from the wire, with the keys that have no canonical name put under `native`."""
    strange = {key: value for key, value in thing.items() if key not in known}
    if not strange:
        return thing
    found = {key: value for key, value in thing.items() if key in known}
    found["native"] = {name: strange}
    return found


def block(payload: Any, name: str) -> JsonObject:
    """A block of a format that has no canonical type, as a part or an item."""
    return {"type": "provider_item", "format": name, "payload": payload}


def own_block(thing: JsonObject, name: str, context: Context, path: str) -> Any:
    """The payload of a `provider_item` or `provider_tool` of this format; None, and a loss, for any other."""
    if thing.get("format") == name:
        return thing.get("payload")
    payload = thing.get("payload")
    kind = payload.get("type") if isinstance(payload, dict) else None
    named = f" of type {kind!r}" if isinstance(kind, str) else ""
    context.lose("provider_item", path, f"A block of {thing.get('format')}{named} was left out.")
    return None
