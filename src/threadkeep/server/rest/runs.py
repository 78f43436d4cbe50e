"""Runs of AG-UI, over any upstream: what `HttpAgent` calls.

A client has its own id of a thread. Each request brings all messages that it shows: those that are stored are known by
their ids, and new ones are said. The answer goes on when the client leaves, and any process can follow it from its
beginning. What a client lacks of the messages or the state comes as a snapshot.

Source: AG-UI 1.0, `RunAgentInput`, `Event`, "Interrupts"; its client, `HttpAgent`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Response

from threadkeep.domain.jsontext import JsonObject, dumps_finite
from threadkeep.domain.rendering import Loss
from threadkeep.domain.running import PendingCall
from threadkeep.formats.ag_ui import fields
from threadkeep.formats.ag_ui.request import parse_tools, placed_messages
from threadkeep.formats.ag_ui.writing import RunWriter
from threadkeep.formats.shared.rendering import ShownMessage
from threadkeep.server import answers, body_limits, event_streams, problems, service
from threadkeep.server.openai import responses
from threadkeep.server.rest import deps, routing, thread_models, threads, tool_following, tool_runs
from threadkeep.server.rest.threads import RELOAD, refused
from threadkeep.store import loops
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader

router = routing.api_router("/ag-ui")

STATE: Final = "ag_ui"  # the name of the state that clients and the application share
RUN: Final = "ag_ui.run"  # … and of what is known of the last run
_HEEDED: Final = ("model", "trigger", "messageId")  # keys of `forwardedProps`
_SAID: Final = ("user", "system", "developer", "tool")  # roles of messages that clients may add
_DECISION: Final[JsonObject] = {
    "type": "object", "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}  # fmt: skip


@router.post("", response_class=Response, responses={200: routing.DATA})
async def run(call: deps.Writing, body: thread_models.AgentRun) -> Response:
    """Say what is new in the messages, and stream the answer as events of AG-UI."""
    found, open_id = await call.read(threads.with_open, call, body.threadId)
    if open_id is not None:
        text = "An answer is in progress: follow it with GET …/stream, or end it with POST …/stop."
        raise refused(text, "threadId", "answer_in_progress")
    conversation = None if found is None else call.store.face_of(found)
    props = body.forwardedProps if isinstance(body.forwardedProps, dict) else {}
    upstream, model = threads.asked(call, conversation, _text_in(props, "model"), "`forwardedProps`")
    request = threads.ThreadRequest(
        fields.NAME, placed_messages, body.threadId, body.messages, parse_tools(body.tools),
        is_again=props.get("trigger") == threads.AGAIN, message_id=_text_in(props, "messageId"),
        content=body.model_dump(),
    )  # fmt: skip
    given = RunInput(call, request, model, body)
    writer = RunWriter(0, body.threadId, body.runId)
    begun = await threads.begin_answer(
        call, upstream, conversation, given, context={"context": body.context} if body.context else None,
        losses=_unheeded(body.forwardedProps),
    )  # fmt: skip
    if begun is None:
        return RunStream(_waiting(writer, given.view), call.permission)
    writer.place = begun.position or 0
    answer = _answering(call, writer, given.view, begun.events)
    return RunStream(answer, call.permission, headers=begun.losses, place=begun.place)


@router.get("/{thread_id}", response_model=thread_models.ThreadObject)
async def retrieve_thread(call: deps.Reading, thread_id: str) -> Response:
    """Retrieve the messages and the state of a thread, with which a client begins, and what it waits for."""
    view, open_id = await call.read(_viewed, call, thread_id)
    return answers.JsonAnswer(
        {
            "id": thread_id, "object": "thread", "conversation_id": view.conversation_id, "title": view.title,
            "messages": view.messages, "state": view.state, "interrupts": view.interrupts,
            "pending_tool_call_ids": view.waiting, "response_id": open_id,
        }
    )  # fmt: skip


@router.get("/{thread_id}/stream", response_class=Response, responses={200: routing.DATA})
async def connect_thread(call: deps.Reading, thread_id: str) -> Response:
    """Stream the state and the messages of a thread, and the answer that is in progress, whichever process gives it."""
    view, open_id = await call.read(_viewed, call, thread_id)
    view.client, writer = None, RunWriter(0, thread_id, view.run_id)
    if open_id is None:
        return RunStream(_waiting(writer, view), call.permission)
    writer.place = (await call.read(responses.find, open_id)).stored.from_position
    answer = _answering(call, writer, view, tool_following.followed(call, open_id, writer.place))
    return RunStream(answer, call.permission, streams=call.service.streams)


@router.post("/{thread_id}/stop", response_model=thread_models.StopObject)
async def stop_thread(call: deps.Writing, thread_id: str) -> Response:
    """Stop the answer that is in progress; what has come of it is kept."""
    return await threads.stop(call, thread_id, "thread")


# Streams


class RunStream(event_streams.EventStream):
    """Server-sent events as clients of AG-UI read them."""

    def encoded(self, event: JsonObject) -> bytes:
        """Return an event as it is sent."""
        return b"data: %b\n\n" % dumps_finite(event)

    def failed(self, event: JsonObject) -> bytes:
        """Return the event for an event `error`."""
        return self.encoded({"type": "RUN_ERROR", "message": event["message"], "code": event["code"]})


@dataclass(slots=True)
class ThreadView:
    """What is stored of a thread, and what its client has of it.

    Attributes:
        id: that of the thread.
        conversation_id: that of its conversation; None as long as nothing was said.
        title: its title.
        messages: the messages.
        state: the state; None where there is none.
        run_id: the id of the last run.
        tools: the names of the functions that its client ran then.
        waiting: the ids of calls whose outputs it gives.
        interrupts: the decisions that the thread waits for.
        client: the messages that the client has; None for one that has none.
        has_state: whether the client has the state.
    """

    id: str
    conversation_id: str | None = None
    title: str | None = None
    messages: Sequence[JsonObject] = ()
    state: Any = None
    run_id: str = "run"
    tools: Sequence[str] = ()
    waiting: Sequence[str] = ()
    interrupts: Sequence[JsonObject] = ()
    client: Sequence[JsonObject] | None = ()
    has_state: bool = False

    def beginning(self, writer: RunWriter) -> Iterator[JsonObject]:
        """The first events of a run, with what the client lacks."""
        writer.known_calls, writer.known_ids = _calls_in(self.messages), [one.get("id") for one in self.messages]
        is_known = self.client is not None and _comparable(self.client) == _comparable(self.messages)
        return writer.begin(None if self.has_state else self.state, None if is_known else self.messages)

    def wait_for(self, calls: Iterable[PendingCall], tools: loops.ToolLoop | None) -> None:
        """Note the calls that wait for an output: of functions of the client's, or for a decision."""
        waiting, interrupts = [], []
        for one in calls:
            if tools is not None and tools.may_run(one):
                continue
            if one.approval is None and one.name not in self.tools:
                interrupts.append(_interrupt(one))
            elif one.call_id is not None:
                waiting.append(one.call_id)
        self.waiting, self.interrupts = waiting, interrupts


