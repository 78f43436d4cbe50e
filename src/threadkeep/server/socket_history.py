"""What a WebSocket of the Responses API remembers: what was said and answered, with which later requests go on.

A request with `previous_response_id` brings only what is new. Where that response is not stored, only the connection
knows the rest. Source: OpenAI's guide to the WebSocket mode.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.server.quotas import Quota, QuotaExceeded

MAX_REMEMBERED: Final = 8  # responses of a connection


class RememberedResponse(NamedTuple):
    """A response of a connection, or what a response to a request will go on with.

    Attributes:
        base: the response with which it went on, and that the connection does not know; None for none.
        parts: JSON texts of items, with commas between them: what was said and answered since.
    """

    base: Any
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(map(len, self.parts))

    def with_items(self, items: Iterable[Any]) -> RememberedResponse:
        """Return what it is with more items."""
        return self._replace(parts=(*self.parts, *filter(None, (dumps(list(items))[1:-1],))))


class SocketHistory:
    """The responses that a connection remembers: the last ones, as far as there is room."""

    def __init__(self, quota: Quota, owner: Hashable) -> None:
        """`quota`: of bytes, which the connections of an owner share."""
        self._quota, self._owner = quota, owner
        self._known: OrderedDict[str, RememberedResponse] = OrderedDict()

    def take(self, size: int) -> None:
        """Count so many bytes more, besides what is remembered; QuotaExceeded where there is no room."""
        self._quota.take(self._owner, size)

    def give_back(self, size: int) -> None:
        """Count so many less."""
        self._quota.give_back(self._owner, size)

    def take_again(self, id: Any) -> int:
        """Count a response once more, for a request that goes on with it; others give way. Return its bytes.

        QuotaExceeded: there is no room.
        """
        known = self._known.get(str(id))
        size = 0 if known is None else known.size
        while True:
            try:
                self._quota.take(self._owner, size)
            except QuotaExceeded:
                if (other := next((one for one in self._known if one != str(id)), None)) is None:
                    raise
                self.forget(other)
            else:
                return size

    def joined(self, body: JsonObject) -> tuple[bytes, RememberedResponse]:
        """Return the JSON text of a request with the history that is remembered, and what goes on from it.

        The input of the request must be a text or a list, or be missing.
        """
        previous, given = body.get("previous_response_id"), body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
        known = self._known.get(str(previous))
        history = (known or RememberedResponse(previous, ())).with_items(items)
        if known is None:
            return dumps(body), history
        rest = {key: value for key, value in body.items() if key != "input"} | {"previous_response_id": known.base}
        return b'{"input":[%b],%b' % (b",".join(history.parts), dumps(rest)[1:]), history

    def remember(self, id: str, response: RememberedResponse) -> None:
        """Remember a response, in place of others; where there is no room, it is not known, and requests bring all."""
        self.forget(id)
        while len(self._known) >= MAX_REMEMBERED:
            self.forget(next(iter(self._known)))
        while True:
            try:
                self._quota.take(self._owner, response.size)
            except QuotaExceeded:
                if not self._known:
                    return
                self.forget(next(iter(self._known)))
            else:
                self._known[id] = response
                return

    def forget(self, id: Any) -> None:
        """Forget a response, if it is known."""
        if str(id) in self._known:
            self._quota.give_back(self._owner, self._known.pop(str(id)).size)

    def close(self) -> None:
        """Forget all."""
        while self._known:
            self.forget(next(iter(self._known)))
