"""Responses in progress: their beginning, what comes of them, and their end, each in a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from sqlalchemy import Connection, select

from threadkeep.db.dialects import check_sizes, insert_missing
from threadkeep.db.insertions import insert_together, insertion_into
from threadkeep.db.queries.conversations import owner_of
from threadkeep.db.queries.streams import ended, lease_renewal, parts_of, parts_removal, stream_of, unfinished_of
from threadkeep.db.tables import response_bodies, responses, stream_parts, usage_records
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import Conflict, InvalidItem, LeaseLost, TooLarge
from threadkeep.store.actions import keys
from threadkeep.store.actions.items import insert_items
from threadkeep.store.actions.ledger import Attempt, attempt_row, insert_attempt
from threadkeep.store.actions.numbers import ANYWHERE, INCOMPLETE, Amounts, Guard, Unfinished, lock, take, take_back
from threadkeep.store.actions.responses import body_row, seen_by_model, unpacked
from threadkeep.store.attempts import Replayed
from threadkeep.store.drafts import Draft
from threadkeep.store.place import Configuration, Once, Place, Scope

IN_PROGRESS: Final = "in_progress"
_COLUMNS: Final = ("provider_data", "error", "incomplete_details", "provider_response_id", "model", "finish_reason")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A response that is going to be streamed."""

    format: str
    token: bytes
    lease: timedelta
    input_to: int
    notes: JsonObject  # what is to be known of the call when the recorder is gone
    view: JsonObject | None = None
    configured: Configuration | None = None  # what the request was rendered with
    once: Once | None = None
    guard: Guard = ANYWHERE


@dataclass(frozen=True, slots=True)
class Kept:
    """A response as it was stored under an idempotency key."""

    number: int
    branch: int
    columns: JsonObject  # of its row, by name
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Begun:
    """The numbers of a response in progress, or the response that was stored under the same key before."""

    number: int
    branch: int
    kept: Kept | None = None


def begin(connection: Connection, place: Place, wanted: Beginning) -> Begun:
    """Make the row of a response in progress.

    Raises:
        NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict: nothing was written.
        Unfinished: another response in progress must be ended first.
    """
    now = datetime.now(UTC)
    try:
        found = take(connection, place, wanted.guard, now, Amounts(responses=1, streams=1))
    except (Conflict, Unfinished):
        _check_key(connection, place, wanted)
        raise
    _check_key(connection, place, wanted)
    number, is_elsewhere = found.response, found.branch != place.branch
    expected = wanted.guard.expected_head if is_elsewhere else None
    view, (config_hash, tool_set_hash) = seen_by_model(connection, place, wanted.view, wanted.configured, found)
    row = {
        "tenant_id": place.scope.tenant,
        "conversation_id": place.key,
        "number": number,
        "branch": found.branch,
        "input_to": min(wanted.input_to, found.first - 1 if expected is None else expected),
        "from_position": found.first,
        "to_position": found.last,
        "view": view,
        "config_hash": config_hash,
        "tool_set_hash": tool_set_hash,
        "format": wanted.format,
        "status": IN_PROGRESS,
        "created_at": now,
        "lease_until": now + wanted.lease,
        "lease_token": wanted.token,
        "open_branch": found.branch,
    }
    insertion_into(responses).execute(connection, row)
    _insert_part(connection, place, number, 0, dumps(wanted.notes).decode(), now)
    return Begun(number, found.branch)


def _check_key(connection: Connection, place: Place, wanted: Beginning) -> None:
    """Hand over the response that was stored under the key before, if one was."""
    outcome = keys.outcome_of(connection, place.scope.tenant, place.key, wanted.once)
    if outcome is not None:
        kept = _kept(connection, place, outcome["number"])
        raise Replayed(Begun(kept.number, kept.branch, kept))


