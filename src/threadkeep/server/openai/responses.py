"""Stored responses, as OpenAI's Responses API has them: whatever provider they came from.

Source: OpenAI's API reference, "Responses".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from itertools import islice
from math import inf
from typing import Final, NamedTuple, TypeVar

from starlette.responses import Response

from threadkeep.domain.jsontext import JsonObject, dumps_finite
from threadkeep.domain.response import Response as StoredAnswer
from threadkeep.domain.stored import StoredResponse
from threadkeep.errors import NotFound
from threadkeep.server import answer_events, answers, event_streams, objects, pages, request_state, requests
from threadkeep.server.objects import details_object, masked, partial_item, response_object
from threadkeep.server.problems import Problem
from threadkeep.server.quotas import QuotaExceeded
from threadkeep.server.service import Call
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader
from threadkeep.store.streaming.recorder import PartialReader
from threadkeep.store.work.connections import made_of

T = TypeVar("T")

_SEQUENCE_NUMBER: Final = re.compile(r"-?[0-9]{1,15}")
CANCEL_SECONDS: Final = 5.0  # in which a response that is cancelled usually ends
POLL_SECONDS: Final = 0.2  # between looks at a response that is in progress
MAX_FOLLOWED: Final = 2**20  # bytes of one that are shown while it grows: each follower has them in memory


class FoundResponse(NamedTuple):
    """A stored response that was asked for.

    Attributes:
        conversation: its conversation, on its branch.
        stored: what is stored of it.
        id: the id it is shown with: the one it was asked for by, if that looks like the id of a response.
    """

    conversation: Conversation
    stored: StoredResponse
    id: str


async def retrieve(call: Call, id: str | None = None) -> Response:
    """GET /responses/{id}: the response or, with ``stream=true``, the events that make it."""
    wanted: str = id or call.request.path_params["response_id"]
    if not requests.flag(call.request, "stream"):
        return answers.JsonAnswer(await read_text(call, wanted))
    start = call.request.query_params.get("starting_after", "-1")
    if not _SEQUENCE_NUMBER.fullmatch(start):
        problem = "starting_after must be the sequence number of an event."
        raise Problem(400, problem, param="starting_after", code="invalid_value")
    first = await read_object(call, wanted)
    return event_streams.EventStream(replay(call, first, int(start)), call.permission, streams=call.service.streams)


async def delete(call: Call, id: str | None = None) -> Response:
    """DELETE /responses/{id}: it is not found any more; its items stay in the conversation."""
    found = await call.read(find, id or call.request.path_params["response_id"])
    await call.store.delete_response(found.stored.id)
    return answers.JsonAnswer({"id": found.id, "object": "response.deleted", "deleted": True})


async def cancel(call: Call, id: str | None = None) -> Response:
    """POST /responses/{id}/cancel: asks the recorder of the response to stop; one that has ended is left as it is.

    It is answered when the response has ended, or as it is then if that takes long.
    """
    wanted: str = id or call.request.path_params["response_id"]
    first = await read_object(call, wanted, has_content=call.may_read)
    if first["status"] != "in_progress":
        return answers.JsonAnswer(first)
    found = await call.read(find, wanted)
    await call.store.face_of(found.conversation).cancel_response(found.stored.number)
    await until_ended(call, wanted, CANCEL_SECONDS)
    return answers.JsonAnswer(await read_text(call, wanted, has_content=call.may_read))


async def list_input(call: Call) -> Response:
    """GET /responses/{id}/input_items: a page of what the model saw."""
    page, wanted = requests.PageQuery.of(call.request), call.request.path_params["response_id"]

    def read(reader: Reader) -> bytes:
        found = find(reader, wanted)
        shown, upto = masked(call), found.stored.input_to
        return pages.listed_items(
            reader, found.conversation, page, lambda item: objects.item_object(item, shown), upto=upto
        )

    return answers.JsonAnswer(await call.read(read))


def find(reader: Reader, wanted: str) -> FoundResponse:
    """Find a response by threadkeep's own id, or the provider's (blocking)."""
    try:
        conversation, stored = reader.stored_response(wanted)
    except NotFound as error:
        raise _not_found(wanted) from error
    return FoundResponse(conversation, stored, shown_id(wanted, stored))


def shown_id(wanted: str, stored: StoredResponse) -> str:
    """Return the id that a response is shown with: the one it was asked for by, if it looks like one."""
    return wanted if wanted.startswith("resp_") else stored.id


def _not_found(wanted: str) -> Problem:
    return Problem(404, f"Response with id '{wanted}' not found.", code="not_found")


def find_previous(reader: Reader, wanted: str) -> FoundResponse:
    """Find the response after which a request goes on; Problem as OpenAI has it (blocking)."""
    try:
        return find(reader, wanted)
    except Problem as error:
        problem = f"Previous response with id '{wanted}' not found."
        raise Problem(400, problem, param="previous_response_id", code="previous_response_not_found") from error


async def read_object(call: Call, wanted: str, *, has_content: bool = True) -> JsonObject:
    """Return a stored response as clients read it; without its content, it is no more than its status.

    Raises:
        Problem: there is none.
        QuotaExceeded: too much is under way; a large one counts until the request has ended.
    """
    return await call.read(_read, call, wanted, request_state.holder(), dict, has_content=has_content)


async def read_text(call: Call, wanted: str, *, has_content: bool = True) -> bytes:
    """Return the JSON text of a stored response; otherwise like `read_object`."""
    return await call.read(_read, call, wanted, request_state.holder(), dumps_finite, has_content=has_content)


def _read(
    reader: Reader, call: Call, wanted: str, hold: Callable[[int], None], make: Callable[[JsonObject], T], *,
    has_content: bool,
) -> T:  # fmt: skip
    """What `make` makes of a stored response (blocking): of a large one, in a thread, as others would wait for it."""
    size = 0

    def make_room(needed: int) -> None:
        nonlocal size
        size = needed
        hold(size)

    try:
        _, details = reader.response(wanted, make_room)
    except NotFound as error:
        raise _not_found(wanted) from error
    id_ = shown_id(wanted, details.stored)

    def shown() -> T:
        if has_content:
            return make(details_object(call, details, id_))
        return make({**response_object(details.stored, None, []), "id": id_})

    return made_of(size, shown)


def followed(call: Call, response: FoundResponse) -> Callable[[], Awaitable[StoredAnswer | None]]:
    """Return what reads how far a response in progress has come, at each call; None where no more of it is shown.

    That is when it has ended, or as soon as it is too large, or too much is under way.
    """
    conversation, hold = call.store.face_of(response.conversation), request_state.holder()
    reader = PartialReader(conversation.handle, response.stored.number, MAX_FOLLOWED)

    def read() -> StoredAnswer | None:
        found = reader.read()
        try:
            hold(0 if found is None else reader.size)
        except QuotaExceeded:
            reader.end()
            return None
        return found

    return partial(conversation.call, read)


async def replay(call: Call, response: JsonObject, after: int) -> AsyncGenerator[JsonObject]:
    """Yield the events of a response after a sequence number; of one in progress, as it grows.

    To a client that has had some, the rest of one in progress comes when it has ended, and the last event in any case:
    its number may come from a stream which had the text in other pieces.
    """
    if after < 0 and response["status"] == "in_progress":
        async with aclosing(_growing(call, response)) as events:
            async for event in events:
                yield event
        return
    sent = after
    while True:
        last: JsonObject = {}
        for last in answer_events.events_of(response):
            if last["sequence_number"] > sent:
                sent = last["sequence_number"]
                yield last
        if response["status"] != "in_progress":
            if sent == after:
                yield {**last, "sequence_number": after + 1}
            return
        await until_ended(call, response["id"])
        response = await read_object(call, response["id"])


async def _growing(call: Call, response: JsonObject) -> AsyncGenerator[JsonObject]:
    """The events of a response in progress, from what is stored of it."""
    found = await call.read(find, response["id"])
    read = followed(call, found)
    growing, hidden = answer_events.growing_events(response), masked(call)
    for event in growing.begin():
        yield event
    conversation, place, seen = found.conversation.id, found.stored.input_to + 1, None

    def shown_by(partial: StoredAnswer) -> list[JsonObject]:
        def output(first: int) -> list[JsonObject]:
            rest = islice(enumerate(partial.output, place), first, None)
            return [partial_item(item, conversation, position, hidden) for position, item in rest]

        return [*growing.show(output)]

    while not await until_ended(call, response["id"], POLL_SECONDS):
        partial = await read()
        if partial is not None and partial is not seen:
            for event in await asyncio.to_thread(shown_by, partial):
                yield event
        seen = partial
    seen = partial = None
    del read
    response = await read_object(call, response["id"])
    for event in growing.end(response):
        yield event


async def until_ended(call: Call, wanted: str, seconds: float = inf) -> bool:
    """Wait until a response that was in progress has ended, or for so long; return whether it has."""
    now = asyncio.get_running_loop().time
    end = now() + seconds
    while now() < end:
        await asyncio.sleep(POLL_SECONDS)
        if (await call.read(find, wanted)).stored.status != "in_progress":
            return True
    return False
