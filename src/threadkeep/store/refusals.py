"""Responses that are not stored, because something is not as the caller expects: the tokens were used anyway."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection

from threadkeep import errors
from threadkeep.domain.jsontext import JsonObject
from threadkeep.store import ledger
from threadkeep.store.idempotency import IdempotencyKey, find_outcome, keep_outcome
from threadkeep.store.items import AppendResult
from threadkeep.store.ledger import Attempt
from threadkeep.store.lineage import get_row
from threadkeep.store.positions import HeadCheck
from threadkeep.store.refs import BranchRef, ConfigHashes
from threadkeep.store.retries import Replay

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


def find_refusal(
    connection: Connection, ref: BranchRef, key: IdempotencyKey | None, check: HeadCheck
) -> JsonObject | None:
    """Return the refusal stored under the key, which no longer applies; the transaction ends with what was stored.

    That the branch ended elsewhere is over when the caller says what to do about it, other refusals by themselves.
    """
    outcome = None if key is None else find_outcome(connection, ref.scope.tenant, ref.key, key)
    stands = outcome is not None and (outcome["kind"] != "head_conflict" or check.on_conflict == "raise")
    if outcome is not None and stands and outcome["kind"] not in _PASSING:
        raise Replay(_result_of(outcome, check))
    return outcome


def _result_of(outcome: JsonObject, check: HeadCheck) -> ResponseResult | errors.HeadConflict:
    """Return what was stored under an idempotency key."""
    if outcome["kind"] == "head_conflict":
        return errors.HeadConflict(-1 if check.expected_head is None else check.expected_head, outcome["head"])
    first, branch, count = outcome["first"], outcome["branch"], outcome.get("input", 0)
    asked = AppendResult(first - count, count, branch)
    return ResponseResult(outcome["number"], first, branch, is_replayed=True, input=asked if count else None)


def refuse(
    connection: Connection,
    ref: BranchRef,
    attempt: Attempt,
    key: IdempotencyKey | None,
    hashes: ConfigHashes | None,
    check: HeadCheck,
    conflict: errors.Conflict,
) -> errors.Conflict:
    """Only write the ledger row of a response; returns what is to be raised when it is committed."""
    outcome = find_outcome(connection, ref.scope.tenant, ref.key, key)
    if outcome is not None:
        is_over = outcome["kind"] in _PASSING or isinstance(conflict, errors.StateConflict)
        raise Replay(conflict if is_over else _result_of(outcome, check))
    row, now = get_row(connection, ref), check.at or datetime.now(UTC)
    tools = row.tool_set_hash if hashes is None else hashes.tools
    usage = ledger.insert_attempt(connection, ref, attempt, now, user_id=row.user_id, tool_set_hash=tools)
    reason = {"kind": _KINDS[type(conflict)], "head": getattr(conflict, "head", None), "usage": usage}
    if key is not None and isinstance(
        conflict, errors.StateConflict
    ):  # with what is read then, the next try has others
        key = replace(key, request_hash=key.without_states or key.request_hash)
    keep_outcome(connection, ref.scope.tenant, ref.key, key, now, **reason)
    return conflict
