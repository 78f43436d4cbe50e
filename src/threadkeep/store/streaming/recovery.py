"""Recovering streams: ending a response whose recorder is gone, with everything it had stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection

from threadkeep.db.queries.responses import ended, parts_of, stream_of, unfinished_of
from threadkeep.domain import formats, jsontext, response
from threadkeep.errors import ThreadkeepError
from threadkeep.store.streaming import endings, lifecycle
from threadkeep.store.usage.ledger import Attempt, CallInfo, insert_attempt
from threadkeep.store.usage.prices import PriceBook
from threadkeep.store.work import connections, item_rows, positions, refs


@dataclass(frozen=True, slots=True)
class StreamRecovery:
    """Ends responses whose recorder is gone, or that another writer ends; `prices` are its store's."""

    prices: PriceBook

    def end(self, blocked: connections.StreamBlocksWrite, connection: Connection) -> None:
        """End a response in progress whose lease has expired, or that a writer wants to end, unless it has ended.

        Its row is locked before its events are read: what its recorder stores afterwards would be lost.
        """
        ref, number = blocked.ref, blocked.number
        if not positions.lock(connection, ref, datetime.now(UTC)):
            return
        key = {"tenant": ref.scope.tenant, "key": ref.key, "number": number}
        row = connection.execute(stream_of(is_locked=True), key).one_or_none()
        if row is None or row.open_branch is None:
            return
        if blocked.status == positions.INCOMPLETE and row.lease_until is not None and row.lease_until > row.now:
            return
        is_cancelled = blocked.status == positions.CANCELLED or row.cancel_requested_at is not None
        token = bytes(row.lease_token)
        ending = endings.UNSTORED.get(token) or self.read(connection, key, row.format, is_cancelled=is_cancelled)
        lifecycle.finish_stream(connection, ref, number, token, ending, keeps_token=False)

    def read(
        self, connection: Connection, key: Mapping[str, int], format: str, *, is_cancelled: bool = False
    ) -> endings.Ending:
        """Return what was stored of a response in progress, combined.

        Raises:
            UnknownFormat: a newer release has recorded it, or a format that is not registered here.
        """
        rows = connection.execute(parts_of(), key).all()
        lines = "".join(part.content for part in rows[1:]).split("\n")[:-1]
        notes = _notes(rows[0].content) if rows else {}
        first_token_ms = next((row.first_token_ms for row in rows if row.first_token_ms is not None), None)
        assembler = formats.get_format(format).assembler()
        with suppress(Exception):  # what cannot be understood ends what can be stored
            for line in lines:
                assembler.feed(jsontext.loads(line))
        info: CallInfo = {
            "provider": item_rows.fitting(notes.get("provider")) or None, "first_token_ms": first_token_ms,
            "base_url": notes.get("base_url"), "service_tier": notes.get("service_tier"),
        }  # fmt: skip
        call = endings.StreamCall(info, notes.get("model"), self.prices, response.maker_from(notes.get("maker") or ""))
        return endings.Ending.of(assembler, call, is_cancelled=is_cancelled)


def _notes(text: str) -> jsontext.JsonObject:
    """What the recorder knew of the call; nothing where that cannot be read."""
    try:
        notes = jsontext.loads(text)
    except ValueError:
        return {}
    return notes if isinstance(notes, dict) else {}


# The error of an attempt whose recorder, if it lives, writes into the same row what has come (`complete_attempt`)
DELETED: Final = {"type": "NotFound", "message": "The conversation was deleted before the response ended."}


def account_unfinished(connection: Connection, tenant: int, key: int, recovery: StreamRecovery) -> None:
    """Write ledger rows for the responses in progress of a deleted conversation whose rows are about to be removed."""
    now, ref = datetime.now(UTC), refs.ConversationRef(refs.Scope(tenant), key, "")
    for row in connection.execute(unfinished_of(), {"tenant": tenant, "key": key}).all():
        try:
            ending = recovery.read(connection, {"tenant": tenant, "key": key, "number": row.number}, row.format)
            ending.fit(connection)
            attempt = ending.new.attempt
        except (ThreadkeepError, ValueError, TypeError) as error:  # one that cannot be read can still be removed
            problem = "The usage of a response in progress that was deleted is not known: %s"
            endings.LOG.warning(problem, connections.error_name(error))
            attempt = Attempt(row.format, positions.INCOMPLETE)
        attempt.error = attempt.error or DELETED
        insert_attempt(
            connection, ref, attempt, now,
            user_id=lifecycle.find_owner(connection, ref), response=row.number, tool_set_hash=row.tool_set_hash,
        )  # fmt: skip
        parameters = {"tenant": tenant, "key": key, "response": row.number, "token": row.lease_token}
        ended("open_branch", "lease_token", "lease_until").execute(connection, parameters)  # what is missing is NULL
