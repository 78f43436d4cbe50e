r"""Items as rows: what is stored of an item.

`items.payload` is the item as Open Responses sends it, whatever is rendered around it; `items.rest` is an overlay with
everything else that is known of the item, such as keys for other formats: ``overlaid(base, overlay(full, base)) ==
full``. The store writes what `entry_of` gives, and a session without a database renders through it, too: there is one
way from items to requests.

A request is rendered from a `Snapshot`, of a stored conversation or of a session.

An overlay is an object with some of the keys ``value`` (replaces the base), ``set`` and ``drop`` (keys of an object),
``in`` (overlays of the values under these keys), ``at`` (overlays of list elements, by index) and ``text`` (the base is
the text of a list with one part, and this is the type of that part).

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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import orjson

from threadkeep.domain import call_kinds, rendering
from threadkeep.domain.jsontext import PLAIN, JsonObject, decode, encode, encode_texts, mismatch
from threadkeep.domain.tool_names import is_valid_name
from threadkeep.errors import DamagedRow, InvalidOption
from threadkeep.formats.canonical.items import ITEM_KEYS, LONGEST_CALL_ID, NAME, PART_KEYS, ROLES, wire_item
from threadkeep.formats.shared import arguments
from threadkeep.formats.shared.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


def overlay(full: Any, base: Any) -> JsonObject | None:
    """What must be laid over `base` to get `full`; None when they are the same JSON."""
    if isinstance(full, dict) and isinstance(base, dict):
        return _of_objects(full, base)
    if isinstance(full, list) and isinstance(base, list) and len(full) == len(base):
        inner = {str(i): over for i, (f, b) in enumerate(zip(full, base, strict=True)) if (over := overlay(f, b))}
        return {"at": inner} if inner else None
    if isinstance(base, str) and (kind := type_of_text(full, base)) is not None:
        return {"text": kind}
    return None if is_same(full, base) else {"value": full}


def overlaid(base: Any, over: JsonObject | None) -> Any:
    """`base` with an overlay laid over it; neither is changed."""
    if over is None:
        return base
    if "value" in over:
        return over["value"]
    if "text" in over:
        return [{"type": over["text"], "text": base}]
    if "at" in over:
        inner = over["at"]
        return [overlaid(element, inner.get(str(i))) for i, element in enumerate(base)]
    dropped = over.get("drop", ())
    result = {key: value for key, value in base.items() if key not in dropped}
    for key, inner in over.get("in", {}).items():
        result[key] = overlaid(base[key], inner)
    result.update(over.get("set", {}))
    return result


def _of_objects(full: JsonObject, base: JsonObject) -> JsonObject | None:
    shared = [key for key in full if key in base and full[key] is not base[key]]
    parts: JsonObject = {
        "set": {key: value for key, value in full.items() if key not in base},
        "drop": [key for key in base if key not in full],
        "in": {key: inner for key in shared if (inner := overlay(full[key], base[key]))},
    }
    return {name: part for name, part in parts.items() if part} or None


def type_of_text(full: Any, base: str) -> Any:
    """The type of the part when `full` is a list with one part that says no more than this text."""
    match full:
        case [{"type": str(kind), "text": text, **others}] if text == base and not others:
            return kind
    return None


def is_same(left: Any, right: Any) -> bool:
    """Equal as JSON: True is not 1, and NaN is NaN."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, float) or isinstance(right, float):
        return type(left) is type(right) and repr(left) == repr(right)
    return bool(left == right)


_MESSAGE_KEYS: Final = frozenset({"type", "role", "content"})
_CALL_KEYS: Final = frozenset({"type", "call_id", "name", "arguments"})
_OUTPUT_KEYS: Final = frozenset({"type", "call_id", "output"})
_COMPLETED_KEYS: Final = _OUTPUT_KEYS | {"status"}
_TEXT_KEYS: Final = frozenset({"type", "text"})
_TEXTS: Final = frozenset(kind for kind, keys in PART_KEYS.items() if keys >= _TEXT_KEYS)
_TEXT_TYPES: Final = {role: "output_text" if role == "assistant" else "input_text" for role in ROLES}
_OWN_KEYS, _OWN_REASONING_KEYS = (ITEM_KEYS[kind] | {"origin"} for kind in ("message", "reasoning"))
_NONE: Final[frozenset[str]] = frozenset()


class ItemEntry(NamedTuple):
    """One stored item as the formats read it, see the module: a few columns, and JSON text not parsed until needed."""

    position: int
    type: str
    role: str | None = None
    turn: int | None = None  # items of one wire message or response share it; None: built by the user
    seen: int | None = None  # on items of a response: the last position that its request showed
    call_id: str | None = None
    origin: str | None = None  # the format it came in; None: built by the user
    payload: bytes | None = None
    rest: bytes | None = None
    codec: int = 0
    maker: str | None = None  # who gave it, see `Maker`; None: not known, or no answer of a model

    def item(self) -> JsonObject:
        """The item as a JSON object, user extras inline; DamagedRow where the stored texts are no item."""
        text, codec = self.payload, self.codec
        try:
            item: Any = None if text is None else decode(text, codec) if codec else orjson.loads(text)
            if self.rest is not None:
                item = overlaid(item, decode(self.rest, self.codec))
            elif self.origin is not None:
                item["origin"] = self.origin
            full: JsonObject = item
            full["type"]  # an item has one
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise DamagedRow("items", f"position {self.position}", f"its JSON is not an item ({error!r})") from error
        return full


