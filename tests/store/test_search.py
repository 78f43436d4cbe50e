"""The search on every database, through both faces: what is found, what is not, and what filters and pages show."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import text

from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, an_answer, an_output, noise
from tests.store.faces import blocking_store
from tests.store.watching import Tables
from threadkeep import InvalidOption, NotFound, SearchResult, Session, Store
from threadkeep.store.search.index import BATCH_SIZE

pytestmark = pytest.mark.one_face

TITLE = -1


def places(found: Any) -> list[int]:
    """The positions of what was found, in order."""
    return [TITLE if result.position is None else result.position for result in found]


@pytest.fixture
def talk(store: Any) -> Any:
    """A conversation about the weather, in several languages."""
    conversation = store.create_conversation(model="m", title="A trip", input="What is the Weather in Paris?")
    conversation.add_response(an_answer("It rains in the café, says AI.", calls=("c",)), "open_responses")
    conversation.add_item(a_call("d", name="get_forecast", arguments='{"city":"Köln"}'))
    conversation.add_item(an_output("d", "Sunny tomorrow"))
    conversation.user("今天天气很好吗 用GPT模型")
    conversation.user("วันนี้อากาศดี")
    conversation.user("오늘 날씨가 좋다")
    return conversation


def test_nothing_is_found_where_nothing_has_been_stored(tmp_path: Any) -> None:
    with Store(f"sqlite:///{tmp_path}/new.db") as store:
        assert not store.search("weather")


FOUND = {
    "weather": [0],
    "WEATHER": [0],
    "paris weather": [0],
    '"weather in paris"': [0],
    '"in the weather"': [],
    "weather -paris": [],
    "in": [1, 0],
    "in -cafe": [0],
    "the": [1, 0],
    "AI": [1],
    "Café": [1],
    "cafe": [1],
    "kafe": [],
    "koln": [3],
    "fore*": [3],
    "fore": [],
    "forecast": [3],
    "get_forecast": [3],
    "look_up": [2],
    "sunny": [4],
    "trip": [TITLE],
    "tri*": [TITLE],
    "天气": [5],
    "天气很好": [5],
    "天好": [],
    "气": [5],
    "模型": [5],
    "GPT模型": [5],
    "gpt": [5],
    "吗": [5],
    "อากาศ": [6],
    "ดี": [6],
    "날씨": [7],
    "'; DROP TABLE items": [],
    'weather" AND "*': [],
    "paris* -x*": [0],
    "weather par*": [0],
    '"weather in par*"': [0],
    '"weather par*"': [],
    '"weather in" -par*': [],
    '"weather in" -"in paris"': [],
    'in -"weather in"': [1],
    'in -"rains in the caf*"': [0],
}


@pytest.mark.parametrize("question", FOUND)
def test_what_is_found(store: Any, talk: Any, question: str) -> None:
    """Words whatever their letters and accents, of any length; scripts without spaces by any piece of them."""
    assert sorted(places(store.search(question))) == sorted(FOUND[question])


def test_a_result_tells_where_it_is(store: Any, talk: Any) -> None:
    talk.update(user_id="ann")
    (found,) = store.search("weather").items
    assert found == SearchResult(
        conversation_id=talk.id,
        position=0,
        branch=0,
        type="message",
        role="user",
        title="A trip",
        user_id="ann",
        snippet="What is the Weather in Paris?",
        marks=((12, 19),),
        score=found.score,
        created_at=talk.get_item(0).created_at,
    )
    assert found.score > 0
    (title,) = store.search("trip").items
    assert (title.type, title.position, title.branch, title.snippet) == ("title", None, None, "A trip")
    assert title.created_at == talk.created_at


def test_the_best_comes_first(store: Any, conversation: Any) -> None:
    conversation.user("needle among " + "many other words " * 50)
    conversation.user("needle needle")
    conversation.user("nothing")
    assert places(store.search("needle")) == [1, 0]


def test_what_fits_equally_well_is_newest_first(store: Any, conversation: Any) -> None:
    conversation.add_items([a_message("needle") for _ in range(3)])
    assert places(store.search("needle")) == [2, 1, 0]


@pytest.mark.parametrize("question", ["needle", "needle -thread", "need*"])
def test_pages_hold_everything_once(store: Any, conversation: Any, question: str) -> None:
    conversation.add_items([a_message("needle " * (1 + n % 3) + "hay " * (n % 4)) for n in range(23)])
    whole = list(store.search(question, limit=100))
    seen, after = [], None
    while True:
        page = store.search(question, limit=5, after=after)
        seen += page.items
        after = page.next
        if after is None:
            break
    assert seen == whole
    assert sorted(places(whole)) == list(range(23))
    assert [found.score for found in whole] == sorted((found.score for found in whole), reverse=True)


def test_filters(store: Any) -> None:
    one = store.create_conversation(input="needle", user_id="ann", labels={"app": "quiz", "lang": "en"})
    one.assistant("needle")
    one.add_item(a_call(name="needle"))
    other = store.create_conversation(input="needle", user_id="ben", labels={"app": "quiz"}, title="needle")
    other.archive()

    def found(**filters: Any) -> list[tuple[str, int | None]]:
        named = {one.id: "one", other.id: "other"}
        return sorted(((named[f.conversation_id], f.position) for f in store.search("needle", **filters)), key=str)

    ours, theirs = [("one", 0), ("one", 1), ("one", 2)], [("other", 0), ("other", None)]
    assert found() == ours
    assert found(status="archived") == theirs
    assert found(status=None) == ours + theirs
    assert found(status=None, user_id="ben") == theirs
    assert found(status=None, user_id="cleo") == []
    assert found(status=None, labels={"app": "quiz"}) == ours + theirs
    assert found(status=None, labels={"app": "quiz", "lang": "en"}) == ours
    assert found(labels={"app": "other"}) == []
    assert found(status=None, conversation_id=other.id) == theirs
    assert found(role="assistant") == [("one", 1)]
    assert found(type="function_call") == [("one", 2)]
    assert found(status=None, type="title") == [("other", None)]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert found(since=datetime.now(UTC) - timedelta(hours=1), until=later) == ours
    assert found(since=later) == []
    assert found(until=one.created_at) == []
    assert found(since=later.date() - timedelta(days=2), until=later.date() + timedelta(days=2)) == ours
    assert found(until=later.date() - timedelta(days=2)) == []


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "no word": ("…", {}),
    "nothing": ("", {}),
    "no text": (None, {}),
    "only what is not wanted": ("-no", {}),
    "a status": ("x", {"status": "deleted"}),
    "labels": ("x", {"labels": ["a"]}),
    "a page": ("x", {"after": "somewhere"}),
    "a page of something else": ("x", {"after": "1.-2"}),
    "no limit": ("x", {"limit": 0}),
    "a naive time": ("x", {"since": datetime(2026, 1, 1)}),  # noqa: DTZ001 - that is what is refused
    "no time": ("x", {"until": "today"}),
    "no time of UTC": ("x", {"since": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9)))}),
    "no type": ("x", {"type": ""}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_refused(store: Any, name: str) -> None:
    question, filters = REFUSED[name]
    with pytest.raises(InvalidOption):
        store.search(question, **filters)


def test_an_id_of_nothing_is_not_found(store: Any, talk: Any) -> None:
    with pytest.raises(NotFound):
        store.search("weather", conversation_id="thread_1")
    assert not store.search("weather", conversation_id="conv_" + "0" * 32).items


def test_all_branches_are_searched(store: Any, talk: Any) -> None:
    talk.fork(at=0).user("A needle on a branch")
    (found,) = store.search("needle").items
    assert found.branch == 1
    assert store.get_conversation(talk.id, branch=1).get_item(found.position).item.text == "A needle on a branch"
    assert places(store.search("weather")) == [0]


def test_a_new_title_replaces_the_former(store: Any, talk: Any) -> None:
    assert places(store.search("trip")) == [TITLE]
    talk.update(title="A journey")
    assert places(store.search("journey")) == [TITLE]
    assert not store.search("trip").items
    talk.update(title=None)
    assert not store.search("journey").items
    talk.update(title="A trip")
    assert places(store.search("trip")) == [TITLE]


def test_what_is_appended_in_any_way_is_found(store: Any) -> None:
    conversation = store.create_conversation(input="needle one")
    conversation.user("needle two")
    conversation.add_items([a_message("needle three"), a_message("needle four")])
    conversation.add_response(an_answer("needle five"), "open_responses")
    with conversation.stream_response("open_responses") as recorder:
        for event in [{"type": "response.created", "response": an_answer()}, {
            "type": "response.completed", "response": an_answer("needle six")
        }]:  # fmt: skip
            recorder.feed(event)
    store.save_many([Session(input="needle seven")])
    store.import_request({"model": "m", "messages": [{"role": "user", "content": "needle eight"}]}, "chat_completion")
    assert {found.snippet.split()[1] for found in store.search("needle")} == {
        "one", "two", "three", "four", "five", "six", "seven", "eight",
    }  # fmt: skip


def test_media_and_reasoning_are_not_searched(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.user(["needle", a_picture(noise(20_000))])
    conversation.add_item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "needle"}]})
    (found,) = store.search("needle").items
    assert found.snippet == "needle"
    assert [row["text"] for row in tables.rows("search_documents")] == ["needle"]


def test_a_long_output_is_found_by_its_beginning(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.add_items([a_call("c"), an_output("c", "needle " + "hay " * 1_300_000 + "thread")])
    assert places(store.search("needle")) == [1]
    assert not store.search("thread").items
    assert max(len(row["text"]) for row in tables.rows("search_documents")) <= 16_384


def test_many_items_are_seen_in_several_transactions(store: Any, conversation: Any, tables: Tables) -> None:
    """… also when a batch ends within a conversation."""
    store.save_many([Session(input=[a_message(f"hay {n}") for n in range(40)]) for _ in range(5)])
    conversation.add_items([a_message(f"needle{n}") for n in range(2 * BATCH_SIZE)])
    store.save_many([Session(input=[a_message(f"hay {n}") for n in range(40)]) for _ in range(5)])
    assert places(store.search(f"needle{2 * BATCH_SIZE - 1}")) == [2 * BATCH_SIZE - 1]
    assert places(store.search("needle1")) == [1]
    assert len(store.search("39").items) == 10
    assert tables.counts()["search_documents"] == 2 * BATCH_SIZE + 400


def test_words_of_markup_are_no_commands(store: Any, conversation: Any) -> None:
    """What the languages of the databases have a meaning for."""
    for sign in "\"'()*+-:<>@~^%&|!\\;,.{}[]?#$=/":
        conversation.user(f"left{sign}right")
        for question in (f"left{sign}right", f"{sign}left {sign}right{sign}", f'"left{sign}'):
            assert store.search(question.replace("-", "+")).items, question


# Plans


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_each_question_is_planned_for_its_words(store: Any, database: Database) -> None:
    """PostgreSQL plans a prepared statement for any words at all, and reads every text of the tenant then."""
    store.create_conversation(input="needle")
    store.reindex()
    with database.engine().connect() as host:
        for _ in range(8):  # psycopg prepares the sixth
            assert store.within(host).search("needle").items
            host.execute(text("SELECT 'still prepared'"))
        prepared = host.execute(text("SELECT statement FROM pg_prepared_statements")).scalars().all()
    assert any("still prepared" in statement for statement in prepared)
    assert not any("tsquery" in statement.lower() for statement in prepared)


# Inside a transaction of the application


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_a_host_searches_what_was_seen_before(store: Any, database: Database) -> None:
    """To see what is new would lock conversations until the host ends. What it commits is found afterwards."""
    seen = store.create_conversation(input="needle one")
    assert store.search("needle").items
    with database.engine().connect() as host:
        within = store.within(host)
        within.create_conversation(input="needle two")
        within.get_conversation(seen.id).user("needle three")
        assert [found.snippet for found in within.search("needle")] == ["needle one"]
        host.commit()
    assert len(store.search("needle").items) == 3


@pytest.fixture
def without_search(database: Database, face: str, tenant: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The store of the test's tenant, opened by somebody who does not search."""
    if face == "sync":
        with Store(database.url, tenants=True, search=False) as opened:
            yield opened.for_tenant(tenant)
    else:
        runner = request.getfixturevalue("stores")._runner
        with blocking_store(database.url, runner, tenants=True, search=False) as opened:
            yield opened.for_tenant(tenant)


def test_a_store_need_not_search(store: Any, without_search: Any, tables: Tables) -> None:
    """Then it keeps no texts; one that searches finds them later."""
    conversation = without_search.create_conversation(input="needle", title="thread")
    for _ in range(200):
        conversation.user("hay")
    for ask in (lambda: without_search.search("needle"), without_search.reindex):
        with pytest.raises(InvalidOption, match="search=False"):
            ask()
    assert tables.counts()["search_documents"] == 0
    assert store.reindex() == 202
    assert store.reindex() == 0
    assert places(store.search("needle")) == [0]
    assert places(store.search("thread")) == [TITLE]


def test_a_store_sees_what_is_new_now_and_then(store: Any, conversation: Any, tables: Tables) -> None:
    """So that a question need not wait for all that was appended since the last one."""
    for number in range(200):
        conversation.user(f"needle {number}")
    assert 100 <= tables.counts()["search_documents"] < 200
    assert len(store.search("needle", limit=500).items) == 200


def test_the_sqlite_of_this_machine_has_fts5() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(word)")
