"""Responses in progress: their start, the batches of events, and their end, each in a transaction."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import ref

from sqlalchemy import Connection, select

from threadkeep.db import backends, models
from threadkeep.db.driver import Statement, inserting
from threadkeep.db.queries import conversations
from threadkeep.db.queries import responses as response_queries
from threadkeep.db.queries.appends import end_at_once
from threadkeep.db.queries.responses import cancel_request, lost_streams_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.response import Response
from threadkeep.errors import Conflict, FormatError, LeaseLost, NotFound, StateConflict, TooLarge
from threadkeep.store.streaming.endings import Ending
from threadkeep.store.usage.ledger import attempt_columns, complete_attempt, insert_attempt, json_text, note_day
from threadkeep.store.work import idempotency, item_rows, positions, validation
from threadkeep.store.work.connections import Replay, StreamBlocksWrite
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import BranchRef, ConfigHashes, ConversationRef, Scope, get_row
from threadkeep.store.work.states import NewState, check_states, write_states
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.writing import appending, attempts
from threadkeep.store.writing import responses as answers
from threadkeep.store.writing.responses import RequestInfo

IN_PROGRESS: Final = "in_progress"
_OVER: Final = {"lease_until": None, "open_branch": None}  # what a response has that is not in progress
LOG: Final = logging.getLogger("threadkeep.streams")


# Starting


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A response that is about to be streamed."""

    format: str
    token: bytes  # who may write it
    lease: float  # in seconds
    request: RequestInfo
    notes: JsonObject  # what has to be known of the call when the recorder is gone
    key: idempotency.IdempotencyKey | None
    check: positions.HeadCheck
    states: Sequence[NewState] = ()  # that are written at its end, if nothing speaks against it now
    first_token_ms: int | None = None  # if the application has measured it


class StreamHandle(NamedTuple):
    """The numbers of a response in progress, and when it began; `stored`: what was stored before, under its key."""

    number: int
    branch: int
    created_at: datetime
    stored: Response | None = None


def start_stream(
    connection: Connection, ref: BranchRef, start: StreamStart, *, is_repeated: bool = False
) -> StreamHandle:
    """Insert the row of a response in progress.

    `is_repeated`: an earlier transaction failed, or its outcome is unknown. Its row has the token.
    """
    now = datetime.now(UTC)
    if is_repeated and (own := find_own_stream(connection, ref, start.token, now)) is not None:
        return own
    reservation = _reserve(connection, ref, start, now)
    request = answers.stored_request(connection, ref, start.request, start.check, reservation)
    inserting.insert_rows(connection, _rows_at_start(ref, start, request, reservation, now))
    return StreamHandle(reservation.response, reservation.branch, now)


def start_with(new: positions.UnwrittenConversation, ref: BranchRef, start: StreamStart) -> StreamHandle | None:
    """Have the row written with its conversation, which is not written yet; None where more is to be done."""
    hashes = start.request.hashes
    if new.row["id"] != ref.key or start.key is not None or start.states or start.check != positions.NO_CHECK:
        return None
    if hashes not in (None, ConfigHashes(new.settings.hash, None)):
        return None
    now = datetime.now(UTC)
    new.rows += _rows_at_start(ref, start, start.request, new.start_response(now), now)
    return StreamHandle(0, 0, now)


def _rows_at_start(
    ref: BranchRef, start: StreamStart, request: RequestInfo, reservation: positions.Reservation, now: datetime
) -> inserting.TableRows:
    """The row of a response in progress, and that of its notes."""
    hashes = request.hashes or ConfigHashes(reservation.config_hash, reservation.tool_set_hash)
    row = ref.columns(
        number=reservation.response, branch=reservation.branch, input_to=min(request.head, reservation.first - 1),
        from_position=reservation.first, to_position=reservation.last, view=json_text(request.view),
        config_hash=hashes.config, tool_set_hash=hashes.tools, format=start.format, status=IN_PROGRESS,
        lease_token=start.token, lease=start.lease, open_branch=reservation.branch, created_at=now,
    )  # fmt: skip
    notes = StreamPart(0, dumps(start.notes).decode(), start.first_token_ms)
    part = _part_row(ref, reservation.response, notes, now)
    return [(response_queries.STARTED, [row]), (models.stream_parts, [part])]


