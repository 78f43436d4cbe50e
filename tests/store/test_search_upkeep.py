"""The search behind the scenes: nothing leaks or is left behind, and nothing that is wrong with it fails others."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from tests.databases import Database
from tests.factories import a_message, an_answer
from tests.store.test_removal_races import watched
from tests.store.watching import Tables, engine_of, statements_of
from threadkeep import NotFound, SchemaError, Store, schema
from threadkeep.store.work.pacing import FIRST

pytestmark = pytest.mark.one_face

CANARY = "xylophonequartz"


@pytest.fixture
def broken(empty_database: Database) -> Database:
    """A database of its own, to break."""
    engine = empty_database.engine()
    schema.upgrade(engine)
    return empty_database


def run(database: Database, *statements: str) -> None:
    with database.engine().begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def everything_in(database: Database) -> str:
    """All that all tables hold."""
    found = []
    with database.engine().connect() as connection:
        for name in inspect(connection).get_table_names():
            try:
                rows = connection.execute(text(f"SELECT * FROM {name}")).all()
            except Exception:  # noqa: BLE001 - a table that only its module reads
                continue
            found += [
                value.decode(errors="replace") if isinstance(value, bytes) else str(value)
                for row in rows
                for value in row
            ]
    return "\n".join(found)


# What others have


def test_nobody_finds_what_others_have(stores: Any, face: str, tenant: str) -> None:
    """Other tenants and other users, however they ask."""
    store = stores.get(face).for_tenant(tenant)
    stranger = stores.get(face).create_tenant(f"stranger {tenant}")
    hers = store.create_conversation(user_id="ann", input=CANARY, title=CANARY, labels={"k": "v"})
    hers.add_response(an_answer(CANARY), "open_responses")
    own = stranger.create_conversation(user_id="ann", input="nothing to see", labels={"k": "v"})
    assert len(store.search(CANARY).items) == 3
    assert len(store.for_user("ann").search(CANARY).items) == 3
    for other in (stranger, stranger.for_user("ann"), store.for_user("ben")):
        for question in (CANARY, f"{CANARY[:5]}*", f'"{CANARY}"', "nothing", f"{CANARY} -nothing"):
            for filters in (
                {},
                {"status": None},
                {"conversation_id": hers.id},
                {"user_id": "ann"},
                {"labels": {"k": "v"}},
            ):
                found = other.search(question, **filters).items
                assert {result.conversation_id for result in found} <= {own.id}
                assert not [result for result in found if CANARY in result.snippet]
    assert not store.for_user("ann").search(CANARY, user_id="ben").items


def test_a_page_of_somebody_else_shows_nothing(stores: Any, face: str, tenant: str) -> None:
    store = stores.get(face).for_tenant(tenant)
    stranger = stores.get(face).create_tenant(f"stranger {tenant}")
    store.create_conversation(input=[a_message(CANARY) for _ in range(3)])
    following = store.search(CANARY, limit=1).next
    assert len(store.search(CANARY, after=following).items) == 2
    assert not stranger.search(CANARY, after=following).items


def test_a_conversation_that_was_given_away_is_searched_by_its_new_user(store: Any) -> None:
    conversation = store.create_conversation(user_id="ann", input=CANARY)
    assert store.for_user("ann").search(CANARY).items
    conversation.update(user_id="ben")
    assert not store.for_user("ann").search(CANARY).items
    assert store.for_user("ben").search(CANARY).items


@pytest.mark.parametrize("is_seen", [True, False])
def test_deleted_is_gone_at_once(store: Any, monkeypatch: pytest.MonkeyPatch, is_seen: bool, tables: Tables) -> None:
    """… before its rows are, and whether the search had seen it or not."""
    conversation = store.create_conversation(input=CANARY, title=CANARY)
    assert not is_seen or len(store.search(CANARY).items) == 2

    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("threadkeep.store.removing.retention.purging.purge_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.delete_conversation(conversation.id)
    monkeypatch.undo()
    assert not store.search(CANARY, status=None).items
    store.reindex()
    assert not store.search(CANARY, status=None).items
    store.purge_deleted()
    assert tables.counts()["search_documents"] == 0
    with pytest.raises(NotFound):
        conversation.user("more")


def test_archived_is_found_by_those_who_ask_for_it(store: Any) -> None:
    conversation = store.create_conversation(input=CANARY)
    conversation.archive()
    assert not store.search(CANARY).items
    assert store.search(CANARY, status="archived").items
    conversation.unarchive()
    assert store.search(CANARY).items


def test_nothing_is_left_of_what_was_removed(empty_database: Database) -> None:
    """Purged, erased, kept long enough, a tenant that is gone: no row and no word of the index holds it."""
    schema.upgrade(empty_database.engine())
    with Store(empty_database.url, tenants=True) as all_tenants:
        store, other = all_tenants.create_tenant("t"), all_tenants.create_tenant("other")
        for owner in (store, other):
            owner.create_conversation(user_id="ann", input=f"{CANARY} {CANARY}tail", title=CANARY)
            owner.create_conversation(user_id="ben", input="stays")
        store.delete_conversation(store.create_conversation(input=CANARY, title=CANARY).id)
        assert len(store.search(f"{CANARY}*").items) == 2
        store.erase_user("ann")
        assert not store.search(f"{CANARY}*").items
        assert len(other.search(f"{CANARY}*").items) == 2
        all_tenants.delete_tenant("other")
        assert len(store.search("stays").items) == 1
        if empty_database.kind == "sqlite":
            run(empty_database, "INSERT INTO threadkeep_search_index(threadkeep_search_index) VALUES ('optimize')")
    assert CANARY not in everything_in(empty_database)


def test_compaction_hides_nothing_from_the_search(store: Any, conversation: Any) -> None:
    conversation.add_items([a_message(CANARY), a_message("more", "assistant")])
    conversation.compact(summary="They talked.")
    conversation.user("Go on")
    assert [found.position for found in store.search(CANARY)] == [0]


# What goes wrong


BREAKAGES = {
    "sqlite": ["DROP TABLE threadkeep_search_index"],
    "postgresql": ["DROP TABLE threadkeep_search_documents"],
    "mariadb": ["DROP TABLE threadkeep_search_documents"],
}


def test_a_broken_index_fails_no_append(broken: Database, caplog: pytest.LogCaptureFixture) -> None:
    with Store(broken.url) as store:
        conversation = store.create_conversation(input=CANARY, title=CANARY)
        run(broken, *BREAKAGES[broken.kind])
        with caplog.at_level(logging.WARNING, "threadkeep.search"):
            for number in range(150):
                conversation.user(f"message {number}")
        conversation.add_response(an_answer("Hello"), "open_responses", idempotency_key="k")
        conversation.update(title="New")
        assert conversation.head == 151
        assert "search index was not updated" in caplog.text
        with pytest.raises(SchemaError, match="reindex"):
            store.search("message")
        assert len(store.get_conversation(conversation.id).items(limit=500).items) == 152


@pytest.fixture
def damaged(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A SQLite store whose index was seen and then damaged."""
    url = f"sqlite:///{tmp_path}/damaged.db"
    with Store(url) as store:
        conversation = store.create_conversation(input=CANARY, title="Title")
        assert store.search(CANARY).items
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(request.param)
        engine.dispose()
    return url, conversation.id


