"""A use case as a value: which action to run, and what to make of its result.

The sync and the async faces run the same plans; only the waiting differs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from threadkeep.errors import Conflict
from threadkeep.store.actions.numbers import Unfinished
from threadkeep.store.actions.searching import reason_of, see_batch
from threadkeep.store.actions.streams import Endings, settle
from threadkeep.store.database import AsyncRunner, SyncRunner
from threadkeep.store.endings import LeftBehind

T = TypeVar("T")

DEFAULT_ENDINGS: Final = LeftBehind()
LOG: Final = logging.getLogger("threadkeep.search")
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
                result = runner.write(self.action, *self.arguments, is_keyed=self.is_keyed)
            except Unfinished as found:
                runner.write(settle, *_settling(found, self.endings), is_keyed=True)
                continue
            if self._leaves_work(runner):
                try:
                    runner.write(see_batch, self.arguments[0].scope.tenant, is_keyed=True)
                except Exception as error:  # noqa: BLE001 - what was written is written
                    complain(error)
            return self.finish(result)
        raise _never_free()

    async def run_async(self, runner: AsyncRunner) -> T:
        """Run the action without blocking the event loop."""
        if not self.is_write:
            return self.finish(await runner.read(self.action, *self.arguments))
        for _ in range(SETTLED_AT_MOST):
            try:
                result = await runner.write(self.action, *self.arguments, is_keyed=self.is_keyed)
            except Unfinished as found:
                await runner.write(settle, *_settling(found, self.endings), is_keyed=True)
                continue
            if self._leaves_work(runner):
                try:
                    await runner.write(see_batch, self.arguments[0].scope.tenant, is_keyed=True)
                except Exception as error:  # noqa: BLE001 - as above
                    complain(error)
            return self.finish(result)
        raise _never_free()

    def _leaves_work(self, runner: SyncRunner | AsyncRunner) -> bool:
        """Whether it is time to let the search see what is new."""
        return runner.upkeep is not None and runner.upkeep.is_due(self.arguments)


# Work of many plans: yields what is to be run next, is sent its result, and returns what came of it all
Steps = Generator[Plan[Any], Any, T]


@dataclass(slots=True)
class Work(Generic[T]):
    """Steps that are run like a plan."""

    steps: Steps[T]

    def run(self, runner: SyncRunner) -> T:
        """Run all of them."""
        try:
            plan = next(self.steps)
            while True:
                try:
                    result = plan.run(runner)
                except Exception as error:  # noqa: BLE001 - it is the work's, which may go on without this plan
                    plan = self.steps.throw(error)
                else:
                    plan = self.steps.send(result)
        except StopIteration as end:
            found: T = end.value
            return found

    async def run_async(self, runner: AsyncRunner) -> T:
        """Run all of them without blocking the event loop."""
        try:
            plan = next(self.steps)
            while True:
                try:
                    result = await plan.run_async(runner)
                except Exception as error:  # noqa: BLE001 - as above
                    plan = self.steps.throw(error)
                else:
                    plan = self.steps.send(result)
        except StopIteration as end:
            found: T = end.value
            return found


def _settling(found: Unfinished, endings: Endings) -> tuple[Any, ...]:
    """The arguments of `settle`."""
    return found.place, found.number, found.status, endings


def complain(error: Exception) -> None:
    """Log why the search does not see what is new; nothing else is wrong."""
    LOG.warning("The search does not see what is new: %s", reason_of(error))


def _never_free() -> Conflict:
    return Conflict("Responses in progress were ended, and each time another one began meanwhile. Try again later.")
