"""Append a turn: what the user says in a transaction, then the answer with response, body and usage in another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.conversations import AT_ONCE, TURNS, append_turn, appending, floor_of, stored
from benchmarks.databases import Database, on_each_database
from benchmarks.floor import BODY_COLUMNS, ITEM_COLUMNS, PAYLOADS, RESPONSE_COLUMNS, USAGE_COLUMNS, Floor
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Store

MUST: Final = {"SQLite FULL": 2.0, "SQLite NORMAL": 3.5, "PostgreSQL": 2.5}
GROWTH_MUST: Final = 1.25
# What differs between two copies of a turn: whose it is, when it was, and the counted key.
_OWN: Final = {"conversation_id", "created_at", "occurred_at", "day", "id"}
_TABLES: Final = {
    "items": (ITEM_COLUMNS, "position"),
    "responses": (RESPONSE_COLUMNS, "number"),
    "response_bodies": (BODY_COLUMNS, "number"),
    "usage_records": (USAGE_COLUMNS, "response"),
}


@on_each_database("FULL", "NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store:
        floor = floor_of(database)
        check_same_rows(store, floor)
        pairs = [(appending(store, size, scale.rounds), _floor(store, floor, size, scale)) for size in scale.sizes]
        run_rounds([case for pair in pairs for case in pair], scale.rounds)
        floor.driver.close()
    lines = [
        Line.of(f"append a turn, N={size:,}", database.label, ours, base, MUST[database.label])
        for size, (ours, base) in zip(scale.sizes, pairs, strict=True)
    ]
    small, large = pairs[0][0], pairs[-1][0]
    growth = f"append at N={scale.sizes[-1]:,} over N={scale.sizes[0]}"
    return [*lines, Line.of(growth, database.label, large, small, GROWTH_MUST)]


def _floor(store: Store, floor: Floor, size: int, scale: Scale) -> Case:
    ids = stored(store, size, scale.rounds)
    key = 0
    new: Iterator[tuple[str, bytes]] = iter(())

    def open_next() -> None:
        nonlocal key, new
        key = floor.key_of(next(ids))
        floor.driver.read(PAYLOADS, (floor.tenant, key))
        new = iter(TURNS)

    def call() -> None:
        for _ in range(AT_ONCE):
            floor.append_turn(key, next(new))

    return Case("floor", call, each_round=open_next, count=AT_ONCE)


def check_same_rows(store: Store, floor: Floor) -> None:
    """Make sure that the floor writes what the library writes."""
    ours, base = stored(store, 4, 2)
    append_turn(store.get_conversation(ours), TURNS[0])
    floor.append_turn(floor.key_of(base), TURNS[0])
    for table, (columns, order) in _TABLES.items():
        names = [name for name in columns if name not in _OWN]
        statement = (
            f"SELECT {', '.join(names)} FROM threadkeep_{table} "
            f"WHERE tenant_id = %s AND conversation_id = %s ORDER BY {order}"
        )
        found = [floor.driver.read(statement, (floor.tenant, floor.key_of(one)))[-2:] for one in (ours, base)]
        if found[0] != found[1] and table != "items":
            raise AssertionError(f"{table}: threadkeep writes {found[0]}, the floor {found[1]}")
        if found[0][-1] != found[1][-1]:
            raise AssertionError(f"{table}: threadkeep writes {found[0][-1]}, the floor {found[1][-1]}")