async def _waiting(writer: RunWriter, view: ThreadView) -> AsyncGenerator[JsonObject]:
    """The events of a run in which no model is asked."""
    for event in view.beginning(writer):
        yield event
    yield writer.finish(view.waiting, view.interrupts)


async def _answering(
    call: service.Call, writer: RunWriter, view: ThreadView, answer: AsyncGenerator[JsonObject]
) -> AsyncGenerator[JsonObject]:
    async with aclosing(answer) as made:
        for event in view.beginning(writer):
            yield event
        async for event in made:
            for written in writer.take(event):
                yield written
    state = view.state
    if writer.end is not None and not writer.end.has_failed:
        view = await call.read(_ended, call, view.id, writer.end.response.get("id"), writer)
    if view.state != state:
        yield {"type": "STATE_SNAPSHOT", "snapshot": view.state}
    if writer.needs_snapshot:
        yield {"type": "MESSAGES_SNAPSHOT", "messages": view.messages}
    yield writer.finish(view.waiting, view.interrupts)


def _ended(
    reader: Reader, call: service.Call, thread_id: str, response_id: str | None, writer: RunWriter
) -> ThreadView:
    """What is stored of a thread after an answer, with its messages where the client has others (blocking)."""
    place = writer.place if response_id is None else responses.find(reader, response_id).stored.from_position
    if place != writer.place:  # other branches have gone on in the meantime
        writer.needs_snapshot = True
    return _viewed(reader, call, thread_id, has_messages=writer.needs_snapshot)[0]


def _viewed(
    reader: Reader, call: service.Call, thread_id: str, *, has_messages: bool = True
) -> tuple[ThreadView, str | None]:
    """What is stored of a thread, and the id of the answer that is in progress (blocking)."""
    found, open_id = threads.with_open(reader, call, thread_id)
    view = ThreadView(thread_id)
    if found is None:
        return view, None
    view.conversation_id, view.title = found.id, found.title
    state, run = reader.state(found, STATE), reader.state(found, RUN)
    view.state = None if state is None else state.value
    _note_run(view, None if run is None else run.value)
    if has_messages:
        view.messages = [one.message for one in placed_messages(threads.before_answer(reader, found, open_id))]
    if open_id is None:
        pending = reader.pending_calls(found, None, body_limits.MAX_TOOLS, service.SMALL).items
        view.wait_for(pending, call.service.tools)
    return view, open_id


