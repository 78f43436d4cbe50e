"""Turns: what a request says, the request that the history makes, and the answer, recorded while it comes."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from threadkeep.domain import ids, options, session
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import ASKED, Loss, Rendered
from threadkeep.domain.response import Response as StoredAnswer
from threadkeep.domain.stored import BROKEN_OFF
from threadkeep.errors import FormatError, LossError, NotFound
from threadkeep.server import compaction, objects, request_state, requests, service, unstored, upstreams
from threadkeep.server.agent_tools import FUNCTIONS, AgentTools
from threadkeep.server.answer_events import GrowingEvents
from threadkeep.server.objects import ECHOED, details_object, masked, with_settings
from threadkeep.server.problems import Problem
from threadkeep.server.provider_answers import (
    BAD_GATEWAY,
    AnswerTooLong,
    Hold,
    UpstreamError,
    counted_bytes,
    described,
    refused,
    until_end,
)
from threadkeep.server.sealed import sealed
from threadkeep.store.aio import AsyncConversation, AsyncRecorder, AsyncStore, end_recording, is_unstored, recorder_on
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading import overviews, reader, rendering
from threadkeep.store.streaming.background import BackgroundFeed, written_response
from threadkeep.store.streaming.recorder import Recorder
from threadkeep.store.work import connections, idempotency
from threadkeep.store.writing.updates import put_back

logger = logging.getLogger(__name__)

LOSSES: Final = "x-threadkeep-losses"  # header of answers: what the upstream could not be told
STRICT: Final = "x-threadkeep-strict"  # header of requests: refuse them instead
_MAX_LOSSES: Final = 20  # that the header names …
_MAX_PATH: Final = 100  # … and so many characters of where each is: proxies refuse long headers
_KNOWN: Final = frozenset({*options.OPTIONS, "input", "tools"})  # keys of requests
# options of streams that all streams of this server heed: they have usage, and no padding
_HEEDED: Final[Mapping[str, Any]] = {"include_usage": (True, False, None), "include_obfuscation": (False, None)}
_KEPT: Final = ("id", "created_at", "model", "store", "conversation")  # what an answer's end has as its beginning
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class TurnOptions(NamedTuple):
    """What a request asks for, apart from the model's settings."""

    model: str
    conversation_id: str | None
    previous_response_id: str | None
    is_stream: bool
    is_background: bool
    echoed: JsonObject
    unknown: Sequence[str] = ()  # keys that only an upstream of Open Responses may know …
    stream_options: JsonObject | None = None  # … as those of a stream
    is_stored: bool = True
    tools: AgentTools = AgentTools({})  # what functions stand for, where the upstream gets functions alone
    waiting: Sequence[JsonObject] | None = None  # calls in the compaction that is asked for, if there is one
    context: JsonObject | None = None  # current facts, which are sent before what the model answers
    losses: Sequence[Loss] = ()  # what no upstream is sent
    is_live: bool = False  # whether a stream has its output while it comes, also in the background
    is_next: bool = False  # whether it follows another answer to the same request, to which the key belongs
    at_end: Callable[[AsyncRecorder], object] | None = None  # is called before the end of an answer is stored

    @property
    def besides(self) -> JsonObject:
        """What it says of itself, and is not sent to the upstream."""
        facts: JsonObject = {"background": self.is_background, "previous_response_id": self.previous_response_id}
        facts[FUNCTIONS] = self.tools.names if self.tools.are_renamed else None
        return {name: value for name, value in facts.items() if value}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> TurnOptions:
        """Read a request's body."""
        model, conversation = requests.required(body, "model"), body.get("conversation")
        conversation = conversation.get("id") if isinstance(conversation, dict) else conversation
        previous = body.get("previous_response_id")
        for name, value in {"model": model, "conversation": conversation, "previous_response_id": previous}.items():
            if not isinstance(value, str) and (value is not None or name == "model"):
                raise Problem(400, f"{name} must be a text.", param=name, code="invalid_type")
        if conversation is not None and previous is not None:
            problem = "conversation and previous_response_id exclude each other."
            raise Problem(400, problem, param="previous_response_id", code="mutually_exclusive_parameters")
        _check_flags(body)
        given = [key for key, value in body.items() if value is not None]
        echoed = {key: body[key] for key in given if key in ECHOED}
        unknown = [key for key in given if key not in _KNOWN]
        is_stream, is_background = bool(body.get("stream")), bool(body.get("background"))
        stream_options = body.get("stream_options") if is_stream else None
        return cls(
            model, conversation, previous, is_stream, is_background, echoed, unknown, stream_options,
            is_stored=body.get("store") is not False,
        )  # fmt: skip


