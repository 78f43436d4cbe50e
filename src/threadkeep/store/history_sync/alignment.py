"""Compares two histories and finds how far they agree; time grows with their lengths, also where all is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from threadkeep.store.history_sync.matching import ASSISTANT, CALL, TEXT, TOOL, Utterance

MIN_OVERLAP: Final = 2  # how much must match in the middle of a history, so that it is hardly by chance
# How many steps for each thing said in both histories may go into beginnings in the middle of the stored one
STEPS: Final = 20


class Alignment(NamedTuple):
    """How far a client's history agrees with the stored one."""

    overlap: int  # how many things both say
    kept: int  # how many items of the stored history the client has, from its beginning on
    rest: list[Utterance]  # what the client's history says beyond these
    is_all: bool  # whether it has all of the stored history
    calls: dict[int, int]  # which call of the client is which stored one, by the indexes of the items


def align(stored: Sequence[Utterance], client: Sequence[Utterance]) -> Alignment:
    """How a client's history continues a stored one, of which it may only have the end, or a part before the end."""
    histories = Histories(stored, client)
    best = HistoryMatcher(histories, 0)
    best.run()
    if best.is_all:
        return best.alignment()
    shared, left = histories.shared_beginnings(), STEPS * (len(stored) + len(client))
    for start in histories.starts():
        matcher = HistoryMatcher(histories, start, shared.get(start, (0, 0, 0)))
        left -= matcher.run(left)
        is_longer = matcher.overlap > best.overlap and (matcher.is_all or matcher.overlap >= MIN_OVERLAP)
        if is_longer or (matcher.is_all and matcher.overlap == best.overlap >= MIN_OVERLAP):
            best = matcher
        if left <= 0:  # few histories repeat themselves like this: what was found is taken
            break
    return align_from(stored, client, best.start)


def _may_begin(said: Utterance, first: Utterance) -> bool:
    """Return whether two things may be the same; the other history may have split a text."""
    if said.kind != TEXT or first.kind != TEXT or said.speaker != first.speaker:
        return said.key == first.key
    return bool(said.value.startswith(first.value) or first.value.startswith(said.value))


def align_from(stored: Sequence[Utterance], client: Sequence[Utterance], start: int) -> Alignment:
    """Return how far the client's history agrees with the stored one from the index `start`."""
    matcher = HistoryMatcher(Histories(stored, client), start)
    matcher.run()
    return matcher.alignment()


class Histories:
    """A stored history and a client's, with what makes it quick to compare them from many starts."""

    def __init__(self, stored: Sequence[Utterance], client: Sequence[Utterance]) -> None:
        self.stored, self.client = stored, client
        # the last border between two items, at or before each index
        borders = [
            index if index in (0, len(stored)) or stored[index].item != stored[index - 1].item else 0
            for index in range(len(stored) + 1)
        ]
        self.borders = list(accumulate(borders, max))
        # how much of the stored history must be kept so that all of it is
        self.required = max((index + 1 for index, said in enumerate(stored) if not said.is_optional), default=0)
        self.places: dict[Any, list[int]] = {}  # where the client says what
        for index, said in enumerate(client):
            self.places.setdefault(said.key, []).append(index)
        # how much the client says before each index, without what may be missing
        self.said = list(accumulate((not said.is_optional for said in client), initial=0))
        self.run_ends = list(range(1, len(client) + 1))  # where one speaker stops
        for index in range(len(client) - 2, -1, -1):
            if client[index].speaker == client[index + 1].speaker:
                self.run_ends[index] = self.run_ends[index + 1]

    def starts(self) -> Iterator[int]:
        """Return where in the stored history the client's history may begin."""
        first = next((said for said in self.client if not said.is_optional), None)
        if first is not None:
            middle = range(1, len(self.stored))
            yield from (at for at in middle if self.borders[at] == at and _may_begin(self.stored[at], first))

    def shared_beginnings(self) -> dict[int, tuple[int, int, int]]:
        """How far the client's history says the same from each start on, in the same pieces and in the same order.

        By the start: how many things, and where both are then. What may be missing does not count; before an optional
        text it ends, for that may go on in another one.
        """
        stored, client = (
            [(index, said) for index, said in enumerate(some) if not said.is_optional or said.kind == TEXT]
            for some in (self.stored, self.client)
        )
        keys = [None if said.is_optional else said.key for _, said in (*client, *stored)]
        keys.insert(len(client), None)
        lengths = _prefix_lengths(keys)[len(client) + 1 :]
        return {
            stored[at][0]: (length, stored[at + length - 1][0] + 1, client[length - 1][0] + 1)
            for at, length in enumerate(lengths)
            if length
        }


