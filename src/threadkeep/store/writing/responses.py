"""Responses: storing a provider's response (items, response, raw body and ledger row), and reading stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, select

from threadkeep import errors
from threadkeep.db.models import configs, response_bodies, responses, tool_sets, usage_records
from threadkeep.db.queries.appends import FIRST, NUMBER
from threadkeep.domain import formats, ids, items, rendering
from threadkeep.domain.jsontext import JsonObject, bytes_as_text, dumped, dumps, loads, mismatch
from threadkeep.domain.response import Response, asked_of
from threadkeep.domain.stored import StoredAt
from threadkeep.formats.shared.parsing import with_cut_items, without_known
from threadkeep.store.usage import ledger
from threadkeep.store.usage.ledger import Attempt, CallInfo, attempt_of, json_text
from threadkeep.store.work import connections, idempotency, item_rows, positions, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.positions import AppendOptions, Counts, HeadCheck, Reservation, reserve
from threadkeep.store.work.refs import BranchRef, ConfigHashes, ConversationRef
from threadkeep.store.work.states import check_states, lock_conversation, write_states
from threadkeep.store.writing import appending
from threadkeep.store.writing.attempts import ResponseResult, find_refusal, refuse

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


def request_info(handle: Handle, format: str, rendered: rendering.Rendered | None) -> RequestInfo:
    """Return what is known about a request; without one, it is assumed to have shown everything up to the head."""
    if rendered is None:
        return RequestInfo(None, handle.cache.head, None)
    if not isinstance(rendered, rendering.Rendered):
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
        "response_hash": ids.short_hash(response.id or None),
        "model": response.model,
        "status": item_rows.fitting(response.status),
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

    records: Sequence[item_rows.ItemRecord]
    body: bytes | None
    attempt: Attempt
    columns: JsonObject  # of the responses row, by name
    key: idempotency.IdempotencyKey | None = None
    input: appending.NewItems = appending.NO_ITEMS  # what it answers, where that is stored with it

    @classmethod
    def of(
        cls,
        response: Response,
        body: bytes | None,
        attempt: Attempt,
        key: idempotency.IdempotencyKey | None,
        input: appending.NewItems = appending.NO_ITEMS,
        *,
        maker: str | None = None,
    ) -> NewResponse:
        """Return a response with its items; raise InvalidItem if one of them cannot be stored."""
        records = [
            item_rows.encode_item(item.to_object(), model=response.model, maker=maker, given=items.given_of(item))
            for item in response.output
        ]
        return cls(records, body, attempt, response_columns(response, attempt.format), key, input)

    @property
    def all_records(self) -> Sequence[item_rows.ItemRecord]:
        """What it answers, and its items."""
        return [*self.input.records, *self.records] if self.input.records else self.records

    @property
    def counts(self) -> Counts:
        """What it takes of its conversation."""
        return Counts(items=len(self.input.records) + len(self.records), responses=1)

    def shown(self, request: RequestInfo) -> int:
        """The last position that the request showed; what is stored with the response is behind it."""
        return validation.MAX_POSITION if self.input.records else request.head

    def rows(self, ref: BranchRef, request: RequestInfo, stored_at: datetime) -> appending.AppendedRows:
        """The rows of the response and of all that is stored with it, but for that in the ledger."""
        first, seen = len(self.input.records), self.shown(request)
        last = first + len(self.records) - 1
        row = self.columns | _configured(request) | {
            "input_to": seen, "before": first - 1, "from_position": first, "to_position": last,
            "view": json_text(request.view),
        }  # fmt: skip
        return [
            *appending.item_rows(self.input.records, self.input.turns),
            *appending.item_rows(self.records, first=first, seen=seen),
            (responses, row),
            *([] if self.body is None else [(response_bodies, item_rows.body_columns(self.body, stored_at))]),
            appending.change_row(ref, last),
        ]

    def ledger_row(self, request: RequestInfo, now: datetime) -> tuple[Table, JsonObject]:
        """Its row in the ledger."""
        return usage_records, ledger.attempt_columns(self.attempt, now) | _configured(request)

    def outcome(self, number: int | str, first: int | str, branch: int) -> JsonObject:
        """What is kept under its idempotency key."""
        outcome = {"kind": "response", "number": number, "first": first, "branch": branch}
        return outcome | {"input": len(self.input.records)} if self.input.records else outcome

    def result(self, reservation: Reservation, request: RequestInfo, now: datetime) -> ResponseResult:
        """Where it is stored."""
        count, at = len(self.input.records), reservation
        first = at.first + count
        asked = appending.AppendResult(at.first, count, at.branch, at.revision, now) if count else None
        input_to = min(self.shown(request), first - 1)
        return ResponseResult(at.response, first, at.branch, at.revision, input_to, input=asked)


def add_response(
    handle: Handle, body: Any, format: str, rendered: rendering.Rendered | None, options: AppendOptions, call: CallInfo
) -> Response:
    """Append a provider's response; see `Conversation.add_response`."""
    return add_answer(handle, body, format, rendered, options, call)[0]


