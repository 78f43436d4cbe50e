"""Tools of the application that run in the server, within the answer that calls them.

An answer that calls such tools is followed by their outputs and by the next answer, in the same stream, until there is
nothing to run, a person or the client has to act, or the limit of rounds is reached. Each answer is a response of its
own, with its row in the ledger.

While tools run, no response is in progress: a state of the conversation keeps it for them (`RUNNING`), which is written
in the transaction that ends the answer, and deleted in the one that begins the next. So every process sees at any time
that the answer goes on, can follow it, and stop it; and of two requests, one runs the tools. The state says until when
it holds, as the lease of a response does: after that, its process is gone, and another request goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from time import monotonic
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from threadkeep import errors
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.running import PendingCall
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.shared import answer_writing
from threadkeep.server import problems, service, turns, upstreams
from threadkeep.server.openai import responses
from threadkeep.server.owners import Owner
from threadkeep.server.rest import answering
from threadkeep.store import loops
from threadkeep.store.aio import AsyncConversation, AsyncRecorder
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader
from threadkeep.store.work.connections import AWAY

RUNNING: Final = "tools.running"  # the name of the state
LEASE_SECONDS: Final = 15.0  # for which it keeps a conversation …
RENEWAL_SECONDS: Final = 5.0  # … and after which it is renewed
CHECK_SECONDS: Final = 1.0  # between two looks at whether a tool is to stop
STORING_SECONDS: Final = 60.0  # for which an output waits for the database
STOPPED: Final = "The call was stopped before it had an output; what it did by then stays done."
GOES_ON: Final = ("completed", "incomplete")  # statuses of answers whose calls run
_LOG: Final = logging.getLogger("threadkeep.tools")


def asking(tools: loops.ToolLoop, snapshot: Snapshot, waiting: Callable[[], Iterable[PendingCall]]) -> frozenset[int]:
    """Return the positions of the calls of a history that run once they are approved, of those that are waiting."""
    if not snapshot.entries or snapshot.entries[-1].type == "message":
        return frozenset()
    return frozenset(call.position for call in waiting() if tools.asks(call))


@dataclass(frozen=True, slots=True)
class ToolContext:
    """For whom a tool runs.

    Attributes:
        owner: the owner of the request.
        conversation: the conversation, in the store of that owner.
        call: the call; a tool that was interrupted runs again with the same one.
    """

    owner: Owner
    conversation: AsyncConversation
    call: PendingCall


_CONTEXT: Final[ContextVar[ToolContext]] = ContextVar("threadkeep.tool")


def tool_context() -> ToolContext:
    """Return for whom the tool runs that calls this, in a handler of `rest_app`'s tools; LookupError elsewhere."""
    return _CONTEXT.get()


class ToolInput(answering.ModelInput):
    """What a request says that may bring outputs and decisions."""

    @property
    @abstractmethod
    def is_answer(self) -> bool:
        """Whether it may answer calls, and says nothing else."""

    @abstractmethod
    def add_outputs(self, conversation: Conversation) -> None:
        """Store the outputs that it brings (blocking)."""


class _OverError(Exception):
    """Others have gone on with the conversation."""


class _ToolOutputs(answering.ModelInput):
    """The outputs of tools, which are stored, as what a model answers next."""

    def __init__(self, run: ToolRun) -> None:
        super().__init__({}, run.model)
        self._run = run

    def act(self, face: Any) -> tuple[Conversation, None]:
        """Give the conversation free for the answer (blocking)."""
        if not self._run.free(face) or face.next_step() != "model":
            raise _OverError
        return face, None

    def remove(self, conversation: Conversation) -> None:
        """Leave them: the tools have run."""