def _reserve(connection: Connection, ref: BranchRef, start: StreamStart, now: datetime) -> positions.Reservation:
    """Reserve a number for the response; a key has at most one response in progress, on whichever branch."""
    counts = positions.Counts(responses=1, streams=1)
    replay = partial(stored_stream, connection, ref, start.format)
    try:
        reservation = positions.reserve_once(connection, ref, start.check, now, counts, start.key, replay)
    except (Conflict, StreamBlocksWrite):
        refuse_second(connection, ref, start.key)
        raise
    refuse_second(connection, ref, start.key)
    if start.states:
        check_states(connection, ref, start.states)
    return reservation


def refuse_second(connection: Connection, ref: ConversationRef, key: idempotency.IdempotencyKey | None) -> None:
    """Refuse to start while another recorder is active; StreamBlocksWrite if that recorder is gone."""
    if key is None:
        return
    for row in connection.execute(response_queries.open_streams_of(), ref.parameters()):
        if loads(row.content).get("key") == key.key:
            refusal = positions.in_progress(BranchRef(ref.scope, ref.key, ref.public_id, row.branch), row)
            refusal.is_repeated = True
            raise refusal


def find_own_stream(connection: Connection, ref: BranchRef, token: bytes, now: datetime) -> StreamHandle | None:
    """The response in progress that has this token, on whichever branch; None where its COMMIT did not happen.

    The lock waits for a COMMIT that is happening just now.
    """
    if not positions.lock(connection, ref, now):
        return None
    row = connection.execute(response_queries.stream_by_token(), ref.parameters(token=token)).one_or_none()
    return None if row is None else StreamHandle(row.number, row.branch, row.created_at)


def stored_stream(connection: Connection, ref: ConversationRef, format: str, outcome: JsonObject) -> StreamHandle:
    """What an earlier call with the same key stored, parsed again from its raw body, which may have been removed."""
    number, response = outcome["number"], Response(format=format)
    tables = models.responses, models.response_bodies
    statements = (select(table).where(*ref.rows_of(table.c), table.c.number == number) for table in tables)
    row, body = (connection.execute(statement).mappings().one_or_none() for statement in statements)
    if body is not None:
        with suppress(FormatError):
            response = get_format(format).parse_response(item_rows.decompress_body(body["codec"], bytes(body["body"])))
    kept = dict(row or {})
    fields = {"id": kept.get("provider_response_id"), "model": kept.get("model"), "status": kept.get("status")}
    fields |= {name: loads(kept[name]) for name in ("incomplete_details", "error") if kept.get(name) is not None}
    stored = response.model_copy(update={**fields, "replayed": True})
    return StreamHandle(number, outcome["branch"], kept.get("created_at") or datetime.now(UTC), stored)


# What arrives


class StreamPart(NamedTuple):
    """A piece of the text of all events, each a line of JSON, and the time to the first token, once that has come."""

    number: int
    content: str
    first_token_ms: int | None = None


def write_batch(
    connection: Connection,
    ref: BranchRef,
    number: int,
    start: StreamStart,
    parts: Sequence[StreamPart],
    *,
    is_cancelled: bool = False,
) -> bool:
    """Store what has arrived, and renew the lease; return whether the response was asked to stop.

    `is_cancelled`: that is known already. Raises LeaseLost if another writer ends the response, or NotFound if its
    conversation was deleted.
    """
    now = datetime.now(UTC)
    parameters = ref.parameters(response=number, token=start.token, lease=start.lease)
    is_cancelled = is_cancelled or not response_queries.lease_renewal(cancelled=False).execute(connection, parameters)
    if is_cancelled and not response_queries.lease_renewal(cancelled=True).execute(connection, parameters):
        raise LeaseLost(number) if positions.lock(connection, _unscoped(ref), now) else ref.not_found()
    for part in parts:
        inserting.insert_missing(connection, models.stream_parts, [_part_row(ref, number, part, now)])
    return is_cancelled