def entry_of(
    item: JsonObject, *, position: int, turn: int | None = None, seen: int | None = None, maker: str | None = None
) -> ItemEntry:
    """The stored form of an item object; InvalidItem where JSON has no form for it, or it is nested too deeply."""
    plain = _plain_payload(item)
    if plain is not None:
        text, codec = encode_texts(plain[0]) if plain[1] else encode(plain[0])
        role, call_id, origin = map(item.get, ("role", "call_id", "origin"))
        return ItemEntry(position, item["type"], role, turn, seen, call_id, origin, text, None, codec, maker)
    # It says more than what is sent of it, or is sent in another form
    full = {**item, "summary": item.get("summary") or []} if item["type"] == "reasoning" else item
    payload = wire_item(full, Context())
    bare = _without_origin(full)  # the origin has a column of its own
    # A payload is made of the item's own values, so equal is the same.
    over = overlay(full, payload) if bare != payload and overlay(bare, payload) is not None else None
    sent, sent_codec = (None, PLAIN) if payload is None else encode(payload)
    rest, rest_codec = (None, PLAIN) if over is None else encode(over)
    role, origin = item.get("role"), item.get("origin")
    return ItemEntry(
        position=position,
        type=item["type"],
        role=role if isinstance(role, str) else None,
        turn=turn,
        seen=seen,
        call_id=call_id_of(item),
        origin=origin if isinstance(origin, str) else None,
        payload=sent,
        rest=rest,
        codec=sent_codec | rest_codec,
        maker=maker,
    )


def _plain_payload(item: JsonObject) -> tuple[JsonObject, bool] | None:
    """The payload of an item that is sent as it stands, and whether it holds only texts; most items are such."""
    kind = item["type"]
    if kind == "message":
        texts = _texts_in(item.get("content"))
        if texts is not None and _has_keys(item, _MESSAGE_KEYS) and texts == _TEXT_TYPES.get(item["role"]):
            return _without_origin(item), True
        return _own_payload(item, texts) if _is_as_it_came(item, texts) else None
    if kind == "reasoning" and item.get("origin") == NAME and item.keys() <= _OWN_REASONING_KEYS:
        return _own_payload({**item, "summary": item.get("summary") or []}, None)
    is_plain = _PLAIN_ITEMS.get(kind)
    return (_without_origin(item), True) if is_plain is not None and is_plain(item) else None


def _is_plain_output(output: JsonObject) -> bool:
    """Whether an output is a text, and says no more than that it is complete."""
    keys = _COMPLETED_KEYS if output.get("status") == "completed" else _OUTPUT_KEYS
    return _has_keys(output, keys) and isinstance(output["output"], str) and _has_call_id(output)


def _has_call_id(item: JsonObject) -> bool:
    """Whether the call id of an item is sent as it is."""
    call_id = item["call_id"]
    return isinstance(call_id, str) and 0 < len(call_id) <= LONGEST_CALL_ID


def _is_plain_call(call: JsonObject) -> bool:
    """Whether a call is sent as it stands: its arguments are JSON, and its name is one, or came from this format."""
    name, text, is_whole = call.get("name"), call.get("arguments"), _has_keys(call, _CALL_KEYS) and _has_call_id(call)
    is_named = isinstance(name, str) and (call.get("origin") == NAME or is_valid_name(name))
    return is_whole and is_named and isinstance(text, str) and arguments.is_json(text)


_PLAIN_ITEMS: Final = {"function_call": _is_plain_call, "function_call_output": _is_plain_output}


def _has_keys(item: JsonObject, keys: frozenset[str]) -> bool:
    """Whether an item has these keys and no others but its origin."""
    return item.keys() >= keys and len(item) == len(keys) + ("origin" in item)


def _without_origin(item: JsonObject) -> JsonObject:
    return {key: value for key, value in item.items() if key != "origin"} if "origin" in item else item


def _texts_in(content: Any) -> str | None:
    """The type of the parts of a content of plain texts, all of one type; None for any other content."""
    text_type: str | None = None
    for part in content if isinstance(content, list) else ():
        kind = part["type"]
        if part.keys() != _TEXT_KEYS or (text_type is not None and kind != text_type):
            return None
        text_type = kind
    return text_type


