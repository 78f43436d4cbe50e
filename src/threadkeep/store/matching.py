"""What a history says, and how far two histories say the same.

A client that holds a conversation itself drops and changes what only matters on the wire: ids, cache marks, reasoning,
the borders of turns, the order of parallel outputs. So histories are compared by what their turns say: role and text,
calls by name and arguments, outputs, media.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from threadkeep.domain.jsontext import JsonObject, canonical, loads
from threadkeep.formats.turns import CALLS, MISSING_OUTPUT, OUTPUTS

SYSTEM: Final = "system"
TOOL: Final = "tool"
ASSISTANT: Final = "assistant"
TEXT: Final = "text"
CALL: Final = "call"
MIN_OVERLAP: Final = 2  # how much must match in the middle of a history, for that is hardly chance

_ROLES: Final = {"developer": SYSTEM}
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
# typographic signs -> what clients make of them
_SIGNS: Final = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2010": "-", "\u2011": "-", "\u2013": "-",
        "\u2014": "-", "\u2026": "...",
    }
)  # fmt: skip
_WRAPPERS: Final = frozenset({"result", "output", "content", "text"})  # how formats wrap an output that is no object


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that is said: a text, a picture or file, a call, an output; `item` and `part` are its place.

    What `is_optional` may be missing in the other history: reasoning, blocks of one format, system messages. A text
    that `is_cut` belongs to an answer that broke off: of its end the other history may have more or less.
    """

    kind: str
    speaker: str
    value: Any
    item: int
    part: int = 0
    is_optional: bool = False
    is_cut: bool = False

    def equals(self, other: Said) -> bool:
        """Whether the other says the same."""
        return (self.kind, self.speaker, self.value) == (other.kind, other.speaker, other.value)


def said_in(items: Sequence[JsonObject], cut: Collection[int] = ()) -> list[Said]:
    """What items say, in order; `cut` are the places of those that end answers that broke off."""
    found: list[Said] = []
    for place, item in enumerate(items):
        found += _said_by(item, place)
        if place in cut and found and found[-1].item == place and found[-1].kind == TEXT:
            found[-1] = replace(found[-1], is_cut=True)
    return found


def without_leading_system(said: Sequence[Said]) -> list[Said]:
    """The same without the system messages at the beginning: these belong to the options of a conversation."""
    first = next((place for place, one in enumerate(said) if one.speaker != SYSTEM), len(said))
    return list(said[first:])


def _said_by(item: JsonObject, place: int) -> Iterator[Said]:
    kind = item["type"]
    if kind == "message":
        yield from _said_in_message(item, place)
    elif kind in CALLS and kind != "provider_item":
        key = "arguments" if kind == "function_call" else "input"
        yield Said(CALL, ASSISTANT, (item.get("name"), _value_of(item.get(key))), place)
    elif kind in OUTPUTS:
        output = item.get("output")
        yield Said("output", TOOL, _output_of(output), place, is_optional=output == MISSING_OUTPUT)
    elif kind == "reasoning":
        yield Said("opaque", ASSISTANT, "reasoning", place, is_optional=True)
    else:
        yield Said("opaque", ASSISTANT, canonical(_essence(item)), place, is_optional=True)


def _said_in_message(item: JsonObject, place: int) -> Iterator[Said]:
    role = str(item.get("role"))
    speaker = _ROLES.get(role, role)
    content = item.get("content")
    for number, part in enumerate(content if isinstance(content, list) else []):
        said = _said_in_part(part, speaker)
        if said is not None:
            yield replace(said, item=place, part=number, is_optional=said.is_optional or speaker == SYSTEM)


def _said_in_part(part: JsonObject, speaker: str) -> Said | None:
    """What a part says; None for a blank text, which formats leave out."""
    kind = part.get("type")
    if kind in _TEXTS:
        text = part.get("refusal") if kind == "refusal" else part.get("text")
        if not isinstance(text, str) or not text.strip():
            return None
        return Said(TEXT, speaker, levelled(text) if speaker == ASSISTANT else text, 0)
    if kind in _MEDIA:
        return Said("media", speaker, _medium(part, _MEDIA[kind]), 0)
    return Said("opaque", speaker, canonical(_essence(part)), 0, is_optional=True)


