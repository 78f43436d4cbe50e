"""What an application shows as lists: summaries in any order, with previews, counts and unread marks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event, text

from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, an_answer, an_output, noise
from tests.store.conftest import Stores
from tests.store.watching import Tables, engine_of
from threadkeep import InvalidOption, NotFound, Seen, Session
from threadkeep.db.queries.lists import MAX_LABELLED, conversation_page, label_counts, newest_messages
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.searching import beginning_of, is_added
from threadkeep.store.reading.lists import Wanted
from threadkeep.store.work.validation import MAX_TITLE

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"
FIRST = datetime(2024, 3, 1, 12, tzinfo=UTC)


def titles(page: Any) -> list[str | None]:
    return [one.title for one in page]


def preview(store: Any, conversation: Any) -> str | None:
    [found] = [one for one in store.list_summaries(status=None) if one.id == conversation.id]
    shown: str | None = found.preview
    return shown


# Summaries


def test_a_summary_has_what_a_list_shows(store: Any) -> None:
    conversation = store.create_conversation(
        model="m", input="Where to?", user_id="ann", title="A trip", labels={"a": "b"}, properties={"p": "q"},
        external_id="e",
    )  # fmt: skip
    conversation.add_response(an_answer("To the\n sea,  of course."), FORMAT)
    conversation.fork().user("No")
    read = store.get_conversation(conversation.id)
    [found] = store.list_summaries()
    for name in ("id", "external_id", "user_id", "title", "labels", "properties", "status", "created_at"):
        assert getattr(found, name) == getattr(read, name)
    assert found.last_activity_at == read.last_activity_at
    assert (found.item_count, found.response_count, found.branch_count) == (3, 1, 2)
    assert found.preview == "To the sea, of course."
    assert (found.seen_at, found.is_unread) == (None, True)


def test_an_empty_conversation_has_nothing_to_show_or_to_read(store: Any) -> None:
    store.create_conversation(user_id="ann")
    [found] = store.list_summaries()
    assert (found.preview, found.title, found.labels, found.item_count, found.branch_count) == (None, None, {}, 0, 1)
    assert found.is_unread is False


def test_filters_and_pages_are_those_of_conversations(store: Any) -> None:
    for number in range(12):
        store.create_conversation(user_id=f"u{number % 2}", labels={"k": "abc"[number % 3]}, title=str(number))
    store.list_conversations(user_id="u0", labels={"k": "a"}, limit=1).items[0].archive()
    for filters in ({}, {"user_id": "u1"}, {"labels": {"k": "b"}}, {"status": "archived"}, {"status": None}):
        expected = titles(store.list_conversations(**filters))
        seen, after = [], None
        while True:
            page = store.list_summaries(after=after, limit=5, **filters)
            seen += titles(page)
            if (after := page.next) is None:
                break
        assert seen == expected


WHERE: list[dict[str, Any]] = [
    {}, {"user_id": "u1"}, {"labels": {"k": "b"}}, {"labels": {"k": "b", "all": ""}}, {"unread_by": "u1"},
    {"user_id": "u1", "labels": {"all": ""}, "unread_by": "u1"},
]  # fmt: skip
SORTED_BY = {"activity": "last_activity_at", "created": "created_at", "title": "title"}


@pytest.fixture
def mixed(store: Any) -> Any:
    """Conversations of two users, with labels of their own and one that all have, some archived, deleted or read."""
    for number in range(15):
        labels = {"k": "abc"[number % 3], "all": ""}
        made = store.create_conversation(user_id=f"u{number % 2}", labels=labels, title=f"{number % 4}", input="Hi")
        if number % 5 == 0:
            made.mark_seen("u1")
        if number % 4 == 1:
            made.archive()
        if number == 14:
            store.delete_conversation(made.id)
    return store


def is_wanted(one: Any, status: str | None, user_id: str | None = None, unread_by: str = "", **filters: Any) -> bool:
    return (
        status in {None, one.status}
        and user_id in {None, one.user_id}
        and (not unread_by or one.is_unread)
        and filters.get("labels", {}).items() <= one.labels.items()
    )


def wanted(store: Any, **options: Any) -> Wanted:
    plain = {"user_id": None, "labels": None, "unread_by": None, "status": "active", "order_by": "activity"}
    made = Wanted.of(store.handle.scope, {**plain, "order": None, "after": None, "limit": 50, **options})
    assert made is not None
    return made


@pytest.mark.parametrize("status", ["active", "archived", None])
@pytest.mark.parametrize("order_by", SORTED_BY)
def test_wherever_a_list_starts_it_shows_the_same(
    mixed: Any, watching: Engine, order_by: str, status: str | None
) -> None:
    """Where few have a label the list starts at them, and else looks for it at one conversation after the other."""
    page = mixed.list_summaries(status=None, seen_by="u1", order_by=order_by)
    keys = [getattr(one, SORTED_BY[order_by]) for one in page]
    assert keys == sorted(keys, reverse=order_by != "title")
    ids = {public_id_bytes(one.id): one.id for one in page}
    assert len(ids) == 14
    for filters in WHERE:
        expected = [one.id for one in page if is_wanted(one, status, **filters)]
        question = wanted(mixed, status=status, order_by=order_by, **filters)
        for start in (None, *range(question.query.labels)):
            statement = conversation_page(question.query._replace(start=start))
            with watching.connect() as connection:
                rows = statement.fetch_all(connection, question.parameters)
            assert [ids[bytes(row[1])] for row in rows] == expected
        joined: list[str] = []
        after = None
        for _ in range(len(expected) // 3 + 1):
            part = mixed.list_conversations(status=status, order_by=order_by, after=after, limit=3, **filters)
            joined += [one.id for one in part]
            if (after := part.next) is None:
                break
        assert joined == expected


def test_a_list_starts_at_the_rarest_of_what_it_asks_for(mixed: Any, watching: Engine) -> None:
    """Conversations of a user are counted, too: what others have does not matter then."""

    def counts(**filters: Any) -> list[int]:
        question = wanted(mixed, **filters)
        with watching.connect() as connection:
            return list(label_counts(question.query).fetch_all(connection, question.parameters)[0])

    assert counts(labels={"all": "", "k": "b"}) == [14, 5, MAX_LABELLED]
    assert counts(labels={"k": "b"}, user_id="u1") == [5, 7]
    assert counts(labels={"k": "none"}, user_id="u9") == [0, 0]


@pytest.mark.parametrize("listing", ["list_conversations", "list_summaries"])
def test_what_is_deleted_while_it_is_listed_breaks_no_list(
    stores: Stores, store: Any, tenant: str, listing: str
) -> None:
    """Whether the list still has it depends on what a database lets a reader see."""
    made = [store.create_conversation(title=title, input="Hi") for title in "abc"]
    for conversation in made[:2]:
        conversation.set_active_branch(conversation.fork(at=0).branch)
    engine = engine_of(store)
    deleted: list[str] = []
    another = stores.get("sync", "another").for_tenant(tenant)

    def delete(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "threadkeep_branches" in statement and not deleted:
            deleted.append(made[0].id)
            another.delete_conversation(made[0].id)

    event.listen(engine, "before_cursor_execute", delete)
    try:
        listed = titles(getattr(store, listing)())
    finally:
        event.remove(engine, "before_cursor_execute", delete)
    assert deleted
    assert listed in (["b", "c"], ["b", "a", "c"])
    assert titles(getattr(store, listing)()) == ["b", "c"]


# Previews


def test_the_newest_text_is_shown_and_no_media_or_calls(store: Any, conversation: Any) -> None:
    conversation.user(["Look", a_picture(noise(9_000))])
    assert preview(store, conversation) == "Look"
    conversation.user([a_picture(noise(20_000))])
    conversation.user([a_picture(noise(600)), "small"])
    assert preview(store, conversation) == "small"
    conversation.user([a_picture(noise(20_000))])
    conversation.system("You are a parrot")
    conversation.add_items([a_call("c"), an_output("c", "secret")])
    assert preview(store, conversation) == "small"


def test_text_far_from_the_end_is_shown_too_but_not_from_anywhere(store: Any, conversation: Any) -> None:
    conversation.user("asked")
    conversation.add_items([a_call(f"c{number}") for number in range(200)])
    assert preview(store, conversation) == "asked"
    conversation.add_items([a_call(f"d{number}") for number in range(1_000)])
    assert preview(store, conversation) is None


def test_the_active_branch_is_shown(store: Any, conversation: Any) -> None:
    conversation.user("one")
    conversation.user("two")
    fork = conversation.fork(at=0)
    assert preview(store, conversation) == "two"
    conversation.set_active_branch(fork.branch)
    assert preview(store, conversation) == "one"
    fork.user("three")
    assert preview(store, conversation) == "three"
    fork.pop()
    assert preview(store, conversation) == "one"
    conversation.set_active_branch(0)
    conversation.pop()
    assert preview(store, conversation) == "one"
    conversation.redact_item(0)
    assert "one" not in (preview(store, conversation) or "")


def test_long_texts_are_cut(store: Any, conversation: Any) -> None:
    conversation.user("word " * 50_000)
    found = preview(store, conversation)
    assert found is not None
    assert found.startswith("word word")
    assert found.endswith("word…")
    assert 120 < len(found) <= 160
    conversation.user([{"type": "input_text", "text": "first"}, {"type": "input_text", "text": "second"}])
    assert preview(store, conversation) == "first second"


@pytest.mark.parametrize(
    ("text", "is_expected"),
    [
        ("<system-reminder>\nBe quick.\n</system-reminder>\n", True),
        ("<command-name>/x</command-name>\n  <command-args></command-args>", True),
        ("<local-command-stdout>a <b>b</b></local-command-stdout>", True),
        ("<a-b>one <a-b>two</a-b></a-b>", True),
        ("<a-b>one</a-b> words <a-b>two</a-b>", False),
        ("<a-b>one</a-b> words", False),
        ("words <a-b>one</a-b>", False),
        ("<a-b>one", False),
        ("<details>one</details>", False),
        ("", False),
    ],
)
def test_blocks_of_programs_are_no_words(text: str, is_expected: bool) -> None:
    assert is_added(text) is is_expected


def test_the_end_of_a_block_may_be_missing_where_a_text_is_cut() -> None:
    assert is_added("<a-b>one", is_cut=True)
    assert not is_added("<a-b>one</a-b> wor", is_cut=True)


@given(st.text(max_size=500))
def test_the_beginning_of_a_text_is_short_and_on_one_line(text: str) -> None:
    found = beginning_of(text)
    assert len(found) <= 160
    assert found.split() == found.removesuffix("…").split() or found.endswith("…")
    assert not set(found) & set("\n\r\t")
    line = " ".join(text.split())
    assert found == line or (found.endswith("…") and line.startswith(found[:-1]))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_previews_read_ranges_of_an_index(database: Database, conversation: Any) -> None:
    """The other databases do that anyway."""
    ranges = [(1, 0, 5, 9), (2, 0, 5, 9), (2, 1, 9, 20)]
    with database.engine().connect() as connection:
        statement = newest_messages(conversation.handle.ref.scope.tenant, ranges)
        query = statement.compile(connection, compile_kwargs={"literal_binds": True})
        plan = [row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
    searches = [step for step in plan if "threadkeep_items" in step]
    assert len(searches) == 3
    assert all("conversation_id=? AND position>? AND position<?" in step for step in searches)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.one_face
def test_a_whole_page_of_forks(store: Any) -> None:
    """SQLite limits how deep an expression is."""
    texts = [a_message(str(number)) for number in range(5)]
    for public_id in store.save_many([Session(input=texts) for _ in range(100)]):
        conversation = store.get_conversation(public_id)
        for position in (3, 1):
            conversation.remove_item(position)
        fork = conversation.fork()
        fork.add_items([a_call("c")])
        conversation.set_active_branch(fork.branch)
    assert [one.preview for one in store.list_summaries(limit=100)] == ["4"] * 100


# Orders


@pytest.fixture
def shelf(store: Any) -> Any:
    """Conversations whose order is another one by title, by creation and by activity."""
    for title, created, active in (("b", 2, 9), ("Ä", 1, 8), ("a", 3, 5), (None, 4, 6), ("B", 0, 7), ("a", 5, 10)):
        session = Session(input=[a_message("x")])
        at = FIRST + timedelta(days=created)
        store.save(session, title=title, created_at=at, items_created_at=[FIRST + timedelta(days=active)], user_id="u")
    return store


def test_orders(shelf: Any) -> None:
    for listing in (shelf.list_conversations, shelf.list_summaries):
        assert titles(listing(order_by="created")) == ["a", None, "a", "b", "Ä", "B"]
        assert titles(listing(order_by="created", order="asc")) == ["B", "Ä", "b", "a", None, "a"]
        assert (
            titles(listing()) == titles(listing(order_by="activity", order="desc")) == ["a", "b", "Ä", "B", None, "a"]
        )
        by_title = titles(listing(order_by="title"))
        assert [title and title.lower() for title in by_title if title != "Ä"] == [None, "a", "a", "b", "b"]
        assert titles(listing(order_by="title", order="desc")) == by_title[::-1]


@pytest.mark.parametrize("order_by", ["activity", "created", "title"])
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_join_to_the_whole_in_every_order(shelf: Any, order_by: Any, order: Any, limit: int) -> None:
    for listing in (shelf.list_conversations, shelf.list_summaries):
        whole = [one.id for one in listing(order_by=order_by, order=order)]
        seen: list[str] = []
        after = None
        while len(seen) < 20:
            page = listing(order_by=order_by, order=order, limit=limit, after=after, user_id="u")
            seen += [one.id for one in page]
            if (after := page.next) is None:
                break
        assert seen == whole


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=70), max_size=6))
def test_no_title_breaks_a_page(store: Any, names: list[str]) -> None:
    label = {"run": str(hash(tuple(names)))[:20] + str(len(names))}
    ids = store.save_many([Session() for _ in names], labels=label)
    for public_id, name in zip(ids, names, strict=True):
        store.get_conversation(public_id).update(title=name)
    for order in ("asc", "desc"):
        seen, after = [], None
        while True:
            page = store.list_summaries(order_by="title", order=order, labels=label, limit=2, after=after)
            seen += [one.id for one in page]
            if (after := page.next) is None:
                break
        assert set(ids) <= set(seen)
        assert len(seen) == len(set(seen))


def test_a_title_is_short(store: Any, tables: Tables) -> None:
    """Lists have many of them, of everybody."""
    made = store.create_conversation(title="x" * MAX_TITLE)
    written = tables.written()
    for change in (made.update, store.create_conversation):
        with pytest.raises(InvalidOption, match="title has 1,001 characters, at most 1,000 can be stored"):
            change(title="ä" * (MAX_TITLE + 1))
    assert written() == {}


@pytest.mark.parametrize(
    "options",
    [{"order_by": "size"}, {"order_by": None}, {"order": "up"}, {"order": 1}, {"unread_by": ""}, {"unread_by": 7},
     {"after": "x", "order_by": "title"}, {"limit": 0}, {"limit": 1_001}],
    ids=str,
)  # fmt: skip
def test_other_orders_are_refused(store: Any, options: dict[str, Any]) -> None:
    for listing in (store.list_conversations, store.list_summaries):
        with pytest.raises(InvalidOption):
            listing(**options)


def test_a_page_belongs_to_its_order(shelf: Any) -> None:
    by_title, by_time = shelf.list_summaries(order_by="title", limit=1).next, shelf.list_summaries(limit=1).next
    with pytest.raises(InvalidOption):
        shelf.list_summaries(after=by_title)
    with pytest.raises(InvalidOption):
        shelf.list_summaries(after=by_time, order_by="title")
    with pytest.raises(InvalidOption, match="from 1 to 100"):
        shelf.list_summaries(limit=101)


# Unread marks


def test_what_was_appended_after_the_mark_is_unread(store: Any, conversation: Any) -> None:
    conversation.user("one")
    assert conversation.seen("ann") is None
    mark = conversation.mark_seen("ann")
    assert (mark.user_id, mark.position) == ("ann", 0)
    assert conversation.seen("ann") == mark

    def unread(user: str) -> list[bool | None]:
        assert titles(store.list_conversations(unread_by=user)) == titles(store.list_summaries(unread_by=user))
        found = [one.is_unread for one in store.list_summaries(seen_by=user)]
        assert len(store.list_summaries(unread_by=user)) == found.count(True)
        return found

    assert (unread("ann"), unread("ben")) == ([False], [True])
    conversation.fork().user("two")  # on any branch
    assert (unread("ann"), unread("ben")) == ([True], [True])
    conversation.mark_seen("ann")
    conversation.mark_seen("ben", position=0)
    assert (unread("ann"), unread("ben")) == ([False], [True])
    assert store.list_summaries(seen_by="ann").items[0].seen_at == conversation.seen("ann").seen_at


def test_a_mark_moves_back_only_when_asked(conversation: Any) -> None:
    conversation.add_items([a_message(str(number)) for number in range(3)])
    first = conversation.mark_seen("ann", position=2)
    assert conversation.mark_seen("ann", position=1) == first == conversation.seen("ann")
    again = conversation.mark_seen("ann", position=2)
    assert again.seen_at >= first.seen_at
    assert conversation.mark_seen("ann", position=0, move_back=True).position == 0
    assert conversation.mark_seen("ann", position=-1, move_back=True).position == -1
    assert conversation.mark_seen("ann", position=2**62).position == 2  # nothing behind the end has been seen
    with pytest.raises(InvalidOption):
        conversation.mark_seen("ann", position=-2)


def test_the_conversation_s_own_user_counts_by_default(store: Any) -> None:
    mine = store.create_conversation(user_id="ann", title="mine", input="x")
    store.create_conversation(user_id="ben", title="yours", input="x").mark_seen("ann")
    store.create_conversation(title="nobody's", input="x")
    mine.mark_seen("ann")
    assert {one.title: one.is_unread for one in store.list_summaries()} == {
        "mine": False,
        "yours": True,
        "nobody's": None,
    }
    assert {one.title: one.is_unread for one in store.list_summaries(seen_by="ann")} == {
        "mine": False,
        "yours": False,
        "nobody's": True,
    }


def test_the_reader_need_not_be_given_where_there_is_one(store: Any) -> None:
    """That of the store, else of the conversation."""
    mine = store.create_conversation(user_id="ann", input="x")
    scoped = store.for_user("ann").get_conversation(mine.id)
    assert scoped.seen() is None
    assert scoped.mark_seen().user_id == "ann"
    assert mine.seen() == scoped.seen() == mine.seen("ann")
    scoped.user("y")
    assert mine.mark_seen(position=1).position == 1
    nobodys = store.create_conversation(input="x")
    for call in (nobodys.mark_seen, nobodys.seen):
        with pytest.raises(InvalidOption, match="user_id is missing"):
            call()


def test_a_mark_is_no_change_of_the_conversation(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.user("one")
    before = tables.rows("conversations", "id")
    conversation.mark_seen("ann")
    assert tables.rows("conversations", "id") == before
    store.delete_conversation(conversation.id)
    assert tables.counts()["conversation_reads"] == 0
    for call in (conversation.mark_seen, conversation.seen):
        with pytest.raises(NotFound):
            call("ann")


def test_a_user_sees_own_marks_only(store: Any) -> None:
    conversation = store.create_conversation(user_id="ann", input="x")
    scoped = store.for_user("ann")
    mine = scoped.get_conversation(conversation.id)
    conversation.mark_seen("ben")
    assert isinstance(mine.mark_seen("ann"), Seen)
    assert [one.is_unread for one in scoped.list_summaries()] == [False]
    calls: list[Callable[[], Any]] = [
        lambda: mine.mark_seen("ben"),
        lambda: mine.seen("ben"),
        lambda: scoped.list_summaries(seen_by="ben"),
        lambda: scoped.list_summaries(unread_by="ben"),
        lambda: scoped.list_conversations(unread_by="ben"),
    ]
    for call in calls:
        with pytest.raises(InvalidOption, match="ann"):
            call()
    assert list(store.for_user("ben").list_summaries()) == []
    assert list(scoped.list_summaries(user_id="ben")) == []


def test_an_erased_user_leaves_no_marks(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.user("one")
    for user in ("ann", "ben"):
        conversation.mark_seen(user)
    store.erase_user("ann")
    assert [row["user_id"] for row in tables.rows("conversation_reads", "user_id")] == ["ben"]
