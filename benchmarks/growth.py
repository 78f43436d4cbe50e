"""An append and a first resume in a large store over the same in one of 100,000 items.

Both are filled with copies of one conversation that the library has written, with all its rows: items, responses, raw
bodies, ledger and change feed. Conversations are picked at random, so most of what is read was not read before.

The smallest floor is filled and measured in the same way: what it loses, too, is the machine's, whose memory is larger
than its caches.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from benchmarks.conversations import TURNS, append_turn, stored
from benchmarks.data import conversation_items
from benchmarks.databases import Database, Driver, postgres_database, postgres_missing, sqlite_database
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.smallest import Smallest
from benchmarks.timing import Case, run_rounds
from threadkeep import Store
from threadkeep.db.base import PREFIX, written_columns
from threadkeep.db.models import METADATA

MUST: Final = 1.3
BASE: Final = 100_000  # items of the store that is compared with
LENGTH: Final = 20  # items of a conversation before its turns
MODEL_TURNS: Final = 4
COPIED: Final = ("conversations", "items", "responses", "response_bodies", "usage_records", "changes")
NUMBERED: Final = frozenset({"usage_records", "changes"})  # rows with an id of their own
RANDOM: Final = frozenset({"public_id", "item_hash", "call_hash", "response_hash"})  # 16 bytes each
# table of the smallest floor -> its columns, other than the number of the conversation
FLOOR: Final = {
    "item": "position, body", "response": "position, body", "usage": "position, model, input_tokens, output_tokens",
}  # fmt: skip
BATCH: Final = 1_000  # conversations in one transaction
REPEATED: Final = 10  # conversations in one call
READ_BYTES: Final = 16 * 1024 * 1024  # at once
PICKED: Final = 20_000

# kind of database -> a table `copy` of the numbers `n` from `first` to `last`, and 16 random bytes
_NUMBERS: Final = {
    "sqlite": (
        "(WITH RECURSIVE numbers(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) "
        "SELECT n FROM numbers) AS copy"
    ),
    "postgresql": "generate_series({first}, {last}) AS copy(n)",
    "mariadb": "(SELECT seq AS n FROM seq_{first}_to_{last}) AS copy",
}
_RANDOM_BYTES: Final = {
    "sqlite": "randomblob(16)", "postgresql": "uuid_send(gen_random_uuid())", "mariadb": "random_bytes(16)",
}  # fmt: skip
# kind -> what has to be said on the connection that fills a database; a file that is not whole is thrown away
_SETTINGS: Final = {
    "sqlite": ("PRAGMA synchronous=OFF", "PRAGMA foreign_keys=OFF", "PRAGMA cache_size=-1000000"),
    "mariadb": ("SET SESSION foreign_key_checks = 0", "SET SESSION unique_checks = 0"),
}


def run(scale: Scale) -> list[Line]:
    return [line for kind in ("sqlite", "postgresql") for line in _of_kind(kind, scale)]


def _of_kind(kind: str, scale: Scale) -> list[Line]:
    """One after the other: files of all at once would take too much of the disk, and of the memory."""
    lines: list[Line] = []
    for compared in (_ours, _floors):
        with _two(kind, scale) as databases:
            lines += compared(databases, scale) if databases else []
    return lines


@contextmanager
def _two(kind: str, scale: Scale) -> Iterator[tuple[Database, Database] | None]:
    """Two new databases, which are removed afterwards; None where there is no server."""
    if kind == "sqlite":
        try:
            yield sqlite_database(scale.folder, "NORMAL"), sqlite_database(scale.folder, "NORMAL")
        finally:
            for file in scale.folder.glob("NORMAL_*.db*"):
                file.unlink()
    elif postgres_missing() is not None:
        yield None
    else:
        with postgres_database() as small, postgres_database() as large:
            yield small, large


def _ours(databases: tuple[Database, Database], scale: Scale) -> list[Line]:
    small, large = databases
    with small.store(memory_bytes=0) as few, large.store(memory_bytes=0) as many:
        bases = _cases(few, filled(small, few, BASE), "threadkeep, small")
        ours = _cases(many, filled(large, many, scale.items), "threadkeep")
        return _lines("", large.label, bases, ours, scale, MUST)


def _floors(databases: tuple[Database, Database], scale: Scale) -> list[Line]:
    small, large = databases
    with closing(small.driver()) as few, closing(large.driver()) as many:
        bases = _floor_cases(small, few, BASE, "smallest, small")
        ours = _floor_cases(large, many, scale.items, "smallest")
        return _lines(", smallest", large.label, bases, ours, scale)


def _lines(
    suffix: str, label: str, bases: tuple[Case, Case], ours: tuple[Case, Case], scale: Scale, must: float | None = None
) -> list[Line]:
    run_rounds([*bases, *ours], scale.rounds)
    names = ("append a turn", f"first resume, N={LENGTH + 2 * MODEL_TURNS}")
    return [
        Line.of(f"{name}{suffix}, {scale.items:,} items over {BASE:,}", label, our, base, must)
        for name, our, base in zip(names, ours, bases, strict=True)
    ]


def _cases(store: Store, names: Iterator[str], label: str) -> tuple[Case, Case]:
    turns = itertools.cycle(TURNS)
    return (
        _repeated(label, lambda: append_turn(store.get_conversation(next(names)), next(turns))),
        _repeated(label, lambda: store.get_conversation(next(names)).request_body("open_responses")),
    )


def _floor_cases(database: Database, driver: Driver, count: int, label: str) -> tuple[Case, Case]:
    floor, turns = Smallest(driver, database.kind), itertools.cycle(TURNS)
    floor.fill(0, conversation_items(LENGTH))
    for _ in range(MODEL_TURNS):
        floor.append_turn(0, next(turns))
    copies = count // (LENGTH + 2 * MODEL_TURNS)
    with closing(database.driver()) as filling:  # with settings of its own
        _copy(filling, database, _copying_floor(filling, database.kind), FLOOR, copies)
    numbers = iter(_picked(copies))
    return (
        _repeated(label, lambda: floor.append_turn(next(numbers), next(turns))),
        _repeated(label, lambda: floor.resume(next(numbers))),
    )


def _repeated(label: str, step: Callable[[], object]) -> Case:
    def call() -> None:
        for _ in range(REPEATED):
            step()

    return Case(label, call, count=REPEATED)


def filled(database: Database, store: Store, count: int, users: int = 1) -> Iterator[str]:
    """Fill a store with so many items of so many users; returns the ids of conversations, picked at random."""
    model = store.get_conversation(next(stored(store, LENGTH, 1)))
    for turn in TURNS[:MODEL_TURNS]:
        append_turn(model, turn)
    copies = count // (model.head + 1)
    with closing(database.driver()) as driver:
        tables = [PREFIX + name for name in COPIED]
        _copy(driver, database, _copying(driver, database.kind, users), tables, copies)
        keys = {
            row[0]: row[1]
            for row in driver.read(f"SELECT id, public_id FROM {PREFIX}conversations WHERE id <= {copies}")
        }
    return (f"conv_{bytes(keys[key]).hex()}" for key in _picked(copies))


def _picked(copies: int) -> list[int]:
    """Some of the copies in any order, each once."""
    return random.Random(copies).sample(range(1, copies + 1), min(copies, PICKED))


def _copy(driver: Driver, database: Database, statements: Sequence[str], tables: Iterable[str], copies: int) -> None:
    """Fill tables with so many copies by these statements."""
    begun = time.perf_counter()
    for first in range(1, copies + 1, BATCH):
        driver.begin()
        for statement in statements:
            driver.write(statement.format(first=first, last=min(first + BATCH - 1, copies)), ())
        driver.commit()
    if database.kind == "postgresql":  # what autovacuum and the checkpointer do sooner or later
        for statement in (*(f"ANALYZE {name}" for name in tables), "CHECKPOINT"):
            driver.begin()
            driver.write(statement, ())
            driver.commit()
    if database.kind == "sqlite":
        driver.read("PRAGMA wal_checkpoint(TRUNCATE)")
    os.sync()  # or the first one that is measured would wait for all that the system has not written yet
    if database.kind == "sqlite":
        _read_through(Path(str(make_url(database.url).database)))
    seconds = time.perf_counter() - begun
    print(f"{database.label}: {copies:,} conversations copied in {seconds:.0f} s", file=sys.stderr)


def _read_through(file: Path) -> None:
    """Let the system remember a file, as it does a small one, as far as its memory goes: disks are not compared."""
    with file.open("rb", buffering=0) as reader:
        while reader.read(READ_BYTES):
            pass


def _copying(driver: Driver, kind: str, users: int) -> list[str]:
    """The statements that copy the one conversation to the numbers from `first` to `last`.

    The rows of copies lie behind one another like those of conversations that were written in turn.
    """
    _set_up(driver, kind)
    if kind == "postgresql" and driver.read("SELECT current_setting('is_superuser')")[0][0] == "on":
        driver.write("SET session_replication_role = replica", ())  # the rows of copies refer to one another
    statements = []
    for name in COPIED:
        columns = [column.name for column in written_columns(METADATA.tables[PREFIX + name])]
        model = f"SELECT row_number() OVER () - 1 AS rank, t.* FROM {PREFIX}{name} AS t"
        driver.write(f"CREATE TEMPORARY TABLE model_{name} AS {model}", ())
        rows = driver.read(f"SELECT count(*) FROM {PREFIX}{name}")[0][0]
        values = ", ".join(_value(kind, name, column, rows, users) for column in columns)
        statements.append(
            f"INSERT INTO {PREFIX}{name} ({', '.join(map(_quoted, columns))}) "
            f"SELECT {values} FROM {_NUMBERS[kind]} CROSS JOIN model_{name} AS m ORDER BY copy.n, m.rank"
        )
    driver.commit()
    return statements


def _copying_floor(driver: Driver, kind: str) -> list[str]:
    """The same of the smallest floor."""
    _set_up(driver, kind)
    for name in FLOOR:
        driver.write(f"CREATE TEMPORARY TABLE model_{name} AS SELECT * FROM {name}", ())
    driver.commit()
    return [
        f"INSERT INTO {name} SELECT copy.n, {columns} FROM {_NUMBERS[kind]} CROSS JOIN model_{name} "
        "ORDER BY copy.n, position"
        for name, columns in FLOOR.items()
    ]


def _set_up(driver: Driver, kind: str) -> None:
    """Begin a transaction on a connection that fills a database."""
    for setting in _SETTINGS.get(kind, ()):
        driver.write(setting, ())
    driver.begin()


def _quoted(column: str) -> str:
    """A name in standard quotes: `usage` is a reserved word of MariaDB."""
    return f'"{column}"'


def _value(kind: str, table: str, column: str, rows: int, users: int) -> str:
    """The value of a column in a copy."""
    if column == ("id" if table == "conversations" else "conversation_id"):
        return "copy.n"
    if column == "id" and table in NUMBERED:
        return f"copy.n * {rows} + m.rank"
    if column == "user_id" and users > 1:
        division = "DIV" if kind == "mariadb" else "/"
        return f"'u' || (copy.n - (copy.n {division} {users}) * {users})"
    own = f"m.{_quoted(column)}"
    return f"CASE WHEN {own} IS NOT NULL THEN {_RANDOM_BYTES[kind]} END" if column in RANDOM else own
