"""What is new of a tree of entries: runs of items behind what an earlier import has stored."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from threadkeep.contrib.importers.meeting import Recording
from threadkeep.contrib.importers.records import Answer, Count, Entry, SideCall, Skipped, Transcript
from threadkeep.domain import response
from threadkeep.domain.items import Item, ItemInput, UsualObject, item_from, usual_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import Conflict, InvalidItem, InvalidOption
from threadkeep.formats.shared.parsing import IN_PROGRESS, with_cut_items
from threadkeep.store.work.item_rows import ItemRecord, author_of, encode_item
from threadkeep.store.work.validation import past_moment
from threadkeep.store.writing.grafting import ROOT, Graft, NewAnswer, NewCall, NewSpot, NewTurn, Run, Spot

KEY_BYTES: Final = 6  # of the hash of an entry
KEY_LENGTH: Final = 8  # characters of that
PART: Final = 900_000  # characters that are remembered in one state, which takes 1 MiB
PIECE: Final = 50_000  # entries of a run that are remembered together
VERSION: Final = 1
NOWHERE: Final = -1  # in place of a branch, where calls are remembered that no entry came in


class Node(NamedTuple):
    """An entry in its place: `after` is the key of the nearest entry before it that has items ("": none)."""

    entry: Entry
    key: str
    after: str


def ordered(entries: Sequence[Entry], where: str, skipped: list[Skipped]) -> Iterator[Node]:
    """Entries with parents before their children, and what goes on with a branch right behind it."""
    if _is_line(entries):
        yield from _in_line(entries)
        return
    known = {entry.id for entry in entries}
    children: dict[str | None, list[Entry]] = {}
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            skipped.append(Skipped(f"{where}, entry {entry.id}", "its id is that of an earlier entry"))
            continue
        seen.add(entry.id)
        parent = entry.parent
        if parent is not None and parent not in known:
            skipped.append(Skipped(f"{where}, entry {entry.id}", "what it follows is missing; it begins a branch", 0))
            parent = None
        children.setdefault(parent, []).append(entry)
    yield from _following(children.pop(None, ()), children)
    for entry in entries if children else ():
        siblings = children.get(entry.parent, [])
        if any(one is entry for one in siblings):
            children[entry.parent] = [one for one in siblings if one is not entry]
            skipped.append(Skipped(f"{where}, entry {entry.id}", "it follows itself; it begins a branch", 0))
            yield from _following([entry], children)


def _is_line(entries: Sequence[Entry]) -> bool:
    """Whether each entry follows the one before it, as it mostly is, and has an id of its own."""
    ids = [entry.id for entry in entries]
    return len(set(ids)) == len(ids) and [entry.parent for entry in entries] == [None, *ids[:-1]]


def _in_line(entries: Iterable[Entry]) -> Iterator[Node]:
    key = ""
    for entry in entries:
        after, key = key, _key(entry, key) if entry.items else key
        yield Node(entry, key, after)


def _following(first: Sequence[Entry], children: dict[str | None, list[Entry]]) -> Iterator[Node]:
    """Entries at a beginning, and those that follow them, which are taken out of the children."""
    waiting = [(entry, "") for entry in reversed(first)]
    while waiting:
        entry, after = waiting.pop()
        key = _key(entry, after) if entry.items else after
        yield Node(entry, key, after)
        waiting += [(child, key) for child in reversed(children.pop(entry.id, ()))]


def _key(entry: Entry, after: str) -> str:
    return _hashed(f"{after}\0{entry.id}\0{entry.revision}")


def _hashed(text: str) -> str:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
    return urlsafe_b64encode(digest).decode()


def spots_of(parts: Sequence[Any]) -> dict[str, Spot]:
    """Where the entries are that an import remembers: the last item of each, by the keys."""
    spots: dict[str, Spot] = {}
    try:
        for branch, first, keys, counts in (run for part in parts for run in part["runs"]):
            names = [keys[at : at + KEY_LENGTH] for at in range(0, len(keys), KEY_LENGTH)]
            ends = accumulate(counts or [1] * len(names))
            spots |= {name: Spot(branch, first + end - 1) for name, end in zip(names, ends, strict=True)}
    except (TypeError, KeyError, ValueError) as error:
        raise Conflict(
            "The conversation has the external id of an import, but it was not imported.",
            hint="Change its external id, or delete it.",
        ) from error
    return spots


def file_of(parts: Sequence[Any]) -> list[Any] | None:
    """The fingerprint of the file that was imported last, and how many items and responses it had; None if unknown."""
    last = parts[-1] if parts else None
    file = last.get("file") if isinstance(last, dict) else None
    return file if isinstance(file, list) else None


@dataclass(slots=True)
class _NewRun:
    """A run in the making, with the keys of its entries, of which each is a turn, and how many items it has."""

    after: Spot | NewSpot
    turns: list[NewTurn] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    size: int = 0

    def run(self) -> Run:
        """The run, as it is written."""
        return Run(self.after, self.turns, self.size)

    def pieces(self, first: Spot) -> Iterator[list[Any]]:
        """What is remembered of it: branch, position, keys and counts, some entries at a time."""
        position = first.position
        for at in range(0, len(self.keys), PIECE):
            keys, counts = self.keys[at : at + PIECE], [len(turn.records) for turn in self.turns[at : at + PIECE]]
            is_plain = all(count == 1 for count in counts)
            yield [first.branch, position, "".join(keys), None if is_plain else counts]
            position += sum(counts)


@dataclass(slots=True)
class Planned:
    """What is new of a transcript, given what an earlier import remembered of it, and how much of it is not.

    Attributes:
        parts: what was remembered.
        recording: what the recorder has stored of it, if it has.
        items, responses: what is new, unchanged, and cannot be stored.
        skipped: why that cannot be stored.
    """

    transcript: Transcript
    make_answer: Callable[[Answer, datetime, str], NewAnswer]
    make_call: Callable[[SideCall, datetime], NewCall | None]
    parts: Sequence[Any] = ()
    recording: Recording | None = None
    items: Count = field(default_factory=Count)
    responses: Count = field(default_factory=Count)
    skipped: list[Skipped] = field(default_factory=list)
    _runs: list[_NewRun] = field(default_factory=list)
    _answers: list[tuple[Answer, datetime, str]] = field(default_factory=list)  # with the keys of their first entries
    _file: list[Any] = field(default_factory=list)  # see `file_of`
    _met: dict[str, Spot] = field(default_factory=dict)  # by the keys of entries that were recorded
    _calls: list[str] = field(default_factory=list)  # the keys of side calls that are new
    _spots: dict[str, Spot | NewSpot] = field(default_factory=dict)  # by the keys of entries
    _end: NewSpot | None = None  # of the newest run
    _ends: dict[str, str] = field(default_factory=dict)  # their keys, by their ids
    _refused: dict[str, str] = field(default_factory=dict)  # entry without an item that can be stored -> the one before

    def graft(self) -> Graft:
        """Find out what is new.

        Raises:
            Conflict: what an earlier import remembered cannot be read.
        """
        transcript = self.transcript
        known = spots_of(self.parts)
        self._spots = {"": ROOT, **known}
        moment, last, ends = moment_of(transcript.created_at), None, self._ends
        for node in ordered(transcript.entries, transcript.where, self.skipped):
            ends[node.entry.id] = node.key
            if not node.entry.items:
                continue
            moment = moment_of(node.entry.created_at) or moment
            is_more = _is_more(last, node, self._refused.get(node.after, node.after))
            if node.key in known:
                self.items.add(unchanged=len(node.entry.items))
                self.responses.add(unchanged=int(node.entry.answer is not None and not is_more))
            elif (spot := self._recorded(node)) is not None:
                self._met[node.key] = self._spots[node.key] = spot
                self.items.add(unchanged=len(node.entry.items))
                self.responses.add(unchanged=int(node.entry.answer is not None and not is_more))
            else:
                self._add(node, moment or datetime.now(UTC), is_more=is_more)
            last = last if node.key in self._refused else node
        active = transcript.active or next((entry.id for entry in reversed(transcript.entries)), "")
        answers = [self.make_answer(*one) for one in self._answers]
        calls = self._new_calls(known, ends, moment or datetime.now(UTC))
        self._file = [transcript.fingerprint, self.items.read, self.responses.read]
        is_news = any([self._calls, self._met, self._is_new_file()])
        runs = [run.run() for run in self._runs]
        return Graft(runs, self._remembered, self._spots.get(ends.get(active, "?")), answers, calls, is_news)

    @property
    def _is_whole(self) -> bool:
        """Whether its file has nothing else, and nothing that could not be imported."""
        return self.transcript.fingerprint is not None and not [*self.skipped, *self.transcript.skipped]

    def _is_new_file(self) -> bool:
        return self._is_whole and self._file != file_of(self.parts)

    def _recorded(self, node: Node) -> Spot | None:
        """Where an entry is that was recorded; None if it was not."""
        if self.recording is None:
            return None
        after = self._spots[node.after]
        return self.recording.find(node.entry, after if isinstance(after, Spot) else None)

    def _new_calls(self, known: Container[str], ends: Mapping[str, str], at: datetime) -> list[NewCall]:
        """The side calls that are not remembered, and were not recorded."""
        new = {key: one for one in self.transcript.calls if (key := _hashed(f"call {one.id}")) not in known}
        self._calls = list(new)
        listed = (entry.answer.id for entry in self.transcript.entries if entry.answer is not None)
        others = set() if self.recording is None else self.recording.answers.keys() - {*listed}
        unrecorded = [one for one in new.values() if ends.get(one.entry or "") not in self._met]
        if others:  # calls whose answers have no entry were recorded
            unrecorded = [one for one in unrecorded if one.answer.usage is None or one.answer.id is not None]
        made = (self.make_call(one, moment_of(one.created_at) or at) for one in unrecorded)
        return [one for one in made if one is not None]

    def _add(self, node: Node, at: datetime, *, is_more: bool) -> None:
        """Add the items of an entry to the run that ends where it follows, or begin one."""
        records = self._records(node.entry)
        after = self._spots[node.after]
        if not records:
            self._refuse(node, is_more=is_more and isinstance(after, NewSpot))
            return
        if after is not self._end:
            self._runs.append(_NewRun(after))
            is_more = False
        answer = None if node.entry.answer is None else self._answer(node.entry.answer, at, node.key, is_more=is_more)
        run, named = self._runs[-1], node.entry.covers
        covers = None if named is None else self._spots.get(self._ends.get(named, "?") if named else "")
        run.turns.append(NewTurn(records, at, answer, covers))
        run.keys.append(node.key)
        run.size += len(records)
        self._spots[node.key] = self._end = NewSpot(len(self._runs) - 1, run.size - 1)
        self.items.add(stored=len(records))

    def _refuse(self, node: Node, *, is_more: bool) -> None:
        """Have what follows an entry of which nothing is stored follow what it follows; its response is that one's."""
        self._refused[node.key] = self._refused.get(node.after, node.after)
        self._spots[node.key] = self._spots[node.after]
        if is_more and node.entry.answer is not None:
            self._answers[-1] = (node.entry.answer, *self._answers[-1][1:])

    def _answer(self, answer: Answer, at: datetime, key: str, *, is_more: bool) -> int:
        """The number of a response, whose last entry says most of it, and whose first entry says when it began."""
        if is_more and self._answers:
            self._answers[-1] = (answer, *self._answers[-1][1:])
        else:
            self._answers.append((answer, at, key))
            self.responses.add(stored=1)
        return len(self._answers) - 1

    def _records(self, entry: Entry) -> list[ItemRecord]:
        """The items of an entry as they are going to be stored, without those that cannot be."""
        answer = entry.answer
        maker = None if answer is None else response.Maker(answer.provider, answer.model).text
        records, model = [], None if answer is None else answer.model
        for item in self._items(entry):
            try:
                author = None if isinstance(item, dict) else author_of(item)
                value = item if isinstance(item, dict) else item.to_object()
                records.append(encode_item(value, author_id=author, model=model, maker=maker))
            except (InvalidItem, InvalidOption) as error:
                self._skip(entry, error)
        return records

    def _items(self, entry: Entry) -> Sequence[Item | JsonObject]:
        """The items of an entry, usual ones as objects; the last one of an answer that was cut off says so."""
        status = None if entry.answer is None else entry.answer.status
        if status in (None, "completed"):
            usual = _usual_objects(entry.items)
            if usual is not None:
                return usual
        items = []
        for value in entry.items:
            try:
                items.append(item_from(value))
            except (InvalidItem, InvalidOption) as error:
                self._skip(entry, error)
        in_progress = any(getattr(item, "status", None) in IN_PROGRESS for item in items)
        if entry.answer is None or (status == "completed" and not in_progress):
            return items
        return list(with_cut_items(response.Response(status=status, output=items)).output)

    def _skip(self, entry: Entry, error: Exception) -> None:
        self.items.add(skipped=1)
        self.skipped.append(Skipped(f"{self.transcript.where}, entry {entry.id}", f"no item: {error}"))

    def _remembered(self, spots: Sequence[Spot]) -> list[Any]:
        """The parts with the new runs, which go into the last part as long as there is room."""
        parts = list(self.parts)
        new: list[Any] = [] if not parts else list(parts[-1]["runs"])
        room = PART - sum(map(_length, new)) if parts else 0
        pieces = [piece for run, spot in zip(self._runs, spots, strict=True) for piece in run.pieces(spot)]
        pieces += _pieces(self._met)
        for piece in [*pieces, [NOWHERE, 0, "".join(self._calls), None]] if self._calls else pieces:
            if _length(piece) > room:
                new, room = [], PART
                parts.append(None)
            new.append(piece)
            room -= _length(piece)
            parts[-1] = {"version": VERSION, "runs": new}
        if parts and self._is_whole:
            parts[-1] = {**parts[-1], "file": self._file}
        return parts


