"""Writing trees of items: runs that continue what a conversation has, or begin branches of it.

Importers use it. A conversation is found by its external id, and states of it remember what was written, so that the
next import writes what is new. Everything is written in one transaction, in a number of statements that does not depend
on how much it is, but for batches of rows and of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice, takewhile
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Connection

from threadkeep.db import base, models
from threadkeep.db.driver.inserting import insert_rows
from threadkeep.db.queries.annotations import states_of
from threadkeep.db.queries.conversations import branch_head, branches_of, graft_end
from threadkeep.db.queries.responses import MOST_HASHES, counted_among
from threadkeep.domain import ids, jsontext, stored
from threadkeep.domain.session import Session
from threadkeep.domain.usage import Usage
from threadkeep.errors import Conflict, InvalidOption, StateConflict
from threadkeep.store.changes.feed import change_row
from threadkeep.store.store import Store
from threadkeep.store.usage import ledger, rollups
from threadkeep.store.work import item_rows, pacing, positions, refs, validation
from threadkeep.store.work.states import MAX_STATES, NewState, write_states
from threadkeep.store.writing import appending, conversations

_NO_RESPONSE: Final = dict.fromkeys(column.name for column in base.written_columns(models.responses))

Rows = list[dict[str, Any]]


class Spot(NamedTuple):
    """Where an item is stored; the beginning of a conversation is before the first position."""

    branch: int
    position: int


ROOT: Final = Spot(0, -1)


class NewSpot(NamedTuple):
    """An item of a graft: the number of its run, and its own in that."""

    run: int
    offset: int


class NewAnswer(NamedTuple):
    """A response that items in a row came in; `attempt`: its row in the ledger, if any.

    `columns` are what its row says of it. `name` tells it from all others of the tenant, if it has no id.
    """

    columns: Mapping[str, Any]
    name: str
    attempt: ledger.Attempt | None = None


class NewCall(NamedTuple):
    """A call whose answer is none of the items: `name` tells it from all others of the tenant."""

    attempt: ledger.Attempt
    at: datetime
    name: str


class NewTurn(NamedTuple):
    """Items of one wire message, or of one response and one time.

    `answer`: the number of the response in the graft; turns in a row with one number came in it. `covers`:
    of a compaction, the last item that it stands for, where that is not the one before it.
    """

    records: Sequence[item_rows.ItemRecord]
    created_at: datetime
    answer: int | None = None
    covers: Spot | NewSpot | None = None


class Run(NamedTuple):
    """Turns in a row, of so many items, behind something that is stored, or behind an item of an earlier run."""

    after: Spot | NewSpot
    turns: Sequence[NewTurn]
    size: int


class _NewAttempt(NamedTuple):
    """A row to be written into the ledger; `hash` is the hash of the id or name of the response of this number."""

    attempt: ledger.Attempt
    at: datetime
    number: int | None
    hash: bytes


@dataclass(slots=True)
class GraftRows:
    """Places runs in a conversation that the transaction has locked, and writes their rows.

    `heads` are the ends and lineages of its branches, which grow with what is placed.
    """

    connection: Connection
    ref: refs.BranchRef
    taken: positions.Reservation
    heads: dict[int, refs.Lineage]
    spots: list[Spot] = field(default_factory=list)  # of the first item of each run
    attempts: int = 0  # rows of the ledger
    _new: Rows = field(default_factory=list)  # branches
    _items: Rows = field(default_factory=list)
    _records: list[item_rows.ItemRecord] = field(default_factory=list)
    _responses: Rows = field(default_factory=list)
    _attempts: list[_NewAttempt] = field(default_factory=list)
    _moved: set[int] = field(default_factory=set)

    @classmethod
    def reserve(cls, connection: Connection, ref: refs.BranchRef, graft: Graft, *, is_new: bool) -> GraftRows:
        """Lock the conversation, take the numbers for all runs, and read where its branches end.

        Raises:
            NotFound: it is gone.
            Conflict: a response is in progress.
        """
        answers = len(graft.answers)
        counts = positions.Counts(items=sum(run.size for run in graft.runs), responses=answers, is_dated=True)
        newest = max(turn.created_at for run in graft.runs for turn in run.turns)
        taken = positions.take(connection, ref, newest, counts)
        if taken is None:
            refs.get_row(connection, ref)
            problem = f"A response of {ref.public_id} is in progress, so nothing can be imported into it."
            raise Conflict(problem, hint="Import it again when the response has ended.")
        taken.response -= max(answers - 1, 0)  # the first of them
        heads = {0: refs.Lineage((), -1)}
        if not is_new:
            heads[0] = refs.root_lineage(refs.get_row(connection, ref))
            for branch in connection.execute(branches_of(), ref.parameters(after=0, limit=validation.MAX_NUMBER)):
                heads[branch.number] = refs.lineage_from(branch)
        return cls(connection, ref, taken, heads)

    def write(self, graft: Graft, calls: Sequence[_NewAttempt], now: datetime) -> None:
        """Place the runs, one after the other, and write what they are made of, and calls beside them."""
        first = self.taken.first
        for run in graft.runs:
            spot = self._place(run, first)
            self.spots.append(spot)
            self._add_items(run, spot, graft.answers)
            first += run.size
        columns = {"user_id": self.taken.user_id, "tool_set_hash": self.taken.tool_set_hash}
        self.attempts = _write_attempts(self.connection, self.ref, [*self._attempts, *calls], **columns)
        ends = [spot.position + run.size - 1 for spot, run in zip(self.spots, graft.runs, strict=True)]
        changes = [self._change(spot, end, now) for spot, end in zip(self.spots, ends, strict=True)]
        insert_rows(self.connection, [(models.branches, self._new)])
        others = [(models.responses, self._responses), (models.changes, changes)]
        item_rows.insert_item_rows(self.connection, self._items, self._records, now, behind=others)

    def move_heads(self, active: int | None, title: str | None) -> None:
        """Write where the branches end that were continued, which one is active, and a title that it gets."""
        for branch in sorted(self._moved):
            if 0 < branch < self.taken.next_branch:
                parameters = self.ref.parameters(branch=branch, count=1, last=self.heads[branch].head)
                branch_head(expected=False).execute(self.connection, parameters)
        branches = self.taken.next_branch + len(self._new)
        values = {"head": self.heads[0].head, "next_branch": branches, "active_branch": active, "title": title}
        graft_end().execute(self.connection, self.ref.parameters(**values))

    def _place(self, run: Run, first: int) -> Spot:
        """Where a run goes: on the branch that ends where it continues, or else on a new one."""
        after, last = self.spot(run.after), first + run.size - 1
        branch, lineage = after.branch, self.heads[after.branch]
        if lineage.head == after.position:
            self.heads[branch] = refs.Lineage(lineage.parts, last)
            self._moved.add(branch)
            return Spot(branch, first)
        parts = lineage.upto(branch, after.position)
        number = self.taken.next_branch + len(self._new)
        if number > validation.MAX_NUMBER:
            raise Conflict(f"{self.ref.public_id} has too many branches.")
        place = {"number": number, "parent": branch, "fork_position": after.position, "head_position": last}
        self._new.append(
            self.ref.columns(
                **place, from_position=first, lineage=refs.lineage_text(parts), created_at=run.turns[0].created_at
            )
        )
        self.heads[number] = refs.Lineage(parts, last)
        return Spot(number, first)

    def spot(self, after: Spot | NewSpot) -> Spot:
        """Where something is, once its run was placed."""
        if isinstance(after, Spot):
            return after
        first = self.spots[after.run]
        return Spot(first.branch, first.position + after.offset)

    def _add_items(self, run: Run, spot: Spot, answers: Sequence[NewAnswer]) -> None:
        """Make the rows of a run and of its responses."""
        position, before = spot.position, self.spot(run.after).position
        place, answer = self.ref.columns(branch=spot.branch, seen=None), None
        begin: int | None = None  # of the turn
        for turn in run.turns:
            if turn.answer is None:
                begin, place["seen"] = position if len(turn.records) > 1 else None, None
            elif turn.answer != answer:
                begin, place["seen"] = position, before
                self._add_response(
                    answers[turn.answer], number=self.taken.response + turn.answer, branch=spot.branch,
                    input_to=before, from_position=position, created_at=turn.created_at,
                )  # fmt: skip
            answer, place["created_at"] = turn.answer, turn.created_at
            for record in turn.records:
                if turn.covers is not None:  # it says where that is
                    value = record.entry(-1, None, None).item() | {"upto": self.spot(turn.covers).position}
                    record = item_rows.encode_item(value, maker=record.columns["maker"])  # noqa: PLW2901
                self._items.append(record.row(place, position, begin))
                self._records.append(record)
                before, position = position, position + 1
            if answer is not None:
                self._responses[-1]["to_position"] = before

    def _add_response(self, answer: NewAnswer, **place: Any) -> None:
        row: dict[str, Any] = _NO_RESPONSE | self.ref.columns(**answer.columns, **place)
        row["config_hash"], row["tool_set_hash"] = self.taken.config_hash, self.taken.tool_set_hash
        self._responses.append(row)
        if answer.attempt is not None:
            hash_ = row["response_hash"] or ids.short_hash(answer.name) or b""
            self._attempts.append(_NewAttempt(answer.attempt, row["created_at"], row["number"], hash_))

    def _change(self, spot: Spot, last: int, now: datetime) -> dict[str, Any]:
        return change_row(
            self.ref.scope.tenant, self.ref.key, self.ref.public_bytes, stored.APPENDED, now,
            branch=spot.branch, from_position=spot.position, to_position=last,
        )  # fmt: skip


def _write_attempts(connection: Connection, ref: refs.BranchRef, new: Sequence[_NewAttempt], **columns: Any) -> int:
    """Write the rows of the ledger, but for calls that are counted already, here or elsewhere; return how many."""
    counted = _counted(connection, ref, {one.hash for one in new})
    rows: Rows = []
    for attempt, at, number, hash_ in new:
        if hash_ not in counted:
            counted.add(hash_)
            row = ledger.attempt_columns(attempt, at, _ledger_key(hash_))
            rows.append(ref.columns(**row, response=number, **columns))
    if days := {row["day"] for row in rows} - {datetime.now(UTC).date()}:
        rollups.invalidate(connection, ref.scope.tenant, *days)
    insert_rows(connection, [(models.usage_records, rows)])
    return len(rows)


def _counted(connection: Connection, ref: refs.BranchRef, hashes: Iterable[bytes]) -> set[bytes]:
    """Which of these responses the tenant has already, or had: their usage is not counted twice."""
    keys = {_ledger_key(hash_): hash_ for hash_ in sorted(hashes)}
    stored = _found(connection, ref, models.responses.c.response_hash, keys.values())
    billed = _found(connection, ref, models.usage_records.c.id, keys)
    return {*map(bytes, stored), *map(keys.__getitem__, billed)}


def _found(connection: Connection, ref: refs.BranchRef, column: Column[Any], values: Iterable[Any]) -> Iterator[Any]:
    """Which of these values a column has in rows of the tenant."""
    rest, statement = iter(values), counted_among(column)
    while batch := list(islice(rest, MOST_HASHES)):
        given = {f"value_{number}": value for number, value in enumerate(batch)}
        for (value,) in statement.fetch_all(connection, ref.scope.parameters(**given)):
            yield value


def _ledger_key(hash_: bytes) -> int:
    """The key of the row that counts a response: always the same one, so that no other import can count it, too.

    The ledger outlives conversations, so a response counts once even if its conversation is deleted and imported again.
    """
    return int.from_bytes(hash_[:8], "big") >> 1


# ---------------------------------------------------------------------------------------------------------------------
# Writing trees of items: runs that continue what a conversation has, or begin branches of it

STATE: Final = "import"  # the second part of what is remembered is "import.2", and so on
TRIES: Final = 3  # how often it is found out what is new, where others import the same at the same time


@dataclass(frozen=True, slots=True)
class Graft:
    """What is new of a conversation.

    Attributes:
        runs: its items, those that others continue first.
        remembered: what to remember, made of the spots of the runs' first items: JSON values, each of which fits into a
            state. They begin with those that are known; what did not change is the same object.
        active: where the branch ends that is active from now on; None: it stays.
        answers: the responses that items came in, in the order of these; each has one.
        calls: those that no item came in.
        is_news: whether there is something to remember, even if nothing is written.
    """

    runs: Sequence[Run]
    remembered: Callable[[Sequence[Spot]], Sequence[Any]]
    active: Spot | NewSpot | None = None
    answers: Sequence[NewAnswer] = ()
    calls: Sequence[NewCall] = ()
    is_news: bool = False


class RememberedPart(NamedTuple):
    """A part of what was remembered, with the version of its state."""

    value: Any = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation that was imported before, and the parts of what was remembered of it (none: nothing)."""

    ref: refs.BranchRef
    title: str | None
    parts: Sequence[RememberedPart] = ()


