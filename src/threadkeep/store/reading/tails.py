"""Reading the end of a branch: what a request with a window is rendered from, however long the branch is.

Items are read from the end in pages until there are as many turns as the window shows. Three things lie before them:
system messages and compactions, which have an index of their own; calls that outputs in the window answer, which are
found by their ids; and the number of turns, which decides where a window of several steps begins.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from sqlalchemy import Connection

from threadkeep.db.queries import histories, items
from threadkeep.domain import ids, rendering
from threadkeep.formats.canonical.entries import ItemEntry, ServerState, Snapshot
from threadkeep.formats.shared import views
from threadkeep.formats.shared.pairing import ALL_KINDS, paired, upto
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.reading.history import read_state, reopen_conversation
from threadkeep.store.work import caches, item_rows, refs, validation

LONG: Final = 1_000  # positions; shorter histories are read as a whole, and cached
PAGE: Final = 64  # items of the first page; each has twice as many as the one before
_IDS: Final = 500  # call ids in one statement


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a branch, with what belongs to it from before; `head` is the position of the newest item."""

    conversation: refs.ConversationState
    entries: Sequence[ItemEntry]
    turns_before: int
    head: int
    state: ServerState | None

    def snapshot(self) -> Snapshot:
        """What requests are rendered from."""
        conversation = self.conversation
        return Snapshot(
            conversation.settings, conversation.tools, self.entries, self.state, conversation.imported,
            shared=conversation.format_cache, turns_before=self.turns_before, configured=conversation.hashes,
        )  # fmt: skip


def read_tail(
    connection: Connection,
    ref: refs.BranchRef,
    configs: caches.ConfigCache,
    conversation: refs.ConversationState,
    window: rendering.Turns,
    format_name: str,
    media: MediaForm,
    *,
    options: rendering.RenderOptions | None = None,
    page: int = PAGE,
) -> Tail | None:
    """What a request with this window shows of a branch; None where only the whole branch can tell.

    `options`: what else the request is rendered with; `page`: how many items are read first.
    """
    while True:
        if not conversation.is_outdated:
            asked = (options or rendering.RenderOptions(), format_name)
            reader = _TailReader(connection, ref, conversation, media, page, asked)
            tail = reader.read(window)
            if reader.revisions <= {conversation.row.revision}:
                return tail
        # something was changed or removed meanwhile
        conversation = reopen_conversation(connection, ref, configs, ref.branch)


