"""Responses of models, whatever way they came in, and their events for clients that come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Final

from fastapi import Response

from threadkeep.domain.jsontext import JsonObject
from threadkeep.server.openai import responses
from threadkeep.server.problems import Problem
from threadkeep.server.rest import deps, models, routing
from threadkeep.server.rest.answering import END, NumberedEvents
from threadkeep.server.service import Call

router = routing.api_router("/responses/{response_id}")

POLL_SECONDS: Final = 0.25  # between looks at what a recorder elsewhere has stored


@router.get("", response_model=models.ResponseObject)
async def retrieve_response(call: deps.Reading, response_id: str) -> Response:
    """Retrieve a response, also one that is in progress."""
    return await responses.retrieve(call, response_id)


@router.delete("", response_model=models.Deleted)
async def delete_response(call: deps.Writing, response_id: str) -> Response:
    """Delete a response; its items stay in the conversation."""
    return await responses.delete(call, response_id)


@router.post("/cancel", response_model=models.ResponseObject)
async def cancel_response(call: deps.Writing, response_id: str) -> Response:
    """Ask for the end of a response in progress; one that has ended is left as it is."""
    return await responses.cancel(call, response_id)


@router.get("/events", response_class=Response, responses={
    200: routing.EVENTS, 204: {"description": "The stream has ended before."},
})  # fmt: skip
async def follow_response(
    call: deps.Reading, response_id: str, last_event_id: deps.LastEventId = None, after: deps.AfterEvent = "0"
) -> Response:
    """Stream the events of a response, stored or in progress, after those that the client has."""
    found = await call.read(responses.find, response_id)
    given = last_event_id or after
    if given == END:
        return Response(status_code=204)  # what tells clients not to come again
    if not (given.isascii() and given.isdecimal() and len(given) < 16):  # noqa: PLR2004 - digits of any text
        raise Problem(400, "Last-Event-ID must be the id of an event.", param="Last-Event-ID", code="invalid_value")
    return NumberedEvents(_stored_events(call, found, int(given)), call.permission, streams=call.service.streams)


async def _stored_events(call: Call, found: responses.FoundResponse, sent: int) -> AsyncGenerator[JsonObject]:
    """The events after so many characters, from what is stored."""
    read = responses.followed(call, found)
    while True:
        partial = await read()
        stored, response = (await call.read(responses.find, found.id)).stored, None
        if stored.status != "in_progress":
            response = await responses.read_object(call, found.id)
            text = text_of(response["output"])
        else:
            text = "" if partial is None else text_of(item.to_object() for item in partial.output)
        if len(text) > sent:
            delta, sent = text[sent:], len(text)
            yield {"id": sent, "type": "delta", "delta": delta}
        if response is not None:
            yield {"id": END, "type": "done", "response": response}
            return
        await asyncio.sleep(POLL_SECONDS)


def text_of(items: Iterable[Mapping[str, Any]]) -> str:
    """Return what a model has said: the texts of its messages, as streams have them."""
    texts: list[str] = []
    for item in items:
        content = item.get("content") if item.get("type") == "message" else None
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [part["text"] for part in content if part.get("type") == "output_text"]
    return "".join(texts)