def _unscoped(ref: BranchRef) -> BranchRef:
    """The same branch, whichever user has the conversation now."""
    return BranchRef(Scope(ref.scope.tenant), ref.key, ref.public_id, ref.branch)


def _part_row(ref: ConversationRef, number: int, part: StreamPart, now: datetime) -> dict[str, Any]:
    values = {"part": part.number, "content": part.content, "first_token_ms": part.first_token_ms}
    return ref.columns(number=number, **values, created_at=now)


# Ending


def end_stream(
    transactions: Transactions,
    ref: BranchRef,
    number: int,
    token: bytes,
    ending: Ending,
    undo: Callable[[Connection], None] | None,
) -> attempts.ResponseResult | None:
    """Run `finish_stream`, and `undo` after it, in a transaction of their own."""

    def end(connection: Connection) -> attempts.ResponseResult | None:
        result = finish_stream(connection, ref, number, token, ending)
        if undo is not None:
            undo(connection)
        return result

    at_once = partial(_finish_at_once, ref=ref, number=number, token=token, ending=ending) if undo is None else None
    records = ending.new.records
    return appending.write_items(transactions, ref.scope, records, end, is_repeatable=True, at_once=at_once)


def finish_stream(
    connection: Connection, ref: BranchRef, number: int, token: bytes, ending: Ending, *, keeps_token: bool = True
) -> attempts.ResponseResult | None:
    """Write the items of a response as one range, with its body and ledger row, and remove the batches of events.

    The token stands for the right to write: the user of a scoped store may have lost the conversation since.
    `keeps_token`: so that its recorder, and no other writer, finds out that it had ended it before. Returns where it
    was stored; None when its conversation was deleted since, and only the ledger row written.

    Raises:
        LeaseLost: another writer has ended the response; nothing was written.
    """
    ending.fit(connection)
    now, stream = datetime.now(UTC), ending.new
    ref = _unscoped(ref)
    counts = positions.Counts(items=len(stream.records), streams=-1)
    reservation = positions.reserve_anywhere(connection, ref, now, counts)
    first, last = (-1, -2) if reservation is None else (reservation.first, reservation.last)
    values = {**stream.columns, **_OVER, "from_position": first, "to_position": last}
    if not keeps_token:
        values["lease_token"] = None
    row = _end_row(connection, ref, number, token, values, is_kept=reservation is not None)
    if row is None:
        complete_attempt(connection, ref, number, stream.attempt)  # its rows are being removed
        return None
    if reservation is None:
        columns = {"user_id": find_owner(connection, ref), "tool_set_hash": row.tool_set_hash}
        insert_attempt(connection, ref, stream.attempt, now, response=number, **columns)
        return None
    note_day(connection, ref, now)
    body = body_rows(connection, stream.body, now)
    rows = _rows_at_end(ref, stream, body, now, row.input_to)
    numbers = replace(reservation, response=number, tool_set_hash=row.tool_set_hash)
    appending.write_rows(connection, ref, numbers, rows, now, stream.records)
    if stream.key is not None and not idempotency.is_used(connection, ref, stream.key.key):
        outcome = {"kind": "response", "number": number, "first": first, "branch": ref.branch}
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, stream.key, now, **outcome)
    # else another writer with the key, which was at work at the same time, was faster: what arrived here stays, too
    response_queries.parts_removal().execute(connection, ref.parameters(number=number))
    refused = _write_states(connection, ref, ending.states, now) if ending.states else None
    return attempts.ResponseResult(
        number, first, ref.branch, reservation.revision, row.input_to, refused=refused, stored_at=now,
        has_body=bool(body),
    )  # fmt: skip


