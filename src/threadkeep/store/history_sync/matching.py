"""What a history says, and how far two histories say the same.

A client that keeps a conversation itself drops and changes what only matters on the wire: ids, cache marks, reasoning,
the boundaries of turns, the order of parallel outputs. So histories are compared by what their turns say: role and
text, calls by name and arguments, outputs, media.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from threadkeep.domain.jsontext import JsonObject, canonical, loads
from threadkeep.formats.shared.pairing import CALLS, MISSING_OUTPUT, OUTPUTS

SYSTEM: Final = "system"
TOOL: Final = "tool"
ASSISTANT: Final = "assistant"
TEXT: Final = "text"
CALL: Final = "call"
OPAQUE: Final = "opaque"
MIN_OVERLAP: Final = 2  # how much must match in the middle of a history, so that it is hardly by chance

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
_WRAPPERS: Final = {"result", "output", "content", "text"}  # how formats wrap an output that is not an object


# What is said


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing that is said: a text, a picture or file, a call, an output.

    Attributes:
        item, part: where it is said, as indexes.
        is_optional: it may be missing in the other history: reasoning, blocks of one format, system messages.
        is_cut_off: a text at the end of a response that broke off; of it, the other history may have more or less.
    """

    kind: str
    speaker: str
    value: Any
    item: int
    part: int = 0
    is_optional: bool = False
    is_cut_off: bool = False

    def equals(self, other: Utterance) -> bool:
        """Whether the other says the same."""
        return (self.kind, self.speaker, self.value) == (other.kind, other.speaker, other.value)


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


def _item_utterances(item: JsonObject, index: int) -> Iterator[Utterance]:
    kind = item["type"]
    if kind == "message":
        yield from _message_utterances(item, index)
    elif kind in CALLS and kind != "provider_item":
        key = "arguments" if kind == "function_call" else "input"
        yield Utterance(CALL, ASSISTANT, (item.get("name"), _arguments_value(item.get(key))), index)
    elif kind in OUTPUTS:
        output = item.get("output")
        yield Utterance("output", TOOL, _output_value(output), index, is_optional=output == MISSING_OUTPUT)
    else:
        value = kind if kind == "reasoning" else canonical(_essential(item))
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
        return Utterance(TEXT, speaker, normalize_text(text) if speaker == ASSISTANT else text, 0)
    if kind in _MEDIA:
        return Utterance("media", speaker, _media_value(part, _MEDIA[kind]), 0)
    return Utterance(OPAQUE, speaker, canonical(_essential(part)), 0, is_optional=True)


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
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _WRAPPERS:
        value = next(iter(value.values()))
    return canonical("" if value is None else _normalize_numbers(value))


def _essential(value: Any) -> Any:
    """A JSON value without the keys that say nothing."""
    if isinstance(value, Mapping):
        return {key: _essential(inner) for key, inner in value.items() if key not in _SILENT and inner is not None}
    return [_essential(inner) for inner in value] if isinstance(value, list | tuple) else value


# How far two histories say the same


class Alignment(NamedTuple):
    """How far a client's history says what the stored one says.

    Attributes:
        overlap: how many things both say.
        kept: how many items of the stored history the client has, from its beginning on.
        rest: what the client's history says beyond these.
        is_all: whether it has all of the stored history.
        calls: which stored call is which call of the client, by the indexes of the items (client -> stored).
    """

    overlap: int
    kept: int
    rest: list[Utterance]
    is_all: bool
    calls: dict[int, int]


def align(stored: Sequence[Utterance], client: Sequence[Utterance]) -> Alignment:
    """How a client's history continues a stored one, of which it may have the end only, or a piece before the end."""
    best = align_from(stored, client, 0)
    if best.is_all:
        return best
    first = next((said for said in client if not said.is_optional), None)
    for start in range(1, len(stored)) if first is not None else ():
        if stored[start].item == stored[start - 1].item or not _may_begin(stored[start], first):
            continue
        alignment = align_from(stored, client, start)
        is_longer = alignment.overlap > best.overlap and (alignment.is_all or alignment.overlap >= MIN_OVERLAP)
        if is_longer or (alignment.is_all and alignment.overlap == best.overlap >= MIN_OVERLAP):
            best = alignment
    return best


def _may_begin(said: Utterance, first: Utterance | None) -> bool:
    """Whether two things may be the same; of a text the other history may have made several."""
    if first is None or said.kind != TEXT or first.kind != TEXT or said.speaker != first.speaker:
        return first is not None and said.equals(first)
    text, beginning = str(said.value), str(first.value)
    return text.startswith(beginning) or beginning.startswith(text)


