"""Storing a provider's answer: items, response, raw body and ledger row, in one transaction."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, select

from threadkeep.db.dialects import check_sizes
from threadkeep.db.tables import configs, response_bodies, responses, tool_sets, usage_records
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.errors import HeadConflict, ResponseInProgress
from threadkeep.store.actions import keys
from threadkeep.store.actions.entries import facts_at
from threadkeep.store.actions.items import insert_items
from threadkeep.store.actions.ledger import Attempt, attempt_row, insert_attempt, name_response
from threadkeep.store.actions.numbers import ANYWHERE, Amounts, Guard, Taken, Unfinished, take
from threadkeep.store.attempts import Replayed
from threadkeep.store.drafts import Draft
from threadkeep.store.place import Configuration, Once, Place

PLAIN: Final = 0
ZLIB: Final = 1
_WORTH_PACKING: Final = 2048  # bytes; shorter bodies are kept as they are


@dataclass(slots=True)
class Answer:
    """A parsed provider body on its way into rows."""

    drafts: Sequence[Draft]
    body: bytes
    attempt: Attempt
    input_to: int
    columns: JsonObject = field(default_factory=dict)  # of the responses row, by name
    view: JsonObject | None = None
    configured: Configuration | None = None  # what the request was rendered with
    once: Once | None = None
    guard: Guard = ANYWHERE


@dataclass(slots=True)
class Stored:
    """Where an answer was put, or why it was not: where the branch ended (`head`), which response is in progress."""

    number: int = -1
    first: int = 0
    branch: int = 0
    revision: int = -1
    shown: int = -1  # the last position that the request showed, as it was stored
    head: int | None = None
    in_progress: int | None = None
    is_replayed: bool = False


def store_answer(connection: Connection, place: Place, answer: Answer) -> Stored:
    """Append a provider's answer.

    A refusal is an outcome, not an exception: its ledger row is to be committed before the caller hears of it.

    Raises:
        NotFound, IdempotencyConflict, TooLarge: nothing was written.
        Unfinished: a response in progress must be ended first.
    """
    now = datetime.now(UTC)
    try:
        found = take(connection, place, answer.guard, now, Amounts(items=len(answer.drafts), responses=1))
    except (HeadConflict, ResponseInProgress) as conflict:
        return _refused(connection, place, answer, conflict, now)
    except Unfinished:
        _check_key(connection, place, answer)
        raise
    outcome = _check_key(connection, place, answer)
    shown, number = _shown(place, answer, found), found.response
    response = _response_row(connection, place, answer, found, shown, now)
    rows = [(responses, [response]), (response_bodies, [body_row(connection, response, answer.body, now)])]
    if outcome is None:
        attempt = attempt_row(
            connection, place, answer.attempt, now,
            user_id=found.user_id, response=number, tool_set_hash=response["tool_set_hash"],
        )  # fmt: skip
        rows.append((usage_records, [attempt]))
    insert_items(connection, place, answer.drafts, found, now, seen=shown, beside=rows)
    made = {"kind": "response", "number": number, "first": found.first, "branch": found.branch}
    if outcome is None:
        keys.record(connection, place.scope.tenant, place.key, answer.once, now, **made)
    elif answer.once is not None:  # refused before under this key: its ledger row exists
        name_response(connection, place, outcome["usage"], number)
        keys.replace(connection, place.scope.tenant, place.key, answer.once, **made)
    return Stored(number, found.first, found.branch, found.revision, shown)


def record_attempt(
    connection: Connection, place: Place, attempt: Attempt, once: Once | None, asked: Configuration | None = None
) -> bool:
    """The ledger row of an attempt that gave no response; False when its key had been used for it before.

    `asked` is what the request was rendered with; None: what the conversation has now.

    Raises:
        NotFound, IdempotencyConflict: nothing was written.
    """
    now = datetime.now(UTC)
    facts = facts_at(connection, place, is_kept=True)  # its user may be about to be erased
    if keys.outcome_of(connection, place.scope.tenant, place.key, once) is not None:
        return False
    keys.record(connection, place.scope.tenant, place.key, once, now, kind="attempt")
    tools = facts.tool_set_hash if asked is None else asked[1]
    insert_attempt(connection, place, attempt, now, user_id=facts.user_id, tool_set_hash=tools)
    return True


def _check_key(connection: Connection, place: Place, answer: Answer) -> JsonObject | None:
    """The refusal that was written down under the key before and is over now; what was stored is handed over.

    That the branch ended elsewhere is over when the caller says what to do about it, a response in progress by itself.
    """
    outcome = keys.outcome_of(connection, place.scope.tenant, place.key, answer.once)
    stands = outcome is not None and (outcome["kind"] != "head_conflict" or answer.guard.on_conflict == "raise")
    if outcome is not None and stands and outcome["kind"] != "in_progress":
        raise Replayed(_replay(outcome))
    return outcome


def _refused(
    connection: Connection, place: Place, answer: Answer, conflict: HeadConflict | ResponseInProgress, now: datetime
) -> Stored:
    """The branch ends elsewhere, or in a response in progress: only the ledger row is written; tokens were used."""
    reason: JsonObject = (
        {"kind": "head_conflict", "head": conflict.head}
        if isinstance(conflict, HeadConflict)
        else {"kind": "in_progress", "number": conflict.number}
    )
    outcome = keys.outcome_of(connection, place.scope.tenant, place.key, answer.once)
    if outcome is not None:
        raise Replayed(_replay(reason if outcome["kind"] == "in_progress" else outcome))
    facts = facts_at(connection, place)
    tools = facts.tool_set_hash if answer.configured is None else answer.configured[1]
    usage = insert_attempt(connection, place, answer.attempt, now, user_id=facts.user_id, tool_set_hash=tools)
    keys.record(connection, place.scope.tenant, place.key, answer.once, now, **reason, usage=usage)
    return _replay(reason)


def _replay(outcome: JsonObject) -> Stored:
    if outcome["kind"] == "head_conflict":
        return Stored(head=outcome["head"], is_replayed=True)
    if outcome["kind"] == "in_progress":
        return Stored(in_progress=outcome["number"], is_replayed=True)
    return Stored(outcome["number"], outcome["first"], outcome["branch"], is_replayed=True)


def _shown(place: Place, answer: Answer, found: Taken) -> int:
    """The last position that the request showed: on a branch that was made for the answer, none behind its fork."""
    expected = answer.guard.expected_head
    if found.branch != place.branch and expected is not None:
        return min(answer.input_to, expected)
    return min(answer.input_to, found.first - 1)


def _response_row(
    connection: Connection, place: Place, answer: Answer, found: Taken, shown: int, now: datetime
) -> dict[str, Any]:
    view, (config_hash, tool_set_hash) = seen_by_model(connection, place, answer.view, answer.configured, found)
    row: dict[str, Any] = {
        "tenant_id": place.scope.tenant,
        "conversation_id": place.key,
        "number": found.response,
        "branch": found.branch,
        "input_to": shown,
        "from_position": found.first,
        "to_position": found.last,
        "view": view,
        "config_hash": config_hash,
        "tool_set_hash": tool_set_hash,
        "created_at": now,
        **answer.columns,
    }
    check_sizes(connection, [row], "a response", ("provider_data", "error", "view"))
    return row


def seen_by_model(
    connection: Connection, place: Place, view: JsonObject | None, asked: Configuration | None, found: Taken
) -> tuple[str | None, Configuration]:
    """The view of a request as JSON, and its options and tools, which may have changed since it was rendered.

    Where these are stored no longer, the request cannot be replayed: it counts as not recorded.
    """
    text = None if view is None else dumps(view).decode()
    current = (found.config_hash, found.tool_set_hash)
    if asked is None or asked == current:
        return text, current
    for table, hash_ in ((configs, asked[0]), (tool_sets, asked[1])):
        there = select(table.c.hash).where(table.c.tenant_id == place.scope.tenant, table.c.hash == hash_)
        if hash_ is not None and connection.execute(there).first() is None:
            return None, current
    return text, asked


def body_row(connection: Connection, response: Mapping[str, Any], body: bytes, now: datetime) -> dict[str, Any]:
    """The row of a raw body; `response` holds the key of its response."""
    codec, data = packed(body)
    key = {name: response[name] for name in ("tenant_id", "conversation_id", "number")}
    row = {**key, "codec": codec, "body": data, "created_at": now}
    check_sizes(connection, [row], "the raw body of a response", ("body",))
    return row


def packed(body: bytes) -> tuple[int, bytes]:
    """A raw body as it is stored, with its codec."""
    return (ZLIB, zlib.compress(body, 1)) if len(body) >= _WORTH_PACKING else (PLAIN, body)


def unpacked(codec: int, body: bytes) -> bytes:
    """The raw body of a stored one."""
    return zlib.decompress(body) if codec == ZLIB else body
