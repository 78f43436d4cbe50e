"""Threads of web clients, which keep messages with ids of their own and send them with each request.

A client has its own id of a thread, which is the `external_id` of the conversation, or the id of one. The answer goes
on when its client leaves, and any process can follow it from its beginning.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from fastapi import Response

from threadkeep.domain.formats import FormatName
from threadkeep.domain.jsontext import JsonObject, dumps_finite
from threadkeep.domain.running import PendingCall
from threadkeep.domain.tools import with_tools
from threadkeep.errors import InvalidOption
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.shared.rendering import ShownMessage
from threadkeep.server import answers, owners, problems, request_state, service, turns, upstreams
from threadkeep.server.openai import responses
from threadkeep.server.rest import answering, tool_runs
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.reading import overviews
from threadkeep.store.reading.reader import Reader
from threadkeep.store.work.refs import DENIED

RELOAD: Final = "Load the messages of the chat again."
AGAIN: Final = "regenerate-message"  # the trigger that asks for another answer
_INSTRUCTING: Final = ("system", "developer")  # roles of messages that are instructions
_STEPS: Final = 3  # of an answer that is stopped: it, its tools, and the next one


# Conversations


def found(reader: Reader, call: service.Call, id: str) -> Conversation | None:
    """Return the conversation of a thread; None for a new one (blocking)."""
    try:
        return call.find(reader, id)
    except problems.Problem:
        if id.startswith("conv_"):  # an id that this server gives
            raise
        return None
    except InvalidOption as error:
        if error.argument != "external_id":
            raise
        text = "The id of a chat is too long: with what marks its user, at most 255 bytes can be stored."
        raise problems.Problem(400, text, param="id", code="invalid_value") from error


def with_open(reader: Reader, call: service.Call, id: str) -> tuple[Conversation | None, str | None]:
    """Return the same, and the id of the answer that is in progress, or whose tools run (blocking)."""
    conversation = found(reader, call, id)
    if conversation is None:
        return None, None
    open_id = reader.response_in_progress(conversation)
    if open_id is None and call.service.tools is not None:
        state = tool_runs.running(reader, conversation) or {}
        # the next answer may have begun since
        open_id = state.get("response") or reader.response_in_progress(conversation)
    return conversation, open_id


def history(reader: Reader, conversation: Conversation, media: MediaForm = "inline") -> Snapshot:
    """Return the history of a thread; Problem where it is too large, and QuotaExceeded where too much is under way.

    It counts until the request has ended (blocking).
    """
    make_room(reader.request_bytes(conversation, service.SMALL))
    return reader.snapshot(conversation, media)


def before_answer(reader: Reader, conversation: Conversation, open_id: str | None) -> Snapshot:
    """Return the same without an answer that is followed, which may have ended since it was in progress (blocking)."""
    snapshot = history(reader, conversation)
    if open_id is None:
        return snapshot
    upto = responses.find(reader, open_id).stored.input_to
    entries = [entry for entry in snapshot.entries if entry.position <= upto]
    return snapshot if len(entries) == len(snapshot.entries) else replace(snapshot, entries=entries, memo=None)


def make_room(size: int) -> None:
    """Count a history of so many bytes; Problem and QuotaExceeded as for `history`."""
    request_state.holder()(service.checked_size(size))


async def stop(call: service.Call, id: str, kind: str) -> Response:
    """Stop the answer that is in progress; what has come of it is kept."""
    is_stopped = False
    for _ in range(_STEPS):
        conversation, open_id = await call.read(with_open, call, id)
        is_open = open_id is not None
        if open_id is not None:
            await responses.cancel(call, open_id)
        if conversation is not None and call.service.tools is not None:  # which may run since
            is_open = await tool_runs.stop(call.store.face_of(conversation)) or is_open
        is_stopped = is_stopped or is_open
        if not is_open or call.service.tools is None:
            break
    return answers.JsonAnswer({"id": id, "object": f"{kind}.stop", "stopped": is_stopped})


def asked(
    call: service.Call, conversation: AsyncConversation | None, model: str | None, place: str
) -> tuple[upstreams.Upstream, str]:
    """Return who answers, and the model: of a new thread without one, the only one that the server has.

    Raises:
        Problem: no model is named, which has its `place` in a request, no upstream has it, or too many answers are in
            progress.
    """
    model = model or (None if conversation is None else conversation.model)
    only = [name for name in call.service.upstreams if not {*"*?["} & {*name}]
    if model is None and len(only) == len(call.service.upstreams) == 1:
        model = only[0]
    if model is None:
        raise problems.Problem(400, f"model is missing: send it in {place}.", param="model", code="invalid_value")
    upstream = call.service.upstream(model)
    call.service.background.check(call.permission.owner.name)
    return upstream, model


def refused(text: str, param: str, code: str = "conflict") -> problems.Problem:
    """Return the refusal of what does not fit into a thread."""
    return problems.Problem(409, text, param=param, code=code, headers=problems.NO_RETRY)


# What is said


@dataclass(frozen=True, slots=True)
class ThreadRequest:
    """What a client sends.

    Attributes:
        format: of its messages.
        placed: makes messages of that format of what is stored.
        id: that of the thread.
        messages: those that it shows, or the last ones of them.
        tools: the functions that it runs.
        is_again: whether another answer is asked for.
        message_id: the message that another one, or another answer, is for.
    """

    format: FormatName
    placed: Callable[[Snapshot], list[ShownMessage]]
    id: str
    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject]
    is_again: bool
    message_id: str | None
    content: JsonObject = field(repr=False)

    @property
    def last(self) -> JsonObject:
        """The last message."""
        return self.messages[-1] if self.messages else {}


class ThreadInput(tool_runs.ToolInput):
    """What a request of a client says."""

    def __init__(self, call: service.Call, request: ThreadRequest, model: str) -> None:
        super().__init__(request.content, model)
        _check_messages(request.messages)
        self.call, self.request, self.last = call, request, request.last
        self.tools = [*request.tools, *_server_tools(call.service, request.tools)]
        self._instructions: str | None = None  # for a new conversation
        self._has_room = False
        self._created: str | None = None
        self._former: int | None = None
        self._added: list[int] = []

    async def clean_up(self, call: service.Call) -> None:
        """Delete a conversation that was begun for this."""
        if self._created is not None:
            await call.store.delete_conversation(self._created)

    async def prepare(self, conversation: AsyncConversation | None) -> bool:
        """Get the instructions of a new conversation, or store decisions; return whether the model may go on."""
        if conversation is None:
            owner = self.call.permission.owner
            self._instructions = await self.call.service.instructions_for(owner, self.request.id)
            return True
        return not self.has_decisions or await conversation.run_sync(self.decide)

    def messages(self, conversation: Conversation) -> list[ShownMessage]:
        """The messages of a conversation (blocking)."""
        return self.request.placed(self.history(conversation))

    def history(self, conversation: Conversation) -> Snapshot:
        """The history of a conversation, for which there must be room; errors as for `threads.history` (blocking)."""
        if not self._has_room:
            make_room(overviews.request_bytes(conversation, service.SMALL))
            self._has_room = True
        return conversation.handle.read_snapshot(is_current=True)

    @abstractmethod
    def go_on(self, conversation: Conversation) -> Conversation:
        """Say it in a conversation that is there; return that, on the branch where it was said (blocking)."""

    @property
    @abstractmethod
    def has_decisions(self) -> bool:
        """Whether it may decide about calls."""

    @abstractmethod
    def decide(self, conversation: Conversation) -> bool:
        """Store decisions about calls (blocking); return whether the model may go on."""

    @abstractmethod
    def note(self, conversation: Conversation) -> None:
        """Note what the answer needs of the conversation (blocking)."""

    def act(self, face: Any) -> tuple[Conversation, None]:
        """Say it (blocking)."""
        self._added, self._former = [], None
        if self.call.service.tools is not None and isinstance(face, Conversation):
            tool_runs.check_free(face)
        conversation = self.go_on(face) if isinstance(face, Conversation) else self._begin(face)
        if new := [tool for tool in self.tools if tool not in conversation.tools]:
            conversation.register_tools(new)
        self.note(conversation)
        return conversation, None

    def remove(self, conversation: Conversation) -> None:
        """Take that back (blocking)."""
        for position in reversed(self._added):
            conversation.remove_item(position, purge=True)
        if self._former is not None and conversation.handle.conversation.row.active_branch == conversation.branch:
            conversation.set_active_branch(self._former)

    def _begin(self, store: Any) -> Conversation:
        """A new conversation: all messages of the client are said."""
        if self.last.get("role") != "user":
            raise refused(f"There is no chat {self.request.id!r} to go on with: send a message of the user.", "id")
        name = owners.own_name(self.request.id, self.call.user_id)
        try:
            conversation: Conversation = store.create_conversation(
                model=self.model, external_id=name, instructions=self._instructions
            )
        except InvalidOption as error:
            if error.argument is not None or repr(name) not in error.message:
                raise
            text = f"The chat {self.request.id!r} was begun by another request at the same time. {RELOAD}"
            raise refused(text, "id") from error
        self._created = conversation.id
        self.add(conversation, self.request.messages)
        return conversation

    def add(self, conversation: Conversation, messages: Sequence[JsonObject]) -> None:
        """Append messages, which are removed again where there is no answer."""
        are_given = any(one.get("role") in _INSTRUCTING for one in messages)
        self.call.service.check_instructions(are_given=are_given, param="messages")
        self._added += [item.position for item in conversation.add_input([*messages], self.request.format)]

    def add_items(self, conversation: Conversation, items: Sequence[JsonObject]) -> None:
        """Append items in the same way."""
        self._added += [item.position for item in conversation.add_items(items)]

    def edit(self, conversation: Conversation, known: Mapping[Any, ShownMessage]) -> Conversation:
        """Say the last message in the place of one, on a branch of its own."""
        wanted = self.request.message_id
        if wanted not in known or known[wanted].message["role"] != "user":
            raise refused(f"This chat has no message {wanted!r} of the user. {RELOAD}", "messageId")
        self._former = conversation.handle.conversation.row.active_branch
        made = conversation.fork(before=known[wanted].place)
        made.set_active_branch(made.branch)
        self.add(made, [self.last])
        return made

    def regenerate(self, conversation: Conversation, known: Mapping[Any, ShownMessage]) -> Conversation:
        """Ask for another answer, on a branch of its own."""
        wanted, last = self.request.message_id, [one.message for one in known.values()][-1:]
        if wanted is not None and wanted not in known:
            if [(one.get("role"), one.get("id")) for one in last] != [("user", self.last.get("id"))]:
                raise refused(f"This chat has no message {wanted!r}. {RELOAD}", "messageId")
            wanted = None  # an answer that failed before any output is not stored
        self._former = conversation.handle.conversation.row.active_branch
        return conversation.regenerate(None if wanted is None else known[wanted].place)


def _server_tools(server: service.Service, others: Sequence[JsonObject]) -> list[JsonObject]:
    """The tools that run in the server; Problem where a client has one with the name of one of them."""
    own = [] if server.tools is None else with_tools([], server.tools.registry.definitions)
    names = {tool.get("name") for tool in own}
    for tool in others:
        if tool.get("name") in names:
            text = f"The tool {tool['name']!r} runs in the server: give the client's another name."
            raise problems.Problem(400, text, param="tools", code="invalid_value")
    return own


def decide(
    request: service.Call, conversation: Conversation, call: PendingCall, reason: str | None, *, is_approved: bool
) -> None:
    """Store a decision about a call that waits (blocking)."""
    who = request.user_id
    if call.item.type == "mcp_approval_request":
        said = {"approval_request_id": call.call_id, "approve": is_approved, **({"reason": reason} if reason else {})}
        conversation.add_items([{"type": "mcp_approval_response", **said}])
    elif is_approved:
        conversation.approve(call.position, decided_by=who)
    else:
        tool_runs.check_denial(conversation, request.service.tools, call.id)
        conversation.deny(call.position, reason=reason or DENIED, decided_by=who)


def by_id(messages: Sequence[ShownMessage]) -> dict[Any, ShownMessage]:
    """Return messages by their ids, which are texts but for what others have stored."""
    return {id_: shown for shown in messages if isinstance(id_ := shown.message.get("id"), str)}


def _check_messages(messages: Sequence[JsonObject]) -> None:
    """Problem for messages that cannot be known again."""
    for index, one in enumerate(messages):
        if not isinstance(one.get("id"), str):
            text = f"messages.{index} must have an id of its own, which is a text."
            raise problems.Problem(400, text, param=f"messages.{index}.id", code="invalid_value")


# Answers


class Begun(NamedTuple):
    """An answer in progress.

    Attributes:
        response_id: the id of its response, or of the one whose calls run first.
        position: that of its first item; None where calls run first.
        losses: the header that names what the upstream was not sent.
        events: its events, from its beginning.
        place: its place among the streams of the owner, which is left at its end.
    """

    response_id: str | None
    position: int | None
    losses: dict[str, str]
    events: AsyncGenerator[JsonObject]
    place: ExitStack


async def begin_answer(
    call: service.Call, upstream: upstreams.Upstream, conversation: AsyncConversation | None, given: ThreadInput,
    **options: Any,
) -> Begun | None:  # fmt: skip
    """Say something and have the model answer, whether or not the client stays; `options` are those of the turn.

    Calls that wait run first, and those of the answer after it. None where others have to act before.
    """
    is_due = await given.prepare(conversation)
    options |= {"is_stream": True, "is_background": True, "is_live": True, "echoed": {}}
    tools, owner = call.service.tools, call.permission.owner.name
    run = None if tools is None else tool_runs.ToolRun(call, tools, upstream, given.model, options)
    with ExitStack() as counted, ExitStack() as followed:
        followed.enter_context(call.service.streams.taking(owner))
        call.service.check_open(owner)
        if run is not None and conversation is not None and await run.claimed(conversation, given):
            counted.enter_context(call.service.background.counting(owner))
            answer = answering.LiveAnswer(call, {}, run.events(None), counted.pop_all(), _event_in, is_counted=True)
            return Begun(run.response_id, None, {}, _live(answer), followed.pop_all())
        if not is_due:
            return None
        if run is not None:
            options["at_end"] = run.hold
        id_ = None if conversation is None else conversation.id
        wanted = turns.TurnOptions(given.model, id_, None, **options)
        turn = turns.Turn(call, upstream, wanted, conversation or call.store, given)
        first, events = await turns.begin_answer(turn, counted)
        response_id: str = first["response"]["id"]
        position = (await call.read(responses.find, response_id)).stored.from_position
        if run is not None:
            events = run.events(events, turn.conversation, response_id, position)
        answer = answering.LiveAnswer(call, first, events, counted.pop_all(), _event_in, is_counted=True)
        return Begun(response_id, position, turns.loss_headers(turn.rendered), _live(answer), followed.pop_all())


def _event_in(event: JsonObject) -> tuple[JsonObject, int] | None:
    """An event that brings what no other one does, and its size."""
    if "delta" in event:
        return event, len(event["delta"])
    return (event, len(dumps_finite(event))) if "item" in event or "response" in event else None


async def _live(answer: answering.LiveAnswer[JsonObject]) -> AsyncGenerator[JsonObject]:
    try:
        async for event in answer.pieces():
            yield event
        await answer.response()  # or what went wrong
    finally:
        answer.left()
