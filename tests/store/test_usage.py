"""Reports over the ledger: by any time in any zone, by any column, from filled days or not."""

from __future__ import annotations

import itertools
import sqlite3
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Date, Engine, bindparam, create_engine, delete, event, insert, text

from tests.conftest import FACES
from tests.databases import Database
from tests.factories import a_completion, an_answer
from tests.store.ledger import attempt_at, expected, same
from tests.store.watching import Tables, engine_of, statements_of
from threadkeep import InvalidOption, ReconciliationReport, Store, UsageRow
from threadkeep.db.base import PREFIX
from threadkeep.db.models import METADATA, usage_records
from threadkeep.db.queries.usage import StatementKey, report_statement
from threadkeep.domain.reports import last_day

OTHER_ZONES = ("Asia/Kolkata", "America/New_York", "Pacific/Apia")
ZONES = (
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    *(pytest.param(zone, marks=pytest.mark.slow) for zone in OTHER_ZONES),
)
DAY = timedelta(days=1)
# Around midnight, around the hours at which clocks change, and long ago
MOMENTS = [
    datetime(2025, 3, 30, 0, 59, 59, 999_999, tzinfo=UTC),
    datetime(2025, 3, 30, 1, 0, tzinfo=UTC),
    datetime(2025, 10, 26, 0, 30, tzinfo=UTC),
    datetime(2025, 10, 26, 1, 30, tzinfo=UTC),
    datetime(2025, 10, 4, 15, 45, tzinfo=UTC),
    datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 2, 1, tzinfo=UTC),
    datetime(2026, 2, 1, 18, 29, 59, 999_600, tzinfo=UTC),
    datetime(2026, 2, 2, 4, 30, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
]
MODELS = ["gpt-5.4", None, "Zeta", "\u00e9", "a\\b", "a\x00", "aA", "a\ud800"]


@pytest.fixture(params=["sync"])
def face(request: pytest.FixtureRequest) -> str:
    """The actions are the same for both; tests that say so go through both."""
    return str(request.param)


@pytest.fixture
def ledger(store: Any) -> dict[int, str]:
    """Attempts of two users at all of these moments; the ids of their conversations by key."""
    ids = {}
    for user in ("ann", None):
        conversation = store.create_conversation(model="m", user_id=user, tools=[{"type": "function", "name": "f"}])
        ids[conversation.handle.ref.key] = conversation.id
        for number, at in enumerate(MOMENTS):
            figures = {"input_tokens": 100 + number, "output_tokens": number}
            if number % 3:
                figures |= {"cached_tokens": number, "total_tokens": 100 + 2 * number}
            attempt_at(
                conversation, at, figures=figures if number % 5 else None, cost=number * 7 if number % 2 else None,
                model=MODELS[number % len(MODELS)], provider=("openai", None)[number % 2],
                latency_ms=number if number % 4 else None, status=("completed", "failed")[number % 2],
            )  # fmt: skip
        conversation.add_response(an_answer("Hi"), "open_responses", provider="openai")
    return ids


def take_back(store: Any, watching: Engine, days: list[date]) -> None:
    """Let days be filled no more, though nothing came late."""
    update = text("UPDATE threadkeep_usage_days SET filled_at = NULL WHERE tenant_id = :tenant AND day = :day")
    with watching.begin() as connection:
        connection.execute(
            update.bindparams(bindparam("day", type_=Date)),
            [{"tenant": store.handle.scope.tenant, "day": day} for day in days],
        )


