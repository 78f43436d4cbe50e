"""Only the newest documents that match are ranked together, and still nothing is lost: windows, filters, and users."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from tests.databases import Database
from tests.factories import a_call, a_message
from tests.store.watching import Tables, sqlite_steps, statements_of
from threadkeep import InvalidOption, Session, Store, schema
from threadkeep.db.search import matching_conversations, matching_documents
from threadkeep.domain.searching import terms_of, words_of
from threadkeep.store.search.index import BATCH_SIZE
from threadkeep.store.search.query import STATEMENTS

pytestmark = pytest.mark.one_face


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Documents of a window."""
    monkeypatch.setattr("threadkeep.store.search.query.CANDIDATES", 7)
    return 7


def pages_of(ask: Any, limit: int) -> Iterator[Any]:
    after = None
    for _ in range(200):
        page = ask(limit=limit, after=after)
        yield page
        after = page.next
        if after is None:
            return
    raise AssertionError("pages without an end")


# Windows


@pytest.mark.parametrize("limit", [1, 3, 7, 8, 50])
def test_pages_go_on_behind_the_newest_matches(store: Any, conversation: Any, few: int, limit: int) -> None:
    """… from window to window, the newest first, and each of them the best first; nothing is lost or comes twice."""
    conversation.add_items([a_message("needle " * (1 + n % 4) + "hay " * (n % 3)) for n in range(25)])
    pages = list(pages_of(lambda **page: store.search("needle", **page), limit))
    assert all(len(page) == limit for page in pages[:-1])
    found = [result for page in pages for result in page]
    for start in range(0, 25, few):
        window = found[start : start + few]
        assert {result.position for result in window} == set(range(max(0, 25 - start - few), 25 - start))
        assert all((one.score, one.position) > (next_.score, next_.position) for one, next_ in pairwise(window))


@pytest.mark.parametrize("count", [20, 6])
def test_what_comes_between_two_pages_moves_nothing(store: Any, conversation: Any, few: int, count: int) -> None:
    """… even where there were fewer matches than are ranked together, and there are more by now."""
    conversation.add_items([a_message("needle") for _ in range(count)])
    seen, after = list[int](), None
    for number in range(7):
        page = store.search("needle", limit=3, after=after)
        seen += [result.position for result in page if result.position < count]
        conversation.add_items([a_message(f"needle {number}"), a_message("needle needle")])
        after = page.next
        if after is None:
            break
    assert seen == list(range(count - 1, -1, -1))


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_each_conversation_comes_once_in_all_windows(store: Any, few: int, limit: int) -> None:
    """… with the number of all its matches and the time of the newest, wherever they are."""
    talks = [store.create_conversation(title=str(number)) for number in range(5)]
    for number in range(40):
        talks[number * number % 5].user("needle " * (1 + number % 3))
        store.search("needle")  # so that documents are as old as their items
    talks[3].add_items([a_message("needle other") for _ in range(3)])
    found = [
        match for page in pages_of(lambda **page: store.search_conversations("needle", **page), limit) for match in page
    ]
    results = [result for page in pages_of(lambda **page: store.search("needle", **page), 5) for result in page]
    assert sorted(match.title for match in found) == ["0", "1", "3", "4"]
    for match in found:
        own = [result for result in results if result.conversation_id == match.conversation_id]
        assert (match.hits, match.newest_at) == (len(own), max(result.created_at for result in own))
        assert match.best in own


def test_a_page_of_conversations_takes_few_statements(store: Any, conversation: Any, few: int) -> None:
    """One that has nearly all matches hides the others; the page ends, and the next one goes on."""
    other = store.create_conversation(input=[a_message("needle")])
    store.reindex()
    conversation.add_items([a_message("needle") for _ in range(100)])
    store.reindex()
    with statements_of(store) as statements:
        page = store.search_conversations("needle")
    assert len([one for one in statements if "candidates" in one]) <= STATEMENTS
    assert [(match.conversation_id, match.hits) for match in page] == [(conversation.id, 100)]
    assert page.next is not None
    found = [
        match for page in pages_of(lambda **page: store.search_conversations("needle", **page), 5) for match in page
    ]
    assert [match.conversation_id for match in found] == [conversation.id, other.id]


@pytest.mark.parametrize("after", ["1", "1.2.3", "1.2.3.4", "1.2.3.4.5.6", "1.2.3.-4.5", f"1.2.3.4.{2**63}", "a.b"])
def test_what_is_no_page_is_refused(store: Any, after: str) -> None:
    with pytest.raises(InvalidOption, match="not the `next` of a page"):
        store.search("needle", after=after)


# Filters


