"""What appends leave to be done: every now and then, one of them lets the search see what is new."""

from __future__ import annotations

from typing import Any, Final

from threadkeep.store.place import Place

EVERY: Final = 128  # writes to conversations of a tenant


class Upkeep:
    """Counts the writes of a store's runner. Nothing depends on the count: a question sees what is new before."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def is_due(self, arguments: tuple[Any, ...]) -> bool:
        """Whether it is time, after a write with these arguments; only those to a conversation count."""
        if not arguments or not isinstance(arguments[0], Place):
            return False
        tenant = arguments[0].scope.tenant
        count = self._counts.get(tenant, 0) + 1
        self._counts[tenant] = count % EVERY
        return count >= EVERY


class Kept:
    """A runner that may have an upkeep; there is none inside the caller's transaction."""

    upkeep: Upkeep | None = None
