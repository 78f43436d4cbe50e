"""Answers that are asked for again: what came of a response on which its provider was still at work.

So are answers in the background, which are polled or cancelled, and those of streams that broke off. What comes takes
the place of what was stored, which shows no end, and so does its attempt in the ledger.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import httpx2

from threadkeep.domain.jsontext import dumps, loads
from threadkeep.errors import CannotParse, NotFound, ProviderError
from threadkeep.formats import FormatName, get_format
from threadkeep.server import provider_answers
from threadkeep.server.recorder.exchanges import REFUSED, Exchange, Unreadable
from threadkeep.server.recorder.targets import RecordedRoute
from threadkeep.store.aio import AsyncStore
from threadkeep.store.store import Store, UnitOfWork
from threadkeep.store.writing.attempts import withdraw_attempt

_GOES_ON: Final = ("in_progress", None)
# before each try to store an answer: its client may have left a stream of it, which the server notices a little later
_PAUSES: Final = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


async def store_retrieved(store: AsyncStore, exchange: Exchange, most: int, **call: Any) -> bool:
    """Store an answer that was asked for again, of at most so many bytes; `call` is what the ledger has of it.

    Returns whether there was anything to store: most of them go on, are stored already, or unknown.

    Raises:
        Unreadable: it is not what its route should have.
    """
    await exchange.request_body()
    answer = await exchange.answer()
    if answer is None or answer.status_code >= REFUSED:
        return False
    is_stream, text = provider_answers.is_event_stream(answer.headers), ""
    try:
        if is_stream:
            async for text in provider_answers.text_events(answer, most):  # noqa: B007 - the last one has all of it
                pass
        else:
            text = (await provider_answers.bounded_body(answer, most)).decode("utf-8", "replace")
        body = _body_of(exchange.facts.secrets.hidden(text), exchange.facts.route.format, is_stream=is_stream)
    except (httpx2.DecodingError, provider_answers.AnswerTooLong, CannotParse, ValueError) as error:
        if exchange.is_whole:
            raise Unreadable("the answer is not what its format has, or too long") from error
        return False
    if body is not None:
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            found = await store.run_sync(_complete, exchange.facts.route, body, call)
            if found is not None:
                return found
    return False


def _body_of(text: str, format_: FormatName, *, is_stream: bool) -> bytes | None:
    """The body of a response that has ended, or is in the last event of its stream; None for any other."""
    wire, body = get_format(format_), text.encode()
    if is_stream:  # which may have left out the beginning
        assembler = wire.assembler()
        assembler.feed(loads(text))
        body = dumps(assembler.body)
    with suppress(ProviderError):
        response = wire.parse_response(body)
        if response.status in _GOES_ON or (is_stream and response.completed and not response.output):
            return None
    return body


def _complete(store: Store, route: RecordedRoute, body: bytes, call: Any) -> bool | None:
    """Store the body of a response whose end was not known (blocking); None while its stream is being recorded.

    False for any other response, or an unknown one.
    """
    with suppress(NotFound):
        status = store.get_response(str(route.response)).status
        if status in (*_GOES_ON, "incomplete"):
            return store.run_in_transaction(_replace, route, body, call) or (None if status in _GOES_ON else False)
    return False


def _replace(work: UnitOfWork, route: RecordedRoute, body: bytes, call: Any) -> bool:
    stored = work.get_response(str(route.response))
    conversation = work.open(stored.conversation_id, branch=stored.branch)
    asked_at = withdraw_attempt(conversation.handle, stored.number)
    if asked_at is None:  # it is being recorded, or another call was faster
        return False
    work.delete_response(stored.id)
    is_active = work.get_conversation(stored.conversation_id).branch == stored.branch
    latency = (datetime.now(UTC) - asked_at).total_seconds() * 1000
    place: Any = {"expected_head": stored.input_to, "occurred_at": asked_at, "latency_ms": latency, **call}
    with suppress(ProviderError):  # its ledger row was written
        response = conversation.add_response(body, route.format, on_conflict="branch", **place)
        if is_active and response.stored is not None and response.stored.branch != stored.branch:
            conversation.set_active_branch(response.stored.branch)
    return True
