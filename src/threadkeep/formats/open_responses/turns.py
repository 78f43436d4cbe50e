"""The input list: what is sent of each item, and what a handle remembers of it.

A list of items is final when every call in it has its output and nothing that comes later can change how it is sent.
The JSON of a final list is kept, so that the next render only looks at what is new; one that finds anything there that
reaches back (an output for an old call, an id that was used before) looks at the whole list again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.rendering import Loss, Repair
from threadkeep.formats.canonical.entries import ItemEntry, ServerState, Snapshot
from threadkeep.formats.canonical.items import INPUT_VALUES, NAME, wire_item
from threadkeep.formats.open_responses import plan as plans
from threadkeep.formats.open_responses.plan import FastPath, InputPlan, plan_of
from threadkeep.formats.shared.dialects import Dialect
from threadkeep.formats.shared.pairing import LAYER, late_output_message, placeholder_item, placeholder_of
from threadkeep.formats.shared.rendering import news
from threadkeep.formats.shared.reports import LOSSES, Context

KEY: Final = f"{NAME}.input"


@dataclass(frozen=True, slots=True)
class RenderedPrefix:
    """The beginning of an input list, rendered; never changed, for another thread or transaction may go on from it."""

    count: int = 0  # items
    elements: int = 0
    size: int = 0  # bytes
    pieces: list[bytes] = field(default_factory=list)  # the elements; all but the first piece begin with a comma
    losses: Sequence[Loss] = ()
    repairs: Sequence[Repair] = ()
    ids: AbstractSet[bytes] = frozenset()
    call_ids: AbstractSet[str] = frozenset()

    def grown(
        self,
        count: int,
        text: bytes,
        ids: AbstractSet[bytes],
        call_ids: AbstractSet[str],
        items: int,
        tail: Context | None = None,
    ) -> RenderedPrefix:
        """The beginning with `count` elements of what follows, with commas between them, and what its items use."""
        return RenderedPrefix(
            items, self.elements + count, self.size + len(text), self.joined(text),
            self.losses if tail is None else [*self.losses, *tail.losses],
            self.repairs if tail is None else [*self.repairs, *tail.repairs],
            self.ids | ids if ids else self.ids,
            self.call_ids | call_ids if call_ids else self.call_ids,
        )  # fmt: skip

    def joined(self, text: bytes) -> list[bytes]:
        """The pieces with other elements behind them."""
        return [*self.pieces, b"," + text if self.pieces else text] if text else self.pieces


def joined_input(
    entries: Sequence[ItemEntry], context: Context, memo: dict[str, Any] | None, snapshot: Snapshot, dialect: Dialect
) -> tuple[list[bytes], int]:
    """The elements of `input` in pieces, and how many of them no later append changes."""
    own_ids, has_none = dialect.ids, plans.keeps_nothing(snapshot)
    key = _key(dialect, keeps_nothing=has_none)
    prefix = RenderedPrefix() if memo is None else memo.get(key) or RenderedPrefix()
    if prefix.count > len(entries):
        prefix = RenderedPrefix()
    new = entries[prefix.count :] if prefix.count else entries
    path = FastPath(prefix.ids, prefix.call_ids, own_ids, keeps_nothing=has_none, gaps=snapshot.gaps)
    if path.takes(new):
        context.losses += prefix.losses
        context.repairs += prefix.repairs
        prefix = prefix.grown(len(new), path.text, path.ids, path.call_ids, len(entries))
        _remember(prefix, memo, key)
        return prefix.pieces, prefix.elements
    as_came, tail = plans.imported_plan(snapshot), context.apart()
    plan = plan_of(new, as_came, own_ids=own_ids, keeps_nothing=has_none, gaps=snapshot.gaps)
    elements, stable = _rendered(new, plan, tail)
    if prefix.count and (_reaches_back(plan, prefix) or _cleans_names(tail)):  # names depend on all names before
        prefix, tail = RenderedPrefix(), context.apart()
        plan = plan_of(entries, as_came, own_ids=own_ids, keeps_nothing=has_none, gaps=snapshot.gaps)
        elements, stable = _rendered(entries, plan, tail)
    context.losses += [*prefix.losses, *tail.losses]
    context.repairs += [*prefix.repairs, *tail.repairs]
    stable += prefix.elements
    if memo is None or _cleans_names(tail) or not _is_settled(plan, entries):
        return prefix.joined(b",".join(elements)), stable
    text, call_ids = b",".join(elements), plans.used_call_ids(plan)
    prefix = prefix.grown(len(elements), text, plan.ids, call_ids, len(entries), tail)
    _remember(prefix, memo, key)
    return prefix.pieces, stable


def _key(dialect: Dialect, *, keeps_nothing: bool) -> str:
    """Under which key the beginning for a vendor is remembered: what its own ids look like makes a difference."""
    key = f"{KEY} {sorted(dialect.ids.items())}" if dialect.ids else KEY
    return f"{key} anew" if keeps_nothing else key


def _remember(prefix: RenderedPrefix, memo: dict[str, Any] | None, key: str) -> None:
    if memo is not None:
        memo[key] = prefix


def _reaches_back(plan: InputPlan, prefix: RenderedPrefix) -> bool:
    return bool(
        plan.pairing.unknown
        or plan.pairing.orphans
        or not prefix.ids.isdisjoint(plan.ids)
        or not prefix.call_ids.isdisjoint(plans.used_call_ids(plan))
    )


def _cleans_names(context: Context) -> bool:
    return any(repair.code == "name" for repair in context.repairs)


def _is_settled(plan: InputPlan, entries: Sequence[ItemEntry]) -> bool:
    """Whether nothing waits for what comes later: a call for its output, or reasoning for what it leads to."""
    if plan.pairing.unanswered or plan.pairing.hosted:
        return False
    for entry in reversed(entries):
        if entry.type in ("reasoning", plans.TRIGGER):
            return False
        if entry.payload is not None and entry.position not in plan.left_out:
            return True
    return False


def input_of(
    entries: Sequence[ItemEntry], state: ServerState | None, context: Context, snapshot: Snapshot, dialect: Dialect
) -> tuple[list[bytes], int]:
    """The elements of `input` as JSON, and how many of them no later append changes."""
    plan = plan_of(
        entries, plans.imported_plan(snapshot), own_ids=dialect.ids, knows_more=state is not None,
        keeps_nothing=plans.keeps_nothing(snapshot), gaps=snapshot.gaps,
    )  # fmt: skip
    if state is None:
        return _rendered(entries, plan, context)
    shown = news(entries, state)
    here = {entry.position for entry in shown}
    overdue: list[bytes] = []
    for position, calls in plan.placeholders.items():  # for calls that the provider has, and still waits for
        if position not in here:
            waiting = [call for call in calls if call.position > plan.pairing.sent]
            overdue += _placeholders(waiting, plan, context)
    elements, stable = _rendered(shown, plan, context)
    return [*overdue, *elements], stable


def _rendered(entries: Sequence[ItemEntry], plan: InputPlan, context: Context) -> tuple[list[bytes], int]:
    """The items as the plan has them sent, and how many of the elements no later append changes."""
    special = plan.positions()
    elements: list[bytes] = []
    stable = None
    for entry in entries:
        if stable is None and entry.turn == LAYER:
            stable = len(elements)
        # Nothing is to be reported of an item that says no more, or goes back to where it came from
        is_plain = entry.rest is None or (entry.origin == NAME and entry.type not in _LOOKED_AT)
        if entry.payload is not None and entry.position not in special and is_plain:
            elements.append(entry.payload)
            continue
        context.position = entry.position
        if stable is None and entry.position == plan.unsettled:
            stable = len(elements)
        elements.extend(_sent(entry, plan, context))
        elements.extend(_placeholders(plan.placeholders.get(entry.position, ()), plan, context))
    context.position = None
    return elements, len(elements) if stable is None else stable


# items of this format of which something may have to be reported, though they came from it
_LOOKED_AT: Final = frozenset({"function_call", *INPUT_VALUES})


def _sent(entry: ItemEntry, plan: InputPlan, context: Context) -> Iterator[bytes]:
    position = entry.position
    if position in plan.left_out:
        code, detail = plan.left_out[position]
        (context.loss if code in LOSSES else context.repair)(code, "", detail)
    elif position in plan.pairing.late:
        context.late_output(entry)
        yield from _written(late_output_message(entry.item(), plan.pairing.late[position].item()), context)
    elif any(position in ids for ids in (plan.call_ids, plan.answer_ids, plan.idless, plan.not_own, plan.followers)):
        yield from _with_other_ids(entry, plan, context)
    elif entry.rest is None and entry.payload is not None:
        yield entry.payload
    else:
        yield from _written(entry.item(), context)


def _written(item: JsonObject, context: Context) -> Iterator[bytes]:
    element = wire_item(item, context)
    if element is not None:
        yield dumps(element)


def _with_other_ids(entry: ItemEntry, plan: InputPlan, context: Context) -> Iterator[bytes]:
    """An item without an id that is not sent, or with the call id that its call came with."""
    position = entry.position
    call_id = plan.call_ids.get(position) or plan.answer_ids.get(position)
    item = wire_item(entry.item() if call_id is None else {**entry.item(), "call_id": "c"}, context)
    if item is None:
        return
    if call_id is not None:
        item = {**item, "call_id": call_id}
        if position in plan.call_ids:
            context.repair("duplicate_call_id", "call_id", f"The call id {entry.call_id!r} was sent before.")
        elif entry.type in plans.RENAMED:
            context.repair(
                "call_id", "call_id", "The output states its call's id as `call_id`: the service reads that."
            )
    if position in plan.not_own:
        context.repair("item_id", "id", f"The id {item['id']!r} was left out: it is another vendor's.")
    elif position in plan.idless:
        context.repair("duplicate_id", "id", f"The id {item['id']!r} was sent before and was left out here.")
    elif position in plan.followers:
        context.repair("item_id", "id", f"The id {item['id']!r} was left out: the reasoning before it is not sent.")
    if any(position in ids for ids in (plan.idless, plan.not_own, plan.followers)):
        item = {key: value for key, value in item.items() if key != "id"}
    yield dumps(item)


def _placeholders(calls: Sequence[ItemEntry], plan: InputPlan, context: Context) -> Iterator[bytes]:
    for call in calls:
        item = call.item()
        context.missing_output(call, placeholder_of(item))
        call_id = plan.call_ids.get(call.position) or plans.sent_call_id(call)
        yield dumps(placeholder_item(item, call_id))
