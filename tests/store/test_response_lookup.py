"""Responses by their ids, with the items that their requests contained, and their own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.factories import a_completion, a_message, a_stream, an_answer
from tests.store.test_removal_races import once_before, watched
from tests.store.watching import Tables, engine_of
from threadkeep import InvalidOption, NotFound
from threadkeep.domain.ids import response_id
from threadkeep.store.reading.reader import read

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"


def texts(items: Any) -> list[str]:
    return [stored.item.text for stored in items]


@pytest.fixture
def talk(store: Any) -> Any:
    """Two turns, and a third one on a fork after the first."""
    conversation = store.create_conversation(model="m", input=[a_message("1")], user_id="ann")
    conversation.add_response(an_answer("one", id="resp_one"), FORMAT)
    conversation.user("2")
    conversation.add_response(a_completion("two", id="chatcmpl-two"), "chat_completion")
    fork = conversation.fork(at=1)
    fork.user("3")
    fork.add_response(an_answer("three", id="resp_three"), FORMAT)
    return conversation


def test_by_number_by_the_provider_s_id_and_by_its_own(store: Any, talk: Any) -> None:
    for number, name in enumerate(["resp_one", "chatcmpl-two", "resp_three"]):
        found = talk.get_response(number)
        assert (found.number, found.provider_response_id, found.conversation_id) == (number, name, talk.id)
        assert found.id == f"resp_{talk.id.removeprefix('conv_')}{number}"
        assert talk.get_response(name) == talk.get_response(found.id) == found
        assert store.get_response(name) == store.get_response(found.id) == found
    assert list(talk.responses()) == [talk.get_response(number) for number in range(3)]


def test_of_several_with_one_id_the_newest_is_found(store: Any, talk: Any) -> None:
    talk.add_response(an_answer("again", id="resp_one"), FORMAT)
    assert talk.get_response("resp_one").number == 3
    other = store.create_conversation(input=[a_message()])
    other.add_response(an_answer("elsewhere", id="resp_one"), FORMAT)
    assert store.get_response("resp_one").conversation_id == other.id
    assert talk.get_response("resp_one").number == 3
    other.add_response(an_answer("mine", id=talk.get_response(0).id), FORMAT)  # an id that another response has
    assert store.get_response(talk.get_response(0).id).conversation_id == talk.id


def test_streams_are_found_too(store: Any, elsewhere: Any, conversation: Any) -> None:
    with conversation.stream_response(FORMAT) as recorder:
        for event in a_stream("Hi", id="resp_streamed"):
            recorder.feed(event)
    assert store.get_response("resp_streamed").number == 0
    recorder = conversation.stream_response(FORMAT, lease=60)
    recorder.__enter__()
    for event in a_stream("Hi", id="resp_lost")[:4]:
        recorder.feed(event)
    assert store.get_response(conversation.get_response(1).id).status == "in_progress"
    elsewhere.get_conversation(conversation.id).user("goes on", on_conflict="append")
    assert store.get_response("resp_lost").status == "cancelled"


def test_without_an_id_there_is_nothing_to_find(store: Any, conversation: Any) -> None:
    for name in ("", None):
        conversation.add_response({**an_answer("Hi"), "id": name}, FORMAT)
    with pytest.raises(NotFound):
        conversation.get_response("")
    assert store.get_response(conversation.get_response(1).id).provider_response_id is None


@pytest.mark.parametrize("name", ["resp_two", "", "resp_" + "0" * 33, "\x00", "\ud800", "x" * 5000, None, 7, 2.5, b"x"])
def test_an_unknown_id_is_not_found(store: Any, talk: Any, name: Any) -> None:
    with pytest.raises(NotFound):
        store.get_response(name)
    if isinstance(name, str | int):
        with pytest.raises(NotFound):
            talk.get_response(name)


def test_others_do_not_find_it(stores: Any, face: str, store: Any, talk: Any) -> None:
    own_id = talk.get_response(0).id
    stranger = stores.get(face).create_tenant(f"stranger of {talk.id}")
    theirs = stranger.create_conversation()
    for name in ("resp_one", own_id):
        assert store.for_user("ann").get_response(name).number == 0
        for other in (store.for_user("ben"), stranger):
            with pytest.raises(NotFound):
                other.get_response(name)
        with pytest.raises(NotFound):
            theirs.get_response(name)
    store.delete_conversation(talk.id)
    for look in (store.get_response, talk.get_response, talk.input_items, talk.output_items):
        with pytest.raises(NotFound):
            look(own_id)


def test_its_input_is_what_the_request_contained(talk: Any) -> None:
    assert texts(talk.input_items(0)) == ["1"]
    assert texts(talk.input_items("chatcmpl-two")) == ["1", "one", "2"]
    assert texts(talk.input_items("resp_three")) == ["1", "one", "3"]  # of its own branch
    assert [texts(talk.output_items(number)) for number in range(3)] == [["one"], ["two"], ["three"]]


def test_its_input_comes_in_pages(talk: Any) -> None:
    for order, expected in (("asc", ["1", "one", "2"]), ("desc", ["2", "one", "1"])):
        seen, after = [], None
        while True:
            page = talk.input_items(1, after=after, limit=1, order=order)
            seen += texts(page)
            if (after := page.next) is None:
                break
        assert seen == expected
    second = talk.get_item(1)
    assert texts(talk.input_items(1, before=second.id)) == ["1"]
    assert texts(talk.input_items(1, after=second.id)) == ["2"]
    assert texts(talk.input_items(0, before=100)) == ["1"]
    with pytest.raises(InvalidOption):
        talk.input_items(1, order="up")


def test_a_request_that_showed_nothing(conversation: Any) -> None:
    conversation.add_response(an_answer(), FORMAT)
    assert list(conversation.input_items(0)) == conversation.output_items(0) == []


def test_what_was_removed_is_not_shown(talk: Any) -> None:
    talk.remove_item(1)
    assert texts(talk.input_items(1)) == ["1", "2"]
    assert talk.output_items(0) == []


def test_the_hash_is_that_of_the_id(talk: Any, tables: Tables) -> None:
    rows = tables.rows("responses", "number")
    assert len({bytes(row["response_hash"]) for row in rows}) == 3


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_one_that_ends_while_it_is_read_has_its_output(store: Any, elsewhere: Any, conversation: Any) -> None:
    """Each statement sees what was stored before it: the conversation is read before the response."""
    conversation.user("Hi")
    with ExitStack() as ending:
        recorder = ending.enter_context(conversation.stream_response(FORMAT))
        for event in a_stream("Hello"):
            recorder.feed(event)
        with watched(engine_of(elsewhere), once_before("SELECT threadkeep_responses.", ending.close)):
            _, details = read(elsewhere, lambda reader: reader.response(response_id(conversation.id, 0)))
    assert (details.stored.status, texts(details.items)) == ("completed", ["Hello"])