DAMAGES = {
    "dropped": "DROP TABLE threadkeep_search_index",
    "emptied": "DELETE FROM threadkeep_search_index_data",
    "overwritten": "UPDATE threadkeep_search_index_data SET block = x'00ff00ff00ff00ff00ff'",
    "without a part": "DROP TABLE threadkeep_search_index_idx",
    "without all data": "DROP TABLE threadkeep_search_index_data",
    "without settings": "DROP TABLE threadkeep_search_index_config",
}


@pytest.mark.parametrize("damaged", DAMAGES.values(), ids=DAMAGES, indirect=True)
def test_a_search_in_a_damaged_index_finds_nothing_or_says_what_to_do(damaged: tuple[str, str]) -> None:
    with Store(damaged[0]) as store:
        try:
            found = store.search(CANARY).items
        except SchemaError as error:
            assert "reindex(rebuild=True)" in str(error)  # noqa: PT017 - either is right
        else:
            assert not found


@pytest.mark.parametrize("damaged", DAMAGES.values(), ids=DAMAGES, indirect=True)
def test_a_damaged_index_is_made_anew(damaged: tuple[str, str]) -> None:
    url, public_id = damaged
    with Store(url) as store:
        store.get_conversation(public_id).user("after the damage")
        store.reindex(rebuild=True)
        assert [found.position for found in store.search(CANARY)] == [0]
        assert [found.position for found in store.search("damage")] == [1]
        assert [found.type for found in store.search("title")] == ["title"]


