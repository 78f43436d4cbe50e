"""Rows of the ledger that the application reports: calls without a response, and usage of what is stored already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from threadkeep.domain.formats import get_format
from threadkeep.domain.objects import dumped, mismatch
from threadkeep.domain.usage import FIGURES, NormalizedUsage, Usage, figure
from threadkeep.errors import InvalidOption
from threadkeep.store import ledger
from threadkeep.store.handle import Handle
from threadkeep.store.idempotency import IdempotencyKey
from threadkeep.store.ledger import CallInfo
from threadkeep.store.response_lookup import get_place
from threadkeep.store.validation import past_moment

COMPLETED, FAILED = "completed", "failed"


class Report(NamedTuple):
    """What the application says about a call."""

    error: Any
    model: str | None
    status: str | None
    usage: Any
    response: int | str | None


def record_attempt(handle: Handle, format: str, call: CallInfo, report: Report, key: str | None) -> None:
    """Write a row of the ledger; see `Conversation.record_attempt`."""
    usage = usage_from(report.usage, format)
    at = past_moment("occurred_at", call.get("occurred_at"))
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
    once = IdempotencyKey.of(key, "record_attempt", content)
    ledger.record_attempt(handle, attempt, once, hashes, response=number, at=at)


def usage_from(usage: Any, format: str) -> Usage | None:
    """The usage of a call: an object as providers of a format send it, or one that was read already."""
    wire = get_format(format)
    if usage is None or isinstance(usage, Usage):
        return usage
    if isinstance(usage, NormalizedUsage):
        figures = {name: figure(getattr(usage, name)) for name in FIGURES}
        return Usage(raw=usage.to_dict() or None, normalized=NormalizedUsage(**figures))
    value = dumped(usage)
    if not isinstance(value, Mapping) or not value:
        hint = "Pass the usage object of the provider's response."
        raise mismatch(InvalidOption, "a usage object", usage, "usage", hint)
    return wire.usage_of(dict(value))
