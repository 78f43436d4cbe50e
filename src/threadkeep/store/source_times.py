"""When conversations and items were created elsewhere, as importers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption
from threadkeep.store.validation import past_moment

CREATED_AT, ITEMS_CREATED_AT = "created_at", "items_created_at"


class SourceTimes(NamedTuple):
    """When a conversation was created, and each of its items; None: now."""

    created_at: datetime | None = None
    items: Sequence[datetime] = ()  # as many as there are items, or none

    @classmethod
    def of(cls, info: Mapping[str, Any], count: int) -> SourceTimes:
        """The times that are given with a conversation of so many items."""
        created_at, values = past_moment(CREATED_AT, info.get(CREATED_AT)), info.get(ITEMS_CREATED_AT)
        if values is None:
            return cls(created_at)
        is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray | memoryview)
        if not is_list or any(value is None for value in values):
            raise mismatch(InvalidOption, "a list of datetimes", values, ITEMS_CREATED_AT)
        if len(values) != count:
            hint = "Give one time for each item of the session."
            problem = f"has {len(values):,} times for {count:,} items."
            raise InvalidOption(problem, argument=ITEMS_CREATED_AT, hint=hint)
        items = [at for value in values if (at := past_moment(ITEMS_CREATED_AT, value)) is not None]
        return cls(min(items, default=None) if created_at is None else created_at, items)

    def of_conversation(self, now: datetime) -> tuple[datetime, datetime]:
        """When the conversation was created, and when something was last appended to it."""
        created_at = now if self.created_at is None else self.created_at
        return created_at, max([created_at, *self.items])

    def content(self) -> list[Any]:
        """What an idempotency key is for."""
        if self.created_at is None:
            return []
        return [self.created_at.isoformat(), [at.isoformat() for at in self.items]]


NOW: Final = SourceTimes()
