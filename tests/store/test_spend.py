"""`spend`: what a user, a label or a whole store has used since a time, asked before each turn."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import FACES
from tests.store.ledger import attempt_at
from tests.store.plans import recorded
from tests.store.watching import engine_of, statements_of, transactions_of
from threadkeep import InvalidOption
from threadkeep.store.removing.purging import hide_conversation

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAYS = [NOON - timedelta(days=number) for number in range(5)]
MICRO = 1_000  # of the cost of an attempt, in nano-USD


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def teams(store: Any) -> dict[str, Any]:
    """Five days of two users in two teams; each attempt costs ten times as much as of the one before."""
    made = {}
    for number, (user, team, tier) in enumerate([("ann", "a", "1"), ("ann", "b", "1"), ("bob", "a", "2")]):
        conversation = store.create_conversation(model="m", user_id=user, labels={"team": team, "tier": tier})
        figures = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
        attempt_at(conversation, *DAYS, cost=MICRO * 10**number, figures=figures)
        made[user + team] = conversation
    return made


def cost(store: Any, **asked: Any) -> int:
    """What is spent, as digits: one for each of the three conversations."""
    nano = store.spend(**asked).cost_nano
    return 0 if nano is None else nano // MICRO


def test_what_each_has_spent(store: Any, teams: dict[str, Any]) -> None:
    assert cost(store) == 555
    assert cost(store, user_id="ann") == 55
    assert cost(store, user_id="nobody") == 0
    assert cost(store, labels={"team": "a"}) == 505
    assert cost(store, labels={"team": "a", "tier": "1"}) == 5
    assert cost(store, labels={"team": "a"}, user_id="bob") == 500
    assert cost(store, labels={"team": "c"}) == 0
    assert cost(store.for_user("ann")) == 55
    assert cost(store.for_user("ann"), labels={"team": "a"}) == 5
    row = store.spend(user_id="bob")
    assert (row.attempts, row.costs, row.input_tokens, row.output_tokens, row.total_tokens) == (5, 5, 50, 5, 55)


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_a_span_of_time(store: Any, teams: dict[str, Any], is_rolled_up: bool) -> None:
    if is_rolled_up:
        store.fill_usage_days()
    cases: list[tuple[dict[str, Any], int]] = [({}, 111), ({"user_id": "ann"}, 11), ({"labels": {"team": "a"}}, 101)]
    for asked, digits in cases:
        assert cost(store, since=date(2026, 3, 9), **asked) == 2 * digits
        assert cost(store, since=date(2026, 3, 7), until=date(2026, 3, 9), **asked) == 2 * digits
        assert cost(store, since=NOON - timedelta(hours=1), **asked) == digits
        assert cost(store, since=NOON + timedelta(hours=1), **asked) == 0
        assert cost(store, since=DAYS[2], until=DAYS[0], **asked) == 2 * digits
        assert cost(store, since=date(2026, 3, 10), tz="Pacific/Apia", **asked) == 2 * digits  # 13 hours ahead


def test_deleted_conversations_count_for_their_user_and_no_label(store: Any, teams: dict[str, Any]) -> None:
    store.delete_conversation(teams["anna"].id)
    assert cost(store, user_id="ann") == 55
    assert cost(store, labels={"team": "a"}) == 500


def test_conversations_that_are_being_deleted_count_for_no_label(
    store: Any, stores: Any, teams: dict[str, Any]
) -> None:
    gone = teams["boba"]
    scope, transactions = gone.handle.ref.scope, transactions_of(stores.get("sync"))
    transactions.write(lambda connection: hide_conversation(connection, scope, gone.id, None))
    for labels in ({"team": "a"}, {"team": "a", "tier": "2"}, {"tier": "2", "team": "a"}):
        assert cost(store, labels=labels) == (0 if "tier" in labels else 5)


def test_attempts_that_count_as_nothing_are_counted(store: Any, teams: dict[str, Any]) -> None:
    attempt_at(teams["anna"], NOON, status="cancelled")
    attempt_at(teams["anna"], NOON, status="failed", figures={"input_tokens": 3})
    for asked in ({}, {"user_id": "ann"}, {"labels": {"team": "a"}}):
        row = store.spend(since=date(2026, 3, 10), **asked)
        assert (row.unknown_costs, row.attempts) == (2, 2 + row.costs)
    assert store.spend(user_id="bob").unknown_costs == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_label_reads_its_attempts_and_not_its_conversations(store: Any, teams: dict[str, Any]) -> None:
    with recorded(store) as statements:
        cost(store, labels={"team": "a", "tier": "1"}, since=date(2026, 3, 8))
    [(text, parameters)] = statements
    with engine_of(store).connect() as connection:
        plan = [step[3] for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)]
    [of_conversations] = [step for step in plan if "threadkeep_conversations " in step]
    assert "(status=? AND tenant_id=?)" in of_conversations  # the deleted ones


def test_other_tenants_have_spent_nothing(stores: Any, face: str, store: Any, teams: dict[str, Any]) -> None:
    other = stores.get(face).create_tenant(f"not {teams['anna'].id}")
    for asked in ({}, {"user_id": "ann"}, {"labels": {"team": "a"}}):
        assert cost(other, **asked) == 0
        assert cost(store, **asked) > 0


def test_labels_count_as_they_are_now(store: Any, teams: dict[str, Any]) -> None:
    teams["boba"].update(labels={"team": "b"})
    assert cost(store, labels={"team": "b"}) == 550


def test_an_attempt_of_today_counts_at_once(store: Any, teams: dict[str, Any]) -> None:
    store.fill_usage_days()
    attempt_at(teams["annb"], datetime.now(UTC), cost=MICRO * 1_000)
    for asked in ({}, {"user_id": "ann"}, {"labels": {"team": "b"}}):
        assert cost(store, since=datetime.now(UTC).date(), **asked) == 1_000
        assert cost(store, **asked) // 1_000 == 1


@pytest.mark.parametrize("asked", [{"user_id": "ann"}, {"labels": {"team": "a", "tier": "1"}}], ids=["user", "labels"])
def test_it_is_one_statement(store: Any, teams: dict[str, Any], asked: dict[str, Any]) -> None:
    cost(store, **asked)
    with statements_of(store) as statements:
        cost(store, since=date(2026, 3, 8), **asked)
    assert len([one for one in statements if "usage_records" in one]) == len(statements) == 1


def test_usage_takes_labels_with_its_groups(store: Any, teams: dict[str, Any]) -> None:
    rows = store.usage(by=("user_id", "day"), labels={"team": "a"}, since=date(2026, 3, 10))
    assert [(row.user_id, row.cost_nano) for row in rows] == [("ann", MICRO), ("bob", 100 * MICRO)]


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ({"user_id": ""}, "user_id"),
        ({"labels": ["team"]}, "labels"),
        ({"labels": {f"k{number}": "v" for number in range(17)}}, "labels"),
        ({"since": "today"}, "since"),
        ({"since": date(2026, 3, 2), "until": date(2026, 3, 1)}, "until"),
        ({"tz": "Mars"}, "tz"),
    ],
    ids=["user", "list", "many", "since", "span", "zone"],
)
def test_what_cannot_be_asked(store: Any, asked: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        store.spend(**asked)
    assert caught.value.argument == argument