def _note_run(view: ThreadView, run: Any) -> None:
    """Note what is known of the last run."""
    if isinstance(run, dict):
        view.run_id, view.tools = str(run.get("runId")), [*map(str, run.get("tools") or ())]


def _calls_in(messages: Iterable[JsonObject]) -> list[Any]:
    """The ids of the calls in messages, of which some are kept as they came."""
    held = (calls for one in messages if isinstance(calls := one.get("toolCalls"), list))
    return [call.get("id") for calls in held for call in calls if isinstance(call, dict)]


def _interrupt(call: PendingCall) -> JsonObject:
    """A decision about a call that is not the client's to run."""
    message = f"May {call.name} run with {dumps_finite(call.arguments).decode()}?"
    shown = {"toolCallId": call.call_id} if call.call_id is not None else {}
    return {"id": call.id, "reason": "tool_approval", "message": message, **shown, "responseSchema": _DECISION}


# What is said


def _text_in(props: Mapping[str, Any], name: str) -> str | None:
    value = props.get(name)
    if value is not None and not isinstance(value, str):
        text = f"forwardedProps.{name} must be a text."
        raise problems.Problem(400, text, param=f"forwardedProps.{name}", code="invalid_type")
    return value


def _unheeded(props: Any) -> list[Loss]:
    """What of `forwardedProps` says nothing to this server."""
    names = [f"forwardedProps.{name}" for name in props if name not in _HEEDED] if isinstance(props, dict) else []
    if props is not None and not isinstance(props, dict):
        names = ["forwardedProps"]
    return [Loss("option", None, name, f"{name} is neither kept nor sent to the model.") for name in names]


def _check_roles(messages: Sequence[JsonObject]) -> None:
    """Problem for messages without a role, or with an id, of which each has one, that another has, too."""
    ids = set()
    for index, one in enumerate(messages):
        if not isinstance(one.get("role"), str) or one["id"] in ids:
            text = f"messages.{index} must have a role, and an id of its own."
            raise problems.Problem(400, text, param="messages", code="invalid_value")
        ids.add(one["id"])


def _comparable(messages: Iterable[JsonObject]) -> list[tuple[Any, ...]]:
    """Messages as far as two of them are the same; clients send no activities."""
    keys = ("id", "role", "content", "toolCalls", "toolCallId", "error", "encryptedValue")
    return [tuple(one.get(key) or None for key in keys) for one in messages if one.get("role") != "activity"]


