"""The viewer's pages over 1,000,000 items in 100,000 conversations of a year, and one conversation of 10,000 items.

Each page is asked for through its ASGI application, and compared with the one plain query for what it is about. The
goal is for the difference, in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from benchmarks.conversations import TURNS, append_turn, stored
from benchmarks.databases import Database, each_database
from benchmarks.growth import BATCH, COPIED, NUMBERED, RANDOM
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import AsyncStore, Store
from threadkeep.db.base import PREFIX
from threadkeep.db.models import METADATA
from threadkeep.viewer import app

MUST: Final = 150.0  # milliseconds
LONG_MUST: Final = 200.0
ITEMS: Final = 10  # of a conversation
MODEL_TURNS: Final = 3
LONG: Final = 10_000
DAYS: Final = 365
USERS: Final = 1_000
MODELS: Final = 8
FAILED_EVERY: Final = 50  # calls
PICKED: Final = 2_000
WORD: Final = "temperature"  # in most conversations, of everybody
MOMENTS: Final = frozenset({"created_at", "last_activity_at", "occurred_at", "completed_at"})


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        return [line for database in databases for line in _on(database, scale)]


def _on(database: Database, scale: Scale) -> list[Line]:
    count = scale.items // 2 // ITEMS
    with database.store(search=True) as store:
        ids = _filled(database, store, count)
        [long] = stored(store, LONG - 2, 1)
        append_turn(store.get_conversation(long), TURNS[0])
        store.fill_usage_days()
        store.reindex()
    lines = []
    with asyncio.Runner() as runner, closing(database.driver()) as driver:
        opened = AsyncStore(database.url)
        try:
            pages = _pages(opened, runner, driver, ids, long)
            run_rounds([case for _, ours, base, _ in pages for case in (ours, base)], scale.rounds)
        finally:
            runner.run(opened.close())
    for name, ours, base, must in pages:
        what = f"{name}, {count:,} conversations"
        lines.append(Line.of(what, database.label, ours, base, must, is_difference=True))
        lines.append(Line.of(f"{what}, over one query", database.label, ours, base))
    return lines


def _pages(
    store: AsyncStore, runner: asyncio.Runner, driver: Any, ids: Iterator[str], long: str
) -> list[tuple[str, Case, Case, float]]:
    """A page, the query that it is compared with, and the goal in milliseconds."""
    application = app(store)
    today = datetime.now(UTC).date()

    def page(path: Callable[[], str]) -> Callable[[], object]:
        return lambda: runner.run(_get(application, path()))

    def query(text: str, *values: Any) -> Callable[[], object]:
        return lambda: driver.read(text, values)

    [(tenant,)] = driver.read("SELECT id FROM threadkeep_tenants")
    newest = f"SELECT * FROM threadkeep_conversations WHERE tenant_id = {tenant} AND status = 'active'"
    newest += "{} ORDER BY last_activity_at DESC, id DESC LIMIT 51"
    one = f"SELECT * FROM threadkeep_items WHERE tenant_id = {tenant} AND conversation_id = (SELECT id FROM "
    one += f"threadkeep_conversations WHERE tenant_id = {tenant} AND public_id = %s) AND branch = 0 AND position >= %s "
    one += "ORDER BY position LIMIT 51"
    month = f"SELECT * FROM threadkeep_usage_daily WHERE tenant_id = {tenant} AND day >= '{today - timedelta(30)}'"
    documents = f"SELECT * FROM threadkeep_search_documents WHERE tenant_id = {tenant} ORDER BY id DESC LIMIT 31"
    found = [
        ("list", lambda: "/", query(newest.format("")), MUST),
        ("list of a user", lambda: "/?user=user-7", query(newest.format(" AND user_id = 'user-7'")), MUST),
        ("list by model", lambda: "/?model=model-3", query(newest.format("")), MUST),
        ("list with failed calls", lambda: "/?errors=1", query(newest.format("")), MUST),
        ("a conversation", lambda: f"/c/{next(ids)}", query(one, _raw(next(ids)), 0), MUST),
        ("the middle of 10,000 items", lambda: f"/c/{long}?from=5000", query(one, _raw(long), 5_000), LONG_MUST),
        ("what a model saw", lambda: f"/c/{next(ids)}/responses/2", query(one, _raw(next(ids)), 0), MUST),
        ("what is new in it", lambda: f"/c/{next(ids)}/responses/2?show=changes", query(one, _raw(next(ids)), 0), MUST),
        ("search of everybody's word", lambda: f"/search?q={WORD}", query(documents), MUST),
        ("search of a user's word", lambda: f"/search?q={WORD}&user=user-7", query(documents), MUST),
        ("usage of 30 days", lambda: "/usage", query(month), MUST),
        ("functions of 30 days", lambda: "/usage/tools", query(month), MUST),
    ]
    return [(name, Case("viewer", page(path)), Case("one query", base), must) for name, path, base, must in found]


def _raw(public_id: str) -> bytes:
    return bytes.fromhex(public_id.removeprefix("conv_"))


async def _get(application: Any, path: str) -> None:
    """Ask for a page, without a network in between."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "", "scheme": "http",
        "headers": [(b"host", b"localhost")], "query_string": query.encode(), "server": ("localhost", 80),
        "client": ("127.0.0.1", 1), "http_version": "1.1", "asgi": {"version": "3.0", "spec_version": "2.3"},
    }  # fmt: skip
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await application(scope, receive, send)
    if status != 200:  # noqa: PLR2004 - OK
        raise RuntimeError(f"{path}: {status}")