def test_filters_lose_nothing_that_is_older(store: Any, few: int) -> None:
    """What they let through is found behind any number of newer matches that they do not."""
    long_ago = datetime.now(UTC) - timedelta(days=9)
    session = Session(input=[a_message("needle"), a_message("needle", "assistant")])
    times = [long_ago, long_ago]
    old = store.save(session, user_id="ann", labels={"k": "v"}, title="needle", items_created_at=times)
    old.add_item(a_call(name="needle"))
    store.reindex()
    new = store.create_conversation(input=[a_message("needle") for _ in range(30)], user_id="ben")
    archived = store.create_conversation(input=[a_message("needle") for _ in range(30)], user_id="ben")
    archived.archive()

    def found(**filters: Any) -> list[Any]:
        results = list(store.search("needle", limit=100, **filters))
        assert {result.conversation_id for result in results} <= {old.id}
        grouped = list(store.search_conversations("needle", **filters))
        assert [(match.conversation_id, match.hits) for match in grouped] == [(old.id, len(results))]
        return sorted(-1 if result.position is None else result.position for result in results)

    assert found(user_id="ann") == [-1, 0, 1, 2]
    assert found(user_id="ann", role="user") == [0]
    assert found(role="assistant") == [1]
    assert found(type="function_call") == [2]
    assert found(type="title") == [-1]
    assert found(labels={"k": "v"}) == [-1, 0, 1, 2]
    assert found(conversation_id=old.id) == [-1, 0, 1, 2]
    assert found(until=long_ago + timedelta(days=1)) == [-1, 0, 1]
    assert len(store.search("needle", conversation_id=new.id, limit=100).items) == 30
    assert len(store.search("needle", conversation_id=archived.id, status="archived", limit=100).items) == 30
    assert not store.search("needle", conversation_id=archived.id).items


TEXTS = st.lists(st.sampled_from(["ab", "abc", "Äb", "b", "天气", "天", "c-d", "ab ab"]), min_size=1, max_size=6)
MESSAGES = st.tuples(TEXTS.map(" ".join), st.sampled_from(["user", "assistant"]))
TALKS = st.lists(st.tuples(st.sampled_from(["ann", "ben"]), st.lists(MESSAGES, max_size=8)), min_size=1, max_size=4)
QUESTIONS = st.lists(
    st.sampled_from(["ab", "a*", "b", "天", "天气", '"ab b"', "c-d", '"b a*"']), min_size=1, max_size=2
)


@pytest.fixture(scope="module")
def one_store(database: Database) -> Iterator[Store]:
    with Store(database.url, tenants=True) as opened:
        yield opened


def is_found(words: list[str], question: str) -> bool:
    """Whether words match all terms, side by side."""
    for term in terms_of(question):
        *whole, last = term.words
        starts = range(len(words) - len(whole))
        if not any(
            words[start : start + len(whole)] == whole
            and (words[start + len(whole)].startswith(last) if term.is_prefix else words[start + len(whole)] == last)
            for start in starts
        ):
            return False
    return True


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(talks=TALKS, asked=QUESTIONS, user=st.sampled_from([None, "ann"]), role=st.sampled_from([None, "user"]))
def test_fewer_than_the_bound_are_what_is_there(
    one_store: Store, talks: Any, asked: list[str], user: str | None, role: str | None
) -> None:
    """As many results as documents have the words, whoever looks them up and however."""
    store, question = one_store.create_tenant(uuid4().hex), " ".join(asked)
    for owner, messages in talks:
        store.create_conversation(user_id=owner, input=[a_message(*message) for message in messages])
    expected = [
        [words_of(written) for written, who in messages if role in {None, who}]
        for owner, messages in talks
        if user in {None, owner}
    ]
    hits = [sum(is_found(words, question) for words in texts) for texts in expected]
    filters = {name: value for name, value in (("user_id", user), ("role", role)) if value is not None}
    found = store.search(question, limit=100, **filters)  # type: ignore[arg-type]
    assert (len(found), found.next) == (sum(hits), None)
    grouped = store.search_conversations(question, limit=100, **filters)  # type: ignore[arg-type]
    assert sorted(match.hits for match in grouped) == sorted(filter(None, hits))


# Users


def test_a_long_conversation_is_given_away_whole(store: Any, tables: Tables) -> None:
    """… and back; its documents are those that there were."""
    count = BATCH_SIZE + 5
    conversation = store.create_conversation(user_id="ann", title="needle", input=[a_message("needle")] * count)
    assert store.reindex() == count + 1
    before = {row["id"] for row in tables.rows("search_documents")}
    for user, other in (("ben", "ann"), (None, "ben"), ("ann", "ben")):
        conversation.update(user_id=user)
        mine = store if user is None else store.for_user(user)
        assert not store.for_user(other).search("needle").items
        assert len(mine.search("needle", limit=1_000).items) == count + 1
        assert not store.for_user(other).search("needle").items
    assert {row["id"] for row in tables.rows("search_documents")} == before


def test_a_conversation_is_given_away_with_a_new_title(store: Any) -> None:
    conversation = store.create_conversation(user_id="ann", title="needle", input="thread")
    assert len(store.for_user("ann").search("needle").items) == 1
    conversation.update(user_id="ben", title="pin")
    assert not store.search("needle").items
    assert [len(store.for_user("ben").search(word).items) for word in ("pin", "thread")] == [1, 1]
    assert [len(store.for_user("ann").search(word).items) for word in ("pin", "thread")] == [0, 0]


