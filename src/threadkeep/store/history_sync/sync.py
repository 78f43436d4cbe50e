"""Bringing a conversation up to date with a client's history: what is new is appended, what differs branches off."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, select

from threadkeep.db.models import branches, responses
from threadkeep.db.queries.items import first_positions
from threadkeep.domain import formats, searching, stored
from threadkeep.domain.items import Message
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.session import Session
from threadkeep.errors import FormatError, NotFound
from threadkeep.formats.canonical.entries import ItemEntry, entry_of
from threadkeep.formats.shared.parsing import CUT_OFF
from threadkeep.store.history_sync.client_history import ClientHistory, HistoryDelta, is_about
from threadkeep.store.history_sync.compactions import CompactedHistory
from threadkeep.store.reading.history import is_held
from threadkeep.store.work import item_rows, positions
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import BranchRef, Lineage, get_row, lineage_from, root_lineage
from threadkeep.store.writing.appending import NewItems
from threadkeep.store.writing.importing import Continuation, append_to_history, provider_json

if TYPE_CHECKING:
    from threadkeep.store.conversation import Conversation
    from threadkeep.store.store import Store

# How many branches are looked at of which a client may have the end, but not the beginning; the newest ones
CUT_HISTORIES: Final = 10

Parts = Sequence[tuple[int, int, int]]


def sync_request(handle: Handle, payload: Any, format: str, options: positions.AppendOptions) -> stored.SyncResult:
    """Append what is new in the history of a client's request; see `Conversation.sync_request`."""
    value = provider_json(payload)
    session = formats.get_format(format).parse_request(value)
    client, compacted = ClientHistory(session), CompactedHistory.of(session)
    key = positions.idempotency_key(options, "sync_request", {"payload": value, "format": format})
    initial_id = handle.cache.conversation.settings.get("previous_response_id")

    def continue_(
        connection: Connection, ref: BranchRef, entries: Sequence[ItemEntry], *, is_latest: bool
    ) -> Continuation:
        history = compacted or CompactedHistory.known(session, entries)
        if history is not None and not client.compare(entries, ()).is_all:
            if (arranged := history.arranged(entries)) is not None:
                return _compare(connection, ref, history.following, *arranged, is_latest=is_latest)
            if (new := history.continuation(entries)) is not None:
                return Continuation(ref, new, {"kind": "sync", "matched": 0, "branched_at": None})
        start = _start(connection, ref, client, entries, initial_id)
        found = _compare(connection, ref, client, entries, start, is_latest=is_latest)
        new = None if found.fork_at is None else _compaction(connection, ref, session, entries)
        return found if new is None else Continuation(ref, new, {"kind": "sync", "matched": 0, "branched_at": None})

    items, result, outcome = append_to_history(handle, options, key, continue_, is_planned=True)
    matched, branched_at = outcome["matched"], outcome["branched_at"]
    return stored.SyncResult(matched, len(items), branched_at, result.branch, items, replayed=result.is_replayed)


def _compare(
    connection: Connection,
    ref: BranchRef,
    client: ClientHistory,
    entries: Sequence[ItemEntry],
    start: int,
    *,
    is_latest: bool,
) -> Continuation:
    """Finds the branch that a client's history continues, and what is new in it.

    A history that differs goes on on a branch that it has all of, else on a new one from where it differs: on the
    branch that has most of it, so that nothing is stored twice.
    """
    cut_off = _cut_off(connection, ref)
    delta = client.compare(entries[start:], cut_off, may_begin_later=not start)
    if delta.is_all:
        return _continuation(ref, delta)
    if client.has_conversation:  # the provider holds the history: all that is sent is new
        return _continuation(ref, client.compare((), cut_off, may_begin_later=False))
    kept = entries[: start + delta.kept]
    position = _end_of(kept)
    lineages = _read_lineages(connection, ref)
    base, found = ref, delta
    for number, shared in _possible_branches(connection, ref, client, lineages, position, cut_off):
        if start and shared < entries[start - 1].position:  # it has not what the client's history follows
            continue
        following = item_rows.read_branch(connection, ref.on(number), lineages[number], shared, is_latest=is_latest)
        history = [*(entry for entry in kept if entry.position <= shared), *following]
        other = client.compare(history[start:], cut_off, may_begin_later=not start)
        if (other.matched, other.is_all) > (found.matched, found.is_all):
            base, found = ref.on(number), other
            position = _end_of(history[: start + other.kept])
        if found.is_all and not found.new.items:
            break
    if found.is_all:
        return _continuation(base, found)
    return _continuation(base, found, position, max(lineages) + 1)