def _history(handle: Handle) -> list[JsonObject]:
    return [entry.item() for entry in handle.read_snapshot(is_current=True).entries]


def add_answer(
    handle: Handle,
    body: Any,
    format: str,
    rendered: rendering.Rendered | None,
    options: AppendOptions,
    call: CallInfo,
    turn: appending.TurnItems = appending.NO_TURN,
) -> tuple[Response, ResponseResult]:
    """Append a provider's response, with what it answers in front of it where that is given as a `turn`."""
    ref, wire, headers = handle.ref, formats.get_format(format), call.get("headers")
    if headers is not None and not isinstance(headers, Mapping):
        raise mismatch(errors.InvalidOption, "a dict of header names and values", headers, "headers")
    occurred_at = validation.past_moment("occurred_at", call.get("occurred_at"))
    dated: JsonObject = {} if occurred_at is None else {"occurred_at": occurred_at.isoformat()}
    check = positions.head_check(options)._replace(at=occurred_at)
    raw, value = _raw_and_value(body)
    model = handle.cache.conversation.settings.get("model")
    content = {"format": format, "body": value, **turn.content, **dated}
    key = positions.idempotency_key(options, turn.method, content)
    request = request_info(handle, format, rendered)
    try:
        response = with_cut_items(without_known(wire.parse_response(value, headers), lambda: _history(handle)))
    except errors.ProviderError as error:  # its ledger row is written, then it is raised
        named = value.get("model") if isinstance(value, dict) else None
        attempt = ledger.failed_attempt(format, call, error, named if isinstance(named, str) and named else model)
        ledger.record_attempt(handle, attempt, key, request.hashes, at=occurred_at)
        raise
    attempt = attempt_of(response, format, call, handle.resources.prices, model)
    settings = handle.cache.conversation.settings
    maker = asked_of(settings, request.view, attempt.provider).answering(response.model)
    new = NewResponse.of(response, raw, attempt, key, turn.items, maker=maker.text)
    result = appending.write_items(
        handle.transactions, ref.scope, new.all_records,
        lambda connection: store_response(connection, ref, new, request, check), is_repeatable=key is not None,
        at_once=lambda connection: _store_at_once(connection, ref, new, request, check),
    )  # fmt: skip
    if isinstance(result, errors.Conflict):
        raise result
    if result.input is not None:
        new.input.take_in(handle, result.input)
    if not result.is_replayed and result.branch == ref.branch:
        handle.cache.append(new.records, result.first, result.revision, turn=result.first, seen=result.input_to)
    handle.after_response(attempt, new.columns, is_new=not result.is_replayed)
    stored = StoredAt(result.branch, result.number)
    return response.model_copy(update={"replayed": result.is_replayed, "stored": stored}), result


