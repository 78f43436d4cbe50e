"""Rows that something else has changed: the error names the row, and everything else can still be used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.factories import an_answer
from threadkeep import DamagedRow

pytestmark = pytest.mark.one_face

TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
# the name of the column says which
TABLES = {"labels": "conversations", "properties": "conversations", "lineage": "branches", "view": "responses"}

# What is damaged -> where that is, and a call that needs it
DAMAGES: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "an item": ("items", "payload = 'x'", lambda _, c: c.transcript()),
    "an item that is one no more": ("items", "payload = '[1]'", lambda _, c: c.get_item(0)),
    "an item that is rendered": ("items", "payload = '{'", lambda _, c: c.request_body("messages")),
    "an item that is sent as it lies": ("items", "payload = '{'", lambda _, c: c.request_payload("open_responses")),
    "an item that is copied": ("items", "payload = '{}'", lambda _, c: c.session()),
    "options": ("configs", "config = '{'", lambda store, c: store.get_conversation(c.id)),
    "where it came from": (
        "configs",
        "config = '{\"imported\": [1]}'",
        lambda store, c: store.get_conversation(c.id).render("messages"),
    ),
    "a key of where it came from": (
        "configs",
        """config = '{"imported": {"format": "gemini", "count": 1, "more": 1}}'""",
        lambda _, c: c.session(),
    ),
    "options in a list": ("configs", "config = ''", lambda store, _: store.list_conversations()),
    "a tool": ("tool_definitions", "definition = 'x'", lambda store, c: store.get_conversation(c.id)),
    "a set of tools": ("tool_sets", "definitions = 'x'", lambda store, c: store.get_conversation(c.id)),
    "labels": ("conversations", "labels = '{'", lambda store, c: store.get_conversation(c.id).labels),
    "a state": ("conversation_states", "value = '{'", lambda _, c: c.state("run")),
    "properties": ("conversations", "properties = '{'", lambda store, c: store.get_conversation(c.id).properties),
    "a lineage": ("branches", "lineage = '['", lambda store, c: store.get_conversation(c.id, branch=1)),
    "a view": ("responses", "view = '{'", lambda _, c: c.responses()),
    "a key": ("appends", "outcome = '{'", lambda _, c: c.user("Hi", idempotency_key="key")),
    "a raw body": ("response_bodies", "codec = 1", lambda _, c: c.response_body(0)),
}


def damage(engine: Engine, store: Any, table: str, change: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE threadkeep_{table} SET {change} WHERE tenant_id = :tenant"),
            {"tenant": store.handle.scope.tenant},
        )


def forget(*stores: Any) -> None:
    """What was read before would be as good as ever."""
    for store in stores:
        face = getattr(store, "_wrapped", store)
        resources = getattr(face, "sync", face).handle.resources
        resources.configs.clear()
        resources.histories.clear()


@pytest.mark.parametrize("name", DAMAGES)
def test_the_error_names_the_row(store: Any, elsewhere: Any, watching: Engine, name: str) -> None:
    table, change, call = DAMAGES[name]
    made = store.create_conversation(model="m", tools=[TOOL], labels={"a": "b"}, properties={"c": "d"})
    made.user("Hi", idempotency_key="key")
    made.add_response(an_answer("Ho"), "open_responses", rendered=made.render("open_responses"))
    made.fork().user("And?", states={"run": 1})
    conversation = elsewhere.get_conversation(made.id)
    damage(watching, store, table, change)
    forget(store, elsewhere)
    with pytest.raises(DamagedRow, match=rf"The row of threadkeep_{table} with \w+ .* cannot be read") as raised:
        call(elsewhere, conversation)
    assert raised.value.table == table
    assert conversation.usage().attempts == 1


def test_the_index_goes_on_past_it(store: Any, watching: Engine, caplog: pytest.LogCaptureFixture) -> None:
    conversation = store.create_conversation(model="m", input="needle zero")
    damage(watching, store, "items", "payload = '{'")
    conversation.user("needle one")
    with caplog.at_level(logging.WARNING, "threadkeep.search"):
        assert [found.position for found in store.search("needle")] == [1]
    assert "threadkeep_items" in caplog.text
    assert "position 0" in caplog.text
    conversation.user("needle two")
    assert {found.position for found in store.search("needle")} == {1, 2}


def test_a_conversation_with_a_damaged_row_can_be_deleted(store: Any, watching: Engine) -> None:
    conversation = store.create_conversation(model="m", input="Hi", user_id="u")
    damage(watching, store, "items", "payload = '{'")
    assert store.erase_user("u").conversations == 1
    assert [found.id for found in store.list_conversations()] != [conversation.id]
