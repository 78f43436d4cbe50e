"""What part of a conversation a request shows: the same for all formats, before any of them looks at the items.

In this order: the items up to a position, from the last compaction on, within a window of turns, without pictures or
reasoning, and with the dynamic context. Nothing is stored by it, and what is not shown is no loss: it was asked for.
Earlier pictures that are left out, because of their number, are reported as a repair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any, Final, cast

from threadkeep.domain.jsontext import dumps
from threadkeep.domain.rendering import RenderOptions, Turns
from threadkeep.errors import InvalidItem, InvalidOption
from threadkeep.formats.canonical.entries import ItemEntry, PackedEntries, Snapshot, changed_entry, entry_of
from threadkeep.formats.shared import makers, parts, pictures, provider_rules
from threadkeep.formats.shared.pairing import ALL_KINDS, LAYER, paired, upto

MARKS: Final = "compactions"  # the place in a snapshot's memo
UNDONE: Final = "compaction_undone"  # the item type that takes a compaction back; `compaction` is its position
SUMMARY: Final = "Summary of the conversation up to here:"
# keys of compaction items, see `AppliedCompaction`
KEEPS: Final = "keeps"
KEEPS_USERS: Final = "keeps_users"
NO_PICTURE: Final = "[Image content removed: the model has no vision]"

_SEALS: Final = frozenset({"signature", "encrypted_content"})  # keys of a block that stands alone
KINDS: Final = frozenset({"compaction", UNDONE})  # item types about compactions
_position: Final = attrgetter("position")
_type: Final = itemgetter(ItemEntry._fields.index("type"))


@dataclass(slots=True)
class HistoryView:
    """The entries that a request shows."""

    entries: Sequence[ItemEntry]
    head: int  # the position of the last item that the request knows of; -1 when there is none
    is_whole: bool = False  # whether these are all entries of the branch, as they are stored
    omitted: int = 0  # how many earlier pictures were replaced with a note
    has_layer: bool = False  # whether there is a message among them that was made for this request (see `LAYER`)


def view_of(
    snapshot: Snapshot,
    options: RenderOptions,
    format_name: str,
    rules: provider_rules.ProviderRules = provider_rules.ANYTHING,
) -> HistoryView:
    """The entries that a request of these options shows."""
    entries = upto(snapshot.entries, options.upto)
    marks = _marks(snapshot)
    head = entries[-1].position if entries else -1
    if not marks and options.shows_all:
        return HistoryView(entries, head, is_whole=len(entries) == len(snapshot.entries))
    shown, kept = list(entries), 0
    if marks:  # what stands for the turns before is none of them
        shown, kept = compacted(entries, upto(marks, head), CompactionReader.of(snapshot, options, format_name))
    if options.window is not None:
        shown = [*shown[:kept], *windowed(shown[kept:], options.window, snapshot.turns_before)]
    if not options.reasoning:
        shown = [entry for entry in shown if entry.type != "reasoning"]
    omitted = 0
    if not options.vision:
        shown = list(map(_without_pictures, shown))
    elif options.pictures is not None:
        shown, omitted = pictures.with_newest(shown, snapshot, options.pictures, rules)
    has_layer = options.dynamic_context is not None and bool(shown)
    if has_layer:
        _insert_layer(shown, options)
    return HistoryView(shown, head, omitted=omitted, has_layer=has_layer)


def _insert_layer(entries: list[ItemEntry], options: RenderOptions) -> None:
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


def repeated_turns(view: HistoryView, options: RenderOptions, stable: int) -> int | None:
    """How many messages the next request repeats, where a layer at the tail comes between; None where there is none."""
    return stable if view.has_layer and options.dynamic_context_at == "tail" else None


def _user_text(text: str, position: int, turn: int | None = None) -> ItemEntry:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return entry_of(message, position=position, turn=turn)


def trigger_start(entries: Sequence[ItemEntry]) -> int:
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


def _speaks(entry: ItemEntry) -> bool:
    """Whether the user says something with it: an empty message parts nothing, for most formats leave it out."""
    if not is_said_by_user(entry):
        return False
    content = entry.item().get("content") or ()
    return any(not isinstance(part, dict) or str(part.get("text", "-")).strip() for part in content)


def is_said_by_user(entry: ItemEntry) -> bool:
    """Whether it is a message of the user."""
    return entry.type == "message" and entry.role == "user"


# Windows


def windowed(entries: Sequence[ItemEntry], window: Turns, before: int = 0) -> list[ItemEntry]:
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


def turn_starts(entries: Sequence[ItemEntry]) -> list[int]:
    """The indexes at which turns begin: of each first message of the user."""
    return [
        index
        for index, entry in enumerate(entries)
        if is_said_by_user(entry) and (index == 0 or not is_said_by_user(entries[index - 1]))
    ]


def _with_whole_pairs(entries: Sequence[ItemEntry], start: int, starts: Sequence[int]) -> int:
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
class AppliedCompaction:
    """A compaction: where it stands, up to where it covers, and what stands for that.

    Attributes:
        entry: its item.
        upto: the last position that it covers.
        summary: its text, which any format can send; None where only its maker can read it.
        origin: the format that it came in; None for a summary of the application.
        keeps: how many items right before it, of the same response, stand with it, as in OpenAI's compaction
            endpoint, which repeats the user's messages.
        keeps_users: whether the user's messages that it covers are sent, as that endpoint demands, and as Codex has it
            with summaries of its own.
    """

    entry: ItemEntry
    upto: int
    summary: str | None
    origin: str | None
    keeps: int = 0
    keeps_users: bool = False

    @property
    def stands_alone(self) -> bool:
        """Whether no other items stand with it."""
        return not (self.keeps or self.keeps_users)

    def repeats(self, entry: ItemEntry) -> bool:
        """Whether an item only stands with it, and repeats what is covered."""
        return self.entry.position - self.keeps <= entry.position < self.entry.position

    def replaces(self, entry: ItemEntry) -> bool:
        """Whether it covers an item, or is or precedes it in its own response."""
        is_before = self.entry.turn is not None and entry.turn == self.entry.turn
        return entry.position <= self.upto or (is_before and entry.position <= self.entry.position)


def compaction_of(entry: ItemEntry) -> AppliedCompaction:
    """A compaction item; one that a provider made covers what its request has shown, or all that is before it."""
    item = entry.item()
    covered, summary, keeps = item.get("upto"), item.get("summary"), item.get(KEEPS)
    keeps = keeps if isinstance(keeps, int) else 0
    before = entry.position - 1 - keeps if entry.seen is None else entry.seen
    return AppliedCompaction(
        entry,
        covered if isinstance(covered, int) else before,
        summary if isinstance(summary, str) else None,
        item.get("origin"),
        keeps,
        item.get(KEEPS_USERS) is True,
    )


@dataclass(frozen=True, slots=True)
class CompactionReader:
    """Who reads the compactions of a request: its format, its target, and how many items its import had."""

    format_name: str
    target: makers.RequestTarget
    imported: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot, options: RenderOptions, format_name: str) -> CompactionReader:
        """Who reads a request of these options."""
        imported = 0 if snapshot.imported is None else snapshot.imported.count
        return cls(format_name, makers.target_of(snapshot, options, format_name), imported)

    def takes(self, compaction: AppliedCompaction) -> bool:
        """Whether a compaction is sent as it came."""
        is_own = compaction.origin == self.format_name
        return is_own and makers.reads_own(self.target, compaction.entry, self.format_name)

    def in_force(self, marks: Sequence[ItemEntry]) -> AppliedCompaction | None:
        """The last compaction that counts, of items about compactions: one that is sent as it came, or a text.

        What the imported request had goes back as it came.
        """
        for compaction in reversed(standing(marks).values()):
            if self.takes(compaction):
                if compaction.entry.position >= self.imported:
                    return compaction if _is_sealed(compaction) else None
            elif compaction.summary is not None:
                return compaction
        return None


def _is_sealed(compaction: AppliedCompaction) -> bool:
    """Whether it is sent in place of what it covers, and not behind it.

    Anthropic's API leaves out itself what stands before an unsigned block of its context management: its clients send
    the whole history. A signed block stands first.
    """
    if compaction.summary is None:
        return True
    native = compaction.entry.item().get("native")
    keys = native.get(compaction.origin) if isinstance(native, dict) else None
    return isinstance(keys, dict) and not _SEALS.isdisjoint(keys)


def standing(marks: Sequence[ItemEntry]) -> dict[int, AppliedCompaction]:
    """The compactions that were not taken back, by position, in order."""
    result: dict[int, AppliedCompaction] = {}
    for entry in marks:
        if entry.type == UNDONE:
            result.pop(entry.item().get("compaction", -1), None)
        else:
            result[entry.position] = compaction_of(entry)
    return result


def _marks(snapshot: Snapshot) -> list[ItemEntry]:
    """All entries about compactions; what was looked at once is remembered."""
    known: tuple[int, list[ItemEntry]] = (snapshot.memo or {}).get(MARKS, (0, []))
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


def compacted(
    entries: Sequence[ItemEntry], marks: Sequence[ItemEntry], reader: CompactionReader
) -> tuple[list[ItemEntry], int]:
    """The entries from a compaction on, and how many of them stand for what it covers.

    `marks` are all entries about compactions. What was undone is not shown, nor what only repeats what is shown here.
    """
    current = reader.in_force(marks)
    windows = [one for mark in marks if mark.type != UNDONE and (one := compaction_of(mark)).keeps]
    undone = {mark.position for mark in marks if mark.type != UNDONE} - standing(marks).keys()

    def is_shown(entry: ItemEntry) -> bool:
        if entry.type in KINDS:
            # What only says something about the view goes to no provider
            is_ours = entry.type == UNDONE or (entry.origin is None and compaction_of(entry).summary is not None)
            if current is not None or entry.position in undone or is_ours:
                return False
        return not any(window.repeats(entry) for window in windows)

    if current is None:
        return list(filter(is_shown, entries)), 0
    earlier = [mark for mark in marks if mark.position < current.entry.position]
    stand_ins = _stand_ins(entries, current, earlier, reader)
    return [*stand_ins, *(entry for entry in entries if not current.replaces(entry) and is_shown(entry))], len(
        stand_ins
    )


def uncompacted(snapshot: Snapshot) -> Snapshot:
    """A history as people read it: with all that compactions cover, and without what only repeats it.

    A compaction that a model gave is an empty message.
    """
    marks = _marks(snapshot)
    if not marks:
        return snapshot
    windows = [one for mark in marks if mark.type != UNDONE and (one := compaction_of(mark)).keeps]
    blank = {"type": "message", "role": "assistant", "content": []}
    entries = [
        entry_of(blank, position=entry.position, turn=entry.turn, seen=entry.seen) if entry.type in KINDS else entry
        for entry in snapshot.entries
        if not any(window.repeats(entry) for window in windows) and (entry.type not in KINDS or entry.seen is not None)
    ]
    return replace(snapshot, entries=entries, memo=None)


def _stand_ins(
    entries: Sequence[ItemEntry], current: AppliedCompaction, earlier: Sequence[ItemEntry], reader: CompactionReader
) -> list[ItemEntry]:
    """What stands for the items that a compaction covers."""
    text = None if current.summary is None or reader.takes(current) else f"{SUMMARY}\n\n{current.summary}"
    if current.keeps_users:
        covered, count = compacted(upto(entries, current.upto), earlier, reader)
        if text is not None:  # it sums up an earlier summary, too
            del covered[max(count - 1, 0) : count]
        place = cast("int", current.upto + 0.5)  # behind them
        mark = current.entry._replace(position=place) if text is None else _user_text(text, place)
        return [*filter(is_said_by_user, covered), mark]
    if text is not None:
        return [_user_text(text, current.upto)]
    repeated = [entry for entry in entries if current.repeats(entry)]
    stand_ins = [*repeated, current.entry]
    step = 1 / len(stand_ins)  # before what came while the provider compacted
    return [
        entry._replace(position=cast("int", current.upto - step * place) if place else current.upto)
        for place, entry in zip(range(len(stand_ins) - 1, -1, -1), stand_ins, strict=True)
    ]


# Pictures


def _without_pictures(entry: ItemEntry) -> ItemEntry:
    """An entry with a note in the place of each picture."""
    if b'"input_image"' not in (entry.payload or b"") and b'"input_image"' not in (entry.rest or b""):
        return entry

    def shown(part: Any, _path: str) -> Any:
        is_picture = isinstance(part, dict) and part.get("type") == "input_image"
        return {"type": "input_text", "text": NO_PICTURE} if is_picture else part

    return changed_entry(entry, parts.with_parts(entry.item(), shown))
