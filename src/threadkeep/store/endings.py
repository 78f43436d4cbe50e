"""How a streamed response ends: from the events that came to what is stored of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.jsontext import dumps, loads
from threadkeep.domain.response import Response
from threadkeep.domain.wire import Assembler, get_format
from threadkeep.errors import FormatError
from threadkeep.formats.streams import BROKEN_OFF
from threadkeep.store.actions.numbers import CANCELLED, INCOMPLETE
from threadkeep.store.actions.streams import Ending, Kept, Left
from threadkeep.store.answers import DEFAULT_PRICES, Call, attempt_of, columns_of, drafts_of
from threadkeep.store.place import Once
from threadkeep.store.prices import PriceBook

LEAVING: Final = (asyncio.CancelledError, GeneratorExit)  # how a task or generator is told to stop: no failure


def told_of(found: Response, error: BaseException | None, *, is_cancelled: bool) -> Response:
    """The response of a stream that was left: by an exception, by `cancel`, or at its end."""
    is_left = is_cancelled or (isinstance(error, LEAVING) and found.status == INCOMPLETE)
    if not is_left or found.status == "failed":
        return found
    details = None if found.incomplete_details == BROKEN_OFF else found.incomplete_details
    return found.model_copy(update={"status": CANCELLED, "incomplete_details": details})


def ending_of(
    response: Response,
    body: bytes | None,
    call: Call,
    *,
    asked: str | None,
    error: Any = None,
    once: Once | None = None,
) -> Ending:
    """A response on its way into rows; `asked` is the model that was asked, for answers that name none.

    Raises:
        InvalidItem: it cannot be stored.
    """
    return Ending(drafts_of(response), body, *_columns(response, call, asked, error), once=once)


def ending_without_items(response: Response, call: Call, *, asked: str | None, error: BaseException) -> Ending:
    """The same where the items cannot be stored: only what is known of the attempt."""
    failed = response.model_copy(update={"status": "failed", "provider_data": None})
    return Ending((), None, *_columns(failed, call, asked, error))


def _columns(response: Response, call: Call, asked: str | None, error: Any) -> tuple[Any, Any]:
    name = str(response.format)
    told = response.error if response.error is not None else None if isinstance(error, LEAVING) else error
    named = response if response.model is not None else response.model_copy(update={"model": asked})
    return attempt_of(name, call, response=named, error=told), columns_of(response, name)


class LeftBehind:
    """Makes an ending of what a recorder left that was not heard of any more, or that somebody else ends.

    `prices` are those of the store that ends it.
    """

    def __init__(self, prices: PriceBook = DEFAULT_PRICES) -> None:
        self._prices = prices

    def of(self, left: Left) -> Ending:
        """The ending with all that came."""
        assembler = _assembled(left)
        response = told_of(assembler.response, None, is_cancelled=left.status == CANCELLED)
        body = dumps(assembler.body) if left.events else None
        found = ending_of(response, body, self._call(left.notes), asked=left.notes.get("model"))
        return replace(found, keeps_token=False)

    def without_items(self, left: Left, error: Exception) -> Ending:
        """The ending where the items cannot be stored."""
        response = _assembled(left).response
        found = ending_without_items(response, self._call(left.notes), asked=left.notes.get("model"), error=error)
        return replace(found, keeps_token=False)

    def _call(self, notes: Mapping[str, Any]) -> Call:
        return {"provider": notes.get("provider"), "prices": self._prices}


def _assembled(left: Left) -> Assembler:
    assembler = get_format(left.format).assembler()
    with suppress(FormatError):
        for event in left.events:
            assembler.feed(event)
    return assembler


def kept_response(format: str, kept: Kept) -> Response:
    """The response that was stored under an idempotency key, read anew from its raw body."""
    row = kept.columns
    told = {"id": row.get("provider_response_id"), "model": row.get("model"), "status": row.get("status")}
    told |= {name: loads(row[name]) for name in ("incomplete_details", "error") if row.get(name) is not None}
    found = Response(format=format)
    if kept.body is not None:  # it may have expired
        with suppress(FormatError):
            found = get_format(format).parse_response(kept.body)
    return found.model_copy(update={**told, "replayed": True})
