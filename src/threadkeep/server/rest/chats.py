"""Chats: what the default transport of `useChat` calls, over any upstream.

A page has its own id of a chat, which is the `external_id` of the conversation, or the id of one. Each request brings
the messages that the page shows, of which the last one counts: it is said, takes the place of another one, or brings
outputs of tools. The answer goes on when its page leaves, and any process can follow it from its beginning.

Source: the AI SDK, `DefaultChatTransport`, "Stream protocols", "Resume streams".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import Any, Final

from fastapi import Response

from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import JsonObject, dumps, dumps_finite
from threadkeep.formats.ui_messages import chunks, fields
from threadkeep.formats.ui_messages.request import PageMessage, placed_messages
from threadkeep.server import answers, event_streams, owners, problems, service, turns, upstreams
from threadkeep.server.openai import creation, responses
from threadkeep.server.rest import answering, deps, models, routing
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader
from threadkeep.store.work.refs import DENIED

router = routing.api_router("/chat")

DONE: Final[JsonObject] = {"type": "[DONE]"}
_LOAD: Final = "Load the messages of the chat again."
_OUTPUTS: Final = (fields.OUTPUT, fields.ERROR)


@router.post("", response_class=Response, responses={200: routing.EVENTS})
async def send(call: deps.Writing, body: models.ChatTurn) -> Response:
    """Say what the last message says, or answer again, and stream the answer as UI message chunks."""
    found = await call.read(_found, call, body.id)
    conversation = None if found is None else call.store.face_of(found)
    upstream, model = _asked(call, conversation, body)
    given = PageInput(call, body, model)
    if conversation is not None and given.has_decisions and not await conversation.run_sync(given.decide):
        return UiChunkStream(_nothing(body.messages[-1].get("id")), call.permission, headers=chunks.HEADERS)
    with ExitStack() as counted, ExitStack() as followed:
        followed.enter_context(call.service.streams.taking(call.permission.owner.name))
        options = turns.TurnOptions(
            model, None if found is None else found.id, None, is_stream=True, is_background=True, echoed={}
        )
        turn = turns.Turn(call, upstream, options, conversation or call.store, given)
        first, events = await turns.begun(turn, counted)
        call.service.in_background(creation.drained(events), counted.pop_all())
        writer = chunks.ChunkWriter(given.message_id, turn.rendered.head + 1)
        headers = {**turns.loss_headers(turn.rendered), **chunks.HEADERS}
        response = await responses.read_object(call, first["response"]["id"])
        answer = _chunks(writer, responses.replay(call, response, -1))
        return UiChunkStream(answer, call.permission, headers=headers, place=followed.pop_all())


@router.get("/{chat_id}", response_model=models.ChatObject)
async def retrieve_chat(call: deps.Reading, chat_id: str) -> Response:
    """Retrieve the messages of a chat, with which a page begins, and its title; none of a chat that has not begun."""
    found, open_id, messages = await call.read(_shown, call, chat_id)
    return answers.JsonAnswer(
        {
            "id": chat_id, "object": "chat", "conversation_id": None if found is None else found.id,
            "title": None if found is None else found.title,
            "messages": [placed.message for placed in messages], "response_id": open_id,
        }
    )  # fmt: skip


@router.get("/{chat_id}/stream", response_class=Response, responses={
    200: routing.EVENTS, 204: {"description": "No answer is in progress."},
})  # fmt: skip
async def resume_chat(call: deps.Reading, chat_id: str) -> Response:
    """Stream the answer that is in progress from its beginning, whichever process gives it."""
    _, open_id = await call.read(_with_open, call, chat_id)
    if open_id is None:
        return Response(status_code=204)
    place = (await call.read(responses.find, open_id)).stored.input_to + 1
    _, _, messages = await call.read(_shown, call, chat_id)
    last = messages[-1].message if messages else {}
    is_more = last.get("role") == "assistant"
    writer = chunks.ChunkWriter(last["id"] if is_more else f"msg_{place}", place)
    response = await responses.read_object(call, open_id)
    answer = _chunks(writer, responses.replay(call, response, -1), last["parts"] if is_more else ())
    return UiChunkStream(answer, call.permission, headers=chunks.HEADERS, streams=call.service.streams)


@router.post("/{chat_id}/stop", response_model=models.ChatStop)
async def stop_chat(call: deps.Writing, chat_id: str) -> Response:
    """Stop the answer that is in progress; what has come of it is kept."""
    _, open_id = await call.read(_with_open, call, chat_id)
    if open_id is not None:
        await responses.cancel(call, open_id)
    return answers.JsonAnswer({"id": chat_id, "object": "chat.stop", "stopped": open_id is not None})


# Streams


class UiChunkStream(event_streams.EventStream):
    """Server-sent events as the AI SDK reads them."""

    def encoded(self, event: JsonObject) -> bytes:
        """Return a chunk as it is sent."""
        return b"data: %b\n\n" % (b"[DONE]" if event is DONE else dumps_finite(event))

    def failed(self, event: JsonObject) -> bytes:
        """Return the chunk for an event `error`."""
        return self.encoded({"type": "error", "errorText": event["message"]})


async def _chunks(
    writer: chunks.ChunkWriter, events: AsyncGenerator[JsonObject], parts: Sequence[JsonObject] = ()
) -> AsyncGenerator[JsonObject]:
    for chunk in writer.begin(parts):
        yield chunk
    async with aclosing(events) as answer:
        async for event in answer:
            for chunk in writer.take(event):
                yield chunk
    yield DONE


async def _nothing(message_id: Any) -> AsyncGenerator[JsonObject]:
    """The chunks where the application goes on first, with a call that was approved."""
    yield {"type": "start", "messageId": message_id}
    yield {"type": "finish"}
    yield DONE


# What is said


def _found(reader: Reader, call: service.Call, chat_id: str) -> Conversation | None:
    """The conversation of a chat; None for a new one (blocking)."""
    try:
        return call.find(reader, chat_id)
    except problems.Problem:
        if chat_id.startswith("conv_"):  # an id that this server gives
            raise
        return None


def _with_open(reader: Reader, call: service.Call, chat_id: str) -> tuple[Conversation | None, str | None]:
    found = _found(reader, call, chat_id)
    return found, None if found is None else reader.response_in_progress(found)


def _shown(
    reader: Reader, call: service.Call, chat_id: str
) -> tuple[Conversation | None, str | None, list[PageMessage]]:
    found, open_id = _with_open(reader, call, chat_id)
    return found, open_id, [] if found is None else placed_messages(reader.snapshot(found))


def _messages(conversation: Conversation) -> list[PageMessage]:
    """The messages of a conversation (blocking)."""
    return placed_messages(conversation.handle.read_snapshot(is_current=True))


def _asked(
    call: service.Call, conversation: AsyncConversation | None, body: models.ChatTurn
) -> tuple[upstreams.Upstream, str]:
    """Who answers, and the model: of a new chat without one, the only one that the server has."""
    model = body.model or (None if conversation is None else conversation.model)
    only = [name for name in call.service.upstreams if not {*"*?["} & {*name}]
    if model is None and len(only) == len(call.service.upstreams) == 1:
        model = only[0]
    if model is None:
        text = "model is missing: send it in the `body` of the transport."
        raise problems.Problem(400, text, param="model", code="invalid_value")
    found = call.service.upstream(model)
    call.service.background.check(call.permission.owner.name)
    return found, model


def _refused(text: str, param: str, code: str = "conflict") -> problems.Problem:
    return problems.Problem(409, text, param=param, code=code, headers=problems.NO_RETRY)


class PageInput(answering.MessageInput):
    """What a request of a page says, and the message that the answer is of."""

    def __init__(self, call: service.Call, body: models.ChatTurn, model: str) -> None:
        super().__init__(body.model_dump(), model, self._act, self._undo)
        self._call, self._body, self._last = call, body, body.messages[-1] if body.messages else {}
        self._tools = _tools_of(body.tools or ())
        self._created: str | None = None
        self._former: int | None = None
        self._added: list[int] = []
        self.message_id = ""

    async def clean_up(self, call: service.Call) -> None:
        """Delete a chat that was begun for this."""
        if self._created is not None:
            await call.store.delete_conversation(self._created)

    def _act(self, face: Any) -> tuple[Conversation, None]:
        self._added, self._former = [], None
        conversation = self._on(face) if isinstance(face, Conversation) else self._new(face)
        if new := [tool for tool in self._tools if tool not in conversation.tools]:
            conversation.register_tools(new)
        messages = _messages(conversation)
        last = messages[-1].message if messages else {}
        self.message_id = last["id"] if last.get("role") == "assistant" else f"msg_{conversation.head + 1}"
        return conversation, None

    def _undo(self, conversation: Conversation) -> None:
        for position in reversed(self._added):
            conversation.remove_item(position, purge=True)
        if self._former is not None and conversation.handle.conversation.row.active_branch == conversation.branch:
            conversation.set_active_branch(self._former)

    def _new(self, store: Any) -> Conversation:
        """A new chat: all messages of the page are said."""
        if self._last.get("role") != "user":
            raise _refused(f"There is no chat {self._body.id!r} to go on with: send a message of the user.", "id")
        name = owners.own_name(self._body.id, self._call.user_id)
        conversation: Conversation = store.create_conversation(model=self.model, external_id=name)
        self._created = conversation.id
        self._add(conversation, self._body.messages)
        return conversation

    def _add(self, conversation: Conversation, messages: Sequence[JsonObject]) -> None:
        self._added += [item.position for item in conversation.add_input([*messages], fields.NAME)]

    def _on(self, conversation: Conversation) -> Conversation:
        """What the request says in a chat that is there."""
        messages = _messages(conversation)
        known = {placed.message.get("id"): placed for placed in messages}
        is_new = self._last.get("role") == "user" and self._last.get("id") not in known
        if self._body.trigger == "regenerate-message" and not is_new:
            return self._again(conversation, known)
        if self._last.get("role") == "assistant":
            self._answer(conversation, messages)
            return conversation
        if self._last.get("role") != "user":
            raise _refused("The last message is neither the user's nor the assistant's.", "messages", "invalid_value")
        if self._body.messageId is not None:
            return self._edited(conversation, known)
        if not is_new:
            text = f"The message {self._last['id']!r} was sent before. Follow its answer with GET …/stream, or ask for"
            raise _refused(f"{text} another one with the trigger regenerate-message.", "messages", "message_sent")
        before = self._body.messages[-2].get("id") if len(self._body.messages) > 1 else None
        if before is not None and (not messages or before != messages[-1].message.get("id")):
            text = f"The message {before!r} is not the last one of this chat, which has gone on, or does not have it."
            raise _refused(f"{text} {_LOAD}", "messages")
        self._add(conversation, [self._last])
        return conversation

    def _edited(self, conversation: Conversation, known: Mapping[Any, PageMessage]) -> Conversation:
        """Another message in the place of one, on a branch of its own."""
        place = known.get(self._body.messageId)
        if place is None or place.message["role"] != "user":
            raise _refused(f"This chat has no message {self._body.messageId!r} of the user. {_LOAD}", "messageId")
        self._former = conversation.handle.conversation.row.active_branch
        made = conversation.fork(before=place.place)
        made.set_active_branch(made.branch)
        self._add(made, [self._last])
        return made

    def _again(self, conversation: Conversation, known: Mapping[Any, PageMessage]) -> Conversation:
        """Another answer, on a branch of its own."""
        wanted = self._body.messageId
        if wanted is not None and wanted not in known:
            raise _refused(f"This chat has no message {wanted!r}. {_LOAD}", "messageId")
        self._former = conversation.handle.conversation.row.active_branch
        return conversation.regenerate(None if wanted is None else known[wanted].place)

    # Tools

    @property
    def has_decisions(self) -> bool:
        """Whether the request may decide about calls."""
        parts = self._last.get("parts") if self._body.trigger == "submit-message" else None
        return isinstance(parts, list) and any(_decision(part) is not None for part in parts)

    def decide(self, conversation: Conversation) -> bool:
        """Store decisions about calls (blocking); return whether the model may go on."""
        for part, stored in self._parts(conversation, _messages(conversation)):
            decision = _decision(part)
            if decision is None:
                continue
            asked, call_id, who = stored.get("approval") or {}, part["toolCallId"], self._call.user_id
            if stored.get("state") != fields.REQUESTED or decision.get("id") != asked.get("id"):
                text = f"No approval {decision.get('id')!r} of the call {call_id!r} was asked for."
                raise _refused(f"{text} {_LOAD}", "messages", "invalid_value")
            if decision["approved"] is True:
                conversation.approve(call_id, decided_by=who)
            else:
                conversation.deny(call_id, reason=decision.get("reason") or DENIED, decided_by=who)
        return conversation.next_step() == "model"

    def _answer(self, conversation: Conversation, messages: Sequence[PageMessage]) -> None:
        """Outputs of calls, with which the model goes on."""
        outputs = []
        for part, stored in self._parts(conversation, messages):
            if part.get("state") in _OUTPUTS and stored.get("state") not in fields.ANSWERED:
                outputs.append(_output(part))
        if outputs:
            self._added += [item.position for item in conversation.add_items(outputs)]
        step = conversation.next_step()
        if step == "tools":
            raise _refused("Other calls wait for their outputs.", "messages", "tool_calls_pending")
        if step == "user":
            raise _refused(f"There is nothing for the model to go on with. {_LOAD}", "messages")

    def _parts(
        self, conversation: Conversation, messages: Sequence[PageMessage]
    ) -> list[tuple[JsonObject, JsonObject]]:
        """The tool parts of the last message, each with the one that is stored; Problem for one that is another's."""
        stored = messages[-1].message if messages else {}
        if stored.get("role") != "assistant" or stored.get("id") != self._last.get("id"):
            text = f"The message {self._last.get('id')!r} is not the last one of this chat."
            raise _refused(f"{text} {_LOAD}", "messages")
        waiting = {call.call_id for call in conversation.pending_calls()}
        known = _calls_in(stored)
        pairs = []
        for call_id, part in _calls_in(self._last).items():
            own = known.get(call_id, {})
            same = ("type", "input") if call_id in waiting else ("type", "input", "output")
            if any(own.get(key) != part.get(key) for key in same):
                text = f"The call {call_id!r} is not one that waits in this message, or not as it was made."
                raise _refused(f"{text} {_LOAD}", "messages", "invalid_value")
            if call_id in waiting:
                pairs.append((part, own))
        return pairs


