"""A use case as a value: which action to run, and what to make of its result.

The sync and the async faces run the same plans; only the waiting differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from threadkeep.store.database import AsyncRunner, SyncRunner

T = TypeVar("T")


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

    def run(self, runner: SyncRunner) -> T:
        """Run the action and wait for it."""
        if self.is_write:
            return self.finish(runner.write(self.action, *self.arguments, is_keyed=self.is_keyed))
        return self.finish(runner.read(self.action, *self.arguments))

    async def run_async(self, runner: AsyncRunner) -> T:
        """Run the action without blocking the event loop."""
        if self.is_write:
            return self.finish(await runner.write(self.action, *self.arguments, is_keyed=self.is_keyed))
        return self.finish(await runner.read(self.action, *self.arguments))
