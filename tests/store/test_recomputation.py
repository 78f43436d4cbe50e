"""Costs of the ledger that are computed again: from the stored figures, for a span of time, and never twice."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from tests.store.ledger import attempt_at
from tests.store.watching import Tables, statements_of
from threadkeep import InvalidOption, MissingExtra, Price, RecomputationReport, Store
from threadkeep.db.models import usage_days
from threadkeep.domain.usage import Cost
from threadkeep.store.usage import prices
from threadkeep.store.usage.recomputation import BATCH

MARCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
FIGURES = dict(USAGE)
RIGHT = 100 * 2_500 + 10 * 15_000  # of gpt-5.4


def wrong(source: str = "genai-prices 0.1.0", nano: int = 1) -> Cost:
    return Cost(nano, json.dumps({"source": source}))


def used(conversation: Any, *moments: datetime, **about: Any) -> None:
    """Attempts with a cost that is not right any more."""
    known = {"model": "gpt-5.4", "figures": FIGURES, "usage": USAGE, "cost": wrong()}
    attempt_at(conversation, *moments, **(known | about))


def costs(tables: Tables) -> list[int | None]:
    return [row["cost_nano"] for row in tables.rows("usage_records", "id")]


def test_wrong_and_unknown_costs_are_mended_once(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation()
    used(conversation, MARCH, MARCH + DAY)
    used(conversation, MARCH, cost=None)
    assert store.recompute_costs() == RecomputationReport(attempts=3, changed=3, kept=0)
    assert costs(tables) == [RIGHT] * 3
    assert all(row["price"].startswith('{"source":"genai-prices ') for row in tables.rows("usage_records"))
    assert store.recompute_costs() == RecomputationReport(attempts=3, changed=0, kept=0)
    assert store.usage()[0].cost_nano == 3 * RIGHT


def test_what_the_list_does_not_know_is_unknown(store: Any, tables: Tables) -> None:
    """A plain price was computed, before the list of prices was asked for tiers."""
    conversation = store.create_conversation()
    used(conversation, MARCH, terms={"service_tier": "scale"})
    used(conversation, NOVEMBER, terms={"service_tier": "flex"})  # whose price is in the list since October
    used(conversation, MARCH, terms={"service_tier": "flex"})
    used(conversation, MARCH, terms={"units": {"web_searches": 2}})
    used(conversation, MARCH, model="my-own-model")
    assert store.recompute_costs().changed == 5
    assert costs(tables) == [None, RIGHT // 2, None, RIGHT + 2 * 10_000_000, None]


@pytest.mark.parametrize(
    "about",
    [{"cost": wrong("provider"), "usage": {**USAGE, "cost": 0.125}}, {"cost": wrong("own")}, {"usage": None}],
    ids=["reported by the provider", "from prices of an application", "erased usage"],
)
def test_costs_that_cannot_be_computed_again_stay(store: Any, tables: Tables, about: dict[str, Any]) -> None:
    used(store.create_conversation(), MARCH, **about)
    assert store.recompute_costs() == RecomputationReport(attempts=1, changed=0, kept=1)
    assert costs(tables) == [1]


def test_attempts_without_usage_have_no_cost(store: Any, tables: Tables) -> None:
    store.create_conversation().record_attempt("open_responses", error="timeout", occurred_at=MARCH)
    assert store.recompute_costs() == RecomputationReport(attempts=1, changed=0, kept=0)
    assert costs(tables) == [None]


@pytest.mark.parametrize(
    ("since", "until", "changed"),
    [
        (None, None, [0, 1, 2, 3]),
        (date(2026, 3, 2), None, [2, 3]),
        (None, date(2026, 3, 2), [0, 1]),
        (date(2026, 3, 2), date(2026, 3, 3), [2]),
        (MARCH + timedelta(hours=1), MARCH + DAY + timedelta(seconds=1), [1, 2]),
        (MARCH, MARCH, []),
        (date(1, 1, 1), date(9999, 12, 31), [0, 1, 2, 3]),
    ],
)
def test_a_span_of_time_is_enough(store: Any, tables: Tables, since: Any, until: Any, changed: list[int]) -> None:
    used(store.create_conversation(), MARCH, MARCH + timedelta(hours=2), MARCH + DAY, MARCH + 2 * DAY)
    report = store.recompute_costs(since=since, until=until)
    assert [number for number, cost in enumerate(costs(tables)) if cost == RIGHT] == changed
    assert report == RecomputationReport(attempts=len(changed), changed=len(changed), kept=0)


@pytest.mark.parametrize("is_filled", [True, False], ids=["rolled up", "not rolled up"])
def test_sums_of_days_follow(store: Any, tables: Tables, is_filled: bool) -> None:
    used(store.create_conversation(), MARCH, MARCH + DAY)
    used(store.create_conversation(), MARCH + 2 * DAY, cost=Cost(RIGHT, '{"source":"genai-prices 0.1.0"}'))
    if is_filled:
        assert store.fill_usage_days() > 2
    store.recompute_costs()
    assert [row.cost_nano for row in store.usage(by="day")] == [RIGHT] * 3
    assert store.reconcile_usage().repaired == 0
    assert [row.cost_nano for row in store.usage(by=("day", "model"))] == [RIGHT] * 3


def test_today_is_not_rolled_up(store: Any, watching: Engine) -> None:
    """The row of a day that is not over is a claim of the days before."""
    used(store.create_conversation(), datetime.now(UTC))
    assert store.recompute_costs().changed == 1
    with watching.begin() as connection:
        assert (
            connection.execute(usage_days.select().where(usage_days.c.tenant_id == store.handle.scope.tenant)).all()
            == []
        )
    assert store.usage()[0].cost_nano == RIGHT


def test_costs_of_other_tenants_stay(store: Any, stores: Any, tables: Tables) -> None:
    stores.get("sync").create_tenant(name := f"other-{uuid4().hex}")
    other = stores.get("sync").for_tenant(name)
    for one in (store, other):
        used(one.create_conversation(), MARCH)
    store.recompute_costs()
    assert costs(tables) == [RIGHT]
    assert other.usage()[0].cost_nano == 1


def test_transactions_are_small(tmp_path: Path) -> None:
    count = 2 * BATCH + 3
    with Store(f"sqlite:///{tmp_path}/many.db") as store:
        used(store.create_conversation(), *[MARCH] * count)
        with statements_of(store) as statements:
            assert store.recompute_costs() == RecomputationReport(count, count, 0)
        reads = [one for one in statements if "LIMIT" in one and "usage_records" in one]
        assert len(reads) == 3
        with statements_of(store) as again:
            store.recompute_costs()
        assert not [one for one in again if one.startswith(("UPDATE", "INSERT", "DELETE"))]
        assert store.usage(by="day")[0].cost_nano == count * RIGHT


def test_own_prices_apply_where_the_store_has_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    with Store(url) as store:
        used(store.create_conversation(), MARCH, cost=wrong("own"))
        used(store.create_conversation(), MARCH, model="mine", cost=None)
    with Store(url, prices=[Price("mine", input=1, output=2), Price("gpt-5.4", input=3, output=4)]) as store:
        assert store.recompute_costs() == RecomputationReport(attempts=2, changed=2, kept=0)
        assert sorted(row.cost_nano or 0 for row in store.usage(by="model")) == [120_000, 340_000]


def test_without_the_list_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/none.db"
    with Store(url) as store:
        used(store.create_conversation(), MARCH)
        monkeypatch.setattr(prices, "_snapshots", lambda: lambda: None)  # as if genai-prices was not installed
        with pytest.raises(MissingExtra, match=r"threadkeep\[prices\]"):
            store.recompute_costs()
    with Store(url, prices=[Price("mine", input=1, output=2)]) as store:
        assert store.recompute_costs() == RecomputationReport(attempts=1, changed=0, kept=1)


def test_it_is_for_all_users_and_a_real_span(store: Any) -> None:
    with pytest.raises(InvalidOption, match="all users"):
        store.for_user("ann").recompute_costs()
    with pytest.raises(InvalidOption, match="before"):
        store.recompute_costs(since=date(2026, 3, 2), until=date(2026, 3, 1))
    with pytest.raises(InvalidOption, match="time zone"):
        store.recompute_costs(since=datetime(2026, 3, 2))  # noqa: DTZ001
    with pytest.raises(InvalidOption, match="date"):
        store.recompute_costs(until="2026-03-02")
