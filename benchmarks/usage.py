"""Reports over a large ledger, against table scans and hand-written SQL; and what the ledger costs those who append."""

from __future__ import annotations

import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from itertools import islice
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from typing import Any, Final

import psycopg

from benchmarks.conversations import TURNS, floor_of, stored
from benchmarks.databases import Database, each_database, postgres_database, postgres_missing
from benchmarks.floor import Floor
from benchmarks.processes import Times, seconds_of, timed
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Store
from threadkeep.domain.reports import GRACE

SCAN_MUST: Final = 0.03  # filled days, against the same query by table scan
MUST: Final = 1.15  # reports on the ledger, against the best SQL by hand on the same indexes
WRITERS_MUST: Final = 0.9  # answers a second with the ledger, of those without it
DAYS: Final = 365
USERS: Final = 10_000
MODELS: Final = ("gpt-5.4", "gpt-5.4-mini", "claude-sonnet-4-5", "gemini-2.5-pro", "grok-4", "llama-4")
TOP: Final = 100
FAILED: Final = 0.02
RECENT: Final = timedelta(days=30)
SCAN_ROUNDS: Final = 5  # scans of a million rows take their time
LOADED: Final = 500_000  # rows in a transaction
WRITERS: Final = 16
ANSWERS: Final = 6  # of a writer, for each turn of other benchmarks: they take less time than the processes' start
WARM: Final = 3
COLUMNS: Final = (
    "tenant_id", "id", "day", "occurred_at", "user_id", "conversation_id", "response", "provider", "model", "format",
    "status", "latency_ms", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "total_tokens", "cost_nano", "usage",
)  # fmt: skip
FIGURES: Final = (*COLUMNS[12:19], "latency_ms")
USAGE: Final = (
    '{"input_tokens":1234,"input_tokens_details":{"cached_tokens":1024},"output_tokens":180,"total_tokens":1414}'
)

Rows = list[Any]


def run(scale: Scale) -> list[Line]:
    with each_database(scale.folder, "NORMAL") as databases:
        lines = [line for database in databases for line in _on(database, scale)]
    return lines + _writers(scale)


def _on(database: Database, scale: Scale) -> list[Line]:
    with database.store() as store:
        floor = floor_of(database)
        today = (datetime.now(UTC) - GRACE).date()  # so that all days of the ledger can be filled
        _note(database, "load", lambda: _fill(floor, scale.ledger, today))
        _note(database, "fill days", store.fill_usage_days)
        scanning = _tidied(database, floor)
        user = floor.driver.read(
            "SELECT user_id FROM threadkeep_usage_records WHERE tenant_id = %s "
            "GROUP BY user_id ORDER BY count(*) DESC LIMIT 1",
            (floor.tenant,),
        )[0][0]
        pairs = list(_pairs(store, ByHand(floor, database.kind, scanning), today - RECENT, user))
        for is_scan, rounds in ((True, min(scale.rounds, SCAN_ROUNDS)), (False, scale.rounds)):
            run_rounds([case for _, must, *cases in pairs for case in cases if (must == SCAN_MUST) == is_scan], rounds)
        floor.driver.close()
        if scanning is not None:
            scanning.close()
    label = "SQLite" if database.kind == "sqlite" else database.label
    return [Line.of(f"{what}, {scale.ledger:,} attempts", label, ours, base, must) for what, must, ours, base in pairs]


def _note(database: Database, what: str, call: Callable[[], object]) -> None:
    begin = time.perf_counter()
    call()
    print(f"usage, {database.label}: {what} {time.perf_counter() - begin:.1f} s", file=sys.stderr)


