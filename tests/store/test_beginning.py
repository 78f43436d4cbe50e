"""A streamed response that begins in one transaction with what comes before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from sqlalchemy.exc import OperationalError

from tests.databases import Database
from tests.factories import an_answer, texts_of
from tests.store.test_lost_connections import commits
from tests.store.watching import statements_of
from threadkeep import Conversation, HeadConflict, NotFound, ResponseInProgress, Store
from threadkeep.formats import FormatName
from threadkeep.store.store import from_handle
from threadkeep.store.streaming.writer import StreamWriter, locked, started_at_once, undone


@pytest.fixture
def plain(database: Database) -> Any:
    with Store(database.url) as store:
        yield store


def begin(conversation: Conversation, say: Callable[[Conversation], object]) -> StreamWriter:
    """Say something and begin a response, at once."""

    def make(unit: Any) -> StreamWriter:
        inner = Conversation(locked(conversation.handle, unit))
        say(inner)
        return inner.stream_response("open_responses").writer

    return started_at_once(conversation.handle.transactions, make)


def create(store: Store, say: Callable[[Conversation], object] = str) -> StreamWriter:
    """Create a conversation, say something, and begin a response, at once."""

    def make(unit: Any) -> StreamWriter:
        conversation = from_handle(Store, replace(store.handle, transactions=unit)).create_conversation(input="Hi")
        say(conversation)
        return conversation.stream_response("open_responses").writer

    return started_at_once(store.handle.transactions, make)


def said(store: Store, conversation: Conversation) -> list[str]:
    return texts_of(store.get_conversation(conversation.id).transcript())


@pytest.mark.parametrize("happen", [True, False])
def test_a_beginning_whose_commit_was_lost_is_gone_on_with(plain: Store, happen: bool) -> None:
    conversation = plain.create_conversation(model="m")
    with commits(plain, happen=happen) as lost:
        writer = begin(conversation, lambda inner: inner.user("Hi"))
    assert lost
    writer.finish()
    assert said(plain, conversation) == ["Hi"]
    assert [response.number for response in plain.get_conversation(conversation.id).responses()] == [0]


def test_a_conversation_and_its_first_response_are_written_together(plain: Store, database: Database) -> None:
    """On PostgreSQL, in one statement that commits itself; elsewhere, too, nothing is written twice."""
    with statements_of(plain) as statements:
        writer = create(plain)
    assert [text for text in statements if text.startswith("UPDATE")] == []
    assert sum("INSERT" in text for text in statements) == (1 if database.kind == "postgresql" else 6)
    assert database.kind != "postgresql" or len(statements) == 1
    created = plain.get_conversation(writer.handle.ref.public_id)
    with pytest.raises(ResponseInProgress):
        created.user("Ho", expected_head=0)
    writer.finish()
    assert [response.status for response in created.responses()] == ["incomplete"]
    assert said(plain, created) == ["Hi"]


@pytest.mark.parametrize("say", [lambda new: new.user("Ho"), lambda new: new.update(title="T")], ids=["item", "title"])
def test_what_is_said_in_a_new_conversation_is_behind_it(plain: Store, say: Callable[[Conversation], object]) -> None:
    writer = create(plain, say)
    writer.finish()
    created = plain.get_conversation(writer.handle.ref.public_id)
    assert (said(plain, created), created.title) in [(["Hi", "Ho"], None), (["Hi"], "T")]
    assert plain.check().findings == []


@pytest.mark.parametrize("happen", [True, False])
def test_a_new_conversation_whose_commit_was_lost_is_there_once(database: Database, happen: bool) -> None:
    with Store(database.url, tenants=True) as root, root.create_tenant(f"lost {happen}") as mine:
        with commits(mine, happen=happen) as lost:
            writer = create(mine)
        assert lost
        writer.finish()
        (found,) = mine.list_conversations().items
        assert said(mine, mine.get_conversation(found.id)) == ["Hi"]
        assert found.id == writer.handle.ref.public_id
        assert mine.check().findings == []


def test_nothing_begins_in_a_tenant_that_was_deleted(database: Database) -> None:
    with Store(database.url, tenants=True) as root:
        mine = root.create_tenant("short")
        root.delete_tenant("short")
        with pytest.raises(NotFound, match="tenant"):
            create(mine)


def test_nothing_stays_where_a_response_does_not_begin(plain: Store) -> None:
    conversation = plain.create_conversation(model="m", input="Hi")
    with conversation.stream_response("open_responses"):
        with pytest.raises(ResponseInProgress):
            begin(plain.get_conversation(conversation.id), lambda inner: inner.update(title="No"))
        assert plain.get_conversation(conversation.id).title is None
    with pytest.raises(HeadConflict):
        begin(conversation, lambda inner: (inner.user("Ho"), inner.user("No", expected_head=0)))
    assert said(plain, conversation) == ["Hi"]


def test_what_was_said_is_taken_back_with_the_end(plain: Store) -> None:
    """Nobody goes on with it in between."""
    conversation = plain.create_conversation(model="m", input="Hi")
    writer = begin(conversation, lambda inner: inner.user("Ho"))
    writer.undo = undone(writer, lambda handle: Conversation(handle).remove_item(1, purge=True))
    writer.finish(RuntimeError())
    assert said(plain, conversation) == ["Hi"]
    assert [response.status for response in plain.get_conversation(conversation.id).responses()] == ["incomplete"]


def test_an_end_is_written_again_after_a_deadlock_while_something_was_taken_back(plain: Store) -> None:
    """The database has rolled all of it back then: a COMMIT would end nothing, without an error."""
    conversation, runs = plain.create_conversation(model="m", input="Hi"), list[int]()
    writer = begin(conversation, lambda inner: inner.user("Ho"))

    def take_back(handle: Any) -> None:
        Conversation(handle).remove_item(1, purge=True)
        runs.append(1)
        if len(runs) == 1:
            handle.transactions.write(deadlocked)

    writer.undo = undone(writer, take_back)
    writer.finish(RuntimeError())
    assert len(runs) == 2
    assert said(plain, conversation) == ["Hi"]
    assert [response.status for response in plain.get_conversation(conversation.id).responses()] == ["incomplete"]


def deadlocked(_connection: Any) -> None:
    raise OperationalError("UPDATE …", {}, Exception(1213, "Deadlock found when trying to get lock"))


@pytest.mark.parametrize("format_", get_args(FormatName))
@pytest.mark.parametrize("view", [{}, {"media_url": "https://media.example/{hash}"}], ids=["plain", "media"])
def test_a_request_that_was_not_begun_leaves_nothing_in_later_ones(
    plain: Store, database: Database, format_: FormatName, view: dict[str, Any]
) -> None:
    """What formats remember of a transaction that was taken back is of items that never were."""
    conversation = plain.create_conversation(model="m", input="One")
    conversation.add_response(an_answer("Two"), "open_responses")
    conversation.render(format_, **view)

    def say(inner: Conversation) -> None:
        inner.user("never")
        inner.render(format_, **view)
        inner.user("committed", expected_head=0)

    with pytest.raises(HeadConflict):
        begin(conversation, say)
    later = plain.get_conversation(conversation.id)
    later.user("Three")
    body = later.render(format_, **view).body
    with Store(database.url, memory_bytes=0) as other:
        assert other.get_conversation(conversation.id).render(format_, **view).body == body
    assert b"never" not in body


def test_what_is_read_while_it_begins_need_not_be_read_again(plain: Store) -> None:
    """A request sees what the store has read before, and leaves what it has read to the next one."""
    conversation = plain.create_conversation(model="m", input="Hi")
    conversation.render("open_responses")
    known = plain.handle.resources.histories.look_up
    key = (conversation.handle.ref.scope.tenant, conversation.handle.ref.public_bytes, 0, False)
    before = known(key)
    writer = begin(conversation, lambda inner: (inner.user("Ho"), inner.render("open_responses")))
    after = known(key)
    assert before is not None
    assert after is not None
    assert (before.next_position, after.next_position) == (1, 2)
    writer.finish()
    with pytest.raises(HeadConflict):
        begin(
            conversation,
            lambda inner: (inner.user("No"), inner.render("open_responses"), inner.user("x", expected_head=0)),
        )
    last = known(key)
    assert last is not None
    assert last.next_position == 2
