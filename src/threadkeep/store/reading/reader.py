"""The reader of all faces: what an endpoint shows is read in one transaction, and each conversation in it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection

from threadkeep.db.queries.responses import open_response_of, response_after
from threadkeep.domain.ids import place_of, public_id_bytes, response_id
from threadkeep.domain.running import Approval, NextStep, PendingCall, Siblings
from threadkeep.domain.stored import Page, State, StoredItem, StoredResponse
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.store.conversation import Conversation
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.reading import calls, history, items, overviews, responses, siblings
from threadkeep.store.store import Store
from threadkeep.store.work import handle, transactions, validation
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.refs import ConversationState, Scope, first_positions, position_of, position_of_id
from threadkeep.store.work.states import read_states

P = ParamSpec("P")
T = TypeVar("T")
_ITEMS: Final[dict[str, Any]] = {"annotations": False, "media": "inline"}


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what one user of a store sees, in one transaction.

    Conversations that it opens are used like others afterwards, each call in a transaction of its own.
    """

    _connection: Connection
    _transactions: transactions.Transactions
    _resources: StoreResources
    _scope: Scope
    _check: responses.Check

    def conversation(self, id: str) -> Conversation:
        """Open a conversation; errors as for `Store.get_conversation`."""
        configs, value = self._resources.configs, public_id_bytes(id)
        return self._opened(history.open_conversation(self._connection, self._scope, "public_id", value, configs))

    def on_branch(self, conversation: Conversation, branch: int) -> Conversation:
        """Return a conversation that it has opened on a branch; NotFound."""
        row, configs = conversation.handle.conversation.row, self._resources.configs
        return self._opened(
            history.state_of(self._connection, self._scope, row, configs, validation.whole_number("branch", branch))
        )

    def named(self, external_id: str) -> Conversation | None:
        """Open a conversation by the application's own id; None if there is none."""
        value, configs = validation.identifier("external_id", external_id), self._resources.configs
        state = history.find_conversation(self._connection, self._scope, "external_id", value, configs)
        return None if state is None else self._opened(state)

    def _opened(self, state: ConversationState) -> Conversation:
        return Conversation(handle.Handle(self._resources, self._transactions, state))

    def snapshot(self, conversation: Conversation, media: MediaForm = "inline") -> Snapshot:
        """Read the history of a branch, from which formats render it; "reference": without the content of media."""
        opened = conversation.handle
        if media == "reference":
            state, configs = opened.conversation, self._resources.configs
            whole = history.read_history(self._connection, opened.ref, configs, state, 0, media=media)
            return handle.HandleCache(state, None).update(whole) or self.snapshot(conversation)
        cache, configs = opened.cache, self._resources.configs
        known = cache.conversation, cache.next_position
        page = history.read_history(self._connection, opened.ref, configs, *known, media=cache.media)
        return opened.take_in(cache, page)

    def request_bytes(self, conversation: Conversation, most: int) -> int:
        """Read how large its history is, see `overviews.request_bytes`."""
        return overviews.read_request_bytes(self._connection, conversation.handle.ref, most)

    # Items

    def items(
        self, conversation: Conversation, after: str | int | None, limit: int, order: str, most: int, **how: Any
    ) -> Page[StoredItem]:
        """Read a page of the items of a branch, which ends early where it would have more than `most` bytes.

        Each item has an id that no other one of the page has.

        Args:
            conversation: opened by this reader.
            after: the id of the item after which the page begins: the first one that has it; or a position.
            limit: how many items the page has at most.
            order: "asc" or "desc".
            most: bytes, of texts and media.
            how: `annotations`, `variants`, `media` as for `Conversation.items`; `upto`: the last position.

        Raises:
            NotFound: there is no item with that id.
        """
        ref, lineage = _place_of(conversation)
        position = after
        if isinstance(after, str):
            position = position_of_id(self._connection, ref, lineage, after, is_newest=False)
        window, _ = items.item_window(None, position, limit, order)
        upto, has_variants = how.pop("upto", validation.MAX_POSITION), how.pop("variants", False)
        shown = items.ItemWindow(window.after, window.before, window.limit, window.is_descending, **(_ITEMS | how))
        page = items.read_bounded(self._connection, ref, lineage, shown, most, upto)
        if not has_variants:
            return page
        branches = siblings.Branches(self._connection, ref, conversation.handle.conversation.row)
        return replace(page, items=branches.with_siblings(self._connection, page.items))

    def variants(
        self, conversation: Conversation, snapshot: Snapshot, starts: Sequence[int]
    ) -> list[Siblings]:  # fmt: skip
        """Read the variants at some places of a history that was read, at which items of it are."""
        branches = siblings.Branches(self._connection, _place_of(conversation)[0], conversation.handle.conversation.row)
        known = [entry.position for entry in snapshot.entries]
        before = dict(zip(known, (-1, *known), strict=False))
        return [branches.siblings(start, before[start]) for start in starts]

    def item(
        self, conversation: Conversation, wanted: str, *, annotations: bool = False, media: MediaForm = "inline"
    ) -> StoredItem:
        """Read an item of a branch by its id or position; of several with an id, the newest; NotFound."""
        ref, lineage = _place_of(conversation)
        place = position_of(self._connection, ref, lineage, validation.item_argument("position", wanted))
        return items.item_of(self._connection, ref, lineage, place, media, annotations=annotations)

    def first_item(self, conversation: Conversation, item_id: str) -> StoredItem:
        """Read an item of a branch as pages show it with this id: of several that have it, the first one; NotFound."""
        ref, lineage = _place_of(conversation)
        place = position_of_id(self._connection, ref, lineage, item_id, is_newest=False)
        item = items.item_of(self._connection, ref, lineage, place, "inline", annotations=False)
        if place_of(item.id) is not None:
            return item
        earlier = first_positions(self._connection, ref, [item.id])  # on other branches, too
        return items.with_derived_id(item) if earlier.get(item.id, place) < place else item

    # Calls

    def pending_calls(self, conversation: Conversation, after: str | None, limit: int, most: int) -> Page[PendingCall]:
        """Read a page of the calls of a branch that wait for an output; arguments as for `items`."""
        ref, lineage = _place_of(conversation)
        place = -1 if after is None else position_of_id(self._connection, ref, lineage, after, is_newest=False)
        return calls.read_pending(self._connection, ref, lineage, place, limit, most)

    def decisions(self, conversation: Conversation, snapshot: Snapshot) -> dict[int, Approval]:
        """Read what was decided about the calls of a history that was read, by their positions."""
        return calls.read_decisions_in(self._connection, conversation.handle.ref, snapshot)

    def next_step(self, conversation: Conversation) -> NextStep:
        """Read whose turn it is on a branch."""
        return calls.read_step(self._connection, *_place_of(conversation))

    def state(self, conversation: Conversation, name: str) -> State | None:
        """Read a state; None where there is none."""
        found = read_states(self._connection, conversation.handle.conversation.ref(), name)
        return found[0] if found else None

    # Responses

    def response(
        self, wanted: str, make_room: Callable[[int], object] | None = None
    ) -> tuple[Conversation, responses.ResponseDetails]:
        """Read a response by its id or the provider's, with its conversation on its branch; NotFound.

        `make_room` is called with about how many bytes its items have, before they are read.
        """
        row, state = self._located(wanted)
        if make_room is not None and row["to_position"] >= row["from_position"]:
            after, upto = row["from_position"] - 1, row["to_position"]
            make_room(overviews.range_bytes(self._connection, state.ref(), after, upto))
        details = responses.read_details(self._connection, state, self._resources.configs, row)
        return self._opened(state), details

    def stored_response(self, wanted: str) -> tuple[Conversation, StoredResponse]:
        """Read where a response is and how it has ended, without its items; otherwise like `response`."""
        row, state = self._located(wanted)
        return self._opened(state), responses.stored_response(row, state.ref().public_id)

    def response_in_progress(self, conversation: Conversation) -> str | None:
        """Read the id of the response that is being given on a branch; None where none is, or its recorder is gone."""
        ref = conversation.handle.conversation.ref()
        statement, parameters = open_response_of(), ref.parameters(branch=ref.branch)
        row = self._connection.execute(statement, parameters).mappings().one_or_none()
        if row is None:
            return None
        self._check(ref, row)
        return None if row["is_lost"] else response_id(ref.public_id, row["number"])

    def response_after(self, conversation: Conversation, number: int = -1, *, newest: bool = False) -> str | None:
        """Read the id of the first response of a branch after a number, or of the newest one; None where none is."""
        ref = conversation.handle.conversation.ref()
        parameters = ref.parameters(branch=ref.branch, number=number)
        found = self._connection.execute(response_after(newest=newest), parameters).scalar()
        return None if found is None else response_id(ref.public_id, found)

    def _located(self, wanted: str) -> tuple[Any, ConversationState]:
        place = self._connection, self._scope, self._resources.configs
        return responses.locate_with_state(*place, wanted, self._check)


def _place_of(conversation: Conversation) -> tuple[Any, Any]:
    state = conversation.handle.conversation
    return state.ref(), state.lineage


def read(store: Store, function: Callable[Concatenate[Reader, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a function makes of a reader of a store, in one transaction.

    It is called again where a response was found whose recorder is gone, once that is ended, or a connection was lost.
    """
    place = store.handle.transactions, store.handle.resources, store.handle.scope

    def work(connection: Connection, check: responses.Check) -> T:
        return function(Reader(connection, *place, check), *args, **kwargs)

    return responses.read_ended(store.handle.transactions, work)