def _kept(connection: Connection, place: Place, number: int) -> Kept:
    """A stored response, with its raw body while there is one."""
    found = []
    for table in (responses, response_bodies):
        statement = select(table).where(
            table.c.tenant_id == place.scope.tenant, table.c.conversation_id == place.key, table.c.number == number
        )
        found.append(connection.execute(statement).one_or_none())
    row, raw = found
    columns = {} if row is None else dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's name for it
    body = None if raw is None else unpacked(raw.codec, bytes(raw.body))
    return Kept(number, columns.get("branch", place.branch), columns, body)


@dataclass(frozen=True, slots=True)
class Part:
    """What has come of a response since the part before."""

    number: int
    token: bytes
    lease: timedelta
    part: int
    events: Sequence[bytes]  # as JSON


def write_part(connection: Connection, place: Place, what: Part) -> None:
    """Store what has come, and renew the lease.

    Raises:
        LeaseLost: somebody else has ended the response, or is about to.
    """
    now = datetime.now(UTC)
    renewed = lease_renewal().execute(
        connection,
        {
            "tenant": place.scope.tenant, "key": place.key, "response": what.number, "token": what.token,
            "until": now + what.lease,
        },
    )  # fmt: skip
    if not renewed:
        raise LeaseLost(what.number)
    if what.events:
        content = b"[" + b",".join(what.events) + b"]"
        _insert_part(connection, place, what.number, what.part, content.decode(), now)


def _insert_part(connection: Connection, place: Place, number: int, part: int, content: str, now: datetime) -> None:
    row = {
        "tenant_id": place.scope.tenant,
        "conversation_id": place.key,
        "number": number,
        "part": part,
        "content": content,
        "created_at": now,
    }
    check_sizes(connection, [row], "a part of a streamed response", ("content",))
    connection.execute(insert_missing(connection, stream_parts), row)  # it is there when only the answer was lost


@dataclass(frozen=True, slots=True)
class Ending:
    """A response that was in progress on its way into rows."""

    drafts: Sequence[Draft]
    body: bytes | None
    attempt: Attempt
    columns: JsonObject = field(default_factory=dict)  # of the responses row, by name
    once: Once | None = None
    keeps_token: bool = True  # so that its recorder, and nobody else, finds out that it had ended it before


@dataclass(frozen=True, slots=True)
class Ended:
    """Where a response was put."""

    first: int
    revision: int
    shown: int
    is_gone: bool = False  # its conversation was deleted meanwhile: only the ledger row is written


def finish(connection: Connection, place: Place, number: int, token: bytes, what: Ending) -> Ended:
    """Write the items of a response as one range, with its body and ledger row; what had come in parts goes.

    The token stands for the right to write: the user of a scoped store may have lost the conversation meanwhile.

    Raises:
        LeaseLost: somebody else has ended the response; nothing was written.
        NotFound: the conversation is gone; the ledger row was written when its rows were removed.
    """
    now = datetime.now(UTC)
    key = {"tenant": place.scope.tenant, "key": place.key}
    place = Place(Scope(place.scope.tenant), place.key, place.public_id, place.branch)
    found = take_back(connection, place, now, len(what.drafts))
    stream = connection.execute(stream_of(), {**key, "number": number}).one_or_none()
    if stream is None or stream.lease_token is None or bytes(stream.lease_token) != token:
        raise place.missing() if found is None else LeaseLost(number)
    if stream.open_branch is None:  # this very use case, whose COMMIT was not answered
        raise Replayed(Ended(stream.from_position, -1, stream.input_to))
    first, last = (-1, -2) if found is None else (found.first, found.last)
    values = {**what.columns, "from_position": first, "to_position": last, "lease_until": None, "open_branch": None}
    if not what.keeps_token:
        values["lease_token"] = None
    check_sizes(connection, [{name: values.get(name) for name in _COLUMNS}], "a response", _COLUMNS)
    if not connection.execute(ended().values(**values), {**key, "response": number, "token": token}).rowcount:
        raise place.missing()  # its rows are being removed, and that wrote the ledger row
    attempt = attempt_row(
        connection, place, what.attempt, now,
        user_id=_owner(connection, place) if found is None else found.user_id,
        response=number, tool_set_hash=stream.tool_set_hash,
    )  # fmt: skip
    rows = [(usage_records, [attempt])]
    if found is None:
        insert_together(connection, rows)
        return Ended(-1, -1, -1, is_gone=True)
    if what.body is not None:
        named = {"tenant_id": place.scope.tenant, "conversation_id": place.key, "number": number}
        rows.append((response_bodies, [body_row(connection, named, what.body, now)]))
    insert_items(connection, place, what.drafts, found, now, seen=stream.input_to, beside=rows)
    made = {"kind": "response", "number": number, "first": found.first, "branch": place.branch}
    if keys.outcome_of(connection, place.scope.tenant, place.key, what.once) is None:
        keys.record(connection, place.scope.tenant, place.key, what.once, now, **made)
    # else another recorder with the key, which was at work at the same time, was faster: what came here stays, too
    connection.execute(parts_removal(), {**key, "number": number})
    return Ended(found.first, found.revision, stream.input_to)


