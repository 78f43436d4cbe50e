"""Answers of models: plain, in the background, and as streams that can be gone on with after a lost connection.

A model is asked in the background in any case, so that an answer does not end with a connection. Events are numbered by
the characters of text so far. A client that returns names its last number (`Last-Event-ID`), and gets what follows,
from any process: it is read from what the recorder stores while it goes on.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, aclosing
from typing import Any, Final, Generic, TypeAlias, TypeVar

from fastapi import Response
from starlette.types import Receive, Scope, Send

from threadkeep.domain import session, stored
from threadkeep.domain.jsontext import JsonObject, dumps_finite
from threadkeep.server import answers, event_streams, permissions, problems, quotas, request_state, turns, upstreams
from threadkeep.server.rest.models import Asking
from threadkeep.server.rest.objects import message_view
from threadkeep.server.service import Call, stopping
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation

Piece = TypeVar("Piece")

END: Final = "end"  # the number of the last event
Said: TypeAlias = stored.StoredItem | list[stored.StoredItem] | None


class ModelInput(turns.TurnInput):
    """What a request says in a conversation, and the model that goes on with it."""

    def __init__(self, content: JsonObject, model: str) -> None:
        """`content`: all that the request asks for; `model`: the one that answers, from now on."""
        super().__init__(content, session.Session(model=model))
        self.model = model
        self.said: Said = None  # with its media by reference

    @abstractmethod
    def act(self, face: Any) -> tuple[Conversation, Said]:
        """Say it (blocking).

        Return the conversation, on the branch where it was said, and the message, the outputs of calls, or None.
        """

    def say(self, face: Any) -> Conversation:
        """Say it, and make its model the conversation's (blocking)."""
        conversation, self.said = self.act(face)
        self.before = None
        if self.model != conversation.model:
            self.before = session.Session(model=conversation.clone_config().model)
            conversation.update(model=self.model)
        return conversation


class MessageInput(ModelInput):
    """What is said in a conversation that is there."""

    def __init__(
        self, content: JsonObject, model: str, act: Callable[[Conversation], tuple[Conversation, Said]],
        undo: Callable[[Conversation], None],
    ) -> None:  # fmt: skip
        """Take how it is said, see `act`, and taken back, in the conversation on that branch (both blocking)."""
        super().__init__(content, model)
        self._act, self._undo = act, undo

    def act(self, face: Any) -> tuple[Conversation, Said]:
        """Say it (blocking)."""
        return self._act(face)

    def remove(self, conversation: Conversation) -> None:
        """Take that back (blocking)."""
        self._undo(conversation)


def upstream_of(call: Call, conversation: AsyncConversation, body: Asking) -> tuple[upstreams.Upstream, str]:
    """Return who answers, and the model.

    Raises:
        Problem: no model is named, no upstream has it, or too many answers are in progress.
    """
    model = body.model or conversation.model
    if model is None:
        text = "model is missing: send it here, or give the conversation one."
        raise problems.Problem(400, text, param="model", code="invalid_value")
    found = call.service.upstream(model)
    call.service.background.check(call.permission.owner.name)
    return found, model


def stored_turn(
    conversation: AsyncConversation | Conversation, said: Said, response: JsonObject | None = None
) -> JsonObject:
    """Return what was stored by a request."""
    outputs: JsonObject = {"tool_outputs": [message_view(one) for one in said]} if isinstance(said, list) else {}
    return {
        "object": "turn", "conversation_id": conversation.id, "branch": conversation.branch,
        "message": message_view(said) if isinstance(said, stored.StoredItem) else None, **outputs, "response": response,
    }  # fmt: skip


async def answer(
    call: Call, conversation: AsyncConversation, upstream: upstreams.Upstream, body: Asking, given: MessageInput
) -> Response:
    """Say something and have the model answer; return its response, a stream, or a response that is in progress."""
    with ExitStack() as counted:
        options = turns.TurnOptions(given.model, conversation.id, None, body.stream, body.background, {})
        turn = turns.Turn(call, upstream, options, conversation, given)
        first, events = await turns.begin_answer(turn, counted)
        piece_in = _text_in if body.stream else None
        going_on = LiveAnswer(call, first, events, counted.pop_all(), piece_in, is_counted=body.background)
    stored, headers = stored_turn(turn.conversation, given.said, first["response"]), turns.loss_headers(turn.rendered)
    if body.background and not body.stream:
        return answers.JsonAnswer(stored, 202, headers)
    if body.stream:
        return _LiveEvents(_live_events(stored, going_on), call.permission, going_on.left, headers)
    try:
        async with call.service.attended(call.request):
            response = await going_on.response()
    finally:
        going_on.left()
    return answers.JsonAnswer({**stored, "response": response}, 201, headers)


