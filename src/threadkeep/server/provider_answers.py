"""What a provider answers, as far as a server reads it: bounded, in slices, and no further than the answer goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import cache
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import httpx2

from threadkeep.domain import jsontext, printing
from threadkeep.errors import MissingExtra
from threadkeep.server import body_limits, problems, quotas
from threadkeep.store.streaming.background import at_once_or_within

T = TypeVar("T")
Hold: TypeAlias = Callable[[int], Awaitable[None]]  # counts how many bytes of an answer have come

_PASSED_ON: Final = frozenset({400, 404, 408, 409, 413, 422, 429})  # statuses of upstreams that are the client's matter
_MAX_SAID: Final = 2_000  # characters of what an upstream says that are passed on
_ABOUT_KEYS: Final = frozenset({401, 403})  # what an upstream says with these is about the server's key
BAD_GATEWAY: Final = 502
_UNREACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_MAX_PAUSE: Final = 100  # characters of when to come again
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024  # of an answer, decompressed; one event or line of it may be as long
ANSWER_SECONDS: Final = 3_600.0  # for which an answer is read
MAX_ERROR_BYTES: Final = 256 * 1024  # of the body of an error; what follows is not read
MAX_EVENT_VALUES: Final = 2_000_000  # JSON values of one event: each takes much more memory than it is long
SLICE_STEPS: Final = 8  # pieces of a body, or events, after which other tasks go on
SLICE_BYTES: Final = 16 * 1024  # … or so many bytes
TRAILING_SECONDS: Final = 10.0  # for what may follow the end of an answer: usage, or the word that nothing follows
CLOSING_SECONDS: Final = 0.05  # … and for the end of its body, after which its connection serves the next request
EVENTS: Final = "text/event-stream"
_GATEWAY_TIMEOUT: Final = 504
_PRELUDE: Final = 12  # bytes with which a message of Amazon's event streams begins; the first four are its length


class UpstreamError(Exception):
    """An upstream refused a request, or did not answer: with a status, the body it gave, and when to ask again."""

    def __init__(self, status: int, body: Any, message: str, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status, self.body, self.message, self.retry_after = status, body, message, retry_after


class AnswerTooLong(UpstreamError):
    """An answer, or an event of it, exceeds what a server reads."""

    def __init__(self, most: int, what: str = "answer has more than {:,} bytes") -> None:
        super().__init__(BAD_GATEWAY, None, f"The provider's {what.format(most)}: no more of it is read.")


@contextmanager
def counted_bytes(quota: quotas.GrowthQuota, owner: Hashable) -> Iterator[Hold]:
    """Provide what counts the bytes of an answer as it grows; while there is no room for more, its provider waits.

    It raises UpstreamError where too many are in progress.
    """

    async def hold(size: int) -> None:
        if size - growth.size < SLICE_BYTES:
            return
        try:
            await quota.grow(growth, size)
        except quotas.QuotaExceeded as error:
            text = f"{error.detail}: no more is read."
            raise UpstreamError(error.status_code, None, text, str(error.wait)) from error

    with quota.growing(owner) as growth:
        yield hold


async def uncounted(_size: int) -> None:
    """Count nothing: what is read is limited by other means."""


class Slices:
    """Lets other tasks of the event loop go on while one takes what is in memory already."""

    def __init__(self) -> None:
        self._steps = 0

    async def step(self, size: int = 0, *, count: int = 1) -> None:
        """Note a step of work, on so many bytes, or several; after some of them, other tasks go on."""
        self._steps += count + size * SLICE_STEPS // SLICE_BYTES
        if self._steps >= SLICE_STEPS:
            self._steps = 0
            await asyncio.sleep(0)


def encodings(headers: httpx2.Headers) -> list[str]:
    """Return the content encodings of a body."""
    given = headers.get_list("content-encoding", split_commas=True)
    return [name for one in given if (name := one.strip().lower()) not in ("", "identity")]


async def bounded_bytes(response: httpx2.Response, most: int, hold: Hold = uncounted) -> AsyncGenerator[bytes]:
    """Yield the body of a response, decompressed, in small pieces, which `hold` counts.

    Raises:
        AnswerTooLong: it has more bytes than that.
        DecodingError: it is not as its headers say, or compressed twice, so that what is unpacked may say nothing.
    """
    slices, size = Slices(), 0
    if len(encodings(response.headers)) > 1:
        raise httpx2.DecodingError("it has more than one content encoding")
    async for chunk in response.aiter_bytes():
        for start in range(0, len(chunk), SLICE_BYTES):
            piece = chunk[start : start + SLICE_BYTES]
            size += len(piece)
            if size > most:
                raise AnswerTooLong(most)
            await hold(size)
            yield piece
            await slices.step(len(piece))


async def bounded_body(response: httpx2.Response, most: int) -> bytes:
    """Return the body of a response; AnswerTooLong if it has more bytes than that."""
    return b"".join([piece async for piece in bounded_bytes(response, most)])


async def error_body(response: httpx2.Response) -> bytes:
    """Return the body of an error as far as it is read."""
    body = bytearray()
    with suppress(AnswerTooLong):
        async for piece in bounded_bytes(response, MAX_ERROR_BYTES):
            body += piece
    return bytes(body)


def is_event_stream(headers: httpx2.Headers) -> bool:
    """Return whether an answer consists of server-sent events."""
    return media_type(headers) == EVENTS


def media_type(headers: httpx2.Headers) -> str:
    """Return the type of an answer, without parameters."""
    given: str = headers.get("content-type", "")
    return given.partition(";")[0].strip().lower()


class EventData:
    """Reads server-sent events (WHATWG HTML, 9.2.6) of which only the data count, from pieces of a body.

    It takes a tenth of the time of httpx2's EventSource, which makes text of the body, lines, and an object of each.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of a line that has not ended
        self._data: list[bytes] = []  # the lines of the event that has not ended
        self._has_return = False  # whether the last piece ended with CR, which LF may follow

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of the events that end in a piece, where they have any."""
        if self._has_return:
            piece, self._has_return = b"\r" + piece, False
        if b"\r" in piece:
            if piece.endswith(b"\r"):
                piece, self._has_return = piece[:-1], True
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = piece.split(b"\n")
        self._line.append(first)
        if not others:
            return
        others[:0], self._line = [b"".join(self._line)], [others.pop()]
        for line in others:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                if data:
                    yield data.decode(errors="replace")

    def end(self) -> Iterator[str]:
        """Yield the data of the event that ends with the body, if it is whole."""
        yield from self.feed(b"\n" if self._has_return else b"")


async def text_events(response: httpx2.Response, most: int, hold: Hold = uncounted) -> AsyncGenerator[str]:
    """Yield what `text_batches` yields, one by one."""
    async with aclosing(text_batches(response, most, hold)) as batches:
        async for batch in batches:
            for data in batch:
                yield data


async def text_batches(response: httpx2.Response, most: int, hold: Hold = uncounted) -> AsyncGenerator[list[str]]:
    """Yield the data of the server-sent events of a response, up to ``[DONE]``; `hold` counts its bytes.

    Those that came at once are in one list, as far as they are one slice.

    Raises:
        AnswerTooLong: the response has more bytes than that, or an event more values than are read.
    """
    slices, events, batch = Slices(), EventData(), list[str]()
    async with aclosing(bounded_bytes(response, most, hold)) as body:
        async for piece in body:
            for data in events.feed(piece):
                is_long, is_end = len(data) > MAX_EVENT_VALUES, data == "[DONE]"
                if batch and (is_long or is_end or len(batch) == SLICE_STEPS):
                    yield batch
                    await slices.step(count=len(batch))
                    batch = []
                if is_end:
                    await _read_to_the_end(body)
                    return
                if is_long:
                    await asyncio.to_thread(_check_values, data)
                batch.append(data)
            if batch:
                yield batch
                await slices.step(count=len(batch))
                batch = []
        if rest := [*events.end()]:
            yield rest


async def _read_to_the_end(body: AsyncIterator[bytes]) -> None:
    """Read what follows an answer, if it comes at once, so that its connection can be kept."""
    with suppress(TimeoutError, AnswerTooLong, httpx2.HTTPError):
        async with asyncio.timeout(CLOSING_SECONDS):
            async for _ in body:
                pass


def _check_values(text: str) -> None:
    try:
        body_limits.check_values(text.encode(errors="replace"), MAX_EVENT_VALUES)
    except problems.Problem as error:
        raise AnswerTooLong(MAX_EVENT_VALUES, "answer has an event of more than {:,} values") from error


async def binary_batches(response: httpx2.Response, most: int, hold: Hold = uncounted) -> AsyncGenerator[list[Any]]:
    """Yield the messages of Amazon's event streams, each in a list, as objects with one key: the type of the event.

    `hold` counts their bytes.

    Raises:
        AnswerTooLong: the response has more bytes than that.
        UpstreamError: it is no such stream, or says that it failed.
    """
    slices, pieces, wanted = Slices(), bytearray(), _PRELUDE
    async with aclosing(bounded_bytes(response, most, hold)) as body:
        async for piece in body:
            pieces += piece
            while len(pieces) >= wanted:
                wanted = int.from_bytes(pieces[:4], "big")
                if wanted < _PRELUDE:
                    raise UpstreamError(BAD_GATEWAY, None, "The stream is not one of Amazon's event streams.")
                if len(pieces) >= wanted:
                    yield [_message(bytes(pieces[:wanted]))]
                    del pieces[:wanted]
                    wanted = _PRELUDE
                    await slices.step()


def _message(data: bytes) -> Any:
    buffer = event_buffer()()
    try:
        buffer.add_data(data)
        message = next(buffer)
        kind, payload = message.headers.get(":event-type"), jsontext.loads(message.payload)
    except Exception as error:  # botocore has a class of its own for each kind of damage
        raise UpstreamError(BAD_GATEWAY, None, "A message of the stream is damaged.") from error
    if message.headers.get(":message-type") != "event" or not isinstance(kind, str):
        failure = message.headers.get(":exception-type")
        raise UpstreamError(BAD_GATEWAY, None, f"The stream failed: {failure}.")
    return {kind: payload}


@cache
def event_buffer() -> Any:
    """Return what reads the messages of Amazon's event streams; MissingExtra where it is not installed."""
    try:
        from botocore.eventstream import EventStreamBuffer  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtra("bedrock", "The streams of Converse") from error
    return EventStreamBuffer