def _finish_at_once(
    connection: Connection, ref: BranchRef, number: int, token: bytes, ending: Ending
) -> attempts.ResponseResult | None:
    """The same in one statement of PostgreSQL; None where that takes a transaction.

    Raises:
        IntegrityError: the response is not in progress any more, and nothing was written.
    """
    ending.fit(connection)
    now, stream = datetime.now(UTC), ending.new
    if stream.key is not None or ending.states:
        return None
    ref = _unscoped(ref)
    counts = positions.Counts(items=len(stream.records), streams=-1)
    columns = {**stream.columns, **_OVER}
    shared = {**positions.reservation_parameters(ref, counts, now, None), "response": number, "token": token}
    shared |= {response_queries.NEW + name: value for name, value in columns.items()}
    body = body_rows(connection, stream.body, now)
    rows = _rows_at_end(ref, stream, body, now, 0)
    statement = partial(end_at_once, columns=tuple(columns))
    found = appending.fetch_at_once(connection, ref, statement, shared, rows, stream.records)
    if found is None:
        return None
    reservation = positions.Reservation.of_row(connection, ref, counts, found[:-1])
    return attempts.ResponseResult(
        number, reservation.first, ref.branch, reservation.revision, found[-1], stored_at=now, has_body=bool(body)
    )


def _rows_at_end(
    ref: BranchRef, stream: answers.NewResponse, body: appending.AppendedRows, now: datetime, seen: int
) -> appending.AppendedRows:
    """The rows that are written with the end of a response; `seen`: the last position that its request showed."""
    return [
        *appending.item_rows(stream.records, seen=seen),
        *body,
        (models.usage_records, attempt_columns(stream.attempt, now)),
        appending.change_row(ref, len(stream.records) - 1),
    ]


def _write_states(
    connection: Connection, ref: ConversationRef, states: Sequence[NewState], now: datetime
) -> StateConflict | TooLarge | None:
    """Write the states of a response that has ended; why not, if they cannot be written: the response stays."""
    try:
        write_states(connection, ref, states, now)
    except (StateConflict, TooLarge) as error:
        return error
    return None


def body_rows(connection: Connection, body: bytes | None, now: datetime) -> appending.AppendedRows:
    """The row of a raw body, if there is one that fits."""
    if body is None:
        return []
    row = item_rows.body_columns(body, now)
    try:
        backends.check_sizes(connection, [row], "the raw body of a response", ("body",))
    except TooLarge as error:
        LOG.warning("The raw body of a streamed response is not kept: %s", error)
        return []
    return [(models.response_bodies, row)]


def _end_row(
    connection: Connection, ref: BranchRef, number: int, token: bytes, values: Mapping[str, Any], *, is_kept: bool
) -> Any:
    """End the row of a response, whose conversation `is_kept`; return it, or None where its rows are being removed."""
    parameters = {response_queries.NEW + name: value for name, value in values.items()}
    parameters |= ref.parameters(response=number, token=token)
    if backends.backend_of(connection).has_returning:
        row = _row_of_stream(connection, response_queries.ended(*values, returning=True), parameters)
        if row is not None:
            return row
    row = _find_stream(connection, ref, number, token)
    if row is None and is_kept:
        raise LeaseLost(number)
    if row is not None and row.open_branch is None:  # this very use case, whose COMMIT was not answered
        earlier = attempts.ResponseResult(number, row.from_position, ref.branch, -1, row.input_to, is_replayed=True)
        raise Replay(earlier)
    return row if row is not None and response_queries.ended(*values).execute(connection, parameters) else None


def _row_of_stream(connection: Connection, statement: Statement, parameters: Mapping[str, Any]) -> Any:
    found = statement.fetch_all(connection, parameters)
    return response_queries.STREAM_READER.read(connection, found)[0] if found else None


def _find_stream(connection: Connection, ref: ConversationRef, number: int, token: bytes) -> Any:
    """Return the row of a streamed response; None if the token is not, or no longer, its token."""
    row = _row_of_stream(connection, response_queries.stream_at_end(), ref.parameters(number=number))
    return row if row is not None and row.lease_token is not None and bytes(row.lease_token) == token else None


