"""How large the requests to upstreams may be: each, and all together that a process has in memory."""

from __future__ import annotations

from threading import Lock
from typing import Final

from threadkeep.http.problems import Problem
from threadkeep.web.owners import Owner
from threadkeep.web.tallies import Tally

MAX_BYTES: Final = 64 * 1024 * 1024  # of a request; no provider takes more
OF_OWNER: Final = 2 * MAX_BYTES  # of all requests of an owner that are being answered …
IN_ALL: Final = 4 * MAX_BYTES  # … and of all owners
SMALL: Final = 1024 * 1024  # bytes of a request that does not count
RETRY_SECONDS: Final = 5  # after which somebody who has too many may try again


class Rooms:
    """The bytes of large requests that are being answered, by the names of their owners."""

    def __init__(self) -> None:
        self._taken, self._lock = Tally(), Lock()

    def take(self, owner: Owner, size: int) -> int:
        """Take room for a request of this size; return how much, to be given back.

        Raises:
            Problem: it is too large, or too much is taken.
        """
        if size > MAX_BYTES:
            text = f"The history of the conversation is too large to be sent: it has {size:,} bytes, of at most"
            raise Problem(413, f"{text} {MAX_BYTES:,}.", param="conversation", code="request_too_large")
        if size <= SMALL:
            return 0
        headers = {"retry-after": str(RETRY_SECONDS)}
        with self._lock:
            if self._taken[owner.name] + size > OF_OWNER:
                text = "Too many large conversations are being answered with this key."
                raise Problem(429, text, code="too_many_large_requests", headers=headers)
            if self._taken.total() + size > IN_ALL:
                text = "Too many large conversations are being answered."
                raise Problem(503, text, code="overloaded", type="server_error", headers=headers)
            self._taken.add(owner.name, size)
        return size

    def give_back(self, owner: Owner, size: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self._taken.add(owner.name, -size)