def _calls_in(message: JsonObject) -> dict[Any, JsonObject]:
    """The tool parts of a message by the ids of their calls."""
    parts = message.get("parts")
    tools = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return {part["toolCallId"]: part for part in tools if isinstance(part.get("toolCallId"), str)}


def _decision(part: Any) -> JsonObject | None:
    """What was decided about a call, if anything was."""
    approval = part.get("approval") if isinstance(part, dict) else None
    is_decided = isinstance(approval, dict) and "approved" in approval
    return approval if is_decided and part.get("state") in (fields.RESPONDED, fields.DENIED) else None


def _output(part: JsonObject) -> JsonObject:
    """The output of a part as an item."""
    item: JsonObject = {"type": "function_call_output", "call_id": part["toolCallId"]}
    if part["state"] == fields.ERROR:
        return {**item, "output": str(part.get("errorText") or ""), "status": "failed"}
    output = part.get("output")
    return {**item, "output": output if isinstance(output, str) else dumps(output).decode()}


def _tools_of(given: Sequence[JsonObject]) -> list[Any]:
    """The tools that a page runs."""
    asked = {"id": "", "role": "user", "parts": [{"type": "text", "text": ""}]}
    session = get_format(fields.NAME).parse_request({"messages": [asked], "tools": [*given]})
    return [dict(tool) for tool in session.tools]
