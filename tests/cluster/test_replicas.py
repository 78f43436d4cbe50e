"""A store that reads from a replica: what it shows while the replica lags behind, and when it is away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, make_url

from tests.cluster.conftest import Pair
from tests.databases import DRIVERS
from tests.factories import an_answer, texts_of
from tests.store.watching import transactions_of
from threadkeep import HeadConflict, Store
from threadkeep.store.work import replicas

pytestmark = pytest.mark.cluster


@pytest.fixture
def user() -> str:
    """A user of the test alone."""
    return uuid4().hex


@pytest.fixture
def store(pair: Pair, opened: Callable[..., Any], user: str) -> Any:
    """A store that reads from the replica and has written nothing."""
    return opened(pair.url, read_url=pair.read_url).for_user(user)


@pytest.fixture
def elsewhere(pair: Pair, user: str) -> Iterator[Store]:
    """Another process, which writes to the primary."""
    with Store(pair.url) as other:
        yield other.for_user(user)


READS: dict[str, Callable[[Any, str], Any]] = {
    "transcript": lambda store, key: texts_of(store.get_conversation(key).transcript()),
    "items": lambda store, key: len(store.get_conversation(key).items().items),
    "render": lambda store, key: store.get_conversation(key).request_body("chat_completion"),
    "responses": lambda store, key: [response.id for response in store.get_conversation(key).responses()],
    "list": lambda store, _: [one.title for one in store.list_conversations()],
    "summaries": lambda store, _: [one.title for one in store.list_summaries()],
    "usage": lambda store, _: [row.attempts for row in store.usage()],
    "statistics": lambda store, _: (store.statistics().active, store.statistics().items),
    "state": lambda store, key: store.get_conversation(key).states(),
    "feedback": lambda store, key: len(store.get_conversation(key).feedback()),
    "step": lambda store, key: store.get_conversation(key).next_step(),
}


def a_conversation(store: Any) -> Any:
    conversation = store.create_conversation(model="m", input="first", title="before")
    conversation.add_response(an_answer("second"), "open_responses")
    return conversation


def change(conversation: Any) -> None:
    """Change what every reader shows."""
    conversation.update(title="after")
    conversation.user("third")
    conversation.add_response(an_answer("fourth"), "open_responses")
    conversation.set_feedback(1, rating=1)
    conversation.set_state("run", 1)
    conversation.user("fifth")


def seen_by(store: Any, key: str) -> dict[str, Any]:
    return {name: read(store, key) for name, read in READS.items()}


def test_reads_are_of_the_replica_until_a_position_asks_for_more(pair: Pair, store: Any, elsewhere: Store) -> None:
    key = a_conversation(elsewhere).id
    before = seen_by(elsewhere, key)
    with pair.paused():
        change(elsewhere.get_conversation(key))
        after, position = seen_by(elsewhere, key), elsewhere.position()
        assert not [name for name in READS if before[name] == after[name]]
        assert seen_by(store, key) == before
        assert seen_by(store.after(position), key) == after
        assert seen_by(store, key) == before  # it was for that session alone
    pair.catch_up()
    assert seen_by(store, key) == seen_by(store.after(position), key) == after


def test_a_store_sees_what_it_has_written(pair: Pair, store: Any) -> None:
    with pair.paused():
        conversation = a_conversation(store)
        before = seen_by(store, conversation.id)
        change(conversation)
        after = seen_by(store, conversation.id)
        assert not [name for name in READS if before[name] == after[name]]
        assert [found.conversation_id for found in store.search("fifth")] == [conversation.id]


def test_a_store_that_has_written_reads_the_replica_again(pair: Pair, store: Any, elsewhere: Store) -> None:
    """As soon as that has what was written; a write of others is not waited for."""
    conversation = store.create_conversation(model="m", input="mine")
    assert len(conversation.transcript()) == 1  # where it learns how far the replica must be
    with pair.paused():
        elsewhere.get_conversation(conversation.id).user("theirs")
        assert len(store.get_conversation(conversation.id).transcript()) == 1
        conversation.user("mine, too")
        assert texts_of(store.get_conversation(conversation.id).transcript()) == ["mine", "theirs", "mine, too"]


def test_a_position_is_a_short_text_for_urls_and_cookies(pair: Pair, store: Any) -> None:
    assert store.position() == ""
    session = store.after("")
    conversation = session.create_conversation(model="m")
    position = session.position()
    assert re.fullmatch(r"(pg|gtid)[0-9.-]{3,40}", position)
    with pair.paused():
        conversation.user("Hi")
        later = session.position()
        assert later != position
        reader = store.after(later)
        assert len(reader.get_conversation(conversation.id).transcript()) == 1
        assert reader.position() == later  # who only reads asks for no more
        assert store.position() == ""


def test_what_the_replica_does_not_have_yet_is_found(pair: Pair, store: Any, elsewhere: Store) -> None:
    """An id that another process has just given, without a position."""
    with pair.paused():
        key = a_conversation(elsewhere).id
        conversation = store.get_conversation(key)
        assert len(conversation.transcript()) == 2
        conversation.user("third")
        assert [item.position for item in conversation.transcript()] == [0, 1, 2]


def test_after_a_conflict_the_newest_is_read(pair: Pair, store: Any, elsewhere: Store) -> None:
    key = a_conversation(elsewhere).id
    with pair.paused():
        elsewhere.get_conversation(key).user("third")
        conversation = store.get_conversation(key)
        assert conversation.head == 1
        with pytest.raises(HeadConflict):
            conversation.user("mine", expected_head=conversation.head)
        again = store.get_conversation(key)
        assert again.user("mine", expected_head=again.head).position == 3


def test_a_history_is_followed_from_the_primary(pair: Pair, store: Any, elsewhere: Store) -> None:
    """What is new in a request depends on what is there, and not on what the replica has."""
    key = a_conversation(elsewhere).id
    with pair.paused():
        elsewhere.get_conversation(key).user("third")
        messages = [
            {"role": role, "content": text}
            for role, text in (("user", "first"), ("assistant", "second"), ("user", "third"), ("user", "fourth"))
        ]
        store.get_conversation(key).sync_request({"model": "m", "messages": messages}, "chat_completion")
        assert texts_of(elsewhere.get_conversation(key).transcript()) == ["first", "second", "third", "fourth"]


def test_a_replica_that_is_away_is_replaced_by_the_primary(
    pair: Pair, store: Any, elsewhere: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """… and read again when it has come back."""
    key = a_conversation(elsewhere).id
    pair.catch_up()
    before = seen_by(store, key)
    pair.replica.kill()
    caplog.clear()
    try:
        assert seen_by(store, key) == before
        assert [record.name for record in caplog.records] == ["threadkeep.replicas"]  # it is left alone for a while
        told = r"The replica \S+ does not answer \(\w+( \d+)?\); the primary is read instead\."
        assert re.fullmatch(told, caplog.records[0].getMessage())
        assert seen_by(store.after(elsewhere.position()), key) == before
    finally:
        pair.restart()
    monkeypatch.setattr(replicas, "PAUSE_SECONDS", 0.0)
    transactions_of(store).reads.replica._away_until = 0.0
    with pair.paused():
        change(elsewhere.get_conversation(key))
        store.get_conversation(key)  # connections from before are found to be lost
        store.get_conversation(key)
        assert seen_by(store, key) == before


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_what_was_written_in_a_transaction_of_the_caller_is_seen(pair: Pair, store: Any) -> None:
    engine = create_engine(make_url(pair.url).set(drivername=DRIVERS[make_url(pair.url).drivername]))
    with pair.paused():
        with engine.begin() as connection:
            key = store.within(connection).create_conversation(model="m", input="inside").id
        session = store.after(store.position())
        assert len(session.get_conversation(key).transcript()) == 1
    engine.dispose()


def test_of_several_hosts_the_one_that_can_be_written_to_is_found(pair: Pair, opened: Callable[..., Any]) -> None:
    """… and to read, the first that answers, also if it is read-only."""
    if "mariadb" in pair.url:
        pair.replica.sql("SET GLOBAL read_only = 1")
    first, second = make_url(pair.read_url), make_url(pair.url)
    hosts = f"127.0.0.1:1,127.0.0.1:{first.port},127.0.0.1:{second.port}"
    url = f"{second.drivername}://{second.username}@{hosts}/{second.database}"
    store = opened(url, read_url=url)
    conversation = store.create_conversation(model="m", input="Hi")
    assert len(conversation.transcript()) == 1
    with pair.paused(), Store(pair.url) as other:
        other.get_conversation(conversation.id).user("not there yet")
        assert len(store.get_conversation(conversation.id).transcript()) == 1
