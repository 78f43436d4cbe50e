"""Rows of the ledger that the application reports: calls without a response, and usage of what is stored already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, exists, or_, select

from threadkeep import errors
from threadkeep.db.models import responses, usage_records
from threadkeep.domain import formats, jsontext
from threadkeep.domain.usage import FIGURES, NormalizedUsage, Usage, figure
from threadkeep.store.reading.history import BROKEN_OFF_TEXT
from threadkeep.store.reading.responses import get_place
from threadkeep.store.usage import ledger
from threadkeep.store.work import connections, idempotency, positions, refs, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.writing.appending import AppendResult

COMPLETED, FAILED = "completed", "failed"


class Report(NamedTuple):
    """What the application says about a call."""

    error: Any
    model: str | None
    status: str | None
    usage: Any
    response: int | str | None


def report_attempt(handle: Handle, format: str, call: ledger.CallInfo, report: Report, key: str | None) -> None:
    """Write a row of the ledger; see `Conversation.record_attempt`."""
    usage = usage_from(report.usage, format)
    at = validation.past_moment("occurred_at", call.get("occurred_at"))
    status = COMPLETED if usage is not None and report.error is None else FAILED
    model = handle.cache.conversation.settings.get("model")
    number = hashes = None
    if report.response is not None:
        place = get_place(handle, report.response)
        number, hashes = place.number, place.hashes
        model, status = place.model or model, place.status or status
    status = status if report.status is None else report.status
    attempt = ledger.reported_attempt(
        format, call, handle.resources.prices, report.model or model, status, usage, report.error
    )
    content = {"format": format, "error": attempt.error, "model": attempt.model, "status": status}
    more: dict[str, Any] = {
        "usage": None if usage is None else [attempt.usage, attempt.figures.to_dict()],
        "response": number,
        "occurred_at": None if at is None else at.isoformat(),
    }
    content |= {name: value for name, value in more.items() if value is not None}
    once = idempotency.IdempotencyKey.of(key, "record_attempt", content)
    ledger.record_attempt(handle, attempt, once, hashes, response=number, at=at)


def usage_from(usage: Any, format: str) -> Usage | None:
    """The usage of a call: an object as providers of a format send it, or one that was read already."""
    wire = formats.get_format(format)
    if usage is None or isinstance(usage, Usage):
        return usage
    if isinstance(usage, NormalizedUsage):
        figures = {name: figure(getattr(usage, name)) for name in FIGURES}
        return Usage(raw=usage.to_dict() or None, normalized=NormalizedUsage(**figures))
    value = jsontext.dumped(usage)
    if not isinstance(value, Mapping) or not value:
        hint = "Pass the usage object of the provider's response."
        raise jsontext.mismatch(errors.InvalidOption, "a usage object", usage, "usage", hint)
    return wire.usage_of(dict(value))


def withdraw_attempt(handle: Handle, response: int) -> datetime | None:
    """Remove the attempt of a response without an end, of which another one has more; return when it was made.

    None where there is none: the response has ended, is being recorded, or its attempt was withdrawn before.
    """
    ref, ledger_rows, table = handle.ref, usage_records.c, responses.c
    is_unended = [
        *ref.rows_of(table), table.number == response, table.deleted_at.is_(None), table.open_branch.is_(None),
        or_(table.status == "in_progress", table.incomplete_details == BROKEN_OFF_TEXT),
    ]  # fmt: skip
    is_attempt = [*ref.rows_of(ledger_rows), ledger_rows.response == response]

    def write(connection: Connection) -> datetime | None:
        found = select(ledger_rows.id, ledger_rows.occurred_at).where(*is_attempt, exists().where(*is_unended))
        row = connection.execute(found.order_by(ledger_rows.id).limit(1)).one_or_none()
        if row is None:
            return None
        ledger.note_day(connection, ref, row.occurred_at)
        is_row = ledger_rows.tenant_id == ref.scope.tenant, ledger_rows.id == row.id
        is_ours = connection.execute(delete(usage_records).where(*is_row)).rowcount
        return row.occurred_at if is_ours else None

    return handle.transactions.write(write)


# ---------------------------------------------------------------------------------------------------------------------
# Responses that are not stored, because something is not as the caller expects: the tokens were used anyway

_KINDS: Final[dict[type[errors.Conflict], str]] = {
    errors.HeadConflict: "head_conflict",
    errors.ResponseInProgress: "in_progress",
    errors.StateConflict: "state_conflict",
}
_PASSING: Final = frozenset({"in_progress", "state_conflict"})  # they end by themselves


@dataclass(slots=True)
class ResponseResult:
    """Where a response was stored."""

    number: int = -1
    first: int = 0
    branch: int = 0
    revision: int = -1
    input_to: int = -1  # the last position that the request showed, as it was stored
    is_replayed: bool = False
    refused: errors.ThreadkeepError | None = None  # why the states of a stream were not written
    input: AppendResult | None = None  # where the items that it answers were stored with it
    stored_at: datetime | None = None  # the time of a stream's end
    has_body: bool = False  # whether the raw body of a stream was kept


def find_refusal(
    connection: Connection, ref: refs.BranchRef, key: idempotency.IdempotencyKey | None, check: positions.HeadCheck
) -> jsontext.JsonObject | None:
    """Return the refusal stored under the key, which no longer applies; the transaction ends with what was stored.

    That the branch ended elsewhere is over when the caller says what to do about it, other refusals by themselves.
    """
    outcome = None if key is None else idempotency.find_outcome(connection, ref.scope.tenant, ref.key, key)
    stands = outcome is not None and (outcome["kind"] != "head_conflict" or check.on_conflict == "raise")
    if outcome is not None and stands and outcome["kind"] not in _PASSING:
        raise connections.Replay(_result_of(outcome, check))
    return outcome


def _result_of(outcome: jsontext.JsonObject, check: positions.HeadCheck) -> ResponseResult | errors.HeadConflict:
    """Return what was stored under an idempotency key."""
    if outcome["kind"] == "head_conflict":
        return errors.HeadConflict(-1 if check.expected_head is None else check.expected_head, outcome["head"])
    first, branch, count = outcome["first"], outcome["branch"], outcome.get("input", 0)
    asked = AppendResult(first - count, count, branch)
    return ResponseResult(outcome["number"], first, branch, is_replayed=True, input=asked if count else None)


def refuse(
    connection: Connection,
    ref: refs.BranchRef,
    attempt: ledger.Attempt,
    key: idempotency.IdempotencyKey | None,
    hashes: refs.ConfigHashes | None,
    check: positions.HeadCheck,
    conflict: errors.Conflict,
) -> errors.Conflict:
    """Only write the ledger row of a response; returns what is to be raised when it is committed."""
    outcome = idempotency.find_outcome(connection, ref.scope.tenant, ref.key, key)
    if outcome is not None:
        is_over = outcome["kind"] in _PASSING or isinstance(conflict, errors.StateConflict)
        raise connections.Replay(conflict if is_over else _result_of(outcome, check))
    row, now = refs.get_row(connection, ref), check.at or datetime.now(UTC)
    tools = row.tool_set_hash if hashes is None else hashes.tools
    usage = ledger.insert_attempt(connection, ref, attempt, now, user_id=row.user_id, tool_set_hash=tools)
    reason = {"kind": _KINDS[type(conflict)], "head": getattr(conflict, "head", None), "usage": usage}
    if key is not None and isinstance(
        conflict, errors.StateConflict
    ):  # with what is read then, the next try has others
        key = replace(key, request_hash=key.without_states or key.request_hash)
    idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, key, now, **reason)
    return conflict
