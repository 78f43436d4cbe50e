"""An append and a first resume in a large store over the same in one of 100,000 items.

Both are filled with copies of one conversation that the library has written, with all its rows: items, responses, raw
bodies, ledger and change feed. Conversations are picked at random, so most of what is read was not read before.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from benchmarks.conversations import TURNS, append_turn, stored
from benchmarks.databases import Database, Driver, postgres_database, postgres_missing, sqlite_database
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Store
from threadkeep.db.base import PREFIX, written_columns
from threadkeep.db.tables import METADATA

MUST: Final = 1.3
BASE: Final = 100_000  # items of the store that is compared with
LENGTH: Final = 20  # items of a conversation before its turns
MODEL_TURNS: Final = 4
COPIED: Final = ("conversations", "items", "responses", "response_bodies", "usage_records", "changes")
NUMBERED: Final = frozenset({"usage_records", "changes"})  # rows with an id of their own
RANDOM: Final = frozenset({"public_id", "item_hash", "call_hash", "response_hash"})  # 16 bytes each
BATCH: Final = 1_000  # conversations in one transaction
REPEATED: Final = 10  # conversations in one call
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
    """One kind of database after the other: files of both at once would take twice the disk."""
    if kind == "postgresql":
        if postgres_missing() is not None:
            return []
        with postgres_database() as small, postgres_database() as large:
            return _on((small, large), scale)
    pair = sqlite_database(scale.folder, "NORMAL"), sqlite_database(scale.folder, "NORMAL")
    lines = _on(pair, scale)
    for file in scale.folder.glob("NORMAL_*.db*"):
        file.unlink()
    return lines


def _on(databases: tuple[Database, Database], scale: Scale) -> list[Line]:
    small, large = databases
    with small.store(memory_bytes=0) as few, large.store(memory_bytes=0) as many:
        bases = _cases(few, filled(small, few, BASE), "threadkeep, small")
        ours = _cases(many, filled(large, many, scale.items), "threadkeep")
        run_rounds([*bases, *ours], scale.rounds)
    names = ("append a turn", f"first resume, N={LENGTH + 2 * MODEL_TURNS}")
    return [
        Line.of(f"{name}, {scale.items:,} items over {BASE:,}", large.label, our, base, MUST)
        for name, our, base in zip(names, ours, bases, strict=True)
    ]


def _cases(store: Store, names: Iterator[str], label: str) -> tuple[Case, Case]:
    turns = iter(range(10**9))

    def append() -> None:
        for _ in range(REPEATED):
            append_turn(store.get_conversation(next(names)), TURNS[next(turns) % len(TURNS)])

    def resume() -> None:
        for _ in range(REPEATED):
            store.get_conversation(next(names)).request_body("open_responses")

    return Case(label, append, count=REPEATED), Case(label, resume, count=REPEATED)


def filled(database: Database, store: Store, count: int, users: int = 1) -> Iterator[str]:
    """Fill a store with so many items of so many users; returns the ids of conversations, picked at random."""
    model = store.get_conversation(next(stored(store, LENGTH, 1)))
    for turn in TURNS[:MODEL_TURNS]:
        append_turn(model, turn)
    copies = count // (model.head + 1)
    begun = time.perf_counter()
    with closing(database.driver()) as driver:
        statements = _copying(driver, database.kind, users)
        for first in range(1, copies + 1, BATCH):
            driver.begin()
            for statement in statements:
                driver.write(statement.format(first=first, last=min(first + BATCH - 1, copies)), ())
            driver.commit()
        if database.kind == "postgresql":  # what autovacuum does sooner or later
            for name in COPIED:
                driver.begin()
                driver.write(f"ANALYZE {PREFIX}{name}", ())
                driver.commit()
        picked = random.Random(count).sample(range(1, copies + 1), min(copies, PICKED))
        keys = {
            row[0]: row[1]
            for row in driver.read(f"SELECT id, public_id FROM {PREFIX}conversations WHERE id <= {copies}")
        }
    print(f"{database.label}: {count:,} items written in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return (f"conv_{bytes(keys[key]).hex()}" for key in picked)


def _copying(driver: Driver, kind: str, users: int) -> list[str]:
    """The statements that copy the one conversation to the numbers from `first` to `last`.

    The rows of copies lie behind one another like those of conversations that were written in turn.
    """
    for setting in _SETTINGS.get(kind, ()):
        driver.write(setting, ())
    driver.begin()
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
