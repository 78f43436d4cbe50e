"""POST /responses: a model of any upstream answers, with the stored history, and what it answers is stored.

Source: OpenAI's API reference, "Responses", create a model response.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import Any, Final, cast

from starlette.responses import Response

from threadkeep.domain import formats, ids, options
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import Rendered
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.tools import tools_from
from threadkeep.errors import HeadConflict
from threadkeep.formats.shared.pairing import ALL_KINDS
from threadkeep.server import (
    agent_tools,
    answers,
    body_limits,
    compaction,
    objects,
    origins,
    owners,
    request_state,
    sealed,
    service,
    unstored,
)
from threadkeep.server.event_streams import EventStream
from threadkeep.server.openai.items import given_items, named
from threadkeep.server.openai.responses import find_previous, read_object, replay
from threadkeep.server.problems import Problem
from threadkeep.server.provider_answers import BAD_GATEWAY, UpstreamError, refused, within
from threadkeep.server.requests import body_object, idempotency_key
from threadkeep.server.service import SEALED, Call, Service
from threadkeep.server.sessions import placed, unused_branch
from threadkeep.server.turns import Turn, TurnInput, TurnOptions, begin_answer, loss_headers
from threadkeep.server.upstreams import Upstream
from threadkeep.store.aio import AsyncConversation, AsyncStore, uninterrupted
from threadkeep.store.conversation import Conversation
from threadkeep.store.history_sync.client_history import configure
from threadkeep.store.reading import overviews
from threadkeep.store.usage.ledger import record_unstored
from threadkeep.store.work import connections, positions

logger = logging.getLogger(__name__)

SHORT: Final = 64 * 1024  # characters of a text whose request is not a large one
# keys of requests that are about the server, and never reach an upstream
_OWN: Final = frozenset(
    {"conversation", "previous_response_id", "stream", "stream_options", "background", "store", "input"}
)
_OUTPUTS: Final = ALL_KINDS.outputs
# keys that are about how a request is answered: a repeated one with the same idempotency key may have others
_WAYS: Final = frozenset({"stream", "stream_options", "background", "include", "store"})


async def create(call: Call) -> Response:
    """POST /responses: plain, as a stream, or in the background."""
    body = await body_object(call.request, call.service.max_body_bytes)
    if getattr(call.request.state, request_state.WARMS_UP, False):
        return await _warmed_up(call, body)
    with ExitStack() as counted, ExitStack() as followed:
        turn = await _turn(call, body, keeps=call.service.store_false == "keep")
        if turn.options.is_background and turn.options.is_stream:  # before it begins, which it would do unseen
            followed.enter_context(call.service.streams.taking(call.permission.owner.name))
        first, events = await begin_answer(turn, counted)
        if turn.options.is_background:
            call.service.in_background(drained(events), counted.pop_all())
        return await _answer(turn, first, events, followed)


async def _warmed_up(call: Call, body: JsonObject) -> Response:
    """Answer a request over a WebSocket without output: it is checked, and its connection remembers what it says."""
    asked: JsonObject = {**body, "store": False, "conversation": None}
    turn = await _turn(call, asked, keeps=False)
    await turn.settle()
    response: JsonObject = {
        "id": ids.response_id(ids.public_id_text(ids.new_public_id()), 0), "object": "response",
        "created_at": int(time()), "completed_at": int(time()), "model": turn.options.model, "status": "completed",
        "output": [], "usage": None, "error": None, "incomplete_details": None, "store": False, "conversation": None,
    }  # fmt: skip
    made = objects.with_settings(turn.options.echoed, response)
    return EventStream(replay(call, made, -1), call.permission)


async def compact(call: Call) -> Response:
    """POST /responses/compact: what was said, and a compaction that stands for it; nothing of it is stored."""
    body = await body_object(call.request, call.service.max_body_bytes)
    items = body.get("input")
    said = [{"role": "user", "content": items}] if isinstance(items, str) else items or []
    if not isinstance(said, list):
        raise Problem(400, "input must be a text or a list.", param="input", code="invalid_type")
    ways = dict.fromkeys(("stream", "stream_options", "background"))
    asked = {**body, **ways, "store": False, "input": [*said, compaction.TRIGGER]}
    for summarizes in (False, True):
        turn = await _turn(call, asked, keeps=False, summarizes=summarizes)
        with ExitStack() as counted:
            _, events = await begin_answer(turn, counted)
        async with call.service.attended(call.request):
            with call.service.waiting():
                response = (await drained(events))["response"]
        if response["status"] == "completed" and any(item["type"] == "compaction" for item in response["output"]):
            return answers.JsonAnswer(compaction.compaction_object(response, said), headers=loss_headers(turn.rendered))
        if turn.options.waiting is not None or response["status"] != "completed":  # not of a host without compaction
            break
    raise refused(UpstreamError(BAD_GATEWAY, None, f"{turn.upstream.name} gave no compaction."))


async def count_input(call: Call) -> Response:
    """POST /responses/input_tokens: how many tokens the upstream counts; no model is asked, and nothing is stored."""
    body = await body_object(call.request, call.service.max_body_bytes)
    ways = dict.fromkeys(("stream", "stream_options", "background"))
    turn = cast("StatelessTurn", await _turn(call, {**body, **ways, "store": False}, keeps=False, counts=True))
    try:
        async with call.service.attended(call.request):
            rendered = await turn.memory.store.run_sync(turn.begin_alone)
            model = turn.upstream.model or turn.options.model
            counting = turn.upstream.input_tokens(rendered.payload, model)
            count = await within(call.service.max_answer_seconds, counting)
    except UpstreamError as error:
        raise refused(error) from error
    finally:
        turn.leave_room()
        await turn.settle()
    found = {"object": "response.input_tokens", "input_tokens": count}
    return answers.JsonAnswer(found, headers=loss_headers(rendered))


async def _turn(
    call: Call, body: JsonObject, *, keeps: bool, summarizes: bool = False, counts: bool = False
) -> Turn:  # fmt: skip
    """The turn of a request; Problem for one that cannot be answered.

    `keeps`: also one with `store: false`; `summarizes`: there is no compaction but by a summary; `counts`: its input is
    counted alone.
    """
    body_limits.check_tools(body)
    _check_options(body)
    asked = filter(objects.INCLUDED.__contains__, map(str, body.get("include") or ()))
    call = call._replace(included=call.included.union(asked))
    options = TurnOptions.of(body)
    upstream = call.service.upstream(options.model)
    body = {**body, "input": (said := compaction.with_summaries(body.get("input")))}
    if upstream.format != "open_responses":
        body, tools = agent_tools.as_functions(body)
        options = options._replace(tools=tools)
    if compaction.is_asked(body) and (summarizes or upstream.format != "open_responses"):
        body, options = compaction.asking_for_summary(body), options._replace(waiting=compaction.waiting_calls(said))
    given = await ResponseInput.of(call, body, options, upstream)
    if keeps and not options.is_stored:
        given, options = await _kept(call, body, given, upstream), options._replace(is_stored=True)
    if options.is_stored:
        return Turn(call, upstream, options, given.place or call.store, given)
    return await stateless(call, upstream, options, given, counts=counts)


async def _answer(
    turn: Turn, first: JsonObject, events: AsyncGenerator[JsonObject], followed: ExitStack
) -> Response:  # fmt: skip
    """What a request is answered whose answer has begun; in the background, it goes on by itself."""
    call, options, headers = turn.call, turn.options, loss_headers(turn.rendered)
    if options.is_background:
        if not options.is_stream:
            return answers.JsonAnswer(first["response"], headers=headers)
        stored = await read_object(call, first["response"]["id"])
        return EventStream(replay(call, stored, -1), call.permission, headers=headers, place=followed.pop_all())
    if options.is_stream:
        return EventStream(chained(first, events, call.service), call.permission, headers=headers)
    async with call.service.attended(call.request):
        with call.service.waiting():
            return answers.JsonAnswer((await drained(events))["response"], headers=headers)


# What is asked


@dataclass(slots=True)
class ResponseInput(TurnInput):
    """The input of a response, and what was stored of it.

    Attributes:
        given: a text, or items.
        key: under which a repeated request finds what was stored, and stores nothing again.
        place: the conversation, on the branch that goes on; None for a new one.
        end: the position after which it goes on; None for wherever it ends.
        outputs: the types of outputs of calls that it does not have, by the ids of these.
        stored: the conversation in which it was said.
        added: the positions of the input there.
    """

    given: Any
    key: str | None
    place: AsyncConversation | None
    end: int | None
    user_id: str | None
    outputs: Mapping[str, str] = field(default_factory=dict)
    stored: Conversation | None = field(init=False, default=None)
    added: list[int] = field(init=False, default_factory=list)

    @classmethod
    async def of(
        cls, call: Call, body: Mapping[str, Any], options: TurnOptions, upstream: Upstream
    ) -> ResponseInput:  # fmt: skip
        """Read a request's body, and open the conversation that it goes on with."""
        session = formats.get_format("open_responses").parse_request({**_settings(body, upstream), "input": []})
        given, key, place = sealed.unsealed(body.get("input"), upstream.name), idempotency_key(call.request), None
        end: int | None = None
        if options.conversation_id is not None:
            place = call.store.face_of(await call.read(call.find, options.conversation_id))
        elif options.previous_response_id is not None:
            found = await call.read(find_previous, options.previous_response_id)
            place = call.store.face_of(found.conversation)
            end = max(found.stored.to_position, found.stored.input_to)
        if not isinstance(given, str):
            into = None if place is None else place.id
            given = await given_items(call, given or [], "input", body_limits.MAX_INPUT, into=into)
        content = {name: value for name, value in body.items() if name not in _WAYS}
        outputs = {} if isinstance(given, str) else _outputs_alone(given)
        return cls(content, session, given, None if key is None else f"{key}:input", place, end, call.user_id, outputs)

    @property
    def is_short(self) -> bool:
        """Whether it is a short text, which names no media."""
        return isinstance(self.given, str) and len(self.given) < SHORT

    def say(self, face: Any) -> Conversation:
        """Say it, with its settings, in the conversation (blocking); without one, in a new one of this store.

        Problem for an output of a call that is neither in the input nor in the conversation.
        """
        conversation = self._said(face)
        if self.outputs:
            known = {
                entry.call_id for entry in conversation.handle.read_snapshot().entries if entry.type not in _OUTPUTS
            }
            for call_id in self.outputs.keys() - known:
                text = f"No tool call found for {self.outputs[call_id]} with call_id {call_id}. "
                text += "Put the call in front of it, or name the response or conversation that has the call."
                raise Problem(400, text, param="input")
        return conversation

    def _said(self, face: Any) -> Conversation:
        self.stored, self.added, self.before = None, [], None
        if self.place is None:
            key = owners.own_key(self.key, self.user_id)
            settings: Any = self.settings.settings
            self.stored = face.create_conversation(
                input=self.given or None, known=False, tools=self.settings.tools, idempotency_key=key, **settings
            )
            return self.stored
        conversation: Conversation = face
        self.stored = conversation
        try:
            said = self._append(conversation, self.end)
        except HeadConflict:  # it has gone on since: on a branch of its own
            key = None if self.key is None else f"{self.key}:fork"
            unused = None if key is not None else unused_branch(conversation, cast("int", self.end))
            conversation = unused or conversation.fork(at=self.end, idempotency_key=key)
            self.stored, said = conversation, self._append(conversation, None)
        self.added += [item.position for item in said]
        if said and said[0].branch != conversation.branch:  # where an earlier request with this key said it
            conversation = self.stored = conversation.on_branch(said[0].branch)
        self.before = configure(
            conversation, self.settings, is_locked=True
        )  # last: a conversation in use keeps its settings
        return conversation

    def _append(self, conversation: Conversation, end: int | None) -> list[StoredItem]:
        options: positions.AppendOptions = {"idempotency_key": self.key, "expected_head": end}
        if isinstance(self.given, str):
            return [conversation.user(self.given, **options)]
        if self.given:
            with named("input"):
                return conversation.add_items(self.given, unique_ids=True, known=False, **options)
        if end is not None and end != conversation.head:
            raise HeadConflict(end, conversation.head)
        return []

    def remove(self, conversation: Conversation) -> None:
        """Remove the input (blocking); with a key it stays, and a repeated request finds it."""
        if self.key is None:
            for position in reversed(self.added):
                conversation.remove_item(position, purge=True)

    async def clean_up(self, call: Call) -> None:
        """Delete a conversation that was begun for this; with a key, a repeated request finds it."""
        if self.place is None and self.key is None and self.stored is not None:
            await call.store.delete_conversation(self.stored.id)


