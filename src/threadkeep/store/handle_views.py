"""Plans of a conversation about what a request shows: rendering, replaying an earlier request, compaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.items import Compaction, item_from, item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.wire import (
    Format,
    Rendered,
    RenderOptions,
    Repair,
    Snapshot,
    get_format,
    recorded_options,
)
from threadkeep.errors import InvalidItem, InvalidOption
from threadkeep.formats.wire_format import WITH_CACHES
from threadkeep.store.actions.compacting import Compacted, Compacting, compact
from threadkeep.store.actions.items import item_id_of
from threadkeep.store.actions.loading import Loaded, load
from threadkeep.store.actions.replaying import Replay, replay
from threadkeep.store.handle_caches import Caches
from threadkeep.store.place import MAX_POSITION, Configuration, once, whole
from threadkeep.store.plans import Plan, Steps, Work
from threadkeep.store.requests import How, View, guard_of, render_options

NOT_RECORDED: Final = "No request that ended here was recorded: it was rendered with today's options and tools."


class Views(Caches):
    """What a request shows."""

    def _rendering(self, format: str, view: View) -> Plan[Rendered] | Work[Rendered]:
        wire, options = get_format(format), render_options(view)
        if options.upto is not None:
            return self._replaying(format, view)
        if options.cache is not None and format in WITH_CACHES:
            return Work(self._rendering_with_cache(wire, options))
        state = self._state

        def finish(loaded: Loaded) -> Rendered:
            return _named(wire.render(state.absorb(loaded), options), state.found.configured)

        return Plan(load, (self._place, self._contents, state.found, state.next_position), finish)

    def _rendering_with_cache(self, wire: Format, options: RenderOptions) -> Steps[Rendered]:
        found = yield from self._rendering_cached(wire, options)
        return _named(found, self._state.found.configured)

    def _replaying(self, format: str, view: View) -> Plan[Rendered]:
        """The request of an earlier turn, with the options and tools of that time where it was recorded."""
        wire, state = get_format(format), self._state
        position = whole("upto", view.get("upto"), MAX_POSITION)

        def finish(found: Replay) -> Rendered:
            snapshot, options = state.absorb(found.loaded), render_options(view)
            if found.view is None:
                rendered = wire.render(_at_that_time(snapshot, found), options)
                rendered.repairs.append(Repair("not_recorded", None, "upto", NOT_RECORDED))
                return _named(rendered, found.configured)
            others: dict[str, Any] = {name: value for name, value in view.items() if name != "upto"}
            options = replace(recorded_options(found.view), upto=position, **others)
            return _named(wire.render(_at_that_time(snapshot, found), options), found.configured)

        arguments = (self._place, self._contents, state.found, state.next_position, position)
        return Plan(replay, arguments, finish)

    def _compacting(self, upto: int | None, summary: str | None, item: object, how: How) -> Plan[StoredItem]:
        position = None if upto is None else whole("upto", upto, MAX_POSITION)
        return self._marking("compact", _compaction(summary, item), position, how)

    def _undoing_compaction(self, how: How) -> Plan[StoredItem]:
        return self._marking("undo_compaction", None, None, how)

    def _marking(self, method: str, item: JsonObject | None, upto: int | None, how: How) -> Plan[StoredItem]:
        key = once(how.get("idempotency_key"), method, {"item": item, "upto": upto}) if how else None
        what = Compacting(item, upto, key, guard_of(how))

        def finish(done: Compacted) -> StoredItem:
            found = done.appended
            if done.draft is not None and found.branch == self.branch:
                self._state.appended([done.draft], found.first, found.revision)
            return StoredItem(
                id=item_id_of(self._place, found.first),
                position=found.first,
                branch=found.branch,
                turn=None,
                item=item_from_object(done.item),
                replayed=found.is_replayed,
            )

        return self._writing(compact, what, finish=finish, is_keyed=key is not None)


def _named(rendered: Rendered, configured: Configuration) -> Rendered:
    """A request that says with which options and tools it was rendered, though they may change before its answer."""
    rendered.configured = configured
    return rendered


def _at_that_time(snapshot: Snapshot, found: Replay) -> Snapshot:
    """The conversation with the options and tools of an earlier request."""
    return replace(
        snapshot, settings=found.settings, tools=found.tools, state=found.state, imported=found.imported, memo=None,
        shared={},
    )  # fmt: skip


def _compaction(summary: object, item: object) -> JsonObject:
    """The item of a compaction.

    Raises:
        InvalidOption: neither a summary nor an item is given, or both.
        InvalidItem: the item is no compaction.
    """
    if (summary is None) is (item is None):
        raise InvalidOption("Give summary= (text) or item= (a provider's compaction item), one of them.")
    if summary is not None:
        if not isinstance(summary, str) or not summary.strip():
            raise InvalidOption(f"summary is text that says something, not {summary!r}.")
        return {"type": "compaction", "summary": summary}
    found = item_from(dict(item) if isinstance(item, Mapping) else item)
    if not isinstance(found, Compaction):
        raise InvalidItem(f"item= is an item of type compaction, not of type {found.type!r}.")
    return {"origin": "open_responses", **found.to_object()}