def _filled(database: Database, store: Store, count: int) -> Iterator[str]:
    """Fill a store with copies of a conversation, from a year, of many users; ids are picked at random."""
    model = store.get_conversation(next(stored(store, ITEMS - 2 * MODEL_TURNS, 1)))
    for turn in TURNS[:MODEL_TURNS]:
        append_turn(model, turn)
    choose = random.Random(count)
    made: list[bytes] = []
    with closing(database.driver()) as driver:
        tables = {name: _rows(driver, name) for name in COPIED}
        for first in range(0, count, BATCH):
            copies = {number + 1: secrets.token_bytes(16) for number in range(first, min(first + BATCH, count))}
            made += copies.values()
            driver.begin()
            for name, (columns, rows) in tables.items():
                driver.load(name, columns, _copied(name, columns, rows, copies, count))
            driver.commit()
        if database.kind == "postgresql":
            for name in COPIED:
                driver.begin()
                driver.write(f"ANALYZE {PREFIX}{name}", ())
                driver.commit()
    picked = choose.sample(made, min(len(made), PICKED))
    return (f"conv_{public_id.hex()}" for _ in iter(int, 1) for public_id in picked)


def _rows(driver: Any, name: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
    columns = [column.name for column in METADATA.tables[PREFIX + name].columns if column.computed is None]
    return columns, driver.read(f"SELECT {', '.join(columns)} FROM {PREFIX}{name}")


def _copied(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], copies: dict[int, bytes], count: int
) -> Iterator[Sequence[Any]]:
    """The rows of copies, each with a user, a model and a day of its own."""
    key = columns.index("id" if name == "conversations" else "conversation_id")
    number = columns.index("id") if name in NUMBERED else None
    for copy, public_id in copies.items():
        back = timedelta(days=DAYS * (count - copy) / count)
        changes: dict[str, Callable[[Any], Any]] = {
            **dict.fromkeys(MOMENTS, partial(_earlier, back)),
            "day": partial(_earlier, back),
            "user_id": partial(_instead, f"user-{copy % USERS}"),
            "model": partial(_instead, f"model-{copy % MODELS}"),
        }
        for offset, row in enumerate(rows):
            values = [
                changes[column](value) if column in changes and value is not None else value
                for column, value in zip(columns, row, strict=True)
            ]
            for index, column in enumerate(columns):
                if column in RANDOM and values[index] is not None:
                    values[index] = public_id if column == "public_id" else secrets.token_bytes(16)
            if name == "usage_records" and not (copy * len(rows) + offset) % FAILED_EVERY:
                values[columns.index("status")] = "failed"
            values[key] = copy
            if number is not None:
                values[number] = copy * len(rows) + offset
            yield values


def _instead(text: str, _: Any) -> str:
    return text


def _earlier(back: timedelta, value: Any) -> Any:
    """A moment or day that long before, in the form that the driver gives."""
    if isinstance(value, str):
        if len(value) == len("2026-01-01"):
            return (date.fromisoformat(value) - back).isoformat()
        return (datetime.fromisoformat(value) - back).isoformat(" ", "microseconds")
    return value - back