def _outputs_alone(given: Sequence[Any]) -> dict[str, str]:
    """What outputs are, by the ids of calls that are not with them; none where a compaction may have these."""
    pairs = [(item.get("call_id"), str(item.get("type"))) for item in given if isinstance(item, dict)]
    if any(kind == "compaction" for _, kind in pairs):
        return {}
    called = {call_id for call_id, kind in pairs if isinstance(call_id, str) and kind not in _OUTPUTS}
    return {
        call_id: kind.replace("_", " ")
        for call_id, kind in pairs
        if isinstance(call_id, str) and kind in _OUTPUTS and call_id not in called
    }


# Requests with `store: false`: their clients send the whole history each time


async def _kept(call: Call, body: Mapping[str, Any], given: ResponseInput, upstream: Upstream) -> ResponseInput:
    """Input whose history is in the conversation of its client's session, unless the request names one itself."""
    if given.place is not None:
        return given
    payload = {**_settings(body, upstream), "input": given.given}
    key = None if given.key is None else f"{given.key}:asked"
    asked = origins.ClientCall(
        "open_responses", payload, call.request.headers, call.permission.owner, upstream.name, key=key
    )  # fmt: skip
    place = await placed(call.store, asked, call.service.locks)
    given.settings.update(instructions=place.instructions)  # with what leads the input
    return replace(given, given=[], place=place)


