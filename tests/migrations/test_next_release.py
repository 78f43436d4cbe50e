"""What the revision of a next release may do to a filled database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text

from tests.databases import Database
from tests.factories import a_message
from tests.migrations.hosts import definitions
from tests.migrations.upgrading import bodies, counts, folder_with
from tests.store.watching import engine_of
from threadkeep import SchemaError, SchemaOutOfDate, Store, schema
from threadkeep.db.models import METADATA
from threadkeep.db.schema import HEAD, REVISIONS

NEXT = "v0_1_1_a"
UNFILLED: set[str] = set()
ITEMS = "threadkeep_items"

ADD_COLUMN = """
recreate = "always" if context.get_context().dialect.name == "sqlite" else "auto"
with op.batch_alter_table("threadkeep_items", recreate=recreate) as items:
    items.add_column(sa.Column("mood", sa.Integer()))
with op.batch_alter_table("threadkeep_conversations", recreate="auto") as conversations:
    conversations.alter_column("title", new_column_name="caption", existing_type=sa.Text())
with op.batch_alter_table("threadkeep_conversations", recreate="auto") as conversations:
    conversations.alter_column("caption", new_column_name="title", existing_type=sa.Text())
op.execute("UPDATE threadkeep_items SET mood = 1")
"""
DROP_COLUMN = """
with op.batch_alter_table("threadkeep_items") as items:
    items.drop_column("mood")
"""


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the next release of threadkeep, with one more revision."""

    def release(code: str, downgrade: str = "pass") -> None:
        folder = folder_with(tmp_path, NEXT, code, downgrade)
        monkeypatch.setattr("threadkeep.db.schema.migrations_folder", lambda: folder)
        monkeypatch.setattr("threadkeep.db.schema.HEAD", NEXT)
        monkeypatch.setattr("threadkeep.db.schema.REVISIONS", (*REVISIONS, NEXT))

    return release


def has_mood(engine: Engine) -> bool:
    return "mood" in {column["name"] for column in inspect(engine).get_columns("threadkeep_items")}


def test_a_filled_database_is_upgraded(
    empty_database: Database, engine: Engine, filled: list[str], released: Any
) -> None:
    """No row is lost, also where SQLite copies a table and drops the old one; the requests are the same bytes."""
    before, rendered = counts(engine), bodies(empty_database.url, filled)
    assert {name for name, count in before.items() if not count} == UNFILLED
    released(ADD_COLUMN, DROP_COLUMN)
    with pytest.raises(SchemaOutOfDate):
        Store(empty_database.url)
    for _ in range(2):
        schema.upgrade(engine)
        assert (schema.current(engine), has_mood(engine)) == (NEXT, True)
        assert (counts(engine), bodies(empty_database.url, filled)) == (before, rendered)
    with Store(empty_database.url) as store:
        assert [found.conversation_id for found in store.search('"Hi 5"')] == [filled[5]]
        store.get_conversation(filled[0]).user("goes on")
        store.delete_conversation(filled[1])
    schema.downgrade(engine, HEAD)
    assert not has_mood(engine)
    assert counts(engine)[ITEMS] == before[ITEMS] + 1 - before[ITEMS] // 12


def test_keys_hold_after_a_table_was_copied(engine: Engine, filled: list[str], released: Any) -> None:
    released(ADD_COLUMN)
    before = keys(engine)
    schema.upgrade(engine)
    assert keys(engine) == before


def keys(engine: Engine) -> dict[str, Any]:
    seen = inspect(engine)
    return {
        name: (
            seen.get_pk_constraint(name)["constrained_columns"],
            sorted(str(index["column_names"]) for index in seen.get_indexes(name)),
            sorted(
                f"{key['constrained_columns']} {key['referred_table']} {key['options'].get('ondelete')}"
                for key in seen.get_foreign_keys(name)
            ),
        )
        for name in METADATA.tables
    }


CRASHES = """
import pathlib
if context.get_context().dialect.name == "sqlite" or "moods" not in sa.inspect(op.get_bind()).get_table_names():
    op.create_table("moods", sa.Column("id", sa.Integer(), primary_key=True))
if pathlib.Path({flag!r}).exists():
    raise RuntimeError("power failure")
op.add_column("threadkeep_items", sa.Column("mood", sa.Integer()))
"""


def test_a_revision_that_crashed_can_be_repeated(
    empty_database: Database, engine: Engine, filled: list[str], released: Any, tmp_path: Path
) -> None:
    """Where DDL is transactional nothing is left of it; MySQL has committed what came before."""
    rendered = bodies(empty_database.url, filled[:2])
    flag = tmp_path / "crash"
    flag.touch()
    released(CRASHES.format(flag=str(flag)))
    with pytest.raises(RuntimeError, match="power failure"):
        schema.upgrade(engine)
    assert schema.current(engine) == HEAD
    assert ("moods" in inspect(engine).get_table_names()) == (empty_database.kind == "mariadb")
    flag.unlink()
    schema.upgrade(engine)
    assert (schema.current(engine), has_mood(engine)) == (NEXT, True)
    assert bodies(empty_database.url, filled[:2]) == rendered


ATTACHED = (
    "CREATE VIEW mine AS SELECT id, external_id FROM threadkeep_conversations",
    "CREATE VIEW texts AS SELECT text FROM threadkeep_messages_text",
    "CREATE INDEX mine_by_name ON threadkeep_items (tenant_id, name)",
    "CREATE TRIGGER mine_counted AFTER INSERT ON threadkeep_items BEGIN UPDATE orders SET number = number + 1; END",
)


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
def test_what_an_application_attached_outlives_the_copy_of_a_table(
    empty_database: Database, engine: Engine, filled: list[str], released: Any
) -> None:
    """No view is dropped, ours or theirs; indexes and triggers, which go with the table, come back as they were."""
    with engine.begin() as connection:
        for statement in ("CREATE TABLE orders (number integer)", "INSERT INTO orders VALUES (0)", *ATTACHED):
            connection.execute(text(statement))
    before = definitions(engine)
    released(ADD_COLUMN, DROP_COLUMN)
    schema.upgrade(engine)
    after = definitions(engine)
    rebuilt = {"table threadkeep_items", "table threadkeep_conversations"}
    assert {name for name in before | after if before.get(name) != after.get(name)} <= rebuilt
    with Store(empty_database.url) as store:
        store.get_conversation(filled[0]).add_items([a_message("a"), a_message("b")])
    with engine.connect() as connection:
        assert connection.execute(text("SELECT number FROM orders")).scalar() == 2
        assert connection.execute(text("SELECT count(*) FROM mine")).scalar() == len(filled)
        assert connection.execute(text("PRAGMA legacy_alter_table")).scalar() == 0
    schema.downgrade(engine)
    assert {name.partition(" ")[2] for name in definitions(engine)} == {"orders", "mine", "texts"}


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
def test_rows_without_their_parents_take_the_upgrade_back(engine: Engine, filled: list[str], released: Any) -> None:
    """SQLite does not look at foreign keys during an upgrade, so they are looked at before it ends."""
    before = counts(engine)
    released("op.execute(\"DELETE FROM threadkeep_conversations WHERE external_id = 'e3'\")")
    with pytest.raises(
        SchemaError, match=r"without the rows they refer to: threadkeep_\w+ \(row \S+\) to threadkeep_\w+"
    ):
        schema.upgrade(engine)
    assert schema.current(engine) == HEAD
    assert counts(engine) == before


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
def test_foreign_keys_are_on_again_after_an_upgrade(empty_database: Database) -> None:
    store = Store(empty_database.url)
    with engine_of(store).connect() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    store.close()
