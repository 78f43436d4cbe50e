"""Conversations, and what is kept with them: states, and how far they have been read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from fastapi import Response

from threadkeep.domain.stored import Page, State
from threadkeep.errors import InvalidOption
from threadkeep.server import body_limits, owners, pages, problems, service
from threadkeep.server.answers import JsonAnswer
from threadkeep.server.openai import conversations
from threadkeep.server.requests import DEFAULT_LIMIT, MAX_LIMIT, PageQuery
from threadkeep.server.rest import deps, models, routing, tool_runs
from threadkeep.server.rest.objects import conversation_view, seconds
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.store import Store
from threadkeep.store.work.idempotency import check_request

router = routing.api_router("/conversations")

_STATES: Final = 20  # that are read at once: each has up to 1 MiB
_LABELS: Final = {
    "name": "labels", "in": "query", "description": "Only those with these labels: `labels[name]=value`.",
    "style": "deepObject", "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 16},
}  # fmt: skip


@router.get("", response_model=models.Listed[models.ConversationSummaryObject], openapi_extra={"parameters": [_LABELS]})
async def list_conversations(
    call: deps.Reading, after: deps.After = None, limit: deps.Limit = DEFAULT_LIMIT, order: deps.Order = "desc",
    status: deps.Status = "active", user_id: deps.UserId = None,
) -> Response:  # fmt: skip
    """List conversations, by their newest activity."""
    return await conversations.answer_list(call, PageQuery(after, limit, order), status, user_id)


@router.post("", status_code=201, response_model=models.ConversationObject)
async def create_conversation(
    call: deps.Writing, body: models.NewConversation, key: deps.IdempotencyKey = None
) -> Response:
    """Create a conversation."""
    call.service.check_instructions(are_given=body.instructions is not None)
    given: dict[str, Any] = body.model_dump(exclude_none=True)
    if call.service.instructions is not None:
        given["instructions"] = await call.service.instructions_for(call.permission.owner, body.external_id)
    body_limits.check_tools(given)
    properties = given.pop("metadata", None)
    if "external_id" in given:
        given["external_id"] = await _free_name(call, given["external_id"])
    given["idempotency_key"] = owners.own_key(key, call.user_id)
    with _known_names(body.external_id, given):
        made = await call.store.create_conversation(properties=properties, **given)
    return JsonAnswer(conversation_view(made, is_whole=call.may_read), 201)


async def _free_name(call: service.Call, name: str, own: AsyncConversation | None = None) -> str:
    """An `external_id` as it is stored; Problem if another conversation of this user has it from its application."""
    found = None if call.user_id is None or not name else await call.store.find_conversation(external_id=name)
    if found is not None and (own is None or found.id != own.id):
        raise _taken(name)
    return name if found is not None else owners.own_name(name, call.user_id)


def _taken(name: str) -> problems.Problem:
    problem = f"Another conversation has the external_id {name!r}."
    return problems.Problem(400, problem, param="external_id", code="invalid_value")


@contextmanager
def _known_names(name: str | None, given: Mapping[str, Any]) -> Iterator[None]:
    """While what is given is stored: a request at the same time may take its `external_id`, which has another name."""
    try:
        yield
    except InvalidOption as error:
        if name and error.argument is None and repr(given["external_id"]) in error.message:
            raise _taken(name) from error
        raise


@router.get("/{conversation_id}", response_model=models.ConversationObject)
async def retrieve_conversation(call: deps.Reading, conversation_id: str) -> Response:
    """Retrieve a conversation."""
    return JsonAnswer(conversation_view(await call.conversation(conversation_id)))


@router.patch("/{conversation_id}", response_model=models.ConversationObject)
async def update_conversation(
    call: deps.Writing, conversation_id: str, body: models.ConversationChange, key: deps.IdempotencyKey = None
) -> Response:
    """Change a conversation."""
    conversation = await call.conversation(conversation_id)
    content: dict[str, Any] = body.model_dump(exclude_unset=True)
    call.service.check_instructions(are_given="instructions" in content)
    body_limits.check_tools(content)
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
            check_request(face.handle, f"{key}:request", content)
        if "tools" in given:
            face.clear_tools(idempotency_key=None if key is None else f"{key}:no tools")
            face.register_tools(given["tools"] or [], idempotency_key=None if key is None else f"{key}:tools")
        if others := {name: value for name, value in given.items() if name != "tools"}:
            face.update(idempotency_key=key, **others)
        if status is not None:
            set_status = face.archive if status == "archived" else face.unarchive
            set_status(idempotency_key=None if key is None else f"{key}:status")

    with _known_names(body.external_id, given):
        await call.store.run_in_transaction(change)
    return JsonAnswer(conversation_view(await call.store.get_conversation(conversation.id), is_whole=call.may_read))


@router.delete("/{conversation_id}", response_model=models.Deleted)
async def delete_conversation(call: deps.Writing, conversation_id: str) -> Response:
    """Delete a conversation with all its items."""
    conversation = await call.conversation(conversation_id)
    await call.store.delete_conversation(conversation.id)
    return JsonAnswer({"id": conversation.id, "object": "conversation.deleted", "deleted": True})


@router.put("/{conversation_id}/seen", response_model=models.SeenObject)
async def mark_seen(call: deps.Writing, conversation_id: str, body: models.SeenPosition) -> Response:
    """Note how far the user has read."""
    seen = await (await call.conversation(conversation_id)).mark_seen(position=body.position)
    return JsonAnswer({"object": "seen", "user_id": seen.user_id, "position": seen.position})


@router.get("/{conversation_id}/states", response_model=models.Listed[models.StateObject])
async def list_states(
    call: deps.Reading, conversation_id: str, after: deps.After = None, limit: deps.Limit = MAX_LIMIT
) -> Response:
    """List the states of a conversation, by name."""
    page, conversation = PageQuery(after, limit, "asc"), await call.conversation(conversation_id)

    async def read(after: str | None, limit: int) -> Page[State]:
        found = await conversation.states(after=after, limit=limit + 1)
        return Page.of(found, limit, lambda state: state.name)

    found = await pages.listed(page, read, _state, _STATES)
    named = {"first_id": found.data[0]["name"], "last_id": found.data[-1]["name"]} if found.data else {}
    return JsonAnswer(pages.list_object(found.data, has_more=found.next is not None) | named)


@router.get("/{conversation_id}/states/{name}", response_model=models.StateObject)
async def retrieve_state(call: deps.Reading, conversation_id: str, name: str) -> Response:
    """Retrieve a state."""
    state = await (await call.conversation(conversation_id)).state(name)
    if state is None:
        raise _no_state(name)
    return JsonAnswer(_state(state))


@router.put("/{conversation_id}/states/{name}", response_model=models.StateObject)
async def set_state(
    call: deps.Writing, conversation_id: str, name: str, body: models.StateValue, key: deps.IdempotencyKey = None
) -> Response:
    """Write a state, but that by which the server keeps a conversation for its tools."""
    _check_state(name)
    conversation = await call.conversation(conversation_id)
    state = await conversation.set_state(name, body.value, expected_version=body.expected_version, idempotency_key=key)
    return JsonAnswer(_state(state))


@router.delete("/{conversation_id}/states/{name}", response_model=models.Deleted)
async def delete_state(call: deps.Writing, conversation_id: str, name: str) -> Response:
    """Delete a state, but that by which the server keeps a conversation for its tools."""
    _check_state(name)
    if not await (await call.conversation(conversation_id)).delete_state(name):
        raise _no_state(name)
    return JsonAnswer({"id": name, "object": "state.deleted", "deleted": True})


def _check_state(name: str) -> None:
    """Raise Problem for a state that is the server's: without it, tools would run once more that run already."""
    if name == tool_runs.RUNNING:
        problem = f"The state '{name}' is the server's: end the tools that run with POST …/stop."
        raise problems.Problem(400, problem, param="name", code="invalid_value")


def _no_state(name: str) -> problems.Problem:
    return problems.Problem(404, f"There is no state '{name}'.", code="not_found")


def _state(state: State) -> dict[str, Any]:
    return {
        "name": state.name, "object": "state", "value": state.value, "version": state.version,
        "updated_at": seconds(state.updated_at),
    }  # fmt: skip
