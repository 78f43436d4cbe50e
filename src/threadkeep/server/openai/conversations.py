"""OpenAI's Conversations API, and a list of conversations, which it lacks.

Source: OpenAI's API reference, "Conversations".
"""

from __future__ import annotations

from typing import Any, Literal

from starlette.responses import Response

from threadkeep.domain import jsontext, stored
from threadkeep.server import answers, body_limits, objects, owners, pages, problems
from threadkeep.server.openai.items import given_items, named
from threadkeep.server.requests import MAX_LIMIT, PageQuery, body_object, idempotency_key, pairs, required, status_of
from threadkeep.server.service import Call
from threadkeep.store.aio import AsyncConversation


def _answer(conversation: AsyncConversation, *, is_whole: bool = True) -> answers.JsonAnswer:
    found = objects.conversation_object(conversation, is_whole=is_whole)
    return answers.JsonAnswer(found, headers={"ETag": f'"{conversation.head}"'})


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise problems.Problem(400, "metadata must be an object.", param="metadata", code="invalid_type")
    return value


async def create(call: Call) -> Response:
    """POST /conversations."""
    body = await body_object(call.request, call.service.max_body_bytes)
    items = await given_items(call, body.get("items") or [])
    key = owners.own_key(idempotency_key(call.request), call.user_id)
    with named("items"):
        conversation = await call.store.create_conversation(
            input=items, known=False, properties=_metadata(body.get("metadata")), idempotency_key=key
        )
    return _answer(conversation, is_whole=call.may_read)


async def retrieve(call: Call) -> Response:
    """GET /conversations/{id}."""
    return _answer(await call.conversation())


async def update(call: Call) -> Response:
    """POST /conversations/{id}: the metadata it has from now on."""
    body = await body_object(call.request, min(body_limits.MAX_METADATA_BODY, call.service.max_body_bytes))
    metadata = _metadata(required(body, "metadata"))
    conversation = await call.conversation()
    await conversation.update(properties=metadata, idempotency_key=idempotency_key(call.request))
    changed = await call.conversation()
    found = objects.conversation_object(changed, is_whole=call.may_read)
    return answers.JsonAnswer({**found, "metadata": metadata}, headers={"ETag": f'"{changed.head}"'})


async def delete(call: Call) -> Response:
    """DELETE /conversations/{id}, with its items."""
    conversation = await call.conversation()
    await call.store.delete_conversation(conversation.id)
    answer: jsontext.JsonObject = {"id": conversation.id, "object": "conversation.deleted", "deleted": True}
    return answers.JsonAnswer(answer)


async def list_all(call: Call) -> Response:
    """GET /conversations: a page of them, by their newest activity; an extension of OpenAI's API."""
    query = call.request.query_params
    status = status_of(query.get("status", "active"))
    return await answer_list(call, PageQuery.of(call.request), status, query.get("user_id"))


async def answer_list(
    call: Call, page: PageQuery, status: Literal["active", "archived"] | None, user_id: str | None
) -> Response:
    """Answer with a page of the conversations that have a status, the labels in the query, and a user."""
    labels = pairs(call.request, "labels") or None

    async def read(after: str | None, limit: int) -> stored.Page[stored.ConversationSummary]:
        return await call.store.list_summaries(
            user_id=user_id, labels=labels, status=status, after=after, limit=limit, order=page.order
        )

    found = await pages.listed(page, read, objects.summary_object, MAX_LIMIT)
    answer = pages.list_object(found.data, has_more=found.next is not None)
    # what clients pass as `after`: not the id, for a conversation that is used meanwhile moves to the first page
    return answers.JsonAnswer({**answer, "last_id": found.next or answer["last_id"]})