@dataclass(slots=True)
class ToolRun:
    """The answers to one request, and the tools that run between them.

    Attributes:
        call: the request.
        tools: those that run.
        upstream: who answers.
        model: the model that does.
        options: of the turns, as `TurnOptions` has them.
        response_id: that of the newest answer.
        place: the position of its first item, as far as it was known when it began.
        is_stopped: whether the user has stopped it between two answers.
    """

    call: service.Call
    tools: loops.ToolLoop
    upstream: upstreams.Upstream
    model: str
    options: Mapping[str, Any]
    response_id: str | None = None
    place: int = 0
    is_stopped: bool = False
    _id: str = field(default_factory=lambda: secrets.token_hex(8))
    _is_held: bool = False
    _may_ask: bool = True
    _is_in_thread: bool = False
    _rounds: int = 0
    _renew_at: float = 0.0
    _conversation: AsyncConversation | None = None

    # The conversation is kept for the tools

    def _value(self) -> JsonObject:
        self._renew_at = monotonic() + RENEWAL_SECONDS
        until = datetime.now(UTC) + timedelta(seconds=LEASE_SECONDS)
        return {"id": self._id, "response": self.response_id, "until": until.isoformat()}

    def hold(self, recorder: AsyncRecorder) -> None:
        """Keep it from the end of an answer that calls such tools, or unknown ones, in the transaction that ends it."""
        items = recorder.writer.items_from(0) if recorder.writer.has_ended else []
        offered = recorder.writer.handle.cache.conversation.tools
        self._is_held = any(self.tools.runs(item) or self.tools.misses(item, offered) for item in items)
        if self._is_held:
            recorder.set_states({RUNNING: self._value()})

    def claim(self, conversation: Conversation, newest: str | None) -> bool:
        """Keep it for calls that wait after the newest response, and return whether any may run (blocking).

        Raises:
            Problem: another request runs them.
        """
        if not self.tools.ready(conversation.pending_calls(), conversation.tools):
            return False
        state = conversation.state(RUNNING)
        if _live(state) is not None:
            raise _busy()
        self.response_id = newest
        try:
            conversation.set_state(RUNNING, self._value(), expected_version=0 if state is None else state.version)
        except errors.StateConflict as error:
            raise _busy() from error
        self._is_held = True
        return True

    def free(self, conversation: Conversation) -> bool:
        """Keep it no longer, and return whether it was kept, and not stopped (blocking)."""
        value = _own(conversation.state(RUNNING), self._id)
        if value is None:
            return False
        conversation.delete_state(RUNNING)
        self.is_stopped = self.is_stopped or "stopped" in value
        return not self.is_stopped

    def _keep(self, conversation: Conversation) -> bool:
        """Keep it for longer, where that is due; returns whether the tools may go on (blocking)."""
        state = conversation.state(RUNNING)
        value = _own(state, self._id)
        if state is None or value is None:
            raise _OverError
        if "stopped" in value:
            self.is_stopped = True
        elif monotonic() >= self._renew_at:
            with suppress(errors.StateConflict):
                conversation.set_state(RUNNING, self._value(), expected_version=state.version)
        return not self.is_stopped

    async def release(self) -> None:
        """Keep it no longer, if it is kept."""
        if self._is_held and self._conversation is not None:
            self._is_held = False
            try:
                await asyncio.shield(self._conversation.run_sync(self.free))
            except AWAY:
                _LOG.exception("A conversation stays kept for its tools until that is over: the database is away.")

    # Answers

    async def claimed(self, conversation: AsyncConversation, given: ToolInput) -> bool:
        """Keep a conversation for calls that wait and may run, and say the rest of what is given; errors as `claim`."""
        if not given.is_answer:
            return False
        newest = await self.call.read(Reader.response_after, conversation.sync, newest=True)

        def work(opened: Conversation) -> bool:
            if not self.claim(opened, newest):
                return False
            self._conversation = conversation
            given.add_outputs(opened)
            return True

        try:
            return await conversation.run_sync(work)
        except BaseException:
            await self.release()
            raise

    async def events(
        self,
        answer: AsyncGenerator[JsonObject] | None,
        conversation: AsyncConversation | None = None,
        response_id: str | None = None,
        place: int = 0,
    ) -> AsyncGenerator[JsonObject]:
        """The events of the first answer, of the outputs of its calls, and of the answers to those, up to the last end.

        Without an answer, it begins with the calls for which a conversation was `claimed`.
        """
        if conversation is not None:
            self._conversation, self.response_id, self.place, self._rounds = conversation, response_id, place, 1
        last: JsonObject = {"type": "response.completed", "response": {"status": "completed"}}
        try:
            while True:
                async for event in each(answer):
                    if answer_writing.is_end(event):
                        last = event
                    else:
                        yield event
                if not self._has_calls(answer, last):
                    break
                async for event in each(self._outputs()):
                    yield event
                answer = await self._asked()
                if answer is None:
                    break
                yield await self._next_round(last)
        except _OverError:
            _LOG.info("Others have gone on with a conversation for which tools ran.")
        finally:
            await self.release()
        yield stopped(last) if self.is_stopped else last

    def _has_calls(self, answer: AsyncGenerator[JsonObject] | None, last: JsonObject) -> bool:
        """Whether the conversation is kept for calls, as those of an answer, which may have failed after all."""
        if answer is not None:
            self._is_held = self._is_held and last.get("response", {}).get("status") in GOES_ON
        return self._is_held

    async def _asked(self) -> AsyncGenerator[JsonObject] | None:
        """The next answer; None where the model is not asked again."""
        if not self._may_ask or self._conversation is None:
            return None
        wanted = turns.TurnOptions(
            self.model, self._conversation.id, None, **{**self.options, "at_end": self.hold}, is_next=True
        )
        turn = turns.Turn(self.call, self.upstream, wanted, self._conversation, _ToolOutputs(self))
        first, answer = await turns.begin_answer(turn, None)
        self._is_held, self._may_ask = False, False
        self._conversation, self._rounds = turn.conversation, self._rounds + 1
        self.response_id = first["response"]["id"]
        return answer

    async def _next_round(self, last: JsonObject) -> JsonObject:
        """The event between two answers."""
        before, new = last["response"].get("id"), self.response_id
        stored = await self.call.read(_places, [id_ for id_ in (before, new) if id_ is not None])
        is_moved = before is not None and stored[0] != self.place
        self.place = stored[-1]
        return next_round(last, self.place, is_moved=is_moved)

    # Tools

    async def _outputs(self) -> AsyncGenerator[JsonObject]:
        """Run what may run, and note whether the model may be asked again; yield the outputs, and what waits."""
        assert self._conversation is not None  # noqa: S101 - `begin` comes first
        has_run = False
        while not self.is_stopped:
            waiting = await self._conversation.pending_calls()
            ready = self.tools.ready(waiting, self._conversation.tools)
            for call in ready:
                if has_run and not await self._is_kept(self._conversation):  # short calls do not look
                    return
                item, has_run = await self._output(self._conversation, call), True
                yield await self._stored(self._conversation, call, item)
                if self.is_stopped:
                    return
            self._may_ask = len(ready) == len(waiting) and self._rounds < self.tools.max_rounds
            if len(ready) in (0, len(waiting)):
                for event in decisions(self.tools, waiting):
                    yield event
                return

    async def _output(self, conversation: AsyncConversation, call: PendingCall) -> JsonObject:
        """The output of a call, which is run while the conversation is kept for it.

        Where the server stops, a function in a thread goes on to its end, and its output is stored.
        """
        if not self.tools.runs(call.item):
            return loops.unknown_output(call)
        context = _CONTEXT.set(ToolContext(self.call.permission.owner, conversation, call))
        ran = asyncio.ensure_future(self._ran(call))
        _CONTEXT.reset(context)
        try:
            while not ran.done():
                await asyncio.wait([ran], timeout=CHECK_SECONDS)
                if not (ran.done() or await self._is_kept(conversation)):
                    return loops.failed_output(call, STOPPED, "incomplete")
        except asyncio.CancelledError:
            if self._is_in_thread:
                await asyncio.wait([ran])
                await self._stored(conversation, call, ran.result())
            raise
        finally:
            ran.cancel()
        return ran.result()

    async def _is_kept(self, conversation: AsyncConversation) -> bool:
        try:
            return await conversation.run_sync(self._keep)
        except AWAY:
            return True

    async def _ran(self, call: PendingCall) -> JsonObject:
        """The output of a call; what a function raises is its output, too."""
        self._is_in_thread = True
        value, failure = await run_in_threadpool(self._begun, call)  # not where stores wait
        self._is_in_thread = False
        try:
            if isawaitable(value):
                value = await value
            return loops.output_of(call, value) if failure is None else _failed(call, failure)
        except Exception as error:  # noqa: BLE001 - it is the output
            return _failed(call, error)

    def _begun(self, call: PendingCall) -> tuple[Any, Exception | None]:
        """What a function returns, or raises; a StopIteration could not leave a thread."""
        try:
            return self.tools.registry.begin(call), None
        except Exception as error:  # noqa: BLE001 - it is the output
            return None, error

    async def _stored(self, conversation: AsyncConversation, call: PendingCall, item: JsonObject) -> JsonObject:
        """Store an output, behind what others say in the meantime; return its event.

        Of one that cannot be stored, it is stored why: the call would run again otherwise, with each request.
        """
        end = monotonic() + STORING_SECONDS
        while True:
            try:
                added = await conversation.add_item(item, idempotency_key=loops.key_of(call))
            except (errors.InvalidItem, errors.TooLarge) as error:
                if item.get("status") == "failed":
                    raise
                item = _failed(call, error)
            except errors.IdempotencyConflict as error:
                raise _OverError from error
            except (errors.ResponseInProgress, *AWAY):
                if monotonic() > end:
                    raise
                await asyncio.sleep(CHECK_SECONDS)
            else:
                return {"type": answer_writing.OUTPUT, "item": item, "position": added.position}


