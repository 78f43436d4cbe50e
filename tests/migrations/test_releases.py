"""A database of any older revision is brought to the newest one with all that is in it."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.databases import Database
from tests.migrations.upgrading import bodies, burning, counts
from threadkeep import SchemaOutOfDate, Store, schema
from threadkeep.db.schema import HEAD, REVISIONS

OLDER = REVISIONS[:-1]
SUMS_OF_DAYS = {"usage_days", "usage_daily", "usage_daily_models"}
# tables that an older revision has not, by revision
NEW_SINCE = {
    "v0_1_0_a": {"stream_parts", *SUMS_OF_DAYS, "search_documents", "context_caches"},
    "v0_1_0_b": {*SUMS_OF_DAYS, "search_documents", "context_caches"},
    "v0_1_0_c": {"search_documents", "context_caches"},
    "v0_1_0_d": {"context_caches"},
}


@pytest.mark.parametrize("revision", OLDER)
def test_a_filled_database_is_upgraded(
    empty_database: Database, engine: Engine, filled: list[str], revision: str
) -> None:
    """No row is lost, and the requests are the same bytes; a second upgrade changes nothing."""
    rendered, before = bodies(empty_database.url, filled), counts(engine)
    schema.downgrade(engine, revision)
    assert schema.current(engine) == revision
    old = counts(engine)
    assert all(old.values())
    assert old == {name: count for name, count in before.items() if name not in NEW_SINCE[revision]}
    with pytest.raises(SchemaOutOfDate):
        Store(empty_database.url)
    for _ in range(2):
        schema.upgrade(engine)
        schema.check(engine)
        assert {name: count for name, count in counts(engine).items() if name in old} == old
        assert bodies(empty_database.url, filled) == rendered
    with Store(empty_database.url) as store:
        conversation = store.get_conversation(filled[0])
        assert conversation.user("goes on").position == conversation.head
        assert [found.conversation_id for found in store.search('"Hi 3"')] == [filled[3]]


@pytest.mark.parametrize("revision", OLDER)
def test_an_upgrade_that_crashed_can_be_repeated(
    empty_database: Database, engine: Engine, filled: list[str], revision: str
) -> None:
    """… at any of its statements, also where each of them is committed by itself."""
    rendered = bodies(empty_database.url, filled[:2])
    schema.downgrade(engine, revision)
    old = counts(engine)
    for fuse in (1, 2, 3):
        try:
            with burning(engine, fuse):
                schema.upgrade(engine)
        except KeyboardInterrupt:
            assert schema.current(engine) == revision
        else:  # it has fewer statements
            assert fuse > 1
    schema.upgrade(engine)
    assert schema.current(engine) == HEAD
    assert {name: count for name, count in counts(engine).items() if name in old} == old
    assert bodies(empty_database.url, filled[:2]) == rendered
