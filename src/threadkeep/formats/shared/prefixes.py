"""Requests that begin as an earlier one did: the JSON of the beginning is kept, and only what follows it is rendered.

A beginning is kept from the second render of a history on. It ends before a turn of the user, with an answer, and
inside what no later append changes (`Rendered.stable`); and what follows it was rendered alone once, which gave the
very same: turns, reports and keys. That stays so while the history grows, for what follows depends on nothing before:

* It has no output for a call before it, and no call id that was used there.
* There is nothing that concerns a request as a whole: system text, compactions, media, blocks and references of
  providers, cache marks, citations, JSON mode, or what the provider holds.
* Everything is reported that depends on names and ids before it; with other reports than the ones of the options,
  everything is rendered.
* Who gets the request, and can read what in it, is found out from the whole history.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from threadkeep.domain.jsontext import value_at
from threadkeep.domain.rendering import ContinuedRequest, Rendered, RenderOptions
from threadkeep.errors import FormatError
from threadkeep.formats.canonical.entries import ItemEntry, Snapshot, initial_state
from threadkeep.formats.shared import makers, pictures
from threadkeep.formats.shared.arguments import Report
from threadkeep.formats.shared.pairing import ALL_KINDS, LAYER, paired
from threadkeep.formats.shared.rendering import PlainRendered, Render, unless_short
from threadkeep.formats.shared.views import turn_starts

_LONG: Final = 32  # items behind a beginning, which grows then
_KINDS: Final = frozenset({"message", "reasoning", "function_call", "function_call_output"})
_ROLES: Final = ("user", "assistant")
_OF_REQUESTS: Final = re.compile(b"cache|citation")  # what is said of it counts over a whole request
_OF_THE_END: Final = frozenset({"missing_output", "last_turn"})  # reports on nothing but the last turns
_TURNS_BEHIND: Final = 2  # of the user: what may still be put between them


@dataclass(frozen=True, slots=True)
class RequestPrefix:
    """The beginning of a list of turns, as JSON."""

    place: object  # for which options, and for whom
    looked_at: int  # how many items there were when it was to grow last
    count: int = 0  # how many items it shows
    turns: int = 0
    size: int = 0  # bytes
    text: bytes = b""
    call_ids: frozenset[str | None] = frozenset()
    reports: Sequence[Report] = ()  # on the options and tools


def resumed(name: str, key: str) -> Callable[[Render], Callable[..., Rendered]]:
    """Let a function that renders a format go on from the beginning of an earlier request, whose turns are at `key`."""

    def decorated(render: Render) -> Callable[..., Rendered]:
        def resume(snapshot: Snapshot, memo: dict[str, Any], options: RenderOptions) -> Rendered:
            if not _is_resumable(snapshot, options):
                return render(snapshot, options)
            place = options, snapshot.configured, makers.target_of(snapshot, options, name)
            known, count = memo.get(f"{name} prefix"), len(snapshot.entries)
            if known is None or known.place != place or known.count > count:
                made, known = render(snapshot, options), RequestPrefix(place, count - _LONG)
            else:
                made, known = _History(render, key, snapshot, options).rendered(known)
            memo[f"{name} prefix"] = known
            return made

        return unless_short(render, resume, _LONG)

    return decorated


def _is_resumable(snapshot: Snapshot, options: RenderOptions) -> bool:
    """Whether neither the options nor the view of a request concern it as a whole."""
    settings, others = snapshot.settings, (options.upto, options.now, options.cache, options.context_cache)
    shows_all = options.shows_all and options.reasoning is True and options.media_url is None
    is_stored = snapshot.configured is not None and snapshot.imported is None
    is_whole = not snapshot.gaps and not snapshot.turns_before
    has_json_mode = "text" in settings and value_at(settings, "text.format.type") == "json_object"
    is_known = snapshot.state is not None or initial_state(settings) is not None
    return shows_all and not any(one is not None for one in others) and is_stored and is_whole and not (
        has_json_mode or is_known
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _History:
    """A history that is rendered."""

    render: Render
    key: str
    snapshot: Snapshot
    options: RenderOptions

    def rendered(self, known: RequestPrefix) -> tuple[Rendered, RequestPrefix]:
        """The request, and the beginning with which the next one is rendered."""
        count = len(self.snapshot.entries)
        made, before = self._behind(known) if known.count else None, known
        if made is None:
            made, before = self.render(self.snapshot, self.options), RequestPrefix(known.place, count)
        following = self._grown(before, made) if count - known.looked_at > _LONG else known
        if before.count and isinstance(made.source, dict):
            turns = made.source.pop(self.key)
            made.source = ContinuedRequest(made.source, self.key, before.text, turns)
            made.stable += before.turns
        return made, following

    def _behind(self, known: RequestPrefix) -> Rendered | None:
        """What follows a beginning; None where it depends on that."""
        entries = self.snapshot.entries[known.count :]
        if not all(map(_is_ordinary, entries)) or not known.call_ids.isdisjoint(entry.call_id for entry in entries):
            return None
        memo = makers.memo_for(self.snapshot, len(entries))
        try:
            made = self.render(replace(self.snapshot, entries=entries, memo=memo), self.options)
        except FormatError:
            return None
        is_plain = isinstance(made, PlainRendered) and isinstance(made.source, dict)
        return made if is_plain and _reports(made) == known.reports else None

    def _grown(self, known: RequestPrefix, made: Rendered) -> RequestPrefix:
        """The beginning with more of what follows it, which `made` shows, if that can be."""
        looked_at = replace(known, looked_at=len(self.snapshot.entries))
        longer, source = self._longer(looked_at), made.source
        longer = None if longer is None else replace(longer, reports=_reports(made))
        behind = None if longer is None else self._behind(longer)
        if longer is None or behind is None or not isinstance(source, dict) or not isinstance(behind.source, dict):
            return looked_at
        turns, count = source[self.key], len(source[self.key]) - len(behind.source[self.key])
        shown = ({**source, self.key: turns[count:]}, made.view, made.losses, made.repairs)
        is_same = (behind.source, behind.view, behind.losses, behind.repairs) == shown
        if not is_same or not 0 < behind.stable == made.stable - count < made.stable:
            return looked_at
        try:
            text = b",".join(filter(None, (known.text, orjson.dumps(turns[:count])[1:-1])))
        except TypeError:  # it has a number that orjson does not write
            return looked_at
        return replace(longer, turns=known.turns + count, text=text, size=len(text))

    def _longer(self, known: RequestPrefix) -> RequestPrefix | None:
        """How far the beginning can grow, and the ids of calls in it; None if it cannot."""
        starts = [start for start in turn_starts(self.snapshot.entries) if start > known.count][:-_TURNS_BEHIND]
        if not starts or pictures.media_of(self.snapshot):
            return None
        new = self.snapshot.entries[known.count : starts[-1]]
        pairs, kinds = len(paired(new, kinds=ALL_KINDS).answers), Counter(entry.type for entry in new)
        is_paired = pairs == kinds["function_call"] == kinds["function_call_output"]
        if not is_paired or not all(map(_is_ordinary, new)):
            return None
        ids = known.call_ids.union(entry.call_id for entry in new if entry.call_id is not None)
        return replace(known, count=starts[-1], call_ids=ids)


def _reports(made: Rendered) -> list[Report]:
    """The reports that may concern a beginning."""
    reports: list[Report] = [*made.losses, *made.repairs]
    return [report for report in reports if report.code not in _OF_THE_END]


def _is_ordinary(entry: ItemEntry) -> bool:
    """Whether an item concerns nothing but its turn."""
    is_known = (
        entry.role in _ROLES if entry.type == "message" else entry.type == "reasoning" or entry.call_id is not None
    )
    is_plain = not entry.codec and (entry.rest is None or not _OF_REQUESTS.search(entry.rest))
    return entry.type in _KINDS and is_known and is_plain and entry.turn != LAYER
