"""Import conversations of 20 items each: `save_many` against executemany (sqlite3) and COPY (psycopg)."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.conversations import a_session, floor_of
from benchmarks.data import USER
from benchmarks.databases import Database, Driver, each_database
from benchmarks.floor import CONVERSATION_COLUMNS, ITEM_COLUMNS, Floor
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds

MUST: Final = {"sqlite": 2.0, "postgresql": 2.5}
ITEMS: Final = 20
_TABLES: Final = ("usage_records", "response_bodies", "responses", "items", "conversations")


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        return [_on(database, scale) for database in databases]


def _on(database: Database, scale: Scale) -> Line:
    with database.store() as store:
        floor, _ = floor_of(database, store)
        sessions = [a_session(ITEMS, seed) for seed in range(scale.imported)]
        store.save_many(sessions, user_id=USER)
        rows = _Rows(floor)
        clear = _clearing(floor.driver, is_sqlite=database.kind == "sqlite")
        ours = Case("threadkeep", lambda: store.save_many(sessions, user_id=USER), prepare=clear)
        base = Case("floor", rows.load, prepare=clear)
        run_rounds([ours, base], scale.import_rounds)
        floor.driver.close()
    what = f"import {scale.imported:,} conversations of {ITEMS} items"
    return Line(what, database.label, base.wall, ours.wall, MUST[database.kind], ours.cpu / base.cpu)


class _Rows:
    """The rows of all conversations, as the library wrote them; loading makes each row anew, with places and times."""

    def __init__(self, floor: Floor) -> None:
        self._driver = floor.driver
        self._conversations = self._read("conversations", CONVERSATION_COLUMNS, "id")
        self._items = self._read("items", ITEM_COLUMNS, "conversation_id, position")

    def _read(self, table: str, columns: tuple[str, ...], order: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._driver.read(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}")]

    def load(self) -> None:
        driver = self._driver
        driver.begin()
        driver.load("conversations", CONVERSATION_COLUMNS, self._conversations)
        driver.load("items", ITEM_COLUMNS, self._items)
        driver.commit()


def _clearing(driver: Driver, *, is_sqlite: bool) -> Any:
    def clear() -> None:
        driver.begin()
        if is_sqlite:
            for table in _TABLES:
                driver.write(f"DELETE FROM {table}", ())
        else:
            driver.write(f"TRUNCATE {', '.join(_TABLES)} CASCADE", ())
        driver.commit()

    return clear