class _TailReader:
    """Reads a branch from its end."""

    def __init__(
        self,
        connection: Connection,
        ref: refs.BranchRef,
        conversation: refs.ConversationState,
        media: MediaForm,
        page: int,
        asked: tuple[rendering.RenderOptions, str],
    ) -> None:
        self._connection, self._ref, self._conversation, self._media = connection, ref, conversation, media
        self.revisions: set[int] = set()  # of the conversation, as the statements saw it
        self._lineage = refs.Lineage(conversation.lineage.parts, validation.MAX_POSITION)
        self._unread: list[refs.Span] = []  # spans before what was read
        self._entries: list[ItemEntry] = []  # what was read
        self._limit = page
        self._asked = asked  # options and format of the request

    def read(self, window: rendering.Turns) -> Tail | None:
        """The items of a window; None as above."""
        # first: the revision then shows that none of them was removed meanwhile
        marks, next_position = self._read_marks()
        self._unread = self._lineage.spans(self._ref.branch, -1, next_position - 1)  # marks behind are unknown
        most = window.count + window.step - 1
        compaction = self._read_turns(most, marks)
        covered = _covered(compaction)
        if not all(views.compaction_of(mark).stands_alone for mark in self._about(marks) if mark.type != views.UNDONE):
            return None
        turns = self._turns(covered)
        start = self._first_turn(turns[-most], covered) if len(turns) > most else covered + 1
        is_counted = window.step > 1 and start > covered + 1
        before = self._count_turns(covered, start - 1) if is_counted else 0
        # Compactions, none of which is in force: some of them part what users say
        has_others = compaction is None and any(entry.type in views.KINDS for entry in (*marks, *self._entries))
        if not self._entries or min(start, before) < 0 or (is_counted and has_others):
            return None
        head = self._entries[-1].position
        state = read_state(self._connection, self._ref, self._conversation, head)
        return Tail(self._conversation, self._entries_from(start, marks, compaction), before, head, state)

    def _read_turns(self, most: int, marks: Sequence[ItemEntry]) -> views.AppliedCompaction | None:
        """Read until there are more turns than that, or no items left; returns the compaction in force."""
        while True:
            compaction = self._compaction(marks)  # which may be among what was read now
            covered = _covered(compaction)
            if self._reaches(covered) or len(self._turns(covered)) > most:
                return compaction
            self._read_page()

    def _entries_from(
        self, start: int, marks: Sequence[ItemEntry], compaction: views.AppliedCompaction | None
    ) -> list[ItemEntry]:
        """The items from a position on, with system messages and the compaction in force from before."""
        kept = [mark for mark in upto(marks, start - 1) if mark.type not in views.KINDS]
        if compaction is not None and compaction.entry.position < start:
            insort(kept, compaction.entry)
        return [*kept, *(entry for entry in self._entries if entry.position >= start)]

    def _compaction(self, marks: Sequence[ItemEntry]) -> views.AppliedCompaction | None:
        """The compaction in force, as far as is known."""
        about = self._about(marks)
        if not about:
            return None
        conversation = self._conversation
        known = Snapshot(conversation.settings, (), self._entries, imported=conversation.imported)
        return views.CompactionReader.of(known, *self._asked).in_force(about)

    def _about(self, marks: Sequence[ItemEntry]) -> list[ItemEntry]:
        """The items about compactions that are known."""
        first = self._entries[0].position if self._entries else validation.MAX_POSITION
        return [entry for entry in [*upto(marks, first - 1), *self._entries] if entry.type in views.KINDS]

    def _reaches(self, covered: int) -> bool:
        """Whether everything behind a position was read."""
        return not self._unread or (bool(self._entries) and self._entries[0].position <= covered + 1)

    def _turns(self, covered: int) -> list[int]:
        """The positions behind another one at which turns begin that were read as a whole."""
        said = [entry for entry in self._entries if entry.type not in views.KINDS]
        starts = [said[index].position for index in views.turn_starts(said) if index or not self._unread]
        return [start for start in starts if start > covered]

    def _first_turn(self, start: int, covered: int) -> int:
        """Where the turn begins that has the first call that an output from `start` on answers; -1 if ids do not tell.

        What it has not read of that is read. Calls that a compaction covers do not count.
        """
        if (earliest := self._first_call(start, covered)) < 0:
            return -1
        turns = self._turns(covered)
        while turns[0] > earliest and not self._reaches(covered):
            self._read_page()
            turns = self._turns(covered)
        return max((turn for turn in turns if turn <= earliest), default=covered + 1)

    def _first_call(self, start: int, covered: int) -> int:
        """The position of the first call that an output from `start` on answers; `start` if it is behind that."""
        pairing = paired([entry for entry in self._entries if entry.position >= start], kinds=ALL_KINDS)
        unmatched = sorted([*pairing.orphans, *pairing.unknown])
        if not all(output.call_id for output in unmatched):
            return -1
        hashes = sorted({hash_ for output in unmatched if (hash_ := ids.short_hash(output.call_id)) is not None})
        earlier: list[ItemEntry] = []
        for first in range(0, len(hashes), _IDS):
            parameters = self._ref.parameters(hashes=hashes[first : first + _IDS], after=covered, upto=start - 1)
            earlier += [
                ItemEntry(row.position, row.type, turn=row.turn, seen=row.seen, call_id=row.call_id)
                for row in self._connection.execute(items.earlier_with_call_ids(), parameters)
                if self._lineage.includes(self._ref.branch, row.position, row.branch)
            ]
        pairing = paired([*sorted(earlier), *unmatched], kinds=ALL_KINDS)
        answered = {**pairing.calls, **pairing.late}
        return min([start, *(answered[one.position].position for one in unmatched if one.position in answered)])

    def _count_turns(self, after: int, upto: int) -> int:
        """How many turns begin between two positions; -1 where the branch has too many parts to tell."""
        ranges = self._lineage.ranges(self._ref.branch, after, upto)
        if len(ranges) > refs.MAX_RANGES:
            return -1
        count, parameters = refs.range_parameters(ranges)
        statement = items.turns_in(count, views.KINDS)
        found: int = self._connection.execute(statement, parameters | self._ref.parameters()).scalar_one()
        return found

    def _read_page(self) -> None:
        """Read the items before those that were read."""
        connection, (branch, after, upto, _) = self._connection, self._unread.pop()
        parameters = self._ref.scope.parameters(key=self._ref.key, branch=branch, after=after, upto=upto)
        statement = items.page_before(scoped=self._ref.scope.user is not None)
        rows = statement.fetch_all(connection, parameters | {"limit": self._limit})
        self.revisions.add(rows[0][item_rows.ENTRY_WIDTH] if rows else refs.get_row(connection, self._ref).revision)
        keeps = self._lineage.keeps()
        found = [row for row in reversed(rows) if keeps(row[0])]
        self._entries[:0] = item_rows.decode_entries(connection, self._ref, found, media=self._media)
        if len(rows) == self._limit:
            self._unread.append(refs.Span(branch, after, rows[-1][0] - 1))
        self._limit *= 2

    def _read_marks(self) -> tuple[list[ItemEntry], int]:
        """The items of the branch that requests may need from anywhere, and the next position at that time."""
        connection, ref, includes = self._connection, self._ref, self._lineage.includes
        statement = histories.marks_of(scoped=ref.scope.user is not None)
        rows = sorted(statement.fetch_all(connection, ref.scope.parameters(key=ref.key)), key=itemgetter(0))
        if not rows or rows[0][0] != histories.HEAD:
            raise ref.not_found()
        next_position: int = rows[0][ItemEntry._fields.index("seen")]
        found = [row for row in rows[1:] if includes(ref.branch, row[0], row[item_rows.ENTRY_WIDTH])]
        return item_rows.decode_entries(connection, ref, found, media=self._media), next_position


def _covered(compaction: views.AppliedCompaction | None) -> int:
    return -1 if compaction is None else compaction.upto
