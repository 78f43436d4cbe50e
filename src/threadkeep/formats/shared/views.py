"""What part of a conversation a request shows: the same for all formats, before any of them looks at the items.

In this order: the items up to a position, from the last compaction on, within a window of turns, without pictures or
reasoning, and with the dynamic context. Nothing is stored by it, and what is not shown is no loss: it was asked for.
Earlier pictures that are left out, because of their number, are reported as a repair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Final, cast

from threadkeep.domain.jsontext import dumps
from threadkeep.domain.rendering import RenderOptions, Turns
from threadkeep.errors import InvalidItem, InvalidOption
from threadkeep.formats.canonical.entries import Entry, changed_entry, entry_of
from threadkeep.formats.canonical.packed import PackedEntries
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.shared import pictures
from threadkeep.formats.shared.pairing import ALL_KINDS, LAYER, paired, upto
from threadkeep.formats.shared.provider_rules import ANYTHING, ProviderRules

MARKS: Final = "compactions"  # the place in a snapshot's memo
UNDONE: Final = "compaction_undone"  # the item type that takes a compaction back; `compaction` is its position
SUMMARY: Final = "Summary of the conversation up to here:"
NO_PICTURE: Final = "[Image content removed: the model has no vision]"

KINDS: Final = frozenset({"compaction", UNDONE})  # item types about compactions
_position: Final = attrgetter("position")
_type: Final = itemgetter(Entry._fields.index("type"))


@dataclass(slots=True)
class View:
    """The entries that a request shows."""

    entries: Sequence[Entry]
    head: int  # the position of the last item that the request knows of; -1 when there is none
    is_whole: bool = False  # whether these are all entries of the branch, as they are stored
    omitted: int = 0  # how many earlier pictures were replaced with a note
    has_layer: bool = False  # whether there is a message among them that was made for this request (see `LAYER`)


def view_of(snapshot: Snapshot, options: RenderOptions, format_name: str, rules: ProviderRules = ANYTHING) -> View:
    """The entries that a request of these options shows."""
    entries = upto(snapshot.entries, options.upto)
    marks = _marks(snapshot)
    head = entries[-1].position if entries else -1
    if not marks and options.shows_all:
        return View(entries, head, is_whole=len(entries) == len(snapshot.entries))
    compaction = _in_force(marks, snapshot, entries, format_name) if marks else None
    shown = compacted(entries, compaction) if marks else list(entries)
    if options.window is not None:
        kept = compaction is not None  # what stands for the turns before is none of them
        shown = [*shown[:kept], *windowed(shown[kept:], options.window, snapshot.turns_before)]
    if not options.reasoning:
        shown = [entry for entry in shown if entry.type != "reasoning"]
    shown, omitted = _with_fewer_pictures(shown, snapshot, options, rules)
    has_layer = options.dynamic_context is not None and bool(shown)
    if has_layer:
        _insert_layer(shown, options)
    return View(shown, head, omitted=omitted, has_layer=has_layer)


def _insert_layer(entries: list[Entry], options: RenderOptions) -> None:
    """Put the dynamic context where the options want it; in front means behind what a cache of the provider holds."""
    try:
        text = dumps(options.dynamic_context).decode()
    except InvalidItem as error:
        raise InvalidOption(f"cannot be sent: {error}", argument="dynamic_context") from error
    if options.dynamic_context_at != "front":
        index = trigger_start(entries)
    else:
        cached = options.context_cache
        index = 0 if cached is None else bisect_right(entries, cached.upto, key=_position)
    position = cast("int", entries[index].position - 0.5)  # for it is no item
    entries.insert(index, _user_text(text, position, LAYER))


def repeated_turns(view: View, options: RenderOptions, stable: int) -> int | None:
    """How many messages the next request repeats, where a layer at the tail comes between; None where there is none."""
    return stable if view.has_layer and options.dynamic_context_at == "tail" else None


def _user_text(text: str, position: int, turn: int | None = None) -> Entry:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return entry_of(message, position=position, turn=turn)


def trigger_start(entries: Sequence[Entry]) -> int:
    """The index of what the model is to answer: what the user said last, or the calls whose outputs came last.

    What the model said in one go is not taken apart: providers join it. Where one of the outputs answers an earlier
    call, it is the outputs alone. So it never moves back while a conversation grows, and what was sent before it stays.
    """
    end = len(entries) - 1
    if _speaks(entries[end]):
        while end > 0 and _speaks(entries[end - 1]):
            end -= 1
        return end
    while end >= 0 and entries[end].type in ALL_KINDS.outputs:
        end -= 1
    start = end + 1
    while start > 0 and not _speaks(entries[start - 1]) and entries[start - 1].type not in ALL_KINDS.outputs:
        start -= 1
    calls, answered_here = (
        paired(entries, kinds=ALL_KINDS).calls,
        {entry.position for entry in entries[start : end + 1]},
    )
    answered = [calls.get(output.position) for output in entries[end + 1 :]]
    return start if all(call is not None and call.position in answered_here for call in answered) else end + 1


def _speaks(entry: Entry) -> bool:
    """Whether the user says something with it: an empty message parts nothing, for most formats leave it out."""
    if not is_said_by_user(entry):
        return False
    content = entry.item().get("content") or ()
    return any(not isinstance(part, dict) or str(part.get("text", "-")).strip() for part in content)


def is_said_by_user(entry: Entry) -> bool:
    """Whether it is a message of the user."""
    return entry.type == "message" and entry.role == "user"


# Windows


def windowed(entries: Sequence[Entry], window: Turns, before: int = 0) -> list[Entry]:
    """The last turns, and the system messages before them; no call without its output, no output without its call.

    `before`: how many turns lie before these entries.
    """
    starts = turn_starts(entries)
    surplus = (before + len(starts) - window.count) // window.step * window.step - before
    if surplus <= 0:
        return list(entries)
    start = _with_whole_pairs(entries, starts[surplus], starts)
    lead = [entry for entry in entries[:start] if entry.type == "message" and entry.role in ("system", "developer")]
    return [*lead, *entries[start:]]


def turn_starts(entries: Sequence[Entry]) -> list[int]:
    """The indexes at which turns begin: of each first message of the user."""
    return [
        index
        for index, entry in enumerate(entries)
        if is_said_by_user(entry) and (index == 0 or not is_said_by_user(entries[index - 1]))
    ]


def _with_whole_pairs(entries: Sequence[Entry], start: int, starts: Sequence[int]) -> int:
    """The beginning of a turn before `start`, if an output behind it answers a call before it."""
    behind = paired(entries[start:], kinds=ALL_KINDS)
    if not behind.orphans and not behind.unknown:
        return start
    pairing = paired(entries, kinds=ALL_KINDS)
    first = entries[start].position
    answered = {**pairing.calls, **pairing.late}
    needed = [call.position for output, call in answered.items() if output >= first > call.position]
    if not needed:
        return start
    earliest = min(needed)
    return max((index for index in starts if entries[index].position <= earliest), default=0)


# Compactions


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction that is in force: where it stands, up to where it covers, and its summary or provider's item."""

    entry: Entry
    upto: int
    summary: str | None
    origin: str | None


