r"""All that a request is rendered from, of a stored conversation or of a session.

A database may have packed the columns of items; entries are then made of those that are looked at. A line of `packed`
is ``code type role origin maker turn seen position call_id``, as the column of that name has it. The code is 0 for an
item that is nothing but its payload, in plain JSON; otherwise its codec times 8, with 4 for an escaped call id, 2 for
no payload and 1 for a rest. NULL is ``\``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, overload

from threadkeep.domain.jsontext import JsonObject, mismatch
from threadkeep.domain.rendering import ImportInfo
from threadkeep.errors import InvalidOption
from threadkeep.formats.canonical.entries import ItemEntry, entry_of

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the provider holds of a conversation: its newest response, and where on our side that response ends."""

    previous_response_id: str | None
    boundary: int  # position of the last item that the provider has; -1 when it has none


@dataclass(slots=True)
class Snapshot:
    """All that a request is rendered from: options, tools and the items of one branch, in order."""

    settings: JsonObject  # session options by name; unset ones are absent
    tools: Sequence[JsonObject]
    entries: Sequence[ItemEntry]
    state: ServerState | None = None
    imported: ImportInfo | None = None
    memo: dict[str, Any] | None = field(default=None, compare=False)  # what formats remember of these very items
    shared: dict[str, Any] = field(default_factory=dict, compare=False)  # … and of these options and tools
    turns_before: int = 0  # how many turns (see `windowed`) lie before `entries`, of which only the end was read
    gaps: Collection[int] = frozenset()  # positions of a session's items whose answer lacks what was before them
    configured: tuple[bytes, bytes | None] | None = None  # the hashes of options and tools that are stored


def snapshot_of(session: Session | Snapshot) -> Snapshot:
    """What a request of this session is rendered from; a snapshot is returned as it is."""
    if isinstance(session, Snapshot):
        return session
    from threadkeep.domain.session import Session  # noqa: PLC0415 - stored conversations are read without it

    if not isinstance(session, Session):
        hint = "Pass a Session; of a conversation, what its session() returns, or call its render()."
        raise mismatch(InvalidOption, "a Session", session, "session", hint)
    settings = {name: value for name, value in session.settings.items() if value is not None}
    entries = [
        entry_of(item.to_object(), position=position, turn=turn, maker=maker)
        for position, (item, turn, maker) in enumerate(zip(session.items, session.turns, session.makers, strict=True))
    ]
    return Snapshot(
        settings=settings,
        tools=session.tools,
        entries=entries,
        state=initial_state(settings, session.response_boundary - 1),
        imported=session.imported,
        memo={},
        gaps=session.gaps,
    )


def initial_state(settings: JsonObject, boundary: int = -1) -> ServerState | None:
    """The server state that the settings name; None when they name none."""
    previous = settings.get("previous_response_id")
    if previous is None and settings.get("conversation") is None:
        return None
    return ServerState(previous_response_id=previous, boundary=boundary)


BREAK: Final = b"\n"  # between joined texts
ESCAPED, NO_PAYLOAD, REST = 4, 2, 1  # bits of the code
_CODEC_AT: Final = 3  # the first bit of the codec
_WIDTH: Final = 9
_NULL: Final = "\\"
_SLASH: Final = "/"
_PLAIN: Final = "0 "
_MESSAGE: Final = "0 message "

# Index, type, position and call id ("" for none) of an item
Glance = tuple[int, str, int, str]


