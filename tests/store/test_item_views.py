"""Stored items as OpenAI's clients validate them, and exactly as they were given."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.conversations import ConversationItem
from pydantic import TypeAdapter

from tests.factories import a_call, a_message, a_picture, an_answer, an_output
from tests.store.odd_values import BODIES, TURNS
from tests.store.watching import Tables, statements_of
from threadkeep import InputText, InvalidOption, Message, StoredItem
from threadkeep.domain.jsontext import dumps
from threadkeep.formats import NAMES, FormatName

pytestmark = pytest.mark.one_face

OPENAI: TypeAdapter[Any] = TypeAdapter(ConversationItem)
PICTURE = a_picture(b"picture" * 4_000)
DATA = PICTURE["image_url"].partition(",")[2]
WIRE_PARTS = {"input_text", "output_text", "input_image"}  # others are blocks that this wire does not know
GIVEN: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"content": [{"type": "output_text", "annotations": [], "text": "Hi", "logprobs": []}], "role": "assistant"},
    {"type": "message", "id": None, "role": "user", "content": [], "status": None},
    {"type": "reasoning", "summary": [], "id": "rs_1", "content": None},
    {"type": "reasoning", "encrypted_content": "gAAA"},
    {"type": "function_call", "name": "f", "call_id": "c", "arguments": {"b": 1, "a": [1.0, 1]}},
    {"type": "function_call", "name": "f", "call_id": "d", "arguments": '{"broken'},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": None, "x": [2**70, -0.0, "\ud800"]},
    {"role": "assistant", "content": "H\x00i", "author_of_this": "x"},
]
WITH_MEDIA: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_image", "image_url": PICTURE["image_url"], "detail": None}]},
    {"role": "user", "content": [{"type": "input_image", "url": PICTURE["image_url"]}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE["image_url"]}}]},
    {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}],
    },
    {"type": "function_call_output", "call_id": "c", "output": [PICTURE | {"detail": None}], "id": None},
    {"type": "image_generation_call", "status": None, "id": "ig_1", "result": DATA},
]


def as_given(store: Any, conversation: Any, expected: list[dict[str, Any]]) -> None:
    """The items are given back, in every way in which they can be read, and are valid."""
    fresh = store.get_conversation(conversation.id)
    transcript = fresh.transcript()
    for read in (transcript, fresh.items(), [fresh.get_item(stored.id) for stored in transcript]):
        assert [dumps(stored.given()) for stored in read] == [dumps(raw) for raw in expected]
        for stored in read:
            found = stored.canonical()
            assert found["id"] == stored.id
            assert OPENAI.validate_python(found, strict=True).type == found["type"]


@pytest.mark.parametrize("items", [GIVEN, WITH_MEDIA], ids=["texts", "media"])
@pytest.mark.parametrize("how", ["add_items", "add_item", "add_input", "create", "import", "save", "a copy"])
def test_items_are_given_back(store: Any, how: str, items: list[dict[str, Any]]) -> None:
    if how == "create":
        conversation = store.create_conversation(model="m", input=items, known=False)
    elif how in {"add_input", "import"}:
        items = [
            raw for raw in items if all(part["type"] in WIRE_PARTS and "url" not in part for part in parts_of(raw))
        ]
        if how == "import":
            conversation = store.import_request({"model": "m", "input": items}, "open_responses")
        else:
            conversation = store.create_conversation(model="m")
            added = conversation.add_input(items, "open_responses")
            assert [dumps(stored.given()) for stored in added] == [dumps(raw) for raw in items]
    else:
        conversation = store.create_conversation(model="m")
        added = (
            conversation.add_items(items, known=False)
            if how != "add_item"
            else [conversation.add_item(raw, known=False) for raw in items]
        )
        assert [dumps(stored.given()) for stored in added] == [dumps(raw) for raw in items]
        assert [stored.canonical() for stored in added] == [
            stored.canonical() for stored in store.get_conversation(conversation.id).transcript()
        ]
        if how == "save":
            conversation = store.save(conversation.session())
        elif how == "a copy":
            conversation = store.copy_conversation(conversation.id)
    as_given(store, conversation, items)


def parts_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def test_items_that_say_where_they_came_from_are_given_back(store: Any) -> None:
    """What is stored of one of a kind is known for the others: also where only the origin, or its place, differs."""
    said = [
        {"type": "message", "role": "user", "content": f"{origin} {number}", **extra}
        for number in range(2)
        for origin in ("open_responses", "messages", "gemini")
        for extra in ({"origin": origin}, {"id": f"msg_{origin}_{number}", "origin": origin}, {})
    ]
    items = [*said, *({"origin": "messages", **raw} for raw in said)]
    conversation = store.create_conversation(model="m", input=items)
    assert [stored.given() for stored in store.get_conversation(conversation.id).transcript()] == items


def test_a_repetition_gives_the_same_items_back(conversation: Any) -> None:
    first = conversation.add_items(GIVEN, idempotency_key="once", known=False)
    again = conversation.add_items(GIVEN, idempotency_key="once", known=False)
    assert all(stored.replayed for stored in again)
    assert [dumps(stored.given()) for stored in again] == [dumps(stored.given()) for stored in first]


def test_the_caller_may_change_what_was_given(store: Any, conversation: Any) -> None:
    raw: dict[str, Any] = {"role": "user", "content": [{"type": "input_text", "text": "Hi", "x": []}]}
    stored = conversation.add_item(raw)
    raw["content"][0]["text"] = "changed"
    stored.given()["content"][0]["text"] = "changed, too"
    stored.canonical()["content"][0]["text"] = "changed, too"
    for found in (stored, store.get_conversation(conversation.id).get_item(0)):
        assert found.given()["content"] == [{"type": "input_text", "text": "Hi", "x": []}]
        assert found.canonical()["content"] == [{"type": "input_text", "text": "Hi"}]


def test_an_answer_is_given_back(store: Any, conversation: Any) -> None:
    body = an_answer("Hello", calls=("c",))
    body["output"].insert(0, {"id": "rs_1", "summary": [], "type": "reasoning", "content": None, "status": None})
    conversation.add_response(body, "open_responses")
    as_given(store, conversation, body["output"])


def test_a_streamed_answer_is_given_back(store: Any, conversation: Any) -> None:
    body = an_answer("Hello", calls=("c",))
    with conversation.stream_response("open_responses") as recorder:
        recorder.feed({"type": "response.completed", "response": body})
    as_given(store, conversation, body["output"])


@pytest.mark.parametrize("wire", [name for name in NAMES if name != "open_responses"])
def test_items_of_other_formats_are_open_responses(store: Any, wire: FormatName) -> None:
    conversation = store.import_request(TURNS[wire], wire, model="m")
    conversation.add_response(BODIES[wire], wire)
    for stored in store.get_conversation(conversation.id).transcript():
        found = stored.given()
        assert found["type"] == stored.item.type
        assert not {"origin", "native", "spelling"} & found.keys()
        OPENAI.validate_python(stored.canonical(), strict=True)


def test_items_that_were_not_given_as_dicts_are_open_responses(conversation: Any) -> None:
    part = InputText(text="Hi")
    raw = {"role": "user", "content": part}
    for stored in (conversation.user("Hi"), *conversation.add_items([Message("user", [part]), raw])):
        assert stored.given() == a_message("Hi")


def test_the_author_is_not_part_of_what_was_given(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.add_item({"role": "user", "content": "Hi", "author_id": "ann"})
    assert store.get_conversation(conversation.id).get_item(0).given() == {"role": "user", "content": "Hi"}
    assert "ann" not in str(tables.rows("items")[0]["given"])


def test_a_stored_item_of_ones_own_has_no_views() -> None:
    with pytest.raises(InvalidOption, match="not from a store"):
        StoredItem("msg_1", 0, 0, None, Message("user", "Hi")).canonical()


# What it costs


def test_nothing_is_stored_where_the_item_is_stored_as_it_was_given(conversation: Any, tables: Tables) -> None:
    conversation.user("Hi")
    conversation.add_items([a_message(), a_call(), an_output(), {"type": "odd", "x": [None]}], known=False)
    conversation.add_input([a_message()], "open_responses")
    conversation.add_response(BODIES["messages"], "messages")
    assert {row["given"] for row in tables.rows("items")} == {None}


def test_media_is_stored_once(store: Any, conversation: Any, tables: Tables) -> None:
    conversation.add_items(WITH_MEDIA, known=False)
    assert tables.counts()["blobs"] == 1
    for row in tables.rows("items", "position"):
        assert sum(len(row[name] or "") for name in ("payload", "rest", "given")) < 1_000


def test_a_long_text_is_stored_once(conversation: Any, tables: Tables) -> None:
    text = "word " * 2_000
    conversation.add_items(
        [
            {"role": "user", "content": text},
            {"type": "function_call", "name": "f", "call_id": "c", "arguments": {"text": text}},
        ]
    )
    for row in tables.rows("items", "position"):
        assert len(row["given"]) < 100


def test_requests_are_rendered_without_it(store: Any, conversation: Any) -> None:
    conversation.add_items(GIVEN, known=False)
    fresh = store.get_conversation(conversation.id)
    with statements_of(fresh) as seen:
        fresh.render("open_responses")
    assert not any("given" in statement for statement in seen)
