"""What is asked before each turn: `spend` over a large ledger, against a row of the ledger by its key."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice
from typing import Any, Final

from benchmarks.conversations import floor_of
from benchmarks.data import MODEL, USER
from benchmarks.databases import Database, each_database
from benchmarks.floor import CONVERSATION_COLUMNS, Floor
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from benchmarks.usage import COLUMNS, DAYS, LOADED
from threadkeep import Store

MUST: Final = 1.0  # milliseconds over the floor
SPOKEN: Final = 5  # attempts of a conversation
TALKS: Final = 200  # conversations of a user, and with a label
ASKED: Final = 100  # users and labels
MONTH: Final = timedelta(days=30)
LABEL_COLUMNS: Final = ("tenant_id", "conversation_id", "key", "value")


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        return [line for database in databases for line in _on(database, scale)]


def _on(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store:
        floor = floor_of(database)
        store.create_conversation(model=MODEL, user_id=USER, labels={"team": "0"})
        groups = _fill(floor, scale.ledger)
        store.fill_usage_days()
        for table in ("usage_records", "conversations", "conversation_labels"):
            floor.analyze(table)
        cases = dict(_cases(store, floor, scale.ledger, groups))
        run_rounds(list(cases.values()), scale.rounds)
        floor.driver.close()
    label = "SQLite" if database.kind == "sqlite" else database.label
    base = cases.pop("")
    return [
        Line.of(f"{what}, {scale.ledger:,} attempts", label, case, base, MUST, is_difference=True)
        for what, case in cases.items()
    ]


def _cases(store: Store, floor: Floor, attempts: int, groups: int) -> Iterator[tuple[str, Case]]:
    """The floor, by no name, and what is asked, by its name; each call asks about another user or label."""
    choose = random.Random(attempts)
    asked = [str(choose.randrange(groups)) for _ in range(ASKED)]
    keys = [choose.randrange(attempts) + 1 for _ in range(ASKED)]
    statement = "SELECT cost_nano FROM threadkeep_usage_records WHERE tenant_id = %s AND id = %s"

    def point() -> None:
        for key in keys:
            floor.driver.read(statement, (floor.tenant, key))

    yield "", Case("floor", point, count=ASKED)
    today = datetime.now(UTC).date()
    for span, since in (("a month", today - MONTH), ("a year", None)):
        yield f"spend of a user, {span}", _of_each(store, asked, since, lambda name: {"user_id": f"user-{name}"})
        yield f"spend of a label, {span}", _of_each(store, asked, since, lambda name: {"labels": {"team": name}})
        yield f"spend of all, {span}", Case("threadkeep", lambda since=since: store.spend(since=since))  # type: ignore[misc]


def _of_each(store: Store, asked: list[str], since: date | None, about: Any) -> Case:
    def call() -> None:
        for name in asked:
            store.spend(since=since, **about(name))

    return Case("threadkeep", call, count=len(asked))


def _fill(floor: Floor, attempts: int) -> int:
    """Conversations of a year until now, with their attempts, in order of time; return the number of users and labels.

    What a conversation, user or label has is spread over the year.
    """
    talks = attempts // SPOKEN
    groups = max(talks // TALKS, 1)
    columns = ", ".join(CONVERSATION_COLUMNS)
    driver = floor.driver
    [found] = driver.read(f"SELECT {columns} FROM threadkeep_conversations")
    model = dict(zip(CONVERSATION_COLUMNS, found, strict=True))
    first = model["id"] + 1
    driver.begin()
    driver.load("conversations", CONVERSATION_COLUMNS, _conversations(model, first, talks, groups))
    driver.load(
        "conversation_labels", LABEL_COLUMNS,
        ((floor.tenant, first + number, "team", str(number % groups)) for number in range(talks)),
    )  # fmt: skip
    driver.commit()
    rows = _attempts(floor, first, attempts, groups)
    for _ in range(0, attempts, LOADED):
        driver.begin()
        driver.load("usage_records", COLUMNS, islice(rows, LOADED))
        driver.commit()
    return groups


def _conversations(model: dict[str, Any], first: int, talks: int, groups: int) -> Iterator[tuple[Any, ...]]:
    for number in range(talks):
        own = {"id": first + number, "public_id": secrets.token_bytes(16), "user_id": f"user-{number % groups}"}
        yield tuple({**model, **own}.values())


def _attempts(floor: Floor, first: int, attempts: int, groups: int) -> Iterator[tuple[Any, ...]]:
    step, now = timedelta(days=DAYS) / attempts, datetime.now(UTC)
    begin = now - step * attempts
    choose = random.Random(attempts)
    for number in islice(count(), attempts):
        at, talk = begin + step * number, number // SPOKEN
        taken, given = choose.randrange(100, 20_000), choose.randrange(10, 2_000)
        yield (
            floor.tenant, number + 1, floor.day(at), floor.moment(at), f"user-{talk % groups}", first + talk,
            number % SPOKEN, "openai", "gpt-5.4", "open_responses", "completed", choose.randrange(300, 9_000), taken,
            taken // 2, None, given, given // 3, taken + given, taken * 2_500, None,
        )  # fmt: skip
