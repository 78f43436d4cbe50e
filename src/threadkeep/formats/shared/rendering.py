"""What rendering has in common in all formats: where a request comes from, and how it is finished.

What JSON or providers have no form for is replaced: rows keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, get_args

import orjson

from threadkeep.domain.formats import STATEFUL, FormatName
from threadkeep.domain.jsontext import PLAIN, REQUEST_DEPTH, JsonObject, dumps, encode
from threadkeep.domain.rendering import AS_IT_IS, Loss, Rendered, RenderOptions, Repair
from threadkeep.domain.session import Session
from threadkeep.errors import CannotRender
from threadkeep.formats.canonical.entries import (
    ItemEntry,
    PackedEntries,
    ServerState,
    Snapshot,
    changed_entry,
    initial_state,
    snapshot_of,
)
from threadkeep.formats.canonical.items import NAME
from threadkeep.formats.shared import fields, makers, pictures
from threadkeep.formats.shared.arguments import Mending, Report, is_unicode
from threadkeep.formats.shared.pairing import CALLS, LAYER, OUTPUTS, Pairing, late_output_message
from threadkeep.formats.shared.provider_rules import FILLER, ProviderRules, rules_for
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.shared.setting_rules import Rows, fitted, settings_for
from threadkeep.formats.shared.views import HistoryView, view_of

_TAKEN: Final = "taken"  # the place in what snapshots share: for whom all settings are taken
_CHECKED: Final = "texts"  # the place in a snapshot's memo: how many entries hold valid text alone
_codec: Final = itemgetter(ItemEntry._fields.index("codec"))


Render: TypeAlias = Callable[[Session | Snapshot, RenderOptions], Rendered]
Resume: TypeAlias = Callable[[Snapshot, dict[str, Any], RenderOptions], Rendered]


def unless_short(render: Render, resume: Resume, most: int) -> Callable[..., Rendered]:
    """Render a stored history of more items in another way, which gets what formats remember of them."""

    @wraps(render)
    def rendered(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
        if isinstance(session, Snapshot) and session.memo is not None and len(session.entries) > most:
            return resume(session, session.memo, options)
        return render(session, options)

    return rendered


class ShownMessage(NamedTuple):
    """A message as clients show it, and the position of its first item."""

    message: JsonObject
    place: int


@dataclass(slots=True)
class Rendering:
    """A request while it is rendered."""

    format_name: str
    snapshot: Snapshot
    options: RenderOptions
    view: HistoryView  # the entries that it shows
    context: Context  # what mappers need, and where they report
    rules: ProviderRules  # what may stand where
    target: makers.RequestTarget  # who gets it
    setting_rules: Rows = field(default_factory=dict)  # which settings it takes
    to: tuple[str | None, ...] = ()  # whom rules are for: format, dialect, model and provider
    imported: int = 0  # how many items came with the request of this format that the conversation began as
    spelling: JsonObject | None = None  # how that request spelled things; None where there was no such request
    reports: Sequence[Report] = ()  # of what the conversation has and no request can
    has_plain_options: bool = False  # whether orjson writes the options and tools …
    has_plain_texts: bool = False  # … and wrote the texts of all items of the snapshot

    @property
    def entries(self) -> Sequence[ItemEntry]:
        """The entries that the request shows."""
        return self.view.entries

    def fitted(self, body: JsonObject) -> JsonObject:
        """A request with the settings that the provider takes; an imported one goes back as it came.

        Settings and tools of which all were taken are not looked at again.
        """
        context, taken = self.context, self.snapshot.shared.setdefault(_TAKEN, set())
        if not self.setting_rules or self.spelling is not None or self.to in taken:
            return body
        native = (self.snapshot.settings.get("extra") or {}).get(self.format_name)
        count = len(context.losses) + len(context.repairs)
        body = fitted(body, self.setting_rules, context, native if isinstance(native, dict) else ())
        if count == len(context.losses) + len(context.repairs):
            taken.add(self.to)
        return body

    def is_system_of_user(self) -> bool:
        """Whether the system text is sent as the user's, because the model takes no other, which is reported."""
        if self.rules.system != "as user" or self.spelling is not None:
            return False
        detail = "The system text was sent as the user's: the model takes none."
        self.context.repair("role", "instructions", detail)
        return True

    def leaves_out_json_mode(self, form: Any, texts: Iterable[str], place: str) -> bool:
        """Whether JSON mode is left out: it needs the word JSON, which imported and cut requests may lack."""
        imported = self.snapshot.imported
        is_checked = imported is not None or self.rules.json_word
        if not is_checked or not isinstance(form, dict) or form.get("type") != "json_object":
            return False
        is_as_it_came = self.spelling is not None and len(self.entries) >= self.imported
        if is_as_it_came or any("json" in text.lower() for text in texts):
            return False
        if imported is None:
            self.context.loss("refused", "text.format", f"JSON mode is refused without the word JSON in the {place}.")
            return False
        self.context.repair("option", "text.format", f"JSON mode was left out: it needs the word JSON in the {place}.")
        return True

    def finish(self, body: JsonObject | bytes, stable: int, stream_options: JsonObject | None = None) -> Rendered:
        """The rendered request; `stable` is how many of its turns no later append changes."""
        head = self.view.head
        reports = list(filter(self._is_shown, self.reports)) if self.reports else ()
        self.context.losses += [report for report in reports if isinstance(report, Loss)]
        rendered = (PlainRendered if self._is_plain() else Rendered)(
            losses=self.context.losses,
            repairs=self.context.repairs,
            stable=stable,
            head=head,
            view=self.options.view(self.format_name),
            source=body,
            model=self.snapshot.settings.get("model"),
            stream_options=stream_options or {},
        )
        if self.options.strict:
            rendered.strictly(self.format_name)
        rendered.repairs += [report for report in reports if isinstance(report, Repair)]
        return rendered

    def _is_shown(self, report: Report) -> bool:
        """Whether a report is about what the request shows."""
        position = report.position
        if position is None or isinstance(report, Repair):
            return position is None or position <= self.view.head
        return any(entry.position == position for entry in self.view.entries)

    def _is_plain(self) -> bool:
        """Whether orjson reads and writes everything that a request of these entries can hold."""
        has_plain_texts = self.has_plain_texts and self.view.is_whole
        return self.has_plain_options and (has_plain_texts or not any(map(_codec, self.view.entries)))


