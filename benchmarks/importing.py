"""Import conversations of 20 items each: `save_many` against executemany (sqlite3) and COPY (psycopg).

Both begin with the items in memory; the floor makes its rows by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.conversations import a_session, floor_of
from benchmarks.data import USER, conversation_items
from benchmarks.databases import Database, Driver, on_each_database
from benchmarks.floor import CONVERSATION_COLUMNS, ITEM_COLUMNS, Floor
from benchmarks.mapping import item_row
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep.db.base import SEARCH_INDEX

MUST: Final = {"sqlite": 2.0, "postgresql": 2.5}
ITEMS: Final = 20
_TABLES: Final = ("search_documents", "usage_records", "response_bodies", "responses", "items", "conversations")


@on_each_database("NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    return [_on(database, scale), _searched(database, scale)]


def _searched(database: Database, scale: Scale) -> Line:
    """The same with everything indexed for the search, over the import alone."""
    with database.store(search=True) as store, closing(database.driver()) as driver:
        sessions = [a_session(ITEMS, seed) for seed in range(scale.imported)]
        clear = _clearing(driver, is_sqlite=database.kind == "sqlite")

        def index() -> None:
            store.save_many(sessions, user_id=USER)
            store.reindex()

        ours = Case("indexed", index, prepare=clear)
        base = Case("alone", lambda: store.save_many(sessions, user_id=USER), prepare=clear)
        run_rounds([ours, base], scale.import_rounds)
    what = f"import and index {scale.imported:,} conversations of {ITEMS} items, over the import alone"
    return Line.of(what, database.label, ours, base)


def _on(database: Database, scale: Scale) -> Line:
    with database.store() as store:
        floor = floor_of(database)
        sessions = [a_session(ITEMS, seed) for seed in range(scale.imported)]
        store.save_many(sessions, user_id=USER)
        rows = _Rows(floor, [conversation_items(ITEMS, seed) for seed in range(scale.imported)])
        clear = _clearing(floor.driver, is_sqlite=database.kind == "sqlite")
        ours = Case("threadkeep", lambda: store.save_many(sessions, user_id=USER), prepare=clear)
        base = Case("floor", rows.load, prepare=clear)
        run_rounds([ours, base], scale.import_rounds)
        floor.driver.close()
    what = f"import {scale.imported:,} conversations of {ITEMS} items"
    return Line.of(what, database.label, ours, base, MUST[database.kind])


class _Rows:
    """The rows of all conversations, made of their items and loaded; conversations as the library wrote them."""

    def __init__(self, floor: Floor, items: list[list[dict[str, Any]]]) -> None:
        self._driver, self._tenant = floor.driver, floor.tenant
        self._now = floor.moment(datetime.now(UTC))
        columns = ", ".join(CONVERSATION_COLUMNS)
        self._conversations = [
            tuple(row) for row in self._driver.read(f"SELECT {columns} FROM threadkeep_conversations ORDER BY id")
        ]
        self._items = items

    def load(self) -> None:
        driver = self._driver
        driver.begin()
        driver.load("conversations", CONVERSATION_COLUMNS, self._conversations)
        driver.load("items", ITEM_COLUMNS, self._rows())
        driver.commit()

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        tenant, now = self._tenant, self._now
        for (_, key, *_), items in zip(self._conversations, self._items, strict=True):
            for position, item in enumerate(items):
                origin = item.get("origin")
                sent = {name: value for name, value in item.items() if name != "origin"} if origin else item
                yield (tenant, key, position, 0, None, None, now, *item_row(sent, origin))


def _clearing(driver: Driver, *, is_sqlite: bool) -> Any:
    def clear() -> None:
        driver.begin()
        if is_sqlite:
            driver.write(f"DROP TABLE IF EXISTS {SEARCH_INDEX}", ())
            for table in _TABLES:
                driver.write(f"DELETE FROM threadkeep_{table}", ())
        else:
            driver.write(f"TRUNCATE {', '.join(f'threadkeep_{table}' for table in _TABLES)} CASCADE", ())
        driver.commit()

    return clear