def _pieces(met: Mapping[str, Spot]) -> Iterator[list[Any]]:
    """What is remembered of entries that were recorded: those in a row on a branch together."""
    rows: list[list[tuple[str, Spot]]] = []
    for key, spot in met.items():
        before = rows[-1][-1][1] if rows and len(rows[-1]) < PIECE else None
        if before is None or before.branch != spot.branch or before.position > spot.position:
            rows.append([])
        rows[-1].append((key, spot))
    for row in rows:
        positions = [spot.position for _, spot in row]
        counts = [1, *(after - before for before, after in pairwise(positions))]
        yield [row[0][1].branch, positions[0], "".join(key for key, _ in row), counts]


def _usual_objects(items: Sequence[ItemInput]) -> list[UsualObject] | None:
    """The objects of items, if all are usual ones, and over."""
    usual: list[UsualObject] = []
    for item in items:
        found = usual_object(item) if isinstance(item, dict) else None
        if found is None or found.get("status") in IN_PROGRESS:
            return None
        usual.append(found)
    return usual


def _length(piece: Sequence[Any]) -> int:
    """How many characters of a state a piece takes, at most."""
    _, _, keys, counts = piece
    return 50 + len(keys) + sum(len(str(count)) + 1 for count in counts or ())


def _is_more(last: Node | None, node: Node, after: str) -> bool:
    """Whether an entry came in the same response as the one right before it, which has that key."""
    if last is None or last.key != after or last.entry.answer is None or node.entry.answer is None:
        return False
    one, other = last.entry.answer, node.entry.answer
    return one is other if one.id is None else one.id == other.id


def moment_of(value: datetime | None) -> datetime | None:
    """A time of the source; None for one that cannot be."""
    try:
        return past_moment("created_at", value)
    except InvalidOption:
        return None