def _failed(call: PendingCall, error: Exception) -> JsonObject:
    if isinstance(error, errors.InvalidToolArguments):
        return loops.failed_output(call, str(error))
    _LOG.warning("The tool %s failed.", call.name, exc_info=error)
    return loops.failed_output(call, str(error) or type(error).__name__)


def decisions(tools: loops.ToolLoop, waiting: Iterable[PendingCall]) -> list[JsonObject]:
    """Return the events of the calls that run once they are approved, of those that wait."""
    return [{"type": answer_writing.DECISION, "item": call.item.to_object()} for call in waiting if tools.asks(call)]


def stopped(last: JsonObject) -> JsonObject:
    """Return the last event of an answer that was stopped while its tools ran."""
    return {**last, "response": {**last.get("response", {}), "status": "cancelled"}}


async def each(events: AsyncGenerator[JsonObject] | None) -> AsyncGenerator[JsonObject]:
    """Yield events, whose iterator is closed at the end; none where there is none."""
    if events is not None:
        async with aclosing(events) as made:
            async for event in made:
                yield event


def next_round(last: JsonObject, place: int, *, is_moved: bool = False) -> JsonObject:
    """Return the event between two answers; `place`: where the items of the next one begin."""
    return {"type": answer_writing.ROUND, "response": last["response"], "place": place, "is_moved": is_moved}


