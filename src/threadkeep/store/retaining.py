"""How long things are kept: from ages to moments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from threadkeep.db.change_keys import key_at
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption

RECENT: Final = timedelta(hours=1)  # for which changes are kept in any case: somebody may be about to read them


class Limits(NamedTuple):
    """What is older than these moments is due; None: nothing is."""

    bodies: datetime | None
    content: datetime | None
    changes: datetime | None

    @property
    def key(self) -> int:
        """The first key of a change that is kept; 0 if all are."""
        return 0 if self.changes is None else key_at(self.changes)


def limits_of(ages: Mapping[str, timedelta | int | None], *, whole_months: bool) -> Limits:
    """Return since when each of `raw_bodies`, `content` and `changes` is kept, given for how long.

    Raises:
        InvalidOption: none of them is given, or one is not a length of time.
    """
    now = datetime.now(UTC)
    bodies, content, changes = (_moment_before(now, name, age) for name, age in ages.items())
    if bodies is content is changes:  # None
        hint = "Pass raw_bodies=, content= or changes=, in days."
        raise InvalidOption("It is not set how long anything is kept.", hint=hint)
    if whole_months and bodies is not None:
        bodies = bodies.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Limits(bodies, content, None if changes is None else min(changes, now - RECENT))


def _moment_before(now: datetime, argument: str, age: object) -> datetime | None:
    """Return the time so many days (or a timedelta) ago; None stays None."""
    if age is None:
        return None
    if isinstance(age, int) and not isinstance(age, bool) and 0 <= age <= timedelta.max.days:
        age = timedelta(days=age)
    if not isinstance(age, timedelta) or age < timedelta(0):
        raise mismatch(InvalidOption, "a whole number of days, from 0 on, or a timedelta", age, argument)
    first = datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=1)  # nothing is older; all time zones can write it
    return now - age if age < now - first else first
