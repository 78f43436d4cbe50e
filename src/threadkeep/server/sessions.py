"""Which conversation a call belongs to: the one that it names, or else the one whose history it goes on with."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from threadkeep.domain.formats import get_format
from threadkeep.domain.session import Session
from threadkeep.errors import InvalidOption, NotFound, ResponseInProgress
from threadkeep.server.origins import CLASS, CONVERSATION, SUMMING_UP, ClientCall, Origin, labelled
from threadkeep.server.owners import Owner, own_key
from threadkeep.store.aio import AsyncConversation, AsyncStore, UnitBatches
from threadkeep.store.conversation import Conversation
from threadkeep.store.history_sync import client_history, sync
from threadkeep.store.history_sync.compactions import CompactedHistory, compact_beside
from threadkeep.store.store import Store
from threadkeep.store.writing.branches import find_unused

TRIES: Final = 3  # to find a branch on which no call is being answered


def place_of(owner: Owner, origin: Origin, session: Session) -> Hashable:
    """Return what calls have in common of which each must know what came of the one before."""
    return owner, origin.conversation_id or origin.external_ids or sync.beginning_of(session)


def find(
    store: Store, origin: Origin, payload: Mapping[str, Any], session: Session, asked: Container[str] = ()
) -> Conversation | None:
    """Return the conversation that a call goes on with; None for a new one (blocking).

    Calls are being answered in those of which `asked` has the ids, even if nothing of an answer is stored there yet.

    Raises:
        NotFound: the call names a conversation that this owner does not have.
    """
    if origin.conversation_id is not None:
        return store.get_conversation(origin.conversation_id)
    if origin.external_ids:
        for external_id in origin.external_ids:
            if (found := store.find_conversation(external_id=external_id)) is not None:
                return found
        return None
    previous = payload.get("previous_response_id") or payload.get("previous_interaction_id")
    if isinstance(previous, str) and previous:
        try:
            stored = store.get_response(previous)
        except NotFound:
            return None
        return store.get_conversation(stored.conversation_id)
    if (agreeing := sync.find_by_history(store, session, asked)) is not None:
        return agreeing
    aside = sync.find_summary(store, session, {CLASS: SUMMING_UP})  # whose summary the history begins with
    return None if aside is None else _parent(store, aside)


def _parent(store: Store, aside: Conversation) -> Conversation | None:
    """Return the conversation without a name for whose client a side call was made; None if it is gone."""
    try:
        return store.get_conversation(aside.labels["parent"].partition("@")[0])
    except NotFound:
        return None


def forked(conversation: Conversation, session: Session) -> Conversation:
    """Return a new branch with what a client's history has of a conversation, for calls at the same time (blocking)."""
    return conversation.fork(at=sync.last_shared(conversation, session))


def unused_branch(conversation: Conversation, at: int) -> Conversation | None:
    """Return the conversation on a branch that was forked off there and has nothing of its own; None for none."""
    found = find_unused(conversation.handle, at)
    return None if found is None else Conversation(conversation.handle.on(found))


# Finding it, and what is new of a client's history


