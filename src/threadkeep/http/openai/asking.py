"""Asking a model: what a request wants, and the events of an answer, which is recorded while it comes."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from threadkeep.domain.item_ids import derived_id, own_id, response_id
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import event_text
from threadkeep.domain.options import OPTIONS
from threadkeep.domain.redaction import redact
from threadkeep.domain.rendering import ASKED, Loss, Rendered, Repair
from threadkeep.domain.response import Response as StoredAnswer
from threadkeep.errors import FormatError, LossError, NotFound
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.canonical.view import canonical_item
from threadkeep.formats.shared.streams import BROKEN_OFF
from threadkeep.http.openai.growing import GrowingEvents
from threadkeep.http.openai.response_objects import ECHOED, with_settings
from threadkeep.http.openai.responses import find, stored_object
from threadkeep.http.problems import Problem
from threadkeep.http.provider_answers import AnswerTooLong, UpstreamError, until_end
from threadkeep.http.requests import idempotency_key, required
from threadkeep.http.rooms import SMALL
from threadkeep.http.service import Call, Service
from threadkeep.http.unstored import not_stored
from threadkeep.http.upstreams import Upstream
from threadkeep.store.aio import (
    AsyncConversation,
    AsyncRecorder,
    AsyncStore,
    begun_at,
    check_request,
    conversation_on,
    has_ended,
    has_events,
    is_over,
    is_unstored,
    keep_beginning,
    note_error,
    on_conversation,
    partial_items,
    received_bytes,
    recorder_on,
    unsettled_count,
)
from threadkeep.store.connections import AWAY
from threadkeep.store.conversation import Conversation
from threadkeep.store.sizes import request_bytes
from threadkeep.store.streaming.background import BackgroundFeed
from threadkeep.store.streaming.recorder import Recorder
from threadkeep.web.courses import is_late

logger = logging.getLogger(__name__)

LOSSES: Final = "x-threadkeep-losses"  # header of answers: what the upstream could not be told
STRICT: Final = "x-threadkeep-strict"  # header of requests: refuse them instead
_MAX_LOSSES: Final = 20  # that the header names …
_MAX_PATH: Final = 100  # … and so many characters of where each is: proxies refuse long headers
_PASSED_ON: Final = frozenset({400, 404, 408, 409, 413, 422, 429})  # statuses of upstreams that are the client's matter
_MAX_SAID: Final = 2_000  # characters of what an upstream says that are passed on
_BAD_GATEWAY: Final = 502
_ABOUT_KEYS: Final = frozenset({401, 403})  # what an upstream says with these is about the server's key
_KNOWN: Final = frozenset({*OPTIONS, "input", "tools"})  # keys of requests
_KEPT: Final = ("id", "created_at", "model")  # what the end of an answer has as its beginning
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Wanted(NamedTuple):
    """What a request asks for, apart from the model's settings."""

    model: str
    conversation_id: str | None
    previous_response_id: str | None
    is_stream: bool
    is_background: bool
    echoed: JsonObject
    unknown: Sequence[str] = ()  # keys that only an upstream of Open Responses may know

    @property
    def besides(self) -> JsonObject:
        """What it says of itself, and the upstream is not told."""
        facts = {"background": self.is_background, "previous_response_id": self.previous_response_id}
        return {name: value for name, value in facts.items() if value}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Wanted:
        """Read a request's body."""
        model, conversation = required(body, "model"), body.get("conversation")
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
        return cls(model, conversation, previous, is_stream, is_background, echoed, unknown)


def _check_flags(body: Mapping[str, Any]) -> None:
    """Raise Problem for what is no way to be answered."""
    for name in ("stream", "background", "store"):
        if not isinstance(body.get(name), bool | None):
            raise Problem(400, f"{name} must be true or false.", param=name, code="invalid_type")
    if body.get("store") is False:
        problem = "store must not be false: this server answers from what it stores, and stores what it answers."
        raise Problem(400, problem, param="store", code="unsupported_value")


def loss_headers(rendered: Rendered) -> dict[str, str]:
    """Return the header that names what the upstream could not be told."""
    reports: list[Loss | Repair] = [*rendered.losses]
    if not reports:
        return {}
    named = [f"{report.code}={report.path[:_MAX_PATH]}" for report in reports[:_MAX_LOSSES]]
    text = ", ".join(named).encode("ascii", "backslashreplace").decode()
    return {LOSSES: _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)}


