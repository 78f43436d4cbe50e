"""Responses: storing a provider's response (items, response, raw body and ledger row), and reading stored ones."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select

from threadkeep import errors
from threadkeep.db.dialects import check_sizes
from threadkeep.db.tables import configs, response_bodies, responses, tool_sets, usage_records
from threadkeep.domain.formats import get_format
from threadkeep.domain.items import given_of
from threadkeep.domain.jsontext import JsonObject, bytes_as_text, dumps, loads
from threadkeep.domain.objects import dumped, mismatch
from threadkeep.domain.rendering import Rendered
from threadkeep.domain.response import Response
from threadkeep.domain.stored import StoredAt
from threadkeep.store import ledger, positions
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey, keep_outcome, replace_outcome
from threadkeep.store.item_rows import ItemRecord, encode_item, fitting, insert_items, short_hash
from threadkeep.store.items import NO_ITEMS, NO_TURN, AppendResult, NewItems, TurnInput
from threadkeep.store.ledger import Attempt, CallInfo, attempt_of, json_text
from threadkeep.store.lineage import get_row
from threadkeep.store.media.placing import write_items
from threadkeep.store.positions import AppendOptions, Counts, HeadCheck, Reservation, reserve
from threadkeep.store.refs import BranchRef, ConfigHashes, ConversationRef
from threadkeep.store.refusals import ResponseResult, find_refusal, refuse
from threadkeep.store.state_writes import check_states, write_states
from threadkeep.store.states import lock_conversation
from threadkeep.store.transactions import StreamBlocksWrite
from threadkeep.store.validation import past_moment, whole_number

PLAIN: Final = 0
ZLIB: Final = 1
_WORTH_COMPRESSING: Final = 2048  # bytes; shorter bodies are kept as they are


# What came, before any transaction begins


def _raw_and_value(body: Any) -> tuple[bytes, Any]:
    if isinstance(body, bytes | bytearray | str):
        data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
        try:
            return data, loads(data)
        except ValueError as error:
            problem = f"The response body is not JSON: {error}. It begins with {data[:80]!r}."
            raise errors.CannotParse(problem) from error
    if isinstance(body, Response):
        hint = 'Give the body as the provider sent it, or response.to_dict() with the format "open_responses".'
        problem = "is a Response, which was parsed already; its raw body is no longer known."
        raise errors.InvalidOption(problem, argument="body", hint=hint)
    value = dumped(body)
    if not isinstance(value, dict | list | tuple | int | float | None):
        name = f"{type(body).__module__}.{type(body).__qualname__}"
        hint = "Pass its JSON, such as response.json(), or the SDK's object; "
        hint += "stream_response() takes the events of a stream."
        raise errors.CannotParse(f"The response body is of the type {name}, which is not JSON.", hint=hint)
    value = bytes_as_text(value)
    return dumps(value), value


class RequestInfo(NamedTuple):
    """What is known about a request: its view, the last position it showed, and its options and tools."""

    view: JsonObject | None
    head: int
    hashes: ConfigHashes | None


def request_info(handle: Handle, format: str, rendered: Rendered | None) -> RequestInfo:
    """Return what is known about a request; without one, it is assumed to have shown everything up to the head."""
    if rendered is None:
        return RequestInfo(None, handle.cache.head, None)
    if not isinstance(rendered, Rendered):
        raise mismatch(errors.InvalidOption, "what render() returned", rendered, "rendered")
    found = rendered.conversation_id, rendered.view.get("format")
    for of, one, wanted in zip(("conversation", "format"), found, (handle.ref.public_id, format), strict=True):
        if one not in (None, wanted):
            raise errors.InvalidOption(f"is a request of the {of} {one}, not of {wanted}.", argument="rendered")
    hashes = None if rendered.configured is None else ConfigHashes(*rendered.configured)
    return RequestInfo(rendered.view, rendered.head, hashes)


def response_columns(response: Response, format: str) -> JsonObject:
    """Return the columns of a response."""
    return {
        "format": format,
        "provider_response_id": response.id,
        "response_hash": short_hash(response.id or None),
        "model": response.model,
        "status": fitting(response.status),
        "finish_reason": response.finish_reason,
        "incomplete_details": json_text(response.incomplete_details),
        "error": json_text(response.error),
        "provider_data": json_text(response.provider_data or None),
        "completed_at": _moment(response.completed_at),
    }


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


# Storing a response


@dataclass(frozen=True, slots=True)
class NewResponse:
    """A provider's response that is about to be stored."""

    records: Sequence[ItemRecord]
    body: bytes | None
    attempt: Attempt
    columns: JsonObject  # of the responses row, by name
    key: IdempotencyKey | None = None
    input: NewItems = NO_ITEMS  # what it answers, where that is stored with it

    @classmethod
    def of(
        cls,
        response: Response,
        body: bytes | None,
        attempt: Attempt,
        key: IdempotencyKey | None,
        input: NewItems = NO_ITEMS,
    ) -> NewResponse:
        """Return a response with its items; raise InvalidItem if one of them cannot be stored."""
        records = [
            encode_item(item.to_object(), model=response.model, given=given_of(item)) for item in response.output
        ]
        return cls(records, body, attempt, response_columns(response, attempt.format), key, input)


