"""A store remembers conversations that were read lately; nobody can tell but by the time it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from sqlalchemy import Engine

from tests.factories import an_answer
from tests.store.watching import statements_of
from threadkeep import NotFound, Store
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.store.work.caches import ENTRY_BYTES, CachedHistory, HistoryCache

FORMAT: Final = "open_responses"


@pytest.fixture
def read(conversation: Any, store: Any) -> Any:
    """A conversation that was read by a handle that is gone."""
    conversation.user("One")
    conversation.add_response(an_answer("Two"), FORMAT)
    store.get_conversation(conversation.id).request_payload(FORMAT)
    return conversation


def same_everywhere(read: Any, store: Any, elsewhere: Any) -> Any:
    """What a new handle of each store renders, which must be the same."""
    found = store.get_conversation(read.id).request_body(FORMAT)
    assert found == elsewhere.get_conversation(read.id).request_body(FORMAT)
    return store.get_conversation(read.id).request_payload(FORMAT)


def test_a_new_handle_begins_with_what_was_read(read: Any, store: Any) -> None:
    handle = store.get_conversation(read.id)
    assert len(handle.handle.cache.history()[1]) == 2
    assert handle.handle.cache.next_position == 2


def test_what_others_append_is_seen(read: Any, store: Any, elsewhere: Any) -> None:
    elsewhere.get_conversation(read.id).user("Three")
    assert len(same_everywhere(read, store, elsewhere)["input"]) == 3
    store.get_conversation(read.id).user("Four")
    assert len(same_everywhere(read, store, elsewhere)["input"]) == 4


def test_what_others_change_is_seen(read: Any, store: Any, elsewhere: Any) -> None:
    elsewhere.get_conversation(read.id).update(instructions="Be brief.", model="gpt-5.4-mini")
    payload = same_everywhere(read, store, elsewhere)
    assert (payload["instructions"], payload["model"]) == ("Be brief.", "gpt-5.4-mini")


def test_a_deleted_conversation_is_gone(read: Any, store: Any, elsewhere: Any) -> None:
    handle = store.get_conversation(read.id)
    elsewhere.delete_conversation(read.id)
    with pytest.raises(NotFound):
        handle.request_body(FORMAT)
    with pytest.raises(NotFound):
        store.get_conversation(read.id)


def test_branches_are_remembered_apart(read: Any, store: Any, elsewhere: Any) -> None:
    fork = store.get_conversation(read.id).fork(at=0)
    fork.user("Instead")
    assert len(fork.request_payload(FORMAT)["input"]) == 2
    assert len(store.get_conversation(read.id, branch=fork.branch).request_payload(FORMAT)["input"]) == 2
    assert len(same_everywhere(read, store, elsewhere)["input"]) == 2
    assert store.get_conversation(read.id).request_payload(FORMAT)["input"][1]["role"] == "assistant"


def test_users_do_not_find_what_the_store_remembers_of_others(read: Any, store: Any) -> None:
    with pytest.raises(NotFound):
        store.for_user("somebody else").get_conversation(read.id)


def test_nothing_of_a_transaction_that_was_taken_back_is_remembered(database: Any, watching: Engine) -> None:
    with Store(database.url) as store:
        conversation = store.create_conversation(model="m", input="One")
        conversation.request_payload(FORMAT)
        with watching.connect() as connection:
            inside = store.within(connection).get_conversation(conversation.id)
            inside.user("Two")
            assert len(inside.request_payload(FORMAT)["input"]) == 2
            connection.rollback()
        assert len(store.get_conversation(conversation.id).request_payload(FORMAT)["input"]) == 1


def test_a_store_without_memory_reads_everything(database: Any) -> None:
    with Store(database.url, memory_bytes=0) as store:
        conversation = store.create_conversation(model="m", input="One")
        conversation.request_payload(FORMAT)
        assert store.get_conversation(conversation.id).handle.cache.history()[1] == []
        assert len(store.get_conversation(conversation.id).request_payload(FORMAT)["input"]) == 1


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    histories = HistoryCache(limit=3 * (ENTRY_BYTES + 10))
    entry = ItemEntry(0, "message", payload=b"x" * 10)
    for key in (b"1", b"2", b"3"):
        assert histories.keep((1, key, 0, False), CachedHistory(0, [entry], 1, {}), 0, [entry]) == ENTRY_BYTES + 10
    assert histories.find((1, b"1", 0, False), 0) is not None
    histories.keep((1, b"4", 0, False), CachedHistory(0, [entry], 1, {}), 0, [entry])
    assert [histories.find((1, key, 0, False), 0) is not None for key in (b"1", b"2", b"3", b"4")] == [
        True,
        False,
        True,
        True,
    ]
    assert histories.find((1, b"4", 0, False), 1) is None, "another revision"


def test_what_is_larger_than_the_memory_is_not_remembered() -> None:
    histories = HistoryCache(limit=100)
    entry = ItemEntry(0, "message", payload=b"x" * 100)
    histories.keep((1, b"1", 0, False), CachedHistory(0, [entry], 1, {}), 0, [entry])
    assert histories.find((1, b"1", 0, False), 0) is None


def test_options_that_were_read_once_do_not_stay_in_memory(database: Any) -> None:
    """… beyond a number of bytes; what is forgotten is read again."""
    with Store(database.url, options_bytes=1_000_000) as store:
        configs = store.handle.resources.configs
        ids = [
            store.create_conversation(model="m", instructions=f"{n:x>100000}", tools=[a_tool(n)]).id for n in range(20)
        ]
        for _ in range(2):
            for number, id_ in enumerate(ids):
                conversation = store.get_conversation(id_)
                assert conversation.instructions == f"{number:x>100000}"
                assert conversation.tools[0]["description"] == f"{number:y>50000}"
                kept = [size for _, size in configs._values.values()]
                assert sum(kept) == configs._size <= 1_000_000
                assert len(kept) <= 3 * 4
        with statements_of(store) as statements:
            assert store.get_conversation(ids[-1]).instructions == f"{19:x>100000}"
        assert not [statement for statement in statements if "configs" in statement or "tool_sets" in statement]


def test_options_count_what_they_take_when_they_are_parsed(database: Any) -> None:
    """Many short values take more than their text."""
    with Store(database.url, options_bytes=100_000) as store:
        numbers = {f"k{number}": number for number in range(300)}
        for number in range(20):
            extra = {"messages": {"n": number, "numbers": numbers}}
            opened = store.get_conversation(store.create_conversation(model="m", extra=extra).id)
            assert opened.settings["extra"] == extra
        assert 0 < store.handle.resources.configs._size <= 100_000
        assert len(store.handle.resources.configs._values) < 4


def test_a_store_without_memory_for_options_reads_them_again(database: Any) -> None:
    with Store(database.url, options_bytes=0) as store:
        conversation = store.create_conversation(model="m", tools=[a_tool(1)])
        for _ in range(2):
            with statements_of(store) as statements:
                assert store.get_conversation(conversation.id).tools == [a_tool(1)]
            assert len(statements) == 4


def a_tool(number: int) -> dict[str, Any]:
    return {"type": "function", "name": "look_up", "description": f"{number:y>50000}"}


def test_options_that_are_larger_than_the_memory_are_not_remembered(database: Any) -> None:
    with Store(database.url) as store:
        configs = store.handle.resources.configs
        configs.limit = 1_000
        id_ = store.create_conversation(model="m", instructions="x" * 2_000).id
        for _ in range(2):
            assert store.get_conversation(id_).instructions == "x" * 2_000
            assert configs._size <= 1_000


RENDERED: Final = ("open_responses", "chat_completion", "messages")


def said(conversation: Any, count: int, format_name: str) -> None:
    """Turns, after each of which the next request is rendered."""
    for number in range(count):
        conversation.user(f"What is {number}?")
        conversation.request_body(format_name)
        conversation.assistant(f"It is {number}.")


@pytest.fixture(params=RENDERED)
def rendered(request: Any, conversation: Any) -> tuple[Any, str]:
    """A conversation of which the beginning of requests is remembered, and the format of these."""
    said(conversation, 22, request.param)
    return conversation, request.param


CHANGES: Final[dict[str, Callable[[Any], object]]] = {
    "nothing": lambda conversation: conversation.user("And 22?"),
    "settings": lambda conversation: conversation.update(instructions="Be brief.", model="gpt-5.4-mini"),
    "tools": lambda conversation: conversation.register_tool("lookup", description="Looks up."),
    "removal": lambda conversation: conversation.remove_item(3),
    "redaction": lambda conversation: conversation.redact_item(2),
    "compaction": lambda conversation: conversation.compact(upto=21, summary="They counted."),
    "system text": lambda conversation: conversation.system("Count on."),
    "an output without a call": lambda conversation: conversation.add_item(
        {"type": "function_call_output", "call_id": "c", "output": "42"}, known=False
    ),
}


@pytest.mark.one_face
@pytest.mark.parametrize("change", CHANGES)
def test_a_beginning_that_was_rendered_goes_with_what_it_shows(
    rendered: tuple[Any, str], store: Any, elsewhere: Any, change: str
) -> None:
    (conversation, format_name), other = rendered, elsewhere.get_conversation(rendered[0].id)
    CHANGES[change](conversation)
    for _ in range(3):
        conversation.user("And now?")
        expected = elsewhere.get_conversation(conversation.id).request_body(format_name)
        assert store.get_conversation(conversation.id).request_body(format_name) == expected
        assert other.request_body(format_name) == expected


@pytest.mark.one_face
@pytest.mark.parametrize("is_kept", [True, False])
def test_what_a_unit_of_work_rendered_is_remembered_if_it_is_kept(
    rendered: tuple[Any, str], store: Any, elsewhere: Any, is_kept: bool
) -> None:
    conversation, format_name = rendered
    with suppress(LookupError), store.begin() as work:
        said(work.open(conversation.id), 20, format_name)
        if not is_kept:
            raise LookupError
    for number in range(3):
        store.get_conversation(conversation.id).user(f"What is {number}, again?")
        found = store.get_conversation(conversation.id).request_body(format_name)
        assert found == elsewhere.get_conversation(conversation.id).request_body(format_name)
        assert (b"What is 21?" in found, found.count(b"What is 5?")) == (True, 1 + is_kept)
