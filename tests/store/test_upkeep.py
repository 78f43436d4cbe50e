"""What large imports do for PostgreSQL's planner: our tables are analyzed, an application's never."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text

from tests.databases import Database
from tests.factories import an_answer
from tests.store.watching import engine_of
from threadkeep import Session, Store, schema
from threadkeep.db.backends import backend_of
from threadkeep.db.models import usage_records
from threadkeep.store.work.handle import WRITES_PER_BATCH

COUNTED = text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname = ANY(:names) AND reltuples >= 0")
NAMES = ["threadkeep_items", "orders"]

pytestmark = pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)


def sessions(count: int) -> list[Session]:
    made = []
    for number in range(count):
        session = Session(model="m")
        for turn in range(20):
            session.user(f"{number} {turn} " + "words " * 100)
        made.append(session)
    return made


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    """A database without statistics, in which an application has a table, too."""
    made = empty_database.engine()
    schema.upgrade(made)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE orders AS SELECT g FROM generate_series(1, 40) g"))
        for name in NAMES:
            connection.execute(text(f"ALTER TABLE {name} SET (autovacuum_enabled = off)"))
    return made


def counted(connection: Connection) -> list[str]:
    return list(connection.execute(COUNTED, {"names": NAMES}).scalars())


def by_sessions(store: Store, other: Store) -> None:
    del other
    store.save_many(sessions(60))


def by_copy(store: Store, other: Store) -> None:
    other.save_many(sessions(60))
    other.copy_to(store)


def test_a_large_ledger_that_is_copied_is_counted(empty_database: Database, engine: Engine) -> None:
    """Else each page of it would be compared with all of the tenant's rows."""
    with Store(empty_database.url, search=False) as store, Store("sqlite://", search=False) as other:
        other.create_conversation(model="m").add_response(an_answer("Hi"), "open_responses")
        with engine_of(other).begin() as connection:
            row = dict(connection.execute(select(usage_records)).mappings().one())
            connection.execute(insert(usage_records), [row | {"id": row["id"] + n} for n in range(1, 1_500)])
        assert other.copy_to(store).attempts == 1_500
    with engine.connect() as connection:
        assert list(connection.execute(COUNTED, {"names": [usage_records.name]}).scalars()) == [usage_records.name]


@pytest.mark.parametrize("fill", [by_sessions, by_copy])
def test_a_large_import_has_its_tables_counted(
    empty_database: Database, engine: Engine, fill: Callable[[Store, Store], None]
) -> None:
    with Store(empty_database.url, search=False) as store, Store("sqlite://", search=False) as other:
        fill(store, other)
    with engine.connect() as connection:
        assert counted(connection) == ["threadkeep_items"]


def test_documents_are_counted_while_they_are_made(empty_database: Database, engine: Engine) -> None:
    """Else each batch would read all documents: its statement was planned when there were none."""
    with Store(empty_database.url, search=False) as store:
        store.save_many(sessions(130))
    done: list[str] = []
    with Store(empty_database.url) as store:
        event.listen(engine_of(store), "after_cursor_execute", lambda *call: done.append(call[2]))
        assert store.reindex() == 2_600
    inserts = [at for at, text in enumerate(done) if text.startswith("INSERT INTO threadkeep_search_documents")]
    counts = [at for at, text in enumerate(done) if text.startswith("ANALYZE") and "search_documents" in text]
    assert inserts[0] < counts[0] < inserts[-1]


def test_what_is_appended_is_counted_when_the_search_index_catches_up(empty_database: Database, engine: Engine) -> None:
    """Else the next batch would look at all items for each of its conversations."""
    with Store(empty_database.url) as store:
        conversation = store.create_conversation(model="m")
        for _ in range(2 * WRITES_PER_BATCH):
            conversation.user("words " * 300)
    with engine.connect() as connection:
        assert counted(connection) == ["threadkeep_items"]


def test_a_small_import_has_not(empty_database: Database, engine: Engine) -> None:
    with Store(empty_database.url, search=False) as store:
        store.save_many(sessions(40))
    with engine.connect() as connection:
        assert counted(connection) == []


def test_nothing_is_counted_in_the_transaction_of_a_host(empty_database: Database, engine: Engine) -> None:
    with Store(empty_database.url, search=False) as store, engine.begin() as connection:
        store.within(connection).save_many(sessions(60))
        assert counted(connection) == []


def test_tables_are_counted_again_when_they_have_doubled(empty_database: Database, engine: Engine) -> None:
    def analyze() -> list[str]:
        with engine.begin() as connection:
            return backend_of(connection).analyze_grown(connection)

    with Store(empty_database.url, search=False) as store:
        store.save_many(sessions(60))
        assert analyze() == []
        for _ in range(3):
            store.save_many(sessions(40))
        assert "threadkeep_items" in analyze()
        assert analyze() == []


def test_a_table_that_is_locked_is_left_out(empty_database: Database, engine: Engine) -> None:
    with Store(empty_database.url, search=False) as store, engine.begin() as locking:
        store.save_many(sessions(40))
        locking.execute(text("LOCK TABLE threadkeep_items IN SHARE ROW EXCLUSIVE MODE"))
        with engine.begin() as connection:
            connection.execute(text("SET lock_timeout = 1000"))
            backend_of(connection).analyze_grown(connection)
            assert counted(connection) == []