def _places(reader: Reader, ids: Iterable[str]) -> list[int]:
    """Where the items of responses begin (blocking)."""
    return [responses.find(reader, id_).stored.from_position for id_ in ids]


# What other requests see of it


def _live(state: Any) -> JsonObject | None:
    """What a state says that keeps the conversation for tools; None where it does not, any more."""
    value = None if state is None else state.value
    try:
        until = datetime.fromisoformat(value["until"]) if isinstance(value, dict) else None
        return value if until is not None and until > datetime.now(UTC) else None
    except (LookupError, TypeError, ValueError):  # a client has written it
        return None


def _own(state: Any, id_: str) -> JsonObject | None:
    value = None if state is None else state.value
    return value if isinstance(value, dict) and value.get("id") == id_ else None


def _busy() -> problems.Problem:
    text = "Tools run for an answer: follow it with GET …/stream, or end it with POST …/stop."
    return problems.Problem(409, text, param="id", code="answer_in_progress", headers=problems.NO_RETRY)


def check_free(conversation: Conversation) -> None:
    """Raise Problem where tools run in a conversation (blocking)."""
    if _live(conversation.state(RUNNING)) is not None:
        raise _busy()


def check_output(tools: loops.ToolLoop | None, call: Any, param: str) -> None:
    """Raise Problem where a client gives the output of a call, an item, of a function that runs in the server."""
    if tools is not None and tools.runs(call):
        text = f"The tool {errors.shown(call.name)} runs in the server, which alone gives the output of the call"
        text = f"{text} {errors.shown(call.call_id)}: approve or deny it, or send nothing for it."
        raise problems.Problem(409, text, param=param, code="invalid_value", headers=problems.NO_RETRY)


def check_denial(conversation: Conversation, tools: loops.ToolLoop | None, wanted: str) -> None:
    """Raise Problem where a call with this id, or call id, may be running: then, it has an output soon (blocking)."""
    if tools is not None and _live(conversation.state(RUNNING)) is not None:
        waiting = conversation.pending_calls()
        if any(wanted in (one.id, one.call_id) and one.approval is None and tools.may_run(one) for one in waiting):
            raise _busy()


def running(reader: Reader, conversation: Conversation) -> JsonObject | None:
    """Return what keeps a conversation for tools: the `response` that called them; None where none run (blocking)."""
    return _live(reader.state(conversation, RUNNING))


async def stop(conversation: AsyncConversation) -> bool:
    """Stop the tools that run in a conversation, and wait until they have ended, if that does not take long.

    Returns whether any ran.
    """

    def ask(opened: Conversation) -> bool:
        state = opened.state(RUNNING)
        value = _live(state)
        if state is None or value is None:
            return False
        with suppress(errors.StateConflict):
            if "stopped" not in value:
                opened.set_state(RUNNING, {**value, "stopped": True}, expected_version=state.version)
        return True

    end, has_run = monotonic() + responses.CANCEL_SECONDS, False
    while await conversation.run_sync(ask) and monotonic() < end:
        has_run = True
        await asyncio.sleep(responses.POLL_SECONDS)
    return has_run