def test_before_the_index_knows_a_new_user_the_former_finds_nothing(store: Any, database: Database) -> None:
    """In a host's transaction nothing is indexed: what was given away is found by nobody there, or by its new user."""
    conversation = store.create_conversation(user_id="ann", input="needle")
    store.reindex()
    conversation.update(user_id="ben")
    with database.engine().connect() as host:
        if isinstance(store, Store):
            assert not store.within(host).for_user("ann").search("needle").items
            assert not store.within(host).search("needle", user_id="ann").items
    assert len(store.for_user("ben").search("needle").items) == 1


def test_users_whose_words_in_the_index_are_the_same_find_their_own(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.db.search.sqlite.user_token", lambda *_: "u0")
    for user in ("ann", "ben"):
        store.create_conversation(user_id=user, input=[a_message(f"needle of {user}")])
    for user in ("ann", "ben"):
        assert [result.snippet for result in store.for_user(user).search("needle")] == [f"needle of {user}"]
        assert [match.user_id for match in store.search_conversations("needle", user_id=user)] == [user]


def test_odd_names_of_users_are_found(store: Any) -> None:
    for number, user in enumerate(("a b", "A b", '"', "u0", "' OR 1", "ä", "\ud800", "\\", "x" * 250)):
        store.create_conversation(user_id=user, input=f"needle {number}")
        assert [result.snippet for result in store.for_user(user).search("needle")] == [f"needle {number}"]
    assert not store.for_user("unknown").search("needle").items
    assert not store.for_user("ä").search("needle", user_id="a b").items


# What it costs


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_a_statement_is_built_once_for_questions_of_a_shape(store: Any) -> None:
    store.create_conversation(user_id="ann", input="needle thread")
    for ask, build in (
        (store.search, matching_documents), (store.search_conversations, matching_conversations),
    ):  # fmt: skip
        ask("needle", user_id="ann")
        before = build.cache_info().misses
        for word, user in (("thread", "ben"), ("pin", "ann"), ("hay", "cleo")):
            ask(word, user_id=user, limit=5)
        assert build.cache_info().misses == before


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_a_question_takes_as_many_statements_however_much_there_is(store: Any, few: int) -> None:
    def count(word: str, **filters: Any) -> int:
        with statements_of(store) as statements:
            store.search(word, **filters)
        return len(statements)

    store.save_many([Session(input=[a_message("one")]) for _ in range(3)], user_id="ann")
    store.reindex()
    least = [count("one"), count("one", user_id="ann")]
    store.save_many([Session(input=[a_message("one") for _ in range(50)]) for _ in range(5)], user_id="ann")
    store.reindex()
    assert [count("one", limit=5), count("one", user_id="ann", limit=5)] == least


def steps_of(store: Any, database: Database, **filters: Any) -> int:
    """How many hundred instructions SQLite runs for a question."""
    with database.engine().connect() as host, sqlite_steps(host) as steps:
        assert len(store.within(host).search("one", limit=5, **filters)) == 5
    return len(steps)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
@pytest.mark.parametrize("filters", [{}, {"user_id": "ann"}, {"role": "user", "labels": {"k": "v"}}], ids=str)
def test_sqlite_looks_at_no_more_than_the_candidates(store: Any, database: Database, few: int, filters: Any) -> None:
    """It reads documents in the order of its index, sorts only candidates, and looks at nothing behind them."""
    sessions = [Session(input=[a_message("one")] * 20) for _ in range(20)]
    options: Any = {"user_id": "ann", "labels": {"k": "v"}}
    store.save_many(sessions, **options)
    store.reindex()
    before = steps_of(store, database, **filters)
    store.save_many(sessions * 5, **options)
    store.reindex()
    assert 0 < steps_of(store, database, **filters) <= 1.2 * before + 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_what_others_have_costs_nothing(stores: Any, store: Any, database: Database, tenant: str) -> None:
    """Other users, conversations and tenants, all of whose texts match."""
    others, everybody = store, stores.get("sync").create_tenant(f"everybody {tenant}")
    mine = store.create_conversation(user_id="ann", title="one", input=[a_message("one")] * 6)
    store.reindex()
    asked: list[dict[str, Any]] = [{"user_id": "ann"}, {"conversation_id": mine.id}, {"status": None, "user_id": "ann"}]
    before = [steps_of(store, database, **filters) for filters in asked]
    for owner in (others, everybody):
        owner.save_many([Session(input=[a_message("one")] * 20) for _ in range(50)], user_id="ben")
        owner.reindex()
    for filters, steps in zip(asked, before, strict=True):
        assert 0 < steps_of(store, database, **filters) <= 1.2 * steps + 1


@pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
def test_postgresql_has_statistics_after_everything_was_indexed(empty_database: Database) -> None:
    schema.upgrade(empty_database.engine())
    with Store(empty_database.url) as store:
        store.create_conversation(user_id="ann", input=[a_message("needle")] * 50)
        assert store.reindex() == 50
    with empty_database.engine().connect() as connection:
        found = connection.execute(
            text("SELECT most_common_elems::text FROM pg_stats WHERE tablename = :name AND attname = 'words'"),
            {"name": "threadkeep_search_documents"},
        )
        assert found.scalars().all() == ["{needle}"]