async def sliced(events: AsyncGenerator[T]) -> AsyncGenerator[list[T]]:
    """Yield the events of an upstream up to ``[DONE]``, each in a list, in slices."""
    slices = Slices()
    async with aclosing(events):
        async for event in events:
            if jsontext.is_done(event):
                return
            yield [event]
            await slices.step()


class Progress(Protocol):
    """How far an answer has come: whether it is whole, and whether nothing of it can follow."""

    @property
    def has_ended(self) -> bool: ...  # noqa: D102
    @property
    def is_over(self) -> bool: ...  # noqa: D102


async def until_end(events: AsyncGenerator[T], answer: Progress, seconds: float | None = None) -> AsyncGenerator[T]:
    """Yield the events of an answer, or pieces of it, whatever its connection does when it has ended.

    What may follow a whole answer, such as usage, has a limit of time, and so has the end of its body.

    Raises:
        UpstreamError: it takes more than so many seconds, however it comes.
    """
    now = asyncio.get_running_loop().time
    end = None if seconds is None else now() + seconds
    async with aclosing(events):
        while True:
            is_over = answer.is_over
            trailing = CLOSING_SECONDS if is_over else TRAILING_SECONDS
            has_ended = is_over or answer.has_ended
            limit = asyncio.timeout_at(now() + trailing if has_ended else end)
            try:
                event = await at_once_or_within(limit, anext(events))
            except StopAsyncIteration:
                return
            except Exception as error:
                if has_ended:
                    return
                if limit.expired():
                    raise _too_late(seconds) from error
                raise
            if is_over:
                return
            yield event


