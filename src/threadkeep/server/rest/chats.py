"""Chats: what the default transport of `useChat` calls, over any upstream.

A page has its own id of a chat, which is the `external_id` of the conversation, or the id of one. Each request brings
the messages that the page shows, of which the last one counts: it is said, takes the place of another one, or brings
outputs of tools. The answer goes on when its page leaves, and any process can follow it from its beginning.

Source: the AI SDK, `DefaultChatTransport`, "Stream protocols", "Resume streams".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from fastapi import Response

from threadkeep.domain.jsontext import JsonObject, dumps, dumps_finite
from threadkeep.domain.media import REFERENCE
from threadkeep.domain.running import PendingCall
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.shared.answer_writing import free_id
from threadkeep.formats.shared.rendering import ShownMessage
from threadkeep.formats.ui_messages import chunks, fields
from threadkeep.formats.ui_messages.request import parse_tools, placed_messages
from threadkeep.server import answers, event_streams, service
from threadkeep.server.body_limits import MAX_TOOLS
from threadkeep.server.openai import responses
from threadkeep.server.rest import deps, routing, thread_models, threads, tool_following, tool_runs
from threadkeep.server.rest.media import ReferredMedia
from threadkeep.server.rest.threads import RELOAD, refused
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading import calls
from threadkeep.store.reading.reader import Reader

router = routing.api_router("/chat")

DONE: Final[JsonObject] = {"type": "[DONE]"}
_OUTPUTS: Final = (fields.OUTPUT, fields.ERROR)


@router.post("", response_class=Response, responses={200: routing.DATA})
async def send(call: deps.Writing, body: thread_models.ChatTurn) -> Response:
    """Say what the last message says, or answer again, and stream the answer as UI message chunks."""
    found = await call.read(threads.found, call, body.id)
    conversation = None if found is None else call.store.face_of(found)
    upstream, model = threads.asked(call, conversation, body.model, "the `body` of the transport")
    said = 0 if found is None else max(len(body.messages) - 1, 0)
    messages = [*body.messages[:said], *await _with_media(call, body.messages[said:])]
    request = threads.ThreadRequest(
        fields.NAME, placed_messages, body.id, messages, parse_tools(body.tools or ()), body.trigger == threads.AGAIN,
        body.messageId, body.model_dump(),
    )  # fmt: skip
    given = PageInput(call, request, model)
    begun = await threads.begin_answer(call, upstream, conversation, given)
    if begun is None:
        nothing = _nothing(chunks.ChunkWriter(0, body.messages[-1]["id"]), given.denied)
        return UiChunkStream(nothing, call.permission, headers=chunks.HEADERS)
    writer = _writer(begun.position or 0, given.shown)
    answer = _chunks(writer, begun.events, denied=given.denied, has_step=begun.position is not None)
    headers = {**begun.losses, **chunks.HEADERS}
    return UiChunkStream(answer, call.permission, headers=headers, place=begun.place)


@router.get("/{chat_id}", response_model=thread_models.ChatObject)
async def retrieve_chat(call: deps.Reading, chat_id: str, media: deps.Media = "inline") -> Response:
    """Retrieve the messages of a chat, with which a page begins, and its title; none of a chat that has not begun."""
    return answers.JsonAnswer(await call.read(_chat, call, chat_id, media))


@router.get("/{chat_id}/stream", response_class=Response, responses={
    200: routing.DATA, 204: {"description": "No answer is in progress."},
})  # fmt: skip
async def resume_chat(call: deps.Reading, chat_id: str) -> Response:
    """Stream the answer that is in progress from its beginning, whichever process gives it."""
    found = await call.read(_in_progress, call, chat_id)
    if found is None:
        return Response(status_code=204)
    response_id, writer, parts = found
    answer = _chunks(writer, tool_following.followed(call, response_id, writer.place), parts)
    return UiChunkStream(answer, call.permission, headers=chunks.HEADERS, streams=call.service.streams)


@router.post("/{chat_id}/stop", response_model=thread_models.StopObject)
async def stop_chat(call: deps.Writing, chat_id: str) -> Response:
    """Stop the answer that is in progress; what has come of it is kept."""
    return await threads.stop(call, chat_id, "chat")


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
    writer: chunks.ChunkWriter, events: AsyncGenerator[JsonObject], parts: Sequence[JsonObject] = (), *,
    denied: Sequence[str] = (), has_step: bool = True,
) -> AsyncGenerator[JsonObject]:  # fmt: skip
    for chunk in writer.begin(parts, denied, has_step=has_step):
        yield chunk
    async with aclosing(events) as answer:
        async for event in answer:
            for chunk in writer.take(event):
                yield chunk
    yield DONE


async def _nothing(writer: chunks.ChunkWriter, denied: Sequence[str]) -> AsyncGenerator[JsonObject]:
    """The chunks where the application goes on first, with a call that was approved."""
    for chunk in writer.begin(denied=denied, has_step=False):
        yield chunk
    yield {"type": "finish"}
    yield DONE


# What is said


class Shown(NamedTuple):
    """A chat as pages show it; without a conversation, one that has not begun."""

    conversation: Conversation | None
    open_id: str | None  # of the answer in progress
    messages: Sequence[ShownMessage]
    snapshot: Snapshot | None


def _shown(reader: Reader, call: service.Call, chat_id: str, media: deps.Media = "inline") -> Shown:
    found, open_id = threads.with_open(reader, call, chat_id)
    if found is None:
        return Shown(None, open_id, (), None)
    snapshot = threads.history(reader, found, media)
    tools, asking = call.service.tools, frozenset[int]()
    if tools is not None:
        asking = tool_runs.asking(
            tools, snapshot, lambda: reader.pending_calls(found, None, MAX_TOOLS, service.SMALL).items
        )
    return Shown(found, open_id, placed_messages(snapshot, reader.decisions(found, snapshot), asking), snapshot)


def _in_progress(
    reader: Reader, call: service.Call, chat_id: str
) -> tuple[str, chunks.ChunkWriter, Sequence[JsonObject]] | None:
    """The id of the answer in progress, its writer, and the parts that its message has already (blocking)."""
    found, open_id = threads.with_open(reader, call, chat_id)
    if found is None or open_id is None:
        return None
    snapshot = threads.before_answer(reader, found, open_id)
    place = responses.find(reader, open_id).stored.from_position
    messages = placed_messages(snapshot, reader.decisions(found, snapshot))
    last = messages[-1].message if messages else {}
    return open_id, _writer(place, messages), last["parts"] if last.get("role") == "assistant" else ()


def _writer(place: int, messages: Sequence[ShownMessage]) -> chunks.ChunkWriter:
    """What writes the chunks of an answer behind these messages, of which it goes on with one of the assistant."""
    last = messages[-1].message if messages else {}
    if last.get("role") == "assistant":
        return chunks.ChunkWriter(place, last["id"])
    return chunks.ChunkWriter(place, free_id(place, [shown.message.get("id") for shown in messages]))


def _media_path(call: service.Call) -> str:
    """Where this server has images and files."""
    return f"{call.request.scope.get('root_path', '')}{call.request.app.state.prefix}/media/"


def _refer(messages: Sequence[ShownMessage], path: str) -> None:
    """Give files that were left out the addresses at which they are."""
    for part in (part for shown in messages for part in shown.message["parts"] if isinstance(part, dict)):
        _, is_left_out, name = str(part.get("url")).rpartition(REFERENCE)
        if is_left_out and part.get("type") == "file":
            part["url"] = f"{path}{name}"


async def _with_media(call: service.Call, messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Messages with the content of the files that they name by their address on this server."""
    url, path, files = call.request.url, _media_path(call), ReferredMedia(call, call.service.max_body_bytes)
    sent = []
    for number, message in enumerate(messages):
        given, parts = message.get("parts"), list[Any]()
        for index, part in enumerate(given if isinstance(given, list) else ()):
            address = str(part.get("url") if isinstance(part, dict) else "")
            address = address.removeprefix(f"{url.scheme}://{url.netloc}")
            if address.startswith(path):
                reference = REFERENCE + address.removeprefix(path)
                parts.append({**part, "url": await files.take(reference, f"messages.{number}.parts.{index}.url")})
            else:
                parts.append(part)
        sent.append({**message, "parts": parts} if isinstance(given, list) else message)
    return sent


