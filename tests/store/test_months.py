"""A store whose raw bodies are in partitions of months: retention drops these, and all else is as without them.

All of it: ``THREADKEEP_TEST_MONTHS=1 make test-all ARGS='-k postgresql'``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, make_url, select, text, update

from tests.conftest import provided
from tests.databases import Database, Databases
from tests.factories import an_answer
from tests.store.test_partitions import plans_of
from tests.store.test_retention import *  # noqa: F403 - the tests of that module, and its fixtures
from tests.store.watching import statements_of
from threadkeep import NotFound, Store, schema
from threadkeep.db import partitions
from threadkeep.db.models import response_bodies

FORMAT = "open_responses"
TODAY = datetime.now(UTC)
OLDEST = TODAY - timedelta(days=200)
THEN = TODAY.replace(day=1) - timedelta(days=40)  # in the last month but one
SYNC = pytest.mark.parametrize("face", ["sync"])


def with_months(engine: Engine) -> None:
    schema.upgrade(engine, partitions=4, monthly_bodies=OLDEST.date())


@pytest.fixture(scope="module", params=["postgresql"])
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    """A database with partitions of months, in place of one without."""
    yield from provided(databases, request.param, with_months)


@pytest.fixture(autouse=True)
def all_months(database: Database) -> None:
    """The partitions that tests before have dropped, made again; nothing is in them."""
    with database.engine().begin() as connection:
        connection.execute(text(f"TRUNCATE {partitions.BODIES}"))
        for month in partitions.months_until(OLDEST.date(), TODAY.date()):
            connection.execute(text(partitions.creation(month)))


def answered(store: Any, watching: Engine, moment: datetime = THEN, count: int = 3) -> Any:
    """A conversation with some raw bodies of a moment, and one of today."""
    conversation = store.create_conversation(model="m", input="Hi")
    for number in range(count + 1):
        conversation.add_response(an_answer(f"Hello {number}"), FORMAT)
    table = response_bodies.c
    where = (table.conversation_id == conversation.handle.ref.key) & (table.number < count)
    with watching.begin() as connection:
        connection.execute(update(response_bodies).where(where).values(created_at=moment))
    return conversation


def names(watching: Engine) -> set[str]:
    with watching.connect() as connection:
        return {month.name for month in partitions.find_months(connection) or ()}


def part_of(moment: datetime) -> str:
    return partitions.month_of(moment.date()).name


def test_a_month_that_is_due_is_dropped(store: Any, watching: Engine) -> None:
    conversation, told = answered(store, watching), []
    due = store.retain(raw_bodies=5, dry_run=True)
    assert store.retain(raw_bodies=5, progress=lambda *so_far: told.append(so_far)) == due
    assert (due.raw_bodies, told[-1]) == (3, ("raw bodies", 3))
    left = names(watching)
    assert part_of(OLDEST) not in left
    assert part_of(THEN) not in left
    assert part_of(TODAY) in left
    assert conversation.response_body(3)
    with pytest.raises(NotFound):
        conversation.response_body(0)
    assert len(store.get_conversation(conversation.id).transcript()) == 5
    assert store.check().found == 0
    assert store.retain(raw_bodies=5).raw_bodies == 0


@SYNC
def test_a_month_that_is_not_over_is_emptied_row_by_row(store: Any, watching: Engine) -> None:
    answered(store, watching, TODAY - timedelta(hours=1))
    assert store.retain(raw_bodies=timedelta(minutes=30)).raw_bodies == 3
    assert part_of(TODAY) in names(watching)


@SYNC
def test_whole_months_leave_what_is_due_only_in_part(store: Any, watching: Engine) -> None:
    answered(store, watching, THEN.replace(day=1))
    kept = THEN.replace(day=1) + timedelta(days=2)
    for options in ({"dry_run": True}, {}):
        assert store.retain(raw_bodies=TODAY - kept, whole_months=True, **options).raw_bodies == 0
    assert store.retain(raw_bodies=TODAY - kept).raw_bodies == 3


@SYNC
def test_a_month_of_several_tenants_goes_with_the_last_one(
    stores: Any, face: str, tenant: str, store: Any, watching: Engine
) -> None:
    other = stores.get(face).create_tenant(f"other {tenant}")
    answered(store, watching)
    kept = answered(other, watching)
    assert store.retain(raw_bodies=5).raw_bodies == 3
    assert part_of(THEN) in names(watching)
    assert kept.response_body(0)
    assert other.retain(raw_bodies=5).raw_bodies == 3
    assert part_of(THEN) not in names(watching)


def months_read(watching: Engine, statements: Any) -> set[str]:
    """The partitions of raw bodies that statements read."""
    with watching.connect() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
            for statement, parameters in statements
        ]
    read = json.dumps([plan[0]["Plan"] for plan in plans])
    return set(re.findall(rf'"Relation Name": "({partitions.BODIES}_\w+)"', read))


@SYNC
def test_a_raw_body_is_looked_for_in_its_month(store: Any, watching: Engine) -> None:
    """… and elsewhere, if it was stored at another time than its response."""
    conversation = answered(store, watching)
    today = {part_of(TODAY - timedelta(days=1)), part_of(TODAY + timedelta(days=1))}
    assert months_read(watching, plans_of(store, lambda: conversation.response_body(3))) == today
    assert part_of(THEN) in months_read(watching, plans_of(store, lambda: conversation.response_body(0)))


@SYNC
def test_what_has_no_month_is_in_the_default_partition(store: Any, watching: Engine) -> None:
    """It can be read, and goes row by row."""
    conversation = answered(store, watching, datetime(2019, 5, 6, tzinfo=UTC))
    with watching.connect() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {partitions.DEFAULT}")).scalar_one() == 3
    assert conversation.response_body(0)
    assert store.retain(raw_bodies=5).raw_bodies == 3


@SYNC
def test_retention_makes_the_months_that_come(store: Any, watching: Engine) -> None:
    expected = names(watching)
    lost = max(expected)
    with watching.begin() as connection:
        connection.execute(text(f"DROP TABLE {lost}"))
    store.retain(raw_bodies=timedelta(days=300))
    assert names(watching) == expected


@SYNC
def test_who_does_not_own_the_tables_is_told_of_months_that_are_missing(
    store: Any, database: Database, tenant: str, watching: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise nobody learns that all rows of months to come will be in the default partition."""
    role, last = f"threadkeep_test_{uuid4().hex[:8]}", max(names(watching))
    answered(store, watching)
    with watching.begin() as connection:
        connection.execute(text(f"DROP TABLE {last}"))
        connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"))
    try:
        url = make_url(database.url).set(username=role).render_as_string(hide_password=False)
        with Store(url, tenants=True) as opened:
            assert opened.for_tenant(tenant).retain(raw_bodies=5).raw_bodies == 3
        told = f"The partition {last} is missing, and only the owner of {partitions.BODIES} makes it."
        assert told in [record.getMessage() for record in caplog.records]
        assert last not in names(watching)
    finally:
        with watching.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))