def _check_flags(body: Mapping[str, Any]) -> None:
    for name in ("stream", "background", "store"):
        if not isinstance(body.get(name), bool | None):
            raise Problem(400, f"{name} must be true or false.", param=name, code="invalid_type")


def loss_headers(rendered: Rendered) -> dict[str, str]:
    """Return the header that names what was not sent to the upstream."""
    if not rendered.losses:
        return {}
    named = [f"{loss.code}={loss.path[:_MAX_PATH]}" for loss in rendered.losses[:_MAX_LOSSES]]
    text = ", ".join(named).encode("ascii", "backslashreplace").decode()
    return {LOSSES: _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)}


@dataclass(slots=True)
class TurnInput(ABC):
    """What a request says before it is answered, and the settings that it gives the conversation.

    Attributes:
        content: all that the request asks for: a repeated request with the same key asks for the same.
        settings: of the conversation from now on.
        before: those that it had until then, where they are put back without an answer.
    """

    content: JsonObject
    settings: session.Session
    before: session.Session | None = field(init=False, default=None)

    @property
    def is_short(self) -> bool:
        """Whether it is known to be less than counts for its owner (`service.SMALL`)."""
        return False

    @abstractmethod
    def say(self, face: Any) -> Conversation:
        """Say it in a blocking conversation or store, inside a transaction; return the conversation.

        It may be called again, when nothing that it did was stored.
        """

    @abstractmethod
    def remove(self, conversation: Conversation) -> None:
        """Remove what was said (blocking)."""

    def take_back(self, conversation: Conversation) -> None:
        """Undo it (blocking): where there is no answer to it, or the same request was answered before.

        The conversation has the settings again that it had, unless it was given others since.
        """
        if self.before is not None:
            put_back(conversation.handle, self.before, self.settings)
        self.remove(conversation)

    async def clean_up(self, call: service.Call) -> None:  # noqa: B027 - for most there is nothing
        """Undo the rest afterwards, where there is no answer."""


