"""Writers, which store a streamed response while it arrives, batch by batch, for the recorders of both faces."""

from __future__ import annotations

import logging
import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import Connection

from threadkeep import errors
from threadkeep.domain import formats, items, rendering
from threadkeep.domain.jsontext import event_text, is_done, mismatch
from threadkeep.domain.response import Response, asked_of
from threadkeep.domain.stored import StoredAt
from threadkeep.store.reading import history, responses
from threadkeep.store.reading.items import new_items
from threadkeep.store.streaming import lifecycle
from threadkeep.store.streaming.endings import LEAVING, UNSTORED, Ending, StreamCall, keepable_event
from threadkeep.store.streaming.lifecycle import StreamPart, StreamStart
from threadkeep.store.usage.ledger import CallInfo, check_call, json_text, milliseconds
from threadkeep.store.work import caches, connections
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.positions import CANCELLED, AppendOptions, head_check, idempotency_key
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.work.units import OwnTransactions, UnitTransactions
from threadkeep.store.writing import attempts
from threadkeep.store.writing.responses import request_info

if TYPE_CHECKING:
    from threadkeep.formats.shared.streams import StreamAssembler

RENEWAL_SECONDS: Final = 2.0  # after which a lease is renewed, even if nothing is fed …
RENEWAL_SHARE: Final = 0.4  # … or after this share of a short lease
MAX_LEASE: Final = 86_400
BATCH_BYTES: Final = 4 * 1024  # a batch is written when this much has arrived …
BATCH_SECONDS: Final = 0.5  # … or when the previous batch is this old
PART_LENGTH: Final = 128 * 1024  # characters; every server accepts a row of that length
LOG: Final = logging.getLogger("threadkeep.streams")
W = TypeVar("W", bound="StreamWriter")


def stream_response(
    handle: Handle,
    format: str,
    rendered: rendering.Rendered | None,
    options: AppendOptions,
    call: CallInfo,
    lease: object,
) -> StreamWriter:
    """Prepare to record a streamed response; see `Conversation.stream_response`. Nothing is written yet."""
    writer = prepared(StreamWriter, handle, format, rendered, options, call, lease)
    if isinstance(handle.transactions, OwnTransactions):
        handle.transactions.before_commit(writer.begin)
    return writer


def prepared(
    kind: type[W],
    handle: Handle,
    format: str,
    rendered: rendering.Rendered | None,
    options: AppendOptions,
    call: CallInfo,
    lease: object,
) -> W:
    """Return a writer of some kind, for arguments that are checked here."""
    handle.transactions.check_open()
    assembler = formats.get_format(format).assembler(call.get("headers"))
    check_call(format, call)
    check = head_check(options)
    settings, request = handle.cache.conversation.settings, request_info(handle, format, rendered)
    model, provider = settings.get("model"), call.get("provider")
    asked = asked_of(settings, request.view, provider)
    start = StreamStart(
        format=format,
        token=secrets.token_bytes(16),
        lease=lease_seconds(lease),
        request=request,
        notes={
            "model": model,
            "provider": provider,
            "maker": asked.text,
            "key": options.get("idempotency_key"),
            "base_url": call.get("base_url"),
            "service_tier": call.get("service_tier"),
        },
        key=idempotency_key(options, "stream_response", {"format": format}),  # whose content is not known in advance
        check=check._replace(states=()),
        states=check.states,
        first_token_ms=milliseconds(call, "first_token_ms"),
    )
    return kind(handle, assembler, start, StreamCall(call, model, handle.resources.prices, asked))


def lease_seconds(lease: object) -> float:
    """Return how long a recorder may be silent before another writer may end its response."""
    seconds = lease.total_seconds() if isinstance(lease, timedelta) else lease
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_LEASE:
        raise mismatch(errors.InvalidOption, f"a number of seconds above 0 and up to {MAX_LEASE:,}", lease, "lease")
    return float(seconds)