class Said(Protocol):
    """What a request says before it is answered, in a conversation or by beginning one."""

    @property
    def content(self) -> JsonObject:
        """All that it asks for: a repeated request with the same key asks for the same."""

    def say(self, face: Any, /) -> Conversation:
        """Say it in a blocking conversation or store, inside a transaction (blocking); return the conversation.

        It may be called again, when nothing that it did was stored.
        """

    def take_back(self, conversation: Conversation, /) -> None:
        """Undo it (blocking): where there is no answer to it, or the same request was answered before."""

    async def clean_up(self, call: Call, /) -> None:
        """Undo the rest afterwards, where there is no answer."""


@dataclass(slots=True)
class Run:
    """One answer: who asked, whom, and where.

    Attributes:
        call, upstream, wanted: who asked, whom, and what for.
        face: the conversation, or for a new one the store.
        said: what comes with the request.
        conversation, rendered: the conversation, and the request that its history makes, once the answer has begun.
        is_begun: whether that was stored with the beginning of an answer.
        is_taken_back: whether it was taken back with the end of that.
        is_replayed: whether the answer was stored before, under the same key.
    """

    call: Call
    upstream: Upstream
    wanted: Wanted
    face: AsyncStore | AsyncConversation
    said: Said
    conversation: AsyncConversation = field(init=False)
    rendered: Rendered = field(init=False)
    is_begun: bool = False
    is_taken_back: bool = False
    is_replayed: bool = False
    _room: int = 0  # bytes

    def recorder(self, number: int) -> AsyncRecorder:
        """Return a recorder of an attempt.

        Entering the first one says what comes with the request, renders, and starts, all or nothing: of two requests
        at the same time, one finds the answer to the other in progress, and leaves nothing behind. Without an answer,
        what was said is taken back with the end of the recording.
        """
        key = idempotency_key(self.call.request)
        options: Any = {
            "provider": self.upstream.name, "base_url": self.upstream.base_url,
            "idempotency_key": None if key is None else f"{key}:response:{number}",
        }  # fmt: skip
        if number:
            return self.conversation.stream_response(self.upstream.format, rendered=self.rendered, **options)

        def begin(face: Any) -> Recorder:
            conversation = self.said.say(face)
            if key is not None:
                check_request(conversation, f"{key}:request", self.said.content)
            self.conversation = conversation_on(self.call.store, conversation)
            self._make_room(conversation)
            self.rendered = self._rendered(conversation)
            return conversation.stream_response(self.upstream.format, rendered=self.rendered, **options)

        return recorder_on(self.face, begin, self._take_back)

    def _make_room(self, conversation: Conversation) -> None:
        """Take room for the request that the history makes, before it is read; Problem where there is none."""
        self.leave_room()
        size = request_bytes(conversation, SMALL)
        self._room = self.call.service.rooms.take(self.call.permission.owner, size)

    def leave_room(self) -> None:
        """Give the room back that was taken."""
        if self._room:
            self.call.service.rooms.give_back(self.call.permission.owner, self._room)
            self._room = 0

    def _take_back(self, conversation: Conversation) -> None:
        self.is_begun = self.is_taken_back = True
        self.said.take_back(conversation)

    async def undo(self) -> None:
        """Take back what was said, where that was not done with the end of the recording."""
        if self.is_begun and not self.is_taken_back:
            await on_conversation(self.conversation, self.said.take_back)
        if self.is_begun and not self.is_replayed:
            await self.said.clean_up(self.call)

    def _rendered(self, conversation: Conversation) -> Rendered:
        """The request that the history makes; Problem for losses, where none is allowed."""
        is_strict = self.call.request.headers.get(STRICT, "").lower() in ("1", "true")
        try:
            rendered = conversation.render(self.upstream.format, strict=is_strict, provider=self.upstream.name)
        except LossError as error:
            first = next(iter([*error.losses, *error.repairs]), None)
            raise Problem(400, error.message, param=first.path if first else None, code="unsupported") from error
        if lost := self._unknown():
            if is_strict:
                raise Problem(400, lost[0].detail, param=lost[0].path, code="unsupported")
            rendered = replace(rendered, losses=[*rendered.losses, *lost])
        besides = self.wanted.besides
        return replace(rendered, view={**rendered.view, ASKED: besides}) if besides else rendered

    def _unknown(self) -> list[Loss]:
        """The keys of the request that this upstream is not told, as threadkeep does not know them."""
        if self.upstream.format == "open_responses":
            return []
        why = f"is no key that is known, so that {self.upstream.name} cannot be told."
        return [Loss("option", None, name, f"{name} {why}") for name in self.wanted.unknown]

    def beginning(self, recorder: AsyncRecorder) -> JsonObject:
        """The response before any output."""
        number = recorder.number or 0
        found: JsonObject = {
            "id": response_id(self.conversation.id, number),
            "object": "response",
            "created_at": int(begun_at(recorder).timestamp()),
            "model": self.wanted.model,
            "completed_at": None,
            "status": "queued" if self.wanted.is_background else "in_progress",
            "output": [],
            "usage": None,
            "error": None,
            "incomplete_details": None,
            "conversation": {"id": self.conversation.id},
        }
        return with_settings(self.wanted.echoed, found)

    async def ending(self, beginning: JsonObject) -> JsonObject:
        """The response as it was stored."""
        found = await stored_object(self.call, await find(self.call, beginning["id"]))
        return with_settings({}, found | self.wanted.echoed | {key: beginning[key] for key in _KEPT})

    def output(self, recorder: AsyncRecorder, first: int) -> list[JsonObject]:
        """The items from an index on, as far as they have come, with the ids that they will have."""
        found = []
        for index, item in enumerate(partial_items(recorder, first), first):
            given = item.to_object()
            id_ = own_id(given) or derived_id(item.type, self.conversation.id, self.rendered.head + 1 + index)
            found.append(canonical_item(entry_of(given, position=-1), id_))
        return found


