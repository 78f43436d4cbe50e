"""The asynchronous store, called like the synchronous one: the contract tests are written once."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from threadkeep import AsyncApiKeys, AsyncChangeWatcher, AsyncConversation, AsyncStore, Page, Store
from threadkeep.store.aio import AsyncRecorder


class Blocking:
    """An AsyncStore, AsyncConversation or AsyncRecorder whose coroutines are waited for."""

    def __init__(self, wrapped: Any, runner: asyncio.Runner) -> None:
        self._wrapped, self._runner = wrapped, runner

    def __getattr__(self, name: str) -> Any:
        is_handle = name == "handle" and isinstance(self._wrapped, AsyncStore)
        wrapped = self._wrapped.sync if is_handle else self._wrapped
        return self._shown(getattr(wrapped, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {"_wrapped", "_runner"}:
            object.__setattr__(self, name, value)
        else:
            setattr(self._wrapped, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _iterate(self, elements: Any) -> Any:
        while (element := self._runner.run(anext(elements, ...))) is not ...:
            yield element

    def _shown(self, value: Any) -> Any:
        if inspect.isasyncgen(value):
            return self._iterate(value)
        if inspect.iscoroutine(value):
            return self._shown(self._runner.run(value))
        if isinstance(value, AsyncStore | AsyncConversation | AsyncApiKeys):
            return Blocking(value, self._runner)
        if isinstance(value, Page):
            return replace(value, items=[self._shown(item) for item in value.items])
        if isinstance(value, AsyncChangeWatcher):
            return BlockingWatcher(value, self._runner)
        if isinstance(value, AsyncRecorder):
            return BlockingRecorder(value, self._runner)
        if isinstance(value, AbstractAsyncContextManager):
            return BlockingContext(value, self._runner)
        if inspect.ismethod(value):
            return functools.wraps(value)(lambda *args, **options: self._shown(value(*args, **options)))
        return value


class BlockingRecorder(Blocking):
    """An AsyncRecorder as a context manager."""

    def __enter__(self) -> Self:
        self._runner.run(self._wrapped.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._wrapped.__aexit__(kind, error, trace))


class BlockingContext(BlockingRecorder):
    """Another async context manager, such as a unit of work that begins."""

    def __enter__(self) -> Any:
        return self._shown(self._runner.run(self._wrapped.__aenter__()))


class BlockingWatcher(BlockingRecorder):
    """An AsyncChangeWatcher as an iterator."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            try:
                return await anext(self._wrapped)
            except StopAsyncIteration:  # which a task cannot end with
                return None

        found = self._runner.run(following())
        if found is None:
            raise StopIteration
        return found


def blocking_store(url: Any, runner: asyncio.Runner, **options: Any) -> Any:
    """An AsyncStore, made inside the runner's loop and opened."""

    async def opened() -> AsyncStore:
        return await AsyncStore(url, **options).__aenter__()

    return Blocking(runner.run(opened()), runner)


@contextmanager
def opening(face: str) -> Iterator[Callable[..., Any]]:
    """Open stores of a face, and close them at the end."""
    with asyncio.Runner() as runner:
        stores: list[Any] = []

        def opened(url: Any, **options: Any) -> Any:
            stores.append(Store(url, **options) if face == "sync" else blocking_store(url, runner, **options))
            return stores[-1]

        yield opened
        for store in stores:
            store.close()