class PackedEntries(Sequence[ItemEntry]):
    """Plain items: a request of Open Responses looks at none of the messages among them."""

    __slots__ = ("_entries", "_joined", "_last", "_lines", "_others", "_packed", "texts")

    def __init__(self, packed: str, lines: Sequence[str], texts: Sequence[bytes], joined: bytes | None = None) -> None:
        self.texts = texts  # the payloads; if they came joined, each with what follows it
        self._packed = packed
        self._joined = joined
        self._lines = lines
        self._entries: list[ItemEntry] | None = None
        self._others: list[Glance] | None = None
        self._last: ItemEntry | None = None

    @property
    def others(self) -> Sequence[Glance]:
        """A glance at each item that is not a message."""
        others = self._others
        if others is None:
            others = []
            for index, line in enumerate(self._lines):
                if not line.startswith(_MESSAGE):
                    _, kind, _, _, _, _, _, position, call_id = line.split(" ")
                    others.append((index, kind, int(position), "" if call_id == _NULL else call_id))
            self._others = others
        return others

    def seen(self, index: int) -> int | None:
        """`seen` of an item."""
        seen = self._lines[index].split(" ", 7)[6]
        return None if seen == _NULL else int(seen)

    def makers(self) -> list[tuple[str | None, str | None]]:
        """`origin` and `maker` of the items that have a maker, which is a word with a slash."""
        if _SLASH not in self._packed:
            return []
        pairs = (line.split(" ", 5)[3:5] for line in self._lines if _SLASH in line)
        return [(None if one == _NULL else one, other) for one, other in pairs if other != _NULL]

    def is_unbroken(self) -> bool:
        """Whether each item stands right behind the one before it."""
        return _position(self._lines[-1]) - _position(self._lines[0]) == len(self._lines) - 1

    def elements(self) -> bytes:
        """The payloads with commas between them."""
        return b",".join(self.texts) if self._joined is None else self._joined.replace(BREAK, b",")

    def has_text(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether a payload has such a text in it."""
        return any(map(pattern.search, self.texts if self._joined is None else (self._joined,)))

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> ItemEntry: ...
    @overload
    def __getitem__(self, index: slice) -> list[ItemEntry]: ...
    def __getitem__(self, index: int | slice) -> ItemEntry | list[ItemEntry]:
        if self._entries is not None or not isinstance(index, int):
            return self._all()[index]
        if index != -1:
            return self._at(index)
        if self._last is None:  # which is asked for again and again
            self._last = self._at(index)
        return self._last

    def __iter__(self) -> Iterator[ItemEntry]:
        return iter(self._all())

    def _at(self, index: int) -> ItemEntry:
        return _entry(self._lines[index], self.texts[index].rstrip(BREAK))

    def _all(self) -> list[ItemEntry]:
        entries = self._entries
        if entries is None:
            texts = self.texts if self._joined is None else self._joined.split(BREAK)
            entries = self._entries = list(map(_entry, self._lines, texts))
        return entries


# Both return None where a type or an id has a blank, a line break or something escaped in it, the texts are not those
# of the lines, or these are in another order than their positions.


def entries_of_rows(
    packed: Sequence[str], payloads: Sequence[bytes | None], rests: Sequence[bytes | None]
) -> Sequence[ItemEntry] | None:
    """The items of rows: of their packed columns, payloads and rests."""
    text = "\n".join(packed)
    if not _is_readable(text, packed) or text.count("\n") != len(packed) - 1:
        return None
    if _are_plain(text, packed):
        plain = [payload for payload in payloads if payload is not None]
        return PackedEntries(text, packed, plain) if len(plain) == len(packed) else None
    if any(_code(line) & ESCAPED for line in packed):
        return None
    return list(map(_entry, packed, payloads, rests))


def entries_of_joined(count: int, packed: str, payload: bytes | None, rest: bytes | None) -> Sequence[ItemEntry] | None:
    """The same of texts that were joined: `payload` and `rest` belong to the items that have any."""
    lines = packed.split("\n")
    if len(lines) != count or not _is_readable(packed, lines):
        return None
    if payload is not None and _are_plain(packed, lines):
        texts = BytesIO(payload).readlines()  # finds line breaks much faster than `split`
        return PackedEntries(packed, lines, texts, payload) if len(texts) == count else None
    codes = list(map(_code, lines))
    if any(code & ESCAPED for code in codes):
        return None
    payloads = _spread(payload, [not code & NO_PAYLOAD for code in codes])
    rests = _spread(rest, [code & REST > 0 for code in codes])
    return list(map(_entry, lines, payloads, rests)) if len(payloads) == len(rests) == count else None


def _is_readable(packed: str, lines: Sequence[str]) -> bool:
    """Whether each line has all values, and no blank in them; and whether they are in order."""
    return packed.count(" ") == len(lines) * (_WIDTH - 1) and _position(lines[0]) <= _position(lines[-1])


def _are_plain(packed: str, lines: Sequence[str]) -> bool:
    return packed.startswith(_PLAIN) and packed.count("\n" + _PLAIN) == len(lines) - 1


def _code(line: str) -> int:
    return int(line[: line.index(" ")])


def _position(line: str) -> int:
    return int(line.rsplit(" ", 2)[1])


def _spread(joined: bytes | None, exists: Sequence[bool]) -> list[bytes | None]:
    """The texts, None for those that do not exist; nothing if there are not as many as exist."""
    texts = [] if joined is None else joined.split(BREAK)
    if len(texts) != sum(exists):
        return []
    remaining = iter(texts)
    return [next(remaining) if has_text else None for has_text in exists]


def _entry(line: str, payload: bytes | None, rest: bytes | None = None) -> ItemEntry:
    code, kind, role, origin, maker, turn, seen, position, call_id = line.split(" ")
    return ItemEntry(
        int(position),
        kind,
        None if role == _NULL else role,
        None if turn == _NULL else int(turn),
        None if seen == _NULL else int(seen),
        None if call_id == _NULL else call_id,
        None if origin == _NULL else origin,
        payload,
        rest,
        int(code) >> _CODEC_AT,
        None if maker == _NULL else maker,
    )
