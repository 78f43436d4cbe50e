"""Refresh: a handle that is kept renders again after somebody else appended a turn, on a connection of their own.

What one connection writes, SQLite's others read anew; so the floor, too, reads on another one than it writes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.conversations import TURNS, floor_of, stored
from benchmarks.databases import Database, on_each_database
from benchmarks.floor import Floor, KeptItems
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Conversation, Store

# (kind of database, number of items) -> goal
MUST: Final = {
    ("sqlite", 20): 5.0,
    ("sqlite", 200): 2.8,
    ("sqlite", 2_000): 1.6,
    ("postgresql", 20): 3.0,
    ("postgresql", 200): 2.5,
    ("postgresql", 2_000): 2.2,
}
# number of items -> goal for the refresh against the full render
RENDER_MUST: Final = {200: 0.5, 2_000: 0.25}


@on_each_database("NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    with database.store(memory_bytes=0) as store:  # so that a new handle reads everything
        writer, reader = floor_of(database), floor_of(database)
        sizes = {size: _cases(store, writer, reader, size, scale) for size in scale.sizes}
        run_rounds([case for cases in sizes.values() for case in cases], scale.rounds)
        writer.driver.close()
        reader.driver.close()
    label = "SQLite" if database.kind == "sqlite" else database.label
    lines = [
        Line.of(f"refresh, N={size:,}", label, ours, base, MUST[database.kind, size])
        for size, (ours, base, _) in sizes.items()
    ]
    for size, (ours, _, full) in sizes.items():
        if size in RENDER_MUST:
            what = f"refresh over own full render, N={size:,}"
            lines.append(Line.of(what, label, ours, full, RENDER_MUST[size]))
    return lines


def _cases(store: Store, writer: Floor, reader: Floor, size: int, scale: Scale) -> tuple[Case, Case, Case]:
    """The refresh through the library and by hand after `writer` appended, and the render by a new handle."""
    ids = stored(store, size, 3 * scale.rounds)
    handles: dict[str, Conversation] = {}
    kept: dict[str, KeptItems] = {}
    keys: dict[str, int] = {}
    new: dict[str, Iterator[tuple[str, bytes]]] = {}

    def open_ours() -> None:
        handle = handles["ours"] = store.get_conversation(next(ids))
        handle.request_body("open_responses")
        keys["ours"], new["ours"] = writer.key_of(handle.id), iter(TURNS)

    def open_base() -> None:
        keys["base"], new["base"] = writer.key_of(next(ids)), iter(TURNS)
        kept["base"] = KeptItems(reader, keys["base"])
        kept["base"].refresh()

    def refresh_base() -> None:
        kept["base"].refresh()

    def open_full() -> None:
        handle = handles["full"] = store.get_conversation(next(ids))
        keys["full"], new["full"] = writer.key_of(handle.id), iter(TURNS)

    def renew_full() -> None:
        handles["full"] = store.get_conversation(handles["full"].id)
        writer.append_turn(keys["full"], next(new["full"]))  # as before a refresh

    return (
        Case(
            "threadkeep",
            lambda: handles["ours"].request_body("open_responses"),
            prepare=lambda: writer.append_turn(keys["ours"], next(new["ours"])),
            each_round=open_ours,
        ),
        Case(
            "floor",
            refresh_base,
            prepare=lambda: writer.append_turn(keys["base"], next(new["base"])),
            each_round=open_base,
        ),
        Case(
            "full render",
            lambda: handles["full"].request_body("open_responses"),
            prepare=renew_full,
            each_round=open_full,
        ),
    )
