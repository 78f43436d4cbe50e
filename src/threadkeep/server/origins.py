"""What a call says about the session it belongs to: headers and fields of coding agents and other clients.

Sources: Claude Code's documentation of gateways; what Codex, opencode, Helicone and others send.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats import FormatName
from threadkeep.server import body_limits, owners
from threadkeep.store.history_sync.sync import short_digest

CONVERSATION: Final = "x-threadkeep-conversation"
LABEL: Final = "x-threadkeep-label-"
CLASS: Final = "request-class"
SUMMING_UP: Final = "compaction"  # the class of a side call for a summary
_MAX_GIVEN: Final = body_limits.MAX_LABELS - 5  # labels from headers: beside those that say where a call comes from
_MAX_ID: Final = 200  # characters of a session's id; of longer ones, a digest stands for them
# header -> what its sessions are called, in the order in which they count
_HEADERS: Final = {
    "x-claude-code-session-id": "claude-code",
    "thread-id": "codex",
    "session-id": "pi",
    "session_id": "pi",
    "x-session-id": "session",
    "x-session-affinity": "session",
    "helicone-session-id": "helicone",
}
_PARENT: Final = "x-parent-session-id"  # of opencode
_OPENCODE: Final = "ses_"  # what the ids of its sessions begin with
_AGENT: Final = "user-agent"  # by which pi is told from other clients with a header of its
_PI: Final = re.compile(r"pi(/|$)")
_ORIGINATOR: Final = "originator"  # a header of Codex, which calls its sessions as pi does; pi may name itself there
_CODEX_PARENT: Final = "x-codex-parent-thread-id"
_CODEX_AGENT: Final = "x-openai-subagent"  # what kind of agent it is
_CODEX_TURN: Final = "x-codex-turn-metadata"
_CODEX_FIELDS: Final = ("forked_from_thread_id", "request_kind")  # of the JSON object in that header
_CLAUDE_CODE: Final = {name: f"x-claude-code-{name}" for name in ("session-id", "agent-id", "parent-agent-id", CLASS)}
_KEPT: Final = frozenset(
    {CONVERSATION, *_CLAUDE_CODE.values(), *_HEADERS, _PARENT, _ORIGINATOR, _CODEX_PARENT, _CODEX_AGENT}
)
# what sessions are called of clients that make side calls
_WITH_SIDE_CALLS: Final = ("claude-code:", "codex:", "opencode:", "pi:", "session:")
_SESSION_IN_USER: Final = re.compile(r"_session_(?P<id>[0-9a-fA-F-]{36})$")
_CONVERSATION_ID: Final = re.compile(r"conv_[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
# classes of calls beside the conversation, such as titles: of Claude Code, and of Codex
_SIDE_CLASSES: Final = frozenset({"auxiliary", SUMMING_UP, "side_reply", "memory_consolidation"})


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
    owner: owners.Owner
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
        is_aside: whether it is a side call of a conversation, which lists do not show.
        may_be_aside: whether its client makes side calls that do not say so.
    """

    external_ids: tuple[str, ...] = ()
    conversation_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    is_aside: bool = False
    may_be_aside: bool = False

    @property
    def is_nameless(self) -> bool:
        """Whether the call does not say which conversation is its own."""
        return not self.external_ids and self.conversation_id is None

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
        session = ClientSession.of(headers, call.payload)
        if session is None:
            return cls(labels=labels)
        if session.agent:
            labels |= {"agent": session.agent, "parent": _external_ids(session.parent, user_id)[-1]}
        if session.forked_from:
            labels["forked-from"] = _external_ids(session.forked_from, user_id)[-1]
        origin = cls(
            _external_ids(session.id, user_id), labels=labels, may_be_aside=session.id.startswith(_WITH_SIDE_CALLS)
        )
        return origin.beside(call, session.id, session.kind) if session.kind in _SIDE_CLASSES else origin

    def beside(self, call: ClientCall, id: str, kind: str = "auxiliary") -> Origin:
        """Return the origin of a side call of the session with this id."""
        user_id = call.owner.user_id
        labels = {**self.labels, CLASS: kind, "parent": _external_ids(id, user_id)[-1]}
        return Origin(_external_ids(f"{id}#{kind}", user_id), labels=labels, is_aside=True)


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a call that say where it belongs, and of Codex's about the turn what says that."""
    kept = {name: value for name, value in headers.items() if name in _KEPT or name.startswith(LABEL)}
    if _PI.match(headers.get(_AGENT, "")):
        kept[_AGENT] = headers[_AGENT]
    turn = _codex_turn(headers, {})
    return {**kept, _CODEX_TURN: json.dumps(turn)} if turn else kept


