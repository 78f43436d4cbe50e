"""What rendering has in common in all formats: where a request comes from, and how it is finished."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import orjson

from threadkeep.domain.jsontext import PLAIN, REQUEST_DEPTH, JsonObject, dumps, encode
from threadkeep.domain.rendering import Rendered, RenderOptions, Repair
from threadkeep.errors import CannotRender
from threadkeep.formats.canonical.entries import Entry, entry_of
from threadkeep.formats.canonical.packed import PackedEntries
from threadkeep.formats.canonical.snapshots import Snapshot, snapshot_of
from threadkeep.formats.shared.pairing import CALLS, OUTPUTS, Pairing
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.views import View, view_of

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_PLAIN: Final = "plain"  # the place in what is shared: whether orjson wrote options and tools
_CHECKED: Final = "texts"  # the place in a snapshot's memo: how many entries hold valid text alone
_LONE: Final = re.compile("[\ud800-\udfff]")
_codec: Final = itemgetter(Entry._fields.index("codec"))


@dataclass(slots=True)
class Rendering:
    """A request while it is rendered."""

    format_name: str
    snapshot: Snapshot
    options: RenderOptions
    view: View  # the entries that it shows
    context: Context  # what mappers need, and where they report
    imported: int = 0  # how many items came with the request of this format that the conversation began as
    spelling: JsonObject | None = None  # how that request spelled things; None where there was no such request
    text_repairs: list[Repair] = field(default_factory=list)  # of texts that are not valid Unicode
    has_plain_texts: bool = False  # whether orjson wrote the texts of all items of the snapshot

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries that the request shows."""
        return self.view.entries

    def finish(self, body: JsonObject | bytes, stable: int) -> Rendered:
        """The rendered request; `stable` is how many of its turns no later append changes."""
        head = self.view.head
        rendered = (PlainRendered if self._is_plain() else Rendered)(
            losses=self.context.losses,
            repairs=self.context.repairs,
            stable=stable,
            head=head,
            view=self.options.view(self.format_name),
            source=body,
        )
        if self.options.strict:
            rendered.strictly(self.format_name)
        rendered.repairs += [repair for repair in self.text_repairs if (repair.position or 0) <= head]
        return rendered

    def _is_plain(self) -> bool:
        """Whether orjson reads and writes everything that a request of these entries can hold."""
        if not (self.has_plain_texts and self.view.is_whole) and any(map(_codec, self.view.entries)):
            return False
        shared, snapshot = self.snapshot.shared, self.snapshot
        is_plain: bool | None = shared.get(_PLAIN)
        if is_plain is None:
            is_plain = shared[_PLAIN] = encode([snapshot.settings, snapshot.tools])[1] == PLAIN
        return is_plain


def begin(session: Session | Snapshot, options: RenderOptions, format_name: str, context: Context) -> Rendering:
    """What a request is rendered from: a session, or a snapshot of a stored conversation, with its texts checked."""
    snapshot = snapshot_of(session)
    repairs: list[Repair] = []
    has_plain_texts = _has_valid_texts(snapshot)
    if not has_plain_texts:
        snapshot, repairs = with_valid_texts(snapshot, format_name)
    context.tools = snapshot.tools
    view = view_of(snapshot, options, format_name)
    rendering = Rendering(format_name, snapshot, options, view, context, 0, None, repairs, has_plain_texts)
    imported = snapshot.imported
    if imported is not None and imported.format == format_name:
        rendering.imported, rendering.spelling = imported.count, imported.spelling
    elif imported is not None:
        _report_native_keys(snapshot, imported.format, context)
    return rendering


def _has_valid_texts(snapshot: Snapshot) -> bool:
    """Whether orjson read all texts, which refuses lone surrogates; entries that were checked are not checked again."""
    entries, memo = snapshot.entries, snapshot.memo
    count: int = 0 if memo is None else memo.get(_CHECKED, 0)
    if not isinstance(entries, PackedEntries) and any(
        map(_codec, entries[count:] if 0 < count <= len(entries) else entries)
    ):
        return False
    if memo is not None:
        memo[_CHECKED] = len(entries)
    return True


