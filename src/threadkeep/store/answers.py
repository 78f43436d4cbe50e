"""Provider bodies on their way into rows: read and checked before any transaction begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypedDict

from threadkeep.domain.cost import Cost
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.media import bytes_as_text
from threadkeep.domain.objects import dumped, shown
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.domain.wire import Rendered, get_format
from threadkeep.errors import CannotParse, InvalidOption, ProviderError
from threadkeep.store.actions.ledger import UNKNOWN, Attempt
from threadkeep.store.actions.responses import Answer
from threadkeep.store.drafts import Draft, drafted, fitting
from threadkeep.store.place import Configuration, identifier, once, optional_identifier
from threadkeep.store.prices import PriceBook, Served
from threadkeep.store.requests import How, guard_of

DEFAULT_PRICES: Final = PriceBook()


class Call(TypedDict, total=False):
    """What is known of a call to a provider: who answered, after how many milliseconds, with which HTTP headers.

    `asked` is the model that was asked, for answers that name none; `prices` are the store's.
    """

    provider: str | None
    latency_ms: float | None
    headers: Mapping[str, str] | None
    asked: str | None
    prices: PriceBook


@dataclass(slots=True)
class ParsedBody:
    """A provider's body, read: a response, or the error that it holds."""

    raw: bytes
    value: Any
    response: Response | None
    error: ProviderError | None


def parsed_body(body: Any, format: str, headers: Mapping[str, str] | None) -> ParsedBody:
    """Read a provider's body: a dict, JSON text, or an object of the provider's SDK.

    Raises:
        UnknownFormat, CannotParse, InvalidOption: it cannot be read; nothing is to be stored.
    """
    wire = get_format(format)
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidOption(f"headers is a mapping of names to values, not {shown(headers)}.")
    raw, value = _raw(body)
    try:
        return ParsedBody(raw, value, wire.parse_response(value, headers), None)
    except ProviderError as error:
        return ParsedBody(raw, value, None, error)


def _raw(body: Any) -> tuple[bytes, Any]:
    if isinstance(body, bytes | bytearray | str):
        data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
        try:
            return data, loads(data)
        except ValueError as error:
            raise CannotParse(f"The response body is not JSON: {error}. It begins with {data[:80]!r}.") from error
    if isinstance(body, Response):
        raise InvalidOption(
            "This Response was parsed already, and its body is not known any more. Give the body as the provider "
            'sent it; where there is none, response.to_dict() with the format "open_responses".'
        )
    value = bytes_as_text(dumped(body))
    return dumps(value), value


def answer_of(parsed: ParsedBody, format: str, head: int, rendered: Rendered | None, how: How, call: Call) -> Answer:
    """A parsed body on its way into rows; without `rendered` the request is taken to have shown all items.

    Raises:
        InvalidItem, InvalidOption: it cannot be stored.
    """
    response = parsed.response
    if response is None:
        raise CannotParse("There is no response to be stored.")
    asked = asked_with(rendered, head)
    return Answer(
        drafts=drafts_of(response),
        body=parsed.raw,
        attempt=attempt_of(format, call, response=response),
        input_to=asked.head,
        columns=columns_of(response, format),
        view=asked.view,
        configured=asked.configured,
        once=_response_once(parsed, format, how),
        guard=guard_of(how),
    )


class Asked(NamedTuple):
    """What is known of a request: its view, the last position that it showed, and its options and tools."""

    view: JsonObject | None
    head: int
    configured: Configuration | None


def asked_with(rendered: Rendered | None, head: int) -> Asked:
    """What is known of a request; without one it is taken to have shown everything up to `head`.

    Raises:
        InvalidOption: it is no rendered request.
    """
    if rendered is None:
        return Asked(None, head, None)
    if not isinstance(rendered, Rendered):
        raise InvalidOption(f"rendered= is what render() returned, not {type(rendered).__name__}.")
    return Asked(rendered.view, rendered.head, rendered.configured)


def drafts_of(response: Response) -> list[Draft]:
    """The items of a response on their way into rows.

    Raises:
        InvalidItem: one of them cannot be stored.
    """
    return [drafted(item.to_object(), model=response.model) for item in response.output]


def columns_of(response: Response, format: str) -> JsonObject:
    """What the row of a response says of it."""
    return {
        "format": format,
        "provider_response_id": response.id,
        "model": response.model,
        "status": fitting(response.status),
        "finish_reason": response.finish_reason,
        "incomplete_details": _json(response.incomplete_details),
        "error": _json(response.error),
        "provider_data": _json(response.provider_data or None),
        "completed_at": _moment(response.completed_at),
    }


def _response_once(parsed: ParsedBody, format: str, how: How) -> Any:
    key = how.get("idempotency_key")
    return None if key is None else once(key, "add_response", {"format": format, "body": parsed.value})


def failure_of(parsed: ParsedBody, format: str, how: How, call: Call, model: str | None = None) -> tuple[Attempt, Any]:
    """The ledger row of an error envelope, and the key it is written under.

    `model` is the one that was asked, for envelopes that name none.
    """
    named = parsed.value.get("model") if isinstance(parsed.value, dict) else None
    asked = named if isinstance(named, str) and named else model
    return attempt_of(format, call, error=parsed.error, model=asked), _response_once(parsed, format, how)


def attempt_of(
    format: str,
    call: Call,
    *,
    response: Response | None = None,
    error: Any = None,
    model: str | None = None,
    status: str = "failed",
) -> Attempt:
    """What the ledger keeps of a call."""
    get_format(format)
    usage = None if response is None else response.usage
    named = fitting((None if response is None else response.model) or model or call.get("asked"))
    provider = optional_identifier("provider", call.get("provider"))
    return Attempt(
        format=format,
        status=identifier("status", status) if response is None else fitting(response.status),
        model=named,
        provider=provider,
        latency_ms=_milliseconds(call.get("latency_ms")),
        figures=UNKNOWN if usage is None else usage.normalized,
        usage=None if usage is None else usage.raw,
        error=_error(error),
        cost=None if response is None or usage is None else _cost(response, usage, format, provider, named, call),
    )


def _cost(
    response: Response, usage: Usage, format: str, provider: str | None, model: str | None, call: Call
) -> Cost | None:
    tier = response.service_tier or (response.provider_data or {}).get("service_tier")
    served = Served(format, provider, model, usage.normalized, usage.raw, tier, datetime.now(UTC))
    return call.get("prices", DEFAULT_PRICES).cost(served)


def _error(error: Any) -> JsonObject | None:
    if error is None or isinstance(error, dict):
        return error
    if isinstance(error, ProviderError):
        facts = {"code": error.code, "message": error.message, "type": error.type, "status": error.status}
        return {name: value for name, value in facts.items() if value is not None}
    if isinstance(error, BaseException):
        return {"type": type(error).__name__, "message": str(error)}
    return {"message": str(error)}


def _milliseconds(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise InvalidOption(f"latency_ms is a number of milliseconds, not {value!r}.")
    return round(value)


def _json(value: Any) -> str | None:
    return None if value is None else dumps(value).decode()


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