def add_response(
    handle: Handle, body: Any, format: str, rendered: Rendered | None, options: AppendOptions, call: CallInfo
) -> Response:
    """Append a provider's response; see `Conversation.add_response`."""
    return add_answer(handle, body, format, rendered, options, call)[0]


def add_answer(
    handle: Handle,
    body: Any,
    format: str,
    rendered: Rendered | None,
    options: AppendOptions,
    call: CallInfo,
    turn: TurnInput = NO_TURN,
) -> tuple[Response, ResponseResult]:
    """Append a provider's response, with what it answers in front of it where that is given as a `turn`."""
    ref, wire, headers = handle.ref, get_format(format), call.get("headers")
    if headers is not None and not isinstance(headers, Mapping):
        raise mismatch(errors.InvalidOption, "a dict of header names and values", headers, "headers")
    check, occurred_at = positions.head_check(options), past_moment("occurred_at", call.get("occurred_at"))
    check = check._replace(at=occurred_at)
    raw, value = _raw_and_value(body)
    model = handle.cache.conversation.settings.get("model")
    content = {"format": format, "body": value, **turn.content, **_dated(occurred_at)}
    key = positions.idempotency_key(options, turn.method, content)
    request = request_info(handle, format, rendered)
    try:
        response = wire.parse_response(value, headers)
    except errors.ProviderError as error:  # its ledger row is written, then it is raised
        named = value.get("model") if isinstance(value, dict) else None
        attempt = ledger.failed_attempt(format, call, error, named if isinstance(named, str) and named else model)
        ledger.record_attempt(handle, attempt, key, request.hashes, at=occurred_at)
        raise
    attempt = attempt_of(response, format, call, handle.resources.prices, model)
    new = NewResponse.of(response, raw, attempt, key, turn.items)
    result = write_items(
        handle.transactions, ref.scope, [*turn.items.records, *new.records],
        lambda connection: _store_response(connection, ref, new, request, check), is_repeatable=key is not None,
    )  # fmt: skip
    if isinstance(result, errors.Conflict):
        raise result
    if result.input is not None:
        new.input.take_in(handle, result.input)
    if not result.is_replayed and result.branch == ref.branch:
        handle.cache.append(new.records, result.first, result.revision, turn=result.first, seen=result.input_to)
    handle.after_write()
    stored = StoredAt(result.branch, result.number)
    return response.model_copy(update={"replayed": result.is_replayed, "stored": stored}), result


def _dated(at: datetime | None) -> JsonObject:
    return {} if at is None else {"occurred_at": at.isoformat()}


def _store_response(
    connection: Connection, ref: BranchRef, new: NewResponse, request: RequestInfo, check: HeadCheck
) -> ResponseResult | errors.Conflict:
    """Write a response. A refusal is a result: its ledger row must be committed before it is raised."""
    stored_at, count = datetime.now(UTC), len(new.input.records)
    now = check.at or stored_at
    try:
        reservation, refusal = _reserve(connection, ref, new, check, now)
    except (errors.HeadConflict, errors.ResponseInProgress, errors.StateConflict) as conflict:
        return refuse(connection, ref, new.attempt, new.key, request.hashes, check, conflict)
    number, input_to = reservation.response, input_position(ref, request, check, reservation)
    asked, told_from = None, reservation.first
    if count:
        inputs = replace(reservation, count=count)
        insert_items(connection, ref, new.input.records, inputs, now, turns=new.input.turns, told_from=None)
        asked = AppendResult(told_from, count, inputs.branch, inputs.revision, now)
        reservation, input_to = replace(reservation, first=told_from + count, count=len(new.records)), inputs.last
    row = response_row(connection, ref, reservation, request, input_to, now) | new.columns
    check_sizes(connection, [row], "a response", ("provider_data", "error", "view"))
    rows = [(responses, [row]), (response_bodies, [body_row(connection, ref, number, new.body or b"", stored_at)])]
    if refusal is None:
        tools = row["tool_set_hash"]
        attempt = ledger.attempt_row(
            connection, ref, new.attempt, now, user_id=reservation.user_id, response=number, tool_set_hash=tools
        )
        rows.append((usage_records, [attempt]))
    insert_items(connection, ref, new.records, reservation, now, seen=input_to, beside=rows, told_from=told_from)
    if new.key is not None:
        outcome = {"kind": "response", "number": number, "first": reservation.first, "branch": reservation.branch}
        if count:
            outcome["input"] = count
        if refusal is None:
            keep_outcome(connection, ref.scope.tenant, ref.key, new.key, now, **outcome)
        else:  # refused before under this key: its ledger row exists
            ledger.link_response(connection, ref, refusal["usage"], number)
            replace_outcome(connection, ref.scope.tenant, ref.key, new.key, **outcome)
    return ResponseResult(number, reservation.first, reservation.branch, reservation.revision, input_to, input=asked)