def compaction_of(entry: Entry) -> Compaction:
    """A compaction item; one that a provider made in the course of an answer covers everything before it."""
    item = entry.item()
    covered, summary = item.get("upto"), item.get("summary")
    return Compaction(
        entry,
        covered if isinstance(covered, int) else entry.position - 1,
        summary if isinstance(summary, str) else None,
        item.get("origin"),
    )


def _in_force(
    marks: Sequence[Entry], snapshot: Snapshot, entries: Sequence[Entry], format_name: str
) -> Compaction | None:
    """The last compaction in force that counts for a format: its own, or a summary; not one of an imported request."""
    imported = snapshot.imported.count if snapshot.imported is not None else 0
    return in_force(upto(marks, entries[-1].position if entries else -1), imported, format_name)


def in_force(marks: Sequence[Entry], imported: int, format_name: str) -> Compaction | None:
    """The same of items about compactions; `imported` is how many items the imported request had."""
    standing_here = [
        compaction
        for compaction in standing(marks).values()
        if compaction.summary is not None
        or (compaction.origin == format_name and compaction.entry.position >= imported)
    ]
    return standing_here[-1] if standing_here else None


def standing(marks: Sequence[Entry]) -> dict[int, Compaction]:
    """The compactions that were not taken back, by position, in order."""
    result: dict[int, Compaction] = {}
    for entry in marks:
        if entry.type == UNDONE:
            result.pop(entry.item().get("compaction", -1), None)
        else:
            result[entry.position] = compaction_of(entry)
    return result


def _marks(snapshot: Snapshot) -> list[Entry]:
    """All entries about compactions; what was looked at once is remembered."""
    known: tuple[int, list[Entry]] = (snapshot.memo or {}).get(MARKS, (0, []))
    count, marks = known
    if count > len(snapshot.entries):
        count, marks = 0, []
    if count < len(snapshot.entries):
        new = snapshot.entries[count:] if count else snapshot.entries
        kinds = (kind for _, kind, *_ in new.others) if isinstance(new, PackedEntries) else map(_type, new)
        if not KINDS.isdisjoint(kinds):
            marks = [*marks, *(entry for entry in new if entry.type in KINDS)]
        if snapshot.memo is not None:
            snapshot.memo[MARKS] = (len(snapshot.entries), marks)
    return marks


def compacted(entries: Sequence[Entry], compaction: Compaction | None) -> list[Entry]:
    """The entries from a compaction on: its summary or the provider's own item, and what it does not cover."""
    if compaction is None:
        return [entry for entry in entries if not _is_ours(entry)]
    kept = [entry for entry in entries if entry.position > compaction.upto and entry.type not in KINDS]
    if compaction.summary is None:
        return [compaction.entry._replace(position=compaction.upto), *kept]
    return [_user_text(f"{SUMMARY}\n\n{compaction.summary}", compaction.upto), *kept]


def _is_ours(entry: Entry) -> bool:
    """Whether an entry only says something about the view, and goes to no provider."""
    return entry.type == UNDONE or (entry.type == "compaction" and compaction_of(entry).summary is not None)


# Pictures


def _with_fewer_pictures(
    entries: list[Entry], snapshot: Snapshot, options: RenderOptions, rules: ProviderRules
) -> tuple[list[Entry], int]:
    """Entries with the pictures that the options want, and how many earlier ones they leave out."""
    if not options.vision:
        return list(map(_without_pictures, entries)), 0
    if options.pictures is None:
        return entries, 0
    return pictures.with_newest(entries, snapshot, options.pictures, rules)


def _without_pictures(entry: Entry) -> Entry:
    """An entry with a note in the place of each picture."""
    if b'"input_image"' not in (entry.payload or b"") and b'"input_image"' not in (entry.rest or b""):
        return entry
    item = entry.item()
    for key in ("content", "output"):
        parts = item.get(key)
        if isinstance(parts, list):
            item = {**item, key: [_note_for(part) for part in parts]}
    return changed_entry(entry, item)


def _note_for(part: Any) -> Any:
    is_picture = isinstance(part, dict) and part.get("type") == "input_image"
    return {"type": "input_text", "text": NO_PICTURE} if is_picture else part
