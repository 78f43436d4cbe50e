"""Which conversation a call belongs to: what clients say of their sessions, or else their history.

Sources: Claude Code's documentation of gateways; the headers that Codex, Helicone and others send.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from threadkeep.domain.session import Session
from threadkeep.errors import NotFound
from threadkeep.server.body_limits import MAX_LABELS
from threadkeep.server.owners import own_name
from threadkeep.server.recorder.exchanges import CallFacts
from threadkeep.store.aio import AsyncConversation, AsyncStore
from threadkeep.store.history_sync.sync import beginning_of, find_by_history, last_shared, short_digest

CONVERSATION: Final = "x-threadkeep-conversation"
LABEL: Final = "x-threadkeep-label-"
CLASS: Final = "request-class"
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
    def of(cls, facts: CallFacts, payload: Mapping[str, Any], user_id: str | None) -> Origin:
        """Read a call's headers and body."""
        headers = facts.headers
        labels = {"recorded": facts.provider}
        given = ((name[len(LABEL) :], value) for name, value in headers.items() if name.startswith(LABEL))
        labels |= dict(islice(given, _MAX_GIVEN))
        if named := headers.get(CONVERSATION):
            if _CONVERSATION_ID.fullmatch(named):
                return cls(conversation_id=named, labels=labels)
            return cls(_external_ids(named, user_id), labels=labels)
        session = _session(headers, payload)
        if session is None:
            return cls(labels=labels)
        agent, parent = (headers.get(f"x-claude-code-{name}") for name in ("agent-id", "parent-agent-id"))
        kind = headers.get(f"x-claude-code-{CLASS}", "")
        id_ = session
        if agent:
            id_ = f"{session}/{agent}"
            started_by = _external_ids(f"{session}/{parent}" if parent else session, facts.owner.user_id)
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


def place_of(facts: CallFacts, origin: Origin, session: Session) -> Hashable:
    """Return what calls have in common of which each must know what came of the one before."""
    return facts.owner, origin.conversation_id or origin.external_ids or beginning_of(session)


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