def store_response(
    connection: Connection, ref: BranchRef, new: NewResponse, request: RequestInfo, check: HeadCheck
) -> ResponseResult | errors.Conflict:
    """Write a response. A refusal is a result: its ledger row must be committed before it is raised."""
    stored_at = datetime.now(UTC)
    now = check.at or stored_at
    try:
        reservation, refusal = _reserve(connection, ref, new, check, now)
    except (errors.HeadConflict, errors.ResponseInProgress, errors.StateConflict) as conflict:
        return refuse(connection, ref, new.attempt, new.key, request.hashes, check, conflict)
    request = stored_request(connection, ref, request, check, reservation)
    rows = new.rows(ref, request, stored_at)
    if refusal is None:
        ledger.note_day(connection, ref, now)
        rows.append(new.ledger_row(request, now))
    appending.write_rows(connection, ref, reservation, rows, now, new.all_records)
    result = new.result(reservation, request, now)
    if new.key is not None:
        outcome = new.outcome(result.number, result.first, result.branch)
        if refusal is None:
            idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, new.key, now, **outcome)
        else:  # refused before under this key: its ledger row exists
            ledger.link_response(connection, ref, refusal["usage"], result.number)
            idempotency.replace_outcome(connection, ref.scope.tenant, ref.key, new.key, **outcome)
    return result


def _store_at_once(
    connection: Connection, ref: BranchRef, new: NewResponse, request: RequestInfo, check: HeadCheck
) -> ResponseResult | None:
    """Write a response in one statement of PostgreSQL; None where that takes a transaction."""
    now, count = datetime.now(UTC), len(new.input.records)
    rows = [*new.rows(ref, request, now), new.ledger_row(request, now)]
    if new.key is not None:
        rows.append(appending.kept_row(new.key, new.outcome(NUMBER, FIRST, ref.branch), count))
    reservation = appending.write_at_once(connection, ref, check, new.counts, rows, now, new.all_records)
    return None if reservation is None else new.result(reservation, request, now)


def _reserve(
    connection: Connection, ref: BranchRef, new: NewResponse, check: HeadCheck, now: datetime
) -> tuple[Reservation, JsonObject | None]:
    """Reserve what a response takes, and write the states; with the refusal under its key that no longer applies."""
    counts = new.counts
    if check.states:  # compared before anything is reserved, so that nothing has to be given back
        lock_conversation(connection, ref)
        refusal, found = find_refusal(connection, ref, new.key, check), check_states(connection, ref, check.states)
        reservation = reserve(connection, ref, check, now, counts)
        write_states(connection, ref, check.states, now, found)
        return reservation, refusal
    try:
        reservation = reserve(connection, ref, check, now, counts)
    except connections.StreamBlocksWrite:
        find_refusal(connection, ref, new.key, check)
        raise
    return reservation, None if new.key is None else find_refusal(connection, ref, new.key, check)


def stored_request(
    connection: Connection, ref: BranchRef, request: RequestInfo, check: HeadCheck, reservation: Reservation
) -> RequestInfo:
    """What is stored of a request, now that it is known where its response goes.

    On a branch that was made for the response, it showed at most what is there before. Where its options or tools are
    no longer stored, it cannot be replayed: it counts as not recorded.
    """
    if check.expected_head is not None and reservation.branch != ref.branch:
        request = request._replace(head=min(request.head, check.expected_head))
    current = ConfigHashes(reservation.config_hash, reservation.tool_set_hash)
    if request.hashes in (None, current) or _has_hashes(connection, ref, request.hashes):
        return request
    return request._replace(view=None, hashes=None)


def _has_hashes(connection: Connection, ref: ConversationRef, hashes: ConfigHashes) -> bool:
    for table, hash_ in ((configs, hashes.config), (tool_sets, hashes.tools)):
        stored = select(table.c.hash).where(table.c.tenant_id == ref.scope.tenant, table.c.hash == hash_)
        if hash_ is not None and connection.execute(stored).first() is None:
            return False
    return True


def _configured(request: RequestInfo) -> JsonObject:
    """The options and tools of a request; without them, a row has the conversation's."""
    if request.hashes is None:
        return {"is_configured": 0, "config_hash": None, "tool_set_hash": None}
    return {"is_configured": 1, "config_hash": request.hashes.config, "tool_set_hash": request.hashes.tools}


# Raw bodies
