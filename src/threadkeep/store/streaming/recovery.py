"""Recovering streams: ending a response whose recorder is gone, with everything it had stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.db.queries.streams import ended, parts_of, stream_of, unfinished_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import dumps, loads
from threadkeep.errors import FormatError, InvalidItem, TooLarge
from threadkeep.formats.shared.streams import StreamAssembler
from threadkeep.store.ledger import insert_attempt
from threadkeep.store.positions import CANCELLED, INCOMPLETE, lock
from threadkeep.store.prices import PriceBook
from threadkeep.store.refs import ConversationRef, Scope
from threadkeep.store.streaming import lifecycle
from threadkeep.store.transactions import StreamBlocksWrite


@dataclass(frozen=True, slots=True)
class StreamRecovery:
    """Ends responses whose recorder is gone, or that another writer ends; `prices` are those of its store."""

    prices: PriceBook

    def end(self, blocked: StreamBlocksWrite, connection: Connection) -> None:
        """End a response in progress whose lease has expired, or that a writer wants to end, unless it has ended."""
        ref, number = blocked.ref, blocked.number
        if not lock(connection, ref, datetime.now(UTC)):
            return
        key = {"tenant": ref.scope.tenant, "key": ref.key, "number": number}
        row = connection.execute(stream_of(), key).one_or_none()
        if row is None or row.open_branch is None:
            return
        if blocked.status == INCOMPLETE and row.lease_until > row.now:
            return
        (assembler, body, call), token = self.read(connection, key, row.format), bytes(row.lease_token)
        try:
            response = lifecycle.final_response(assembler.response, None, is_cancelled=blocked.status == CANCELLED)
            stream = lifecycle.finalize(response, body, call)
            with connection.begin_nested():
                lifecycle.finish_stream(connection, ref, number, token, stream, keeps_token=False)
        except (InvalidItem, TooLarge) as error:  # no writer is to wait for its end for ever
            stream = lifecycle.finalize_without_items(assembler.response, call, error)
            lifecycle.finish_stream(connection, ref, number, token, stream, keeps_token=False)

    def read(
        self, connection: Connection, key: Mapping[str, int], format: str
    ) -> tuple[StreamAssembler, bytes | None, lifecycle.StreamCall]:
        """Return what was stored of a response in progress, combined, its raw body, and the details of the call."""
        text, *parts = connection.execute(parts_of(), key).scalars()
        lines, notes, assembler = "".join(parts).split("\n")[:-1], loads(text), get_format(format).assembler()
        with suppress(FormatError):  # what cannot be understood ends what can be stored
            for line in lines:
                assembler.feed(loads(line))
        call = lifecycle.StreamCall({"provider": notes.get("provider")}, notes.get("model"), self.prices)
        return assembler, dumps(assembler.body) if lines else None, call


def account_unfinished(connection: Connection, tenant: int, key: int, recovery: StreamRecovery) -> None:
    """Write ledger rows for the responses in progress of a deleted conversation whose rows are about to be removed."""
    now, ref = datetime.now(UTC), ConversationRef(Scope(tenant), key, "")
    for row in connection.execute(unfinished_of(), {"tenant": tenant, "key": key}).all():
        response_key = {"tenant": tenant, "key": key, "number": row.number}
        assembler, body, call = recovery.read(connection, response_key, row.format)
        try:
            stream = lifecycle.finalize(assembler.response, body, call)
        except InvalidItem as error:
            stream = lifecycle.finalize_without_items(assembler.response, call, error)
        insert_attempt(
            connection, ref, stream.attempt, now,
            user_id=lifecycle.find_owner(connection, ref), response=row.number, tool_set_hash=row.tool_set_hash,
        )  # fmt: skip
        values = {"open_branch": None, "lease_token": None, "lease_until": None}
        parameters = {"tenant": tenant, "key": key, "response": row.number, "token": row.lease_token}
        connection.execute(ended().values(**values), parameters)
