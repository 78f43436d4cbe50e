"""When a transaction is run again: the exceptions that end one early, and how often, and after which pause."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError, IntegrityError

from threadkeep.db.dialects import is_taken_back, is_transient
from threadkeep.errors import Conflict, DamagedRow
from threadkeep.store.refs import BranchRef

T = TypeVar("T")

REPEAT_SECONDS: Final = 60.0  # how long work is repeated after deadlocks and busy databases
LIMITS: Final = {
    "loss": 5,  # how often after a lost connection
    "race": 5,  # how often after a lost race for an idempotency key
    "clash": 10,  # how often after a broken constraint: media that was collected while it was linked, say
    "stream": 10,  # how often after having ended a response in progress
}


def whole(read: Callable[[], T]) -> T:
    """Return what is read whole, though others remove it meanwhile, such as an item before its media were read.

    What seems to be damaged is read once more. If it was removed, it is not found then, or is read as it is now;
    what is damaged still, is damaged.
    """
    with suppress(DamagedRow):
        return read()
    return read()


class Replay(Exception):
    """Ends a transaction that has nothing to do, because it was done before: rolled back, `result` is returned."""

    def __init__(self, result: Any) -> None:
        self.result = result


class LostRace(Exception):
    """Ends a transaction that lost a race for an idempotency key: it is run again and finds what was done."""


class StreamBlocksWrite(Exception):
    """Ends a transaction that must wait for the end of a response in progress.

    That response is ended in a transaction of its own, and the work run again: were it ended in the same transaction,
    work that fails afterwards would take the end back. `status` is the one it is to end with.
    """

    def __init__(self, ref: BranchRef, number: int, status: str) -> None:
        self.ref, self.number, self.status = ref, number, status


@dataclass(slots=True)
class Retries:
    """Decides whether failed work may be repeated, and after which pause.

    A transaction that the server took back left nothing, so it can be repeated. After a lost connection that holds
    too, unless it was lost during COMMIT: then only a read, or a write with an idempotency key, can be repeated.
    """

    is_repeatable: bool
    is_committing: bool = False
    failed_at: float | None = None  # first
    failures: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # by reason, as in LIMITS

    def pause(self, error: DBAPIError) -> float:
        """Seconds to wait before the next attempt; `error` is raised where there should be none."""
        self.failures += 1
        self.failed_at = self.failed_at or time.monotonic()
        if is_transient(error):
            is_over = time.monotonic() - self.failed_at > REPEAT_SECONDS
        elif error.connection_invalidated and (self.is_repeatable or not self.is_committing or is_taken_back(error)):
            is_over = self._is_too_often("loss")
        else:
            is_over = self._is_too_often("clash") or not isinstance(error, IntegrityError)
        if is_over:
            raise error
        return random.uniform(0, min(0.002 * 2**self.failures, 0.25))  # noqa: S311 - jitter, no secret

    def count(self, reason: LostRace | StreamBlocksWrite) -> None:
        """Count a lost race, or a response that is to be ended first; Conflict is raised after the last attempt."""
        if isinstance(reason, StreamBlocksWrite):
            if self._is_too_often("stream"):
                problem = "Responses in progress were ended, and each time another one had begun meanwhile."
                raise Conflict(problem, hint="Try again later.")
        elif self._is_too_often("race"):  # the caller's transaction sees the database as it was before
            problem = "The idempotency key was used meanwhile, in a transaction that this one does not see."
            hint = "Roll back and try again, or use the isolation level READ COMMITTED."
            raise Conflict(problem, hint=hint) from reason.__cause__

    def _is_too_often(self, reason: str) -> bool:
        count = self.counts[reason] = self.counts.get(reason, 0) + 1
        return count > LIMITS[reason]
