"""Resume by id: from a stored id to the bytes of the next request, with a warm pool and a new handle each time.

A store remembers conversations that were read lately; `first resume` is one of which it knows nothing.
"""

from __future__ import annotations

import itertools
from typing import Final

import orjson

from benchmarks.conversations import floor_of, stored
from benchmarks.databases import Database, on_each_database
from benchmarks.floor import Floor, raw_id
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Store
from threadkeep.formats import FormatName

# (kind of database, number of items) -> goal
MUST: Final = {
    ("sqlite", 20): 2.0,
    ("sqlite", 200): 1.3,
    ("sqlite", 2_000): 1.3,
    ("postgresql", 20): 2.5,
    ("postgresql", 200): 1.8,
    ("postgresql", 2_000): 1.4,
}
CHAT_MUST: Final = 1.6
CHAT_SIZE: Final = 200
# Calls that are timed together: short ones are repeated.
REPEATED: Final = {20: 20, 200: 5}


@on_each_database("FULL")
def run(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store, database.store(memory_bytes=0) as forgetful:
        floor = floor_of(database)
        pairs = {f"resume, N={size:,}": _pair(store, floor, size) for size in scale.sizes}
        chat = f"resume as chat_completion, N={CHAT_SIZE}"
        pairs[chat] = _pair(store, floor, CHAT_SIZE, "chat_completion")
        musts = [*(MUST[database.kind, size] for size in scale.sizes), CHAT_MUST]
        pairs |= {f"first resume, N={size:,}": _pair(forgetful, floor, size) for size in scale.sizes}
        pairs[f"first {chat}"] = _pair(forgetful, floor, CHAT_SIZE, "chat_completion")
        run_rounds([case for pair in pairs.values() for case in pair], scale.rounds)
        floor.driver.close()
    return [
        Line.of(what, database.label, ours, base, must)
        for (what, (ours, base)), must in itertools.zip_longest(pairs.items(), musts)
    ]


def _pair(store: Store, floor: Floor, size: int, format: FormatName = "open_responses") -> tuple[Case, Case]:
    name = next(stored(store, size, 1))
    public_id = raw_id(name)
    read = floor.resume if format == "open_responses" else floor.resume_chat
    count = REPEATED.get(size, 1)
    body = store.get_conversation(name).request_body(format)
    if orjson.loads(body) != orjson.loads(read(public_id)):
        raise AssertionError(f"The floor renders another request as {format}.")

    def ours() -> None:
        for _ in range(count):
            store.get_conversation(name).request_body(format)

    def base() -> None:
        for _ in range(count):
            read(public_id)

    return Case("threadkeep", ours, count=count), Case("floor", base, count=count)
