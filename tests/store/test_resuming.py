"""`Store.render`: the next request of a conversation by its id, as opening it and rendering gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event

from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, an_answer, an_output, noise
from tests.store.watching import engine_of
from threadkeep import InvalidOption, NotFound, Turns, UnknownFormat

FORMATS = ("open_responses", "chat_completion", "messages", "gemini", "converse", "pydantic_ai")
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


def the_same(store: Any, id: str, format: str = "open_responses", **view: Any) -> Any:
    """The request by one call, which is that of an open conversation."""
    rendered = store.render(id, format, **view)
    branch = view.pop("branch", None)
    opened = store.get_conversation(id, branch=branch).render(format, **view)
    assert rendered == opened
    assert (rendered.body, rendered.head, rendered.stable) == (opened.body, opened.head, opened.stable)
    assert (rendered.configured, rendered.conversation_id) == (opened.configured, opened.conversation_id)
    return rendered


@pytest.fixture
def talk(store: Any) -> Any:
    """Positions 0 to 4: a question, a call with its output, an answer, and a picture."""
    conversation = store.create_conversation(
        model="m", instructions="Be brief.", max_output_tokens=100, tools=[TOOL], user_id="ada"
    )
    conversation.add_items([a_message("What is it?"), a_call(), an_output()])
    conversation.add_response(an_answer("A number"), "open_responses")
    conversation.user([a_picture(noise(20_000))])
    return conversation


@pytest.mark.parametrize("format", FORMATS)
def test_it_is_the_request_of_an_open_conversation(talk: Any, store: Any, elsewhere: Any, format: str) -> None:
    assert the_same(store, talk.id, format).head == 4
    assert the_same(elsewhere, talk.id, format).head == 4


@pytest.mark.one_face
@pytest.mark.parametrize(
    "view",
    [
        {"upto": 0},
        {"window": Turns(1)},
        {"vision": False},
        {"cache": "auto"},
        {"dynamic_context": {"day": "Monday"}},
        {"media_url": "https://files.example/{hash}"},
        {"server_state": "none"},
    ],
    ids=lambda view: next(iter(view)),
)
def test_views_are_those_of_an_open_conversation(talk: Any, elsewhere: Any, view: dict[str, Any]) -> None:
    for name in ("messages", "gemini"):
        the_same(elsewhere, talk.id, name, **view)


@pytest.mark.one_face
def test_whatever_happened_to_the_conversation(talk: Any, store: Any, elsewhere: Any) -> None:
    changes: tuple[Callable[[], Any], ...] = (
        lambda: talk.compact(summary="They spoke."),
        lambda: talk.user("Go on"),
        lambda: talk.update(instructions="Be kind.", previous_response_id="resp_0"),
        lambda: talk.redact_item(0),
        talk.pop,
        lambda: talk.edit(0, "What was it?"),
        lambda: talk.fork().user("elsewhere"),
    )
    for change in changes:
        change()
        for one in (store, elsewhere):
            the_same(one, talk.id)
    for branch in (0, *(fork.number for fork in talk.branches().items)):
        the_same(elsewhere, talk.id, branch=branch)
    talk.set_active_branch(0)
    the_same(elsewhere, talk.id)


def test_it_shows_what_others_have_appended(talk: Any, store: Any, elsewhere: Any) -> None:
    before = store.render(talk.id, "open_responses")
    item = elsewhere.get_conversation(talk.id).user("And this?")
    after = store.render(talk.id, "open_responses")
    assert (before.head, after.head) == (4, item.position)
    assert after.payload["input"][:-1] == before.payload["input"]


def test_a_response_can_be_stored_with_it(talk: Any, store: Any) -> None:
    rendered = store.render(talk.id, "open_responses", vision=False)
    answer = talk.add_response(an_answer("Seen", id="resp_2"), "open_responses", rendered=rendered)
    talk.update(instructions="Be kind.")
    assert talk.request_body("open_responses", upto=rendered.head) == rendered.body
    assert answer.stored.number == 1


def test_within_a_transaction_it_shows_what_that_has_written(database: Database, stores: Any, tenant: str) -> None:
    store = stores.get("sync").for_tenant(tenant)
    talk = store.create_conversation(model="m", input="Hi")
    store.render(talk.id, "open_responses")
    with database.engine().connect() as connection:
        inside = store.within(connection)
        inside.get_conversation(talk.id).user("Not yet")
        assert the_same(inside, talk.id).head == 1
        connection.rollback()
    assert store.render(talk.id, "open_responses").head == 0


def test_what_is_not_visible_is_not_found(talk: Any, store: Any) -> None:
    assert the_same(store.for_user("ada"), talk.id).head == 4
    for other, one in ((store.for_user("eve"), talk.id), (store, "conv_" + "0" * 32), (store, "no id")):
        with pytest.raises(NotFound, match="conversation"):
            other.render(one, "open_responses")
    with pytest.raises(NotFound, match="no branch 7"):
        store.render(talk.id, "open_responses", branch=7)
    store.delete_conversation(talk.id)
    with pytest.raises(NotFound):
        store.render(talk.id, "open_responses")


@pytest.mark.one_face
@pytest.mark.parametrize(
    ("error", "format", "view"),
    [
        (UnknownFormat, "json", {}),
        (InvalidOption, "messages", {"upto": "all"}),
        (InvalidOption, "messages", {"windows": 1}),
        (InvalidOption, "messages", {"branch": "main"}),
    ],
)
def test_arguments_are_those_of_an_open_conversation(
    talk: Any, store: Any, error: type[Exception], format: str, view: dict[str, Any]
) -> None:
    with pytest.raises(error):
        store.render(talk.id, format, **view)


@pytest.mark.parametrize("user", ["a\\b", "a\x00b", "ü", "a%b :c"])
def test_users_have_any_name(store: Any, user: str) -> None:
    theirs = store.for_user(user)
    talk = theirs.create_conversation(model="m", input="Hi")
    assert the_same(theirs, talk.id).payload["input"][0]["content"][0]["text"] == "Hi"


@pytest.mark.one_face
def test_what_the_store_has_read_is_not_read_again(store: Any, elsewhere: Any, database: Database) -> None:
    if database.kind == "mariadb":
        pytest.skip("MariaDB opens the conversation, which knows what was read before")
    talk = store.create_conversation(model="m", input=[a_message(str(number)) for number in range(12)])
    read_after = []

    def watch(_connection: Any, _cursor: Any, _statement: str, parameters: Any, *_rest: Any) -> None:
        values = parameters.values() if isinstance(parameters, dict) else parameters
        read_after.append({-1, 11, 12}.intersection(value for value in values if isinstance(value, int)))

    event.listen(engine_of(elsewhere), "before_cursor_execute", watch)
    try:
        elsewhere.get_conversation(talk.id)
        read_after.clear()
        for _ in range(2):
            elsewhere.render(talk.id, "open_responses")
        talk.user("more")
        assert elsewhere.render(talk.id, "open_responses").head == 12
        talk.pop()
        assert elsewhere.render(talk.id, "open_responses").head == 11
    finally:
        event.remove(engine_of(elsewhere), "before_cursor_execute", watch)
    assert read_after[:4] == [{-1}, {11}, {11}, {12}], "and everything again after a removal"
    assert {-1} in read_after[4:]