@pytest.fixture(params=["ledger", "filled", "partly"])
def days(request: pytest.FixtureRequest, store: Any, ledger: Any, watching: Engine) -> str:
    """How many days are filled."""
    if request.param != "ledger":
        assert store.fill_usage_days() > 300
        assert store.fill_usage_days() == 0
    if request.param == "partly":
        take_back(store, watching, [date(2026, 2, 1), date(2025, 10, 26)])
    return str(request.param)


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"by": ("day",)},
    {"by": ("model",)},
    {"by": ("day", "model", "provider", "format", "status")},
    {"by": ("month", "status")},
    {"by": ("week",)},
    {"by": ("hour",)},
    {"by": ("model", "hour")},
    {"by": ("user_id", "model")},
    {"by": ("conversation_id",)},
    {"by": ("hour", "conversation_id")},
    {"by": ("conversation_id",), "status": ["completed", "failed", None]},
    {"by": ("conversation_id", "hour", "model")},
    {"by": ("tool_set", "user_id")},
    {"by": ("response",)},
    {"by": ("model",), "order_by": "cost_nano", "limit": 3},
    {"by": ("user_id", "day"), "order_by": "latency_ms", "limit": 4},
    {"by": ("model",), "order_by": "attempts"},
    {"by": ("day",), "model": [None, "a\\b"]},
    {"model": []},
    {"by": ("model",), "status": "failed", "provider": None},
    {"by": ("day",), "user_id": "ann"},
    {"day": date(2026, 2, 1)},
    {"by": ("day",), "since": date(2026, 2, 1)},
    {"by": ("day",), "until": date(2026, 2, 1)},
    {"by": ("model",), "since": date(2025, 10, 26), "until": date(2026, 2, 2)},
    {
        "since": datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "until": datetime(2026, 2, 1, 18, 29, tzinfo=UTC),
    },
    {"by": ("day",), "since": datetime(2025, 10, 26, 1, 30, tzinfo=UTC)},
    {"by": ("day",), "until": datetime(2026, 2, 2, 4, 30, tzinfo=UTC)},
    {"since": date(2026, 2, 2), "until": date(2026, 2, 2)},
    {"by": ("model",), "since": date(2030, 1, 1)},
    {"by": ("model",), "since": date.min, "until": date.max, "limit": 10**30},
    {"by": ("day",), "until": date.min},
    {"by": ("day",), "since": date.max},
    {"by": ("model",), "response": [0, 10**30]},
]


@pytest.mark.share(3)
@pytest.mark.parametrize("tz", ZONES)
def test_every_question_has_the_answer_of_the_plain_ledger(
    store: Any, ledger: Any, tables: Tables, tz: str, days: str
) -> None:
    rows = tables.rows("usage_records", "id")
    for question in QUESTIONS:
        if tz == "UTC" or days == "ledger" or question.get("by") in {None, ("model",), ("day",)}:
            assert same(store.usage(tz=tz, **question), expected(rows, tz=tz, ids=ledger, **question)), question


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("table", "by"),
    [
        *(("usage_daily_models", by) for by in (("day",), ("day", "model"), ("model", "month"))),
        *(("usage_daily", by) for by in (("day", "format"), ("day", "model", "provider"), ("week", "status"))),
    ],
)
def test_filled_days_are_read(store: Any, ledger: Any, watching: Engine, table: str, by: tuple[str, ...]) -> None:
    """A figure that only the sums have shows it; this is how the other tests know what they compare."""
    store.fill_usage_days()
    day = date(2026, 2, 1)
    [honest] = store.usage(by="day", since=day, until=day + DAY)
    change = (
        f"UPDATE threadkeep_{table} SET attempts = attempts + 1 WHERE tenant_id = :tenant AND day = :day AND number = 0"
    )
    with watching.begin() as connection:
        of_day = text(change).bindparams(bindparam("day", day, Date), tenant=store.handle.scope.tenant)
        connection.execute(of_day)
    assert sum(row.attempts for row in store.usage(by=by, day=day)) == honest.attempts + 1
    take_back(store, watching, [day - DAY])
    assert sum(row.attempts for row in store.usage(by=by, day=day)) == honest.attempts + 1
    assert store.usage(by=("day", "user_id"), day=day, user_id="ann")[0].attempts == honest.attempts // 2
    assert store.usage(since=day, until=datetime(2026, 2, 1, 23, tzinfo=UTC))[0].attempts == honest.attempts
    assert store.reconcile_usage() == ReconciliationReport(filled=1, repaired=1)
    assert store.usage(by="day", day=day) == [honest]


@pytest.mark.parametrize("days", ["one span", "scattered"])
def test_the_ledger_is_not_looked_through_for_what_filled_days_do_not_have(
    store: Any, ledger: Any, watching: Engine, days: str
) -> None:
    """Changed by hand, only the ledger has it."""
    store.fill_usage_days()
    change = "UPDATE threadkeep_usage_records SET model = 'ghost' WHERE tenant_id = :tenant AND day = '2026-02-01'"
    with watching.begin() as connection:
        connection.execute(text(change), {"tenant": store.handle.scope.tenant})
    if days == "scattered":
        take_back(store, watching, [date(2026, 1, 31)])
    for more in ({}, {"order_by": "total_tokens", "limit": 3}, {"since": date(2026, 1, 30), "until": date(2026, 2, 3)}):
        for by in ("day", ("model", "status"), "month"):
            assert store.usage(by=by, model="ghost", **more) == []
        assert store.usage(model="ghost", **more) == [UsageRow({})]
    assert store.usage(by="user_id", model="ghost")


def test_a_report_of_today_is_one_statement(store: Any, ledger: Any, tables: Tables) -> None:
    """Today cannot be filled, so nobody asks whether it is."""
    store.fill_usage_days()
    today = max(row["day"] for row in tables.rows("usage_records", "id"))
    with statements_of(store) as seen:
        assert store.usage(by="day", since=today)
    assert len(seen) == 1
    assert "usage_daily" not in seen[0]


@pytest.mark.parametrize("by", [(), ("day",), ("model", "status"), ("month",)])
def test_a_day_may_be_taken_back_while_a_report_is_made(
    store: Any, stores: Any, tenant: str, ledger: Any, tables: Tables, by: tuple[str, ...]
) -> None:
    """… between its question which days are filled and its answer."""
    public_id = next(iter(ledger.values()))
    attempt_at(store.get_conversation(public_id), MOMENTS[-1])
    store.fill_usage_days()
    attempt_at(store.get_conversation(public_id), datetime(2026, 2, 20, tzinfo=UTC))  # days are scattered
    elsewhere = stores.get("sync", "late").for_tenant(tenant)

    @event.listens_for(engine_of(store), "after_cursor_execute")
    def come_late(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT threadkeep_usage_days.day") and not late:
            late.append(statement)
            attempt_at(elsewhere.get_conversation(public_id), MOMENTS[-1])

    late: list[str] = []
    try:
        found = store.usage(by=by)
    finally:
        event.remove(engine_of(store), "after_cursor_execute", come_late)
    assert late
    assert same(found, expected(tables.rows("usage_records", "id"), by=by))


@pytest.mark.parametrize("face", FACES, indirect=True)
def test_a_late_row_takes_its_day_back(store: Any, ledger: Any, tables: Tables) -> None:
    store.fill_usage_days()
    conversation = store.get_conversation(next(iter(ledger.values())))
    last = last_day(datetime.now(UTC))  # later ones may be there, too: they say who rolls up the days before
    filled = [row for row in tables.rows("usage_days", "day") if row["day"] <= last]
    assert all(row["filled_at"] for row in filled)
    attempt_at(conversation, datetime(2026, 2, 1, 23, 59, 59, tzinfo=UTC), figures={"input_tokens": 5})
    attempt_at(conversation, datetime(2024, 2, 1, tzinfo=UTC))
    rows = [row for row in tables.rows("usage_days", "day") if row["day"] <= last]
    taken_back = [row["day"] for row in rows if row["filled_at"] is None]
    assert taken_back == [date(2024, 2, 1), date(2026, 2, 1)]
    rows = tables.rows("usage_records", "id")
    for by in ((), ("day",), ("model",)):
        assert same(store.usage(by=by), expected(rows, by=by))
    assert store.fill_usage_days() >= 2
    assert same(store.usage(by=("day",)), expected(rows, by=("day",)))


def test_rows_of_today_take_nothing_back(store: Any, ledger: Any, tables: Tables) -> None:
    store.fill_usage_days()
    before = tables.rows("usage_days", "day")
    conversation = store.get_conversation(next(iter(ledger.values())))
    conversation.add_response(an_answer("Hi"), "open_responses")
    conversation.record_attempt("chat_completion")
    assert tables.rows("usage_days", "day") == before
    assert [row["day"] for row in before if row["filled_at"]][-1] < datetime.now(UTC).date()


@pytest.mark.parametrize("table", ["usage_daily", "usage_daily_models"])
def test_a_sum_that_is_there_twice_is_mended(
    store: Any, ledger: Any, tables: Tables, watching: Engine, table: str
) -> None:
    store.fill_usage_days()
    honest = store.usage(by=("day", "model")), store.usage(by=("day", "status"))
    kept = METADATA.tables[PREFIX + table]
    with watching.begin() as connection:
        connection.execute(insert(kept), {**tables.rows(table, "day")[0], "number": 99})
    assert (store.usage(by=("day", "model")), store.usage(by=("day", "status"))) != honest
    assert store.reconcile_usage() == ReconciliationReport(filled=0, repaired=1)
    assert (store.usage(by=("day", "model")), store.usage(by=("day", "status"))) == honest


@pytest.mark.parametrize("face", FACES, indirect=True)
def test_rows_that_were_changed_by_hand_are_mended(store: Any, ledger: Any, tables: Tables, watching: Engine) -> None:
    store.fill_usage_days()
    filled = [row["day"] for row in tables.rows("usage_days", "day")]
    assert store.reconcile_usage() == ReconciliationReport(filled=0, repaired=0)
    with watching.begin() as connection:
        of_tenant = delete(usage_records).where(usage_records.c.tenant_id == store.handle.scope.tenant)
        connection.execute(of_tenant.where(usage_records.c.day.in_([date(2026, 2, 1), date(2025, 3, 30)])))
    assert store.reconcile_usage() == ReconciliationReport(filled=0, repaired=2)
    assert same(store.usage(by="day"), expected(tables.rows("usage_records", "id"), by=("day",)))
    assert [row["day"] for row in tables.rows("usage_days", "day")] == filled


def test_a_store_of_one_user_sums_no_days(store: Any, ledger: Any, tables: Tables) -> None:
    mine = store.for_user("ann")
    for call in (mine.fill_usage_days, mine.reconcile_usage):
        with pytest.raises(InvalidOption, match="ann"):
            call()
    store.fill_usage_days()
    rows = [row for row in tables.rows("usage_records", "id") if row["user_id"] == "ann"]
    assert same(mine.usage(by=("day",)), expected(rows, by=("day",)))


def test_a_store_without_a_ledger_has_nothing_to_fill(store: Any) -> None:
    assert store.fill_usage_days() == 0
    assert store.reconcile_usage() == ReconciliationReport(0, 0)
    assert store.usage()[0].attempts == 0
    assert store.usage(by="hour", tz="Asia/Tokyo") == []


def test_conversations_that_are_gone_count_together(store: Any, ledger: Any) -> None:
    gone, kept = list(ledger.values())
    other = store.create_conversation(model="m")
    other.record_attempt("open_responses")
    for public_id in (gone, other.id):
        store.delete_conversation(public_id)
    rows = store.usage(by="conversation_id")
    assert [(row.conversation_id, row.attempts) for row in rows] == [(kept, len(MOMENTS) + 1), (None, len(MOMENTS) + 2)]
    [top] = store.usage(by=("status", "conversation_id"), order_by="attempts", limit=1, status="failed")
    assert (top.conversation_id, top.attempts) == (None, len(MOMENTS) // 2 + 1)


def test_conversations_that_are_gone_are_found_together(store: Any, ledger: Any) -> None:
    gone, kept = list(ledger.values())
    store.delete_conversation(gone)
    count = len(MOMENTS) + 1
    assert store.usage(conversation_id=None)[0].attempts == count
    assert store.usage(conversation_id=[None, kept])[0].attempts == 2 * count
    assert store.usage(conversation_id=[gone, kept])[0].attempts == count
    assert store.usage(conversation_id=gone)[0].attempts == 0
    assert store.usage(conversation_id=None, status=["completed", "failed"])[0].attempts == count
    [row] = store.usage(by=("conversation_id",), conversation_id=None)
    assert (row.conversation_id, row.attempts) == (None, count)
    assert store.usage(by="hour", tz="Europe/Berlin", conversation_id=[None], limit=1)[0].attempts == 1


@pytest.mark.parametrize(
    "filters",
    [
        {"day": datetime(2026, 2, 1, tzinfo=UTC)},
        {"day": "2026-02-01"},
        {"conversation_id": 7},
        {"conversation_id": 2**70},
        {"response": True},
        {"model": [None, 7]},
    ],
    ids=str,
)
def test_other_values_are_refused(store: Any, filters: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(filters))):
        store.usage(**filters)


def test_ten_thousand_values_are_looked_for_and_no_more(store: Any, ledger: Any) -> None:
    names = [f"user {number}" for number in range(10_000)]
    assert store.usage(user_id=names)[0].attempts == 0
    for more in ({"user_id": [*names, "one more"]}, {"user_id": names, "model": "m"}):
        with pytest.raises(InvalidOption, match="at most 10,000 values"):
            store.usage(**more)


@pytest.mark.parametrize(("count", "is_kept"), [(3, True), (5_000, False)])
def test_statements_that_take_megabytes_are_not_kept(count: int, is_kept: bool) -> None:
    shape = StatementKey(by=("day",), filters=(("model", count, False),))
    assert (report_statement(shape) is report_statement(shape)) == is_kept


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_sqlite_takes_as_many_values_where_it_is_built_as_usual(database: Database) -> None:
    """Debian's takes 250,000 parameters, others 32,766."""
    engine = create_engine(database.engine().url)

    @event.listens_for(engine, "connect")
    def limit(connection: sqlite3.Connection, _record: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)

    with Store(engine, tenants=True) as store:
        tenant = store.create_tenant("many values")
        attempt_at(tenant.create_conversation(model="m"), MOMENTS[0], model="m")
        tenant.fill_usage_days()
        for by in ((), ("day", "model"), ("user_id",)):
            [row] = tenant.usage(by=by, model=[*(f"m{number}" for number in range(9_998)), "m"], status="completed")
            assert row.attempts == 1
    engine.dispose()


def test_a_tool_set_is_found_by_its_hash(store: Any, ledger: Any) -> None:
    [plain, tools] = sorted(store.usage(by="tool_set"), key=lambda row: row.tool_set is not None)
    assert (plain.tool_set, plain.attempts, tools.attempts) == (None, 2 * len(MOMENTS), 2)
    assert store.usage(tool_set=tools.tool_set)[0].attempts == 2
    with pytest.raises(InvalidOption, match="tool_set"):
        store.usage(tool_set="xyz")


def test_the_ledger_names_the_model_that_was_asked(store: Any, tables: Tables) -> None:
    """… where the answer names none: Converse never does."""
    conversation = store.create_conversation(model="asked")
    conversation.add_response({**a_completion(), "model": None}, "chat_completion")
    assert [row["model"] for row in tables.rows("usage_records", "id")] == ["asked"]


def test_a_latency_that_cannot_be_one_is_unknown(store: Any) -> None:
    """Somebody took a clock for it: sums of thousands of these would be too large for the databases."""
    conversation = store.create_conversation(model="m")
    conversation.record_attempt("open_responses", latency_ms=1_760_000_000_000_000)
    conversation.record_attempt("open_responses", latency_ms=20)
    assert (store.usage()[0].latency_ms, store.usage()[0].latencies) == (20, 1)


def test_days_are_filled_in_batches_and_only_when_they_are_over(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m")
    now = datetime.now(UTC)
    for age in (0, 1, 2, 40):
        attempt_at(conversation, now - age * DAY, figures={"input_tokens": 1})
    assert store.fill_usage_days() in {39, 40}  # yesterday only when it has been over for an hour
    last = (now - timedelta(hours=1)).date() - DAY
    assert [row["day"] for row in tables.rows("usage_days", "day") if row["filled_at"]][-1] in {last, last + DAY}
    assert [row["attempts"] for row in tables.rows("usage_daily", "day")] == [1] * (
        3 if last == now.date() - DAY else 2
    )


def test_many_scattered_days(store: Any, ledger: Any, tables: Tables, watching: Engine) -> None:
    """More ranges of filled days than a statement should have."""
    store.fill_usage_days()
    days = [row["day"] for row in tables.rows("usage_days", "day")][:200:2]
    take_back(store, watching, days)
    rows = tables.rows("usage_records", "id")
    for by in itertools.combinations(("month", "model", "status"), 2):
        assert same(store.usage(by=by), expected(rows, by=by))


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("by", [(), ("day", "model"), ("month", "status")])
def test_mariadb_does_not_read_the_ledger_of_filled_days(
    store: Any, ledger: Any, tables: Tables, watching: Engine, by: tuple[str, ...]
) -> None:
    """It looks through a whole index where it is not told from which day to which; no benchmark would show that."""
    count = 10_000
    example = {**tables.rows("usage_records", "id")[0], "day": date(2026, 2, 1)}
    with watching.begin() as connection:
        connection.execute(insert(usage_records), [{**example, "id": number} for number in range(1, count + 1)])
    store.fill_usage_days()
    rows_read = text("SELECT sum(variable_value) FROM information_schema.session_status WHERE variable_name LIKE :name")
    with watching.begin() as connection:
        before = connection.execute(rows_read, {"name": "Handler_read%"}).scalar_one()
        found = store.within(connection).usage(by=by, until=date(2026, 2, 2))
        after = connection.execute(rows_read, {"name": "Handler_read%"}).scalar_one()
    assert sum(row.attempts for row in found) > count
    assert int(after) - int(before) < count / 2
