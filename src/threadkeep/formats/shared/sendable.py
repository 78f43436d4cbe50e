"""Conversations as requests can have them: rows keep what JSON or providers have no form for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from threadkeep.domain.formats import FormatName
from threadkeep.domain.jsontext import PLAIN, JsonObject, encode
from threadkeep.formats.canonical.entries import Entry, changed_entry
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.shared.mending import Mending, Report, is_unicode

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
    """An object as it can be sent; reports name its keys, and those of `extra`."""
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
    entries = [_mended_entry(entry, reports) if entry.codec else entry for entry in snapshot.entries]
    is_same = all(new is old for new, old in zip(entries, snapshot.entries, strict=True))
    return snapshot if is_same else replace(snapshot, entries=entries), reports


def _mended_entry(entry: Entry, reports: list[Report]) -> Entry:
    mending = Mending()
    item = mending.value(entry.item())
    found = mending.reports(entry.position, "")
    reports += found
    if not found and is_unicode(entry.call_id or ""):  # a pair of surrogates is one character in the JSON, not there
        return entry
    return changed_entry(entry, item)