class StreamWriter:
    """A response that is being streamed, from its first event to its end.

    It holds no lock: callers must not call its methods concurrently, except for `take` during a `flush`. `take` does
    not access the database; `start`, `flush` and `finish` run at most one transaction of their own.
    """

    is_cut = False  # whether only a part of a whole stream is stored

    def __init__(self, handle: Handle, assembler: StreamAssembler, start: StreamStart, call: StreamCall) -> None:
        self.handle, self.assembler, self._start, self._call = handle, assembler, start, call
        self.number: int | None = None  # of the response; None before `begin`
        self.branch: int | None = None  # on which it is stored
        self.created_at: datetime | None = None  # when it began
        self.response: Response | None = None  # as it was stored; None before its end
        self.cancel_requested = False
        self.is_entered = self.is_left = False  # whether the `with` statement has begun, and ended
        self.states = start.states  # that are written at its end
        self.undo: Callable[[Connection], None] | None = None  # what else is done where it ends with an error
        self.unstored: Ending | None = None  # its end, while the database does not take it
        self._undo_at_end: Callable[[Connection], None] | None = None
        self._stored: tuple[Ending, attempts.ResponseResult] | None = None  # its end, and where that was stored
        conversation = handle.cache.conversation
        # what it was asked with …
        self._options = caches.Config(conversation.settings, conversation.tools, conversation.format_cache)
        self._are_known = start.request.hashes == conversation.hashes  # … unless it was asked with others
        self.has_written: Callable[[int], object] | None = None  # is called after each batch, with what waits
        self._interval = min(BATCH_SECONDS, start.lease / 3)
        self.renewal = min(RENEWAL_SECONDS, start.lease * RENEWAL_SHARE)
        self._events: deque[bytes] = deque()  # each is taken out once, also while others come
        self._unwritten: list[StreamPart] = []
        self._size = self._parts = self._process = 0
        self._taken = self._written = 0  # bytes of events; each is counted by one thread alone
        self._started_at = self._written_at = monotonic()
        self._first_token_ms: int | None = None  # after which the first part of the output came

    def start(self) -> None:
        """Begin the response, if that was not done at the end of the unit of work that this was made in."""
        if self.is_entered:
            raise _used_before("The recorder was entered before.")
        self._leave_unit()
        self.begin()
        self.is_entered, self._started_at = True, monotonic()

    def begin(self) -> None:
        """Insert the row of the response; if its key was used before, take the response that was stored then."""
        if self.number is not None:
            return
        ref, start, attempts, place = self.handle.ref, self._start, count(), self.handle.transactions
        new = place.unwritten if isinstance(place, OwnTransactions) else None
        stream = None if new is None else lifecycle.start_with(new, ref, start)
        if stream is None:
            stream = place.write(
                lambda connection: lifecycle.start_stream(connection, ref, start, is_repeated=next(attempts) > 0),
                is_repeatable=True,
                is_short=True,
            )
        self.number, self.branch, self.created_at = stream.number, stream.branch, stream.created_at
        self._process = os.getpid()
        self._written_at = float("-inf")
        if stream.stored is not None:
            self._end(stream.stored)
        if isinstance(place, OwnTransactions):
            place.traces.append(self.has_started)

    def has_started(self, connection: Connection) -> bool:
        """Whether a transaction that is not known to be committed was, and began the response."""
        if self.number is None or self.response is not None:
            return False
        now = datetime.now(UTC)
        return lifecycle.find_own_stream(connection, self.handle.ref, self._start.token, now) is not None

    def go_on(self, transactions: Transactions) -> None:
        """Record in other transactions from now on: the one in which it was started is committed."""
        self.handle = self.handle.moved(transactions)

    def _leave_unit(self) -> None:
        """Go on in transactions of the store, if the unit of work that this was made in is committed.

        Raises:
            UnitOfWorkEnded: it was rolled back.
        """
        unit = self.handle.transactions
        if isinstance(unit, UnitTransactions) and unit.is_over:
            successor = unit.successor()
            is_unsure = not isinstance(unit, OwnTransactions) and self.number is not None and self.response is None
            if is_unsure and not successor.write(self.has_started, is_repeatable=True):
                raise errors.UnitOfWorkEnded
            self.go_on(successor)

    def take(self, event: Any) -> bool:
        """Take an event without accessing the database; return True if `flush` should write a batch."""
        self.take_value(event)
        return self.is_due

    def take_value(self, event: Any) -> Any:
        """Take an event, and return it as a JSON value; None for what is no event, or follows the end."""
        self._get_number()
        if not self.is_entered:
            raise _not_entered()
        unit = self.handle.transactions
        if isinstance(unit, OwnTransactions) and not unit.is_over:
            problem = "The unit of work that this recorder was made in is still open."
            raise errors.InvalidOption(problem, hint="Leave its `with` statement before the provider is asked.")
        if self.is_left:
            raise _used_before("The `with` statement of the recorder has ended.")
        if self.response is not None:
            return None
        if self.assembler.is_over:
            self.assembler.check_late(event)
            return None
        self.assembler.is_over = is_done(event)
        if (event := event_text(event)) == b"":
            return None
        try:
            value, text = keepable_event(event)
            self.assembler.feed(value)
        except errors.CannotParse as error:
            if not self.assembler.is_ended:
                raise
            LOG.info("What follows the end of a streamed response is not read: %s", error.message)
            return None
        if self._first_token_ms is None and self.assembler.has_output:
            self._first_token_ms = round((monotonic() - self._started_at) * 1000)
        self._events.append(text + b"\n")
        self._size += len(text) + 1
        self._taken += len(text) + 1
        return value

    @property
    def is_due(self) -> bool:
        """Whether `flush` should write a batch of what was taken."""
        return self._size >= BATCH_BYTES or (self._size > 0 and monotonic() - self._written_at >= self._interval)

    def flush(self) -> None:
        """Write the pending events and renew the lease.

        Raises:
            LeaseLost: another writer has taken over.
            NotFound: the conversation was deleted.
        """
        self._leave_unit()
        ref, start, number = self.handle.ref, self._start, self._get_number()
        self._size, self._written_at = 0, monotonic()
        text = b"".join(self._events.popleft() for _ in range(len(self._events))).decode()
        for first in range(0, len(text), PART_LENGTH):
            self._parts += 1
            piece = text[first : first + PART_LENGTH]
            self._unwritten.append(StreamPart(self._parts, piece, self._first_token_ms))
        parts, is_cancelled = tuple(self._unwritten), self.cancel_requested
        write = partial(lifecycle.write_batch, ref=ref, number=number, start=start, parts=parts)
        try:
            self.cancel_requested = self.handle.transactions.write(
                partial(write, is_cancelled=is_cancelled), is_repeatable=True, is_short=True
            )
        except errors.NotFound:  # what comes is for the bill alone
            self._forget(parts)
            raise
        self._forget(parts)
        if self.has_written is not None:
            self.has_written(self.waiting_bytes)

    def _forget(self, parts: Sequence[StreamPart]) -> None:
        del self._unwritten[: len(parts)]
        self._written += sum(len(part.content.encode()) for part in parts)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of events are not written yet."""
        return self._taken - self._written

    @property
    def received_bytes(self) -> int:
        """How many bytes of events have come."""
        return self._taken

    @property
    def began_at(self) -> datetime:
        """When the response began, as it is stored; of a replayed one, when that did."""
        return self.created_at or datetime.now(UTC)

    @property
    def has_ended(self) -> bool:
        """Whether the events that have come make a whole response."""
        return self.assembler.is_ended or self.assembler.error is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing of the response can follow."""
        return self.assembler.is_over

    def items_from(self, first: int) -> list[items.Item]:
        """Return the items that have come, from an index on, which costs less than all of them."""
        return self.assembler.items_from(first) if self.response is None else list(self.response.output[first:])

    def keep_beginning(self) -> None:
        """Keep what was stored with the beginning of the response, however that ends: its client has seen it."""
        self.undo = None

    def note_error(self, error: Mapping[str, Any]) -> None:
        """Let the response end as `failed`, with an error that came without an event."""
        self.assembler.error = dict(error)

    @property
    def is_renewable(self) -> bool:
        """Whether the lease needs to be renewed; inside the caller's transaction, others cannot see it."""
        return self.response is None and not self.is_inherited and self.handle.transactions.commits_itself

    def renew(self) -> float | None:
        """Renew the lease if it is due; return the seconds until it is due again, or None for never.

        Errors are raised by the next call that feeds or ends the recorder.
        """
        if not self.is_renewable:
            return None
        age = monotonic() - self._written_at
        if age < self.renewal:
            return self.renewal - age
        try:
            self.flush()
        except (errors.LeaseLost, errors.NotFound, errors.InvalidOption):  # the last: the store was closed
            self._written_at = float("-inf")  # so that the next event is written at once, and raises
            return None
        except connections.AWAY as error:
            LOG.warning("The lease of a streamed response was not renewed: %s", connections.error_name(error))
        return self.renewal

    def finish(self, error: BaseException | None = None, *, is_cancelled: bool = False, is_asked: bool = True) -> None:
        """Store the response as it has arrived, unless that is done; `error` is why the recorder was left.

        `is_asked`: whether a request may have been sent; otherwise it is recorded as broken off. Errors as for
        `finish_stream`.
        """
        if self.response is not None:
            return
        self._leave_unit()
        if self.unstored is None:
            self.unstored = self._ending(error, is_cancelled=is_cancelled, is_asked=is_asked)
            self._undo_at_end = None if error is None else self.undo
        ending, undo = self.unstored, self._undo_at_end
        handle, number, token = self.handle, self._get_number(), self._start.token
        ref = handle.ref.on(self.branch or 0)

        UNSTORED[token] = ending
        try:
            result = lifecycle.end_stream(handle.transactions, ref, number, token, ending, undo)
        except connections.AWAY:
            raise  # it is kept as it is, so that it can be stored later
        except BaseException:
            self.unstored = None
            raise
        self.unstored = None
        self._end(ending.response)
        if result is not None and ref.branch == handle.ref.branch:
            records = ending.new.records
            handle.cache.append(records, result.first, result.revision, turn=result.first, seen=result.input_to)
        handle.after_response(ending.new.attempt, ending.new.columns, is_stream=True)
        if result is None:
            raise ref.not_found()
        if result.refused is not None:
            raise result.refused
        self._stored = ending, result

    @property
    def written(self) -> responses.ResponseDetails | None:
        """The response as it was stored here, and would be read; None where only the database knows all of it."""
        if self._stored is None or not self._are_known or self.created_at is None:
            return None
        ending, result = self._stored
        if result.stored_at is None:  # the answer to its COMMIT was lost
            return None
        new, ref = ending.new, self.handle.ref.on(result.branch)
        items = new_items(ref, new.records, result.first, result.input_to, result.stored_at)
        row = {
            **new.columns, "number": result.number, "branch": result.branch, "input_to": result.input_to,
            "from_position": result.first, "to_position": result.first + len(items) - 1,
            "view": json_text(self._start.request.view), "created_at": self.created_at, "is_lost": False,
        }  # fmt: skip
        details = responses.ResponseDetails.of(row, ref, items, new.body if result.has_body else None, self._options)
        return details._replace(parsed=ending.response)

    def give_up(self) -> None:
        """Forget the end that the database did not take."""
        self.unstored = None
        UNSTORED.pop(self._start.token, None)

    def _ending(self, error: BaseException | None, *, is_cancelled: bool, is_asked: bool) -> Ending:
        """The response as it has arrived."""
        self._get_number()
        call = self._call._replace(info=self._measured())
        is_left = self.cancel_requested or isinstance(error, LEAVING)
        ending = Ending.of(self.assembler, call, error, self._start.key, is_cancelled=is_cancelled, is_left=is_left)
        if not is_asked:
            ending.break_off()
        if error is None and not is_cancelled and ending.response.status not in {"failed", CANCELLED}:
            ending.states = self.states
        return ending

    def _end(self, response: Response) -> None:
        stored = StoredAt(self.branch or 0, self._get_number())
        self.response = response.model_copy(update={"stored": stored})

    def set_times(self, times: CallInfo) -> None:
        """Take the times that the application measured."""
        latency, first_token = milliseconds(times, "latency_ms"), milliseconds(times, "first_token_ms")
        info: CallInfo = {**self._call.info}
        if latency is not None:
            info["latency_ms"] = latency
        if first_token is not None:
            info["first_token_ms"] = self._first_token_ms = first_token
        self._call = self._call._replace(info=info)

    def _measured(self) -> CallInfo:
        """Return the details of the call; its times are measured unless the application provided them."""
        call: CallInfo = {**self._call.info}
        if call.get("latency_ms") is None:
            call["latency_ms"] = round((monotonic() - self._started_at) * 1000)
        if call.get("first_token_ms") is None and self._first_token_ms is not None:
            call["first_token_ms"] = self._first_token_ms
        return call

    @property
    def is_inherited(self) -> bool:
        """Whether it was started in another process, from which this one was forked."""
        return self.number is not None and self._process != os.getpid()

    def check_owner(self) -> None:
        """Refuse to record a response that belongs to another process, whose lock may be held forever here."""
        if self.is_inherited:
            raise errors.InvalidOption("This stream is recorded by the process from which this one was forked.")

    def _get_number(self) -> int:
        self.check_owner()
        if self.number is None:
            raise _not_entered()
        return self.number


