"""Items that are read from their packed columns are those that the columns hold, however odd."""

from __future__ import annotations

import base64
import math
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from tests.databases import Database
from tests.factories import a_call, a_completion, a_message, an_answer, an_output
from threadkeep import Conversation, Store
from threadkeep.formats.canonical.entries import ItemEntry, PackedEntries, _entry
from threadkeep.store.reading import history
from threadkeep.store.work.item_rows import read_entries, read_packed

both = pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
PICTURE = "data:image/png;base64," + base64.b64encode(bytes(9_000)).decode()

PLAIN: dict[str, list[Any]] = {
    "messages": [a_message(), a_message("Hi", "assistant"), a_message("Über\n\t\\ \x1f 日本")],
    "calls": [a_message(), a_call("call_1"), an_output("call_1"), a_call("a-b"), an_output("a-b")],
}
ODD: dict[str, list[Any]] = {
    "a call id with a blank": [a_call("a b"), an_output("a b")],
    "a call id with a line break": [a_call("a\n0 message user"), an_output("a\n0 message user")],
    "a call id with a backslash": [a_call("\\"), an_output("\\"), a_call("\\\\ \\u0000")],
    "a call id with NUL": [a_call("\x00"), an_output("\x00"), a_message()],
    "an empty call id": [a_call(""), an_output("")],
    "a type with blanks": [{"type": "my own 1 2 3 item", "value": 1}, a_message()],
    "a type with a line break": [{"type": "a\nb"}, a_message()],
    "an empty role": [{"type": "message", "role": "", "content": []}, a_message()],
    "a role with a blank": [{"type": "message", "role": "a b", "content": []}, a_message()],
    "keys of the application": [a_message(), a_message() | {"mood": "good"}, a_message()],
    "an item without a payload": [{"type": "provider_item", "format": "gemini", "payload": {"a": 1}}, a_message()],
    "numbers that orjson changes": [a_message() | {"mood": math.inf}, a_call(arguments=str(10**40)), a_message()],
    "a lone surrogate": [a_message("\ud800"), a_message()],
    "media": [
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}, a_message(),
    ],
}  # fmt: skip


@pytest.fixture
def stored(database: Database) -> Iterator[Store]:
    with Store(database.url) as store:
        yield store


def read(conversation: Conversation) -> tuple[list[ItemEntry], list[ItemEntry], Any]:
    """The items of a conversation as a request gets them, by their columns, and as they are packed."""
    handle = conversation.handle
    ref, configs, state = handle.ref, handle.resources.configs, handle.cache.conversation

    def work(connection: Connection) -> tuple[list[ItemEntry], list[ItemEntry], Any]:
        page = history.read_history(connection, ref, configs, state, 0)
        columns = read_entries(connection, ref, [(ref.branch, -1, 10_000)])
        parameters = ref.scope.parameters(key=ref.key, branch=ref.branch, after=-1)
        return list(page.entries), columns, read_packed(connection, ref, parameters)

    return handle.transactions.read(work)


@both
@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_items_are_those_of_the_columns(stored: Store, name: str) -> None:
    conversation = stored.create_conversation(model="gpt-5.4")
    conversation.add_items((PLAIN | ODD)[name], known=False)
    found, columns, packed = read(conversation)
    assert found == columns != []
    if name in PLAIN:
        assert isinstance(packed.entries, PackedEntries)


@both
def test_no_text_is_kept_twice_once_items_are_looked_at(stored: Store) -> None:
    conversation = stored.create_conversation(model="gpt-5.4")
    conversation.add_items(PLAIN["calls"])
    packed = read(conversation)[2].entries
    elements, last, entries = packed.elements(), packed[-1], list(packed)
    assert all(text is entry.payload for text, entry in zip(packed.texts, entries, strict=True))
    assert (packed.elements(), packed[-1]) == (elements, last)
    assert packed.has_text(re.compile(b"call_id"))
    assert not packed.has_text(re.compile(b"nothing"))


@both
def test_items_of_answers_are_those_of_the_columns(stored: Store) -> None:
    """With turns, what their requests showed, ids and origins."""
    conversation = stored.create_conversation(model="gpt-5.4", input="Hi")
    conversation.add_response(an_answer("a", "b", calls=("c1", "c2")), "open_responses")
    conversation.add_items([an_output("c1"), an_output("c2")])
    conversation.add_response(a_completion(), "chat_completion")
    found, columns, _ = read(stored.get_conversation(conversation.id))
    assert found == columns
    assert {entry.origin for entry in found} == {None, "open_responses", "chat_completion"}
    assert any(entry.seen is not None for entry in found)


