"""Stored responses, as OpenAI's Responses API has them: whatever provider they came from.

Source: OpenAI's API reference, "Responses".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from math import inf
from typing import Final, NamedTuple

from starlette.responses import Response

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import Page, StoredItem, StoredResponse
from threadkeep.errors import NotFound
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.event_streams import EventStream
from threadkeep.http.openai.growing import events_of
from threadkeep.http.openai.items import masked
from threadkeep.http.openai.objects import item_object, list_object, listed_items
from threadkeep.http.openai.response_objects import asked_for, response_object
from threadkeep.http.problems import Problem
from threadkeep.http.requests import PageQuery, flag
from threadkeep.http.service import Call
from threadkeep.store.aio import AsyncConversation, on_conversation

_SEQUENCE_NUMBER: Final = re.compile(r"-?[0-9]{1,15}")
CANCEL_SECONDS: Final = 5.0  # in which a response that is cancelled usually ends
POLL_SECONDS: Final = 0.2  # between looks at a response that is in progress


class Found(NamedTuple):
    """A stored response that was asked for.

    Attributes:
        conversation: its conversation, on its branch.
        stored: what is stored of it.
        id: the id it is shown with: the one it was asked for by, if that looks like the id of a response.
    """

    conversation: AsyncConversation
    stored: StoredResponse
    id: str


async def retrieve(call: Call) -> Response:
    """GET /responses/{id}: the response or, with ``stream=true``, the events that make it."""
    found = await find(call, call.request.path_params["response_id"])
    if not flag(call.request, "stream"):
        return JsonAnswer(await stored_object(call, found))
    start = call.request.query_params.get("starting_after", "-1")
    if not _SEQUENCE_NUMBER.fullmatch(start):
        problem = "starting_after must be the sequence number of an event."
        raise Problem(400, problem, param="starting_after", code="invalid_value")
    return EventStream(replay(call, found, int(start)), call.permission, streams=call.service.streams)


async def delete(call: Call) -> Response:
    """DELETE /responses/{id}: it is not found any more; its items stay in the conversation."""
    found = await find(call, call.request.path_params["response_id"])
    await call.store.delete_response(found.stored.id)
    return JsonAnswer({"id": found.id, "object": "response.deleted", "deleted": True})


async def cancel(call: Call) -> Response:
    """POST /responses/{id}/cancel: asks whoever records the response to stop; one that has ended is left as it is.

    It is answered when the response has ended, or as it is then if that takes long.
    """
    found = await find(call, call.request.path_params["response_id"])
    if found.stored.status == "in_progress":
        await found.conversation.cancel_response(found.stored.number)
        found = await _ended(found, CANCEL_SECONDS)
    return JsonAnswer(await stored_object(call, found) if call.may_read else _without_content(found))


def _without_content(found: Found) -> JsonObject:
    """A response for who may only write: that it is there, and its status."""
    return {**response_object(found.stored, None, []), "id": found.id}


async def list_input(call: Call) -> Response:
    """GET /responses/{id}/input_items: a page of what the model saw."""
    page = PageQuery.of(call.request)
    found = await find(call, call.request.path_params["response_id"])

    async def read(after: str | None, limit: int) -> Page[StoredItem]:
        return await found.conversation.input_items(found.stored.number, after=after, limit=limit, order=page.order)

    items = await listed_items(page, found.conversation, read, lambda item: item_object(item, masked(call)))
    return JsonAnswer(list_object(items.data, has_more=items.next is not None))


async def find(call: Call, wanted: str) -> Found:
    """Find a response by threadkeep's own id, or the provider's."""
    try:
        stored = await call.store.get_response(wanted)
        conversation = await call.store.get_conversation(stored.conversation_id, branch=stored.branch)
    except NotFound as error:
        raise Problem(404, f"Response with id '{wanted}' not found.", code="not_found") from error
    return Found(conversation, stored, wanted if wanted.startswith("resp_") else stored.id)


async def find_previous(call: Call, wanted: str) -> Found:
    """Find the response after which a request goes on; Problem as OpenAI has it."""
    try:
        return await find(call, wanted)
    except Problem as error:
        problem = f"Previous response with id '{wanted}' not found."
        raise Problem(400, problem, param="previous_response_id", code="previous_response_not_found") from error


async def stored_object(call: Call, found: Found) -> JsonObject:
    """Return a stored response as clients read it; who may not read is told no settings of what was asked."""
    number = found.stored.number
    try:
        body = await found.conversation.response_body(number)
    except NotFound:
        body = None  # removed by retention, or not there yet
    items = await found.conversation.output_items(number)
    output = [item_object(item, masked(call)) for item in items]
    asked = await on_conversation(found.conversation, asked_for, number) if call.may_read else None
    ended = items[-1].created_at if items else None
    return {**response_object(found.stored, body, output, asked, ended), "id": found.id}


async def replay(call: Call, found: Found, after: int) -> AsyncGenerator[JsonObject]:
    """Yield the events of a response after a sequence number; of one in progress, the rest when it has ended.

    The last event comes in any case: the number can be that of a stream which had the text in more pieces.
    """
    sent = after
    while True:
        last: JsonObject = {}
        for last in events_of(await stored_object(call, found)):
            if last["sequence_number"] > sent:
                sent = last["sequence_number"]
                yield last
        if found.stored.status != "in_progress":
            if sent == after:
                yield {**last, "sequence_number": after + 1}
            return
        found = await _ended(found)


async def _ended(found: Found, seconds: float = inf) -> Found:
    """A response that was in progress, once it has ended or after so long: until then, there is nothing new in it."""
    now = asyncio.get_running_loop().time
    end = now() + seconds
    while found.stored.status == "in_progress" and now() < end:
        await asyncio.sleep(POLL_SECONDS)
        found = found._replace(stored=await found.conversation.get_response(found.stored.number))
    return found
