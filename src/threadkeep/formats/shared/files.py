"""Files that a provider keeps: an id of one is sent to the provider that has the file, and to no other.

The file of an item that a provider has answered is there. Where nobody has answered yet, the format that the item came
in tells whose it is; of an application's own item, nothing does, and its ids are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from threadkeep.domain.makers import maker_from
from threadkeep.formats.canonical.entries import Entry, changed_entry
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.shared.makers import Target, author_of, provider_of
from threadkeep.formats.shared.media import note, with_parts
from threadkeep.formats.shared.pictures import is_held, media_of
from threadkeep.formats.shared.reports import Context


class _Keeper(NamedTuple):
    provider: str | None
    api: str | None  # the provider that has made the format in which it was asked


def without_others(
    entries: Sequence[Entry], snapshot: Snapshot, target: Target, format_name: str, context: Context
) -> Sequence[Entry]:
    """The entries with notes in the place of files that another provider keeps; the very same where there are none."""
    held = media_of(snapshot).held
    if not held:
        return entries
    asked, before = _Keeper(target.provider, author_of(format_name)), context.position
    foreign = {at: keeper for at, keeper in _keepers(snapshot.entries, held).items() if _is_other(keeper, asked)}
    if not foreign:
        return entries
    shown = [_noted(one, foreign[one.position], context) if one.position in foreign else one for one in entries]
    context.position = before
    return shown


def _is_other(keeper: _Keeper, asked: _Keeper) -> bool:
    return any(None not in pair and pair[0] != pair[1] for pair in zip(keeper, asked, strict=True))


def _keepers(entries: Sequence[Entry], held: set[int]) -> dict[int, _Keeper]:
    """Position of an item with ids of files -> who has them, where that is known."""
    keepers: dict[int, _Keeper] = {}
    answering: _Keeper | None = None
    for entry in reversed(entries):
        if entry.maker is not None:
            maker = maker_from(entry.maker)
            answering = _Keeper(provider_of(maker, entry.origin), author_of(entry.origin))
        elif entry.position in held and answering is not None:
            keepers[entry.position] = answering
        elif entry.position in held and entry.origin is not None:
            keepers[entry.position] = _Keeper(None, author_of(entry.origin))
    return keepers


def _noted(entry: Entry, keeper: _Keeper, context: Context) -> Entry:
    """An entry with notes in the place of the files that it names."""
    context.position = entry.position
    return changed_entry(entry, with_parts(entry.item(), lambda part, path: _part(part, path, keeper, context)))


def _part(part: Any, path: str, keeper: _Keeper, context: Context) -> Any:
    if not is_held(part):
        return part
    context.loss(
        "media", path, f"The file {part['file_id']!r} was left out: only {keeper.provider or keeper.api} has it."
    )
    return {"type": "input_text", "text": note(part)}