class RunInput(threads.ThreadInput):
    """What the input of a run says.

    Attributes:
        view: the thread before the answer, and what its client has of it.
    """

    def __init__(
        self, call: service.Call, request: threads.ThreadRequest, model: str, body: thread_models.AgentRun
    ) -> None:
        super().__init__(call, request, model)
        _check_roles(request.messages)
        self._state, self._resume = body.state, body.resume
        self._run = {"runId": body.runId, "tools": [tool["name"] for tool in request.tools if "name" in tool]}
        self.view = ThreadView(request.id, client=request.messages)
        _note_run(self.view, self._run)

    def note(self, conversation: Conversation) -> None:
        """Store the state and what is known of the run, and note what the client lacks."""
        stored = conversation.state(STATE)
        self.view.has_state = self._state not in (None, {})
        if self.view.has_state and (stored is None or stored.value != self._state):
            stored = conversation.set_state(STATE, self._state)
        self.view.state = None if stored is None else stored.value
        conversation.set_state(RUN, self._run)
        self.view.messages = [one.message for one in self.messages(conversation)]

    def go_on(self, conversation: Conversation) -> Conversation:
        """Say what is new in a thread that is there."""
        known, new = self._given(conversation)
        if self.request.is_again and not new:
            return self.regenerate(conversation, known)
        if self.request.message_id is not None:
            return self.edit(conversation, known)
        if new:
            self.add(conversation, new)
        if not new or self.last["role"] != "user":
            self._check_turn(conversation)
        return conversation

    def _given(self, conversation: Conversation) -> tuple[dict[Any, ShownMessage], list[JsonObject]]:
        """The stored messages by their ids, and those that are new; Problem for what does not fit."""
        messages = self.messages(conversation)
        known = threads.by_id(messages)
        new = self._new(known)
        if new and self.request.message_id is None:
            self._check_place(messages, known)
        if any(one["role"] == "tool" for one in new):
            self._check_outputs(new, conversation.pending_calls())
        return known, new

    def _new(self, known: Mapping[Any, ShownMessage]) -> list[JsonObject]:
        """The messages that are not stored; Problem for those that no client may add, or that it has changed."""
        new = []
        for one in self.request.messages:
            id_, role = one["id"], one["role"]
            if id_ in known:
                if role in _SAID and _comparable([one]) != _comparable([known[id_].message]):
                    text = f"The message {id_!r} is stored with another content: say that with a new id, and this one"
                    raise refused(f"{text} as forwardedProps.messageId to take its place.", "messages", "invalid_value")
            elif role in _SAID:
                new.append(one)
            elif role != "activity":
                text = f"This chat has no message {id_!r}, and no client may add one of the role {role!r}."
                raise refused(f"{text} {RELOAD}", "messages", "invalid_value")
        return new

    def _check_place(self, messages: Sequence[ShownMessage], known: Mapping[Any, ShownMessage]) -> None:
        """Problem for new messages that do not follow the last one, or an answer that the client knows in part."""
        ids = [one["id"] for one in self.request.messages if one["role"] != "activity"]
        before = [id_ for id_ in ids if id_ in known]
        if not before:
            return
        stored = [placed.message for placed in messages]
        place = next(index for index, one in enumerate(stored) if one.get("id") == before[-1])
        if ids[: len(before)] != before or any(one["role"] in _SAID for one in stored[place + 1 :]):
            text = f"The message {before[-1]!r} is not the last one of this chat, which has gone on."
            raise refused(f"{text} {RELOAD}", "messages")

    def _check_outputs(self, new: Sequence[JsonObject], pending: Sequence[PendingCall]) -> None:
        """Problem for outputs of calls that wait for none."""
        for one in new:
            if one["role"] != "tool":
                continue
            found = [call for call in pending if call.call_id == one.get("toolCallId")]
            if not found:
                text = f"The call {one.get('toolCallId')!r} is not one that waits for its output in this chat."
                raise refused(f"{text} {RELOAD}", "messages", "invalid_value")
            for call in found:
                tool_runs.check_output(self.call.service.tools, call.item, "messages")

    def _check_turn(self, conversation: Conversation) -> None:
        """Problem where it is not the model's turn."""
        step = conversation.next_step()
        if step == "tools":
            raise refused("Calls wait for their outputs.", "messages", "tool_calls_pending")
        if step == "user":
            text = f"The message {self.last.get('id')!r} was sent before. Follow its answer with GET …/stream, or ask"
            text = f"{text} for another one with regenerate-message as forwardedProps.trigger."
            raise refused(text, "messages", "message_sent")

    # Decisions

    @property
    def is_answer(self) -> bool:
        """Whether the request may answer calls, and says nothing else; where it does, that is stored by `decide`."""
        return self.has_decisions

    def add_outputs(self, conversation: Conversation) -> None:
        """Add nothing: `decide` does."""

    @property
    def has_decisions(self) -> bool:
        """Whether the request may decide about calls, or bring outputs of some of those that wait."""
        return bool(self._resume) or not (self.request.is_again or self.last.get("role") == "user")

    def decide(self, conversation: Conversation) -> bool:
        """Store decisions about calls, and outputs while others wait (blocking); return whether the model may go on."""
        pending = {one.id: one for one in conversation.pending_calls()} if self._resume else {}
        for entry in self._resume:
            self._resolve(conversation, entry, pending.get(entry.interruptId))
        _, new = self._given(conversation)
        answered = [one.get("toolCallId") for one in new]
        is_answered = all(one.call_id in answered for one in conversation.pending_calls())
        if is_answered or (new and self.last["role"] == "user"):
            return True
        if new:
            conversation.add_input([*new], fields.NAME)
        self.note(conversation)
        self.view.wait_for(conversation.pending_calls(), self.call.service.tools)
        return False

    def _resolve(self, conversation: Conversation, entry: thread_models.ResumeEntry, call: PendingCall | None) -> None:
        """Store a decision."""
        if call is None or call.approval is not None:
            raise refused(f"This chat waits for no decision {entry.interruptId!r}. {RELOAD}", "resume")
        payload = entry.payload if isinstance(entry.payload, dict) else {}
        is_approved, reason = payload.get("approved"), payload.get("reason")
        if entry.status == "cancelled":
            is_approved = False
        if not isinstance(is_approved, bool) or not isinstance(reason, str | None):
            text = f"The payload for {entry.interruptId!r} must have approved, true or false, and may have a reason."
            raise problems.Problem(400, text, param="resume", code="invalid_value")
        threads.decide(self.call, conversation, call, reason, is_approved=is_approved)