async def begun(run: Run, counted: ExitStack) -> tuple[JsonObject, AsyncGenerator[JsonObject]]:
    """The first event of an answer, and those after it; one in the background is counted from now on.

    Without an answer, what was said is taken back.
    """
    call = run.call
    _check_is_open(call.service)
    if run.wanted.is_background:
        call.service.unattended.check(call.permission.owner)
        counted.enter_context(call.service.unattended.one_more(call.permission.owner))
    events = answer_events(run)
    try:
        is_attended = not run.wanted.is_background
        async with call.service.attended(call.request) if is_attended else nullcontext():
            with call.service.waiting():
                first = await anext(events)  # raises what went wrong before there was anything to send
    except (Exception, asyncio.CancelledError) as error:  # also of a function that an application has as its upstream
        await asyncio.shield(run.undo())
        if isinstance(error, UpstreamError):
            raise refused(error) from error
        raise
    if run.is_replayed:
        await run.undo()
    return first, events


def _check_is_open(service: Service) -> None:
    """Raise Problem where no answer may begin: nobody would end it."""
    if service.is_closing:
        raise stopping()


def stopping() -> Problem:
    """Return what a request is told that a server which stops does not answer any more."""
    text, headers = "The server is stopping.", {"retry-after": "1"}
    return Problem(503, text, code="stopping", type="server_error", headers=headers)


async def answer_events(run: Run) -> AsyncGenerator[JsonObject]:
    """The events of an answer; the first one comes when the upstream has begun to answer, in the background at once."""
    async with AsyncExitStack() as stack:
        stack.callback(run.leave_room)
        recorder = await _recorder(run, stack)
        beginning = run.beginning(recorder)
        growing = GrowingEvents(run.upstream.format, beginning)
        try:
            async with aclosing(_growing_events(run, recorder, growing)) as made_events:
                async for made in made_events:
                    keep_beginning(recorder)
                    yield made
        except (UpstreamError, FormatError) as error:
            _note_broken(run, recorder, growing, error)
        except (asyncio.CancelledError, GeneratorExit) as interruption:
            if is_late() and recorder.has_output:
                return  # what came is incomplete, and the stream says why it ends
            if not run.call.service.is_closing:
                raise  # the client has left, or nobody waits any more: the response is cancelled, not incomplete
            if isinstance(interruption, GeneratorExit):
                return  # nobody reads the last event
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # a task was cancelled
    for made in growing.end(await run.ending(beginning)):
        yield made


async def _growing_events(run: Run, recorder: AsyncRecorder, growing: GrowingEvents) -> AsyncGenerator[JsonObject]:
    """The events up to the last of the upstream's, all of which are recorded."""
    if run.wanted.is_background and not recorder.replayed:
        for made in growing.begin():
            yield made
    output, stored = partial(run.output, recorder), BackgroundFeed(recorder)
    async with aclosing(stored.each(_asked(run, recorder))) as answer:
        async for event in answer:
            taken: Iterable[JsonObject] = growing.take(event, output, unsettled_count(recorder))
            if stored.is_large:
                taken = await stored.in_thread(partial(list, taken))
            for made in taken:
                yield made