async def within(seconds: float, answer: Awaitable[T]) -> T:
    """Return an answer that is no stream; UpstreamError if it takes more than so many seconds, however it comes."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError as error:
        raise _too_late(seconds) from error


def _too_late(seconds: float | None) -> UpstreamError:
    text = f"The provider's answer took more than {seconds:g} seconds: no more of it is read."
    return UpstreamError(_GATEWAY_TIMEOUT, None, text)


def unanswered(name: str, error: httpx2.HTTPError) -> UpstreamError:
    """Return what tells that a provider could not be reached, or did not answer; for logs, its cause has the rest."""
    if isinstance(error, _UNREACHED):
        text = "could not be reached"
    elif isinstance(error, httpx2.TimeoutException):
        text = "did not answer in time"
    else:
        text = "broke off, or gave an answer that cannot be read"
    failure = UpstreamError(BAD_GATEWAY, None, f"{name} {text}.")
    failure.__cause__ = error
    return failure


def described(error: UpstreamError) -> str:
    """Return what a log has of a failure, on a line: also what the provider says of the server's key, and the cause."""
    said, cause = [error.message, _said(error.body)], error.__cause__
    if isinstance(cause, httpx2.HTTPError):
        said.append(f"({type(cause).__name__}: {cause})")
    return printing.printable(" ".join(printing.redact(" ".join(said)).split()))


def _said(body: Any) -> str:
    """What the body of a refusal says, in the forms of the providers: ``error.message``, ``error`` or ``message``."""
    found = body[0] if isinstance(body, list) and body else body
    for key in ("error", "message"):
        found = found.get(key, found) if isinstance(found, dict) else found
    return found[:_MAX_SAID] if isinstance(found, str) else ""


def refused(error: UpstreamError) -> problems.Problem:
    """Return the answer to a request whose upstream refused, or did not answer."""
    is_passed_on = error.status in _PASSED_ON or 500 <= error.status <= 599  # noqa: PLR2004 - failures of servers
    status = error.status if is_passed_on else BAD_GATEWAY
    given = error.body.get("error") if isinstance(error.body, dict) else None
    said = given.get("message") if isinstance(given, dict) else None
    is_told = isinstance(said, str) and error.status not in _ABOUT_KEYS
    message = f"{error.message} {printing.redact(str(said)[:_MAX_SAID])}" if is_told else error.message
    again = error.retry_after or ""
    headers = {"retry-after": again[:_MAX_PAUSE]} if again.isascii() and again.isprintable() and again else {}
    return problems.Problem(status, message, code="upstream_error", type="upstream_error", headers=headers)
