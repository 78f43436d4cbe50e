"""Recovering streams: ending a response whose recorder is gone, with everything that it had stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.db.queries.streams import ended, parts_of, stream_of, unfinished_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import FormatError, InvalidItem, TooLarge
from threadkeep.store.ledger import insert_attempt
from threadkeep.store.positions import CANCELLED, INCOMPLETE, lock
from threadkeep.store.prices import PriceBook
from threadkeep.store.refs import ConversationRef, Scope
from threadkeep.store.streaming.lifecycle import (
    FinalizedStream,
    StreamCall,
    final_response,
    finalize,
    finalize_without_items,
    find_owner,
    finish_stream,
)
from threadkeep.store.transactions import StreamBlocksWrite


@dataclass(frozen=True, slots=True)
class AbandonedStream:
    """What a recorder left of a response: what it noted of the call, and the events that it had stored."""

    format: str
    status: str  # to end with
    notes: JsonObject
    events: Sequence[object]


@dataclass(frozen=True, slots=True)
class StreamRecovery:
    """Ends responses whose recorder is gone, or that another writer ends; `prices` are those of its store."""

    prices: PriceBook

    def end(self, connection: Connection, blocked: StreamBlocksWrite) -> None:
        """End the response in progress that blocks a write."""
        recover_stream(connection, blocked, self)

    def finalize(self, stream: AbandonedStream, error: Exception | None = None) -> FinalizedStream:
        """The response with everything that arrived; with an error, which says why its items cannot be stored, without.

        Raises:
            InvalidItem: they cannot be stored.
        """
        assembler = get_format(stream.format).assembler()
        with suppress(FormatError):  # what cannot be understood ends what can be stored
            for event in stream.events:
                assembler.feed(event)
        call = StreamCall({"provider": stream.notes.get("provider")}, stream.notes.get("model"), self.prices)
        if error is not None:
            return finalize_without_items(assembler.response, call, error)
        response = final_response(assembler.response, None, is_cancelled=stream.status == CANCELLED)
        return finalize(response, dumps(assembler.body) if stream.events else None, call)


def recover_stream(connection: Connection, blocked: StreamBlocksWrite, recovery: StreamRecovery) -> None:
    """End a response in progress whose lease is over, or whose end a writer asks for; nothing if it has ended."""
    ref, number = blocked.ref, blocked.number
    if not lock(connection, ref, datetime.now(UTC)):
        return
    key = {"tenant": ref.scope.tenant, "key": ref.key, "number": number}
    row = connection.execute(stream_of(), key).one_or_none()
    if row is None or row.open_branch is None:
        return
    if blocked.status == INCOMPLETE and row.lease_until > row.now:
        return
    stream, token = _read_abandoned(connection, key, row.format, blocked.status), bytes(row.lease_token)
    try:
        with connection.begin_nested():
            finish_stream(connection, ref, number, token, recovery.finalize(stream), keeps_token=False)
    except (InvalidItem, TooLarge) as error:  # no writer is to wait for its end for ever
        finish_stream(connection, ref, number, token, recovery.finalize(stream, error), keeps_token=False)


def account_unfinished(connection: Connection, tenant: int, key: int, recovery: StreamRecovery) -> None:
    """Write ledger rows for the responses in progress of a deleted conversation whose rows are about to be removed."""
    now, ref = datetime.now(UTC), ConversationRef(Scope(tenant), key, "")
    for row in connection.execute(unfinished_of(), {"tenant": tenant, "key": key}).all():
        response_key = {"tenant": tenant, "key": key, "number": row.number}
        abandoned = _read_abandoned(connection, response_key, row.format, INCOMPLETE)
        try:
            stream = recovery.finalize(abandoned)
        except InvalidItem as error:
            stream = recovery.finalize(abandoned, error)
        insert_attempt(
            connection, ref, stream.attempt, now,
            user_id=find_owner(connection, ref), response=row.number, tool_set_hash=row.tool_set_hash,
        )  # fmt: skip
        values = {"open_branch": None, "lease_token": None, "lease_until": None}
        parameters = {"tenant": tenant, "key": key, "response": row.number, "token": row.lease_token}
        connection.execute(ended().values(**values), parameters)


def _read_abandoned(connection: Connection, key: Mapping[str, int], format: str, status: str) -> AbandonedStream:
    """What was stored of a response in progress; `key` names it."""
    notes, *parts = connection.execute(parts_of(), key).scalars()
    lines = "".join(parts).split("\n")[:-1]
    return AbandonedStream(format, status, loads(notes), [loads(line) for line in lines])
