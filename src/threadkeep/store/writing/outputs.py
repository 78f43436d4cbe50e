"""Outputs of calls that an application appends: each answers a call on its branch that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from threadkeep.domain.items import Item
from threadkeep.domain.options import SERVER_STATE
from threadkeep.errors import Conflict, NotFound, shown
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.shared.pairing import ALL_KINDS, Pairing
from threadkeep.store.reading.calls import entries_with_call_id, paired_by_client
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.item_rows import ItemRecord
from threadkeep.store.work.refs import BranchRef, lock_lineage

_RECENT: Final = 64  # items in which calls are looked for before the database is asked
_HINT: Final = "pending_calls() lists the calls without an output; known=False appends it anyway."


@dataclass(slots=True)
class OutputCheck:
    """The check of the outputs among new items.

    Attributes:
        head: where the branch ends, if what the handle has read shows that calls wait for all outputs; otherwise None.
    """

    handle: Handle
    records: Sequence[ItemRecord]
    head: int | None = None

    @classmethod
    def of(cls, handle: Handle, items: Sequence[Item], records: Sequence[ItemRecord]) -> OutputCheck | None:
        """The check of these items; None if there is no output among them that the application wrote."""
        if not any(item.type in ALL_KINDS.outputs and item.origin is None for item in items):
            return None
        check = cls(handle, records)
        _, entries, following = handle.cache.history()
        pairing = paired_by_client([*entries[-_RECENT:], *check._entries(following)])
        if following == handle.cache.head + 1 and not any(check._unpaired(pairing, following)):
            check.head = handle.cache.head
        return check

    def _entries(self, first: int) -> list[ItemEntry]:
        return [record.entry(first + index, None, None) for index, record in enumerate(self.records)]

    def _unpaired(self, pairing: Pairing, first: int) -> tuple[list[ItemEntry], list[ItemEntry]]:
        """The new outputs whose calls have one already, and those without a call."""
        answered, unknown = (
            [entry for entry in entries if entry.position >= first and entry.origin is None]
            for entries in (pairing.orphans, pairing.unknown)
        )
        return answered, unknown

    def run(self, connection: Connection, ref: BranchRef, first: int) -> None:
        """Refuse outputs that answer no call, in the transaction that has reserved the positions from `first` on.

        Raises:
            NotFound: the branch has no call with that id.
            Conflict: the call has an output already.
        """
        if self.head is not None and first == self.head + 1:  # nothing was appended since
            return
        new = self._entries(first)
        answered, unknown = self._unpaired(paired_by_client(new), first)
        call_ids = {entry.call_id: None for entry in (*answered, *unknown)}
        if not call_ids:
            return
        lineage = lock_lineage(connection, ref)
        known = [entry for id_ in call_ids for entry in entries_with_call_id(connection, ref, lineage, id_)]
        answered, unknown = self._unpaired(paired_by_client([*known, *new]), first)
        if answered:
            raise Conflict(f"The call {shown(answered[0].call_id)} has an output already.", hint=_HINT)
        if unknown and not any(name in self.handle.cache.conversation.settings for name in SERVER_STATE):
            output = unknown[0]
            other = next((entry.type for entry in known if entry.call_id == output.call_id), None)
            problem = f"Branch {ref.branch} of {ref.public_id} has no call {shown(output.call_id)}"
            detail = "." if other is None else f" that a {output.type} answers: it is of a {other}."
            raise NotFound(problem + detail, hint=_HINT)
