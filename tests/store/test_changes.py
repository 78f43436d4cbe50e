"""Changing a conversation: options, tools, labels, title. Options and tools are stored once per content."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import an_answer
from tests.store.watching import Tables, statements_of
from threadkeep import InvalidItem, InvalidOption, NotFound, ToolNotFound, ToolRegistry

pytestmark = pytest.mark.one_face

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}, "at": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": SCHEMA}


def test_options_are_stored_once_per_content(store: Any, tables: Tables) -> None:
    for _ in range(3):
        store.create_conversation(model="m", temperature=0.5, tools=[WEATHER])
    store.create_conversation(temperature=0.5, model="m", tools=[dict(reversed(WEATHER.items()))])
    assert tables.counts()["configs"] == 1
    assert tables.counts()["tool_definitions"] <= 2  # the order of keys is part of what a provider sees
    store.create_conversation(model="m", temperature=0.25)
    assert tables.counts()["configs"] == 2


def test_the_order_of_a_schema_is_kept(store: Any, elsewhere: Any) -> None:
    turned = {**WEATHER, "parameters": {"properties": dict(reversed(SCHEMA["properties"].items())), "type": "object"}}
    ids = [store.create_conversation(model="m", tools=[tool], input="Hi").id for tool in (WEATHER, turned)]
    bodies = [elsewhere.get_conversation(public_id).request_body("chat_completion") for public_id in ids]
    assert bodies[0].index(b'"city"') < bodies[0].index(b'"at"')
    assert bodies[1].index(b'"city"') > bodies[1].index(b'"at"')


def test_update_sets_and_takes_out(conversation: Any, elsewhere: Any) -> None:
    conversation.update(temperature=0.5, instructions="Be brief", metadata={"a": "b"}, title="T", external_id="e")
    conversation.update(instructions=None)
    found = elsewhere.get_conversation(conversation.id)
    assert found.settings == conversation.settings == {"model": "gpt-5.4", "temperature": 0.5, "metadata": {"a": "b"}}
    assert (found.title, found.external_id, found.instructions) == ("T", "e", None)


def test_a_change_reaches_other_handles(conversation: Any, elsewhere: Any) -> None:
    """Another revision makes a handle read everything again; an append does not."""
    conversation.user("Hi")
    other = elsewhere.get_conversation(conversation.id)
    assert other.request_payload("open_responses")["model"] == "gpt-5.4"
    conversation.update(model="gpt-6", instructions="Be brief")
    conversation.register_tool("weather", parameters=SCHEMA)
    payload = other.request_payload("open_responses")
    assert (payload["model"], payload["instructions"], len(payload["tools"])) == ("gpt-6", "Be brief", 1)
    assert (other.model, other.instructions, other.tools[0]["name"]) == ("gpt-6", "Be brief", "weather")
    assert payload == conversation.request_payload("open_responses")


def test_changes_build_on_each_other(conversation: Any, elsewhere: Any) -> None:
    """A handle that has not seen a change does not undo it."""
    other = elsewhere.get_conversation(conversation.id)
    conversation.update(temperature=0.5)
    other.update(top_p=0.9)
    conversation.register_tool("one")
    other.register_tool("two")
    found = elsewhere.get_conversation(conversation.id)
    assert found.settings == {"model": "gpt-5.4", "temperature": 0.5, "top_p": 0.9}
    assert [tool["name"] for tool in found.tools] == ["one", "two"]


def test_earlier_responses_keep_their_options(conversation: Any, tables: Tables) -> None:
    """Which options and tools did the model see in that turn? One query."""
    conversation.register_tool("one")
    conversation.add_response(an_answer("a"), "open_responses")
    conversation.update(temperature=0.5)
    conversation.register_tool("two")
    conversation.add_response(an_answer("b"), "open_responses")
    one, two = tables.rows("responses", "number")
    assert one["config_hash"] != two["config_hash"]
    assert one["tool_set_hash"] != two["tool_set_hash"]
    assert {one["tool_set_hash"], two["tool_set_hash"]} == {
        row["tool_set_hash"] for row in tables.rows("usage_records")
    }


def test_tools_are_replaced_removed_and_cleared(conversation: Any) -> None:
    registry = ToolRegistry()
    registry.register("one", description="first")
    registry.register("two")
    conversation.use_tools("two", registry=registry)
    conversation.register_tools(registry)
    conversation.register_tool("two", description="second")
    assert [(tool["name"], tool.get("description")) for tool in conversation.tools] == [
        ("two", "second"),
        ("one", "first"),
    ]
    removed = conversation.remove_tool("two")
    assert (removed.name, removed.description) == ("two", "second")
    assert conversation.remove_tool("two") is None
    assert [tool.name for tool in conversation.clear_tools()] == ["one"]
    assert conversation.tools == []
    with pytest.raises(ToolNotFound):
        conversation.use_tools("three", registry=registry)


def test_built_in_tools_are_kept(conversation: Any, elsewhere: Any) -> None:
    conversation.register_tools([{"type": "web_search", "filters": {"domains": ["a.org"]}}, WEATHER])
    conversation.user("Hi")
    payload = elsewhere.get_conversation(conversation.id).request_payload("open_responses")
    assert [tool["type"] for tool in payload["tools"]] == ["web_search", "function"]


def test_think_and_json_output(conversation: Any, elsewhere: Any) -> None:
    conversation.think(effort="high")
    conversation.json_output(SCHEMA, name="place", strict=True)
    settings = elsewhere.get_conversation(conversation.id).settings
    assert settings["reasoning"] == {"effort": "high"}
    assert settings["text"]["format"] == {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
    conversation.think(False)
    assert "reasoning" not in elsewhere.get_conversation(conversation.id).settings


def test_labels_are_replaced_as_a_whole(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.update(labels={"team": "a", "kind": "chat"})
    conversation.update(labels={"team": "b"})
    assert conversation.labels == {"team": "b"}
    assert tables.counts()["conversation_labels"] == 1
    assert [found.id for found in store.list_conversations(labels={"team": "b"})] == [conversation.id]
    assert not list(store.list_conversations(labels={"team": "a"}))
    conversation.update(labels={})
    assert (conversation.labels, tables.counts()["conversation_labels"]) == ({}, 0)


def test_labels_and_titles_are_never_sent(store: Any) -> None:
    conversation = store.create_conversation(
        model="m", input="Hi", title="Secret", labels={"secret": "Secret"}, user_id="u"
    )
    for wire in ("open_responses", "chat_completion"):
        assert b"ecret" not in conversation.request_body(wire)
        assert set(conversation.request_payload(wire)) <= {"model", "input", "messages"}


@pytest.mark.parametrize(
    "options",
    [
        {"temprature": 0.5},
        {"temperature": "hot"},
        {"metadata": {"a": {1, 2}}},
        {"title": 7},
        {"labels": {"a": 1}},
        {"labels": {"": "x"}},
        {"labels": ["a"]},
        {"user_id": ""},
        {"external_id": "e" * 256},
    ],
    ids=str,
)
def test_what_cannot_be_used_changes_nothing(conversation: Any, tables: Tables, options: dict[str, Any]) -> None:
    written, rows = tables.written(), tables.rows("conversations", "id")
    with pytest.raises((InvalidOption, InvalidItem)):
        conversation.update(top_p=0.1, **options)
    assert written() == {}
    assert tables.rows("conversations", "id") == rows


def test_an_empty_metadata_at_creation_counts_as_unset(store: Any) -> None:
    assert store.create_conversation(model="m", metadata={}).settings == {"model": "m"}


def test_external_ids_are_unique(store: Any, conversation: Any, tables: Tables) -> None:
    taken = store.create_conversation(external_id="order 7")
    written = tables.written()
    with pytest.raises(InvalidOption, match="order 7"):
        store.create_conversation(external_id="order 7")
    with pytest.raises(InvalidOption, match="order 7"):
        conversation.update(external_id="order 7", title="T", labels={"a": "b"}, temperature=1)
    assert written() == {}
    taken.update(external_id=None)
    conversation.update(external_id="order 7")
    assert store.find_conversation(external_id="order 7").id == conversation.id


def test_an_archived_conversation_goes_on(store: Any, conversation: Any) -> None:
    conversation.archive()
    assert conversation.status == "archived"
    assert not list(store.list_conversations())
    assert [found.id for found in store.list_conversations(status="archived")] == [conversation.id]
    assert [found.id for found in store.list_conversations(status=None)] == [conversation.id]
    assert conversation.user("Hi").position == 0
    assert store.get_conversation(conversation.id).status == "archived"
    conversation.unarchive()
    assert [found.status for found in store.list_conversations()] == ["active"]


def test_a_change_of_a_deleted_conversation(store: Any, conversation: Any) -> None:
    store.delete_conversation(conversation.id)
    for change in (
        lambda: conversation.update(title="T"),
        conversation.archive,
        lambda: conversation.register_tool("a"),
    ):
        with pytest.raises(NotFound):
            change()


def test_options_that_were_seen_are_not_read_again(store: Any, conversation: Any) -> None:
    store.get_conversation(conversation.id)
    with statements_of(store) as seen:
        store.get_conversation(conversation.id)
    assert len(seen) == 1


def test_a_detached_copy_has_everything(store: Any, elsewhere: Any) -> None:
    conversation = store.create_conversation(
        model="m", instructions="Be brief", input="Hi", tools=[WEATHER], temperature=0.5, extra={"seed": 7}
    )
    conversation.add_response(an_answer("Hello"), "open_responses")
    session = elsewhere.get_conversation(conversation.id).session()
    for wire in ("open_responses", "chat_completion"):
        assert session.request_body(wire) == conversation.request_body(wire)
    copy = store.save(session)
    assert copy.session().to_dict() == session.to_dict()
    assert copy.request_body("chat_completion") == conversation.request_body("chat_completion")
    config = elsewhere.get_conversation(conversation.id).clone_config()
    assert (config.items, config.model, len(config.tools)) == ([], "m", 1)
