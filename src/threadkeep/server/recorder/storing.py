"""Stores a call that passed: what is new of its history, its settings, and the answer, while that passes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final

import httpx2

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.printing import HIDDEN
from threadkeep.errors import CannotParse, NotFound, ProviderError
from threadkeep.formats import FormatName
from threadkeep.server import provider_answers
from threadkeep.server.origins import ClientCall
from threadkeep.server.quotas import GrowthQuota
from threadkeep.server.recorder.exchanges import REFUSED, CallFacts, Exchange, Overflow, Unreadable
from threadkeep.server.recorder.retrievals import store_retrieved
from threadkeep.server.sessions import Locks, placed
from threadkeep.server.unstored import Memory
from threadkeep.store.aio import AsyncConversation, AsyncRecorder, AsyncStore, note_trace, whole_recorder
from threadkeep.store.conversation import Conversation
from threadkeep.store.streaming.background import BackgroundFeed
from threadkeep.store.usage.ledger import record_unstored

logger = logging.getLogger(__name__)

_KEY_DIGITS: Final = 15  # hexadecimal ones of a call's id, of which its key in the ledger is made
# keys of tools and servers in requests whose values are secrets, also where they look like none
_SECRET_KEYS: Final = frozenset({"authorization", "authorization_token", "headers", "api_key", "access_token"})
_WITH_SECRETS: Final = ("tools", "mcp_servers", "mcpServers")  # keys of requests that may have them
# headers of answers that say something about them, and no secrets
_KEPT_HEADERS: Final = frozenset(
    {"request-id", "x-request-id", "openai-processing-ms", "openai-version", "retry-after"}
)


class PartlyStored(Exception):
    """Another process has stored a part of an answer, and what came of it later cannot be added."""


async def store_exchange(
    store: AsyncStore,
    exchange: Exchange,
    locks: Locks,
    most: int = provider_answers.MAX_ANSWER_BYTES,
    answer_bytes: GrowthQuota | None = None,
) -> bool:
    """Store a call as it passes; `locks` are shared by all calls that are recorded here.

    Returns whether there was anything to store: False for most of those that ask for an answer again.

    Of an answer, `most` bytes are stored: of a stream, what has come until then. `answer_bytes` limits the streams that
    are being put together.

    Raises:
        Unreadable: a body is not what its route should have; what is readable was stored.
        Overflow: more came than may wait, or be put together.
        PartlyStored: another process had stored a part of the answer, and was killed.
        ThreadkeepError, SQLAlchemyError: it cannot be stored.
    """
    facts = exchange.facts
    store = await facts.owner.store(store, facts.since or facts.at)
    if facts.route.response is not None:
        return await store_retrieved(store, exchange, most, provider=facts.provider, base_url=facts.base_url)
    payload = without_secrets(_json_object(await exchange.request_body(), "request"))
    if payload.get("generate") is False or facts.route.is_aside:
        await _count_alone(store, payload, exchange, most, answer_bytes)
        return True
    once = f"asked:{facts.id}" if exchange.is_repeatable else None
    route = {"model": facts.route.model, "stream": facts.route.is_stream}
    asked = ClientCall(facts.route.format, payload, facts.headers, facts.owner, facts.provider, route, once)
    try:
        if await _stored_whole(store, asked, exchange, locks, most):
            return True
        conversation = await placed(store, asked, locks)
    except NotFound:  # its user is erased, or its conversation was deleted in this moment
        await _count_alone(store, payload, exchange, most, answer_bytes)
        return True
    del payload, asked  # an answer may take long
    with locks.answering(conversation):
        await _store_answered(store, conversation, exchange, most, answer_bytes)
    return True


async def _stored_whole(store: AsyncStore, asked: ClientCall, exchange: Exchange, locks: Locks, most: int) -> bool:
    """Store a call with an answer that is all here, in one transaction; False for one that takes several steps."""
    if (found := exchange.whole_answer) is None or len(found[1]) > most:
        return False
    head, body = found[0], exchange.facts.secrets.hidden_bytes(found[1])
    if not isinstance(_json(body), dict):
        return False
    options = _response_options(exchange, httpx2.Headers(list(head.headers)))

    def store_answer(conversation: Conversation) -> None:
        note_trace(conversation, options["idempotency_key"])
        conversation.add_response(body, exchange.facts.route.format, expected_head=conversation.head, **options)

    with suppress(CannotParse, NotFound, ProviderError):  # nothing is stored: each of them has a way of its own
        await placed(store, asked, locks, store_answer)
        return True
    return False


async def _count_alone(
    store: AsyncStore, payload: JsonObject, exchange: Exchange, most: int, answer_bytes: GrowthQuota | None
) -> None:
    """Have a call in the ledger alone: one that generates nothing, or that must not be stored any more."""
    async with _counted(store, exchange.facts, payload.get("model") or None) as (memory, conversation):
        await _store_answered(memory, conversation, exchange, most, answer_bytes)


@asynccontextmanager
async def _counted(
    store: AsyncStore, facts: CallFacts, model: str | None = None
) -> AsyncIterator[tuple[AsyncStore, AsyncConversation]]:
    """A conversation in memory, with its store; its calls are in the ledger afterwards."""
    memory = Memory()
    try:
        conversation = await memory.store.create_conversation(model=model)
        try:
            yield memory.store, conversation
        finally:
            for call in memory.calls.pop(conversation.id, ()):
                await store.run_sync(record_unstored, call, int(facts.id[:_KEY_DIGITS], 16))
    finally:
        await memory.store.close()


async def _store_answered(
    store: AsyncStore, conversation: AsyncConversation, exchange: Exchange, most: int, answer_bytes: GrowthQuota | None
) -> None:
    """Store what a call is answered, in its conversation; if that was deleted since, only the bill stays."""
    exchange.release_request()
    answer, place = await exchange.answer(), (store, conversation)
    if answer is None:
        await _note_failure(*place, exchange, exchange.ending[1] or exchange.ending[0])
    elif answer.status_code >= REFUSED:
        await _note_failure(*place, exchange, await _error_of(answer), answer.status_code)
    elif provider_answers.is_event_stream(answer.headers):
        owner = exchange.facts.owner.name
        with (
            nullcontext(provider_answers.uncounted)
            if answer_bytes is None
            else provider_answers.counted_bytes(answer_bytes, owner) as hold
        ):
            await _store_stream(*place, exchange, answer, most, hold)
    else:
        await _store_answer(*place, exchange, answer, most)


def _json_object(text: bytes, what: str) -> JsonObject:
    try:
        value = loads(text)
    except ValueError as error:
        raise Unreadable(f"the {what} is not JSON") from error
    if not isinstance(value, dict):
        raise Unreadable(f"the {what} is not a JSON object")
    return value


def without_secrets(payload: JsonObject) -> JsonObject:
    """A request without the keys to other services that its tools may have; the request itself is not changed."""
    held: JsonObject = {key: _hidden(payload[key]) for key in _WITH_SECRETS if key in payload}
    return {**payload, **held}


def _hidden(value: Any) -> Any:
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    if not isinstance(value, dict) or "parameters" in value or "input_schema" in value:  # a function, with its schema
        return value
    return {key: _masked(inner) if key in _SECRET_KEYS else _hidden(inner) for key, inner in value.items()}


def _masked(value: Any) -> Any:
    return dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else HIDDEN


# What is answered


async def _store_answer(
    store: AsyncStore, conversation: AsyncConversation, exchange: Exchange, answer: httpx2.Response, most: int
) -> None:
    place = (store, conversation)
    try:
        body = exchange.facts.secrets.hidden_bytes(await provider_answers.bounded_body(answer, most))
    except httpx2.DecodingError as error:
        await _note_failure(*place, exchange, "The answer cannot be decompressed.", answer.status_code)
        raise Unreadable("the answer cannot be decompressed") from error
    except provider_answers.AnswerTooLong as error:
        await _note_failure(*place, exchange, error.message, answer.status_code)
        return
    except Overflow:
        await _note_failure(*place, exchange, "The answer is too large to wait.", answer.status_code)
        raise
    if not exchange.is_whole:
        await _note_failure(*place, exchange, exchange.ending[1] or exchange.ending[0])
        return
    value = _json(body)
    if isinstance(value, list):  # Gemini's stream, if it is not asked for server-sent events
        keep = partial(_store_events, exchange=exchange, answer=answer, events=value)
    else:
        keep = partial(_store_body, exchange=exchange, answer=answer, body=body)
    try:
        await _keep_answered(*place, exchange, keep)
    except ProviderError:
        pass  # its ledger row was written
    except CannotParse as error:
        await _note_failure(*place, exchange, error.message, answer.status_code)
        raise Unreadable("the answer is not what its format has") from error


async def _keep_answered(
    store: AsyncStore, conversation: AsyncConversation, exchange: Exchange,
    keep: Callable[[AsyncConversation], Awaitable[None]],
) -> None:  # fmt: skip
    """Keep what was answered in its conversation or, if that was deleted since, on the bill alone."""
    try:
        await keep(conversation)
    except NotFound:
        async with _counted(store, exchange.facts) as (_, counted):
            await keep(counted)


async def _store_body(
    conversation: AsyncConversation, exchange: Exchange, answer: httpx2.Response, body: bytes
) -> None:
    options = _response_options(exchange, answer.headers)
    await conversation.add_response(body, exchange.facts.route.format, expected_head=conversation.head, **options)


def _response_options(exchange: Exchange, headers: Mapping[str, str]) -> Any:
    facts = exchange.facts
    return {
        "provider": facts.provider, "base_url": facts.base_url, "latency_ms": exchange.milliseconds,
        "headers": _kept(headers), "on_conflict": "branch", "idempotency_key": f"recorded:{facts.id}",
    }  # fmt: skip


async def _store_events(
    conversation: AsyncConversation, exchange: Exchange, answer: httpx2.Response, events: list[Any]
) -> None:
    async with _recorder(conversation, exchange, answer, is_whole=True) as recorder:
        for event in events:
            await recorder.feed(event)
        recorder.set_times(latency_ms=exchange.milliseconds)
    _check_whole(recorder)


def _json(body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError:
        return None


async def _store_stream(
    store: AsyncStore, conversation: AsyncConversation, exchange: Exchange, answer: httpx2.Response, most: int,
    hold: provider_answers.Hold,
) -> None:  # fmt: skip
    """Store the events as they pass; a stream that breaks off, for whatever reason, is stored as incomplete.

    Of a spool, they are all read before any is stored: after a kill, there is all of the response or nothing.

    Raises:
        NotFound: the conversation was deleted, and nothing of a call of the spool is stored.
    """
    problem: Exception | None = None
    hidden = exchange.facts.secrets.hidden
    first_token_ms: float | None = None
    async with _recording(store, conversation, exchange, answer) as recorder:
        stored = BackgroundFeed(recorder, has_written=exchange.keep)
        try:
            received = provider_answers.text_events(answer, most, hold)
            async with aclosing(provider_answers.until_end(received, recorder.writer)) as events:
                async for event in events:
                    with suppress(NotFound):  # what comes after a deletion counts for the bill
                        stored.feed(hidden(event))
                    exchange.keep(stored.waiting_bytes)
                    if first_token_ms is None and recorder.has_output:
                        first_token_ms = exchange.milliseconds
            if recorder.writer.has_ended:
                exchange.note_over()
        except (httpx2.DecodingError, CannotParse) as error:
            problem = Unreadable("the answer is not a stream of events")
            problem.__cause__ = error
        except Overflow as error:
            problem = error
        except provider_answers.AnswerTooLong as error:
            logger.warning("An answer is stored as far as it came: %s", error.message)
        except provider_answers.UpstreamError as error:
            problem = Overflow(error.message)
        recorder.set_times(latency_ms=exchange.milliseconds, first_token_ms=first_token_ms)
    try:
        if problem is not None:
            raise problem
    finally:
        del problem  # which has this frame in its traceback
    _check_whole(recorder)


@asynccontextmanager
async def _recording(
    store: AsyncStore, conversation: AsyncConversation, exchange: Exchange, answer: httpx2.Response
) -> AsyncIterator[AsyncRecorder]:
    """A recorder that has begun; where the conversation was deleted before, in memory."""
    make = partial(_recorder, exchange=exchange, answer=answer, is_whole=exchange.is_repeatable)
    with nullcontext() if exchange.is_repeatable else suppress(NotFound):  # of which the bill is complete
        async with AsyncExitStack() as stack:
            try:
                recorder = await stack.enter_async_context(make(conversation))
            except NotFound:
                _, counted = await stack.enter_async_context(_counted(store, exchange.facts))
                recorder = await stack.enter_async_context(make(counted))
            yield recorder


def _check_whole(recorder: AsyncRecorder) -> None:
    """Raise PartlyStored for an answer of which another process has stored a part under the same key."""
    if recorder.writer.is_cut:
        raise PartlyStored("a part of its answer had been stored before, and stays")


def _recorder(
    conversation: AsyncConversation, exchange: Exchange, answer: httpx2.Response, *, is_whole: bool
) -> AsyncRecorder:
    facts = exchange.facts
    options: Any = {
        "provider": facts.provider, "base_url": facts.base_url, "headers": _kept(answer.headers),
        "expected_head": conversation.head, "idempotency_key": f"recorded:{facts.id}",
    }  # fmt: skip
    if is_whole:
        return whole_recorder(conversation, facts.route.format, **options)
    return conversation.stream_response(facts.route.format, on_conflict="branch", **options)


def kept_answer_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an answer that a spool keeps."""
    return {**_kept(headers), "content-type": headers.get("content-type", "")}


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name in _KEPT_HEADERS}


# What went wrong


async def _error_of(answer: httpx2.Response) -> Any:
    try:
        body = await provider_answers.error_body(answer)
    except httpx2.DecodingError:
        body = b""
    value = _json(body)
    if isinstance(value, dict):
        return value
    return body.decode("utf-8", "replace")[:2000] or f"The status is {answer.status_code}."


async def _note_failure(
    store: AsyncStore, conversation: AsyncConversation, exchange: Exchange, error: Any, status: int | None = None
) -> None:
    facts = exchange.facts
    format_: FormatName = facts.route.format
    said = facts.secrets.hidden_in(error if isinstance(error, dict) else {"message": error})

    async def note(place: AsyncConversation) -> None:
        await place.record_attempt(
            format_,
            error=said if status is None else {**said, "http_status": status},
            status="cancelled" if exchange.ending[0] == "left" else None,
            provider=facts.provider,
            base_url=facts.base_url,
            latency_ms=exchange.milliseconds,
            occurred_at=facts.at,
            idempotency_key=f"recorded:{facts.id}",
        )

    await _keep_answered(store, conversation, exchange, note)