def _compaction(
    connection: Connection, ref: BranchRef, session: Session, entries: Sequence[ItemEntry]
) -> NewItems | None:
    """The compaction that a history begins with which differs from what is stored, and what follows; None for none."""
    history = CompactedHistory.summarized(session, entries)
    new = None if history is None else history.continuation(entries)
    history = None if new is not None else CompactedHistory.marked(session)
    return new if history is None else history.kept(entries, _cut_off(connection, ref))


def _cut_off(connection: Connection, ref: BranchRef) -> set[int]:
    """The last positions of interrupted responses, of which a client may have seen more or less."""
    table = responses.c
    statement = select(table.to_position).where(*ref.rows_of(table), table.status.in_(CUT_OFF))
    return set(connection.execute(statement).scalars())


def _end_of(entries: Sequence[ItemEntry]) -> int:
    return entries[-1].position if entries else -1


def _continuation(
    ref: BranchRef, delta: HistoryDelta, fork_at: int | None = None, new_branch: int | None = None
) -> Continuation:
    outcome = {"kind": "sync", "matched": delta.matched, "branched_at": fork_at}
    return Continuation(ref, delta.new, outcome, fork_at, new_branch)


def _read_lineages(connection: Connection, ref: BranchRef) -> dict[int, Lineage]:
    """Return the lineages of the branches, newest first."""
    statement = (
        select(branches.c.number, branches.c.lineage, branches.c.head_position)
        .where(*ref.rows_of(branches.c))
        .order_by(branches.c.number.desc())
    )
    lineages = {row.number: lineage_from(row) for row in connection.execute(statement)}
    return {**lineages, 0: root_lineage(get_row(connection, ref))}


def _possible_branches(
    connection: Connection,
    ref: BranchRef,
    client: ClientHistory,
    lineages: Mapping[int, Lineage],
    position: int,
    cut_off: Collection[int],
) -> Iterator[tuple[int, int]]:
    """The branches that may have more of a client's history than this one up to a position.

    Each with how far it is the same as this one. What follows there is judged by its first and its last item. The
    client must have the first one; or the last one, if it only has the end of a branch. Of branches of which it has
    one of both, some are looked at.
    """
    own = lineages[ref.branch].ranges(ref.branch, -1, position)
    places = {
        number: _shared(own, lineage.ranges(number, -1, position))
        for number, lineage in lineages.items()
        if number != ref.branch
    }
    # The first and the last position of each branch after a place
    rows = connection.execute(first_positions(), ref.parameters(after=min(places.values(), default=position)))
    firsts = {row.branch: row.first for row in rows}
    ends = {
        number: _ends(firsts, lineages[number].ranges(number, place, lineages[number].head))
        for number, place in places.items()
    }
    positions = {end for pair in ends.values() for end in pair if end is not None} - set(cut_off)
    texts = item_rows.read_texts(connection, ref, positions)
    is_said: dict[int | None, bool] = {at: client.may_say(item) for at, item in texts.items()}
    left = {True: CUT_HISTORIES, False: CUT_HISTORIES}
    for number, place in places.items():
        first, last = ends[number]
        has_first, has_last = is_said.get(first, True), is_said.get(last, True)
        if place < position and (last is None or not has_first):
            continue
        if has_first != has_last:
            left[has_first] -= 1
        if (has_first and has_last) or (has_first != has_last and left[has_first] >= 0):
            yield number, place


def _shared(parts: Parts, others: Parts) -> int:
    """Return the last position up to which two branches are made of the same parts; -1 if they share nothing."""
    shared = -1
    for (branch, after, upto), other in zip(parts, others, strict=False):
        if (branch, after) != other[:2]:
            break
        shared = min(upto, other[2])
        if upto != other[2]:
            break
    return shared


def _ends(firsts: Mapping[int, int], parts: Parts) -> tuple[int | None, int | None]:
    """Return the first and the last position of the parts of a branch; None where they have none, or it is unknown."""
    if not parts:
        return None, None
    branch, after, upto = parts[0]
    first = firsts.get(branch)
    return first if first is not None and after < first <= upto else None, parts[-1][2]


def _start(
    connection: Connection, ref: BranchRef, client: ClientHistory, entries: Sequence[ItemEntry], initial_id: str | None
) -> int:
    """How many of the stored items come before those that the client's history has.

    `initial_id` names the response that the conversation itself began with.
    """
    previous_id = client.previous_response_id
    if previous_id is None and not client.has_conversation:
        return 0
    boundary = _find_boundary(connection, ref, entries, previous_id)
    if boundary is not None:
        return sum(entry.position <= boundary for entry in entries)
    return 0 if previous_id is None or previous_id == initial_id else len(entries)


