"""Writing trees of items: runs that continue what a conversation has, or begin branches of it.

Importers use it. A conversation is found by its external id, and states of it remember what was written, so that the
next import writes what is new. Everything is written in one transaction, in a number of statements that does not depend
on how much it is, but for batches of rows and of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, takewhile
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.queries.annotations import states_of
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.jsontext import loads_stored
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import Conflict, InvalidOption, StateConflict
from threadkeep.store.appending import write_items
from threadkeep.store.conversations import ConversationInfo, NewConversation, insert_conversations, new_conversation
from threadkeep.store.graft_rows import GraftRows, NewAnswer, NewSpot, Run, Spot
from threadkeep.store.ledger import CallInfo, attempt_of
from threadkeep.store.lineage import find_row
from threadkeep.store.refs import BranchRef, Scope
from threadkeep.store.state_writes import MAX_STATES, NewState, write_states
from threadkeep.store.store import Store
from threadkeep.store.upkeep import Upkeep

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
    """

    runs: Sequence[Run]
    remembered: Callable[[Sequence[Spot]], Sequence[Any]]
    active: Spot | NewSpot | None = None


class Part(NamedTuple):
    """A part of what was remembered, with the version of its state."""

    value: Any = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation that was imported before, and the parts of what was remembered of it (none: nothing)."""

    ref: BranchRef
    title: str | None
    parts: Sequence[Part] = ()


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
        self._store, self._transactions = store, store._transactions
        self._scope = store._scope
        self._upkeep = Upkeep(self._transactions)

    def answer(self, response: Response, format: str, call: CallInfo, name: str) -> NewAnswer:
        """A response with its row for the ledger, if it reports usage; it costs what it did when the call was made.

        `name` tells it from all others, if it has no id: the ledger has one row for it.
        """
        prices = self._store._resources.prices
        attempt = None if response.usage is None else attempt_of(response, format, call, prices, None)
        return NewAnswer(response, format, name, attempt)

    def find(self, external_id: str, user: str | None = None) -> Known | None:
        """The conversation with an external id; None if there is none.

        Raises:
            Conflict: it is not the one of this user, or of the user of this store.
        """
        return self._transactions.read(lambda connection: _find(connection, self._scope, external_id, user))

    def write(self, session: Session, info: ConversationInfo, plan: Callable[[Known | None], Graft]) -> Written:
        """Write what `plan` makes of what is known of the conversation with the external id of `info`.

        A conversation that is there and to which nothing is new stays as it is.

        Raises:
            InvalidOption, InvalidItem, TooLarge: something cannot be stored; nothing was written.
            Conflict: it belongs to another user than that of `info`, a response is in progress, or others import into
                the same conversation all the time.
        """
        external_id, user, tries = str(info.get("external_id")), info.get("user_id"), TRIES
        while True:
            known, tries = self.find(external_id, user), tries - 1
            graft = plan(known)
            try:
                return self._write(session, info, known, graft)
            except StateConflict:
                if not tries:
                    raise
            except InvalidOption:  # perhaps because another one has created it meanwhile
                if not tries or known is not None or self.find(external_id, user) is None:
                    raise

    def _write(self, session: Session, info: ConversationInfo, known: Known | None, graft: Graft) -> Written:
        if known is not None and not graft.runs:
            return Written(known.ref.public_id, is_new=False)
        scope = self._scope = self._store._new_scope
        new = new_conversation(session, info, scope)
        title = info.get("title") if known is not None and known.title is None else None

        def write(connection: Connection) -> Written:
            now = datetime.now(UTC)
            place = known or _create(connection, scope, new)
            rows = GraftRows.reserve(connection, place.ref, graft.runs, is_new=known is None)
            rows.write(graft.runs, now)
            active = None if graft.active is None else rows.spot(graft.active).branch
            rows.move_heads(active, title)
            write_states(connection, place.ref, _changed(place.parts, graft.remembered(rows.spots)), now)
            return Written(place.ref.public_id, known is None, rows.attempts)

        records = [item.record for run in graft.runs for item in run.items]
        written = write_items(self._transactions, scope, records, write, is_repeatable=True)
        self._upkeep.add(len(records))
        return written


def _create(connection: Connection, scope: Scope, new: NewConversation) -> Known:
    (public_id,) = insert_conversations(connection, scope, [new])
    row: Any = find_row(connection, scope, "public_id", public_id)
    return Known(BranchRef(scope, row.id, public_id_text(public_id)), None)


def _find(connection: Connection, scope: Scope, external_id: str, user: str | None) -> Known | None:
    row, user = find_row(connection, replace(scope, user=None), "external_id", external_id), scope.user or user
    if row is None:
        return None
    if user is not None and row.user_id != user:
        problem = f"The external_id {external_id!r} is that of a conversation that does not belong to this user."
        raise Conflict(problem, hint="Import it for the user whose it is, or into a tenant of its own.")
    ref = BranchRef(scope, row.id, public_id_text(bytes(row.public_id)))
    wanted = scope.parameters(key=row.id, limit=MAX_STATES)
    found = connection.execute(states_of(scoped=scope.user is not None), wanted)
    states = {one.name: one for one in found}
    parts = [states[name] for name in takewhile(states.__contains__, map(_name_of_part, count()))]
    return Known(ref, row.title, [Part(_value(one), one.version) for one in parts])


def _value(state: Any) -> Any:
    return loads_stored(state.value, "conversation_states", f"name {state.name!r}")


def _name_of_part(index: int) -> str:
    return f"{STATE}.{index + 1}" if index else STATE


def _changed(known: Sequence[Part], values: Sequence[Any]) -> list[NewState]:
    """The states of parts that are new or changed."""
    parts = [*known, *[Part()] * (len(values) - len(known))]
    return [
        NewState.of(_name_of_part(index), value, part.version)
        for index, (value, part) in enumerate(zip(values, parts, strict=True))
        if value is not part.value
    ]