def _reserve(
    connection: Connection, ref: BranchRef, new: NewResponse, check: HeadCheck, now: datetime
) -> tuple[Reservation, JsonObject | None]:
    """Reserve what a response takes, and write the states; with the refusal under its key that no longer applies."""
    counts = Counts(items=len(new.input.records) + len(new.records), responses=1)
    if check.states:  # compared before anything is reserved, so that nothing has to be given back
        lock_conversation(connection, ref)
        refusal, found = find_refusal(connection, ref, new.key, check), check_states(connection, ref, check.states)
        reservation = reserve(connection, ref, check, now, counts)
        write_states(connection, ref, check.states, now, found)
        return reservation, refusal
    try:
        reservation = reserve(connection, ref, check, now, counts)
    except StreamBlocksWrite:
        find_refusal(connection, ref, new.key, check)
        raise
    return reservation, find_refusal(connection, ref, new.key, check)


def input_position(ref: BranchRef, request: RequestInfo, check: HeadCheck, reservation: Reservation) -> int:
    """Return the last position that a request showed; on a branch created for its response, at most the fork."""
    if check.expected_head is not None and reservation.branch != ref.branch:
        return min(request.head, check.expected_head)
    return min(request.head, reservation.first - 1)


def response_row(
    connection: Connection, ref: BranchRef, reservation: Reservation, request: RequestInfo, input_to: int, now: datetime
) -> dict[str, Any]:
    """Return the row of a response, without the columns reported by the provider."""
    current = ConfigHashes(reservation.config_hash, reservation.tool_set_hash)
    view, hashes = _request_columns(connection, ref, request, current)
    return {
        "tenant_id": ref.scope.tenant,
        "conversation_id": ref.key,
        "number": reservation.response,
        "branch": reservation.branch,
        "input_to": input_to,
        "from_position": reservation.first,
        "to_position": reservation.last,
        "view": view,
        "config_hash": hashes.config,
        "tool_set_hash": hashes.tools,
        "created_at": now,
    }


def _request_columns(
    connection: Connection, ref: BranchRef, request: RequestInfo, current: ConfigHashes
) -> tuple[str | None, ConfigHashes]:
    """The view of a request as JSON, and its options and tools, which may have changed since it was rendered.

    Where these are no longer stored, the request cannot be replayed: it counts as not recorded.
    """
    view = json_text(request.view)
    if request.hashes is None or request.hashes == current:
        return view, current
    for table, hash_ in ((configs, request.hashes.config), (tool_sets, request.hashes.tools)):
        stored = select(table.c.hash).where(table.c.tenant_id == ref.scope.tenant, table.c.hash == hash_)
        if hash_ is not None and connection.execute(stored).first() is None:
            return None, current
    return view, request.hashes


# Raw bodies


def body_row(connection: Connection, ref: ConversationRef, number: int, body: bytes, now: datetime) -> dict[str, Any]:
    """Return the row of the raw body of a response."""
    codec, stored = (ZLIB, zlib.compress(body, 1)) if len(body) >= _WORTH_COMPRESSING else (PLAIN, body)
    row = ref.columns(number=number, codec=codec, body=stored, created_at=now)
    check_sizes(connection, [row], "the raw body of a response", ("body",))
    return row


def decompress_body(codec: int, body: bytes) -> bytes:
    """Return a raw body from its stored form."""
    return zlib.decompress(body) if codec == ZLIB else body


# Reading


def read_body(handle: Handle, number: int) -> bytes:
    """A provider's body as it came; see `Conversation.response_body`."""
    ref, wanted = handle.ref, whole_number("number", number)
    table = response_bodies.c
    statement = select(table.codec, table.body).where(*ref.rows_of(table), table.number == wanted)

    def read(connection: Connection) -> bytes:
        get_row(connection, ref)
        row = connection.execute(statement).one_or_none()
        if row is None:
            raise errors.NotFound(
                f"{ref.public_id} has no raw body of response {wanted}: it does not exist, or has expired."
            )
        try:
            return decompress_body(row.codec, bytes(row.body))
        except zlib.error as error:
            raise errors.DamagedRow("response_bodies", f"number {wanted}", error) from error

    return handle.transactions.read(read)