def _chat(reader: Reader, call: service.Call, chat_id: str, media: deps.Media) -> bytes:
    chat, found, variants = _shown(reader, call, chat_id, media), None, dict[str, JsonObject]()
    if media == "reference":
        _refer(chat.messages, _media_path(call))
    if chat.conversation is not None and chat.snapshot is not None:
        found = chat.conversation
        siblings = reader.variants(found, chat.snapshot, [shown.place for shown in chat.messages])
        variants = {
            str(shown.message.get("id")): {"index": one.index, "branches": [variant.newest for variant in one]}
            for shown, one in zip(chat.messages, siblings, strict=True)
            if one.count > 1
        }
    view = {
        "id": chat_id, "object": "chat", "conversation_id": None if found is None else found.id,
        "title": None if found is None else found.title, "messages": [shown.message for shown in chat.messages],
        "variants": variants, "response_id": chat.open_id,
    }  # fmt: skip
    return dumps_finite(view)


class PageInput(threads.ThreadInput):
    """What a request of a page says.

    Attributes:
        shown: the messages before the answer.
        denied: the ids of the calls that it denies.
    """

    shown: Sequence[ShownMessage] = ()
    denied: Sequence[str] = ()

    def messages(self, conversation: Conversation) -> list[ShownMessage]:
        """The messages of a conversation, with what was decided about their calls (blocking)."""
        snapshot, tools = self.history(conversation), self.call.service.tools
        asking = frozenset[int]() if tools is None else tool_runs.asking(tools, snapshot, conversation.pending_calls)
        return placed_messages(snapshot, calls.decisions(conversation.handle, snapshot), asking)

    def note(self, conversation: Conversation) -> None:
        """Note behind which messages the answer is."""
        self.shown = self.messages(conversation)

    def go_on(self, conversation: Conversation) -> Conversation:
        """Say it in a chat that is there."""
        messages = self.messages(conversation)
        known = threads.by_id(messages)
        is_new = self.last.get("role") == "user" and self.last.get("id") not in known
        if self.request.is_again and not is_new:
            return self.regenerate(conversation, known)
        if self.last.get("role") == "assistant":
            self._answer(conversation, messages)
            return conversation
        if self.last.get("role") != "user":
            raise refused("The last message is neither the user's nor the assistant's.", "messages", "invalid_value")
        if self.request.message_id is not None:
            return self.edit(conversation, known)
        if not is_new:
            text = f"The message {self.last['id']!r} was sent before. Follow its answer with GET …/stream, or ask for"
            raise refused(f"{text} another one with the trigger regenerate-message.", "messages", "message_sent")
        before = self._shown_before(messages)
        if before is not None and (not messages or before != messages[-1].message.get("id")):
            text = f"The message {before!r} is not the last one of this chat, which has gone on, or does not have it."
            raise refused(f"{text} {RELOAD}", "messages")
        self.add(conversation, [self.last])
        return conversation

    def _shown_before(self, messages: Sequence[ShownMessage]) -> Any:
        """The id of the message before the last one: where no answer is stored, an answer that failed is left out."""
        shown = [*self.request.messages[:-1]]
        if messages and messages[-1].message.get("role") == "user":
            known = {placed.message.get("id") for placed in messages}
            while shown and shown[-1].get("role") == "assistant" and shown[-1].get("id") not in known:
                shown.pop()
        return shown[-1].get("id") if shown else None

    # Tools

    @property
    def is_answer(self) -> bool:
        """Whether the message is one of the assistant, with outputs or decisions, or nothing new."""
        return self.last.get("role") == "assistant" and not self.request.is_again

    @property
    def has_decisions(self) -> bool:
        """Whether the request may decide about calls."""
        parts = self.last.get("parts") if not self.request.is_again else None
        return isinstance(parts, list) and any(_decision(part) is not None for part in parts)

    def decide(self, conversation: Conversation) -> bool:
        """Store decisions about calls (blocking); return whether the model may go on."""
        denied = list[str]()
        for part, stored, call in self._parts(conversation, self.messages(conversation)):
            decision = _decision(part)
            if decision is None:
                continue
            asked, call_id = stored.get("approval") or {}, part["toolCallId"]
            if asked.get("id") == decision.get("id") and asked.get("approved") == decision["approved"]:
                continue  # decided before
            if stored.get("state") != fields.REQUESTED or decision.get("id") != asked.get("id"):
                text = f"No approval {decision.get('id')!r} of the call {call_id!r} was asked for."
                raise refused(f"{text} {RELOAD}", "messages", "invalid_value")
            reason, is_approved = decision.get("reason"), decision["approved"] is True
            threads.decide(self.call, conversation, call, reason, is_approved=is_approved)
            denied += [] if is_approved else [call_id]
        self.denied = denied
        return conversation.next_step() == "model"

    def _answer(self, conversation: Conversation, messages: Sequence[ShownMessage]) -> None:
        """Outputs of calls, with which the model goes on."""
        is_unanswered = self._add_outputs(conversation, messages) or self._ends_with_outputs(conversation)
        step = conversation.next_step()
        if step == "tools":
            raise refused("Other calls wait for their outputs.", "messages", "tool_calls_pending")
        if step == "user" and not is_unanswered:
            raise refused(f"There is nothing for the model to go on with. {RELOAD}", "messages")

    def add_outputs(self, conversation: Conversation) -> None:
        """Store the outputs of calls that the page has run, and note which message the answer goes on with."""
        self.shown = self.messages(conversation)
        self._add_outputs(conversation, self.shown)

    def _add_outputs(self, conversation: Conversation, messages: Sequence[ShownMessage]) -> bool:
        outputs = []
        for part, stored, call in self._parts(conversation, messages):
            if part.get("state") in _OUTPUTS and stored.get("state") not in fields.ANSWERED:
                if stored.get("providerExecuted"):
                    text = f"The output of the call {part['toolCallId']!r} is not one that pages give."
                    raise refused(f"{text} {RELOAD}", "messages", "invalid_value")
                tool_runs.check_output(self.call.service.tools, call.item, "messages")
                outputs.append(_output(part))
        if outputs:
            self.add_items(conversation, outputs)
        return bool(outputs)

    def _ends_with_outputs(self, conversation: Conversation) -> bool:
        """Whether the answer to outputs has failed: the model may be asked for it again."""
        entries = self.history(conversation).entries
        return bool(entries) and entries[-1].type.endswith("_output")

    def _parts(
        self, conversation: Conversation, messages: Sequence[ShownMessage]
    ) -> list[tuple[JsonObject, JsonObject, PendingCall]]:
        """The tool parts that wait in the last message, as sent and as stored; Problem for one that is another's."""
        stored = messages[-1].message if messages else {}
        if stored.get("role") != "assistant" or stored.get("id") != self.last.get("id"):
            text = f"The message {self.last.get('id')!r} is not the last one of this chat."
            raise refused(f"{text} {RELOAD}", "messages")
        waiting = {call.call_id: call for call in conversation.pending_calls()}
        known = _calls_in(stored)
        pairs = []
        for call_id, part in _calls_in(self.last).items():
            own = known.get(call_id, {})
            same = ("type", "input") if call_id in waiting else ("type", "input", "output")
            if any(own.get(key) != part.get(key) for key in same):
                text = f"The call {call_id!r} is not one that waits in this message, or not as it was made."
                raise refused(f"{text} {RELOAD}", "messages", "invalid_value")
            if call_id in waiting:
                pairs.append((part, own, waiting[call_id]))
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
    item: JsonObject = {"type": "function_call_output", "call_id": part["toolCallId"]}
    if part["state"] == fields.ERROR:
        return {**item, "output": str(part.get("errorText") or ""), "status": "failed"}
    output = part.get("output")
    return {**item, "output": output if isinstance(output, str) else dumps(output).decode()}
