"""Times from elsewhere: what importers say about when conversations, items and calls were made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.factories import a_message, an_answer, an_error
from tests.store.watching import Tables
from threadkeep import HeadConflict, InvalidOption, NewSession, ProviderError, Session

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"
FIRST = datetime(2024, 3, 1, 12, tzinfo=UTC)
LATER = FIRST + timedelta(hours=3)
DAY = timedelta(days=1)


def times(conversation: Any) -> list[datetime]:
    return [item.created_at for item in conversation.transcript()]


def test_a_conversation_is_as_old_as_it_was(store: Any) -> None:
    saved = store.save(Session(input=[a_message("a"), a_message("b")]), created_at=FIRST)
    assert (saved.created_at, saved.last_activity_at, times(saved)) == (FIRST, FIRST, [FIRST, FIRST])
    made = store.create_conversation(model="m", created_at=FIRST)
    read = store.import_request({"model": "m", "input": "Hi"}, FORMAT, created_at=FIRST.astimezone(timezone(DAY / 24)))
    assert (made.created_at, read.created_at, times(read)) == (FIRST, FIRST, [FIRST])


def test_each_item_has_its_time_and_the_newest_one_counts(store: Any) -> None:
    session = Session(input=[a_message("a"), a_message("b"), a_message("c")])
    saved = store.save(session, created_at=FIRST, items_created_at=[FIRST, LATER, FIRST])
    assert times(saved) == [FIRST, LATER, FIRST]
    assert [item.item.text for item in saved.transcript()] == ["a", "b", "c"]  # the order is that of positions
    assert saved.last_activity_at == LATER
    assert store.save(session, items_created_at=(LATER, FIRST, LATER)).created_at == FIRST


APPENDS: dict[str, Callable[[Any, datetime | None], Any]] = {
    "a message": lambda c, at: c.user("Hi", created_at=at),
    "items": lambda c, at: c.add_items([a_message(), a_message()], created_at=at),
    "turns": lambda c, at: c.add_input([a_message()], FORMAT, created_at=at),
    "a history": lambda c, at: c.sync_request({"input": [*said(c), a_message("new")]}, FORMAT, created_at=at),
    "another history": lambda c, at: c.sync_request({"input": [a_message(f"at {at}")]}, FORMAT, created_at=at),
    "a compaction": lambda c, at: c.compact(summary="So far", created_at=at),
    "a response": lambda c, at: c.add_response(an_answer("Hi"), FORMAT, occurred_at=at),
}


def said(conversation: Any) -> list[Any]:
    return [item.item.to_dict() for item in conversation.transcript()]


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_what_is_appended_has_its_time(store: Any, append: Callable[[Any, datetime | None], Any]) -> None:
    conversation = store.save(Session(input=[a_message("a")]), created_at=FIRST)
    branches = len(conversation.branches())
    append(conversation, LATER)
    grown = conversation if len(conversation.branches()) == branches else conversation.on_branch(branches)
    assert times(grown)[-1] == LATER
    assert store.get_conversation(conversation.id).last_activity_at == LATER
    append(conversation, FIRST)  # what is older does not take the last activity back
    assert store.get_conversation(conversation.id).last_activity_at == LATER
    append(conversation, None)
    assert store.get_conversation(conversation.id).last_activity_at > LATER


def test_appending_nothing_is_no_activity(store: Any) -> None:
    """What was expected of the head is checked all the same."""
    history = {"messages": [{"role": "user", "content": "Hi"}]}
    conversation = store.create_conversation(model="m")
    conversation.sync_request(history, "chat_completion")
    before = store.get_conversation(conversation.id).last_activity_at
    assert conversation.add_items([], states={"run": 1}) == []
    assert conversation.add_input([], "chat_completion", expected_head=0) == []
    assert conversation.sync_request(history, "chat_completion").appended == 0
    for append in (
        conversation.add_items,
        lambda items, **options: conversation.add_input(items, "messages", **options),
    ):
        with pytest.raises(HeadConflict):
            append([], expected_head=7)
    branch = conversation.fork(at=0)
    forked = store.get_conversation(conversation.id).last_activity_at
    assert forked > before
    branch.add_items([], idempotency_key="k")
    branch.add_items([], idempotency_key="k")
    assert store.get_conversation(conversation.id).last_activity_at == forked
    assert conversation.state("run").value == 1
    conversation.user("Go on")
    assert store.get_conversation(conversation.id).last_activity_at > forked


def test_a_copy_is_new_and_its_items_are_as_old_as_they_were(store: Any) -> None:
    """… on the branch that is copied, without those that were removed from it."""
    original = store.save(Session(input=[a_message("a"), a_message("b")]), created_at=FIRST)
    original.user("c", created_at=LATER)
    fork = original.fork(at=1)
    fork.user("d", created_at=LATER + DAY)
    fork.remove_item(0)
    copy = store.copy_conversation(original.id)
    assert times(copy) == times(original) == [FIRST, FIRST, LATER]
    assert copy.created_at == copy.last_activity_at > LATER + DAY
    fork.set_active_branch(fork.branch)
    old = store.copy_conversation(original.id, created_at=LATER)
    assert (times(old), old.created_at, old.last_activity_at) == ([FIRST, LATER + DAY], LATER, LATER + DAY)
    told = store.copy_conversation(original.id, items_created_at=[LATER, FIRST])
    assert (times(told), told.created_at) == ([LATER, FIRST], FIRST)
    assert times(store.copy_conversation(store.create_conversation().id)) == []


def test_an_expected_head_is_looked_at_as_ever(store: Any) -> None:
    conversation = store.save(Session(input=[a_message("a")]), created_at=FIRST)
    conversation.user("b", created_at=LATER)
    branched = conversation.user("c", created_at=FIRST, expected_head=0, on_conflict="branch")
    assert (branched.branch, branched.created_at) == (1, FIRST)
    assert store.get_conversation(conversation.id).last_activity_at == LATER


def test_the_ledger_has_the_time_of_the_call(store: Any, tables: Tables) -> None:
    conversation = store.save(Session(model="m", input=[a_message()]), created_at=FIRST)
    conversation.add_response(an_answer("Hi"), FORMAT, occurred_at=LATER)
    with pytest.raises(ProviderError):
        conversation.add_response(an_error(), FORMAT, occurred_at=LATER)
    conversation.record_attempt(FORMAT, error="lost", occurred_at=LATER)
    assert {(row["occurred_at"], row["day"]) for row in tables.rows("usage_records", "id")} == {(LATER, LATER.date())}
    assert {row["created_at"] for row in tables.rows("responses", "number")} == {LATER}
    [body] = tables.rows("response_bodies", "number")
    assert body["created_at"] > LATER  # raw bodies are kept for so long after they were stored


def test_reports_of_days_that_were_rolled_up_include_what_comes_late(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    for _ in range(2):
        conversation.add_response(an_answer("Hi"), FORMAT, occurred_at=FIRST)
        before = store.usage(by="day")
        assert store.fill_usage_days() > 0
        assert store.usage(by="day") == before
    [row] = store.usage(by="day")
    assert (row.day, row.attempts) == (FIRST.date(), 2)
    assert store.reconcile_usage().repaired == 0


def test_retention_goes_by_the_last_activity(store: Any) -> None:
    old = store.save(Session(input=[a_message()]), created_at=FIRST)
    store.save(Session(input=[a_message()]), created_at=FIRST).user("still in use")
    assert store.retain(content=365, dry_run=True).conversations == 1
    assert store.retain(content=365).conversations == 1
    assert old.id not in [found.id for found in store.list_conversations()]


def test_many_are_saved_each_with_what_is_known_of_it(store: Any) -> None:
    new = [
        NewSession(Session(input=[a_message(str(number))]), title=f"t{number}", labels={"n": str(number)},
                   external_id=f"e{number}", user_id=f"u{number}", properties={"p": "q"},
                   created_at=FIRST + number * DAY, items_created_at=[LATER + number * DAY])
        for number in range(3)
    ]  # fmt: skip
    ids = store.save_many([*new, Session()], title="all of them", labels={"all": "yes"}, idempotency_key="once")
    found = [store.get_conversation(public_id) for public_id in ids]
    assert [one.title for one in found] == ["t0", "t1", "t2", "all of them"]
    assert [one.labels for one in found] == [{"n": "0"}, {"n": "1"}, {"n": "2"}, {"all": "yes"}]
    assert [one.user_id for one in found] == ["u0", "u1", "u2", None]
    assert [one.created_at for one in found[:3]] == [FIRST, FIRST + DAY, FIRST + 2 * DAY]
    assert [one.last_activity_at for one in found[:3]] == [LATER, LATER + DAY, LATER + 2 * DAY]
    assert found[1].properties == {"p": "q"}
    assert store.find_conversation(external_id="e2").id == ids[2]
    again = store.save_many([*new, Session()], title="all of them", labels={"all": "yes"}, idempotency_key="once")
    assert again == ids
    assert store.for_user("u1").save_many([NewSession(Session(), user_id="u1")])
    with pytest.raises(InvalidOption, match="must be 'u1'"):
        store.for_user("u1").save_many([NewSession(Session(), user_id="u2")])


@pytest.mark.parametrize(
    "at",
    [FIRST.replace(tzinfo=None), datetime.now(UTC) + timedelta(hours=1), datetime(1969, 12, 31, tzinfo=UTC),
     "2024-03-01", FIRST.date(), 1_700_000_000],
    ids=["naive", "future", "before computers", "text", "date", "number"],
)  # fmt: skip
def test_a_time_is_an_aware_datetime_of_the_past(store: Any, conversation: Any, tables: Tables, at: Any) -> None:
    before = tables.counts(), tables.rows("conversations", "id")
    calls: list[Callable[[], Any]] = [
        lambda: store.create_conversation(created_at=at),
        lambda: store.save(Session(), created_at=at),
        lambda: store.save(Session(input=[a_message()]), items_created_at=[at]),
        lambda: store.save_many([NewSession(Session(), created_at=at)]),
        lambda: conversation.user("Hi", created_at=at),
        lambda: conversation.add_response(an_answer("Hi"), FORMAT, occurred_at=at),
        lambda: conversation.record_attempt(FORMAT, occurred_at=at),
    ]
    for call in calls:
        with pytest.raises(InvalidOption, match=r"^(items_)?(created|occurred)_at"):
            call()
    assert (tables.counts(), tables.rows("conversations", "id")) == before


def test_a_clock_elsewhere_may_be_a_little_ahead(conversation: Any) -> None:
    at = datetime.now(UTC) + timedelta(minutes=2)
    assert conversation.user("Hi", created_at=at).created_at == at


@pytest.mark.parametrize("values", [[FIRST], [FIRST, None], FIRST, "x", [FIRST] * 3], ids=str)
def test_there_is_a_time_for_each_item(store: Any, values: Any) -> None:
    with pytest.raises(InvalidOption, match="items_created_at"):
        store.save(Session(input=[a_message(), a_message()]), items_created_at=values)


def test_times_are_not_changed_later(conversation: Any) -> None:
    with pytest.raises(InvalidOption):
        conversation.update(created_at=FIRST)


@pytest.mark.parametrize("times", [b"", "", bytearray(b"x"), [None], 3, {}], ids=repr)
def test_times_of_items_are_a_list(store: Any, times: Any) -> None:
    with pytest.raises(InvalidOption, match="items_created_at"):
        store.create_conversation(model="m", input="Hi", items_created_at=times)