@dataclass(frozen=True, slots=True)
class Left:
    """What a recorder left of a response: what it was told, and the events that it had stored."""

    format: str
    status: str
    notes: JsonObject
    events: Sequence[Any]


class Endings(Protocol):
    """Makes of what a recorder left what is stored."""

    def of(self, left: Left) -> Ending:
        """The ending with all items that came."""

    def without_items(self, left: Left, error: Exception) -> Ending:
        """The ending where these cannot be stored."""


def settle(connection: Connection, place: Place, number: int, status: str, endings: Endings) -> None:
    """End a response in progress whose lease is over, or whose end somebody asks for; nothing if it has ended."""
    if not lock(connection, place, datetime.now(UTC)):
        return
    key = {"tenant": place.scope.tenant, "key": place.key, "number": number}
    stream = connection.execute(stream_of(), key).one_or_none()
    if (
        stream is None
        or stream.open_branch is None
        or (status == INCOMPLETE and stream.lease_until > datetime.now(UTC))
    ):
        return
    left, token = _left(connection, key, stream.format, status), bytes(stream.lease_token)
    try:
        with connection.begin_nested():
            finish(connection, place, number, token, endings.of(left))
    except (InvalidItem, TooLarge) as error:  # nobody is to wait for its end for ever
        finish(connection, place, number, token, endings.without_items(left, error))


def _left(connection: Connection, key: Mapping[str, int], format: str, status: str) -> Left:
    """What was stored of a response in progress; `key` names it."""
    parts = [loads(text) for text in connection.execute(parts_of(), key).scalars()]
    notes: JsonObject = next((part for part in parts if isinstance(part, dict)), {})
    return Left(format, status, notes, [event for part in parts if isinstance(part, list) for event in part])


def _owner(connection: Connection, place: Place) -> str | None:
    """Whose conversation it was: when that user is erased, its rows in the ledger are found by it."""
    found: str | None = connection.execute(owner_of(), {"tenant": place.scope.tenant, "key": place.key}).scalar()
    return found


def account_unfinished(connection: Connection, tenant: int, key: int, endings: Endings) -> None:
    """Ledger rows for the responses in progress of a deleted conversation, whose rows are about to be removed."""
    now, place = datetime.now(UTC), Place(Scope(tenant), key, "")
    for row in connection.execute(unfinished_of(), {"tenant": tenant, "key": key}).all():
        left = _left(connection, {"tenant": tenant, "key": key, "number": row.number}, row.format, INCOMPLETE)
        try:
            ending = endings.of(left)
        except InvalidItem as error:
            ending = endings.without_items(left, error)
        insert_attempt(
            connection, place, ending.attempt, now,
            user_id=_owner(connection, place), response=row.number, tool_set_hash=row.tool_set_hash,
        )  # fmt: skip
        values = {"open_branch": None, "lease_token": None, "lease_until": None}
        parameters = {"tenant": tenant, "key": key, "response": row.number, "token": row.lease_token}
        connection.execute(ended().values(**values), parameters)
