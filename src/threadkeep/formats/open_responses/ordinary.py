"""The ordinary case: items that are sent as they are stored, seen with one look at each.

Nearly all conversations are of this kind: no item is mapped, every call is answered in time, all reasoning is followed
by what it led to, no id comes twice. Then nothing is left out, mended or reported, and nothing that comes later changes
anything. For everything else there are the passes of `input`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import methodcaller
from typing import Final

from threadkeep.domain.wire import Entry
from threadkeep.formats.open_responses.fields import LONGEST_CALL_ID
from threadkeep.formats.turns import CALLS, OUTPUTS

ID: Final = b'{"id":"'  # how an item with an id begins, see wire_item
_ID_START: Final = len(ID)
_has_id: Final = methodcaller("startswith", ID)
# item types that no reasoning leads to
NOT_LED_TO: Final = frozenset({"compaction", "item_reference", *OUTPUTS})
TRIGGER: Final = "compaction_trigger"  # a wish that only the last item can be
# item types that say something about items that are not here
_REFERENCES: Final = frozenset({"item_reference", "provider_item", TRIGGER})
TYPE, SEEN, PAYLOAD, REST = map(Entry._fields.index, ("type", "seen", "payload", "rest"))


class Ordinary:
    """A look at the items of a conversation, or at those that follow others.

    Attributes:
        payloads: the items as JSON.
        ids, call_ids: what they use, the ids as they stand in the payloads.
        sent: the last position that a recorded request has shown.
    """

    def __init__(self, ids: Collection[bytes] = (), call_ids: Collection[str] = (), sent: int = -1) -> None:
        self.payloads: Sequence[bytes] = ()
        self.ids: set[bytes] = set()
        self.call_ids: set[str] = set()
        self.sent = sent
        self._used_ids, self._used_call_ids = ids, call_ids
        self._open: dict[tuple[str, str], int] = {}  # kind and id of calls that wait for their outputs -> position

    def takes(self, entries: Sequence[Entry]) -> bool:
        """Whether all of them are sent as they are, whatever comes later."""
        if not entries:
            return True
        columns = list(zip(*entries, strict=True))
        if columns[REST].count(None) != len(entries):
            return False
        self.payloads = columns[PAYLOAD]
        return self._are_new_ids() and self._goes_through(entries, columns[TYPE], columns[SEEN])

    def _are_new_ids(self) -> bool:
        with_ids = list(filter(_has_id, self.payloads))
        self.ids = {payload[: payload.find(b'"', _ID_START)] for payload in with_ids}
        return len(self.ids) == len(with_ids) and self.ids.isdisjoint(self._used_ids)

    def _goes_through(self, entries: Sequence[Entry], kinds: Sequence[str], seens: Sequence[int | None]) -> bool:
        sent, thought = self.sent, None  # reasoning that waits for its follower
        for entry, kind, seen in zip(entries, kinds, seens, strict=True):
            if seen is not None and seen > sent:
                sent = self.sent = seen
            if thought is not None:
                if not _follows(entry, thought):
                    return False
                thought = None
            if kind == "message":
                continue
            if kind == "reasoning":
                thought = entry
            elif not self._pairs(entry, kind):
                return False
        return not self._open and thought is None

    def _pairs(self, entry: Entry, kind: str) -> bool:
        call_id = entry.call_id or ""
        if kind in OUTPUTS:
            call = self._open.pop((OUTPUTS[kind], call_id), None)
            return call is not None and self.sent < call
        if kind in _REFERENCES:
            return False
        if kind in CALLS:
            is_new = call_id not in self._used_call_ids and call_id not in self.call_ids
            self._open[CALLS[kind], call_id] = entry.position
            self.call_ids.add(call_id)
            return is_new and 0 < len(call_id) <= LONGEST_CALL_ID
        return True


def _follows(entry: Entry, thought: Entry) -> bool:
    """Whether reasoning may stand before this item: more reasoning, or what it led to."""
    if entry.turn != thought.turn:
        return False
    return entry.role == "assistant" if entry.type == "message" else entry.type not in NOT_LED_TO