@pytest.mark.parametrize("damaged", DAMAGES.values(), ids=DAMAGES, indirect=True)
def test_a_damaged_index_keeps_nobody_from_deleting(damaged: tuple[str, str]) -> None:
    url, public_id = damaged
    with Store(url) as store:
        store.delete_conversation(public_id)
        store.create_conversation(input="later")
        store.reindex(rebuild=True)
        assert not store.search(CANARY).items
        assert store.search("later").items
    assert CANARY not in everything_in(Database("sqlite", url))


@pytest.mark.parametrize("damaged", DAMAGES.values(), ids=DAMAGES, indirect=True)
def test_a_damaged_index_keeps_nobody_from_erasing(damaged: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    url, public_id = damaged
    with Store(url) as store:
        store.get_conversation(public_id).user("for ever", author_id="ada")
        store.create_conversation(input=CANARY, user_id="ada")
        report = store.erase_user("ada")
        assert (report.conversations, report.items) == (1, 1)
        if not report.is_scrubbed:
            assert "reindex(rebuild=True)" in caplog.text
        store.reindex(rebuild=True)
        assert store.erase_user("ada").is_scrubbed
        assert [found.conversation_id for found in store.search(CANARY)] == [public_id]


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
def test_an_index_that_is_missing_is_made(broken: Database) -> None:
    """A SQLite without FTS5 sets up the tables without it; one that has it makes up for that."""
    with Store(broken.url) as store:
        store.create_conversation(input=CANARY)
        assert store.reindex() == 1
        run(broken, "DROP TABLE threadkeep_search_index")
        store.create_conversation(input=CANARY)
        assert store.reindex() == 1
        assert len(store.search(CANARY).items) == 2


def test_a_sqlite_without_fts5_does_everything_but_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with Store(url):
        pass
    run(Database("sqlite", url), "DROP TABLE threadkeep_search_index")
    monkeypatch.setattr(
        "threadkeep.db.search.sqlite.CREATE_INDEX",
        text("CREATE VIRTUAL TABLE threadkeep_search_index USING fts0(words)"),
    )
    with Store(url) as store:
        conversation = store.create_conversation(input=CANARY, user_id="ann")
        for number in range(130):
            conversation.user(f"message {number}")
        with pytest.raises(SchemaError, match="reindex"):
            store.search(CANARY)
        for rebuild in (True, False):
            with pytest.raises(SchemaError, match="without FTS5"):
                store.reindex(rebuild=rebuild)
        assert store.erase_user("ann").conversations == 1


def test_rebuilding_keeps_what_other_tenants_have(stores: Any, face: str, tenant: str) -> None:
    store = stores.get(face).for_tenant(tenant)
    other = stores.get(face).create_tenant(f"other {tenant}")
    for owner in (store, other):
        owner.create_conversation(input=CANARY, title="天气")
    assert len(other.search(CANARY).items) == 1
    assert store.reindex(rebuild=True) == 2
    for owner in (store, other):
        assert len(owner.search(CANARY).items) == len(owner.search("天气").items) == 1
        owner.delete_conversation(owner.search(CANARY).items[0].conversation_id)
        assert not owner.search(CANARY).items


ITEMS = 300
# What SQLite's index finds of what is gone
WITHOUT_DOCUMENT = (
    "SELECT rowid FROM threadkeep_search_index WHERE threadkeep_search_index MATCH :word "
    "EXCEPT SELECT id FROM threadkeep_search_documents"
)


@pytest.fixture
def talkative(store: Any) -> Any:
    """A conversation of many items, all of them indexed."""
    conversation = store.create_conversation(title=CANARY, input=[a_message(f"{CANARY} {n}") for n in range(ITEMS)])
    store.reindex()
    return conversation


def test_a_rebuild_removes_documents_in_small_transactions(store: Any, talkative: Any, watching: Engine) -> None:
    """Others wait for none of them for long."""
    engine, removed = engine_of(store), [0]

    def count(_connection: Any, cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("DELETE FROM threadkeep_search_documents"):
            removed[-1] += cursor.rowcount

    def end(_connection: Any) -> None:
        removed.append(0)

    event.listen(engine, "after_cursor_execute", count)
    event.listen(engine, "commit", end)
    try:
        assert store.reindex(rebuild=True) == ITEMS + 1
    finally:
        event.remove(engine, "after_cursor_execute", count)
        event.remove(engine, "commit", end)
    assert sum(removed) == ITEMS + 1
    assert max(removed) <= 2 * FIRST < ITEMS  # at most twice as many as in the one before
    assert len(store.search(CANARY, limit=100).items) == 100


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_a_rebuild_that_was_interrupted_loses_and_leaves_nothing(
    database: Database, store: Any, elsewhere: Any, watching: Engine
) -> None:
    """Before whichever of its statements; another search finds everything then, and another rebuild is whole."""
    for number in range(3):
        store.create_conversation(title=f"{CANARY} {number}", input=[a_message(CANARY), a_message("other")])
    store.reindex()
    for number in itertools.count():
        statements = itertools.count()

        def interrupt(_statement: str) -> None:
            if next(statements) == number:  # noqa: B023 - called now
                raise InterruptedError

        try:
            with watched(engine_of(store), interrupt):
                assert store.reindex(rebuild=True) == 9
            break
        except InterruptedError:
            if database.kind == "sqlite":
                with watching.connect() as connection:
                    assert connection.execute(text(WITHOUT_DOCUMENT), {"word": CANARY}).all() == []
            assert len(elsewhere.search(CANARY).items) == 6
    assert number > 5
    assert store.check().findings == []
    assert len(elsewhere.search(CANARY).items) == 6


def test_only_a_store_for_everybody_makes_the_index(store: Any) -> None:
    with pytest.raises(Exception, match="all users"):
        store.for_user("ann").reindex()


def test_a_database_that_is_only_read_is_searched_as_it_was_seen_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "chat.db"
    with Store(f"sqlite:///{path}") as store:
        conversation = store.create_conversation(input=f"{CANARY} one")
        assert store.search(CANARY).items
        conversation.user(f"{CANARY} two")
        with Store(f"sqlite:///file:{path}?mode=ro&uri=true") as reader:
            assert [found.position for found in reader.search(CANARY)] == [0]
    assert "search index was not updated" in caplog.text


# Several at once


def test_many_append_while_others_search(database: Database, stores: Any, tenant: str) -> None:
    """Everything is found in the end, and once."""
    stores.get("sync").for_tenant(tenant)
    with Store(database.url, tenants=True) as everybody:
        store = everybody.for_tenant(tenant)
        ids = [store.create_conversation(input="first").id for _ in range(4)]

        def append(number: int) -> object:
            conversation = store.get_conversation(ids[number % 4])
            for count in range(10):
                conversation.user(f"needle{number}x{count}")
            return conversation

        def look(_: int) -> object:
            return store.search("needle*", limit=1000)

        with ThreadPoolExecutor(8) as pool:
            writing = [pool.submit(append, number) for number in range(6)]
            looking = [pool.submit(look, number) for number in range(20)]
            for task in (*writing, *looking):
                task.result()
        found = store.search("needle*", limit=1000).items
        assert len(found) == 60
        assert len({(result.conversation_id, result.position) for result in found}) == 60


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_locked_conversation_holds_nobody_up(database: Database, stores: Any, tenant: str) -> None:
    """A host's transaction that goes on: its conversation is seen when it has ended."""
    store = stores.get("sync").for_tenant(tenant)
    held, free = (store.create_conversation(input=f"{CANARY} {name}") for name in ("held", "free"))
    with database.engine().connect() as host:
        store.within(host).get_conversation(held.id).user("more")
        assert [found.conversation_id for found in store.search(CANARY)] == [free.id]
        host.commit()
    assert len(store.search(CANARY).items) == 2


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_search_waits_a_moment_for_what_it_searches(
    database: Database, stores: Any, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others lock a conversation while they index it; who searches only other ones does not wait for it."""
    store = stores.get("sync").for_tenant(tenant)
    mine, others = (store.create_conversation(input=CANARY, user_id=name) for name in ("mine", "others"))
    pauses: list[float] = []
    with database.engine().connect() as indexing:

        def end(seconds: float) -> None:
            pauses.append(seconds)
            indexing.commit()

        monkeypatch.setattr("threadkeep.store.search.query.connections.sleep", end)
        store.within(indexing).get_conversation(others.id).user("more")
        assert [found.conversation_id for found in store.for_user("mine").search(CANARY)] == [mine.id]
        assert pauses == []
        assert [found.conversation_id for found in store.for_user("others").search(CANARY)] == [others.id]
        assert len(pauses) == 1


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_host_that_sees_the_past_loses_nothing(database: Database, stores: Any, tenant: str, level: Any) -> None:
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(input="first")
    store.reindex()
    with database.engine().connect().execution_options(isolation_level=level) as host:
        assert not store.within(host).search(CANARY).items
        conversation.user(CANARY)
        try:
            store.within(host).reindex()
        except DBAPIError:  # PostgreSQL's way to tell that it is the past
            assert (database.kind, level) == ("postgresql", "REPEATABLE READ")
        host.commit()
    assert [found.position for found in store.search(CANARY)] == [1]


# What it costs others


def test_appends_write_nothing_more(database: Database, stores: Any, tenant: str, tables: Tables) -> None:
    """The same statements with the search and without, and no documents."""
    searching = stores.get("sync").for_tenant(tenant)
    with Store(database.url, tenants=True, search=False) as opened:
        seen = {}
        for name, store in (("on", searching), ("off", opened.for_tenant(tenant))):
            conversation = store.create_conversation(model="m", input="Hi")
            conversation.user("once")
            with statements_of(store) as statements:
                conversation.user("Hi")
                conversation.add_response(an_answer("Hello", calls=("c",)), "open_responses")
                conversation.add_items([a_message("a"), a_message("b")])
            seen[name] = statements
    assert seen["on"] == seen["off"]
    assert not [statement for statement in seen["on"] if "search_documents" in statement]


@pytest.fixture(scope="module")
def one_store(database: Database) -> Iterator[Store]:
    with Store(database.url, tenants=True) as opened:
        yield opened


SCRIPTS = "abcXYZ éß 123 _-./:'\"@ αβγ Дж עב عرب हिन्दी 天気はどう날씨 ภาษา\u200d\u0301\n"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(texts=st.lists(st.text(SCRIPTS, min_size=1, max_size=40), min_size=1, max_size=4), data=st.data())
def test_every_word_of_a_text_finds_it(one_store: Store, texts: list[str], data: st.DataObject) -> None:
    """In whatever script; also two words, and the text as a whole as words side by side."""
    store = one_store.create_tenant(uuid4().hex)
    conversation = store.create_conversation(input=[a_message(f"{one} anchor") for one in texts])
    position = data.draw(st.integers(0, len(texts) - 1))
    words = f"{texts[position]} anchor".replace('"', " ").split()
    word = data.draw(st.sampled_from(words)).lstrip("-") or "anchor"
    whole = '"' + f"{texts[position]} anchor".replace('"', " ") + '"'
    for question in (f"{word} anchor", f"anchor {word}", whole):
        found = [result.position for result in store.search(question, limit=10)]
        assert position in found, (question, conversation.items().items)