@both
def test_a_branch_and_what_is_new_are_read_alike(stored: Store) -> None:
    conversation = stored.create_conversation(model="gpt-5.4", input=[a_message(str(number)) for number in range(5)])
    fork = conversation.fork(at=2)
    fork.add_items(PLAIN["calls"])
    bodies = [fork.request_body("open_responses")]
    elsewhere = stored.get_conversation(fork.id, branch=fork.branch)
    bodies.append(elsewhere.request_body("open_responses"))
    assert bodies[0] == bodies[1]
    fork.user("more")
    assert elsewhere.request_body("open_responses") == fork.request_body("open_responses")


@both
def test_packed_entries_are_a_sequence(stored: Store) -> None:
    conversation = stored.create_conversation(model="gpt-5.4", input=PLAIN["calls"])
    _, columns, packed = read(conversation)
    assert len(packed.entries) == len(columns)
    assert packed.entries[-1] == columns[-1]
    assert packed.entries[1] == columns[1]
    assert packed.entries[1:3] == columns[1:3]
    assert list(packed.entries) == columns
    assert packed.entries[-2] == columns[-2]
    with pytest.raises(IndexError):
        packed.entries[len(columns)]


@both
@pytest.mark.parametrize("change", ["role = 'system'", "call_id = 'other'", "seen = 3", "rest = '{}'"])
def test_a_row_that_is_changed_is_packed_anew(stored: Store, change: str) -> None:
    conversation = stored.create_conversation(model="gpt-5.4", input=PLAIN["calls"])
    engine = conversation.handle.transactions.engine  # type: ignore[union-attr]
    with engine.connect() as connection:
        key = {"key": conversation.handle.ref.key}
        connection.execute(
            text(f"UPDATE threadkeep_items SET {change} WHERE conversation_id = :key AND position = 1"), key
        )
        connection.commit()
    found, columns, _ = read(stored.get_conversation(conversation.id))
    assert found == columns


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_texts_that_are_too_long_together_are_read_one_by_one(stored: Store) -> None:
    """SQLite limits the length of a value; of a whole conversation it would be reached earlier."""
    conversation = stored.create_conversation(model="gpt-5.4", input=[a_message("x" * 400) for _ in range(20)])
    body = conversation.request_body("open_responses")

    def work(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        before = driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4_000)
        try:
            parameters = conversation.handle.ref.scope.parameters(key=conversation.handle.ref.key, branch=0, after=-1)
            assert read_packed(connection, conversation.handle.ref, parameters) is None
        finally:
            driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)

    conversation.handle.transactions.read(work)
    assert stored.get_conversation(conversation.id).request_body("open_responses") == body


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_order_is_that_of_positions(database: Database) -> None:
    """Also where SQLite is told to return rows the other way round wherever it may."""
    with Store(database.url) as store:
        engine = store.handle.transactions.engine  # type: ignore[union-attr]
        event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA reverse_unordered_selects = ON"))
        conversation = store.create_conversation(model="gpt-5.4", input=[a_message(str(number)) for number in range(9)])
        found, columns, _ = read(store.get_conversation(conversation.id))
        assert [entry.position for entry in found] == list(range(9))
        assert found == columns


@both
def test_a_vendor_whose_ids_have_a_form_makes_no_entries_necessary(
    stored: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(line: str, *texts: bytes | None) -> ItemEntry:
        made.append(line)
        return _entry(line, *texts)

    monkeypatch.setattr("threadkeep.formats.canonical.entries._entry", counted)
    conversation = stored.create_conversation(model="gpt-5.4", input=PLAIN["calls"])
    conversation.add_items([a_message("Hi", "assistant") | {"id": "msg_1"}, a_call("c") | {"id": "fc_1"}])
    conversation.add_items([an_output("c"), a_message()])
    counts, bodies = [], []
    for dialect in (None, "openai"):
        made.clear()
        with Store(database.url) as elsewhere:
            bodies.append(elsewhere.get_conversation(conversation.id).request_body("open_responses", dialect=dialect))
        counts.append(len(made))
    assert bodies[0] == bodies[1]
    assert counts[0] == counts[1] < 2