def _is_as_it_came(item: JsonObject, texts: str | None) -> bool:
    """Whether a message came from this format and has nothing beyond the format's own keys, as most responses do."""
    if item.get("origin") != NAME or not item.keys() <= _OWN_KEYS or not isinstance(item.get("role"), str):
        return False
    if texts is not None:
        return texts in _TEXTS
    content = item.get("content")
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.keys() <= PART_KEYS.get(part["type"], _NONE) for part in content
    )


def _own_payload(item: JsonObject, texts: str | None) -> tuple[JsonObject, bool]:
    """The payload of an item that is sent as it came, its id first."""
    payload = _without_origin(item)
    payload = {"id": payload["id"], **payload} if "id" in payload else payload
    return payload, texts is not None and all(isinstance(payload[key], str) for key in payload if key != "content")


def call_id_of(item: JsonObject) -> str | None:
    """The call id of a call or output; also of a call that only its own provider knows, so that it can be answered."""
    call_id = call_kinds.reference_of(item)
    if item["type"] == "provider_item" and isinstance(item.get("payload"), dict):
        payload = item["payload"]
        is_call = (payload.get("type") == "custom" and "custom" in payload) or "function" in payload
        call_id = payload.get("id") if is_call else None
    return call_id if isinstance(call_id, str) else None


def changed_entry(entry: ItemEntry, item: JsonObject) -> ItemEntry:
    """The entry of an item that is sent in another form than it was stored in, at the same place."""
    return entry_of(item, position=entry.position, turn=entry.turn, seen=entry.seen, maker=entry.maker)


def is_behind_gap(before: ItemEntry | None, entry: ItemEntry) -> bool:
    """Whether what stands right before an item in its answer is not there; `turn` is where that begins."""
    last = -1 if before is None else before.position
    return entry.turn is not None and 0 <= entry.turn < entry.position and last < entry.position - 1


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
    imported: rendering.ImportInfo | None = None
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
    has_state = previous is not None or settings.get("conversation") is not None
    return ServerState(previous, boundary) if has_state else None


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

    __slots__ = ("_entries", "_has_makers", "_joined", "_last", "_lines", "_others", "_texts")

    def __init__(self, packed: str, lines: Sequence[str], texts: Sequence[bytes], joined: bytes | None = None) -> None:
        self._texts = texts  # the payloads …
        self._joined = joined  # … or all of them in one text, until they are looked at one by one
        self._has_makers = _SLASH in packed
        self._lines = lines
        self._entries: list[ItemEntry] | None = None
        self._others: list[Glance] | None = None
        self._last: ItemEntry | None = None

    @property
    def texts(self) -> Sequence[bytes]:
        """The payloads, each with the line break that may follow it."""
        return self._texts if (joined := self._joined) is None else BytesIO(joined).readlines()

    @property
    def others(self) -> Sequence[Glance]:
        """A glance at each item that is not a message."""
        if (others := self._others) is None:
            others = []
            for index, line in enumerate(self._lines):
                if not line.startswith(_MESSAGE):
                    _, kind, _, _, _, _, _, position, call_id = line.split(" ")
                    others.append((index, kind, int(position), "" if call_id == _NULL else call_id))
            self._others = others
        return others

    def seen(self, index: int) -> int | None:
        """`seen` of an item."""
        return None if (seen := self._lines[index].split(" ", 7)[6]) == _NULL else int(seen)

    def makers(self) -> list[tuple[str | None, str | None]]:
        """`origin` and `maker` of the items that have a maker, which is a word with a slash."""
        if not self._has_makers:
            return []
        pairs = (line.split(" ", 5)[3:5] for line in self._lines if _SLASH in line)
        return [(None if one == _NULL else one, other) for one, other in pairs if other != _NULL]

    def is_unbroken(self) -> bool:
        """Whether each item stands right behind the one before it."""
        return _position(self._lines[-1]) - _position(self._lines[0]) == len(self._lines) - 1

    def elements(self) -> bytes:
        """The payloads with commas between them."""
        return b",".join(self._texts) if (joined := self._joined) is None else joined.replace(BREAK, b",")

    def has_text(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether a payload has such a text in it."""
        return any(map(pattern.search, self._texts if (joined := self._joined) is None else (joined,)))

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
            return _entry(self._lines[index], self._apart()[index])
        if self._last is None:  # which is asked for again and again
            text = self._texts[-1] if (joined := self._joined) is None else joined[joined.rfind(BREAK) + 1 :]
            self._last = _entry(self._lines[-1], text)
        return self._last

    def __iter__(self) -> Iterator[ItemEntry]:
        return iter(self._all())

    def _apart(self) -> Sequence[bytes]:
        if (joined := self._joined) is not None:
            self._texts, self._joined = joined.split(BREAK), None  # in this order: other threads read these
        return self._texts

    def _all(self) -> list[ItemEntry]:
        if self._entries is None:
            self._entries = list(map(_entry, self._lines, self._apart()))
        return self._entries


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
        return PackedEntries(packed, lines, (), payload) if payload.count(BREAK) == count - 1 else None
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