class Written(NamedTuple):
    """The conversation that a graft was written into; `attempts` counts new rows of the ledger."""

    id: str
    is_new: bool
    attempts: int = 0


class Grafting:
    """Writes grafts into the conversations of a store.

    Raises:
        InvalidOption: it is no `Store`, or it has tenants and none was chosen.
    """

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            hint = "Open a Store of the same database, and call this in a thread."
            raise InvalidOption(f"must be a Store, not {type(store).__name__}.", argument="store", hint=hint)
        self._store, self._transactions = store.handle, store.handle.transactions
        self._scope = self._store.scope
        self._upkeep, self.behind = pacing.Upkeep(self._transactions), pacing.CommitsBehind(self._transactions)
        self._newest: str | None = None  # the external id of what was written last

    def answer(
        self, name: str, call: ledger.CallInfo, *, format: str, id: str | None, model: str | None, status: str | None,
        finish_reason: str | None, usage: Usage | None, error: Any = None,
    ) -> NewAnswer:  # fmt: skip
        """A response with its row for the ledger, if it reports usage or failed; it costs what it did at that time.

        `name` tells it from all others, if it has no id: the ledger has one row for it.
        """
        prices, attempt = self._store.resources.prices, None
        if usage is not None or error is not None:
            attempt = ledger.imported_attempt(format, call, prices, model, status, usage, error)
        columns = {
            "format": format, "provider_response_id": id, "response_hash": ids.short_hash(id or None), "model": model,
            "status": item_rows.fitting(status), "finish_reason": finish_reason,
        }  # fmt: skip
        return NewAnswer(columns, name, attempt)

    def find(self, external_id: str, user: str | None = None) -> Known | None:
        """The conversation with an external id; None if there is none.

        Raises:
            Conflict: it is not the one of this user, or of the user of this store.
        """
        if external_id == self._newest:
            self.behind.settle()
        return self._transactions.read(lambda connection: _find(connection, self._scope, external_id, user))

    def find_by_id(self, id: str) -> Known | None:
        """The conversation with an id; None if there is none."""
        self.behind.settle()
        column, key = "public_id", ids.public_id_bytes(id)
        return self._transactions.read(lambda connection: _find(connection, self._scope, key, None, column))

    def write(
        self, session: Session, info: conversations.ConversationInfo, plan: Callable[[Known | None], Graft], *,
        is_absent: bool = False,
    ) -> Written:  # fmt: skip
        """Write what `plan` makes of what is known of the conversation with the external id of `info`.

        A conversation that is there and to which nothing is new stays as it is. `is_absent`: it was looked for, and is
        not there.

        Raises:
            InvalidOption, InvalidItem, TooLarge: something cannot be stored; nothing was written.
            Conflict: it belongs to another user than `info` names, a response is in progress, or others import into the
                same conversation all the time.
        """
        external_id, user, tries = str(info.get("external_id")), info.get("user_id"), TRIES
        while True:
            known, tries, is_absent = None if is_absent else self.find(external_id, user), tries - 1, False
            graft = plan(known)
            try:
                return self._write(session, info, known, graft, partial(self.write, session, info, plan))
            except StateConflict:
                if not tries:
                    raise
            except InvalidOption:  # perhaps because another one has created it meanwhile
                if not tries or known is not None or self.find(external_id, user) is None:
                    raise

    def _write(
        self, session: Session, info: conversations.ConversationInfo, known: Known | None, graft: Graft,
        again: Callable[[], object],
    ) -> Written:  # fmt: skip
        if known is not None and not graft.runs and not graft.calls and not graft.is_news:
            return Written(known.ref.public_id, is_new=False)
        scope = self._scope = self._store.new_scope
        new = conversations.new_conversation(session, info, scope)
        title = info.get("title") if known is not None and known.title is None else None

        def write(connection: Connection) -> Written:
            now = datetime.now(UTC)
            place = known or _create(connection, scope, new)
            calls = [_NewAttempt(one.attempt, one.at, None, ids.short_hash(one.name) or b"") for one in graft.calls]
            if graft.runs:
                rows = GraftRows.reserve(connection, place.ref, graft, is_new=known is None)
                rows.write(graft, calls, now)
                active = None if graft.active is None else rows.spot(graft.active).branch
                rows.move_heads(active, title)
                spots, attempts = rows.spots, rows.attempts
            else:
                row, spots = refs.get_row(connection, place.ref, is_locked=True), []
                columns = {"user_id": row.user_id, "tool_set_hash": row.tool_set_hash}
                attempts = _write_attempts(connection, place.ref, calls, **columns)
            states = _changed(place.parts, graft.remembered(spots))
            has_none = known is None and len(states) <= MAX_STATES
            write_states(connection, place.ref, states, now, {} if has_none else None)
            return Written(place.ref.public_id, known is None, attempts)

        records = [record for run in graft.runs for turn in run.turns for record in turn.records]
        run: Callable[[Callable[[Connection], Written]], Written] = partial(self.behind.write, again=again)
        written = appending.write_items(self._transactions, scope, records, write, is_repeatable=True, run=run)
        self._newest = info.get("external_id")
        self._upkeep.add(len(records))
        return written