def begin(session: Session | Snapshot, options: RenderOptions, format_name: str, context: Context) -> Rendering:
    """What a request is rendered from: a session, or a snapshot of a stored conversation, with its texts checked."""
    snapshot = snapshot_of(session)
    settings, sent = snapshot.settings, sendable_options(snapshot)
    snapshot, reports = with_options(snapshot, sent), sent.reports_for(format_name) if sent.reports else []
    has_plain_texts = _has_valid_texts(snapshot)
    if not has_plain_texts:
        snapshot, found = with_items(snapshot)
        reports = found + reports
    context.tools = snapshot.tools if format_name == NAME else [tool for _, tool in fields.placed_tools(snapshot.tools)]
    target = makers.target_of(snapshot, options, format_name)
    to = (format_name, options.dialect or settings.get("dialect"), target.model, target.provider)
    rules = rules_for(*to)
    view = view_of(snapshot, options, format_name, rules)
    if view.omitted:
        context.repair("pictures", "", f"{view.omitted} earlier images were replaced with a note, as the view asks.")
    has_texts = options.reasoning == "text"
    entries = makers.readable(view.entries, snapshot, target, format_name, context, has_texts=has_texts)
    media = pictures.media_of(snapshot)
    if media:
        _report_pictures(media, view, rules, options, context)
        entries = pictures.without_others(entries, snapshot, target, format_name, context)
        entries = pictures.sendable_media(entries, snapshot, rules, format_name, context)
    if entries is not view.entries:
        view.entries, view.is_whole = entries, False
    rendering = Rendering(format_name, snapshot, options, view, context, rules, target, settings_for(*to), to)
    rendering.reports, rendering.has_plain_options, rendering.has_plain_texts = reports, sent.is_plain, has_plain_texts
    imported = snapshot.imported
    if imported is not None and imported.format == format_name:
        rendering.imported, rendering.spelling = imported.count, imported.spelling
    elif imported is not None:
        _report_own_keys(settings, imported.spelling or {}, imported.format, context)
    return rendering


def _report_pictures(
    media: pictures.RequestMedia, view: HistoryView, rules: ProviderRules, options: RenderOptions, context: Context
) -> None:
    """Report pictures and documents that the provider is known to refuse."""
    if not view.is_whole:
        media = media.among({entry.position for entry in view.entries})
    if not options.vision:
        media = pictures.RequestMedia([], media.documents)
    elif options.pictures is not None:
        gone = pictures.left_out(media, options.pictures, rules)
        media = pictures.RequestMedia([one for i, one in enumerate(media.pictures) if i not in gone], media.documents)
    for detail in pictures.exceeded(media, rules):
        context.loss("refused", "pictures", detail)


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


