"""Repeating a use case: after which errors, how often, and when it is over without one."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, IntegrityError

from threadkeep.db.dialects import is_transient
from threadkeep.errors import Conflict

REPEAT_SECONDS: Final = 60.0  # how long a use case is repeated after deadlocks and busy databases
LOST_LIMIT: Final = 5  # how often after a lost connection
RACE_LIMIT: Final = 5  # how often after a lost race for an idempotency key
CLASH_LIMIT: Final = 10  # how often after a broken constraint: media that was collected while it was linked, say


class Replayed(Exception):
    """Raised inside an action that has nothing to do: its transaction is taken back and `result` is returned."""

    def __init__(self, result: Any) -> None:
        self.result = result


class Raced(Exception):
    """Raised inside an action that lost a race for an idempotency key: it begins anew, and finds what was done."""


@dataclass(slots=True)
class Attempts:
    """Decides whether a failed use case may be repeated, and after which pause.

    A transaction that the server took back left nothing, so it can be repeated. After a lost connection that holds
    too, unless it was lost during COMMIT: then only a read, or a use case with an idempotency key, can be repeated.
    """

    is_repeatable: bool
    failed_at: float | None = None  # first
    lost: int = 0
    races: int = 0
    clashes: int = 0
    count: int = 0
    is_committing: bool = False

    def pause(self, error: DBAPIError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            DBAPIError: `error`, when there should be none.
        """
        self.count += 1
        self.failed_at = self.failed_at or time.monotonic()
        if is_transient(error):
            if time.monotonic() - self.failed_at > REPEAT_SECONDS:
                raise error
        elif error.connection_invalidated and (self.is_repeatable or not self.is_committing):
            self.lost += 1
            if self.lost > LOST_LIMIT:
                raise error
        elif isinstance(error, IntegrityError):
            self.clashes += 1
            if self.clashes > CLASH_LIMIT:
                raise error
        else:
            raise error
        return random.uniform(0, min(0.002 * 2**self.count, 0.25))  # noqa: S311 - jitter, no secret

    def begin_anew(self, raced: Raced) -> None:
        """Count a lost race; the next attempt finds what was done under the key.

        Raises:
            Conflict: it cannot be found, because the caller's transaction sees the database as it was before.
        """
        self.races += 1
        if self.races > RACE_LIMIT:
            raise Conflict(
                "The idempotency key was used meanwhile, in a transaction that this one does not see. "
                "Roll back and try again, or use the isolation level READ COMMITTED."
            ) from raced.__cause__