def _find_boundary(
    connection: Connection, ref: BranchRef, entries: Sequence[ItemEntry], previous_id: str | None
) -> int | None:
    """Return where the response with that id ends on this branch; without an id, the latest response."""
    table = responses.c
    statement = (
        select(table.provider_response_id, table.from_position, table.to_position)
        .where(*ref.rows_of(table), *is_held(table))
        .order_by(table.number.desc())
    )
    positions = {entry.position for entry in entries}
    for row in connection.execute(statement):
        is_named = previous_id is None or row.provider_response_id == previous_id
        if is_named and (row.to_position in positions or row.to_position < row.from_position):
            boundary: int = row.to_position
            return boundary
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Finding the conversation that a client's history goes on with, where the client does not name it

BEGINNING: Final = "begins-with"  # the label with which conversations are found by how they begin
_CANDIDATES: Final = 20  # conversations that begin alike and are compared with a history; the newest ones
_LONG: Final = 40  # characters of an answer, so that it is hardly by chance that another history has it
_RESPONSES: Final = 1000  # of a conversation that is compared, among which those are that broke off
_CHOICES: Final = frozenset({"choices", "candidates"})  # keys of bodies with answers to choose from
_ANSWERS: Final = frozenset({"reasoning", "function_call", "custom_tool_call"})  # types of items of a model


def beginning_of(session: Session) -> str | None:
    """Return the value of the label BEGINNING for a history; None if a user says nothing in it.

    Blocks that programs add do not count, unless there is nothing else.
    """
    first = None
    for item in session.items:
        value = item.to_object()
        if value.get("type") == "message" and value.get("role") == "user":
            texts = _texts_of(value.get("content"))
            if words := [text for text in texts if not searching.is_added(text)]:
                return short_digest("".join(words))
            first = first or short_digest("".join(texts))
    return first


def short_digest(text: str) -> str:
    """Return 32 characters that stand for a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def find_by_history(store: Store, session: Session, asked: Container[str] = ()) -> Conversation | None:
    """Return the one conversation that a client's history agrees with most; None if no other one agrees less.

    An answer must agree, not only a question that many may ask, unless nothing was answered yet. Ids of calls that were
    answered count more than what is the same in many histories. `asked` are the ids of conversations in which calls are
    being answered.
    """
    beginning = beginning_of(session)
    if beginning is None:
        return None
    page = store.list_conversations(labels={BEGINNING: beginning}, limit=_CANDIDATES)
    if not len(page):
        return _find_compacted(store, session, page)
    history = ClientHistory(session)
    agreements = [(ComparedHistory(one, history, is_asked=one.id in asked).agreement, one) for one in page]
    best = max((agreed for agreed, _ in agreements), default=(0, 0))
    found = [conversation for agreed, conversation in agreements if agreed == best]
    if best[1]:
        return found[0] if len(found) == 1 else None
    return _find_compacted(store, session, page) or _find_rearranged(session, page)


def _find_compacted(store: Store, session: Session, page: Iterable[Conversation]) -> Conversation | None:
    """Return the one conversation of which a history has a summary and then the end; None for none or several.

    On a page are those that begin with that summary, for their clients; if none of them has it, it is new.
    """
    history = CompactedHistory.marked(session)
    if history is None:
        return None
    found = [one for one in page if history.arranged(_entries_of(one)) is not None]
    if not found:
        newest = store.list_conversations(limit=_CANDIDATES)
        found = [one for one in newest if history.kept(_entries_of(one), ()) is not None]
    return found[0] if len(found) == 1 else None


def _find_rearranged(session: Session, page: Iterable[Conversation]) -> Conversation | None:
    """Return the one conversation whose last answer ends an answer in a history that has other turns before it.

    Its client has put these elsewhere, or reasoning into its answers; None for none, several and short answers.
    """
    said = [item.text.rstrip() for item in session.items if isinstance(item, Message) and item.role == "assistant"]
    found = []
    for conversation in page if said else ():
        ends = {one.to_position for one in conversation.responses(limit=_RESPONSES) if one.status not in CUT_OFF}
        last = [one.item.text.strip() for one in conversation.transcript(last=1)
                if one.position in ends and isinstance(one.item, Message)]  # fmt: skip
        if last and len(last[0]) >= _LONG and any(text.endswith(last[0]) for text in said):
            found.append(conversation)
    return found[0] if len(found) == 1 else None


def find_summary(store: Store, session: Session, beside: Mapping[str, str] | None = None) -> Conversation | None:
    """Return the newest conversation whose last answer is the summary that a history begins with.

    It is one without a name, or with `beside` one of the side calls with these labels.
    """
    history = CompactedHistory.marked(session)
    where: Any = {} if beside is None else {"labels": beside, "status": "archived"}
    for one in () if history is None else store.list_conversations(limit=_CANDIDATES, **where):
        is_eligible = one.external_id is None or beside is not None
        last = [item.item.to_object() for item in one.transcript(last=1)] if is_eligible else []
        if history is not None and any(map(history.quotes, last)):
            return one
    return None


def _entries_of(conversation: Conversation) -> Sequence[ItemEntry]:
    conversation.handle.read_snapshot()
    return conversation.handle.cache.history()[1]


def find_asked_before(store: Store, session: Session) -> Conversation | None:
    """Return the newest conversation that only asks something about what a session begins with; None for none."""
    beginning = beginning_of(session) if session.tools else None
    if beginning is None:
        return None
    page = store.list_conversations(labels={BEGINNING: beginning}, limit=_CANDIDATES)
    return next((one for one in page if is_about(session, one.clone_config())), None)


def last_shared(conversation: Conversation, session: Session) -> int:
    """Return the position of the last item of a conversation that a client's history has, too; -1 for none."""
    compared = ComparedHistory(conversation, ClientHistory(session))
    return compared.positions[compared.kept - 1] if compared.kept else -1


