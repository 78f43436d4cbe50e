"""Which conversation a call belongs to: what clients say of their sessions, or else their history.

Sources: Claude Code's documentation of gateways; the headers that Codex, Helicone and others send.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.errors import InvalidOption, NotFound, ResponseInProgress
from threadkeep.formats import FormatName
from threadkeep.server.body_limits import MAX_LABELS
from threadkeep.server.owners import Owner, own_name
from threadkeep.store.aio import AsyncConversation, AsyncStore
from threadkeep.store.conversation import Conversation
from threadkeep.store.history_sync.client_history import configure
from threadkeep.store.history_sync.sync import BEGINNING, beginning_of, find_by_history, last_shared, short_digest
from threadkeep.store.writing.branches import find_unused

CONVERSATION: Final = "x-threadkeep-conversation"
LABEL: Final = "x-threadkeep-label-"
CLASS: Final = "request-class"
TRIES: Final = 3  # to find a branch on which no call is being answered
_MAX_GIVEN: Final = MAX_LABELS - 5  # labels from headers: beside those that say where a call comes from
_MAX_ID: Final = 200  # characters of a session's id; of longer ones, a digest stands for them
# header -> what its sessions are called, in the order in which they count
_HEADERS: Final = {
    "x-claude-code-session-id": "claude-code",
    "session-id": "codex",
    "session_id": "codex",
    "x-session-id": "session",
    "x-session-affinity": "session",
    "helicone-session-id": "helicone",
}
_KEPT: Final = frozenset({CONVERSATION, *(f"x-claude-code-{name}" for name in ("agent-id", "parent-agent-id", CLASS))})
_CLAUDE_CODE: Final = "x-claude-code-session-id"
_SESSION_IN_USER: Final = re.compile(r"_session_(?P<id>[0-9a-fA-F-]{36})$")
_CONVERSATION_ID: Final = re.compile(r"conv_[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_SIDE_CLASSES: Final = frozenset({"auxiliary", "compaction"})  # of calls beside the conversation, such as titles


class ClientCall(NamedTuple):
    """A request of a client that keeps its history by itself.

    Attributes:
        format: of the request.
        payload: its body.
        headers: by their names in lower case.
        owner: who calls.
        provider: the name of who is asked.
        options: the model and the stream, where the path says these.
        key: the idempotency key of one that may have been stored in part.
    """

    format: FormatName
    payload: JsonObject
    headers: Mapping[str, str]
    owner: Owner
    provider: str
    options: Mapping[str, Any] = {}
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What a call says about where it belongs.

    Attributes:
        external_ids: the application's id of the conversation, and that as one of its user alone, under which it is
            stored where keys belong to users, or another user has the first; none if the call does not say.
        conversation_id: our id of it, if the call says that.
        labels: what a new conversation is labelled with.
        is_aside: whether it is an auxiliary call of a conversation, which lists do not show.
    """

    external_ids: tuple[str, ...] = ()
    conversation_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    is_aside: bool = False

    @classmethod
    def of(cls, call: ClientCall) -> Origin:
        """Read a call's headers and body."""
        headers, user_id = call.headers, call.owner.user_id
        labels = {"recorded": call.provider}
        given = ((name[len(LABEL) :], value) for name, value in headers.items() if name.startswith(LABEL))
        labels |= dict(islice(given, _MAX_GIVEN))
        if named := headers.get(CONVERSATION):
            if _CONVERSATION_ID.fullmatch(named):
                return cls(conversation_id=named, labels=labels)
            return cls(_external_ids(named, user_id), labels=labels)
        session = _session(headers, call.payload)
        if session is None:
            return cls(labels=labels)
        agent, parent = (headers.get(f"x-claude-code-{name}") for name in ("agent-id", "parent-agent-id"))
        kind = headers.get(f"x-claude-code-{CLASS}", "")
        id_ = session
        if agent:
            id_ = f"{session}/{agent}"
            started_by = _external_ids(f"{session}/{parent}" if parent else session, user_id)
            labels |= {"agent": agent, "parent": started_by[-1]}
        if kind in _SIDE_CLASSES:
            labels[CLASS] = kind
            return cls(_external_ids(f"{id_}#{kind}", user_id), labels=labels, is_aside=True)
        return cls(_external_ids(id_, user_id), labels=labels)


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a call that say where it belongs."""
    return {
        name: value for name, value in headers.items() if name in _KEPT or name in _HEADERS or name.startswith(LABEL)
    }


def labelled(labels: Mapping[str, str], origin: Origin) -> dict[str, str]:
    """Return the labels of a conversation with the labels of a call; new ones for as long as there is room."""
    found = dict(labels)
    for name, value in origin.labels.items():
        if name in found or len(found) < MAX_LABELS:
            found[name] = value
    return found


def _session(headers: Mapping[str, str], payload: Mapping[str, Any]) -> str | None:
    """What a call says its session is: where that was said, and its id."""
    if named := headers.get(_CLAUDE_CODE):
        return f"claude-code:{named}"
    if named := _in_user_id(payload):
        return f"claude-code:{named}"
    for name, kind in _HEADERS.items():
        if named := headers.get(name):
            return f"{kind}:{named}"
    cache_key = payload.get("prompt_cache_key")  # also of many conversations that begin alike, unless it is unique
    if isinstance(cache_key, str) and _UUID.fullmatch(cache_key):
        return f"codex:{cache_key}"
    conversation = payload.get("conversation")
    named = conversation.get("id") if isinstance(conversation, dict) else conversation or payload.get("conversation_id")
    return f"conversation:{named}" if isinstance(named, str) and named else None


def _in_user_id(payload: Mapping[str, Any]) -> str | None:
    """The session in `metadata.user_id`: a JSON object, or the end of a text."""
    metadata = payload.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    if found := _SESSION_IN_USER.search(user):
        return found["id"]
    try:
        value = json.loads(user)
    except ValueError:
        return None
    named = value.get("session_id") if isinstance(value, dict) else None
    return named if isinstance(named, str) and named else None


def _external_ids(text: str, user_id: str | None) -> tuple[str, ...]:
    """The application's id of a conversation, and with a user that as one of the user alone."""
    if len(text) > _MAX_ID:
        text = f"{text.partition(':')[0]}:{short_digest(text)}"
    return (text,) if user_id is None else (text, own_name(text, user_id))