def locking(statements: list[str]) -> list[str]:
    """The statements that lock all raw bodies."""
    return [statement for statement in statements if statement.startswith(("CREATE", "ALTER", "LOCK"))]


@SYNC
def test_a_month_with_rows_in_the_default_partition_stays_there(
    store: Any, database: Database, watching: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """That is found out without a lock, for which appends would wait again and again."""
    with watching.begin() as connection:
        connection.execute(text(f"DROP TABLE {part_of(TODAY)}"))
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_response(an_answer("Hello"), FORMAT)
    with statements_of(store) as statements:
        assert store.retain(raw_bodies=timedelta(days=300)).raw_bodies == 0
    assert not locking(statements)
    told = f"The partition {part_of(TODAY)} is missing, and {partitions.DEFAULT} has rows of this month"
    assert told in caplog.text
    schema.upgrade(database.engine())
    assert part_of(TODAY) not in names(watching)
    assert conversation.response_body(0)


@SYNC
def test_a_large_default_partition_is_not_looked_through_while_appends_wait(
    store: Any, database: Database, watching: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever months its rows are of; `db upgrade` does it."""
    answered(store, watching, datetime(2019, 5, 6, tzinfo=UTC))
    lost = max(names(watching))
    with watching.begin() as connection:
        connection.execute(text(f"DROP TABLE {lost}"))
    monkeypatch.setattr(partitions, "LARGE", 0)
    with statements_of(store) as statements:
        store.retain(raw_bodies=timedelta(days=4_000))
    assert not locking(statements)
    assert f"The partition {lost} is missing, and {partitions.DEFAULT} is so large" in caplog.text
    schema.upgrade(database.engine())
    assert lost in names(watching)


@SYNC
def test_appends_do_not_wait_for_a_month_that_cannot_be_dropped(
    store: Any, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads raw bodies in a long transaction: its rows go one by one, and the partition another time."""
    monkeypatch.setattr("threadkeep.store.removing.retention.PAUSES", (0.01, None))
    conversation = answered(store, watching)
    with watching.connect() as reader:
        reader.execute(select(response_bodies.c.number)).all()
        assert store.retain(raw_bodies=5).raw_bodies == 3
        assert part_of(THEN) in names(watching)
        conversation.add_response(an_answer("Still here"), FORMAT)
    assert store.retain(raw_bodies=5).raw_bodies == 0
    assert part_of(THEN) not in names(watching)


@SYNC
def test_a_transaction_of_the_application_drops_nothing(store: Any, watching: Engine) -> None:
    answered(store, watching)
    with watching.begin() as connection:
        assert store.within(connection).retain(raw_bodies=5).raw_bodies == 3
    assert part_of(THEN) in names(watching)


@SYNC
def test_erasing_and_copying_reach_all_months(
    stores: Any, face: str, tenant: str, store: Any, watching: Engine
) -> None:
    conversation = answered(store, watching)
    other = stores.get(face).create_tenant(f"copy {tenant}")
    assert store.copy_to(other).is_equal
    assert other.get_conversation(conversation.id).response_body(0) == conversation.response_body(0)
    conversation.update(user_id="ann")
    assert store.erase_user("ann").conversations == 1
    tenants = select(response_bodies.c.tenant_id).distinct()
    with watching.connect() as connection:
        assert connection.execute(tenants).scalars().all() == [other.handle.scope.tenant]