@dataclass(slots=True)
class StatelessTurn(Turn):
    """A request for an answer that is not stored: `call` and `face` are those of a database in memory.

    Attributes:
        ledger: the store whose ledger has the call.
        memory: the database in memory.
    """

    ledger: AsyncStore = field(kw_only=True)
    memory: unstored.Memory = field(kw_only=True)
    is_settled: bool = field(init=False, default=False)

    async def settle(self) -> None:
        """Write the row of the ledger, and forget the conversation."""
        if not self.is_settled:
            self.is_settled = True
            self.leave_room()
            await uninterrupted(self._settle())

    def begin_alone(self, face: Any) -> Rendered:
        """Return the request that the history makes, without an answer to it (blocking)."""
        self.is_begun, self._opened = True, self.input.say(face)
        self._make_room(self._opened)
        return self._rendered(self._opened)

    async def undo(self) -> None:
        """Forget the conversation, with what was said."""
        await self.settle()

    async def _settle(self) -> None:
        try:
            if self.is_begun:
                await self._forget(self.conversation.id)
        finally:
            await self.memory.leave()

    async def _forget(self, id: str) -> None:
        for call in self.memory.calls.pop(id, ()):
            write = partial(self.ledger.run_sync, record_unstored, call, ids.new_key())
            try:
                await write()
            except connections.AWAY:
                logger.warning("The call of an answer that is not stored waits for the database.")
                self.call.service.unstored.add(write)
        await self.memory.store.delete_conversation(id)


