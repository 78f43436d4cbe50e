"""What a handle remembers of a rendered input list, so that the next render only looks at what is new.

A list of items is settled when every call in it has its output and nothing that comes later can change how it is sent.
The JSON of a settled list is kept; a render that finds anything in the new items which reaches back (an output for an
old call, an id that was used before) looks at the whole list again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.wire import Entry, Loss, Repair, Snapshot
from threadkeep.formats.open_responses.fields import NAME
from threadkeep.formats.open_responses.input import rendered_elements
from threadkeep.formats.open_responses.ordinary import TRIGGER, Ordinary
from threadkeep.formats.open_responses.plan import Plan, as_imported, planned, used_call_ids
from threadkeep.formats.reports import Context

KEY: Final = f"{NAME}.input"


@dataclass(slots=True)
class Settled:
    """The beginning of an input list, rendered."""

    count: int = 0  # items
    elements: int = 0
    pieces: list[bytes] = field(default_factory=list)  # the elements; all but the first piece begin with a comma
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    ids: set[bytes] = field(default_factory=set)
    call_ids: set[str] = field(default_factory=set)
    sent: int = -1  # the last position that a recorded request has shown

    def grow(self, text: bytes, count: int, elements: int) -> None:
        """Take in the elements of what follows; now there are so many items and elements."""
        self.pieces = _joined(self.pieces, text)
        self.count, self.elements = count, elements


def joined_input(
    entries: Sequence[Entry], context: Context, memo: dict[str, Any] | None, snapshot: Snapshot
) -> tuple[list[bytes], int, int]:
    """The elements of `input` in pieces, how many there are, and how many of them no later append changes."""
    # Taken out while it is used: another thread finds none and renders everything.
    settled = Settled() if memo is None else memo.pop(KEY, None) or Settled()
    if settled.count > len(entries):
        settled = Settled()
    new = entries[settled.count :] if settled.count else entries
    look = Ordinary(settled.ids, settled.call_ids, settled.sent)
    if look.takes(new):
        return _with_ordinary(settled, look, len(entries), context, memo)
    as_came = as_imported(snapshot)
    plan = planned(new, as_came)
    if settled.count and _reaches_back(plan, settled):
        settled, new = Settled(), entries
        plan = planned(new, as_came)
    tail = Context(context.names, context.tools)
    elements, stable = rendered_elements(new, plan, tail)
    if settled.count and _cleans_names(tail):  # which depends on all names before
        settled, new, tail = Settled(), entries, Context(context.names, context.tools)
        plan = planned(new, as_came)
        elements, stable = rendered_elements(new, plan, tail)
    context.losses += [*settled.losses, *tail.losses]
    context.repairs += [*settled.repairs, *tail.repairs]
    count, stable = settled.elements + len(elements), settled.elements + stable
    text = b",".join(elements)
    if memo is None or _cleans_names(tail) or not _is_settled(plan, entries):
        return _joined(settled.pieces, text), count, stable
    settled.grow(text, len(entries), count)
    settled.sent = max(settled.sent, plan.pairing.sent)
    settled.losses += tail.losses
    settled.repairs += tail.repairs
    settled.ids |= plan.ids
    settled.call_ids |= used_call_ids(plan)
    memo[KEY] = settled
    return settled.pieces, count, stable


def _with_ordinary(
    settled: Settled, look: Ordinary, count: int, context: Context, memo: dict[str, Any] | None
) -> tuple[list[bytes], int, int]:
    context.losses += settled.losses
    context.repairs += settled.repairs
    elements = settled.elements + len(look.payloads)
    text = b",".join(look.payloads)
    if memo is None:
        return [text], elements, elements
    settled.grow(text, count, elements)
    settled.ids |= look.ids
    settled.call_ids |= look.call_ids
    settled.sent = look.sent
    memo[KEY] = settled
    return settled.pieces, elements, elements


def _joined(before: list[bytes], text: bytes) -> list[bytes]:
    """A new list, for another thread may go on from the old one."""
    return [*before, b"," + text if before else text] if text else before


def _reaches_back(plan: Plan, settled: Settled) -> bool:
    pairing = plan.pairing
    return bool(
        pairing.unknown
        or pairing.orphans
        or not settled.ids.isdisjoint(plan.ids)
        or not settled.call_ids.isdisjoint(used_call_ids(plan))
    )


def _cleans_names(context: Context) -> bool:
    return any(repair.code == "name" for repair in context.repairs)


def _is_settled(plan: Plan, entries: Sequence[Entry]) -> bool:
    """Whether nothing waits for what comes later: a call for its output, or reasoning for what it leads to."""
    if plan.pairing.unanswered:
        return False
    for entry in reversed(entries):
        if entry.type in ("reasoning", TRIGGER):
            return False
        if entry.payload is not None and entry.position not in plan.left_out:
            return True
    return False