def _not_entered() -> errors.InvalidOption:
    return errors.InvalidOption("This stream has not been started.", hint="Use the recorder in a `with` statement.")


def _used_before(problem: str) -> errors.InvalidOption:
    return errors.InvalidOption(problem, hint="It records one stream: call stream_response() again for another one.")


# Beginning a streamed response together with what comes before it: all of it is stored, or nothing


def started_at_once(transactions: Transactions, make: Callable[[UnitTransactions], StreamWriter]) -> StreamWriter:
    """Return a writer that was made in a unit of work, with whose commit its response has begun.

    `make` is called again when the transaction has to be repeated. If the answer to a COMMIT was lost, the response may
    be there already: then it is gone on with.
    """
    writer = transactions.run_unit(make, is_short=True)
    writer.start()
    return writer


def locked(handle: Handle, transactions: UnitTransactions) -> Handle:
    """Return a handle for a conversation as it is now, inside a transaction whose end its other writers wait for.

    Raises:
        NotFound: the conversation, or the branch, does not exist any more.
    """
    connection, ref = transactions.connection, handle.ref
    conversation = history.reopen_conversation(connection, ref, handle.resources.configs, ref.branch, is_locked=True)
    return Handle(handle.resources, transactions, conversation)


def undone(writer: StreamWriter, undo: Callable[[Handle], None]) -> Callable[[Connection], None]:
    """Return what takes back, inside a transaction, what was stored before a response; others may have been faster."""

    def work(connection: Connection) -> None:
        handle = writer.handle
        try:
            undo(locked(handle, handle.transactions.within(connection)))
        except errors.UnitOfWorkRolledBack:  # with the end of the response: both are written again
            raise
        except (errors.NotFound, errors.Conflict):
            pass

    return work