async def stateless(
    call: Call, upstream: Upstream, options: TurnOptions, given: ResponseInput, *, counts: bool = False
) -> StatelessTurn:
    """Return the turn of a request with `store: false`; Problem for what that cannot be asked for with."""
    unfit = {
        "background": (options.is_background, "cannot be asked for later"),
        "conversation": (options.conversation_id is not None and not counts, "is not added to one"),
        "Idempotency-Key": (idempotency_key(call.request) is not None, "cannot be found by a repeated request"),
    }
    for name, (is_given, why) in unfit.items():
        if is_given:
            text = f"{name} needs store: true: an answer that is not stored {why}."
            raise Problem(400, text, param=name, code="unsupported_value")
    room = 0
    if given.place is not None:
        room = await given.place.run_sync(overviews.request_bytes, service.SMALL, given.end)
        room = room if service.checked_size(room) > service.SMALL else 0
    call.service.request_bytes.take(call.permission.owner.name, room)  # before it is read, until the turn counts it
    try:
        if given.place is not None:
            given = await _with_history(given, given.place, options.previous_response_id)
            if options.waiting is not None:
                waiting = compaction.waiting_calls(given.given)
                options = options._replace(waiting=[*options.waiting, *compaction.new_calls(waiting, options.waiting)])
        memory = call.service.memories.take()
    except BaseException:
        call.service.request_bytes.give_back(call.permission.owner.name, room)
        raise
    inner = call._replace(store=memory.store)
    turn = StatelessTurn(inner, upstream, options, memory.store, given, ledger=call.store, memory=memory)
    turn.room = room
    return turn


