"""Sessions of clients that threadkeep has recorded, too: which entries of a source are stored already, and where.

The recorder has what passed: it knows answers by the ids that their providers gave them, and the rest by what it says.
A source has what the client wrote down, without reminders that were only sent, and with commands that were not. So an
entry is looked for behind the one that it follows, and what may be missing in either is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from threadkeep.contrib.importers.records import Entry, Transcript
from threadkeep.domain.items import Item, item_from
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Page
from threadkeep.errors import InvalidItem, InvalidOption, NotFound
from threadkeep.formats.shared.parsing import CUT_OFF
from threadkeep.store.conversation import Conversation
from threadkeep.store.history_sync.alignment import ASSISTANT, TEXT, utterances_of
from threadkeep.store.history_sync.sync import find_by_history
from threadkeep.store.store import Store
from threadkeep.store.writing.grafting import ROOT, Spot

T = TypeVar("T")
LABEL: Final = "recorded"  # of conversations that the recorder has written
PARENT: Final = "parent"  # a label of its side calls
FORK: Final = "forked-from"  # a label of transcripts
LAST: Final = 3  # answers of a session by which it is looked for
PAGE: Final = 1_000  # branches or responses that are read at once
_CONTENT: Final = ("summary", "encrypted_content")  # keys of a compaction by which it is known


@dataclass(slots=True)
class _Said:
    """What an item says; `is_optional` if all of that may be missing in another history.

    `begun`: the text of one that may have broken off, of which another history may have less; empty of others.
    """

    kind: str
    name: Hashable  # what tells it from others, if something does
    keys: frozenset[Hashable]
    is_optional: bool
    begun: str = ""

    @classmethod
    def of(cls, item: JsonObject, *, is_cut: bool = False) -> _Said:
        """Read an item."""
        kind, said, name = str(item.get("type")), utterances_of([item]), None
        if kind == "compaction":
            name = next((item[key] for key in _CONTENT if isinstance(item.get(key), str)), None)
        elif isinstance(item.get("call_id"), str):
            name = item["call_id"]
        keys = frozenset(_text_key(one.speaker, one.value) if one.kind == TEXT else one.key for one in said)
        texts = [one.value for one in said if is_cut and one.kind == TEXT and one.speaker == ASSISTANT]
        return cls(kind, name, keys, all(one.is_optional for one in said), "".join(texts).strip())

    def says(self, other: _Said) -> bool:
        """Whether it says all that another one says."""
        if self.kind != other.kind:
            return False
        if other.name is not None:
            return self.name == other.name
        return other.keys <= self.keys or bool(other.begun and self.begun.startswith(other.begun))


@dataclass(slots=True)
class Recording:
    """What is stored of a session that was recorded.

    Attributes:
        paths: the positions of each branch, from its beginning on.
        answers: the ranges of responses, by the ids that their provider gave them.
    """

    paths: list[list[int]] = field(default_factory=list)
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _spots: dict[int, Spot] = field(default_factory=dict)
    _said: dict[int, _Said] = field(default_factory=dict)
    _places: list[dict[int, int]] = field(default_factory=list)  # of the positions in each path
    _used: set[int] = field(default_factory=set)  # compactions

    @classmethod
    def of(cls, store: Store, conversation_id: str) -> Recording | None:
        """Read it; None for a conversation that was not recorded."""
        conversation = store.get_conversation(conversation_id)
        if LABEL not in conversation.labels:
            return None
        recording = cls()
        cut: set[int] = set()
        for response in _all(lambda after: conversation.responses(after=after, limit=PAGE)):
            if response.provider_response_id is not None:
                recording.answers[response.provider_response_id] = response.from_position, response.to_position
            if response.status in CUT_OFF:
                cut.add(response.to_position)
        for branch in _all(lambda after: conversation.branches(after=after, limit=PAGE)):
            recording._add(conversation.on_branch(branch.number), cut)
        return recording

    def _add(self, conversation: Conversation, cut: Container[int]) -> None:
        items = conversation.transcript()
        for item in items:
            if item.position not in self._said:
                self._said[item.position] = _Said.of(item.item.to_object(), is_cut=item.position in cut)
                self._spots[item.position] = Spot(item.branch, item.position)
        self.paths.append([item.position for item in items])
        self._places.append({position: place for place, position in enumerate(self.paths[-1])})

    def find(self, entry: Entry, after: Spot | None) -> Spot | None:
        """Where an entry ends that follows what is stored at `after`; None if it is not there, or nothing before it is.

        One that may be missing is where that ends which it follows, if something comes behind that.
        """
        said = list(_said_in(entry))
        if entry.answer is not None and entry.answer.id in self.answers:
            first, last = self.answers[entry.answer.id]
            places = [at for at in range(first, last + 1) if at in self._said]
            found = self._last(said, places)
            return self._spots.get(last if found is None else found)
        if said and said[0].kind == "compaction":
            return self._compaction(said[0])
        return None if after is None else self._behind(said, after)

    def _behind(self, said: Sequence[_Said], after: Spot) -> Spot | None:
        """Where that ends which is said behind a place, on any branch."""
        for path, places_of in zip(self.paths, self._places, strict=True):
            start = -1 if after == ROOT else places_of.get(after.position)
            if start is not None and (found := self._last(said, path[max(start, 0) :])) is not None:
                return self._spots[found]
        is_followed = any(path and path[-1] > after.position for path in self.paths)
        return after if is_followed and all(one.is_optional for one in said) else None

    def _last(self, said: Sequence[_Said], positions: Sequence[int]) -> int | None:
        """The position of the last of these that are stored in a row; None if one is missing that may not be."""
        found, at = None, 0
        for one in said:
            place = self._next(one, positions, at)
            if place is not None:
                found, at = positions[place], place
            elif not one.is_optional:
                return None
        return found

    def _next(self, one: _Said, positions: Sequence[int], start: int) -> int | None:
        """The index from `start` on of what says it; what may be missing, and the first, may come before.

        Calls and outputs that stand together may have another order.
        """
        for index in range(start, len(positions)):
            stored = self._said[positions[index]]
            if stored.says(one):
                return index
            are_calls = one.name is not None and stored.name is not None
            if not stored.is_optional and index > start and not are_calls:
                return None
        return None

    def _compaction(self, one: _Said) -> Spot | None:
        """Where a compaction is that stands for the same, or a message that a fork begins with; each stands for one."""
        as_message = _text_key("user", str(one.name))
        left = [(at, stored) for at, stored in self._said.items() if at not in self._used]
        place = next((at for at, stored in left if stored.says(one) or as_message in stored.keys), None)
        if place is None:
            return None
        self._used.add(place)
        return self._spots[place]


def history_of(transcript: Transcript) -> Session:
    """What was said on the branch of a transcript that was shown last."""
    entries = {entry.id: entry for entry in transcript.entries}
    at = transcript.active or next(reversed(entries), None)
    path: dict[str, Entry] = {}
    while at in entries and at not in path:
        path[at] = entries[at]
        at = path[at].parent
    session = Session()
    for item in (item for entry in reversed(path.values()) for item in _items_of(entry)):
        with suppress(InvalidItem, InvalidOption):
            session.add_item(item)
    return session


def find_recorded(store: Store, transcript: Transcript, history: Session) -> Conversation | None:
    """The conversation without a name that was recorded of a session; None if there is none.

    It has one of the last answers, or else the history. A fork begins with answers of another session.
    """
    ids = [entry.answer.id for entry in reversed(transcript.entries) if entry.answer is not None and entry.answer.id]
    for id_ in [*dict.fromkeys(ids)][: 1 if FORK in transcript.labels else LAST]:
        with suppress(NotFound):
            found = store.get_conversation(store.get_response(id_).conversation_id)
            if _is_recorded(found):
                return found
    like = find_by_history(store, history)
    return like if like is not None and _is_recorded(like) else None


def _is_recorded(conversation: Conversation) -> bool:
    """Whether it was recorded, and nothing names it."""
    labels = conversation.labels
    return LABEL in labels and PARENT not in labels and conversation.external_id is None


def _text_key(speaker: str, text: str) -> Hashable:
    """A text without the white space around it, which clients add."""
    return TEXT, speaker, text.strip()


def _all(page_after: Callable[[str | None], Page[T]]) -> Iterator[T]:
    """What all pages of a list have."""
    page = page_after(None)
    yield from page
    while page.next is not None:
        page = page_after(page.next)
        yield from page


def _said_in(entry: Entry) -> Iterator[_Said]:
    """What the items of an entry say; an answer without usage may have broken off, as one that says so has."""
    is_cut = entry.answer is not None and (entry.answer.usage is None or entry.answer.status in CUT_OFF)
    for item in _items_of(entry):
        yield _Said.of(item.to_object(), is_cut=is_cut)


def _items_of(entry: Entry) -> Iterator[Item]:
    """The items of an entry that can be stored."""
    for value in entry.items:
        with suppress(InvalidItem, InvalidOption):
            yield item_from(value)
