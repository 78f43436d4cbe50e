"""Conversations, and what is kept beside them: states, and how far they have been read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from starlette.responses import Response

from threadkeep.domain.annotations import State
from threadkeep.domain.pages import Page
from threadkeep.errors import InvalidOption
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.bounds import MAX_STATE_BODY, MAX_STATE_VALUES, check_tools
from threadkeep.http.openai import conversations
from threadkeep.http.openai.objects import list_object
from threadkeep.http.pages import listed
from threadkeep.http.problems import Problem
from threadkeep.http.requests import MAX_LIMIT, PageQuery, idempotency_key
from threadkeep.http.rest.bodies import read_body, seconds
from threadkeep.http.rest.models import ConversationChange, NewConversation, SeenPosition, StateValue
from threadkeep.http.rest.objects import conversation_view
from threadkeep.http.service import Call
from threadkeep.store.aio import AsyncConversation, check_request, in_transaction
from threadkeep.store.store import Store
from threadkeep.web.names import own_key, own_name

_STATES: Final = 20  # that are read at once: each has up to 1 MiB


async def create(call: Call) -> Response:
    """Create a conversation."""
    body = await read_body(call, NewConversation)
    given: dict[str, Any] = body.model_dump(exclude_none=True)
    check_tools(given)
    properties = given.pop("metadata", None)
    if "external_id" in given:
        given["external_id"] = await _free_name(call, given["external_id"])
    key = own_key(idempotency_key(call.request), call.user_id)
    with _known_names(body.external_id, given):
        made = await call.store.create_conversation(properties=properties, idempotency_key=key, **given)
    return JsonAnswer(conversation_view(made, is_whole=call.may_read), 201)


async def _free_name(call: Call, name: str, own: AsyncConversation | None = None) -> str:
    """An `external_id` as it is stored; Problem if another conversation of this user has it from its application."""
    found = None if call.user_id is None or not name else await call.store.find_conversation(external_id=name)
    if found is not None and (own is None or found.id != own.id):
        raise _taken(name)
    return name if found is not None else own_name(name, call.user_id)


def _taken(name: str) -> Problem:
    problem = f"Another conversation has the external_id {name!r}."
    return Problem(400, problem, param="external_id", code="invalid_value")


@contextmanager
def _known_names(name: str | None, given: Mapping[str, Any]) -> Iterator[None]:
    """While what is given is stored: a request at the same time may take its `external_id`, which has another name."""
    try:
        yield
    except InvalidOption as error:
        if name and error.argument is None and repr(given["external_id"]) in error.message:
            raise _taken(name) from error
        raise


async def list_all(call: Call) -> Response:
    """List conversations, by their newest activity."""
    return await conversations.list_all(call)


async def retrieve(call: Call) -> Response:
    """Retrieve a conversation."""
    return JsonAnswer(conversation_view(await call.conversation()))


async def update(call: Call) -> Response:
    """Change a conversation."""
    body = await read_body(call, ConversationChange)
    conversation, key = await call.conversation(), idempotency_key(call.request)
    content: dict[str, Any] = body.model_dump(exclude_unset=True)
    check_tools(content)
    given = dict(content)
    status = given.pop("status", None)
    if "metadata" in given:
        given["properties"] = given.pop("metadata") or {}
    if given.get("external_id"):
        given["external_id"] = await _free_name(call, given["external_id"], conversation)
    if given.get("labels", "absent") is None:
        given["labels"] = {}

    def change(store: Store) -> None:
        face = store.get_conversation(conversation.id)
        if key is not None:
            check_request(face, f"{key}:request", content)
        if "tools" in given:
            face.clear_tools(idempotency_key=None if key is None else f"{key}:no tools")
            face.register_tools(given["tools"] or [], idempotency_key=None if key is None else f"{key}:tools")
        if others := {name: value for name, value in given.items() if name != "tools"}:
            face.update(idempotency_key=key, **others)
        if status is not None:
            set_status = face.archive if status == "archived" else face.unarchive
            set_status(idempotency_key=None if key is None else f"{key}:status")

    with _known_names(body.external_id, given):
        await in_transaction(call.store, change)
    return JsonAnswer(conversation_view(await call.store.get_conversation(conversation.id), is_whole=call.may_read))


async def delete(call: Call) -> Response:
    """Delete a conversation with all its items."""
    conversation = await call.conversation()
    await call.store.delete_conversation(conversation.id)
    return JsonAnswer({"id": conversation.id, "object": "conversation.deleted", "deleted": True})


async def mark_seen(call: Call) -> Response:
    """Note how far the user has read."""
    body = await read_body(call, SeenPosition)
    seen = await (await call.conversation()).mark_seen(position=body.position)
    return JsonAnswer({"object": "seen", "user_id": seen.user_id, "position": seen.position})


async def list_states(call: Call) -> Response:
    """List the states of a conversation, by name."""
    page, conversation = PageQuery.of(call.request, MAX_LIMIT), await call.conversation()

    async def read(after: str | None, limit: int) -> Page[State]:
        found = await conversation.states(after=after, limit=limit + 1)
        return Page.of(found, limit, lambda state: state.name)

    found = await listed(page, read, _state, first=_STATES, at_once=_STATES)
    named = {"first_id": found.data[0]["name"], "last_id": found.data[-1]["name"]} if found.data else {}
    return JsonAnswer(list_object(found.data, has_more=found.next is not None) | named)


async def set_state(call: Call) -> Response:
    """Write a state."""
    body = await read_body(call, StateValue, most=MAX_STATE_BODY, values=MAX_STATE_VALUES)
    state = await (await call.conversation()).set_state(
        call.request.path_params["name"], body.value, expected_version=body.expected_version,
        idempotency_key=idempotency_key(call.request),
    )  # fmt: skip
    return JsonAnswer(_state(state))


async def delete_state(call: Call) -> Response:
    """Delete a state."""
    name = call.request.path_params["name"]
    if not await (await call.conversation()).delete_state(name):
        raise Problem(404, f"There is no state '{name}'.", code="not_found")
    return JsonAnswer({"id": name, "object": "state.deleted", "deleted": True})


def _state(state: State) -> dict[str, Any]:
    return {
        "name": state.name, "object": "state", "value": state.value, "version": state.version,
        "updated_at": seconds(state.updated_at),
    }  # fmt: skip