class LiveAnswer(Generic[Piece]):
    """An answer that goes on when its client leaves, and counts from then on, if it is not counted yet.

    What is sent of its events is kept until then, and nothing for a client that has left or wants no stream.
    """

    def __init__(
        self, call: Call, first: JsonObject, events: AsyncGenerator[JsonObject], counted: ExitStack,
        piece_in: Callable[[JsonObject], tuple[Piece, int] | None] | None, *, is_counted: bool,
    ) -> None:  # fmt: skip
        """`piece_in`: what is sent of an event, and its size in bytes; None for a client that wants no stream."""
        self._call, self._counted, self._is_counted, self._piece_in = call, counted, is_counted, piece_in
        self._pieces: asyncio.Queue[tuple[Piece, int] | quotas.QuotaExceeded | None] = asyncio.Queue()
        self._waiting, self._hold = 0, request_state.holder()  # bytes that are not sent yet
        self._task = call.service.in_background(self._last(first, events), counted)

    async def _last(self, last: JsonObject, events: AsyncGenerator[JsonObject]) -> JsonObject:
        try:
            async with aclosing(events) as rest:
                async for event in rest:
                    last = event
                    if self._piece_in is not None and (piece := self._piece_in(event)) is not None:
                        self._keep(*piece)
        finally:
            self._pieces.put_nowait(None)
        return last

    def _keep(self, piece: Piece, size: int) -> None:
        """Keep a piece until it is sent; where too much is under way, its client may come back for it."""
        try:
            self._hold(self._waiting + size)
        except quotas.QuotaExceeded as error:
            self._forget()
            self._pieces.put_nowait(error)
        else:
            self._waiting += size
            self._pieces.put_nowait((piece, size))

    def _forget(self) -> None:
        self._piece_in, self._waiting = None, 0
        while not self._pieces.empty():
            self._pieces.get_nowait()

    async def pieces(self) -> AsyncGenerator[Piece]:
        """What is sent, as it comes; raises QuotaExceeded where too much is under way."""
        while (kept := await self._pieces.get()) is not None:
            if isinstance(kept, quotas.QuotaExceeded):
                raise kept
            yield kept[0]
            self._waiting -= kept[1]
            self._hold(self._waiting)

    async def response(self) -> JsonObject:
        """The response as it was stored, once it has ended; raises what went wrong."""
        await asyncio.wait([self._task])  # which goes on if it is not waited for any more
        if self._task.cancelled():
            raise stopping()
        response: JsonObject = self._task.result()["response"]
        return response

    def left(self) -> None:
        """Note that no client waits for it any more."""
        self._forget()
        if not (self._is_counted or self._task.done()):
            self._counted.enter_context(self._call.service.background.counting(self._call.permission.owner.name))


# Streams


class NumberedEvents(event_streams.EventStream):
    """Server-sent events with ids."""

    def encoded(self, event: JsonObject) -> bytes:
        """Return an event as it is sent; its key `id` is the event's."""
        data = {key: value for key, value in event.items() if key != "id"}
        number, kind = str(event["id"]).encode(), event["type"].encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (number, kind, dumps_finite(data))


class _LiveEvents(NumberedEvents):
    """The events of an answer that is being given in this process; at their end, `left` is called."""

    def __init__(
        self, events: AsyncGenerator[JsonObject], permission: permissions.Permission, left: Callable[[], None],
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


def _text_in(event: JsonObject) -> tuple[str, int] | None:
    return (event["delta"], len(event["delta"])) if event["type"] == "response.output_text.delta" else None


async def _live_events(turn: JsonObject, going_on: LiveAnswer[str]) -> AsyncGenerator[JsonObject]:
    """The events of an answer that is being given in this process."""
    yield {"id": 0, "type": "created", **turn}
    sent = 0
    async for text in going_on.pieces():
        sent += len(text)
        yield {"id": sent, "type": "delta", "delta": text}
    yield {"id": END, "type": "done", "response": await going_on.response()}