class Locks:
    """A lock for each place where conversations are found or begun, for as long as it is needed.

    `asked` has the ids of conversations in which calls are being answered, and how many; `batches` has what is stored
    in one transaction.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.batches = UnitBatches()
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def of(self, place: Hashable) -> asyncio.Lock:
        """Return the lock of a place."""
        return self._locks.setdefault(place, asyncio.Lock())

    @contextmanager
    def answering(self, face: AsyncStore | AsyncConversation) -> Iterator[None]:
        """Have calls that ask the same know that one is being answered in a conversation; a store has none yet."""
        ids = [] if isinstance(face, AsyncStore) else [face.id]
        self.asked.update(ids)
        try:
            yield
        finally:
            self.asked -= Counter(ids)


async def placed(
    store: AsyncStore, call: ClientCall, locks: Locks, then: Callable[[Conversation], object] | None = None
) -> AsyncConversation:
    """Return the conversation of a call, on the branch that has its history, with its settings.

    A call that names a conversation that is not there for its owner is stored as if it named none. `locks` are shared
    by all calls that are stored here. `then` is called with the conversation in a transaction that stores all of this
    or nothing, maybe with what others write; it is called again where that has to be repeated.
    """
    parsed = get_format(call.format).parse_request(call.payload, **call.options)
    session = client_history.with_leading_instructions(parsed)
    origin = Origin.of(call)
    try:
        return await _placed(store, call, session, origin, locks, then)
    except NotFound:
        if origin.conversation_id is None:
            raise
        headers = {name: value for name, value in call.headers.items() if name != CONVERSATION}
        return await _placed(store, call, session, Origin.of(call._replace(headers=headers)), locks, then)


async def _placed(
    store: AsyncStore, call: ClientCall, session: Session, origin: Origin, locks: Locks,
    then: Callable[[Conversation], object] | None,
) -> AsyncConversation:  # fmt: skip
    """The conversation to which a call belongs; NotFound if it is not there (any more)."""
    where = call, session, origin, locks.asked
    async with locks.of(place_of(call.owner, origin, session)):
        if then is None:
            found = await store.run_sync(_find_place, *where)
        else:
            found = await locks.batches.run(store, _find_and_store, then, *where)
        if isinstance(found, Origin):  # it is a side call, whose conversation is another place
            return await _placed(store, call, session, found, locks, then)
        return store.face_of(found)


def _find_and_store(store: Store, then: Callable[[Conversation], object], *where: Any) -> Conversation | Origin:
    found = _find_place(store, *where)
    if not isinstance(found, Origin):
        then(found)
    return found


def _find_place(
    store: Store, call: ClientCall, session: Session, origin: Origin, asked: Container[str]
) -> Conversation | Origin:
    """The conversation to which a call belongs, or the origin as which it is to be looked for again (blocking)."""
    conversation = find(store, origin, call.payload, session, asked)
    if conversation is not None and (origin.may_be_aside or origin.is_nameless):
        relation = _relation(conversation, session, origin.is_nameless)
        name = (*origin.external_ids, conversation.id)[0]
        aside = origin.beside(call, name)
        if relation == "summary":
            aside = origin.beside(call, name, SUMMING_UP)
        if relation in ("beside", "summary"):
            return aside
        if relation == "first":
            _set_aside(conversation, origin, aside)
            conversation = None
        elif _may_be_compacted(session, origin):
            _compact(store, aside.labels["parent"], conversation, session)
    if conversation is None:
        conversation, is_new = _begun(store, call, session, origin, asked)
        if is_new:
            return conversation
    conversation, is_compacted = _continued(conversation, call, session)
    client_history.configure(conversation, session)
    labels = labelled(conversation.labels, origin)
    if is_compacted:
        aside = origin.beside(call, (*origin.external_ids, conversation.id)[0])
        labels = _begin_with_summary(store, labels, session, origin, aside)
    if labels != conversation.labels:
        conversation.update(labels=labels)
    return conversation


def _relation(
    conversation: Conversation, session: Session, is_nameless: bool
) -> Literal["next", "beside", "first", "summary"]:
    """How a call is related to what is stored of its session.

    It goes on with that ("next"), or wants a summary of it, or has nothing in common with it: neither instructions nor
    answers, and one of both has no tools, and is a side call: this one ("beside"), or what is stored ("first"). Where
    no name says that it is the session's, other instructions and only some of the tools are also those of a side call.
    """
    known = conversation.clone_config()
    if session.previous_response_id is not None:  # it says what it goes on with
        return "next"
    if client_history.is_about(known, session):
        return "beside"
    if client_history.asks_for_summary(session) and sync.shares_answer(conversation, session):
        return "summary"
    if not client_history.has_other_instructions(known, session):
        return "next"
    if is_nameless and client_history.has_fewer_tools(known, session):
        return "beside"
    if bool(known.tools) is bool(session.tools):
        return "next"
    if sync.shares_answer(conversation, session):
        return "next"
    return "beside" if known.tools else "first"


def _may_be_compacted(session: Session, origin: Origin) -> bool:
    """Whether a history may begin with a summary; one of a client that names no session marks it."""
    return origin.may_be_aside or CompactedHistory.marked(session) is not None


def _compact(store: Store, name: str, conversation: Conversation, session: Session) -> None:
    """Compact a conversation if a client has done so: its history has the summary that it asked for in a side call.

    Side calls have `name` as the label of their parent.
    """
    for aside in store.list_conversations(labels={"parent": name}, status="archived"):
        if aside.labels.get(CLASS) in ("auxiliary", SUMMING_UP):
            for last in aside.transcript(last=1):
                compact_beside(conversation, session, last.item.to_object())


def _begin_with_summary(
    store: Store, labels: dict[str, str], session: Session, origin: Origin, aside: Origin
) -> dict[str, str]:
    """The labels of a conversation whose histories begin with a summary from now on; the call for it is set aside."""
    if (asked := sync.find_summary(store, session)) is not None:
        _set_aside(store.get_conversation(asked.id), origin, aside)
    beginning = sync.beginning_of(session) if sync.BEGINNING in labels else None
    return labels if beginning is None else {**labels, sync.BEGINNING: beginning}


def _set_aside(conversation: Conversation, origin: Origin, aside: Origin) -> None:
    """Have side calls that came before the conversation itself leave its place to that."""
    names = dict(zip(origin.external_ids, aside.external_ids, strict=False))
    labels = labelled(conversation.labels, aside)
    try:
        external_id = names.get(str(conversation.external_id), aside.external_ids[-1])
        conversation.update(external_id=external_id, labels=labels)
    except InvalidOption:  # others are there
        conversation.update(external_id=None, labels=labels)
    conversation.archive()


def _continued(conversation: Conversation, call: ClientCall, session: Session) -> tuple[Conversation, bool]:
    """The conversation with what is new of the history, on the branch that has it; and whether that compacts it."""
    before, asked = conversation.branch, (call.payload, call.format)
    for _ in range(TRIES):
        try:
            result = conversation.sync_request(*asked, idempotency_key=call.key)
            break
        except ResponseInProgress:  # another call is being answered there
            conversation = forked(conversation, session)
    else:
        result = conversation.sync_request(*asked, on_conflict="branch", idempotency_key=call.key)
    if result.branch != conversation.branch:
        conversation = conversation.on_branch(result.branch)
    if conversation.branch != before:
        conversation.set_active_branch(conversation.branch)
    return conversation, any(one.item.type == "compaction" for one in result.items)


def _begun(
    store: Store, call: ClientCall, session: Session, origin: Origin, asked: Container[str]
) -> tuple[Conversation, bool]:
    """A new conversation, or the one of a faster process, and whether it is new.

    A key of one user learns of no external id of others, so it uses the ids of its user alone.
    """
    is_of_user = call.owner.user_id is not None and not call.owner.names_user
    names = origin.external_ids[-1:] if is_of_user else origin.external_ids
    refusal: InvalidOption | None = None
    for external_id in names or (None,):
        try:
            return _new_conversation(store, call, session, origin, external_id), True
        except InvalidOption as error:  # it is there, or belongs to another user
            refusal = error
            if (conversation := find(store, origin, call.payload, session, asked)) is not None:
                return conversation, False
    assert refusal is not None  # noqa: S101 - there is a name, or None
    raise refusal


def _new_conversation(
    store: Store, call: ClientCall, session: Session, origin: Origin, external_id: str | None
) -> Conversation:
    labels, beginning = dict(origin.labels), sync.beginning_of(session)
    if external_id is None and beginning is not None:
        labels[sync.BEGINNING] = beginning
    key = own_key(call.key, call.owner.user_id)
    conversation = store.save(session, labels=labels, external_id=external_id, idempotency_key=key)
    if origin.is_aside:
        conversation.archive()
    elif (
        external_id is None and session.tools
        and (earlier := sync.find_asked_before(store, session)) is not None
    ):  # fmt: skip
        _set_aside(store.get_conversation(earlier.id), origin, origin.beside(call, conversation.id))
    return conversation
