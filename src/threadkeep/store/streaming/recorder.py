"""Recorders, which store a streamed response while it arrives.

Streams that have come whole before any of them is stored: stored in one transaction, as a plain response is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sqlalchemy import Connection

from threadkeep.db.queries.responses import open_response_of, parts_after, stream_of
from threadkeep.domain import formats, jsontext
from threadkeep.domain.response import Response
from threadkeep.errors import Conflict
from threadkeep.store.streaming import lifecycle
from threadkeep.store.streaming.writer import StreamWriter, prepared
from threadkeep.store.usage.ledger import CallInfo
from threadkeep.store.work import positions, refs, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.states import new_states
from threadkeep.store.writing import appending, attempts, responses

if TYPE_CHECKING:
    from threadkeep.formats.shared.streams import StreamAssembler

LOOK_PARTS: Final = 64  # that one look at a response in progress reads, for who may read only so much …
LOOK_LENGTH: Final = 256 * 1024  # … and so many characters, if the first part is not longer


class RecorderAttributes:
    """The attributes of a response that is being recorded."""

    writer: StreamWriter

    @property
    def response(self) -> Response | None:
        """The stored response; None before its end."""
        return self.writer.response

    @property
    def partial(self) -> Response:
        """The response as far as it has arrived, with status in_progress until its end."""
        response = self.writer.response
        return self.writer.assembler.partial if response is None else response

    @property
    def replayed(self) -> bool:
        """Whether the response was already stored under the same idempotency key; do not call the provider then."""
        return self.response is not None and self.response.replayed

    @property
    def cancel_requested(self) -> bool:
        """Whether `cancel_response` has asked to stop, as of the latest batch of events or renewal of the lease.

        Stop feeding then: the response ends as `cancelled`, with what has arrived.
        """
        return self.writer.cancel_requested

    @property
    def number(self) -> int | None:
        """The number of the response in the conversation; None before it begins."""
        return self.writer.number

    @property
    def branch(self) -> int | None:
        """The branch that the response is stored on; None before it begins."""
        return self.writer.branch

    @property
    def has_output(self) -> bool:
        """Whether any part of the output has arrived: text, reasoning or a call."""
        return self.writer.assembler.has_output

    def set_times(self, *, latency_ms: float | None = None, first_token_ms: float | None = None) -> None:
        """Say how long the call took, instead of what is measured here: for events that are fed later than they came.

        Does not query the database.

        Raises:
            InvalidOption: a time is not a number of milliseconds.
        """
        self.writer.set_times({"latency_ms": latency_ms, "first_token_ms": first_token_ms})

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Write these states with the response, instead of those given before. Does not query the database.

        Raises:
            InvalidOption, TooLarge: a state cannot be stored.
        """
        self.writer.states = new_states(states)


class Recorder(RecorderAttributes):
    """Stores a streamed response while it arrives: a context manager, from `Conversation.stream_response`.

    The response ends with the `with` statement: with the status its events report, as `cancelled` if its generator was
    closed, or as `incomplete`. `feed` stores the events; the items are written at the end, in one transaction.
    """

    def __init__(self, writer: StreamWriter) -> None:
        self.writer = writer
        self._lock = Lock()
        self.heartbeat: lifecycle.Heartbeat | None = None

    def __enter__(self) -> Self:
        self.writer.start()
        self._renew_lease()
        return self

    def _renew_lease(self) -> None:
        """Renew it from now on, if others see it."""
        if self.heartbeat is None and self.writer.is_renewable:
            self.heartbeat = lifecycle.Heartbeat(self, Recorder._renew, self.writer.renewal)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.writer.is_inherited:  # the process from which it was forked continues recording
            return
        try:
            self._end(error)
        except Exception as failure:
            if error is None:
                raise
            note_failure(error, failure)
        finally:
            self.writer.is_left = True

    def feed(self, event: Any) -> None:
        """Take the provider's next event: a dict, JSON text, a line of server-sent events, or an SDK object.

        Events after the end of the response are ignored.

        Raises:
            CannotParse: it is not an event.
            InvalidOption: the `with` statement was not entered, or has ended.
            LeaseLost: another writer has ended the response.
            NotFound: the conversation was deleted.
        """
        self.writer.check_owner()
        with self._lock:
            if self.writer.take(event):
                self.writer.flush()
                self._renew_lease()

    def cancel(self) -> None:
        """End the response as `cancelled`; what has arrived is kept.

        Raises:
            LeaseLost: another writer has ended the response.
        """
        self.writer.check_owner()
        self._end(is_cancelled=True)

    def _end(self, error: BaseException | None = None, *, is_cancelled: bool = False) -> None:
        try:
            with self._lock:
                self.writer.finish(error, is_cancelled=is_cancelled)
        finally:
            if self.heartbeat is not None:
                self.heartbeat.end()

    def _renew(self) -> float | None:
        with self._lock:
            return self.writer.renew()