def shares_answer(conversation: Conversation, session: Session) -> bool:
    """Return whether a client's history has, from its beginning on, an answer of a conversation."""
    return ComparedHistory(conversation, ClientHistory(session)).has_answer


def _texts_of(content: Any) -> list[str]:
    if not isinstance(content, list):
        return [str(content)]
    return [part.get("text") or json.dumps(part, sort_keys=True) for part in content if isinstance(part, dict)]


class ComparedHistory:
    """A conversation compared with a client's history, of which `kept` items are the same, from the first one on.

    Where responses are stored, only these are answers: others may be examples, with which many histories begin.
    """

    def __init__(self, conversation: Conversation, history: ClientHistory, *, is_asked: bool = False) -> None:
        stored, responses = conversation.transcript(), list(conversation.responses(limit=_RESPONSES))
        self._conversation, self._responses = conversation, responses
        self._history, self._objects = history, [item.item.to_object() for item in stored]
        self.positions = [item.position for item in stored]
        self._is_being_answered = is_asked or any(one.status == "in_progress" for one in responses)
        self._cut_off = {one.to_position for one in responses if one.status in CUT_OFF}
        self._answered = {
            at: one.status not in CUT_OFF for one in responses for at in range(one.from_position, one.to_position + 1)
        }
        self._delta = self._compare(self.positions)
        self.kept = self._delta.kept

    def _compare(self, positions: Collection[int]) -> HistoryDelta:
        some = [
            entry_of(value, position=at)
            for value, at in zip(self._objects, self.positions, strict=True)
            if at in positions
        ]
        return self._history.compare(some, self._cut_off, may_begin_later=False)

    @property
    def has_answer(self) -> bool:
        """Return whether the client's history has an answer of the conversation."""
        return any(self._is_answer(index) for index in range(self.kept))

    def _is_answer(self, index: int) -> bool:
        return self.positions[index] in self._answered if self._answered else is_answer(self._objects[index])

    @property
    def agreement(self) -> tuple[int, int]:
        """How many ids of answered calls are in both, and how many items; zeros if it is not its history.

        One that asks the same again has none of an answer that broke off, but of no other one.
        """
        if self.has_answer:
            ids = {self._objects[at].get("call_id") for at in range(self.kept) if self._is_answer(at)}
            return len(ids & self._history.call_ids), self.kept
        if self._is_being_answered or any(self._answered.values()):
            return (0, self.kept + 1) if not self._is_being_answered and self._has_other_answer() else (0, 0)
        asked = self._compare([at for at in self.positions if at not in self._answered])
        return 0, asked.kept if asked.is_all else 0

    def _has_other_answer(self) -> bool:
        """Whether the client goes on with another answer to what it has: one of another branch, or another choice."""
        kept, at = self._objects[: self.kept], self.positions[self.kept - 1] if self.kept else -1
        others = (other for one in self._responses if one.input_to == at for other in self._answers_in(one))
        return self._history.has_answer and any(self._history.goes_on(kept, other) for other in others)

    def _answers_in(self, response: stored.StoredResponse) -> Iterator[list[JsonObject]]:
        """What a response has said, and its other choices, which are in its body alone."""
        yield [one.item.to_object() for one in self._conversation.output_items(response.number)]
        with suppress(NotFound, FormatError):
            body = loads(self._conversation.response_body(response.number))
            wire = formats.get_format(response.format)
            for key in _CHOICES & body.keys():
                for choice in body[key][1:]:
                    yield [item.to_object() for item in wire.parse_response({**body, key: [choice]}).output]


def is_answer(item: Mapping[str, Any]) -> bool:
    """Return whether an item is what a model said."""
    return item.get("role") == "assistant" or item.get("type") in _ANSWERS
