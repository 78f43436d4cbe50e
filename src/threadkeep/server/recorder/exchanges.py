"""A call as far as it has come: noted by the server's thread as it passes, read by the recorder's."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import getrandbits
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

import httpx2

from threadkeep.server.owners import Owner
from threadkeep.server.provider_answers import encodings, is_event_stream
from threadkeep.server.recorder.secrets import CallSecrets
from threadkeep.server.recorder.targets import Headers, RecordedRoute

# how an exchange ended: the answer was whole; the client left, the upstream broke off, or the server stopped before
End: TypeAlias = Literal["answered", "left", "broken", "stopped"]

REQUEST_END: Final = object()
# after which what has come of a call is read, or one that has ended is stored: not each of them wakes another thread,
# and the next request of a client goes on to its provider before that thread takes time from it …
READ_SECONDS: Final = 0.05
READ_BYTES: Final = 64 * 1024  # … or after so many bytes

WHOLE_BYTES: Final = 256 * 1024  # of a call that is stored in one piece
REFUSED: Final = 400  # the first status that says that there is no answer


class Unreadable(Exception):
    """A body that is not what its route should have; nothing can be stored of it.

    Its text is logged, so it says nothing of what was sent.
    """


class Overflow(Exception):
    """More came than may wait to be recorded."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What is known of a call before its body.

    Attributes:
        route: what is called.
        provider, base_url: the name of the upstream, and its URL.
        owner: who calls.
        headers: of the request, by their names in lower case; only few of them are ever stored.
        secrets: what is not stored of an answer that repeats it.
        at, since: when it began, and its WebSocket if it is of one.
    """

    route: RecordedRoute
    provider: str
    base_url: str
    owner: Owner
    headers: Mapping[str, str]
    secrets: CallSecrets
    id: str = field(default_factory=lambda: f"{getrandbits(128):032x}")  # no system call, which would give up the GIL
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    since: datetime | None = None
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The beginning of an answer."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a call."""

    how: End
    problem: str | None