def note_failure(error: BaseException, failure: Exception) -> None:
    """Add a note to the error that ended the recording, saying why the response could not be stored."""
    error.add_note(f"The streamed response could not be stored: {failure}")


# ---------------------------------------------------------------------------------------------------------------------
# What has come of a response that is being streamed, read from what its recorder has stored: from any process


class _News(NamedTuple):
    """The format of a response in progress, and the parts that were not read before."""

    format: str
    parts: Sequence[Any]


class PartialReader:
    """Reads a response in progress again and again: at each look, only the parts that have come since.

    Attributes:
        size: how many bytes of JSON it has in memory, at most.
    """

    def __init__(self, handle: Handle, number: int, most: int | None = None) -> None:
        """`most`: bytes of a response after which no more of it is read, nor kept; then also each look is short."""
        self._handle, self._number, self._most = handle, number, most
        self._length, self.size, self._is_over = 0, 0, False
        self._assembler: StreamAssembler | None = None
        self._part = 0  # the last one that was read; the first one has no events
        self._rest: list[str] = []  # the beginning of an event whose end is in a later part
        self._is_readable = True
        self._partial: Response | None = None

    def read(self) -> Response | None:
        """Return what is stored so far; None if the response has ended, or there is none with that number."""
        if self._is_over:
            self.end()
            return None
        news = self._handle.transactions.read(self._news)
        if news is None:
            return None
        if self._assembler is None:
            self._assembler = formats.get_format(news.format).assembler()
        if news.parts or self._partial is None:
            self._take(self._assembler, news.parts)
            self._partial = self._assembler.partial
            self._measure(self._partial, sum(len(part.content) for part in news.parts))
        return self._partial

    def _measure(self, partial: Response, more: int) -> None:
        """Note how large a response is: no larger than its events, of which there may be much more."""
        self._length += more
        self.size = self._length
        if self._most is not None and self.size > self._most:
            self.size = sum(len(jsontext.dumps_any(item.to_object())) for item in partial.output)
            self.size += sum(map(len, self._rest))
            self._is_over = self.size > self._most

    def end(self) -> None:
        """Read no more, and keep nothing of what was read."""
        self._is_over, self._assembler, self._partial, self._rest = True, None, None, []

    def _news(self, connection: Connection) -> _News | None:
        ref = self._handle.ref
        refs.get_row(connection, ref)
        row = connection.execute(stream_of(), ref.parameters(number=self._number)).one_or_none()
        if row is None or row.open_branch is None:
            return None
        parameters = ref.parameters(number=self._number, part=self._part)
        if self._most is None:
            return _News(row.format, connection.execute(parts_after(), parameters).all())
        rows, length = list[Any](), 0
        for part in connection.execute(parts_after().limit(LOOK_PARTS), parameters):
            length += len(part.content)
            if rows and length > LOOK_LENGTH:
                break
            rows.append(part)
        return _News(row.format, rows)

    def _take(self, assembler: StreamAssembler, parts: Sequence[Any]) -> None:
        """Feed the events of parts; what cannot be understood ends what can be shown."""
        *lines, rest = "".join(part.content for part in parts).split("\n")
        if lines:
            lines[0], self._rest = "".join([*self._rest, lines[0]]), []
        self._rest.append(rest)
        if parts:
            self._part = parts[-1].part
        if self._is_readable:
            self._is_readable = False
            with suppress(Exception):
                for line in lines:
                    assembler.feed(jsontext.loads(line))
                self._is_readable = True


