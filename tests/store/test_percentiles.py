"""Percentiles of latencies and times to the first token: over the ledger, over rolled-up days, and over both."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.ledger import attempt_at
from tests.store.watching import Tables, statements_of
from threadkeep.domain.reports import PERCENTILES
from threadkeep.domain.sketches import SHARES, Sketch

NOW = datetime.now(UTC)
DAYS = [NOW - timedelta(days=ago) for ago in (0, 2, 3, 40)]
MEASURES = ("latency_ms", "first_token_ms")


def nearest_rank(durations: Iterable[int], share: float) -> int | None:
    """The percentile of all of them: what SQL calls percentile_disc."""
    ordered = sorted(durations)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def is_close(found: float | None, wanted: int | None) -> bool:
    return found == wanted if found is None or wanted is None else abs(found - wanted) <= 0.01 * wanted + 1e-9


@pytest.fixture
def attempts(store: Any) -> list[dict[str, Any]]:
    """A few hundred, of two models, users and teams, in four days; some without latency or time to the first token."""
    chance, made = Random(38), list[dict[str, Any]]()
    talks = [
        store.create_conversation(model="m", user_id=user, labels={"team": team})
        for user, team in (("ann", "a"), ("ben", "b"))
    ]
    for number in range(120):
        talk = chance.choice(talks)
        about: dict[str, Any] = {
            "model": chance.choice(["big", "small", None]), "status": chance.choice(["completed", "failed"]),
            "latency_ms": chance.choice([None, 0, 1, 900, int(chance.lognormvariate(8, 2))]),
            "first_token_ms": chance.choice([None, int(chance.lognormvariate(6, 1))]),
        }  # fmt: skip
        day = DAYS[number % len(DAYS)]
        attempt_at(talk, day, **about)
        made.append({**about, "day": day.date(), "user_id": talk.user_id, "label:team": talk.labels["team"]})
    return made


def check(rows: list[Any], attempts: list[dict[str, Any]]) -> None:
    """Compare percentiles of a report with those of its attempts."""
    assert rows
    for row in rows:
        members = [one for one in attempts if all(one[name] == value for name, value in row.keys.items())]
        assert row.attempts == len(members)
        for measure in MEASURES:
            known = [one[measure] for one in members if one[measure] is not None]
            for name, share in SHARES.items():
                found, wanted = getattr(row, f"{name}_{measure}"), nearest_rank(known, share)
                assert is_close(found, wanted), (row.keys, name, measure, found, wanted)


BY: list[tuple[str, ...]] = [
    (), ("model",), ("day",), ("day", "model", "status"), ("status",), ("user_id",), ("label:team", "model"),
    ("user_id", "day"),
]  # fmt: skip


def test_by_any_key_from_the_ledger_and_from_days(store: Any, attempts: list[dict[str, Any]]) -> None:
    before = {by: store.usage(by=by, percentiles=True) for by in BY}
    for rows in before.values():
        check(rows, attempts)
    assert store.fill_usage_days() > 0
    assert {by: store.usage(by=by, percentiles=True) for by in BY} == before
    first = store.usage(by="model", percentiles=True, order_by="attempts", limit=1)
    assert first == sorted(before["model",], key=lambda row: -row.attempts)[:1]
    failed = [one for one in attempts if one["status"] == "failed"]
    check(store.usage(by="day", percentiles=True, status="failed", since=DAYS[-1].date()), failed)


def test_what_was_not_measured_or_not_asked_for_is_none(store: Any, attempts: list[dict[str, Any]]) -> None:
    [row] = store.usage()
    assert [getattr(row, name) for name in PERCENTILES] == [None] * len(PERCENTILES)
    assert row.to_dict().keys().isdisjoint(PERCENTILES)
    assert set(store.usage(percentiles=True)[0].to_dict()) > set(PERCENTILES)
    [row] = store.usage(percentiles=True, model="none of this name")
    assert (row.attempts, row.percentiles) == (0, dict.fromkeys(PERCENTILES))


def test_statements_and_rows_do_not_grow_with_attempts(
    store: Any, attempts: list[dict[str, Any]], tables: Tables
) -> None:
    """Of the rolled-up days, the sums, and the durations, which read a row of each of these days, and no attempts."""
    store.fill_usage_days()
    with statements_of(store) as seen:
        store.usage(by="model", percentiles=True)
    assert len(seen) == 3
    rows = len(tables.rows("usage_daily_sketches"))
    talk = store.create_conversation(model="m")
    for ago in (2, 3, 40):
        attempt_at(talk, *[NOW - timedelta(days=ago)] * 50, model="big", status="completed", latency_ms=70)
    store.fill_usage_days()
    assert len(tables.rows("usage_daily_sketches")) <= rows + 3


def test_changed_rows_and_damaged_counts_are_mended(
    store: Any, attempts: list[dict[str, Any]], tables: Tables, watching: Any
) -> None:
    store.fill_usage_days()
    honest = store.usage(by="day", percentiles=True)
    wrong = "UPDATE threadkeep_usage_daily_sketches SET latency_ms = '[5,1]' WHERE latency_ms IS NOT NULL"
    with watching.begin() as connection:
        connection.exec_driver_sql(wrong)
    assert store.usage(by="day", percentiles=True) != honest
    assert store.reconcile_usage().repaired == 3
    assert store.usage(by="day", percentiles=True) == honest


@given(st.lists(st.integers(0, 10**12), min_size=1), st.integers(1, 5))
def test_counts_add_up_in_any_order(durations: list[int], parts: int) -> None:
    whole, joined = Sketch(), Sketch()
    for duration in durations:
        whole.add(duration, 1)
    for part in reversed(range(parts)):
        some = Sketch()
        for duration in durations[part::parts]:
            some.add(duration, 1)
        joined.add_text(some.text)
    assert joined.text == whole.text
    for name, share in SHARES.items():
        assert is_close(joined.percentiles()[name], nearest_rank(durations, share))
