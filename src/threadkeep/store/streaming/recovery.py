"""Recovering streams: ending a response whose recorder is gone, with everything it had stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.db.queries.streams import ended, parts_of, stream_of, unfinished_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import loads
from threadkeep.store.ledger import CallInfo, insert_attempt
from threadkeep.store.positions import CANCELLED, INCOMPLETE, lock
from threadkeep.store.prices import PriceBook
from threadkeep.store.refs import ConversationRef, Scope
from threadkeep.store.retries import StreamBlocksWrite
from threadkeep.store.streaming import lifecycle
from threadkeep.store.streaming.endings import Ending, StreamCall


@dataclass(frozen=True, slots=True)
class StreamRecovery:
    """Ends responses whose recorder is gone, or that another writer ends; `prices` are those of its store."""

    prices: PriceBook

    def end(self, blocked: StreamBlocksWrite, connection: Connection) -> None:
        """End a response in progress whose lease has expired, or that a writer wants to end, unless it has ended.

        Its row is locked before its events are read: what its recorder stores afterwards would be lost.
        """
        ref, number = blocked.ref, blocked.number
        if not lock(connection, ref, datetime.now(UTC)):
            return
        key = {"tenant": ref.scope.tenant, "key": ref.key, "number": number}
        row = connection.execute(stream_of(is_locked=True), key).one_or_none()
        if row is None or row.open_branch is None:
            return
        if blocked.status == INCOMPLETE and row.lease_until > row.now:
            return
        is_cancelled = blocked.status == CANCELLED or row.cancel_requested_at is not None
        ending = self.read(connection, key, row.format, is_cancelled=is_cancelled)
        lifecycle.finish_stream(connection, ref, number, bytes(row.lease_token), ending, keeps_token=False)

    def read(
        self, connection: Connection, key: Mapping[str, int], format: str, *, is_cancelled: bool = False
    ) -> Ending:
        """Return what was stored of a response in progress, combined."""
        first, *parts = connection.execute(parts_of(), key).all()
        lines, notes = "".join(part.content for part in parts).split("\n")[:-1], loads(first.content)
        times = (part.first_token_ms for part in (first, *parts))
        first_token_ms = next((time for time in times if time is not None), None)
        assembler = get_format(format).assembler()
        with suppress(Exception):  # what cannot be understood ends what can be stored
            for line in lines:
                assembler.feed(loads(line))
        info: CallInfo = {"provider": notes.get("provider"), "first_token_ms": first_token_ms}
        call = StreamCall(info, notes.get("model"), self.prices)
        return Ending.of(assembler, call, is_cancelled=is_cancelled)


def account_unfinished(connection: Connection, tenant: int, key: int, recovery: StreamRecovery) -> None:
    """Write ledger rows for the responses in progress of a deleted conversation whose rows are about to be removed."""
    now, ref = datetime.now(UTC), ConversationRef(Scope(tenant), key, "")
    for row in connection.execute(unfinished_of(), {"tenant": tenant, "key": key}).all():
        response_key = {"tenant": tenant, "key": key, "number": row.number}
        ending = recovery.read(connection, response_key, row.format)
        ending.fit(connection)
        insert_attempt(
            connection, ref, ending.new.attempt, now,
            user_id=lifecycle.find_owner(connection, ref), response=row.number, tool_set_hash=row.tool_set_hash,
        )  # fmt: skip
        values = {"open_branch": None, "lease_token": None, "lease_until": None}
        parameters = {"tenant": tenant, "key": key, "response": row.number, "token": row.lease_token}
        connection.execute(ended().values(**values), parameters)
