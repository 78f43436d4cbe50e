"""A use case as a value: which action to run, and what to make of its result.

The sync and the async faces run the same plans; only the waiting differs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from threadkeep.errors import Conflict
from threadkeep.store.actions.numbers import Unfinished
from threadkeep.store.actions.streams import Endings, settle
from threadkeep.store.database import AsyncRunner, SyncRunner
from threadkeep.store.endings import LeftBehind

T = TypeVar("T")

DEFAULT_ENDINGS: Final = LeftBehind()
SETTLED_AT_MOST: Final = 10  # how often a use case ends responses in progress before it gives up


def as_it_is(result: Any) -> Any:
    """The result of an action, unchanged."""
    return result


@dataclass(slots=True)
class Plan(Generic[T]):
    """An action with its arguments, and what its result becomes outside the transaction."""

    action: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    finish: Callable[[Any], T] = as_it_is
    is_write: bool = False
    is_keyed: bool = False  # can be repeated even when a connection is lost during COMMIT
    endings: Endings = DEFAULT_ENDINGS  # of a response in progress that is in the way

    def run(self, runner: SyncRunner) -> T:
        """Run the action and wait for it."""
        if not self.is_write:
            return self.finish(runner.read(self.action, *self.arguments))
        for _ in range(SETTLED_AT_MOST):
            try:
                return self.finish(runner.write(self.action, *self.arguments, is_keyed=self.is_keyed))
            except Unfinished as found:
                runner.write(settle, *_settling(found, self.endings), is_keyed=True)
        raise _never_free()

    async def run_async(self, runner: AsyncRunner) -> T:
        """Run the action without blocking the event loop."""
        if not self.is_write:
            return self.finish(await runner.read(self.action, *self.arguments))
        for _ in range(SETTLED_AT_MOST):
            try:
                return self.finish(await runner.write(self.action, *self.arguments, is_keyed=self.is_keyed))
            except Unfinished as found:
                await runner.write(settle, *_settling(found, self.endings), is_keyed=True)
        raise _never_free()


# Work of many plans: yields what is to be run next, is sent its result, and returns what came of it all
Steps = Generator[Plan[Any], Any, T]


def follow(steps: Steps[T], runner: SyncRunner) -> T:
    """Run all plans of a piece of work."""
    try:
        plan = next(steps)
        while True:
            plan = steps.send(plan.run(runner))
    except StopIteration as end:
        found: T = end.value
        return found


async def follow_async(steps: Steps[T], runner: AsyncRunner) -> T:
    """Run all plans of a piece of work without blocking the event loop."""
    try:
        plan = next(steps)
        while True:
            plan = steps.send(await plan.run_async(runner))
    except StopIteration as end:
        found: T = end.value
        return found


def _settling(found: Unfinished, endings: Endings) -> tuple[Any, ...]:
    """The arguments of `settle`."""
    return found.place, found.number, found.status, endings


def _never_free() -> Conflict:
    return Conflict("Responses in progress were ended, and each time another one began meanwhile. Try again later.")
