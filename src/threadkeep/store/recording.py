"""What a recorder of either face does, but for waiting: it takes in events and says what is to be written."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any, Final

from threadkeep.domain.jsontext import dumps
from threadkeep.domain.media import bytes_as_text
from threadkeep.domain.response import Response, body_object
from threadkeep.domain.stored import StoredAt
from threadkeep.domain.wire import Rendered, get_format
from threadkeep.errors import InvalidItem, InvalidOption, TooLarge
from threadkeep.store.actions.streams import Beginning, Begun, Ended, Ending, Part, begin, finish, write_part
from threadkeep.store.answers import DEFAULT_PRICES, Call, asked_with, attempt_of
from threadkeep.store.endings import LeftBehind, ending_of, ending_without_items, kept_response, told_of
from threadkeep.store.place import Once, Place, once
from threadkeep.store.plans import Plan
from threadkeep.store.requests import How, guard_of
from threadkeep.store.state import State

LEASE_SECONDS: Final = 60.0
LONGEST_LEASE: Final = 86_400
PART_BYTES: Final = 4 * 1024  # a part is written when this much has come …
PART_SECONDS: Final = 0.5  # … or when the part before is this old
_DONE: Final = {"[DONE]", b"[DONE]"}  # how some providers say that no event follows


class Recording:
    """A response that is being streamed, from its first event to its end."""

    def __init__(
        self, place: Place, state: State, format: str, *, rendered: Rendered | None, how: How, call: Call, lease: object
    ) -> None:
        self._place, self._state, self._format, self._call = place, state, format, call
        self.assembler = get_format(format).assembler(call.get("headers"))
        attempt_of(format, call)  # what cannot be used is refused before anything is begun
        self._lease = _checked_lease(lease)
        self._interval = min(PART_SECONDS, self._lease.total_seconds() / 3)
        self._asked: str | None = state.found.settings.get("model")
        self._once = _once(format, how)
        request = asked_with(rendered, state.head)
        self._beginning = Beginning(
            format=format,
            token=secrets.token_bytes(16),
            lease=self._lease,
            input_to=request.head,
            notes={"model": self._asked, "provider": call.get("provider")},
            view=request.view,
            configured=request.configured,
            once=self._once,
            guard=guard_of(how),
        )
        self._events: list[bytes] = []
        self._size = self._part = 0
        self._is_fed = False
        self._started = self._written = monotonic()
        self.number: int | None = None
        self.branch: int | None = None
        self.response: Response | None = None

    def beginning(self) -> Plan[None]:
        """The plan that makes the row of the response."""

        def finished(found: Begun) -> None:
            self.number, self.branch = found.number, found.branch
            self._started, self._written = monotonic(), float("-inf")
            if found.kept is not None:
                self._end(kept_response(self._format, found.kept))

        return self._plan(begin, self._beginning, finish=finished, is_keyed=self._once is not None)

    def fed(self, event: Any) -> Plan[None] | None:
        """Take in an event; the plan to be run now, if one is.

        Raises:
            CannotParse: it is no event.
        """
        self._number()
        if self.response is not None or (isinstance(event, str | bytes) and event.strip() in _DONE):
            return None
        found = bytes_as_text(body_object(event))
        self.assembler.feed(found)
        text = dumps(found)
        self._events.append(text)
        self._size += len(text)
        self._is_fed = True
        is_due = self._size >= PART_BYTES or monotonic() - self._written >= self._interval
        return self._writing() if is_due else None

    def _writing(self) -> Plan[None]:
        events, self._events, self._size = self._events, [], 0
        self._part += 1
        self._written = monotonic()
        part = Part(self._number(), self._beginning.token, self._lease, self._part, events)
        return self._plan(write_part, part, is_keyed=True)

    def ending(self, error: BaseException | None = None, *, is_cancelled: bool = False) -> Plan[None]:
        """The plan that writes the response as it has come.

        Raises:
            InvalidItem: it cannot be stored; `ending_badly` then.
        """
        response = told_of(self.assembler.response, error, is_cancelled=is_cancelled)
        body = dumps(self.assembler.body) if self._is_fed else None
        call = self._measured()
        ending = ending_of(response, body, call, asked=self._asked, error=error, once=self._once)
        return self._finishing(ending, response)

    def ending_badly(self, error: InvalidItem | TooLarge) -> Plan[None]:
        """The plan that only writes down the attempt: what came cannot be stored."""
        response = self.assembler.response
        call = self._measured()
        return self._finishing(ending_without_items(response, call, asked=self._asked, error=error), response)

    def _finishing(self, ending: Ending, response: Response) -> Plan[None]:
        number, branch = self._number(), self.branch or 0
        place = Place(self._place.scope, self._place.key, self._place.public_id, branch)

        def finished(done: Ended) -> None:
            self._end(response)
            if done.is_gone:
                raise place.missing()
            if branch == self._place.branch:
                self._state.appended(ending.drafts, done.first, done.revision, turn=done.first, seen=done.shown)

        arguments = (place, number, self._beginning.token, ending)
        return Plan(finish, arguments, finished, is_write=True, is_keyed=True)

    def _end(self, response: Response) -> None:
        stored = StoredAt(self.branch or 0, self._number())
        self.response = response.model_copy(update={"stored": stored})

    def _measured(self) -> Call:
        """What is known of the call; its latency is measured unless it was told."""
        told = self._call.get("latency_ms")
        measured = round((monotonic() - self._started) * 1000)
        return {**self._call, "latency_ms": measured if told is None else told}

    def _number(self) -> int:
        if self.number is None:
            raise InvalidOption("This stream has not begun: use the recorder in a `with` statement.")
        return self.number

    def _plan(
        self, action: Callable[..., Any], argument: Any, *, finish: Callable[[Any], None] = lambda _: None,
        is_keyed: bool = False,
    ) -> Plan[None]:  # fmt: skip
        endings = LeftBehind(self._call.get("prices", DEFAULT_PRICES))
        return Plan(action, (self._place, argument), finish, is_write=True, is_keyed=is_keyed, endings=endings)


def _once(format: str, how: How) -> Once | None:
    """The key of a stream: what it brings is not known before, so the hash covers the format alone."""
    return once(how.get("idempotency_key"), "stream_response", {"format": format})


def _checked_lease(lease: object) -> timedelta:
    """How long a recorder may say nothing before another writer may end its response.

    Raises:
        InvalidOption: it is no number of seconds above 0.
    """
    seconds = lease.total_seconds() if isinstance(lease, timedelta) else lease
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_LEASE:
        raise InvalidOption(f"lease is a number of seconds from above 0 to {LONGEST_LEASE}, not {lease!r}.")
    return timedelta(seconds=seconds)