def levelled(text: str) -> str:
    """A text without typographic signs: some clients send an answer back without them. Blanks stay as they are."""
    return text if text.isascii() else normalize("NFKC", text.translate(_SIGNS))


def _medium(part: JsonObject, keys: Sequence[str]) -> Any:
    """Which media a part shows: its bytes, however they are written, or where they are."""
    for key in keys:
        value = part.get(key)
        if isinstance(value, str) and value:
            head, comma, data = value.partition(",")
            data = data if comma and head.startswith("data:") else value
            return sha256(data.rstrip("=").replace("-", "+").replace("_", "/").encode("utf-8", "replace")).digest()
        if value:
            return canonical(_essence(value))
    return canonical(_essence(part))


def _value_of(text: Any) -> Any:
    """Arguments, or another JSON text, by what they mean."""
    if text is None or text == "":
        return canonical({})
    if isinstance(text, str):
        try:
            return canonical(_numbered(loads(text)))
        except ValueError:
            return text
    return canonical(_numbered(text))


def _numbered(value: Any) -> Any:
    """A JSON value with one spelling of numbers: 1 and 1.0 are the same."""
    if isinstance(value, dict):
        return {key: _numbered(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_numbered(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _output_of(output: Any) -> Any:
    """An output by what it means: formats send it as text, as parts, or wrapped in an object."""
    if isinstance(output, list) and all(isinstance(part, dict) for part in output):
        texts = [part.get("text") for part in output]
        if not all(isinstance(text, str) for text in texts):
            return tuple(_part_of(part) for part in output)
        output = "".join(texts)
    try:
        value = loads(output) if isinstance(output, str) else output
    except ValueError:
        value = output
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _WRAPPERS:
        value = next(iter(value.values()))
    return canonical("" if value is None else _numbered(value))


def _part_of(part: JsonObject) -> Any:
    said = _said_in_part(part, TOOL)
    return None if said is None else said.value


def _essence(value: Any) -> Any:
    """A JSON value without what says nothing."""
    if isinstance(value, Mapping):
        return {key: _essence(one) for key, one in value.items() if key not in _SILENT and one is not None}
    return [_essence(one) for one in value] if isinstance(value, list | tuple) else value


class Match(NamedTuple):
    """How far two histories say the same.

    Attributes:
        overlap: how many things both say.
        kept: how many items of the stored history the other one has, from its beginning on.
        rest: what the other one says beyond these.
        is_all: whether it has all of the stored history.
        calls: which stored call is which call of the other one, by the places of the items (held -> stored).
    """

    overlap: int
    kept: int
    rest: list[Said]
    is_all: bool
    calls: dict[int, int]


def aligned(stored: Sequence[Said], held: Sequence[Said]) -> Match:
    """How a held history continues a stored one, of which it may have the end only, or a piece before the end."""
    best = matched(stored, held, 0)
    if best.is_all:
        return best
    first = next((one for one in held if not one.is_optional), None)
    for start in range(1, len(stored)) if first is not None else ():
        if stored[start].item == stored[start - 1].item or not _begins(stored[start], first):
            continue
        found = matched(stored, held, start)
        is_longer = found.overlap > best.overlap and (found.is_all or found.overlap >= MIN_OVERLAP)
        if is_longer or (found.is_all and found.overlap == best.overlap >= MIN_OVERLAP):
            best = found
    return best


def _begins(one: Said, other: Said | None) -> bool:
    """Whether two things may be the same; of a text the other history may have made several."""
    if other is None or one.kind != TEXT or other.kind != TEXT or one.speaker != other.speaker:
        return other is not None and one.equals(other)
    text, first = str(one.value), str(other.value)
    return text.startswith(first) or first.startswith(text)


def matched(stored: Sequence[Said], held: Sequence[Said], start: int) -> Match:
    """How far the held history says what the stored one says from `start` on."""
    walk = Walk(stored, list(held), start)
    while walk.step():
        pass
    walk.end()
    rest = sorted(walk.held[walk.kept_held :], key=lambda one: (one.item, one.part))
    kept = stored[walk.kept - 1].item + 1 if walk.kept else 0
    is_all = all(one.is_optional for one in stored[walk.kept :])
    return Match(walk.overlap, kept, rest, is_all, walk.calls)


class Walk:
    """Two histories side by side, as far as they have been found to say the same.

    `kept` and `kept_held` are the last places where both were between two items (the stored one) or parts (the other).
    """

    def __init__(self, stored: Sequence[Said], held: list[Said], start: int) -> None:
        self.stored, self.held = stored, held
        self._at, self._at_held = start, 0
        self._from, self._from_held = 0, 0  # how much of the two texts at hand was matched before
        self._item = -1  # the stored item that was matched last
        self.kept, self.kept_held, self.overlap = start, 0, 0
        self.calls: dict[int, int] = {}

    def step(self) -> bool:
        """Go on by one thing; False when there is nothing more that both say."""
        if self._at >= len(self.stored) or self._at_held >= len(self.held):
            return False
        one, other = self.stored[self._at], self.held[self._at_held]
        if one.kind == TEXT == other.kind and one.speaker == other.speaker and self._step_text(one, other):
            return True
        if self._from or self._from_held:
            return False
        if one.kind != TEXT and one.equals(other):
            if one.kind == CALL:
                self.calls[other.item] = one.item
            self._both(one)
            return True
        is_hidden = other.is_optional and not one.is_optional
        return (not is_hidden and self._reorder(one)) or self._skip(one, other)

    def _step_text(self, one: Said, other: Said) -> bool:
        """Go on in texts: one of them may go on in the next part of the other."""
        left, left_held = one.value[self._from :], other.value[self._from_held :]
        if left == left_held or (one.is_cut and self._ends_here(left, left_held)):
            self._both(one)
        elif left_held.startswith(left):
            self._at, self._from, self._from_held = self._at + 1, 0, self._from_held + len(left)
        elif left.startswith(left_held):
            self._at_held, self._from_held, self._from = self._at_held + 1, 0, self._from + len(left_held)
        else:
            return False
        return True

    def _ends_here(self, left: str, left_held: str) -> bool:
        """Whether one text is the beginning of the other, and the held history has nothing more of its speaker."""
        following = self.held[self._at_held + 1] if self._at_held + 1 < len(self.held) else None
        is_last = following is None or following.kind != TEXT or following.speaker != ASSISTANT
        return is_last and (left.startswith(left_held) or left_held.startswith(left))

    def _both(self, one: Said) -> None:
        self._at, self._at_held, self._from, self._from_held = self._at + 1, self._at_held + 1, 0, 0
        self._item = one.item
        self.overlap += not one.is_optional
        self._keep()

    def _keep(self) -> None:
        """Note that both are between two items, if they are."""
        if self._at == len(self.stored) or self.stored[self._at].item != self._item:
            self.kept, self.kept_held = self._at, self._at_held

    def end(self) -> None:
        """Leave what may be missing of the item that was matched last."""
        while self._at < len(self.stored) and self.stored[self._at].item == self._item:
            if self._from or self._from_held or not self.stored[self._at].is_optional:
                return
            self._at += 1
            self._keep()

    def _reorder(self, one: Said) -> bool:
        """Take what comes later in the same turn first: formats order texts and calls, and outputs, differently."""
        if one.speaker not in (ASSISTANT, TOOL):
            return False
        for place in range(self._at_held + 1, len(self.held)):
            other = self.held[place]
            if other.speaker != one.speaker:
                return False
            if other.equals(one):
                self.held.insert(self._at_held, self.held.pop(place))
                return True
        return False

    def _skip(self, one: Said, other: Said) -> bool:
        """Pass over what only one of them has, where that may be."""
        if one.is_optional:
            self._at += 1
            if one.item == self._item:
                self._keep()
        elif other.is_optional:
            self._at_held += 1
        return one.is_optional or other.is_optional