async def _with_history(given: ResponseInput, place: AsyncConversation, previous: str | None) -> ResponseInput:
    """Input that begins with what a stored response answered, and its output, with the settings of its conversation.

    Without a response, it begins with the whole conversation.
    """
    before, after = list[StoredItem](), None
    while True:
        page = await (place.items(after=after) if previous is None else place.input_items(previous, after=after))
        before += page
        if (after := page.next) is None:
            break
    said = (
        [{"type": "message", "role": "user", "content": given.given}] if isinstance(given.given, str) else given.given
    )
    if previous is not None:
        before += await place.output_items(previous)
    history = [item.given() for item in before]
    settings = await place.clone_config()
    settings.update(**given.settings.settings)
    if given.settings.tools:
        settings.clear_tools()
        settings.register_tools(given.settings.tools)
    return replace(given, settings=settings, given=[*history, *said], place=None)


def _check_options(body: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a malformed option, which would otherwise be dropped silently."""
    known = {name: value for name, value in body.items() if name in options.OPTIONS and value is not None}
    options.settings_with({}, known)
    if (tools := body.get("tools")) is not None:
        tools_from(tools)


def _settings(body: Mapping[str, Any], upstream: Upstream) -> JsonObject:
    found = {key: value for key, value in body.items() if key not in _OWN and value is not None}
    if upstream.format != "open_responses" and isinstance(include := found.get("include"), list):
        found["include"] = [value for value in include if value != SEALED]  # which this server gives by itself
    return found


async def chained(
    first: JsonObject, events: AsyncGenerator[JsonObject], service: Service
) -> AsyncGenerator[JsonObject]:
    """Yield the events of an answer that has begun; when the server stops, it ends with what has come."""
    with service.waiting():
        async with aclosing(events) as rest:
            yield first
            async for event in rest:
                yield event


async def drained(events: AsyncGenerator[JsonObject]) -> JsonObject:
    """Return the last of the events."""
    last: JsonObject = {}
    async with aclosing(events) as all_of_them:
        async for event in all_of_them:
            last = event
    return last
