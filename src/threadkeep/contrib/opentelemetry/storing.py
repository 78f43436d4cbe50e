"""Stores a call: what is new of its history, its settings, and the answer with its row in the ledger."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from threadkeep.contrib.opentelemetry import messages, names
from threadkeep.contrib.opentelemetry.completions import Completion
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.session import Session
from threadkeep.errors import InvalidOption, NotFound
from threadkeep.formats import FormatName
from threadkeep.store.conversation import Conversation
from threadkeep.store.history_sync import alignment, client_history, sync
from threadkeep.store.store import Store

Stored: TypeAlias = Literal["stored", "duplicate"]

CHAT: Final[FormatName] = messages.FORMAT
LABELS: Final = {"recorded": "opentelemetry"}  # of conversations that begin here
MAX_ID: Final = 200  # characters of an application's id of a conversation; of longer ones, a digest stands for them
_RESPONSE: Final = "resp_"  # what ids in that API begin with
_OWN_ID: Final = re.compile(r"conv_[0-9a-f]{32}")


def store_completion(store: Store, completion: Completion) -> Stored:
    """Store a call, unless its answer is stored already.

    Raises:
        ThreadkeepError, SQLAlchemyError: it cannot be stored.
    """
    said, attributes = completion.read(), completion.attributes
    error, outputs = completion.error, said["outputs"]
    payload = messages.request_of(said["instructions"], said["inputs"], said["tools"], attributes)
    body = messages.response_of(outputs, attributes, error)
    if error is None and _is_stored(store, body):
        return "duplicate"
    conversation = _asked(store, completion, payload)
    call: Any = {"provider": names.provider_of(attributes), "latency_ms": completion.latency_ms}
    if error is not None and not any(message.get("parts") for message in outputs):
        model = attributes.get(names.REQUEST_MODEL)
        conversation.record_attempt(CHAT, error=error, model=model, **call)
        return "stored"
    options: Any = {"first_token_ms": completion.first_token_ms, "on_conflict": "branch", **call}
    is_stream = completion.attributes.get(names.STREAM) is True
    # the application did not wait for the end of a stream, which then has no reason of its end
    if error is None and is_stream and body["choices"][0]["finish_reason"] in (None, "error"):
        with conversation.stream_response(CHAT, **options) as recorder:
            recorder.feed(messages.chunk_of(body))
        return "stored"
    key = f"otel:{sha256(dumps(body)).hexdigest()}" if body.get("id") else None
    conversation.add_response(body, CHAT, idempotency_key=key, **options)
    return "stored"


def _is_stored(store: Store, body: JsonObject) -> bool:
    """Whether an answer with this id that says the same is stored: some servers give the same id to all of them."""
    response_id = body.get("id")
    if not response_id:
        return False
    try:
        stored = store.get_response(response_id)
        output = store.get_conversation(stored.conversation_id).output_items(stored.number)
    except NotFound:
        return False
    new = get_format(CHAT).parse_response(body, None).output
    return _sayings([item.item.to_object() for item in output]) == _sayings([item.to_object() for item in new])


def _sayings(items: list[JsonObject]) -> list[Any]:
    return [said.key for said in alignment.utterances_of(items) if not said.is_optional]


# What is asked


def _asked(store: Store, completion: Completion, payload: JsonObject) -> Conversation:
    """The conversation, on the branch that has the history of the request, with its settings."""
    session = get_format(CHAT).parse_request(payload)
    scoped = store if completion.user_id is None else store.for_user(completion.user_id)
    conversation = _before(scoped, completion)
    if conversation is not None:
        return _appended(conversation, session)
    conversation = _named(store, completion)
    if conversation is None and completion.conversation_id is None:
        conversation = sync.find_by_history(scoped, session)
    if conversation is None:
        try:
            return _new(scoped, completion, payload, session)
        except InvalidOption:  # another process was faster
            conversation = _named(store, completion)
            if conversation is None:
                raise
    if _is_held(completion, session) and sync.last_shared(conversation, session) < 0:
        return _appended(conversation, session)
    conversation = _continued(conversation, payload)
    client_history.configure(conversation, session)
    return conversation


def _appended(conversation: Conversation, session: Session) -> Conversation:
    """The conversation with all of the request, of which the provider has what came before."""
    conversation.add_items([item.to_object() for item in session.items], on_conflict="append", known=False)
    client_history.configure(conversation, session)
    return conversation


def _before(store: Store, completion: Completion) -> Conversation | None:
    """The conversation at the response that the call goes on from, if it names one and that is stored."""
    previous = completion.attributes.get(names.PREVIOUS_RESPONSE)
    if not previous:
        return None
    try:
        stored = store.get_response(previous)
    except NotFound:
        return None
    conversation = store.get_conversation(stored.conversation_id, branch=stored.branch)
    return conversation if conversation.head == stored.to_position else conversation.fork(at=stored.to_position)


def _is_held(completion: Completion, session: Session) -> bool:
    """Whether the provider may hold the history, so that all of the request is new: OpenAI's Responses API."""
    attributes = completion.attributes
    is_openais = attributes.get(names.PROVIDER) == "openai"
    is_response = str(attributes.get(names.RESPONSE_ID) or _RESPONSE).startswith(_RESPONSE)
    return is_openais and is_response and not any(sync.is_answer(item.to_object()) for item in session.items)


def _external_id(completion: Completion) -> str | None:
    name = completion.conversation_id
    if name is None or len(name) <= MAX_ID:
        return name
    return f"{name[:40]}:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _named(store: Store, completion: Completion) -> Conversation | None:
    """The conversation that the call names: by the application's id, or by ours."""
    external_id = _external_id(completion)
    if external_id is None:
        return None
    if _OWN_ID.fullmatch(external_id):
        try:
            return store.get_conversation(external_id)
        except NotFound:
            pass
    return store.find_conversation(external_id=external_id)


def _new(store: Store, completion: Completion, payload: JsonObject, session: Session) -> Conversation:
    labels, beginning = dict(LABELS), sync.beginning_of(session)
    if completion.conversation_id is None and beginning is not None:
        labels[sync.BEGINNING] = beginning
    return store.import_request(payload, CHAT, labels=labels, external_id=_external_id(completion))


def _continued(conversation: Conversation, payload: JsonObject) -> Conversation:
    """The conversation with what is new of the history, on the branch that has it, which it shows from now on."""
    result = conversation.sync_request(payload, CHAT, on_conflict="branch")
    if result.branch == conversation.branch:
        return conversation
    conversation = conversation.on_branch(result.branch)
    conversation.set_active_branch(result.branch)
    return conversation