def _create(connection: Connection, scope: refs.Scope, new: conversations.Creation) -> Known:
    [row] = conversations.insert_conversations(connection, scope, [new])
    return Known(refs.BranchRef(scope, row["id"], ids.public_id_text(row["public_id"])), None)


def _find(
    connection: Connection, scope: refs.Scope, key: str | bytes, user: str | None, column: str = "external_id"
) -> Known | None:
    row, user = refs.find_row(connection, replace(scope, user=None), column, key), scope.user or user
    if row is None:
        return None
    if user is not None and row.user_id != user:
        problem = f"The {column} {key!r} names a conversation that does not belong to this user."
        raise Conflict(problem, hint="Import it for the user whose it is, or into a tenant of its own.")
    ref = refs.BranchRef(scope, row.id, ids.public_id_text(bytes(row.public_id)))
    wanted = scope.parameters(key=row.id, limit=MAX_STATES)
    found = connection.execute(states_of(scoped=scope.user is not None), wanted)
    states = {one.name: one for one in found}
    parts = [states[name] for name in takewhile(states.__contains__, map(_name_of_part, count()))]
    return Known(ref, row.title, [RememberedPart(_value(one), one.version) for one in parts])


def _value(state: Any) -> Any:
    return jsontext.loads_stored(state.value, "conversation_states", f"name {state.name!r}")


def _name_of_part(index: int) -> str:
    return f"{STATE}.{index + 1}" if index else STATE


def _changed(known: Sequence[RememberedPart], values: Sequence[Any]) -> list[NewState]:
    """The states of parts that are new or changed."""
    parts = [*known, *[RememberedPart()] * (len(values) - len(known))]
    return [
        NewState.of(_name_of_part(index), value, part.version)
        for index, (value, part) in enumerate(zip(values, parts, strict=True))
        if value is not part.value
    ]