def _fill(floor: Floor, count: int, today: date) -> None:
    """Attempts of a year until yesterday, in order of time; a few users have most of them."""
    choose = random.Random(count)

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            day = today - timedelta(days=DAYS - number * DAYS // count)
            at = datetime(day.year, day.month, day.day, choose.randrange(24), choose.randrange(60), tzinfo=UTC)
            has_failed = choose.random() < FAILED
            taken, given = choose.randrange(100, 20_000), choose.randrange(10, 2_000)
            figures: tuple[int | None, ...] = (taken, taken // 2, None, given, given // 3, taken + given, taken * 2_500)
            yield (
                floor.tenant, number + 1, floor.day(at), floor.moment(at),
                f"user-{int(USERS * choose.random() ** 3)}", number // 20, number % 20,
                "openai", choose.choice(MODELS), "open_responses", "failed" if has_failed else "completed",
                choose.randrange(300, 9_000), *((None,) * 7 if has_failed else figures),
                None if has_failed else USAGE,
            )  # fmt: skip

    every = rows()
    for _ in range(0, count, LOADED):  # one transaction of ten millions would fill a write-ahead log of many gigabytes
        floor.driver.begin()
        floor.driver.load("usage_records", COLUMNS, islice(every, LOADED))
        floor.driver.commit()


def _tidied(database: Database, floor: Floor) -> psycopg.Connection | None:
    """Do what autovacuum does sooner or later; on PostgreSQL a connection that reads tables instead of indexes."""
    if database.kind == "sqlite":
        floor.analyze("usage_records")
        return None
    connection = psycopg.connect(database.url, autocommit=True)
    for table in (b"usage_records", b"usage_daily", b"usage_daily_models", b"usage_daily_sketches", b"usage_days"):
        connection.execute(b"VACUUM ANALYZE threadkeep_" + table)
    for kind in (b"indexscan", b"indexonlyscan", b"bitmapscan"):
        connection.execute(b"SET enable_" + kind + b" = off")
    return connection


class ByHand:
    """The same reports as SQL for one tenant, on the driver: all their sums, by a scan of the table or its indexes."""

    def __init__(self, floor: Floor, kind: str, scanning: psycopg.Connection | None) -> None:
        self._floor, self._kind, self._scanning = floor, kind, scanning
        cast = "CAST({0} AS bigint)" if kind == "postgresql" else "{0}"
        sums = [cast.format(f"sum({name})") for name in FIGURES]
        told = cast.format("sum(CASE WHEN cached_tokens IS NOT NULL THEN input_tokens END)")
        self._sums = ", ".join(["count(*)", *sums, told, "count(cost_nano)", "count(latency_ms)"])

    def by_model_and_day(self, since: date | None) -> Callable[[], Rows]:
        table = "threadkeep_usage_records" if self._kind == "postgresql" else "threadkeep_usage_records NOT INDEXED"
        bound = "" if since is None else " AND day >= %s"
        statement = (
            f"SELECT day, model, {self._sums} FROM {table} WHERE tenant_id = %s{bound} "
            "GROUP BY day, model ORDER BY model, day"
        )
        scanning, values = self._scanning, self._values(since)
        if scanning is None:
            return lambda: self._floor.driver.read(statement, values)
        return lambda: scanning.execute(statement.encode(), values).fetchall()

    def top_users(self, since: date) -> Callable[[], Rows]:
        statement = (
            f"SELECT user_id, {self._sums} FROM threadkeep_usage_records WHERE tenant_id = %s AND day >= %s "
            f"GROUP BY user_id ORDER BY sum(total_tokens) DESC NULLS LAST LIMIT {TOP}"
        )
        return lambda: self._floor.driver.read(statement, self._values(since))

    def user_by_day(self, user: str) -> Callable[[], Rows]:
        statement = (
            f"SELECT day, {self._sums} FROM threadkeep_usage_records WHERE tenant_id = %s AND user_id = %s "
            "GROUP BY day ORDER BY day"
        )
        return lambda: self._floor.driver.read(statement, (self._floor.tenant, user))

    def _values(self, since: date | None) -> tuple[Any, ...]:
        tenant = self._floor.tenant
        if since is None:
            return (tenant,)
        return (tenant, since if self._kind == "postgresql" else since.isoformat())


def _pairs(store: Store, by_hand: ByHand, recent: date, user: str) -> Iterator[tuple[str, float, Case, Case]]:
    kept = {"by": ("model", "day")}
    top = {"by": "user_id", "since": recent, "order_by": "total_tokens", "limit": TOP}
    reports: Sequence[tuple[str, float, dict[str, Any], Callable[[], Rows]]] = (
        ("tokens by model by day", SCAN_MUST, kept, by_hand.by_model_and_day(None)),
        ("tokens by model by day of 30 days", SCAN_MUST, {**kept, "since": recent}, by_hand.by_model_and_day(recent)),
        (f"top {TOP} users of 30 days", MUST, top, by_hand.top_users(recent)),
        ("a user by day", MUST, {"by": "day", "user_id": user}, by_hand.user_by_day(user)),
    )
    for what, must, question, base in reports:
        _check(store.usage(**question), base())
        ours = Case("threadkeep", lambda question=question: store.usage(**question))  # type: ignore[misc]
        yield what, must, ours, Case("floor", base)


def _check(found: Sequence[Any], wanted: Rows) -> None:
    sums = sorted((row.attempts, row.input_tokens, row.cost_nano, row.latency_ms) for row in found)
    width = len(wanted[0]) - 12
    if sums != sorted((row[width], row[width + 1], row[width + 7], row[width + 8]) for row in wanted):
        raise AssertionError("The report by hand says something else.")


# Writers


@dataclass(frozen=True, slots=True)
class Task:
    """What a writer does: append so many answers to a conversation, with a row of the ledger for each or without."""

    database: Database
    id: str
    answers: int
    has_ledger: bool


def _writers(scale: Scale) -> list[Line]:
    if postgres_missing() is not None:
        return []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.usage", "psycopg"])
    rates: dict[bool, list[float]] = {True: [], False: []}
    with postgres_database() as database, database.store() as store:
        for number in range(2 * scale.writer_rounds):
            has_ledger = number % 4 in {0, 3}  # in turns, and none always first
            answers = ANSWERS * scale.turns
            tasks = [Task(database, name, answers, has_ledger) for name in stored(store, 20, WRITERS)]
            rates[has_ledger].append(_rate(context, tasks))
    what = f"{WRITERS} writers with the ledger, over without"
    with_it, without = statistics.median(rates[True]), statistics.median(rates[False])
    found = statistics.median(a / b for a, b in zip(rates[True], rates[False], strict=True))
    return [Line(what, "PostgreSQL", without, with_it, WRITERS_MUST, unit="turns/s", is_least=True, measured=found)]


def _rate(context: ForkServerContext, tasks: Sequence[Task]) -> float:
    """Answers a second of all writers."""
    return sum(task.answers for task in tasks) / seconds_of(context, _write, tasks)


def _write(task: Task, barrier: Barrier, times: Times) -> None:
    if not task.has_ledger:
        _leave_out_the_ledger()
    body = TURNS[0][1]
    with Store(task.database.url) as store:
        conversation = store.get_conversation(task.id)
        times.put(timed(lambda: conversation.add_response(body, "open_responses"), WARM, task.answers, barrier))


def _leave_out_the_ledger() -> None:
    """In this process answers are stored without their rows of the ledger."""
    responses: Any = import_module("threadkeep.store.writing.responses")
    insert_items = responses.insert_items

    def without(*arguments: Any, beside: Sequence[tuple[Any, Any]], **options: Any) -> None:
        kept = [(table, row) for table, row in beside if table is not responses.usage_records]
        insert_items(*arguments, beside=kept, **options)

    responses.insert_items = without
    responses.ledger.attempt_row = lambda *_, **__: {}