def place_of(owner: Owner, origin: Origin, session: Session) -> Hashable:
    """Return what calls have in common of which each must know what came of the one before."""
    return owner, origin.conversation_id or origin.external_ids or beginning_of(session)


async def find(
    store: AsyncStore, origin: Origin, payload: Mapping[str, Any], session: Session
) -> AsyncConversation | None:
    """Return the conversation that a call goes on with; None for a new one.

    Raises:
        NotFound: the call names a conversation that this owner does not have.
    """
    if origin.conversation_id is not None:
        return await store.get_conversation(origin.conversation_id)
    if origin.external_ids:
        for external_id in origin.external_ids:
            if (found := await store.find_conversation(external_id=external_id)) is not None:
                return found
        return None
    previous = payload.get("previous_response_id")
    if isinstance(previous, str) and previous:
        try:
            stored = await store.get_response(previous)
        except NotFound:
            return None
        return await store.get_conversation(stored.conversation_id)
    agreeing = await store.run_sync(find_by_history, session)
    return None if agreeing is None else await store.get_conversation(agreeing.id)


async def forked(conversation: AsyncConversation, session: Session) -> AsyncConversation:
    """Return a new branch with what a client's history has of a conversation, for calls at the same time."""
    return await conversation.fork(at=await conversation.run_sync(last_shared, session))