def _note_broken(run: Run, recorder: AsyncRecorder, growing: GrowingEvents, error: UpstreamError | FormatError) -> None:
    """Note that a provider broke off; raise UpstreamError where nothing was answered yet."""
    broken = error
    if not isinstance(broken, UpstreamError):  # what cannot be read is the fault of the provider, not of the request
        text = f"answered with a stream that cannot be read as {run.upstream.format}: {error.message}"
        broken = UpstreamError(_BAD_GATEWAY, None, f"{run.upstream.name} {text}")
    if not growing.has_begun:
        raise broken from error
    logger.warning("An upstream broke off: %s", error.message)
    if not has_events(recorder):  # no event tells of it
        note_error(recorder, {"message": refused(broken).message})


async def _recorder(run: Run, stack: AsyncExitStack) -> AsyncRecorder:
    """A recorder that has begun; with a key, of the first attempt that is an answer."""
    for attempt in count():
        recorder = run.recorder(attempt)
        stack.push_async_exit(partial(_stored_later, run, recorder))
        await stack.enter_async_context(recorder)
        run.is_begun = True
        stored = recorder.response
        run.is_replayed = stored is not None and stored.replayed
        if stored is None or not stored.replayed or await _is_answer(run, recorder.number or 0, stored):
            break
    return recorder


async def _stored_later(
    run: Run, recorder: AsyncRecorder, _kind: object, error: BaseException | None, _trace: object
) -> None:
    """Have an answer stored later whose end the database did not take; Problem for its client, if there is one."""
    if not is_unstored(recorder):
        return
    run.call.service.unstored.add(recorder)
    if isinstance(error, AWAY):
        raise not_stored(response_id(run.conversation.id, recorder.number or 0)) from error


async def _is_answer(run: Run, number: int, stored: StoredAnswer) -> bool:
    """Whether what was stored under a key is an answer, so that nobody is asked again; Problem if it was deleted since.

    What failed or broke off before any output is none. All else is, without output, too: it may be on a bill.
    """
    try:
        await run.conversation.get_response(number)
    except NotFound as error:
        raise Problem(404, "The response with this Idempotency-Key was deleted.", code="not_found") from error
    has_failed = stored.status == "failed" or stored.incomplete_details == BROKEN_OFF
    return not has_failed or bool(await run.conversation.output_items(number))


async def _asked(run: Run, recorder: AsyncRecorder) -> AsyncGenerator[Any]:
    """The upstream's events as objects or text; none for what was answered before, under the same key."""
    if recorder.replayed:
        return
    model = run.upstream.model or run.wanted.model
    most = run.call.service.max_answer_bytes
    asked = run.upstream.events(run.rendered.payload, model, most)
    async with aclosing(until_end(asked, partial(has_ended, recorder), partial(is_over, recorder))) as answer:
        async for event in answer:
            if (text := event_text(event)) != b"":
                yield text
            if received_bytes(recorder) > most:
                raise AnswerTooLong(most)
    if not has_events(recorder):
        raise UpstreamError(_BAD_GATEWAY, None, f"{run.upstream.name} answered with a stream that has no events.")


def refused(error: UpstreamError) -> Problem:
    """Return what a request is told whose upstream refused, or did not answer."""
    is_passed_on = error.status in _PASSED_ON or 500 <= error.status <= 599  # noqa: PLR2004 - failures of servers
    status = error.status if is_passed_on else _BAD_GATEWAY
    given = error.body.get("error") if isinstance(error.body, dict) else None
    said = given.get("message") if isinstance(given, dict) else None
    is_told = isinstance(said, str) and error.status not in _ABOUT_KEYS
    message = f"{error.message} {redact(str(said)[:_MAX_SAID])}" if is_told else error.message
    again = error.retry_after or ""
    headers = {"retry-after": again[:_MAX_PATH]} if again.isascii() and again.isprintable() and again else {}
    return Problem(status, message, code="upstream_error", type="upstream_error", headers=headers)


async def drained(events: AsyncGenerator[JsonObject]) -> JsonObject:
    """The last of the events."""
    last: JsonObject = {}
    async with aclosing(events) as all_of_them:
        async for event in all_of_them:
            last = event
    return last
