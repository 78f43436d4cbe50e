"""A whole turn in one transaction: the input and the response to it, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from tests.databases import Database
from tests.factories import a_call, a_completion, a_gemini_answer, a_message, an_answer, an_error, an_output, texts_of
from tests.store.test_statements import extra
from tests.store.test_streams import FORMAT, left
from tests.store.watching import Tables, statements_of
from threadkeep import (
    CannotParse,
    HeadConflict,
    IdempotencyConflict,
    InputText,
    InvalidItem,
    Message,
    NotFound,
    ProviderError,
    ResponseInProgress,
)


def says(handle: Any) -> str:
    return " ".join(texts_of(handle.transcript()))


def test_a_turn_is_stored_like_its_two_halves(store: Any, tables: Tables) -> None:
    """The same rows and requests as an append and a response, with one reservation."""
    plain, whole = (store.create_conversation(model="m", input="Hi") for _ in range(2))
    plain.user("Name a colour")
    plain.add_response(an_answer("Red", calls=("c",)), FORMAT, provider="p", latency_ms=5)
    turn = whole.add_turn("Name a colour", an_answer("Red", calls=("c",)), FORMAT, provider="p", latency_ms=5)
    [stored] = turn.items
    assert (stored.position, stored.item.text, stored.turn, turn.replayed) == (1, "Name a colour", None, False)
    assert (turn.response.text, turn.response.stored) == ("Red", (0, 0))
    assert stored == whole.get_item(1)
    assert whole.render(FORMAT).body == plain.render(FORMAT).body
    assert store.get_conversation(whole.id).render(FORMAT).body == plain.render(FORMAT).body
    differing = {"id", "conversation_id", "created_at", "occurred_at"}
    for name, order in (("items", "position"), ("responses", "number"), ("usage_records", "id")):
        rows = tables.rows(name, "conversation_id", order)
        rows = [{key: value for key, value in row.items() if key not in differing} for row in rows]
        assert rows[: len(rows) // 2] == rows[len(rows) // 2 :], name
    assert [(row.input_to, row.from_position, row.to_position) for row in whole.responses()] == [(1, 2, 3)]


def test_it_takes_as_many_statements_as_a_response(store: Any, database: Database) -> None:
    conversation = store.create_conversation(model="m")
    conversation.add_turn("Hi", an_answer("Hello"), FORMAT)
    with statements_of(conversation) as response:
        conversation.add_response(an_answer("Hello"), FORMAT)
    with statements_of(conversation) as turn:
        conversation.add_turn("Hi", an_answer("Hello"), FORMAT)
    assert len([one for one in turn if "UPDATE threadkeep_conversations" in one]) == 1
    assert len(turn) == len(response) == (1 if database.kind == "postgresql" else 5 + extra(database))


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        ("Hi", ["user"]),
        (InputText(text="Hi"), ["user"]),
        (["Hi", {"type": "input_text", "text": "you"}], ["user"]),
        (Message("developer", "Hi"), ["developer"]),
        (a_message("Hi", "system"), ["system"]),
        ([a_message("Hi", "system"), a_call("c"), an_output("c")], ["system", None, None]),
        ({"role": "user", "content": "Hi"}, ["user"]),
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], ["system", "user"]),
    ],
)
def test_the_input_may_be_anything_that_is_asked(conversation: Any, given: Any, roles: list[Any]) -> None:
    turn = conversation.add_turn(given, a_completion("Hello"), "chat_completion")
    assert [getattr(stored.item, "role", None) for stored in turn.items] == roles
    assert [stored.position for stored in turn.items] == list(range(len(roles)))
    assert conversation.transcript()[-1].item.text == "Hello"
    assert conversation.next_step() == "user"


def test_nothing_may_be_asked(conversation: Any) -> None:
    turn = conversation.add_turn([], an_answer("Hello"), FORMAT)
    assert (turn.items, says(conversation)) == ([], "Hello")


def test_outputs_of_a_provider_that_names_no_calls(conversation: Any) -> None:
    """They are those of the calls that are open."""
    body = a_gemini_answer()
    body["candidates"][0]["content"]["parts"] = [{"functionCall": {"name": "f", "args": {}}}]
    conversation.add_turn({"role": "user", "parts": [{"text": "Go"}]}, body, "gemini")
    [call] = conversation.pending_calls()
    part = {"functionResponse": {"name": "f", "response": {"y": 2}}}
    turn = conversation.add_turn([{"role": "user", "parts": [part]}], a_gemini_answer("Done"), "gemini")
    assert turn.items[0].item.call_id == call.call_id
    assert conversation.pending_calls() == []
    turns = conversation.request_payload("gemini", upto=turn.items[-1].position)["contents"]
    assert [turn["role"] for turn in turns] == ["user", "model", "user"]


def test_the_same_turn_under_a_key_is_stored_once(conversation: Any, tables: Tables) -> None:
    first = conversation.add_turn("Hi", an_answer("Hello"), FORMAT, idempotency_key="key")
    written = tables.written()
    again = conversation.add_turn("Hi", an_answer("Hello"), FORMAT, idempotency_key="key")
    assert again.replayed
    assert again.response.stored == first.response.stored
    assert [(one.position, one.item, one.replayed) for one in again.items] == [(0, first.items[0].item, True)]
    for given, body in (("Ho", "Hello"), ("Hi", "Hallo")):
        with pytest.raises(IdempotencyConflict):
            conversation.add_turn(given, an_answer(body), FORMAT, idempotency_key="key")
    assert written() == {}


def test_a_turn_that_failed_leaves_its_attempt(conversation: Any, tables: Tables) -> None:
    """Whoever tries again passes the input again."""
    written = tables.written()
    with pytest.raises(ProviderError):
        conversation.add_turn("Hi", an_error(), FORMAT)
    assert written() == {"usage_records": 1}
    conversation.add_turn("Hi", an_answer("Hello"), FORMAT)
    assert says(conversation) == "Hi Hello"


def test_it_is_one_change(conversation: Any, tables: Tables) -> None:
    before = len(tables.rows("changes"))
    conversation.add_turn("Hi", an_answer("Hello", calls=("c",)), FORMAT)
    *earlier, last = tables.rows("changes", "id")
    assert len(earlier) == before
    assert (last["kind"], last["from_position"], last["to_position"]) == ("appended", 0, 2)


def test_states_are_written_with_it(conversation: Any) -> None:
    conversation.add_turn("Hi", an_answer("Hello"), FORMAT, states={"run": {"step": 1}})
    assert conversation.state("run").value == {"step": 1}


def test_what_cannot_be_stored_leaves_nothing(conversation: Any, tables: Tables) -> None:
    written = tables.written()
    for given, body, error in (
        ("Hi", "not json", CannotParse),
        (None, an_answer("Hello"), InvalidItem),
        ({"type": ""}, an_answer("Hello"), InvalidItem),
        (["Hi", 5], an_answer("Hello"), InvalidItem),
    ):
        with pytest.raises(error):
            conversation.add_turn(given, body, FORMAT)
    assert written() == {}


def test_a_turn_lost_a_race(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    """Its tokens were used; with "branch", the whole turn goes elsewhere."""
    conversation.user("0")
    elsewhere.get_conversation(conversation.id).user("1")
    with pytest.raises(HeadConflict):
        conversation.add_turn("2", an_answer("two"), FORMAT, expected_head=0, idempotency_key="key")
    assert tables.counts()["usage_records"] == 1
    turn = conversation.add_turn(
        "2", an_answer("two"), FORMAT, expected_head=0, idempotency_key="key", on_conflict="branch"
    )
    assert [stored.branch for stored in turn.items] == [turn.response.stored.branch] == [1]
    assert says(conversation.on_branch(1)) == "0 2 two"
    assert says(conversation) == "0 1"
    assert tables.counts()["usage_records"] == 1
    [response] = conversation.responses()
    assert response.input_to == turn.items[0].position


def test_a_response_in_progress_is_in_the_way(conversation: Any) -> None:
    left(conversation)
    with pytest.raises(ResponseInProgress):
        conversation.add_turn("Hi", an_answer("Hello"), FORMAT)
    conversation.add_turn("Hi", an_answer("Hello"), FORMAT, on_conflict="append")
    assert says(conversation) == "Hi Hello"


def test_nobody_adds_turns_to_the_conversations_of_others(store: Any) -> None:
    conversation = store.create_conversation(model="m", user_id="ann")
    seen_by_ann = store.for_user("ann").get_conversation(conversation.id)
    conversation.update(user_id="bob")
    with pytest.raises(NotFound):
        seen_by_ann.add_turn("Hi", an_answer("Hello"), FORMAT)
