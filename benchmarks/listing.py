"""List the 50 newest of 100,000 conversations: the first page and the thousandth, of a user and of everybody.

Lists with any status and by labels are compared with the one statement that says what they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from benchmarks.conversations import floor_of
from benchmarks.data import MODEL, USER
from benchmarks.databases import Database, Row, on_each_database
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
LABEL_COLUMNS: Final = ("tenant_id", "conversation_id", "key", "value")
FEW: Final = 61  # conversations with a rare label
# What a list has that no single index has in order -> the list, and its condition in plain SQL
LABELLED: Final = (
    "status = 'active' AND id IN (SELECT conversation_id FROM threadkeep_conversation_labels "
    "WHERE tenant_id = %s AND key = '{}' AND value = '1')"
)
FILTERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "with any status": ({"status": None}, "(status = 'active' OR status = 'archived')"),
    "by a label all have": ({"labels": {"all": "1"}}, LABELLED.format("all")),
    f"by a label {FEW} have": ({"labels": {"few": "1"}}, LABELLED.format("few")),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: as the library names it, and as a key."""

    name: str | None = None
    key: Row | None = None


@on_each_database("NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store:
        floor = floor_of(database)
        store.create_conversation(model=MODEL, user_id=USER)
        _fill(floor, scale.listed)
        if database.kind == "postgresql":
            floor.analyze("conversations")
            floor.analyze("conversation_labels")
        page = scale.listed // PAGE // 2
        places = {1: Place(), page: _middle(store, floor, scale.listed // 2)}
        cases = {
            (user, number): _pair(store, floor, place, user=user)
            for user in (True, False)
            for number, place in places.items()
        }
        plain = {what: _plain(store, floor, *filters) for what, filters in FILTERS.items()}
        run_rounds([case for pair in (*cases.values(), *plain.values()) for case in pair], scale.rounds)
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
    for what, pair in plain.items():
        lines.append(Line.of(f"list {PAGE} of {scale.listed:,} {what}, over one plain statement", label, *pair))
    return lines


def _plain(store: Store, floor: Floor, filters: dict[str, Any], condition: str) -> tuple[Case, Case]:
    statement = (
        f"SELECT {', '.join(CONVERSATION_COLUMNS)} FROM threadkeep_conversations "
        f"WHERE tenant_id = %s AND {condition} ORDER BY last_activity_at DESC, id DESC LIMIT {PAGE}"
    )
    values = (floor.tenant,) * statement.count("%s")
    public_id = CONVERSATION_COLUMNS.index("public_id")
    found = [f"conv_{bytes(row[public_id]).hex()}" for row in floor.driver.read(statement, values)]
    if found != [one.id for one in store.list_conversations(**filters)]:
        raise AssertionError("The plain statement lists other conversations.")
    ours = Case("threadkeep", lambda: store.list_conversations(**filters))
    return ours, Case("plain", lambda: floor.driver.read(statement, values))


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
    """Conversations of one user with labels, a second apart, like the one that is there."""
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

    rare = {int(number * count / FEW) + 1 for number in range(FEW)}
    labels = (
        (floor.tenant, n + 1, key, "1") for n in range(count) for key in ("all", "few") if key == "all" or n in rare
    )
    driver.begin()
    driver.load("conversations", CONVERSATION_COLUMNS, rows())
    driver.load("conversation_labels", LABEL_COLUMNS, labels)
    driver.commit()


def _middle(store: Store, floor: Floor, position: int) -> Place:
    """Where the page behind so many conversations begins."""
    name: str | None = None
    for _ in range(position // STEP):
        page = store.list_conversations(after=name, limit=STEP)
        name, last = page.next, page.items[-1]
    statement = "SELECT last_activity_at, id FROM threadkeep_conversations WHERE tenant_id = %s AND public_id = %s"
    return Place(name, floor.driver.read(statement, (floor.tenant, raw_id(last.id)))[0])
