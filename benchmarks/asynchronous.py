"""What the async interface costs over the sync one: one append, and one resume to request bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.conversations import TURNS, stored
from benchmarks.databases import Database, on_each_database
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import AsyncConversation, AsyncStore, Conversation, Store

SIZE: Final = 200
REPEATED: Final = 10  # in one call, so that starting the event loop does not count
RESUME_STEPS: Final = 2  # a resume is two operations: get the conversation, render it
# kind of database -> goal for one operation: milliseconds more, or times as long
SQLITE_MUST: Final = 0.3
POSTGRES_MUST: Final = 1.4


@on_each_database("NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    with asyncio.Runner() as runner, database.store() as store:
        async_store = database.async_store()
        runner.run(async_store.usage())  # opens it
        pairs = {
            "append an item": _appends(store, async_store, runner, scale),
            f"resume, N={SIZE}": _resumes(store, async_store, runner),
        }
        run_rounds([case for pair in pairs.values() for case in pair], scale.rounds)
        runner.run(async_store.close())
    is_sqlite = database.kind == "sqlite"
    label = "SQLite" if is_sqlite else database.label
    return [
        Line.of(
            f"async over sync: {what}", label, other, sync, SQLITE_MUST if is_sqlite else POSTGRES_MUST,
            is_difference=is_sqlite,
        )
        for what, (sync, other) in pairs.items()
    ]  # fmt: skip


def _appends(store: Store, async_store: AsyncStore, runner: asyncio.Runner, scale: Scale) -> tuple[Case, Case]:
    ids = stored(store, SIZE, 2 * scale.rounds)
    handles: list[Conversation] = []
    async_handles: list[AsyncConversation] = []

    def open_next() -> None:
        handles[:] = [store.get_conversation(next(ids))]

    def open_next_async() -> None:
        async_handles[:] = [runner.run(async_store.get_conversation(next(ids)))]

    def call() -> None:
        for _ in range(REPEATED):
            handles[0].user(TURNS[0][0])

    return (
        Case("sync", call, each_round=open_next, count=REPEATED),
        Case(
            "async",
            _looped(runner, lambda: async_handles[0].user(TURNS[0][0])),
            each_round=open_next_async,
            count=REPEATED,
        ),
    )


def _resumes(store: Store, async_store: AsyncStore, runner: asyncio.Runner) -> tuple[Case, Case]:
    name = next(stored(store, SIZE, 1))

    def call() -> None:
        for _ in range(REPEATED):
            store.get_conversation(name).request_body("open_responses")

    async def resume() -> None:
        conversation = await async_store.get_conversation(name)
        await conversation.request_body("open_responses")

    count = REPEATED * RESUME_STEPS
    return Case("sync", call, count=count), Case("async", _looped(runner, resume), count=count)


def _looped(runner: asyncio.Runner, operation: Callable[[], Awaitable[object]]) -> Callable[[], None]:
    async def repeat() -> None:
        for _ in range(REPEATED):
            await operation()

    return lambda: runner.run(repeat())