def _report_own_keys(settings: JsonObject, spelling: JsonObject, origin: str, context: Context) -> None:
    """Report what only its own format has of an imported request: keys, and what blocks of system texts say."""
    keys = (settings.get("extra") or {}).get(origin)
    for key in keys if isinstance(keys, dict) else ():
        context.loss("native", f"extra.{origin}.{key}", f"{key} was left out: only {origin} has it.")
    blocks = spelling.get("system")
    for block in blocks if isinstance(blocks, list) else ():
        keys = block.get("keys") if isinstance(block, dict) else None
        if isinstance(keys, dict) and keys:
            names = ", ".join(keys)
            context.loss("native", "instructions", f"Keys that only {origin} has were left out: {names}.")


def no_model() -> CannotRender:
    """The error for a request without a model."""
    return CannotRender("The request has no model.", hint="Set it: conversation.update(model=...).")


def nothing_to_send(what: str) -> CannotRender:
    """The error for a request without a turn; `what` is what is missing."""
    return CannotRender(f"There is nothing to send: no {what} is left.", hint="Add a user message first.")


def report_filler(entries: Sequence[ItemEntry], context: Context, filler: str) -> None:
    """Report that a filler is sent because the user's messages are all blank; refuse where there are none."""
    if not any(entry.type == "message" and entry.role == "user" for entry in entries):
        raise nothing_to_send("message")
    context.repair("blank_text", "", f"The user's message is empty and was sent as {filler!r}.")


def needs_last_turn(rules: ProviderRules, context: Context, *, is_as_came: bool, is_refused: bool = False) -> bool:
    """Whether a filler of the user must follow the assistant's last turn, which is reported.

    A request that goes back as it came gets none: that the provider refuses it is reported alone. `is_refused`: the
    model does not continue this one, whatever the rules say of others.
    """
    last_turn = "filled" if is_refused else rules.last_turn
    if last_turn == "taken":
        return False
    if last_turn == "reported":
        context.repair(
            "last_turn", "", "The request ends with the model's turn, after which the service may not answer."
        )
        return False
    if is_as_came:
        context.loss("refused", "", "The request ends with an assistant's turn, which the model does not continue.")
        return False
    detail = f"A user message {FILLER!r} was added: the model does not continue an assistant's last turn."
    context.repair("last_turn", "", detail)
    return True


# item type -> the method of a writer that writes it
WRITERS: Final = {
    "message": "message",
    **dict.fromkeys(CALLS, "call"),
    **dict.fromkeys(OUTPUTS, "output"),
    "reasoning": "reasoning",
    "provider_item": "block",
    "compaction": "compaction",
    "item_reference": "nothing",
}


class TurnWriter:
    """Writes turns item by item; the subclass of a format has the methods of `WRITERS`."""

    def __init__(self, rendering: Rendering, pairing: Pairing) -> None:
        self._pairing, self._context = pairing, rendering.context
        self._target = rendering.target
        self._imported = rendering.imported  # items before that go back as they came
        self._pending = pairing.pending()
        self._unsettled: int | None = None  # index of the first turn that a later output may change

    def _told(self, item: JsonObject, entry: ItemEntry) -> JsonObject | None:
        """The user's message that says an output no call waits for, which is reported; None for other outputs."""
        call = self._pairing.late.get(entry.position)
        if call is not None:
            self._context.late_output(entry)
        elif entry.position in self._pairing.by_name:
            self._context.named_output(entry)
        else:
            return None
        return late_output_message(item, None if call is None else call.item())

    def compaction(self, item: JsonObject, entry: ItemEntry) -> None:
        """A compaction of another format: what it covers is sent."""
        self.nothing(item, entry)

    def nothing(self, _item: JsonObject, entry: ItemEntry) -> None:
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

    def _written(self, value: Any) -> bytes:
        try:
            return orjson.dumps(value)
        except TypeError:  # arguments are stored as text, and may hold longer integers once they are read
            return dumps(Mending().value(value), REQUEST_DEPTH)

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__qualname__, Rendered.__qualname__, 1)


_KEY: Final = "sendable"  # the place in what is shared by snapshots
_NATIVE: Final = {f"extra.{name}": name for name in get_args(FormatName)}  # path -> the only format that sends it


@dataclass(frozen=True, slots=True)
class Options:
    """The options and tools of a snapshot, as they can be sent."""

    settings: JsonObject
    tools: Sequence[JsonObject]
    spelling: JsonObject  # of the request that the conversation was imported from
    reports: Sequence[Report]
    is_plain: bool  # whether orjson reads and writes them

    def reports_for(self, format_name: str) -> list[Report]:
        """The reports that concern a format."""
        return [report for report in self.reports if _NATIVE.get(report.path, format_name) == format_name]