def labelled(labels: Mapping[str, str], origin: Origin) -> dict[str, str]:
    """Return the labels of a conversation with the labels of a call; new ones for as long as there is room."""
    found = dict(labels)
    for name, value in origin.labels.items():
        if name in found or len(found) < body_limits.MAX_LABELS:
            found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class ClientSession:
    """The session that a call names.

    Attributes:
        id: what it is called.
        agent: the agent whose session it is, which that with the id `parent` started; empty for none.
        forked_from: the id of the session with a copy of which it began; empty for none.
        kind: of the call, as its client says; empty if it does not.
    """

    id: str
    agent: str = ""
    parent: str = ""
    forked_from: str = ""
    kind: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str], payload: JsonObject) -> ClientSession | None:
        """Read it; None if a call names none."""
        if named := headers.get(_CLAUDE_CODE["session-id"]) or _in_user_id(payload):
            return cls.of_claude_code(f"claude-code:{named}", headers)
        said = ((called, headers[name]) for name, called in _HEADERS.items() if headers.get(name))
        called, named = next(said, ("codex", _cache_key(payload)))
        if named:
            return cls.of_header(called, named, headers, payload)
        conversation = payload.get("conversation")
        id_ = conversation.get("id") if isinstance(conversation, dict) else conversation
        id_ = id_ or payload.get("conversation_id")
        return cls(f"conversation:{id_}") if isinstance(id_, str) and id_ else None

    @classmethod
    def of_header(cls, called: str, named: str, headers: Mapping[str, str], payload: JsonObject) -> ClientSession:
        """A session that a header names, or a cache key; some clients use the headers of others."""
        if called == "codex" or (called == "pi" and headers.get(_ORIGINATOR, called) != called):
            return cls.of_codex(named, headers, payload)
        parent = headers.get(_PARENT, "")
        if called == "session":
            is_pi = _PI.match(headers.get(_AGENT, ""))
            called = "opencode" if named.startswith(_OPENCODE) else "pi" if is_pi else called
        return cls(f"{called}:{named}", named if parent else "", f"{called}:{parent}")

    @classmethod
    def of_claude_code(cls, session: str, headers: Mapping[str, str]) -> ClientSession:
        """A session of Claude Code, or of an agent in it."""
        agent, parent, kind = (headers.get(_CLAUDE_CODE[name], "") for name in ("agent-id", "parent-agent-id", CLASS))
        if not agent:
            return cls(session, kind=kind)
        return cls(f"{session}/{agent}", agent, f"{session}/{parent}" if parent else session, kind=kind)

    @classmethod
    def of_codex(cls, thread: str, headers: Mapping[str, str], payload: JsonObject) -> ClientSession:
        """A thread of Codex, or of an agent: the ids of both are of one kind."""
        parent, turn = headers.get(_CODEX_PARENT, ""), _codex_turn(headers, payload)
        fork, kind = turn.get("forked_from_thread_id"), headers.get(_CODEX_AGENT, "")
        kind = kind if kind in _SIDE_CLASSES else turn.get("request_kind", "")
        origin = f"codex:{fork}" if fork else ""
        return cls(f"codex:{thread}", thread if parent else "", f"codex:{parent}", origin, kind)


def _cache_key(payload: JsonObject) -> str:
    """The cache key of a request, if it is unique: others are those of many conversations that begin alike."""
    key = payload.get("prompt_cache_key")
    return key if isinstance(key, str) and _UUID.fullmatch(key) else ""


def _codex_turn(headers: Mapping[str, str], payload: JsonObject) -> dict[str, str]:
    """What Codex says of a turn that tells conversations apart: in a header, or in the body."""
    metadata = payload.get("client_metadata")
    in_body = metadata.get(_CODEX_TURN) if isinstance(metadata, dict) else None
    said = in_body or headers.get(_CODEX_TURN)  # over a WebSocket, the header is that of its first turn
    try:
        turn = json.loads(said) if isinstance(said, str) else None
    except ValueError:
        return {}
    fields = turn if isinstance(turn, dict) else {}
    return {name: value for name in _CODEX_FIELDS if isinstance(value := fields.get(name), str)}


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
    return (text,) if user_id is None else (text, owners.own_name(text, user_id))