def partial_response(handle: Handle, number: int | None) -> Response | None:
    """What has come of a response in progress; see `Conversation.partial_response`."""
    ref, wanted = handle.ref, None if number is None else validation.whole_number("number", number)

    def find(connection: Connection) -> int | None:
        refs.get_row(connection, ref)
        found: int | None = connection.execute(open_response_of(), ref.parameters(branch=ref.branch)).scalar()
        return found

    wanted = handle.transactions.read(find) if wanted is None else wanted
    return None if wanted is None else PartialReader(handle, wanted).read()


class WholeStreamWriter(StreamWriter):
    """A response that is stored at its end alone: no other writer ever finds it in progress.

    Its idempotency key is the one that `stream_response` gives a stream: what either has stored under it is replayed.
    """

    is_cut = False  # whether only a part of it is stored, under its key, because another process was killed

    @classmethod
    def of(
        cls,
        handle: Handle,
        format: str,
        *,
        expected_head: int,
        idempotency_key: str,
        provider: str,
        base_url: str,
        headers: Mapping[str, str],
    ) -> WholeStreamWriter:
        """Return the writer of a response that goes on a branch of its own where `expected_head` is not the head."""
        options: positions.AppendOptions = {
            "idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": "branch",
        }  # fmt: skip
        call: CallInfo = {"provider": provider, "base_url": base_url, "headers": headers}
        return prepared(cls, handle, format, None, options, call, refs.LEASE_SECONDS)

    def start(self) -> None:
        """Take over what this process knows alone: the row of the response is inserted at its end."""
        self._process, self.is_entered = os.getpid(), True

    def take_value(self, event: Any) -> Any:
        """Take an event; no batch is ever due. Errors as for `StreamWriter.take`."""
        value = super().take_value(event)
        self._events.clear()  # the assembler has them
        self._size, self._written = 0, self._taken
        return value

    @property
    def is_renewable(self) -> bool:
        """Whether there is a lease to be renewed: never."""
        return False

    def _get_number(self) -> int:
        return -1 if self.number is None else self.number

    def finish(self, error: BaseException | None = None, *, is_cancelled: bool = False, is_asked: bool = True) -> None:
        """Store the response that its events make, in one transaction, or find it stored under its key.

        Where an `error` says that not all of them have been fed, nothing is stored: that is for the caller to repeat.

        Raises:
            ResponseInProgress: another recorder has begun it under the same key, and its lease is not over.
            NotFound: the conversation is gone.
        """
        if self.response is not None or error is not None:
            return
        handle, ref, key = self.handle, self.handle.ref, self._start.key
        ending = self._ending(None, is_cancelled=is_cancelled, is_asked=is_asked)

        def store(connection: Connection) -> attempts.ResponseResult | Conflict:
            ending.fit(connection)
            if not lifecycle.body_rows(connection, ending.new.body, datetime.now(UTC)):
                ending.new = replace(ending.new, body=None)
            result = responses.store_response(connection, ref, ending.new, self._start.request, self._start.check)
            lifecycle.refuse_second(connection, ref, key)
            return result

        result = appending.write_items(handle.transactions, ref.scope, ending.new.records, store, is_repeatable=True)
        if isinstance(result, Conflict):
            raise result
        self.number, self.branch, response = result.number, result.branch, ending.response
        if result.is_replayed:
            response = self._read_stored(result) or response
            self.is_cut = response.status == positions.INCOMPLETE != ending.response.status
        elif result.branch == ref.branch:
            records = ending.new.records
            handle.cache.append(records, result.first, result.revision, turn=result.first, seen=result.input_to)
        self._end(response)
        handle.after_response(ending.new.attempt, ending.new.columns, is_new=not result.is_replayed, is_stream=True)

    def _read_stored(self, result: attempts.ResponseResult) -> Response | None:
        outcome = {"number": result.number, "branch": result.branch}
        ref, format_ = self.handle.ref, self._start.format
        return self.handle.transactions.read(
            lambda connection: lifecycle.stored_stream(connection, ref, format_, outcome)
        ).stored