def unused_branch(conversation: Conversation, at: int) -> Conversation | None:
    """Return the conversation on a branch that was forked off there and has nothing of its own; None for none."""
    found = find_unused(conversation.handle, at)
    return None if found is None else Conversation(conversation.handle.on(found))


# Finding it, and what is new of a client's history


class Locks:
    """A lock for each place where conversations are found or begun, for as long as it is needed."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def of(self, place: Hashable) -> asyncio.Lock:
        """Return the lock of a place."""
        return self._locks.setdefault(place, asyncio.Lock())


async def placed(store: AsyncStore, call: ClientCall, locks: Locks) -> AsyncConversation:
    """Return the conversation of a call, on the branch that has its history, with its settings.

    A call that names a conversation that is not there for its owner is stored as if it named none. `locks` are shared
    by all calls that are stored here.
    """
    session = get_format(call.format).parse_request(call.payload, **call.options)
    origin = Origin.of(call)
    try:
        return await _placed(store, call, session, origin, locks)
    except NotFound:
        if origin.conversation_id is None:
            raise
        headers = {name: value for name, value in call.headers.items() if name != CONVERSATION}
        return await _placed(store, call, session, Origin.of(call._replace(headers=headers)), locks)


async def _placed(
    store: AsyncStore, call: ClientCall, session: Session, origin: Origin, locks: Locks
) -> AsyncConversation:
    """The conversation to which a call belongs; NotFound if it is not there (any more)."""
    async with locks.of(place_of(call.owner, origin, session)):
        conversation = await find(store, origin, call.payload, session)
        if conversation is None:
            conversation, is_new = await _begun(store, call, session, origin)
            if is_new:
                return conversation
        conversation = await _continued(conversation, call, session)
        await conversation.run_sync(configure, session)
        labels = labelled(conversation.labels, origin)
        if labels != conversation.labels:
            await conversation.update(labels=labels)
        return conversation


async def _continued(conversation: AsyncConversation, call: ClientCall, session: Session) -> AsyncConversation:
    """The conversation with what is new of the history, on the branch that has it."""
    before, asked = conversation.branch, (call.payload, call.format)
    for _ in range(TRIES):
        try:
            result = await conversation.sync_request(*asked, idempotency_key=call.key)
            break
        except ResponseInProgress:  # another call is being answered there
            conversation = await forked(conversation, session)
    else:
        result = await conversation.sync_request(*asked, on_conflict="branch", idempotency_key=call.key)
    if result.branch != conversation.branch:
        conversation = await conversation.on_branch(result.branch)
    if conversation.branch != before:
        await conversation.set_active_branch(conversation.branch)
    return conversation


async def _begun(
    store: AsyncStore, call: ClientCall, session: Session, origin: Origin
) -> tuple[AsyncConversation, bool]:
    """A new conversation, or the one of a faster process, and whether it is new.

    A key of one user learns of no external id of others, so it uses the ids of its user alone.
    """
    is_of_user = call.owner.user_id is not None and not call.owner.names_user
    names = origin.external_ids[-1:] if is_of_user else origin.external_ids
    refusal: InvalidOption | None = None
    for external_id in names or (None,):
        try:
            return await _new_conversation(store, call, session, origin, external_id), True
        except InvalidOption as error:  # it is there, or belongs to another user
            refusal = error
            if (conversation := await find(store, origin, call.payload, session)) is not None:
                return conversation, False
    assert refusal is not None  # noqa: S101 - there is a name, or None
    raise refusal


async def _new_conversation(
    store: AsyncStore, call: ClientCall, session: Session, origin: Origin, external_id: str | None
) -> AsyncConversation:
    labels, beginning = dict(origin.labels), beginning_of(session)
    if external_id is None and beginning is not None:
        labels[BEGINNING] = beginning
    conversation = await store.import_request(
        call.payload, call.format, labels=labels, external_id=external_id, idempotency_key=call.key, **call.options
    )
    if origin.is_aside:
        await conversation.archive()
    return conversation