class Waking:
    """Wakes the thread that reads notes: at once, or soon, so that not each event of a stream wakes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.unread = 0  # bytes that came since it woke
        self.news = asyncio.Event()
        self._loop, self._is_due, self._is_urgent = loop, False, False

    def wake(self, *, is_urgent: bool) -> None:
        """Wake it, from any thread."""
        if self._is_urgent or (self._is_due and not is_urgent):
            return
        self._is_due, self._is_urgent = True, is_urgent
        with suppress(RuntimeError):  # the recorder has ended
            if is_urgent:
                self._loop.call_soon_threadsafe(self._wake)
            else:
                self._loop.call_soon_threadsafe(self._loop.call_later, READ_SECONDS, self._wake)

    def _wake(self) -> None:
        self._is_due, self._is_urgent, self.unread = False, False, 0
        self.news.set()


class Exchange:
    """A call and its answer. `note_…` and `end` belong to the server's thread, the rest to the recorder's."""

    def __init__(
        self,
        facts: CallFacts,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[int], bool],
        max_bytes: int,
        *,
        has_ended: Callable[[Exchange], object] = lambda _: None,
        is_spooled: bool = False,
        is_read: bool = True,
    ) -> None:
        """`take` reserves or gives back bytes that wait; it returns False if there are too many.

        A body that is decompressed may have `max_bytes`. `has_ended` is called when its client has the answer.
        `is_spooled`: it is written to a spool as it passes; then, `settled` waits for that. Until it `is_read`, what is
        noted wakes nobody.
        """
        self._has_ended, self.is_spooled = has_ended, is_spooled
        self.is_behind = False  # whether its client has the answer before it is stored
        self.is_repeatable = False  # whether it may be stored again of which a part is stored
        self.done: Future[None] | None = None  # when it is in the spool
        self.timer: asyncio.TimerHandle | None = None  # until it is read, though it goes on
        self.on_settling: Callable[[], object] = lambda: None
        self.on_over: Callable[[], object] = lambda: None  # is called by `note_over`, from the recorder's thread
        self.facts, self._take, self._max_bytes = facts, take, max_bytes
        self.is_ended = False  # as its client sees it
        self.held = 0  # bytes that wait or are being recorded
        self.decompressed = 0  # bytes that are being recorded beside those
        self._asked = 0  # bytes of the request that have been read
        self._passed = 0  # bytes of a stream that have been read, but may not be written yet
        self._notes: deque[tuple[Any, float]] = deque()
        self.is_read, self._is_dropped = is_read, False
        self._waking = Waking(loop)
        self._lock = Lock()  # of what is held
        self._last_at = facts.started
        self._ending: Ended | None = None

    # The server's thread

    def note_request(self, chunk: bytes) -> None:
        """Note a part of the request's body."""
        self._note(chunk, len(chunk))

    def note_request_end(self) -> None:
        """Note that the request is whole."""
        self._note(REQUEST_END)

    def note_answer(self, status: int, headers: Headers) -> None:
        """Note the beginning of the answer."""
        self._note(AnswerHead(status, headers))

    def note_chunk(self, chunk: bytes) -> None:
        """Note a part of the answer's body."""
        self._note(chunk, len(chunk))

    def end(self, how: End, problem: str | None = None) -> None:
        """Note how it ended; the first word counts."""
        if not self.is_ended:
            self.is_ended = True
            self.on_over = lambda: None  # which has who passes it on, who has this
            self._note(Ended(how, problem), is_urgent=self.is_spooled)
            self._has_ended(self)

    async def settled(self) -> None:
        """Wait until what was noted is in the spool, if there is one, or cannot be."""
        if self.done is not None:
            written: Future[None] = Future()
            self._note(written, is_urgent=True)
            futures = [asyncio.wrap_future(one) for one in (written, self.done)]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)

    def _note(self, note: object, size: int = 0, *, is_urgent: bool = False) -> None:
        with self._lock:
            if self._is_dropped:
                return
            if not self._take(size):
                self._is_dropped = True
                note, size, is_urgent = Overflow(), 0, True
            self.held += size
            self._waking.unread += size
            self._notes.append((note, time.monotonic()))
        if self.is_read:
            self._waking.wake(is_urgent=is_urgent or self._waking.unread >= READ_BYTES)

    # The recorder's thread

    @property
    def whole_answer(self) -> tuple[AnswerHead, bytes] | None:
        """An answer that is all here, is no stream, and was neither encoded nor refused; None for any other.

        It stays to be read.
        """
        if self.held > WHOLE_BYTES or not self._notes:
            return None
        head, *parts, ended = [note for note, _ in self._notes] if len(self._notes) > 1 else (None, None)
        if not isinstance(head, AnswerHead) or not isinstance(ended, Ended):
            return None
        headers = httpx2.Headers(list(head.headers))
        if ended.how != "answered" or head.status >= REFUSED or encodings(headers) or is_event_stream(headers):
            return None
        self._last_at = self._notes[-1][1]
        return head, b"".join(parts)

    def drop(self) -> None:
        """Give back the bytes that are held, and take no more: the exchange was recorded, or cannot be."""
        with self._lock:
            self._is_dropped = True
            self._notes.clear()
            self._take(-self.held - self.decompressed)
            self.held = self.decompressed = 0

    def keep(self, waiting: int) -> None:
        """Give back the bytes of a stream that have been read, except so many, which wait to be written."""
        with self._lock:
            done = min(self.held, max(0, self._passed - waiting))
            self._passed -= done
            self.held -= done
            self._take(-done)

    def release_request(self) -> None:
        """Give back the bytes of the request, once it is stored."""
        with self._lock:
            if not self._is_dropped:
                self.held -= self._asked
                self._take(-self._asked - self.decompressed)
                self._asked = self.decompressed = 0

    def note_over(self) -> None:
        """Note that the answer is whole: whatever its connection does now, nothing more of it is passed on."""
        self._ending = self._ending or Ended("answered", None)
        self.on_over()

    async def take_note(self) -> tuple[Any, float]:
        """Return the next note, and when it was made."""
        while not self._notes:
            self._waking.news.clear()
            if not self._notes:
                await self._waking.news.wait()
        return self._notes.popleft()

    async def _next(self) -> Any:
        note, at = await self.take_note()
        while isinstance(note, Future):
            self.on_settling()
            note.set_result(None)
            note, at = await self.take_note()
        self._last_at = at
        if isinstance(note, Overflow):
            raise note
        if isinstance(note, Ended):
            self._ending = note
        return note

    async def request_body(self) -> bytes:
        """Return the body of the request, decompressed.

        Raises:
            Unreadable: it did not come, or not as its headers say.
            Overflow: it is too large when it is decompressed.
        """
        encoding = self.facts.headers.get("content-encoding", "identity")
        if encoding == "identity":
            return b"".join([part async for part in self._request()])
        headers = httpx2.Headers({"content-encoding": encoding})
        try:
            return b"".join([part async for part in self._decompressed(headers, self._request())])
        except httpx2.DecodingError as error:
            raise Unreadable("the request cannot be decompressed") from error

    async def _request(self) -> AsyncIterator[bytes]:
        while (note := await self._next()) is not REQUEST_END:
            if not isinstance(note, bytes):  # an answer, or the end: the request is of no use to the upstream
                raise Unreadable("the request broke off")
            self._asked += len(note)
            yield note

    async def answer(self) -> httpx2.Response | None:
        """Return the answer when it has begun; its body comes as it passes, decompressed. None if there is no answer.

        Reading the body raises DecodingError if it is not as its headers say, and Overflow if it is too large.
        """
        note = await self._next()
        if not isinstance(note, AnswerHead):
            return None
        headers, request = httpx2.Headers(list(note.headers)), httpx2.Request("POST", "http://recorder")
        is_stream = is_event_stream(headers) or self.is_spooled
        body = _Body(self._decompressed(headers.copy(), self._chunks(is_stream=is_stream), is_stream=is_stream))
        headers.pop("content-encoding", None)
        return httpx2.Response(note.status, headers=headers, stream=body, request=request)

    async def _chunks(self, *, is_stream: bool) -> AsyncIterator[bytes]:
        while not isinstance(note := await self._next(), Ended):
            yield note
            if is_stream:
                self._passed += len(note)

    async def _decompressed(
        self, headers: httpx2.Headers, chunks: AsyncIterator[bytes], *, is_stream: bool = False
    ) -> AsyncIterator[bytes]:
        """A body as its headers say it is encoded, in parts of limited size; of a stream, no part waits.

        How long a stream may be is limited where it is read.
        """
        if len(given := encodings(headers)) > 1:
            raise httpx2.DecodingError("it has more than one content encoding")
        encoding, size = {"content-encoding": "".join(given)}, 0
        async for part in httpx2.Response(200, headers=encoding, stream=_Body(chunks)).aiter_bytes():
            if given:
                size += len(part)
                if not is_stream and (size > self._max_bytes or not self._take(len(part))):
                    raise Overflow
                self.decompressed += 0 if is_stream else len(part)
            yield part

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its end."""
        return self._ending is not None and self._ending.how == "answered"

    @property
    def ending(self) -> tuple[End, str | None]:
        """How it ended, and what the problem was."""
        return ("broken", None) if self._ending is None else (self._ending.how, self._ending.problem)

    @property
    def milliseconds(self) -> float:
        """How long after its beginning came what was read last."""
        return (self._last_at - self.facts.started) * 1000


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it passes."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks
