"""Days of the ledger roll themselves up: after responses, by one process, in bounded parts, without harm."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.factories import a_stream, an_answer
from tests.store.clocks import host_clock
from tests.store.watching import Tables, statements_of
from threadkeep import Store
from threadkeep.domain.reports import last_day
from threadkeep.store.usage.rollups import claim
from threadkeep.store.work.connections import Replay

FORMAT = "open_responses"
DAY = timedelta(days=1)


def answer(store: Any, conversation: Any = None) -> Any:
    conversation = conversation or store.create_conversation(model="m", user_id="ann")
    conversation.add_response(an_answer(usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}), FORMAT)
    return conversation


def report(store: Any, *days: int, attempts: int = 1) -> list[date]:
    """Attempts of so many days ago."""
    conversation = store.create_conversation(model="m")
    noon = datetime.now(UTC).replace(hour=12)
    usage = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
    for day in days:
        for _ in range(attempts):
            conversation.record_attempt(FORMAT, usage=usage, occurred_at=noon - day * DAY)
    return [(noon - day * DAY).date() for day in days]


def rolled_up(tables: Tables) -> list[date]:
    return [row["day"] for row in tables.rows("usage_days", "day") if row["filled_at"] is not None]


def claims(tables: Tables) -> list[date]:
    """Days that are claimed: their rows are there before they can be rolled up."""
    last = last_day(datetime.now(UTC))
    return [row["day"] for row in tables.rows("usage_days", "day") if row["day"] > last]


def test_the_first_response_rolls_up_what_is_over(store: Any, tables: Tables) -> None:
    first, last = report(store, 9, 3)
    before = store.usage(by=("day", "model"))
    assert rolled_up(tables) == []
    answer(store)
    over = last_day(datetime.now(UTC))
    assert rolled_up(tables) == [first + n * DAY for n in range((over - first).days + 1)]
    assert last in rolled_up(tables)
    assert claims(tables) == [over + DAY]
    assert [row for row in store.usage(by=("day", "model")) if row.day < over] == before
    assert {row["attempts"] for row in tables.rows("usage_daily", "day")} == {1}
    assert store.fill_usage_days() == 0


def test_a_recorded_stream_is_a_response_too(store: Any, tables: Tables) -> None:
    report(store, 5)
    with store.create_conversation(model="m").stream_response(FORMAT) as recorder:
        for event in a_stream("Hi"):
            recorder.feed(event)
    assert len(rolled_up(tables)) >= 4


def test_nothing_is_claimed_where_nothing_is_over(store: Any, tables: Tables) -> None:
    answer(store)
    assert tables.rows("usage_days") == []


def test_one_process_does_it(store: Any, elsewhere: Any, tables: Tables, watching: Engine) -> None:
    report(store, 4)
    conversation = answer(store)
    filled = tables.rows("usage_days", "day")
    report(store, 4)  # which comes late
    answer(elsewhere, elsewhere.get_conversation(conversation.id))
    assert [row["day"] for row in tables.rows("usage_days", "day")] == [row["day"] for row in filled]
    assert len(rolled_up(tables)) == len(filled) - 2, "neither the claim nor the day that is to be rolled up again"
    tenant, day = store.handle.scope.tenant, filled[-1]["day"] + 7 * DAY
    with watching.begin() as connection:
        assert claim(connection, tenant, day) == date.min
    before = tables.counts()
    with watching.connect() as connection, pytest.raises(Replay):
        claim(connection, tenant, day)
    assert tables.counts() == before


def test_late_rows_are_counted_and_rolled_up_the_next_day(store: Any, tables: Tables) -> None:
    (day,) = report(store, 4)
    conversation = answer(store)
    assert day in rolled_up(tables)
    report(store, 4)
    answer(store, conversation)
    assert day not in rolled_up(tables)
    assert [row.attempts for row in store.usage(by=("day", "model")) if row.day == day] == [2]
    with host_clock(DAY):
        answer(store, conversation)
        assert [row.attempts for row in store.usage(by=("day", "model")) if row.day == day] == [2]
    assert day in rolled_up(tables)
    assert len(claims(tables)) == 2
    assert [row["attempts"] for row in tables.rows("usage_daily", "day") if row["day"] == day] == [2]


def test_a_day_costs_one_statement_and_then_none(store: Any, tables: Tables) -> None:
    """The first response looks whether there is something to do, others know; filling takes as many for any day."""
    conversation = store.create_conversation(model="m")
    counts = []
    for _ in range(3):
        with statements_of(store) as seen:
            answer(store, conversation)
        counts.append(len(seen))
    assert counts[0] == counts[1] + 1 == counts[2] + 1
    costs = []
    for ago, attempts in ((3, 1), (8, 30)):
        report(store, ago, attempts=attempts)
        with host_clock(ago * DAY), statements_of(store) as seen:
            answer(store, conversation)
        costs.append(len(seen) - counts[1])
    assert costs[0] == costs[1] <= 14, costs


def test_a_large_day_is_left_to_others(store: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each response does a bounded part of the work, and a day that is more than that does not stop the rest."""
    monkeypatch.setattr("threadkeep.store.usage.rollups.MOST_ATTEMPTS", 3)
    first, large, *_, last = report(store, 60, 50, 49, 5, 4)
    report(store, 50, attempts=4)
    conversation = answer(store)
    counts = [len(rolled_up(tables))]
    for _ in range(40):
        answer(store, conversation)
        counts.append(len(rolled_up(tables)))
    assert max(after - before for before, after in pairwise([0, *counts])) <= 31
    assert counts[-1] == counts[-9] > 31
    days = rolled_up(tables)
    assert large not in days
    assert {first, last} <= set(days)
    expected = store.usage(by=("day", "model"))
    assert store.fill_usage_days() == 1
    assert store.usage(by=("day", "model")) == expected


def test_a_failure_is_logged_and_not_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        report(store, 4)
        transactions: Any = store.handle.transactions
        with transactions.engine.begin() as connection:
            connection.execute(text("ALTER TABLE threadkeep_usage_daily RENAME TO gone"))
        with caplog.at_level(logging.WARNING, "threadkeep.usage"):
            conversation = answer(store)
        assert conversation.get_response(0).status == "completed"
        assert [record.name for record in caplog.records] == ["threadkeep.usage"]
        assert store.usage()[0].attempts == 2


def test_nothing_is_done_in_a_transaction_of_the_caller(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        report(store, 4)
        conversation = store.create_conversation(model="m")
        transactions: Any = store.handle.transactions
        with transactions.engine.begin() as connection:
            answer(store.within(connection), store.within(connection).get_conversation(conversation.id))
        assert store.fill_usage_days() >= 3
