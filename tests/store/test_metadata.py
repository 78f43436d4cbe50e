"""Properties: what HTTP APIs call the metadata of a conversation, kept for the application alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.watching import Tables
from threadkeep import IdempotencyConflict, InvalidOption, Session

pytestmark = pytest.mark.one_face

FORMATS = ("open_responses", "chat_completion", "messages", "gemini", "converse", "pydantic_ai")
PROPERTIES = {"customer": "c-17", "source": "mobile app"}
MOST = {f"{number:064}": "v" * 512 for number in range(16)}


def test_every_way_to_create_takes_properties(store: Any, elsewhere: Any) -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    made = [
        store.create_conversation(model="m", properties=PROPERTIES),
        store.save(Session(model="m"), properties=PROPERTIES),
        store.import_request(request, "chat_completion", properties=PROPERTIES),
        *map(store.get_conversation, store.save_many([Session(model="m")], properties=PROPERTIES)),
    ]
    for conversation in made:
        assert conversation.properties == elsewhere.get_conversation(conversation.id).properties == PROPERTIES
    assert store.create_conversation(model="m").properties == {}


def test_update_replaces_all_of_them(conversation: Any, elsewhere: Any) -> None:
    conversation.update(properties=PROPERTIES)
    assert conversation.properties == PROPERTIES
    conversation.update(title="T")
    assert conversation.properties == PROPERTIES
    conversation.update(properties={"only": "one"})
    assert elsewhere.get_conversation(conversation.id).properties == {"only": "one"}
    conversation.update(properties=None)
    assert elsewhere.get_conversation(conversation.id).properties == {}


def test_no_request_contains_them(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Hi", properties={"canary-key": "canary-value"})
    assert not [name for name in FORMATS if b"canary" in conversation.request_body(name)]


def test_a_copy_has_them_unless_it_is_given_others(store: Any) -> None:
    original = store.create_conversation(model="m", input="Hi", properties=PROPERTIES)
    assert store.copy_conversation(original.id).properties == PROPERTIES
    assert store.copy_conversation(original.id, properties={"a": "b"}).properties == {"a": "b"}
    assert store.copy_conversation(original.id, properties=None).properties == {}
    assert original.fork().properties == PROPERTIES


def test_listed_conversations_have_them(store: Any) -> None:
    store.create_conversation(model="m", properties=PROPERTIES)
    assert [found.properties for found in store.list_conversations()] == [PROPERTIES]


def test_a_key_covers_them(store: Any) -> None:
    store.create_conversation(model="m", properties=PROPERTIES, idempotency_key="k")
    assert store.create_conversation(model="m", properties=PROPERTIES, idempotency_key="k").replayed
    with pytest.raises(IdempotencyConflict):
        store.create_conversation(model="m", properties={"a": "b"}, idempotency_key="k")


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({**MOST, "one more": ""}, "17 pairs, at most 16"),
        ({"k" * 65: ""}, "a name is a string of 1 to 64 characters"),
        ({"": "v"}, "a name is a string of 1 to 64 characters"),
        ({1: "v"}, "a name is a string"),
        ({"k": "v" * 513}, "a value is a string of at most 512 characters"),
        ({"k": 1}, "a value is a string"),
        ({"k": None}, "a value is a string"),
        (["k"], "must be a dict of strings"),
    ],
)
def test_what_is_over_a_limit_is_refused(
    store: Any, conversation: Any, tables: Tables, properties: Any, problem: str
) -> None:
    conversation.update(properties=PROPERTIES)
    written = tables.written()
    for call in (conversation.update, store.create_conversation):
        with pytest.raises(InvalidOption, match=problem) as caught:
            call(properties=properties)
        assert caught.value.argument == "properties"
    assert written() == {}
    assert store.get_conversation(conversation.id).properties == PROPERTIES


def test_the_largest_fit(store: Any, elsewhere: Any) -> None:
    wide = {f"{number:02}" + "\U0001f9f5" * 62: "\U0001f9f5" * 512 for number in range(16)}
    for properties in (MOST, wide):
        conversation = store.create_conversation(model="m", properties=properties)
        assert elsewhere.get_conversation(conversation.id).properties == properties


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(properties=st.dictionaries(st.text(min_size=1, max_size=64), st.text(max_size=512), max_size=16))
def test_any_text_comes_back_as_it_was(conversation: Any, elsewhere: Any, properties: dict[str, str]) -> None:
    conversation.update(properties=properties)
    assert elsewhere.get_conversation(conversation.id).properties == properties