def sendable_options(snapshot: Snapshot) -> Options:
    """The options and tools of a snapshot, which are looked at once."""
    known: Options | None = snapshot.shared.get(_KEY)
    if known is None:
        known = snapshot.shared[_KEY] = _options(snapshot)
    return known


def _options(snapshot: Snapshot) -> Options:
    settings, tools, imported = snapshot.settings, snapshot.tools, snapshot.imported
    spelling = {} if imported is None else imported.spelling
    if encode([settings, tools, spelling])[1] == PLAIN:
        return Options(settings, tools, spelling, (), is_plain=True)
    reports: list[Report] = []
    settings = _mended(settings, "", reports)
    tools = [_mended(tool, f"tools[{index}].", reports) for index, tool in enumerate(tools)]
    spelling = _mended(spelling, "imported.", reports)
    return Options(settings, tools, spelling, reports, encode([settings, tools, spelling])[1] == PLAIN)


def _mended(given: JsonObject, path: str, reports: list[Report]) -> JsonObject:
    """An object as it can be sent; reports name its keys, and the keys of `extra`."""
    sent: JsonObject = {}
    for name, value in given.items():
        if path + name == "extra" and isinstance(value, dict):
            sent[name] = _mended(value, "extra.", reports)
            continue
        mending = Mending()
        sent |= mending.value({name: value})
        reports += mending.reports(None, path + name)
    return sent


def with_options(snapshot: Snapshot, options: Options) -> Snapshot:
    """The snapshot with options and tools that can be sent."""
    imported, state = snapshot.imported, snapshot.state
    if state is not None:
        state = replace(state, previous_response_id=Mending().value(state.previous_response_id))
        snapshot = replace(snapshot, state=state)
    if not options.reports:
        return snapshot
    if imported is not None:
        imported = replace(imported, spelling=options.spelling)
    return replace(snapshot, settings=options.settings, tools=options.tools, imported=imported)


def with_items(snapshot: Snapshot) -> tuple[Snapshot, list[Report]]:
    """The snapshot with items that can be sent, and the reports, by position."""
    reports: list[Report] = []
    changed: dict[int, ItemEntry] = {}
    for index, entry in enumerate(snapshot.entries):
        if entry.codec:
            mending = Mending()
            item = mending.value(entry.item())
            found = mending.reports(entry.position, "")
            reports += found
            if found or not is_unicode(entry.call_id or ""):  # pairs of surrogates are one character in the JSON alone
                changed[index] = changed_entry(entry, item)
    if not changed:
        return snapshot, reports
    return replace(snapshot, entries=[changed.get(i, entry) for i, entry in enumerate(snapshot.entries)]), reports


# ---------------------------------------------------------------------------------------------------------------------
# What the provider holds of a conversation, for formats whose requests can name it, and what is new to it. Source:
# OpenAI's API reference, "Conversation state"; Google's Gemini API reference, "Interactions".


def known_state(rendering: Rendering) -> ServerState | None:
    """What the provider holds; nothing where another one has answered last: it is sent everything."""
    snapshot = rendering.snapshot
    state = snapshot.state or initial_state(snapshot.settings)
    if state is None or rendering.options.server_state == "none":
        return None
    last = next((entry for entry in reversed(snapshot.entries) if entry.position <= state.boundary), None)
    name = "conversation" if state.previous_response_id is None else "previous_response_id"
    if last is not None and last.origin in STATEFUL and last.origin != rendering.format_name:
        detail = f"{name} was left out, and everything is sent: it names an answer in the format {last.origin}."
    elif last is not None and last.maker is not None and not makers.reads_own(
        rendering.target, last, rendering.format_name
    ):  # fmt: skip
        detail = f"{name} was left out, and everything is sent: {makers.giver_of(last)} keeps it."
    else:
        return state
    rendering.context.repair("option", name, detail)
    return None


def news(entries: Sequence[ItemEntry], state: ServerState) -> list[ItemEntry]:
    """What the provider does not have: what follows its answer, and what came in while it was answering."""
    known = (entry for entry in reversed(entries) if entry.position <= state.boundary)
    seen, turn = next(((entry.seen, entry.turn) for entry in known if entry.seen is not None), (None, None))
    return [
        entry
        for entry in entries
        if entry.position > state.boundary
        or entry.turn == LAYER
        or (seen is not None and entry.position > seen and entry.turn != turn)
    ]
