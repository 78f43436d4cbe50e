"""The usage ledger: one row for each call to a provider, written once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypedDict

from sqlalchemy import Connection, select, update

from threadkeep.db import backends, base, models
from threadkeep.db.driver.inserting import insert_statement
from threadkeep.domain import formats, ids, jsontext, printing
from threadkeep.domain.response import Response
from threadkeep.domain.usage import FIGURES, Cost, NormalizedUsage, Usage
from threadkeep.errors import InvalidOption, ProviderError, shown
from threadkeep.store.usage import observing, rollups
from threadkeep.store.usage.billing import BillableCall, terms_of, terms_of_call
from threadkeep.store.usage.prices import PriceBook
from threadkeep.store.work import erasures, idempotency, item_rows, validation
from threadkeep.store.work.handle import Handle
from threadkeep.store.work.refs import ConfigHashes, ConversationRef, get_row

if TYPE_CHECKING:
    from threadkeep.store.store import Store

UNKNOWN: Final = NormalizedUsage()
MAX_FIGURE: Final = 10**12  # no request has more tokens or takes so long, and sums of millions fit into 64 bits
MAX_LATENCY: Final = 2**53
MAX_TEXT: Final = 1000  # of a URL or a tier
_SUMMED: Final = (*FIGURES, "latency_ms", "first_token_ms")  # columns of figures
_COUNTS: Final = attrgetter(*FIGURES)


class CallInfo(TypedDict, total=False):
    """What the application knows about a call: the provider and its URL, the tier, how long it took, when, headers."""

    provider: str | None
    latency_ms: float | None
    first_token_ms: float | None
    occurred_at: datetime | None
    base_url: str | None
    service_tier: str | None
    headers: Mapping[str, str] | None


@dataclass(slots=True)
class Attempt:
    """What is known about one call to a provider."""

    format: str
    status: str | None
    model: str | None = None
    provider: str | None = None
    latency_ms: int | None = None
    first_token_ms: int | None = None
    figures: NormalizedUsage = UNKNOWN
    usage: jsontext.JsonObject | None = None
    error: jsontext.JsonObject | None = None
    cost: Cost | None = None
    terms: jsontext.JsonObject | None = None


def check_call(format: str, call: CallInfo) -> None:
    """Reject details of a call that cannot be stored, before anything begins."""
    formats.get_format(format)
    _provider(call)
    _text_of(call, "base_url")
    _text_of(call, "service_tier")
    milliseconds(call, "latency_ms")
    milliseconds(call, "first_token_ms")


def attempt_of(
    response: Response, format: str, call: CallInfo, prices: PriceBook, model: str | None, error: Any = None
) -> Attempt:
    """Return the attempt for a call with a response; `model` is the requested one, for responses that name none."""
    terms = terms_of(response, _text_of(call, "service_tier"), _text_of(call, "base_url"))
    attempt = _attempt(format, call, prices, response.model or model, response.status, response.usage, terms)
    attempt.error = _error_object(error)
    return attempt


def imported_attempt(
    format: str, call: CallInfo, prices: PriceBook, model: str | None, status: str | None, usage: Usage | None,
    error: Any = None,
) -> Attempt:  # fmt: skip
    """Return the attempt for a call of which other software knows this."""
    terms = terms_of_call(_text_of(call, "service_tier"), _text_of(call, "base_url"))
    attempt = _attempt(format, call, prices, model, status, usage, terms)
    attempt.error = _error_object(error)
    return attempt


def _attempt(
    format: str, call: CallInfo, prices: PriceBook, model: str | None, status: str | None, usage: Usage | None,
    terms: jsontext.JsonObject,
) -> Attempt:  # fmt: skip
    provider, model, cost = _provider(call), item_rows.fitting(model), None
    if usage is not None:
        cost = prices.cost(BillableCall(format, provider, model, usage.normalized, usage.raw, terms, moment_of(call)))
    return Attempt(
        format=format,
        status=item_rows.fitting(status),
        model=model,
        provider=provider,
        latency_ms=milliseconds(call, "latency_ms"),
        first_token_ms=milliseconds(call, "first_token_ms"),
        figures=UNKNOWN if usage is None else usage.normalized,
        usage=None if usage is None else usage.raw,
        cost=cost,
        terms=terms or None,
    )


def reported_attempt(
    format: str, call: CallInfo, prices: PriceBook, model: str | None, status: str, usage: Usage | None, error: Any
) -> Attempt:
    """Return the attempt for a call that the application reports."""
    attempt = failed_attempt(format, call, error, model, status)
    if usage is not None:
        attempt.figures, attempt.usage = usage.normalized, usage.raw or usage.to_dict() or None
        terms = attempt.terms or {}
        bill = BillableCall(
            format, attempt.provider, attempt.model, usage.normalized, attempt.usage, terms, moment_of(call)
        )
        attempt.cost = prices.cost(bill)
    return attempt


def failed_attempt(format: str, call: CallInfo, error: Any, model: str | None, status: str = "failed") -> Attempt:
    """Return the attempt for a call without a response."""
    formats.get_format(format)
    return Attempt(
        format=format,
        status=validation.identifier("status", status),
        model=item_rows.fitting(model),
        provider=_provider(call),
        latency_ms=milliseconds(call, "latency_ms"),
        first_token_ms=milliseconds(call, "first_token_ms"),
        error=_error_object(error),
        terms=terms_of_call(_text_of(call, "service_tier"), _text_of(call, "base_url")) or None,
    )


def record_attempt(
    handle: Handle,
    attempt: Attempt,
    key: idempotency.IdempotencyKey | None,
    hashes: ConfigHashes | None = None,
    *,
    response: int | None = None,
    at: datetime | None = None,
) -> None:
    """Write the ledger row of a call without a response, unless that was done under the same key.

    `hashes` name what the request was rendered with; None: what the conversation has now. `response`: the one
    that it gave; `at`: when it was made.
    """
    ref = handle.ref

    def write(connection: Connection) -> bool:
        now = datetime.now(UTC)
        row = get_row(connection, ref, is_locked=True)  # its user may be about to be erased
        if idempotency.find_outcome(connection, ref.scope.tenant, ref.key, key) is not None:
            return False
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, key, now, kind="attempt")
        tools = row.tool_set_hash if hashes is None else hashes.tools
        insert_attempt(connection, ref, attempt, at or now, user_id=row.user_id, response=response, tool_set_hash=tools)
        return True

    is_new = handle.transactions.write(write, is_repeatable=key is not None, is_short=True)
    if is_new and handle.resources.observers:
        observing.tell(handle, attempt)


def record_unstored(store: Store, call: observing.ObservedCall, key: int) -> None:
    """Write the ledger row of a call whose conversation is not in this store, with its prices, and tell the observers.

    `key` stands for its conversation: the row is there once, also where this is repeated. If the store's user was
    erased since the call began, which its scope says, it has figures alone.
    """
    handle, scope, attempt, now = store.handle, store.handle.new_scope, call.attempt, datetime.now(UTC)
    if attempt.usage is not None:
        bill = (attempt.format, attempt.provider, attempt.model, attempt.figures, attempt.usage, attempt.terms or {})
        attempt.cost = handle.resources.prices.cost(BillableCall(*bill, now))
    ref = ConversationRef(scope, key, call.conversation_id)

    def write(connection: Connection) -> None:
        is_there = select(models.usage_records.c.id).where(*ref.rows_of(models.usage_records.c))
        if connection.execute(is_there).first() is None:
            insert_attempt(connection, ref, attempt, now, user_id=scope.user)
        erasures.forget_user(connection, ref)

    handle.transactions.write(write, is_repeatable=True)
    observing.announce(call, handle.resources.observers)


def insert_attempt(
    connection: Connection, ref: ConversationRef, attempt: Attempt, now: datetime, **columns: Any
) -> int:
    """Write the ledger row of an attempt; return its id."""
    note_day(connection, ref, now)
    row = ref.columns(**attempt_columns(attempt, now), **columns)
    backends.check_sizes(connection, [row], "the usage ledger", ("usage", "error", "price", "terms"))
    insert_statement(models.usage_records).execute(connection, row)
    key: int = row["id"]
    return key


def complete_attempt(connection: Connection, ref: ConversationRef, response: int, attempt: Attempt) -> None:
    """Write what has come of a response into the ledger row that the removal of its conversation has left.

    That row has an error, unless its user was erased since: then the provider's objects are left out, too.
    """
    table = models.usage_records.c
    which = select(table.id, table.occurred_at).where(*ref.rows_of(table), table.response == response)
    row = connection.execute(which.order_by(table.id.desc()).limit(1).with_for_update()).one_or_none()
    if row is None:  # its tenant was deleted, too
        return
    note_day(connection, ref, row.occurred_at)
    columns = {**attempt_columns(attempt, row.occurred_at), "id": row.id}
    statement = update(models.usage_records).where(table.tenant_id == ref.scope.tenant, table.id == row.id)
    if not connection.execute(statement.where(table.error.is_not(None)).values(columns)).rowcount:
        content = (column.name for column in base.columns_holding(models.usage_records, "content"))
        connection.execute(statement.values(columns | dict.fromkeys(content)))


def note_day(connection: Connection, ref: ConversationRef, now: datetime) -> None:
    """Invalidate the sums of the day of a ledger row, unless it is today by the same clock."""
    if now.date() != datetime.now(UTC).date():
        rollups.invalidate(connection, ref.scope.tenant, now.date())


def attempt_columns(attempt: Attempt, now: datetime, id: int | None = None) -> dict[str, Any]:
    """Return the columns of the ledger row of an attempt that say what it was, with a new id if it has none.

    Only figures that can be summed have a column; absurdly large ones count as unknown, but stay in the provider's
    object.
    """
    cost = attempt.cost
    figures = (*_COUNTS(attempt.figures), attempt.latency_ms, attempt.first_token_ms)
    return {
        "id": ids.new_key() if id is None else id,
        "day": now.date(),
        "occurred_at": now,
        "provider": attempt.provider,
        "model": attempt.model,
        "format": attempt.format,
        "status": attempt.status,
        **{
            name: figure if figure is not None and 0 <= figure < MAX_FIGURE else None
            for name, figure in zip(_SUMMED, figures, strict=True)
        },
        "cost_nano": None if cost is None else cost.nano,
        "usage": json_text(attempt.usage),
        "error": json_text(attempt.error),
        "price": None if cost is None else cost.price,
        "terms": json_text(attempt.terms),
    }


def link_response(connection: Connection, ref: ConversationRef, attempt_id: int, response: int) -> None:
    """Record the response that an attempt did return; its figures do not change."""
    table = models.usage_records.c
    statement = update(models.usage_records).where(table.tenant_id == ref.scope.tenant, table.id == attempt_id)
    connection.execute(statement.values(response=response))


def _provider(call: CallInfo) -> str | None:
    provider = call.get("provider")
    return None if provider is None else validation.identifier("provider", provider)


def _text_of(call: CallInfo, name: str) -> str | None:
    value = call.get(name)
    if value is None or (isinstance(value, str) and 0 < len(value) <= MAX_TEXT):
        return value
    raise InvalidOption(f"must be a text of at most {MAX_TEXT} characters, not {shown(value)}.", argument=name)


def _error_object(error: Any) -> jsontext.JsonObject | None:
    """Return the message of an error without keys and passwords, which messages of HTTP clients may contain."""
    if isinstance(error, ProviderError):
        fields = {"code": error.code, "message": error.message, "type": error.type, "status": error.status}
        error = {name: value for name, value in fields.items() if value is not None}
    elif isinstance(error, BaseException):
        error = {"type": type(error).__name__, "message": str(error)}
    elif error is not None and not isinstance(error, dict):
        error = {"message": error if isinstance(error, str) else shown(error)}
    redacted: jsontext.JsonObject | None = None if error is None else printing.redact(error)
    return redacted


def moment_of(call: CallInfo) -> datetime:
    """When a call was made, as far as that was said; else it is made now."""
    at = call.get("occurred_at")
    return datetime.now(UTC) if at is None else validation.past_moment("occurred_at", at) or at


def milliseconds(call: CallInfo, name: str) -> int | None:
    """Return a time that is known about a call."""
    value: Any = call.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_LATENCY:
        raise InvalidOption(f"must be a number of milliseconds from 0 on, not {shown(value)}.", argument=name)
    return round(value)


def json_text(value: Any) -> str | None:
    """Return the JSON text of a value that may be unknown."""
    return None if value is None else jsontext.dumps_any(value).decode()
