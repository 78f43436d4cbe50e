"""Where pages and files are made: in threads of their own, so that long texts keep no call of the store waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException

from threadkeep.web.owners import Owner

MAX_FILES: Final = 8  # that are made or wait, in a process
RETRY_SECONDS: Final = 5  # after which somebody who wants too many may try again
_PAGE_THREADS: Final = 2
_LATER: Final = {"retry-after": str(RETRY_SECONDS)}

P = ParamSpec("P")
T = TypeVar("T")


class Drawing:
    """Makes one page at a time for each owner, and one file: nobody waits for all that somebody else has asked for."""

    def __init__(self) -> None:
        self._for_pages = ThreadPoolExecutor(_PAGE_THREADS, "threadkeep-pages")
        self._for_files = ThreadPoolExecutor(1, "threadkeep-files")
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._files: set[Hashable] = set()  # names of owners
        self._downloads: set[Hashable] = set()

    async def page(self, owner: Owner, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes for a page, when it is this owner's turn."""
        turn = self._turns.setdefault(owner.name, asyncio.Lock())
        async with turn:
            return await _in(self._for_pages, function, *args, **kwargs)

    async def file(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes for a file that counts as `one_file`."""
        return await _in(self._for_files, function, *args, **kwargs)

    @contextmanager
    def one_file(self, owner: Owner) -> Iterator[None]:
        """Count a file while it is made.

        Raises:
            HTTPException: one is being made for this owner, or too many are.
        """
        if owner.name not in self._files and len(self._files) >= MAX_FILES:
            raise HTTPException(503, "Too many files are being made", headers=_LATER)
        with _one_of(self._files, owner, "made"):
            yield

    @contextmanager
    def one_download(self, owner: Owner) -> Iterator[None]:
        """Count a file that is sent while it is read, as slowly as its owner takes it; errors as for `one_file`."""
        with _one_of(self._downloads, owner, "downloaded"):
            yield


@contextmanager
def _one_of(files: set[Hashable], owner: Owner, done: str) -> Iterator[None]:
    if owner.name in files:
        raise HTTPException(429, f"Another file is being {done} with this key", headers=_LATER)
    files.add(owner.name)
    try:
        yield
    finally:
        files.discard(owner.name)


async def _in(threads: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(function, *args, **kwargs))