def align_from(stored: Sequence[Utterance], client: Sequence[Utterance], start: int) -> Alignment:
    """How far the client's history says what the stored one says from the index `start` on."""
    matcher = HistoryMatcher(stored, list(client), start)
    while matcher.step():
        pass
    matcher.end()
    rest = sorted(matcher.client[matcher.client_kept :], key=lambda said: (said.item, said.part))
    kept = stored[matcher.kept - 1].item + 1 if matcher.kept else 0
    is_all = all(said.is_optional for said in stored[matcher.kept :])
    return Alignment(matcher.overlap, kept, rest, is_all, matcher.calls)


class HistoryMatcher:
    """Two histories side by side, as far as they have been found to say the same.

    `kept` and `client_kept` are the last indexes at which both were between two items (of the stored history) or parts
    (of the client's).
    """

    def __init__(self, stored: Sequence[Utterance], client: list[Utterance], start: int) -> None:
        self.stored, self.client = stored, client
        self._index, self._client_index = start, 0
        self._offset, self._client_offset = 0, 0  # how much of the two texts at hand was matched before
        self._item = -1  # the stored item that was matched last
        self.kept, self.client_kept, self.overlap = start, 0, 0
        self.calls: dict[int, int] = {}

    def step(self) -> bool:
        """Go on by one thing; False when there is nothing more that both say."""
        if self._index >= len(self.stored) or self._client_index >= len(self.client):
            return False
        said, other = self.stored[self._index], self.client[self._client_index]
        if self._step_text(said, other):
            return True
        if self._offset or self._client_offset:
            return False
        if said.kind != TEXT and said.equals(other):
            if said.kind == CALL:
                self.calls[other.item] = said.item
            self._advance(said)
            return True
        is_hidden = other.is_optional and not said.is_optional
        return (not is_hidden and self._reorder(said)) or self._skip(said, other)

    def _step_text(self, said: Utterance, other: Utterance) -> bool:
        """Go on in two texts of one speaker: one of them may go on in the next part of the other."""
        if not (said.kind == TEXT == other.kind and said.speaker == other.speaker):
            return False
        text, client_text = said.value[self._offset :], other.value[self._client_offset :]
        if text == client_text or (said.is_cut_off and self._ends_here(text, client_text)):
            self._advance(said)
        elif client_text.startswith(text):
            self._index, self._offset, self._client_offset = self._index + 1, 0, self._client_offset + len(text)
        elif text.startswith(client_text):
            self._client_index, self._client_offset = self._client_index + 1, 0
            self._offset += len(client_text)
        else:
            return False
        return True

    def _ends_here(self, text: str, client_text: str) -> bool:
        """Whether one text is the beginning of the other, and the client's history has nothing more of its speaker."""
        following = self.client[self._client_index + 1] if self._client_index + 1 < len(self.client) else None
        is_last = following is None or following.kind != TEXT or following.speaker != ASSISTANT
        return is_last and (text.startswith(client_text) or client_text.startswith(text))

    def _advance(self, said: Utterance) -> None:
        """Go on in both."""
        self._index, self._client_index, self._offset, self._client_offset = (
            self._index + 1, self._client_index + 1, 0, 0,
        )  # fmt: skip
        self._item = said.item
        self.overlap += not said.is_optional
        self._keep()

    def _keep(self) -> None:
        """Note that both are between two items, if they are."""
        if self._index == len(self.stored) or self.stored[self._index].item != self._item:
            self.kept, self.client_kept = self._index, self._client_index

    def end(self) -> None:
        """Skip what may be missing of the item that was matched last."""
        while self._index < len(self.stored) and self.stored[self._index].item == self._item:
            if self._offset or self._client_offset or not self.stored[self._index].is_optional:
                return
            self._index += 1
            self._keep()

    def _reorder(self, said: Utterance) -> bool:
        """Take what comes later in the same turn first: formats order texts and calls, and outputs, differently."""
        if said.speaker not in (ASSISTANT, TOOL):
            return False
        for index in range(self._client_index + 1, len(self.client)):
            other = self.client[index]
            if other.speaker != said.speaker:
                return False
            if other.equals(said):
                self.client.insert(self._client_index, self.client.pop(index))
                return True
        return False

    def _skip(self, said: Utterance, other: Utterance) -> bool:
        """Skip what only one of them has, where that may be."""
        if said.is_optional:
            self._index += 1
            if said.item == self._item:
                self._keep()
        elif other.is_optional:
            self._client_index += 1
        return said.is_optional or other.is_optional
