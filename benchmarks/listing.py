"""List the 50 newest of 100,000 conversations: the first page and the thousandth, of a user and of everybody."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from benchmarks.conversations import floor_of
from benchmarks.data import MODEL, USER
from benchmarks.databases import Database, Row, each_database
from benchmarks.floor import CONVERSATION_COLUMNS, Floor, raw_id
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Store

MUST: Final = 3.0
DEEP_MUST: Final = 1.3
PAGE: Final = 50
STEP: Final = 1_000  # conversations on each page of the walk to the middle
REPEATED: Final = 10
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: as the library names it, and as a key."""

    name: str | None = None
    key: Row | None = None


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        return [line for database in databases for line in _on(database, scale)]


def _on(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store:
        floor = floor_of(database)
        store.create_conversation(model=MODEL, user_id=USER)
        _fill(floor, scale.listed)
        if database.kind == "postgresql":
            floor.analyze("conversations")
        page = scale.listed // PAGE // 2
        places = {1: Place(), page: _middle(store, floor, scale.listed // 2)}
        cases = {
            (user, number): _pair(store, floor, place, user=user)
            for user in (True, False)
            for number, place in places.items()
        }
        run_rounds([case for pair in cases.values() for case in pair], scale.rounds)
        floor.driver.close()
    label = "SQLite" if database.kind == "sqlite" else database.label
    lines = []
    for (user, number), (ours, base) in cases.items():
        what = f"list {PAGE} of {scale.listed:,}{' of a user' if user else ''}, page {number:,}"
        lines.append(Line.of(what, label, ours, base, MUST))
    for user in (True, False):
        first, deep = cases[user, 1][0], cases[user, page][0]
        what = f"page {page:,} over page 1{' of a user' if user else ''}"
        lines.append(Line.of(what, label, deep, first, DEEP_MUST))
    return lines


def _pair(store: Store, floor: Floor, place: Place, *, user: bool) -> tuple[Case, Case]:
    user_id = USER if user else None
    found = [one.id for one in store.list_conversations(user_id=user_id, after=place.name)]
    public_id = CONVERSATION_COLUMNS.index("public_id")
    if found != [f"conv_{bytes(row[public_id]).hex()}" for row in floor.list_page(user=user, after=place.key)]:
        raise AssertionError("The floor lists other conversations.")

    def ours() -> None:
        for _ in range(REPEATED):
            store.list_conversations(user_id=user_id, after=place.name)

    def base() -> None:
        for _ in range(REPEATED):
            floor.list_page(user=user, after=place.key)

    return Case("threadkeep", ours, count=REPEATED), Case("floor", base, count=REPEATED)


def _fill(floor: Floor, count: int) -> None:
    """Conversations of one user, a second apart, like the one that is there."""
    driver = floor.driver
    columns = ", ".join(CONVERSATION_COLUMNS)
    model = dict(
        zip(CONVERSATION_COLUMNS, driver.read(f"SELECT {columns} FROM threadkeep_conversations")[0], strict=True)
    )

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            moment = floor.moment(BEGIN + timedelta(seconds=number))
            own = {
                "id": number + 1,
                "public_id": secrets.token_bytes(16),
                "created_at": moment,
                "last_activity_at": moment,
            }
            yield tuple({**model, **own}.values())

    driver.begin()
    driver.load("conversations", CONVERSATION_COLUMNS, rows())
    driver.commit()


def _middle(store: Store, floor: Floor, position: int) -> Place:
    """Where the page behind so many conversations begins."""
    name: str | None = None
    for _ in range(position // STEP):
        page = store.list_conversations(after=name, limit=STEP)
        name, last = page.next, page.items[-1]
    statement = "SELECT last_activity_at, id FROM threadkeep_conversations WHERE tenant_id = %s AND public_id = %s"
    return Place(name, floor.driver.read(statement, (floor.tenant, raw_id(last.id)))[0])
