"""Compares two histories and finds how far they agree; time grows with their lengths, also where all is the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from threadkeep.domain.call_kinds import PLACEHOLDERS
from threadkeep.domain.jsontext import JsonObject, canonical, loads
from threadkeep.domain.searching import is_added
from threadkeep.formats.shared.pairing import CALLS, OUTPUTS

SYSTEM: Final = "system"
TOOL: Final = "tool"
ASSISTANT: Final = "assistant"
TEXT: Final = "text"
CALL: Final = "call"
OUTPUT: Final = "output"
OPAQUE: Final = "opaque"
REASONING: Final = "reasoning"

_LOOP: Final = {CALL, OUTPUT}
_BETWEEN: Final = {CALL: TOOL}  # what another speaker says is not passed over, but for outputs between calls
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "refusal", "summary_text"})
# part type -> the keys that say which media it is
_MEDIA: Final = {
    "input_image": ("image_url", "url", "image_data", "file_id"),
    "input_file": ("file_data", "file_url", "url", "file_id"),
    "input_video": ("video_url", "url", "video_data", "file_id"),
    "input_audio": ("input_audio", "audio_url", "url", "file_id"),
}
# keys that say nothing: ids, marks, spelling
_SILENT: Final = frozenset(
    {"id", "status", "cache_control", "cachePoint", "origin", "native", "spelling", "index", "author_id", "call_id"}
)
# typographic punctuation -> what clients make of it
_PUNCTUATION: Final = str.maketrans(
    dict(zip("\u2018\u2019\u201c\u201d\u2010\u2011\u2013\u2014", "''\"\"----", strict=True)) | {"\u2026": "..."}
)
_WRAPPERS: Final = {"result", "output", "content", "text", "value"}  # how an output that is no object is wrapped


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing that is said: a text, a picture or file, a call, an output."""

    kind: str
    speaker: str
    value: Any
    item: int  # where it is said, as indexes
    part: int = 0
    # may be missing in the other history: reasoning, blocks of one format or of programs, system messages
    is_optional: bool = False
    is_cut_off: bool = False  # a text where a response broke off; the other history may have more or less of it

    @property
    def key(self) -> tuple[str, str, Any]:
        """What is the same in everything that says the same."""
        return self.kind, self.speaker, self.value


def utterances_of(items: Sequence[JsonObject], cut_off: Collection[int] = ()) -> list[Utterance]:
    """What items say, in order; `cut_off` are the indexes of those that end interrupted responses."""
    utterances: list[Utterance] = []
    for index, item in enumerate(items):
        utterances += _item_utterances(item, index)
        if index in cut_off and utterances and utterances[-1].item == index and utterances[-1].kind == TEXT:
            utterances[-1] = replace(utterances[-1], is_cut_off=True)
    return utterances


def without_leading_system(utterances: Sequence[Utterance]) -> list[Utterance]:
    """The same without the system messages at the beginning: these belong to the options of a conversation."""
    first = next((index for index, said in enumerate(utterances) if said.speaker != SYSTEM), len(utterances))
    return list(utterances[first:])


def without_repeated_outputs(utterances: Sequence[Utterance], items: Sequence[JsonObject]) -> list[Utterance]:
    """The same without outputs that say again what a call has been answered, as Gemini CLI sends them."""
    found: list[Utterance] = []
    answered: set[Any] = set()
    for said in utterances:
        call_id = items[said.item].get("call_id")
        if said.kind == CALL:
            answered = {one for one in answered if one[0] != call_id}
        if said.kind != OUTPUT or not call_id or (call_id, said.value) not in answered:
            found.append(said)
        if said.kind == OUTPUT:
            answered.add((call_id, said.value))
    return found


def _item_utterances(item: JsonObject, index: int) -> Iterator[Utterance]:
    kind = item["type"]
    if kind == "message":
        yield from _message_utterances(item, index)
    elif kind in CALLS and kind != "provider_item":
        key = "arguments" if kind == "function_call" else "input"
        name = item.get("name")
        name = name if isinstance(name, str) else canonical(name)
        yield Utterance(CALL, ASSISTANT, (name, _arguments_value(item.get(key))), index)
    elif kind in OUTPUTS:
        output = item.get("output")
        value = _output_value(output)
        is_placeholder = isinstance(value, str) and value in PLACEHOLDERS
        yield Utterance(OUTPUT, TOOL, value, index, is_optional=is_placeholder)
    else:
        value = kind if kind == REASONING else canonical(_essential(item))
        yield Utterance(OPAQUE, ASSISTANT, value, index, is_optional=True)


def _message_utterances(item: JsonObject, index: int) -> Iterator[Utterance]:
    role, content = str(item.get("role")), item.get("content")
    speaker = SYSTEM if role == "developer" else role
    for number, part in enumerate(content if isinstance(content, list) else []):
        said = _part_utterance(part, speaker)
        if said is not None:
            yield replace(said, item=index, part=number, is_optional=said.is_optional or speaker == SYSTEM)


def _part_utterance(part: JsonObject, speaker: str) -> Utterance | None:
    """What a part says; None for a blank text, which formats leave out."""
    kind = part.get("type")
    if kind in _TEXTS:
        text = part.get("refusal") if kind == "refusal" else part.get("text")
        if not isinstance(text, str) or not text.strip():
            return None
        if speaker == ASSISTANT and _is_thinking(text.strip()):
            return Utterance(OPAQUE, speaker, REASONING, 0, is_optional=True)
        is_optional = speaker == "user" and is_added(text)
        said = normalize_text(text) if speaker == ASSISTANT else text
        return Utterance(TEXT, speaker, said, 0, is_optional=is_optional)
    if kind in _MEDIA:
        return Utterance("media", speaker, _media_value(part, _MEDIA[kind]), 0)
    return Utterance(OPAQUE, speaker, canonical(_essential(part)), 0, is_optional=True)


