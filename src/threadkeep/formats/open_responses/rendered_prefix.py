"""What a handle remembers of a rendered input list, so that the next render only looks at what is new.

A list of items is final when every call in it has its output and nothing that comes later can change how it is sent.
The JSON of a final list is kept; a render that finds anything in the new items that reaches back (an output for an
old call, an id that was used before) looks at the whole list again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.rendering import Loss, Repair
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.keys import NAME
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.open_responses.plan import (
    TRIGGER,
    FastPath,
    InputPlan,
    imported_plan,
    plan_of,
    used_call_ids,
)
from threadkeep.formats.open_responses.turns import rendered_elements
from threadkeep.formats.shared.reports import Context

KEY: Final = f"{NAME}.input"


@dataclass(slots=True)
class RenderedPrefix:
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
    prefix = RenderedPrefix() if memo is None else memo.pop(KEY, None) or RenderedPrefix()
    if prefix.count > len(entries):
        prefix = RenderedPrefix()
    new = entries[prefix.count :] if prefix.count else entries
    path = FastPath(prefix.ids, prefix.call_ids, prefix.sent)
    if path.takes(new):
        return _along_fast_path(prefix, path, len(entries), context, memo)
    as_came, tail = imported_plan(snapshot), context.apart()
    plan = plan_of(new, as_came)
    elements, stable = rendered_elements(new, plan, tail)
    if prefix.count and (_reaches_back(plan, prefix) or _cleans_names(tail)):  # names depend on all names before
        prefix, tail = RenderedPrefix(), context.apart()
        plan = plan_of(entries, as_came)
        elements, stable = rendered_elements(entries, plan, tail)
    context.losses += [*prefix.losses, *tail.losses]
    context.repairs += [*prefix.repairs, *tail.repairs]
    count, stable = prefix.elements + len(elements), prefix.elements + stable
    text = b",".join(elements)
    if memo is None or _cleans_names(tail) or not _is_settled(plan, entries):
        return _joined(prefix.pieces, text), count, stable
    prefix.grow(text, len(entries), count)
    prefix.sent = max(prefix.sent, plan.pairing.sent)
    prefix.losses += tail.losses
    prefix.repairs += tail.repairs
    prefix.ids |= plan.ids
    prefix.call_ids |= used_call_ids(plan)
    memo[KEY] = prefix
    return prefix.pieces, count, stable


def _along_fast_path(
    prefix: RenderedPrefix, path: FastPath, count: int, context: Context, memo: dict[str, Any] | None
) -> tuple[list[bytes], int, int]:
    context.losses += prefix.losses
    context.repairs += prefix.repairs
    elements = prefix.elements + len(path.payloads)
    text = b",".join(path.payloads)
    if memo is None:
        return [text], elements, elements
    prefix.grow(text, count, elements)
    prefix.ids |= path.ids
    prefix.call_ids |= path.call_ids
    prefix.sent = path.sent
    memo[KEY] = prefix
    return prefix.pieces, elements, elements


def _joined(before: list[bytes], text: bytes) -> list[bytes]:
    """A new list, for another thread may go on from the old one."""
    return [*before, b"," + text if before else text] if text else before


def _reaches_back(plan: InputPlan, prefix: RenderedPrefix) -> bool:
    pairing = plan.pairing
    return bool(
        pairing.unknown
        or pairing.orphans
        or not prefix.ids.isdisjoint(plan.ids)
        or not prefix.call_ids.isdisjoint(used_call_ids(plan))
    )


def _cleans_names(context: Context) -> bool:
    return any(repair.code == "name" for repair in context.repairs)


def _is_settled(plan: InputPlan, entries: Sequence[Entry]) -> bool:
    """Whether nothing waits for what comes later: a call for its output, or reasoning for what it leads to."""
    if plan.pairing.unanswered:
        return False
    for entry in reversed(entries):
        if entry.type in ("reasoning", TRIGGER):
            return False
        if entry.payload is not None and entry.position not in plan.left_out:
            return True
    return False