def find_owner(connection: Connection, ref: ConversationRef) -> str | None:
    """Return whose conversation it was: if that user is erased, the ledger rows are found by it."""
    user_id: str | None = connection.execute(conversations.owner_of(), ref.parameters()).scalar()
    return user_id


# ---------------------------------------------------------------------------------------------------------------------
# Asking the recorder of a response in progress to stop, from any process


def cancel_response(handle: Handle, number: int | None) -> bool:
    """Ask for the end of a response in progress; see `Conversation.cancel_response`.

    One whose recorder is gone is ended instead.
    """
    ref = handle.ref
    wanted = None if number is None else validation.whole_number("number", number)
    parameters = ref.parameters(branch=ref.branch) if wanted is None else ref.parameters(number=wanted)

    def write(connection: Connection) -> bool:
        row = get_row(connection, ref)
        if wanted is not None and not 0 <= wanted < row.next_response:
            raise NotFound(f"{ref.public_id} has no response {wanted}.", hint="responses() lists the responses it has.")
        if cancel_request(numbered=wanted is not None).execute(connection, parameters):
            return True
        for lost in connection.execute(lost_streams_of(), ref.parameters()):
            if lost.number == wanted or (wanted is None and lost.branch == ref.branch):
                raise StreamBlocksWrite(ref.on(lost.branch), lost.number, positions.INCOMPLETE)
        return False

    return handle.transactions.write(write, is_repeatable=True)


# ---------------------------------------------------------------------------------------------------------------------
# Heartbeats, which renew the lease of a response while its recorder lives, even if nothing is fed

NAME: Final = "threadkeep-lease"

# Renews the lease where that is due; returns after how many seconds it is due again, None: never
Beat = Callable[[Any], float | None]
AsyncBeat = Callable[[Any], Awaitable[float | None]]


class Heartbeat:
    """The heartbeat of a recorder: a daemon thread, which does not keep the process alive."""

    def __init__(self, recorder: Any, beat: Beat, wait: float) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=_run, args=(ref(recorder), beat, wait, self._ended), name=NAME, daemon=True
        )
        with suppress(RuntimeError):  # the interpreter is about to end
            self._thread.start()

    def end(self) -> None:
        """Stop the heartbeat; call this without holding the lock that a beat takes."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()


def _run(owner: ref[Any], beat: Beat, wait: float | None, ended: threading.Event) -> None:
    while wait is not None and not ended.wait(wait):
        wait = _beaten(owner, beat)


def _beaten(owner: ref[Any], beat: Beat) -> float | None:
    """What a beat returns; in a function of its own, so that nothing holds the recorder between two of them."""
    recorder = owner()
    return None if recorder is None else beat(recorder)


class AsyncHeartbeat:
    """The heartbeat of a recorder under asyncio: a task, from the first beat on, which most responses do not reach."""

    def __init__(self, recorder: Any, beat: AsyncBeat, wait: float) -> None:
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(wait, self._begin, ref(recorder), beat)

    def _begin(self, owner: ref[Any], beat: AsyncBeat) -> None:
        self._task = asyncio.create_task(_run_async(owner, beat, self._ended), name=NAME)

    @property
    def is_over(self) -> bool:
        """Whether there are no more beats."""
        return self._timer.cancelled() if self._task is None else self._task.done()

    async def end(self) -> None:
        """Stop the heartbeat; await this without holding the lock that a beat takes."""
        self._ended.set()
        self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])


async def _run_async(owner: ref[Any], beat: AsyncBeat, ended: asyncio.Event) -> None:
    while (wait := await _beaten_async(owner, beat)) is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await ended.wait()
            return


async def _beaten_async(owner: ref[Any], beat: AsyncBeat) -> float | None:
    recorder = owner()
    return None if recorder is None else await beat(recorder)
