"""Writes calls to a spool as they pass, and reads them again to be stored.

No keys are written: neither headers of requests with them, nor cookies, nor queries; where an answer or the tools of a
request repeat one, ``***`` is written.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import aclosing, closing, suppress
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import httpx2

from threadkeep.domain.jsontext import dumps, is_done, loads
from threadkeep.errors import CannotParse
from threadkeep.formats import FormatName, get_format
from threadkeep.server.origins import kept_headers
from threadkeep.server.owners import Owner
from threadkeep.server.provider_answers import AnswerTooLong, EventData, bounded_bytes, is_event_stream, until_end
from threadkeep.server.recorder.exchanges import REQUEST_END, AnswerHead, CallFacts, Ended, Exchange, Unreadable
from threadkeep.server.recorder.secrets import CallSecrets
from threadkeep.server.recorder.spool import Damaged, Spool, SpooledCall, SpoolFull
from threadkeep.server.recorder.storing import kept_answer_headers, without_secrets
from threadkeep.server.recorder.targets import RecordedRoute

_FRAME_BYTES: Final = 64 * 1024
FRAME_SECONDS: Final = 0.5  # after which what was noted is written, however little it is
EVENT_BYTES: Final = 256 * 1024  # of an event that is kept while it is not whole
# what the last events of streams have: a reason why nothing more comes, or a type
_LAST: Final = re.compile(
    r'"(?:finish_reason|finishReason|stop_reason)"\s*:\s*"|"message_stop"|"response\.(?:completed|incomplete|failed)"'
    r'|"interaction\.(?:completed|cancelled)"|"error"'
)
_LAST_LENGTH: Final = 32
_REQUEST, _REQUEST_END, _ANSWER, _CHUNK, _END = range(5)  # kinds of notes
_BEARERS: Final = (b"authorization", b"headers", b"api_key", b"access_token")  # what a request has that has such keys


async def spool_exchange(spool: Spool, call: SpooledCall, exchange: Exchange, most: int) -> None:
    """Write a call to the spool as it passes; of an answer, `most` bytes.

    Raises:
        Unreadable: the request is not what its route should have; nothing was written.
        Overflow, SpoolFull: there is no room.
    """
    with closing(_Writer(spool, call, exchange)) as writer:
        exchange.on_settling = writer.settle
        body = _request_without_secrets(await exchange.request_body())
        for start in range(0, len(body), _FRAME_BYTES):
            writer.note(_REQUEST, body[start : start + _FRAME_BYTES])
        writer.note(_REQUEST_END)
        exchange.release_request()
        problem: str | None = None
        try:
            answer = await exchange.answer()
            if answer is not None:
                writer.note(_ANSWER, dumps([answer.status_code, kept_answer_headers(answer.headers)]))
                end = _StreamEnd(exchange.facts.route.format, answer.headers)
                async with aclosing(until_end(bounded_bytes(answer, most), end)) as pieces:
                    async for piece in pieces:
                        end.feed(piece)
                        writer.note_chunk(piece)
                        exchange.keep(0)
                if end.has_ended:
                    exchange.note_over()
        except AnswerTooLong as error:
            problem = error.message
        except httpx2.DecodingError:
            problem = "The answer cannot be decompressed."
        how, why = exchange.ending if problem is None else ("broken", problem)
        writer.end(how, why)


class _StreamEnd:
    """Notices the end of a stream as it passes: only events that may be its last ones are read.

    A longer one than EVENT_BYTES is not kept: it ends the stream if it looks so, and nothing follows.
    """

    def __init__(self, format_: FormatName, headers: httpx2.Headers) -> None:
        self._is_stream, self._assembler = is_event_stream(headers), get_format(format_).assembler()
        self._events, self._size, self._rest, self._is_long_last = EventData(), 0, "", False

    @property
    def has_ended(self) -> bool:
        return self._assembler.is_ended or self._assembler.error is not None or self._is_long_last

    @property
    def is_over(self) -> bool:
        return self._assembler.is_over

    def feed(self, piece: bytes) -> None:
        if not self._is_stream:
            return
        self._size += len(piece)
        for data in self._events.feed(piece):
            self._size, self._is_long_last = 0, False
            if _LAST.search(data) or is_done(data):
                with suppress(CannotParse):
                    self._assembler.feed(data)
        if self._size > EVENT_BYTES:
            self._events = EventData()
            text = self._rest + piece.decode("latin-1")
            self._rest, self._is_long_last = text[-_LAST_LENGTH:], self._is_long_last or bool(_LAST.search(text))


def _request_without_secrets(body: bytes) -> bytes:
    if not any(word in body for word in _BEARERS):
        return body
    try:
        value = loads(body)
    except ValueError as error:
        raise Unreadable("the request is not JSON") from error
    return dumps(without_secrets(value)) if isinstance(value, dict) else body


class _Writer:
    """Collects what is noted of a call to frames."""

    def __init__(self, spool: Spool, call: SpooledCall, exchange: Exchange) -> None:
        self._spool, self._call, self._exchange = spool, call, exchange
        self._secrets = exchange.facts.secrets
        self._notes: list[tuple[int, int, int]] = []  # kind, milliseconds, and size
        self._parts: list[bytes] = []
        self._size = 0
        self._held = b""  # the end of what was answered, in which a secret may begin
        self._timer: asyncio.TimerHandle | None = None

    def note(self, kind: int, part: bytes = b"") -> None:
        self._notes.append((kind, round(self._exchange.milliseconds), len(part)))
        self._parts.append(part)
        self._size += len(part) + 1
        if self._size >= _FRAME_BYTES:
            self._write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FRAME_SECONDS, self._write_rest)

    def _write_rest(self) -> None:
        """Write what was noted, so that a kill finds it written; where there is no room, the next frame says so."""
        with suppress(SpoolFull):
            self._write()

    def close(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def note_chunk(self, piece: bytes) -> None:
        """Note a part of an answer, without secrets; one that is in two parts is recognized."""
        text = self._secrets.hidden_bytes(self._held + piece)
        end = max(0, len(text) - self._secrets.longest + 1) if self._secrets.longest else len(text)
        self._held = text[end:]
        if end:
            self.note(_CHUNK, text[:end])

    def settle(self) -> None:
        """Write what was noted."""
        if self._held:
            held, self._held = self._held, b""
            self.note(_CHUNK, held)
        if self._notes:
            self._write()

    def end(self, how: str, problem: str | None) -> None:
        """Note how the call ended, and write what is left."""
        if self._held:
            self.note(_CHUNK, self._held)
        said = None if problem is None else self._secrets.hidden(problem)
        self.note(_END, dumps([how, said]))
        self._write(is_last=True)

    def _write(self, *, is_last: bool = False) -> None:
        self.close()
        self._timer = None
        head: dict[str, Any] = {"notes": self._notes}
        if not self._call.frames:
            head["facts"] = _facts(self._exchange.facts)
        self._spool.append(self._call, b"\n".join((dumps(head), b"".join(self._parts))), is_last=is_last)
        self._notes, self._parts, self._size = [], [], 0


def _facts(facts: CallFacts) -> dict[str, Any]:
    owner = facts.owner
    return {
        "route": list(facts.route), "provider": facts.provider, "base_url": facts.base_url, "id": facts.id,
        "owner": [owner.user_id, owner.tenant, owner.key, owner.names_user], "at": facts.at.isoformat(),
        "since": (facts.since or facts.at).isoformat(),
        "headers": kept_headers(facts.headers),
    }  # fmt: skip


def _facts_of(value: Any) -> CallFacts:
    user_id, tenant, key, names_user = value["owner"]
    owner = Owner(user_id, tenant, key=key, names_user=names_user)
    return CallFacts(
        RecordedRoute(*value["route"]), value["provider"], value["base_url"], owner, value["headers"], CallSecrets({}),
        id=value["id"], at=datetime.fromisoformat(value["at"]), since=datetime.fromisoformat(value["since"]),
        started=0.0,
    )  # fmt: skip


class SpooledExchange(Exchange):
    """A call that is read from the spool."""

    def __init__(self, call: SpooledCall, max_bytes: int) -> None:
        """Read the first frame.

        Raises:
            Unreadable: it is damaged.
        """
        self._frames = call.read()
        head, notes = self._frame()
        super().__init__(_facts_of(head["facts"]), asyncio.get_running_loop(), lambda _: True, max_bytes)
        self._notes.extend(notes)
        self.is_repeatable = True

    def _frame(self) -> tuple[Any, list[tuple[Any, float]]]:
        try:
            head, _, text = next(self._frames).partition(b"\n")
            value = loads(head)
            return value, list(_notes(value["notes"], text))
        except (Damaged, OSError, ValueError, KeyError) as error:
            raise Unreadable(str(error)) from error

    async def take_note(self) -> tuple[Any, float]:
        """Return the next note; a call that was not written whole ends as if the server had stopped."""
        while not self._notes:
            try:
                self._notes.extend(self._frame()[1])
            except StopIteration:
                return Ended("stopped", None), self._last_at
        return self._notes.popleft()


def _notes(notes: Any, text: bytes) -> Iterator[tuple[Any, float]]:
    ends = [0]
    for _, _, size in notes:
        ends.append(ends[-1] + size)
    for (kind, milliseconds, _), (start, end) in zip(notes, pairwise(ends), strict=True):
        part = text[start:end]
        note: Any = part
        if kind == _REQUEST_END:
            note = REQUEST_END
        elif kind == _ANSWER:
            status, headers = loads(part)
            note = AnswerHead(status, [(name.encode(), value.encode()) for name, value in headers.items()])
        elif kind == _END:
            note = Ended(*loads(part))
        yield note, milliseconds / 1000