@dataclass(slots=True)
class Turn:
    """A request for an answer, and the answer.

    Attributes:
        call: the request.
        upstream: the provider that answers.
        options: what the request asks for, apart from the model's settings.
        face: the conversation; for a new one, the store in which it is created.
        input: what the request adds to the conversation; there is none any more when the answer has begun.
        rendered: the request to the provider; set when the answer begins, and without its body once that is asked.
        is_begun: whether the input and the beginning of an answer are stored.
        is_taken_back: whether the input was removed with the end of a failed answer.
        is_replayed: whether the answer was stored before, under the same key.
        has_limit: whether the application or its client says how long the answer may be.
        room: how many bytes of large requests it has taken.
    """

    call: service.Call
    upstream: upstreams.Upstream
    options: TurnOptions
    face: AsyncStore | AsyncConversation
    input: TurnInput
    rendered: Rendered = field(init=False)
    is_begun: bool = False
    is_taken_back: bool = False
    is_replayed: bool = False
    has_limit: bool = False
    room: int = 0
    _opened: Conversation = field(init=False)  # in the transaction in which the answer begins
    _conversation: AsyncConversation | None = field(init=False, default=None)

    @property
    def conversation(self) -> AsyncConversation:
        """The conversation, for after the commit of the transaction in which the answer begins."""
        if self._conversation is None:
            self._conversation = self.call.store.face_of(self._opened)
        return self._conversation

    def recorder(self, number: int) -> AsyncRecorder:
        """Return a recorder of an attempt.

        Entering the first one says what comes with the request, renders, and starts, all or nothing: of two requests
        at the same time, one finds the answer to the other in progress, and leaves nothing behind. Without an answer,
        input that was appended is removed in the transaction that ends the recording, and a new conversation is deleted
        afterwards (`TurnInput.clean_up`).
        """
        key = None if self.options.is_next else requests.idempotency_key(self.call.request)
        options: Any = {
            "provider": self.upstream.name, "base_url": self.upstream.base_url,
            "idempotency_key": None if key is None else f"{key}:response:{number}",
        }  # fmt: skip
        if number:
            return self.conversation.stream_response(self.upstream.format, rendered=self.rendered, **options)

        def begin(face: Any) -> Recorder:
            conversation = self.input.say(face)
            if key is not None:
                idempotency.check_request(conversation.handle, f"{key}:request", self.input.content)
            self._opened, self._conversation = conversation, None
            self._make_room(conversation)
            self.rendered = self._rendered(conversation)
            return conversation.stream_response(self.upstream.format, rendered=self.rendered, **options)

        return recorder_on(self.face, begin, self._take_back)

    def _make_room(self, conversation: Conversation) -> None:
        """Take room for the request that the history makes, before it is read; Problem where there is none."""
        self.leave_room()
        size = overviews.settings_bytes(conversation)
        if not (self.input.is_short and isinstance(self.face, AsyncStore)):  # else there is nothing else in it
            size += overviews.request_bytes(conversation, service.SMALL)
        if service.checked_size(size) > service.SMALL:
            self.call.service.request_bytes.take(self.call.permission.owner.name, size)
            self.room = size

    def leave_room(self) -> None:
        """Give the room back that was taken."""
        if self.room:
            self.call.service.request_bytes.give_back(self.call.permission.owner.name, self.room)
            self.room = 0

    def _take_back(self, conversation: Conversation) -> None:
        self.is_begun = self.is_taken_back = True
        self.input.take_back(conversation)

    async def settle(self) -> None:
        """Do what is to be done when the answer has ended, however it did; may be called again."""

    async def undo(self) -> None:
        """Take back what was said, where that was not done with the end of the recording."""
        if self.is_begun and not self.is_taken_back:
            await self.conversation.run_sync(self.input.take_back)
        if self.is_begun and not self.is_replayed:
            await self.input.clean_up(self.call)

    def _rendered(self, conversation: Conversation) -> Rendered:
        """The request that the history makes; Problem for losses, where none is allowed."""
        is_strict = self.call.request.headers.get(STRICT, "").lower() in ("1", "true")
        if upstreams.spoken_format(self.upstream.format).limits:
            self.has_limit = rendering.opened_config(conversation.handle).max_output_tokens is not None
        try:
            context = self.options.context
            facts: Any = {} if context is None else {"dynamic_context": context, "dynamic_context_at": "tail"}
            rendered = conversation.render(self.upstream.format, strict=is_strict, provider=self.upstream.name, **facts)
        except LossError as error:
            first = next(iter([*error.losses, *error.repairs]), None)
            raise Problem(400, error.message, param=first.path if first else None, code="unsupported") from error
        if lost := self._unknown():
            if is_strict:
                raise Problem(400, lost[0].detail, param=lost[0].path, code="unsupported")
            rendered = replace(rendered, losses=[*rendered.losses, *lost])
        besides = self.options.besides
        return replace(rendered, view={**rendered.view, ASKED: besides}) if besides else rendered

    def _unknown(self) -> list[Loss]:
        """The keys of the request that threadkeep does not heed, and does not send to this upstream."""
        if self.upstream.format == "open_responses":
            return [*self.options.losses]
        options = (self.options.stream_options or {}).items()
        names = (f"stream_options.{key}" for key, value in options if value not in _HEEDED.get(key, ()))
        why, unknown = f"is not sent to {self.upstream.name}.", (*self.options.unknown, *names)
        return [*self.options.losses, *(Loss("option", None, name, f"{name} {why}") for name in unknown)]

    def beginning(self, recorder: AsyncRecorder) -> JsonObject:
        """The response before any output."""
        number = recorder.number or 0
        found: JsonObject = {
            "id": ids.response_id(self.conversation.id, number),
            "object": "response",
            "created_at": int(recorder.writer.began_at.timestamp()),
            "model": self.options.model,
            "completed_at": None,
            "status": "queued" if self.options.is_background else "in_progress",
            "output": [],
            "usage": None,
            "error": None,
            "incomplete_details": None,
            "store": self.options.is_stored,
            "conversation": {"id": self.conversation.id} if self.options.is_stored else None,
        }
        return with_settings(self.options.echoed, found)

    async def ending(self, beginning: JsonObject, recorder: AsyncRecorder) -> JsonObject:
        """The response as it was stored."""
        details = written_response(recorder)
        if details is None:
            details = (await self.call.read(reader.Reader.response, beginning["id"]))[1]
        make = partial(details_object, self.call, details, beginning["id"])
        found = await connections.made_aside(recorder.writer.received_bytes, make)
        kept = () if self.options.is_live else _KEPT  # others that follow it have it as it was stored
        ended = with_settings({}, found | self.options.echoed | {key: beginning[key] for key in kept})
        return compaction.compacted(ended, self.options.waiting)

    def output(self, recorder: AsyncRecorder, first: int) -> list[JsonObject]:
        """The items from an index on, as far as they have come, with the ids that they will have."""
        if self.options.waiting is not None:
            return []
        items = recorder.writer.items_from(first)
        id_, hidden, place = self.conversation.id, masked(self.call), self.rendered.head + 1 + first
        shown = (objects.partial_item(item, id_, position, hidden) for position, item in enumerate(items, place))
        found = [*map(self.options.tools.called, shown)]
        if not self.call.is_sealed:
            return found
        return [
            sealed(*pair, self.upstream.name) for pair in zip(found, (one.to_object() for one in items), strict=True)
        ]


async def begin_answer(turn: Turn, counted: ExitStack | None) -> tuple[JsonObject, AsyncGenerator[JsonObject]]:
    """The first event of an answer, and those after it; one in the background is counted from now on, unless it is.

    Without an answer, what was said is taken back.
    """
    call, owner = turn.call, turn.call.permission.owner.name
    events = answer_events(turn)
    try:
        call.service.check_open(owner)
        if turn.options.is_background and counted is not None:
            call.service.background.check(owner)
            counted.enter_context(call.service.background.counting(owner))
        is_attended = not turn.options.is_background
        async with call.service.attended(call.request) if is_attended else nullcontext():
            with call.service.waiting(), call.service.locks.answering(turn.face):
                first = await anext(events)  # raises what went wrong before there was anything to send
    except (Exception, asyncio.CancelledError) as error:  # also of a function that an application has as its upstream
        try:
            await asyncio.shield(turn.undo())
        except connections.AWAY:  # the client learns why there is no answer
            logger.exception("The input of a request without an answer stays: the database cannot be used.")
        if isinstance(error, UpstreamError):
            raise refused(error) from error
        raise
    if turn.is_replayed:
        await turn.undo()
    del turn.input  # which may be as large as a body, and an answer may take long
    return first, events


async def answer_events(turn: Turn) -> AsyncGenerator[JsonObject]:
    """The events of an answer; the first one comes when the upstream has begun to answer, in the background at once."""
    try:
        async with AsyncExitStack() as stack:
            stack.callback(turn.leave_room)
            hold = stack.enter_context(counted_bytes(turn.call.service.answer_bytes, turn.call.permission.owner.name))
            recorder = await _recorder(turn, stack)
            beginning = turn.beginning(recorder)
            is_followed = turn.options.is_stream and (turn.options.is_live or not turn.options.is_background)
            are_renamed = turn.options.tools.are_renamed
            growing = GrowingEvents(turn.upstream.format, beginning, shows_output=is_followed, is_renamed=are_renamed)
            try:
                async with aclosing(_growing_events(turn, recorder, growing, hold)) as made_events:
                    async for made in made_events:
                        recorder.writer.keep_beginning()
                        yield made
            except (UpstreamError, FormatError) as error:
                _note_broken(turn, recorder, growing, error)
            except (asyncio.CancelledError, GeneratorExit) as interruption:
                if request_state.is_late() and recorder.has_output:
                    return  # what came is incomplete, and the stream says why it ends
                if not turn.call.service.is_closing:
                    raise  # the client has left, or nobody waits any more: the response is cancelled, not incomplete
                if isinstance(interruption, GeneratorExit):
                    return  # nobody reads the last event
                asyncio.current_task().uncancel()  # type: ignore[union-attr]  # a task was cancelled
            if turn.options.at_end is not None:
                turn.options.at_end(recorder)
        ending = await turn.ending(beginning, recorder)
        await turn.settle()
        for made in growing.end(ending):
            yield made
    finally:
        await turn.settle()


async def _growing_events(
    turn: Turn, recorder: AsyncRecorder, growing: GrowingEvents, hold: Hold
) -> AsyncGenerator[JsonObject]:  # fmt: skip
    """The events up to the last of the upstream's, all of which are recorded."""
    if turn.options.is_background and not recorder.replayed:
        for made in growing.begin():
            yield made
    output, stored = partial(turn.output, recorder), BackgroundFeed(recorder)
    async with aclosing(stored.each(_asked(turn, recorder, hold))) as answer:
        async for event in answer:
            if growing.is_silent:
                continue
            taken: Iterable[JsonObject] = growing.take(event, output, recorder.writer.assembler.unsettled_count)
            if stored.is_large:
                taken = await stored.in_thread(partial(list, taken))
            for made in taken:
                yield made


def _note_broken(
    turn: Turn, recorder: AsyncRecorder, growing: GrowingEvents, error: UpstreamError | FormatError
) -> None:
    """Note that a provider broke off; raise UpstreamError where nothing was answered yet."""
    broken = error
    if not isinstance(broken, UpstreamError):  # what cannot be read is the fault of the provider, not of the request
        text = f"answered with a stream that cannot be read as {turn.upstream.format}: {error.message}"
        broken = UpstreamError(BAD_GATEWAY, None, f"{turn.upstream.name} {text}")
    logger.warning("An upstream failed: %s", described(broken))
    if not recorder.writer.assembler.has_events:  # no event tells of it
        recorder.writer.note_error({"message": refused(broken).message})
    if not growing.has_begun:
        raise broken from error


async def _recorder(turn: Turn, stack: AsyncExitStack) -> AsyncRecorder:
    """A recorder that has begun; with a key, of the first attempt that is an answer."""
    for attempt in count():
        recorder = turn.recorder(attempt)
        stack.push_async_exit(partial(_stored_later, turn, recorder))
        await stack.enter_async_context(recorder)
        turn.is_begun = True
        stored = recorder.response
        turn.is_replayed = stored is not None and stored.replayed
        if stored is None or not stored.replayed or await _is_answer(turn, recorder.number or 0, stored):
            break
    return recorder


async def _stored_later(
    turn: Turn, recorder: AsyncRecorder, _kind: object, error: BaseException | None, _trace: object
) -> None:
    """Have an answer stored later whose end the database did not take; Problem for its client, if there is one."""
    if not is_unstored(recorder):
        return
    turn.call.service.unstored.add(partial(end_recording, recorder), recorder.writer.give_up)
    if isinstance(error, connections.AWAY):
        raise unstored.not_stored(ids.response_id(turn.conversation.id, recorder.number or 0)) from error


async def _is_answer(turn: Turn, number: int, stored: StoredAnswer) -> bool:
    """Whether what was stored under a key is an answer; Problem if it was deleted since.

    What failed or broke off before any output is none. All else is, without output, too: it may be on a bill.
    """
    try:
        await turn.conversation.get_response(number)
    except NotFound as error:
        raise Problem(404, "The response with this Idempotency-Key was deleted.", code="not_found") from error
    has_failed = stored.status == "failed" or stored.incomplete_details == BROKEN_OFF
    return not has_failed or bool(await turn.conversation.output_items(number))


def _changes(turn: Turn, model: str) -> JsonObject:
    """What is sent beyond the request: where its format needs a limit, the model's, if its client has set none."""
    stream_options = turn.options.stream_options
    if stream_options and turn.upstream.format == "open_responses":
        return {"stream_options": stream_options}
    limits = {} if turn.has_limit else upstreams.spoken_format(turn.upstream.format).limits
    return {key: max(turn.rendered.value(key), longest(model) or 0) for key, longest in limits.items()}


async def _asked(turn: Turn, recorder: AsyncRecorder, hold: Hold) -> AsyncGenerator[Sequence[Any]]:
    """The upstream's events as objects or text, in batches; none for what was answered before, under the same key."""
    if recorder.replayed:
        return
    model, most = turn.upstream.model or turn.options.model, turn.call.service.max_answer_bytes
    asked = turn.upstream.batches(turn.rendered, _changes(turn, model), model, most, hold)
    turn.rendered = replace(turn.rendered, source=b"")  # which is as large as the history, and an answer may take long
    async with aclosing(until_end(asked, recorder.writer, turn.call.service.max_answer_seconds)) as answer:
        async for batch in answer:
            yield batch
            if recorder.writer.received_bytes > most:
                raise AnswerTooLong(most)
            await hold(recorder.writer.received_bytes)
    if not recorder.writer.assembler.has_events:
        raise UpstreamError(BAD_GATEWAY, None, f"{turn.upstream.name} answered with a stream that has no events.")