def with_valid_texts(snapshot: Snapshot, format_name: str) -> tuple[Snapshot, list[Repair]]:
    """The snapshot with U+FFFD in place of what is not Unicode, and the repairs; rows keep their texts as they are.

    Lone surrogates stand for bytes that were not UTF-8 (``errors="surrogateescape"``), or came in as JSON escapes. No
    provider takes them, and HTTP clients fail over them. What goes back to its own origin goes as it came.
    """
    entries = [_repaired(entry, format_name) for entry in snapshot.entries]
    changed = [entry.position for entry, other in zip(snapshot.entries, entries, strict=True) if entry is not other]
    if not changed:
        return snapshot, []
    detail = "Characters that are not Unicode were sent as U+FFFD."
    return replace(snapshot, entries=entries), [Repair("invalid_text", position, "", detail) for position in changed]


def _repaired(entry: Entry, format_name: str) -> Entry:
    """An entry with valid texts; ids stay, so that calls and outputs still match."""
    if not entry.codec or entry.origin == format_name:
        return entry
    item = entry.item()
    repaired = {key: value if key in ("id", "call_id") else valid_text(value) for key, value in item.items()}
    return entry if repaired == item else entry_of(repaired, position=entry.position, turn=entry.turn, seen=entry.seen)


def valid_text(value: Any) -> Any:
    r"""A JSON value whose texts are Unicode.

    >>> valid_text({"a": ["x\udcff", 1]}) == {"a": ["x\ufffd", 1]}
    True
    """
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, list):
        return [valid_text(inner) for inner in value]
    return {valid_text(key): valid_text(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _report_native_keys(snapshot: Snapshot, origin: str, context: Context) -> None:
    """Report the keys of an imported request that only its own format has."""
    keys = (snapshot.settings.get("extra") or {}).get(origin)
    for key in keys if isinstance(keys, dict) else ():
        context.loss("native", f"extra.{origin}.{key}", f"{key} was left out: only {origin} has it.")


def no_model() -> CannotRender:
    """The error for a request without a model."""
    return CannotRender("The request has no model.", hint="Set it: conversation.update(model=...).")


def nothing_to_send(what: str) -> CannotRender:
    """The error for a request without a turn; `what` is what is missing."""
    return CannotRender(f"There is nothing to send: no {what} is left.", hint="Add a user message first.")


def report_filler(entries: Sequence[Entry], context: Context, filler: str) -> None:
    """Report that a filler is sent because the user's messages are all blank; refuse where there are none."""
    if not any(entry.type == "message" and entry.role == "user" for entry in entries):
        raise nothing_to_send("message")
    context.repair("blank_text", "", f"The user's message is empty and was sent as {filler!r}.")


# item type -> the method of a writer that writes it
WRITERS: Final = {
    "message": "message",
    **dict.fromkeys(CALLS, "call"),
    **dict.fromkeys(OUTPUTS, "output"),
    "reasoning": "reasoning",
    "provider_item": "block",
    **dict.fromkeys(("compaction", "item_reference"), "nothing"),
}


class TurnWriter:
    """Writes turns item by item; the subclass of a format has the methods of `WRITERS`."""

    def __init__(self, rendering: Rendering, pairing: Pairing) -> None:
        self._pairing, self._context = pairing, rendering.context
        self._imported = rendering.imported  # items before that go back as they came
        self._pending = pairing.pending()
        self._unsettled: int | None = None  # index of the first turn that a later output may change

    def nothing(self, _item: JsonObject, entry: Entry) -> None:
        """Report an item that the format cannot express."""
        self._context.unknown_item(entry)


@dataclass(repr=False)
class PlainRendered(Rendered):
    """A request whose values orjson reads and writes as they are: payload and body are made without checks."""

    def _parsed(self, text: bytes) -> JsonObject:
        try:
            parsed: JsonObject = orjson.loads(text)
        except ValueError:  # a row was damaged
            parsed = super()._parsed(text)
        return parsed

    @cached_property
    def body(self) -> bytes:
        """The request as JSON (UTF-8)."""
        if isinstance(self.source, bytes):
            return self.source
        try:
            return orjson.dumps(self.source)
        except TypeError:  # arguments are stored as text, and may hold longer integers once they are read
            return dumps(self.source, REQUEST_DEPTH)

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__qualname__, Rendered.__qualname__, 1)
