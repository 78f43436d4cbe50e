"""Answers of models: plain, in the background, and as streams that can be gone on with after a lost connection.

A model is asked in the background in any case, so that an answer does not end with a connection. Events are numbered by
the characters of text so far. Whoever comes back names the last number it has (`Last-Event-ID`), and gets what follows,
from any process: it is read from what the recorder stores while it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.session import Session
from threadkeep.domain.stored import StoredItem
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.event_streams import EventStream
from threadkeep.http.openai.asking import Run, Wanted, begun, loss_headers, stopping
from threadkeep.http.openai.responses import Found, find, stored_object
from threadkeep.http.problems import Problem
from threadkeep.http.rest.models import Asking
from threadkeep.http.rest.objects import message_view
from threadkeep.http.service import Call
from threadkeep.http.upstreams import Upstream, upstream_for
from threadkeep.store.aio import AsyncConversation, partial_reader, put_back
from threadkeep.store.conversation import Conversation
from threadkeep.web.following import Permission

POLL_SECONDS: Final = 0.25  # between looks at what a recorder elsewhere has stored
END: Final = "end"  # the number of the last event
_IN_PROGRESS: Final = "in_progress"
Said: TypeAlias = StoredItem | list[StoredItem] | None


@dataclass(slots=True)
class Turn:
    """What a request says in a conversation, and the model that goes on with it.

    Attributes:
        content: all that the request asks for.
        model: the model that answers, from now on.
        act: says it (blocking); returns the conversation, on the branch where it was said, and the message, the outputs
            of calls, or None.
        undo: takes that back (blocking), in the conversation on that branch.
        said: what was said, with its media by reference; None if nothing was.
        before: the model that the conversation had; None if it is the same.
    """

    content: JsonObject
    model: str
    act: Callable[[Conversation], tuple[Conversation, Said]]
    undo: Callable[[Conversation], None]
    said: Said = None
    before: Session | None = None

    def say(self, face: Any) -> Conversation:
        """Say it, and make the model that of the conversation (blocking)."""
        conversation, self.said = self.act(face)
        self.before = None
        if self.model != conversation.model:
            self.before = Session(model=conversation.clone_config().model)
            conversation.update(model=self.model)
        return conversation

    def take_back(self, conversation: Conversation) -> None:
        """Undo that (blocking); the model stays where somebody has chosen another one since."""
        if self.before is not None:
            put_back(conversation, self.before, Session(model=self.model))
        self.undo(conversation)

    async def clean_up(self, call: Call) -> None:
        """Nothing: no conversation begins with it."""


def upstream_of(call: Call, conversation: AsyncConversation, body: Asking) -> tuple[Upstream, str]:
    """Return who answers, and the model.

    Raises:
        Problem: no model is named, nobody has it, or too many answers are in progress.
    """
    model = body.model or conversation.model
    if model is None:
        raise Problem(400, "model is missing: the conversation has none.", param="model", code="invalid_value")
    found = upstream_for(model, call.service.upstreams)
    if found is None:
        raise Problem(404, f"The model '{model}' does not exist.", param="model", code="model_not_found")
    call.service.unattended.check(call.permission.owner)
    return found, model


def stored_turn(
    conversation: AsyncConversation | Conversation, said: Said, response: JsonObject | None = None
) -> JsonObject:
    """Return what was stored by a request."""
    outputs: JsonObject = {"tool_outputs": [message_view(one) for one in said]} if isinstance(said, list) else {}
    return {
        "object": "turn",
        "conversation_id": conversation.id,
        "branch": conversation.branch,
        "message": message_view(said) if isinstance(said, StoredItem) else None,
        **outputs,
        "response": response,
    }


async def answer(call: Call, conversation: AsyncConversation, upstream: Upstream, body: Asking, turn: Turn) -> Response:
    """Say something and have the model answer; return its response, a stream, or a response that is in progress."""
    with ExitStack() as counted:
        wanted = Wanted(turn.model, conversation.id, None, body.stream, body.background, {})
        run = Run(call, upstream, wanted, conversation, turn)
        first, events = await begun(run, counted)
        going_on = _GoingOn(call, first, events, counted.pop_all(), body)
    stored, headers = stored_turn(run.conversation, turn.said, first["response"]), loss_headers(run.rendered)
    if body.background and not body.stream:
        return JsonAnswer(stored, 202, headers)
    if body.stream:
        return _LiveEvents(_live_events(stored, going_on), call.permission, going_on.left, headers)
    try:
        async with call.service.attended(call.request):
            response = await going_on.response()
    finally:
        going_on.left()
    return JsonAnswer({**stored, "response": response}, 201, headers)


class _GoingOn:
    """An answer that goes on when its client leaves, and counts from then on, if it is not counted yet.

    Of its events, the texts are kept until they are sent, and none for a client that has left or wants no stream.
    """

    def __init__(
        self, call: Call, first: JsonObject, events: AsyncGenerator[JsonObject], counted: ExitStack, body: Asking
    ) -> None:
        self._call, self._counted, self._is_counted, self._is_followed = call, counted, body.background, body.stream
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._task = call.service.in_background(self._last(first, events), counted)

    async def _last(self, last: JsonObject, events: AsyncGenerator[JsonObject]) -> JsonObject:
        """The last event."""
        try:
            async with aclosing(events) as rest:
                async for event in rest:
                    last = event
                    if self._is_followed and event["type"] == "response.output_text.delta":
                        self._texts.put_nowait(event["delta"])
        finally:
            self._texts.put_nowait(None)
        return last

    async def texts(self) -> AsyncGenerator[str]:
        """The text, piece by piece, as it comes."""
        while (text := await self._texts.get()) is not None:
            yield text

    async def response(self) -> JsonObject:
        """The response as it was stored, once it has ended; raises what went wrong."""
        await asyncio.wait([self._task])  # which goes on if it is not waited for any more
        if self._task.cancelled():
            raise stopping()
        response: JsonObject = self._task.result()["response"]
        return response

    def left(self) -> None:
        """Note that nobody waits for it any more."""
        self._is_followed = False
        if not (self._is_counted or self._task.done()):
            self._counted.enter_context(self._call.service.unattended.one_more(self._call.permission.owner))


# Streams


class NumberedEvents(EventStream):
    """Server-sent events with ids."""

    def encoded(self, event: JsonObject) -> bytes:
        """Return an event as it is sent; its key `id` is that of the event."""
        data = {key: value for key, value in event.items() if key != "id"}
        number, kind = str(event["id"]).encode(), event["type"].encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (number, kind, dumps(data))


class _LiveEvents(NumberedEvents):
    """Those of an answer that is being given in this process; at their end, `left` is called."""

    def __init__(
        self, events: AsyncGenerator[JsonObject], permission: Permission, left: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:  # fmt: skip
        super().__init__(events, permission, headers=headers)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come, as long as the client is there."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


async def _live_events(turn: JsonObject, going_on: _GoingOn) -> AsyncGenerator[JsonObject]:
    """The events of an answer that is being given in this process."""
    yield {"id": 0, "type": "created", **turn}
    sent = 0
    async for text in going_on.texts():
        sent += len(text)
        yield {"id": sent, "type": "delta", "delta": text}
    yield {"id": END, "type": "done", "response": await going_on.response()}


async def events(call: Call) -> Response:
    """Stream the events of a response, stored or in progress, after those that the client has."""
    found = await find(call, call.request.path_params["response_id"])
    given = call.request.headers.get("last-event-id") or call.request.query_params.get("after", "0")
    if given == END:
        return Response(status_code=204)  # what tells clients not to come again
    if not (given.isascii() and given.isdecimal() and len(given) < 16):  # noqa: PLR2004 - digits of any text
        raise Problem(400, "Last-Event-ID must be the id of an event.", param="Last-Event-ID", code="invalid_value")
    return NumberedEvents(_stored_events(call, found, int(given)), call.permission, streams=call.service.streams)


async def _stored_events(call: Call, found: Found, sent: int) -> AsyncGenerator[JsonObject]:
    """The events after so many characters, from what is stored."""
    number = found.stored.number
    read = partial_reader(found.conversation, number)
    while True:
        partial = await read()
        found = found._replace(stored=await found.conversation.get_response(number))
        response = None
        if found.stored.status != _IN_PROGRESS:
            response = await stored_object(call, found)
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