def _is_thinking(text: str) -> bool:
    """Whether it is reasoning that a client sends back as a text, for which its format has no other place."""
    return text.startswith("<think>") and text.find("</think>") == len(text) - len("</think>")


def normalize_text(text: str) -> str:
    """A text without typographic punctuation, as some clients send responses back; whitespace is unchanged."""
    return text if text.isascii() else normalize("NFKC", text.translate(_PUNCTUATION))


def _media_value(part: JsonObject, keys: Sequence[str]) -> Any:
    """Which media a part shows: its bytes, however they are written, or where they are."""
    for key in keys:
        value = part.get(key)
        if isinstance(value, str) and value:
            head, comma, data = value.partition(",")
            data = data if comma and head.startswith("data:") else value
            return sha256(data.rstrip("=").replace("-", "+").replace("_", "/").encode("utf-8", "replace")).digest()
        if value:
            return canonical(_essential(value))
    return canonical(_essential(part))


def _arguments_value(arguments: Any) -> Any:
    """Arguments, as JSON text or not, by what they mean."""
    if arguments is None or arguments == "":
        return canonical({})
    if isinstance(arguments, str):
        try:
            return canonical(_normalize_numbers(loads(arguments)))
        except ValueError:
            return arguments
    return canonical(_normalize_numbers(arguments))


def _normalize_numbers(value: Any) -> Any:
    """A JSON value with one spelling of numbers: 1 and 1.0 are the same."""
    if isinstance(value, dict):
        return {key: _normalize_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _output_value(output: Any) -> Any:
    """An output by what it means: formats send it as text, as parts, or wrapped in an object."""
    if isinstance(output, list) and all(isinstance(part, dict) for part in output):
        texts = [part.get("text") for part in output]
        if not all(isinstance(text, str) for text in texts):
            parts = [_part_utterance(part, TOOL) for part in output]
            return tuple(None if said is None else said.value for said in parts)
        output = "".join(texts)
    try:
        value = loads(output) if isinstance(output, str) else output
    except ValueError:
        value = output
    while isinstance(value, dict) and len(keys := value.keys() - {"type"}) == 1 and keys <= _WRAPPERS:
        value = value[keys.pop()]
    return canonical("" if value is None else _normalize_numbers(value))


def _essential(value: Any) -> Any:
    """A JSON value without the keys that say nothing."""
    if isinstance(value, Mapping):
        return {key: _essential(inner) for key, inner in value.items() if key not in _SILENT and inner is not None}
    return [_essential(inner) for inner in value] if isinstance(value, list | tuple) else value


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
        # how much the client's assistant says before each index, without what may be missing
        self.said = list(accumulate((not one.is_optional and one.speaker == ASSISTANT for one in client), initial=0))
        self.run_ends = list(range(1, len(client) + 1))  # where one speaker stops
        self.loop_ends = list(self.run_ends)  # where calls and outputs stop
        for index in range(len(client) - 2, -1, -1):
            if client[index].speaker == client[index + 1].speaker:
                self.run_ends[index] = self.run_ends[index + 1]
            if {client[index].kind, client[index + 1].kind} <= _LOOP:
                self.loop_ends[index] = self.loop_ends[index + 1]

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
    """How many elements from each place on equal the beginning (the Z function); None equals no other."""
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
            return said.speaker == other.speaker and self._skip_within(said, other)
        if said.kind != TEXT and said.key == other.key:
            self._advance(said, other)
            return True
        may_reorder = (
            said.is_optional if other.is_optional else other.speaker in (said.speaker, _BETWEEN.get(said.kind))
        )
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
        """Take what comes later in the same turn first: texts, calls and outputs are ordered differently by formats."""
        first, key = self._find_following(), said.key
        if said.speaker not in (ASSISTANT, TOOL) or first >= len(self._client):
            return False
        end = self._histories.run_ends[first] if self._client[first].speaker == said.speaker else 0
        end = max(end, self._histories.loop_ends[self._client_index]) if said.kind == CALL else end
        places, used = self._histories.places.get(key, []), self._used.get(key, 0)
        while used < len(places) and (places[used] < first or places[used] in self._taken):
            used += 1
        self._used[key] = used
        if used == len(places) or places[used] >= end:
            return False
        self._taken[places[used]] = None
        self._last_taken = max(self._last_taken, places[used])
        self._advance(said, self._client[places[used]], is_taken=True)
        return True

    def _skip_within(self, said: Utterance, other: Utterance) -> bool:
        """Skip what may be missing between two texts, where the other history has both in one."""
        if self._client_offset and said.is_optional:
            self._index += 1
            return True
        if self._offset and other.is_optional:
            self._client_index = self._find_following()
            return True
        return False

    def _skip(self, said: Utterance, other: Utterance) -> bool:
        """Skip what only one of them has, where that may be."""
        if said.is_optional:
            self._index += 1
            if said.item == self._item:
                self._keep()
        elif other.is_optional:
            self._client_index = self._find_following()
        return said.is_optional or other.is_optional