def _prefix_lengths(keys: Sequence[Any]) -> list[int]:
    """How many elements from each place on are those of the beginning (the Z function); None is like no other."""
    lengths, left, right = [0] * len(keys), 0, 0
    for place in range(1, len(keys)):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < len(keys) and keys[length] is not None and keys[length] == keys[place + length]:
            length += 1
        if place + length > right:
            left, right = place, place + length
        lengths[place] = length
    return lengths


class HistoryMatcher:
    """Two histories side by side, as far as they agree.

    `kept` and `_client_kept` are the last indexes at which both were between two items (of the stored history) or
    parts (of the client's). What the client says later in a turn may be taken before its time; `_in_order` is the last
    such place at which nothing was, and no answer had only begun: its reasoning belongs to what it led to.

    `beginning`: how many things are the same from `start` on, and where both histories are then.
    """

    def __init__(self, histories: Histories, start: int, beginning: tuple[int, int, int] = (0, 0, 0)) -> None:
        self._histories, self._stored, self._client = histories, histories.stored, histories.client
        self.start = start
        self.overlap, index, self._client_index = beginning
        self._index = index or start
        self._offset, self._client_offset = 0, 0  # how much of the two texts at hand was matched before
        self._item = self._stored[index - 1].item if index else -1  # the stored item that was matched last
        self._speaker = self._stored[index - 1].speaker if index else ""  # who said the last thing that is not optional
        self._is_opening = False  # whether only reasoning and the like was matched of an answer
        self._taken: dict[int, None] = {}  # what was taken before its time, in order
        self._last_taken = -1  # the last of it, as the client has it
        self._following = 0  # what the client says next; see `_find_following`
        self._used: dict[Any, int] = {}  # how many of the places where the client says something are behind
        self.kept, self._client_kept, self._taken_kept = max(start, histories.borders[self._index]), 0, 0
        self._in_order = self.kept, self._client_kept, self._taken_kept
        self._calls: dict[int, int] = {}

    def run(self, limit: int | None = None) -> int:
        """Go on as far as both say the same, at most so many steps; returns how many it took."""
        steps = 1
        while self._step() and steps != limit:
            steps += 1
        self._end()
        return steps

    @property
    def is_all(self) -> bool:
        """Return whether the client has all of the stored history from the start, and what it has more is behind it."""
        return self.kept >= self._histories.required and not self._has_more_before()

    def _has_more_before(self) -> bool:
        """Whether an answer of the client says something before what was taken of it that is not stored.

        The order of outputs says nothing: they are paired with their calls.
        """
        places = (place for place in [*self._taken][: self._taken_kept] if place >= self._client_kept)
        taken = [at for at in places if self._client[at].speaker == ASSISTANT and not self._client[at].is_optional]
        said = self._histories.said
        return bool(taken) and said[max(taken)] - said[self._client_kept] >= len(taken)

    def alignment(self) -> Alignment:
        """Return how far both agree."""
        kept, client_kept, taken_kept = self.kept, self._client_kept, self._taken_kept
        if not self.is_all:  # what is left of the turn was said before what was taken of it
            kept, client_kept, taken_kept = self._in_order
        taken = set([*self._taken][:taken_kept])
        rest = [self._client[i] for i in range(client_kept, len(self._client)) if i not in taken]
        items = self._stored[kept - 1].item + 1 if kept else 0
        calls = {client: stored for client, stored in self._calls.items() if stored < items}
        return Alignment(self.overlap, items, rest, self.is_all, calls)

    def _step(self) -> bool:
        """Advance by one thing; return False if the histories no longer agree."""
        if self._index >= len(self._stored) or self._client_index >= len(self._client):
            return False
        said, other = self._stored[self._index], self._client[self._client_index]
        if self._step_text(said, other):
            return True
        if self._offset or self._client_offset:
            return False
        if said.kind != TEXT and said.key == other.key:
            self._advance(said, other)
            return True
        # what another speaker says is not passed over
        may_reorder = said.is_optional if other.is_optional else said.speaker == other.speaker
        return (may_reorder and self._reorder(said)) or self._skip(said, other)

    def _step_text(self, said: Utterance, other: Utterance) -> bool:
        """Go on in two texts of one speaker: one of them may go on in the next part of the other."""
        if not (said.kind == TEXT == other.kind and said.speaker == other.speaker):
            return False
        length, client_length = len(said.value) - self._offset, len(other.value) - self._client_offset
        if length <= client_length:
            is_same = other.value.startswith(said.value[self._offset :], self._client_offset)
        else:
            is_same = said.value.startswith(other.value[self._client_offset :], self._offset)
        if not is_same:
            return False
        if length == client_length or (said.is_cut_off and self._ends_here()):
            self._advance(said, other)
        elif length < client_length:
            self._index, self._offset, self._client_offset = self._index + 1, 0, self._client_offset + length
        else:
            self._client_index, self._client_offset = self._find_following(), 0
            self._offset += client_length
        return True

    def _ends_here(self) -> bool:
        """Whether the client's history has nothing more of the assistant here."""
        place = self._find_following()
        following = self._client[place] if place < len(self._client) else None
        return following is None or following.kind != TEXT or following.speaker != ASSISTANT

    def _find_following(self) -> int:
        """Where the client says what follows, without what was taken before."""
        self._following = max(self._following, self._client_index + 1)
        while self._following in self._taken:
            self._following += 1
        return self._following

    def _advance(self, said: Utterance, other: Utterance, *, is_taken: bool = False) -> None:
        """Go on in both; `is_taken`: the other was taken before its time."""
        self._index, self._offset = self._index + 1, 0
        if not is_taken:
            self._client_index, self._client_offset = self._find_following(), 0
        if said.kind == CALL:
            self._calls[other.item] = said.item
        self._item = said.item
        self.overlap += not said.is_optional
        self._is_opening = said.is_optional and said.speaker == ASSISTANT != self._speaker
        self._speaker = self._speaker if said.is_optional else said.speaker
        self._keep()

    def _keep(self) -> None:
        """Note that both are between two items, if they are."""
        if self._index == len(self._stored) or self._stored[self._index].item != self._item:
            self.kept, self._client_kept, self._taken_kept = self._index, self._client_index, len(self._taken)
            if self._last_taken < self._client_index and not self._is_opening:
                self._in_order = self.kept, self._client_kept, self._taken_kept

    def _end(self) -> None:
        """Skip what may be missing from the last matched item."""
        while self._index < len(self._stored) and self._stored[self._index].item == self._item:
            if self._offset or self._client_offset or not self._stored[self._index].is_optional:
                return
            self._index += 1
            self._keep()

    def _reorder(self, said: Utterance) -> bool:
        """Take what comes later in the same turn first: formats order texts and calls, and outputs, differently."""
        first, key = self._find_following(), said.key
        if said.speaker not in (ASSISTANT, TOOL) or first >= len(self._client):
            return False
        if self._client[first].speaker != said.speaker:
            return False
        places, used = self._histories.places.get(key, []), self._used.get(key, 0)
        while used < len(places) and (places[used] < first or places[used] in self._taken):
            used += 1
        self._used[key] = used
        if used == len(places) or places[used] >= self._histories.run_ends[first]:
            return False
        self._taken[places[used]] = None
        self._last_taken = max(self._last_taken, places[used])
        self._advance(said, self._client[places[used]], is_taken=True)
        return True

    def _skip(self, said: Utterance, other: Utterance) -> bool:
        """Skip what only one of them has, where that may be."""
        if said.is_optional:
            self._index += 1
            if said.item == self._item:
                self._keep()
        elif other.is_optional:
            self._client_index = self._find_following()
        return said.is_optional or other.is_optional
