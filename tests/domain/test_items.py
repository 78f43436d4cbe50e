from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON, OBJECTS, TEXT, same
from threadkeep.domain.content import PARTS, InputText, OutputText, Refusal, TypedObject
from threadkeep.domain.formats import other_event
from threadkeep.domain.items import (
    ITEMS,
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    ProviderItem,
    Reasoning,
    UnknownItem,
    item_from,
    item_from_object,
    items_from,
    usual_object,
)
from threadkeep.domain.jsontext import dumps
from threadkeep.domain.written import call_output, message_of
from threadkeep.errors import InvalidItem

TEXT_PART = {"type": "input_text", "text": "hello"}

# Every canonical type with all its keys: they are fields, and stay under their names.
FULL_ITEMS: list[tuple[type[Item], dict[str, Any]]] = [
    (
        Message,
        {
            "type": "message", "role": "assistant", "content": [TEXT_PART], "id": "msg_1", "status": "completed",
            "phase": "commentary",
        },
    ),
    (
        FunctionCall,
        {
            "type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "id": "fc_1",
            "status": "completed", "namespace": "math", "caller": {"type": "direct"}, "async": True, "created_by": "x",
        },
    ),
    (
        FunctionCallOutput,
        {
            "type": "function_call_output", "call_id": "c1", "output": [TEXT_PART], "id": "fco_1",
            "status": "completed", "name": "add", "namespace": "math", "caller": {"type": "direct"},
        },
    ),
    (
        Reasoning,
        {
            "type": "reasoning", "id": "rs_1", "status": "completed", "encrypted_content": "blob",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "thinking", "thinking": "t", "signature": "x"}],
        },
    ),
    (Compaction, {"type": "compaction", "id": "cmp_1", "encrypted_content": "packed", "created_by": "user"}),
    (ItemReference, {"type": "item_reference", "id": "msg_0"}),
    (ProviderItem, {"type": "provider_item", "format": "messages", "payload": {"type": "server_tool_use", "x": None}}),
    (ProviderItem, {"type": "provider_item", "format": "messages", "payload": None}),
    (UnknownItem, {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}, "empty": [], "none": None}),
]  # fmt: skip


@pytest.mark.parametrize(("made", "data"), FULL_ITEMS)
def test_every_item_is_read_and_written_as_it_was(made: type[Item], data: dict[str, Any]) -> None:
    item = item_from(data)
    assert type(item) is made
    assert item.to_dict() == data
    assert item.to_object() == data
    assert item_from_object(item.to_object()) == item
    if made is not UnknownItem:
        assert item.extra == {}


@given(st.sampled_from([data for _, data in FULL_ITEMS]), OBJECTS)
def test_no_key_of_an_item_is_lost(data: dict[str, Any], extras: dict[str, Any]) -> None:
    """Whatever stands beside the known keys comes back, into both forms."""
    full = {**{key: value for key, value in extras.items() if key not in ("extra", "origin", "native")}, **data}
    assert same(item_from(full).to_dict(), full)
    assert same(item_from_object(item_from(full).to_object()).to_object(), full)


def is_unknown(kind: str) -> bool:
    """Whether no format has such a type."""
    return bool(kind) and kind not in {**ITEMS, **PARTS} and other_event({"type": kind}) is None


@given(TEXT.filter(is_unknown), OBJECTS)
def test_an_unknown_type_keeps_all_its_keys(kind: str, keys: dict[str, Any]) -> None:
    data = {**{key: value for key, value in keys.items() if key not in ("origin", "native")}, "type": kind}
    assert same(item_from(data).to_object(), data)


@given(JSON | OBJECTS)
def test_any_json_is_an_item_or_invalid(value: Any) -> None:
    try:
        found = item_from(value)
    except InvalidItem:
        return
    assert isinstance(found, Item)


@given(st.sampled_from(sorted(ITEMS)) | JSON, OBJECTS)
def test_stored_objects_always_become_items(kind: Any, keys: dict[str, Any]) -> None:
    """What a provider sent may lack what its type needs; it is kept all the same."""
    data = {**{key: value for key, value in keys.items() if key not in ("extra", "origin", "native")}, "type": kind}
    found = item_from_object(data)
    assert all(
        same(found.to_object()[key], value) for key, value in data.items() if value not in (None, []) and key != "type"
    )


def test_null_and_empty_lists_are_left_out() -> None:
    """The content of a message and a given output are written though they are empty."""
    assert item_from({"type": "reasoning", "id": None, "summary": [], "content": None}).to_dict() == {
        "type": "reasoning"
    }
    assert Message("user").to_dict() == {"type": "message", "role": "user", "content": []}
    assert FunctionCallOutput("c1", []).to_dict() == {"type": "function_call_output", "call_id": "c1", "output": []}


def test_origin_and_native_keys_travel_with_the_item() -> None:
    data = {"role": "user", "content": "a", "origin": "messages", "native": {"messages": {"cache": None}}}
    item = item_from(data)
    assert item.origin == "messages"
    assert item.native == {"messages": {"cache": None}}
    assert item.to_dict()["native"] == item.to_object()["native"] == {"messages": {"cache": None}}


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ({"role": "user", "content": "a"}, [{"type": "input_text", "text": "a"}]),
        ({"role": "assistant", "content": "a", "type": None}, [{"type": "output_text", "text": "a"}]),
        ({"type": "message", "role": "critic", "content": {"text": "a"}}, [{"type": "input_text", "text": "a"}]),
        ({"type": "message", "role": "user", "content": None}, []),
        ({"type": "message", "role": "user"}, []),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
            [{"type": "input_image", "url": "x"}],
        ),
    ],
)
def test_messages_are_read_in_every_spelling(value: dict[str, Any], content: list[Any]) -> None:
    """A role without a type is a message; text stands for one part; wire names are understood."""
    assert item_from(value).to_dict() == {"type": "message", "role": value["role"], "content": content}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (None, "input[2]"),
        ("text", "input[2]"),
        ({}, "input[2].type"),
        ({"type": ""}, "input[2].type"),
        ({"type": 5}, "input[2].type"),
        ({"type": "input_text", "text": "a"}, "input[2]"),
        ({"type": "message", "content": "a"}, "input[2].role"),
        ({"role": 5, "content": "a"}, "input[2].role"),
        ({"role": "user", "content": 5}, "input[2].content"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[2].content[0].text"),
        ({"role": "user", "content": "a", "at": datetime.now(UTC)}, "input[2].at"),
        ({"type": "function_call", "name": "a"}, "input[2].call_id"),
        ({"type": "function_call", "call_id": "c"}, "input[2].name"),
        ({"type": "function_call", "call_id": "c", "name": "a", "arguments": []}, "input[2].arguments"),
        ({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}, "input[2].output"),
        ({"type": "function_call_output", "call_id": "c", "output": 5}, "input[2].output"),
        ({"type": "function_call_output", "call_id": "c", "output": [{"text": "a"}]}, "input[2].output[0]"),
        ({"type": "function_call_output", "call_id": "c", "output": ["a"]}, "input[2].output[0]"),
        ({"type": "item_reference"}, "input[2].id"),
        ({"type": "reasoning", "summary": "s"}, "input[2].summary"),
        ({"type": "provider_item", "payload": {}}, "input[2].format"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(InvalidItem) as caught:
        item_from(value, "input[2]")
    assert str(caught.value).startswith(place + " ")


def test_values_are_not_judged() -> None:
    """Unknown roles and states, and pictures with two sources, can be stored; rendering judges them."""
    data = {
        "type": "message",
        "role": "martian",
        "status": "odd",
        "content": [{"type": "input_image", "url": "https://example.org/a.png", "file_id": "f"}],
    }
    assert item_from(data).to_dict() == data


@pytest.mark.parametrize("value", [None, "text", 5, {"type": "message"}, Message("user", "a")])
def test_only_lists_are_lists_of_items(value: Any) -> None:
    with pytest.raises(InvalidItem, match=r"^items must be a list of items, not "):
        items_from(value)


def test_refusals_speak_plainly() -> None:
    with pytest.raises(InvalidItem) as caught:
        item_from({"type": "message", "role": 3, "content": "x"})
    assert str(caught.value) == "item.role must be a string, not 3."


@pytest.mark.parametrize(
    ("given_arguments", "text"),
    [
        (None, "{}"),
        ('{ "a" :1}', '{ "a" :1}'),
        ("", ""),
        ({"mot": "écorce", "n": [1, 2.5]}, '{"mot":"écorce","n":[1,2.5]}'),
        ({}, "{}"),
        ({"big": 2**70}, '{"big":1180591620717411303424}'),
    ],
)
def test_arguments_are_kept_as_text(given_arguments: Any, text: str) -> None:
    """Text is kept byte for byte and not checked; a dict becomes compact JSON."""
    assert FunctionCall("add", "c1", given_arguments).arguments == text


def test_arguments_are_parsed_on_demand() -> None:
    assert FunctionCall("add", "c1", {"a": 1}).parsed_arguments() == {"a": 1}
    for text in ("", '{"a": ', "[" * 10_000):
        with pytest.raises(InvalidItem, match=r"'c1' of add are not JSON"):
            FunctionCall("add", "c1", text).parsed_arguments()


def test_an_asynchronous_call_says_so_under_its_wire_name() -> None:
    assert FunctionCall("add", "c1", is_async=True).to_dict()["async"] is True
    call = item_from({"type": "function_call", "name": "a", "call_id": "c", "async": False})
    assert isinstance(call, FunctionCall)
    assert call.is_async is False


def test_an_output_is_text_or_parts_or_unknown() -> None:
    """No output at all stays what it is, and is not the empty text."""
    assert FunctionCallOutput("c1", "ok").to_object()["output"] == "ok"
    assert FunctionCallOutput("c1", "").to_object()["output"] == ""
    assert "output" not in FunctionCallOutput("c1").to_object()
    assert FunctionCallOutput("c1", InputText(text="a")).to_dict()["output"] == [{"type": "input_text", "text": "a"}]


def test_result_is_another_name_of_output() -> None:
    assert call_output("c1", result="a") == call_output("c1", "a")
    assert call_output("c1", None).output is None
    for arguments in ({}, {"output": "a", "result": "b"}):
        with pytest.raises(InvalidItem, match="output="):
            call_output("c1", **arguments)


def test_an_author_is_kept_but_never_sent() -> None:
    message = message_of("user", "a", "ann")
    read = item_from(message.to_dict())
    assert isinstance(read, Message)
    assert message.author_id == read.author_id == "ann"
    assert "author_id" not in message.to_object()


def test_a_message_has_its_text_and_role() -> None:
    message = Message("assistant", ["a", Refusal(refusal="no"), InputText(text="b")])
    assert message.text == "ab"
    assert (message.is_assistant, message.is_user, message.is_system) == (True, False, False)
    with pytest.raises(InvalidItem, match="content must not be None"):
        message_of("user", None)  # type: ignore[arg-type]


def test_a_repr_shows_what_is_set() -> None:
    message = Message("user", "Hi", author_id="anna", tags=None)
    content = "content=[InputText(type='input_text', text='Hi')]"
    assert repr(message) == f"Message(type='message', role='user', {content}, author_id='anna')"


def test_stored_json_has_no_trace_of_python() -> None:
    """Tuples are lists, and the JSON of an item is what `to_object` holds."""
    item = item_from({"role": "user", "content": ({"text": "a"},), "tags": ("x", ("y",))})
    assert item.extra == {"tags": ["x", ["y"]]}
    assert b'"tags":["x",["y"]]' in dumps(item.to_object())


@pytest.mark.parametrize("empty", [None, []])
@pytest.mark.parametrize("cls", [Reasoning, OutputText])
def test_null_is_an_empty_list(cls: type[TypedObject], empty: Any) -> None:
    names = [name for name, field in cls.model_fields.items() if field.default_factory is list]
    data: dict[str, Any] = {"text": "Hi"} if cls is OutputText else {}
    made = cls(**data, **dict.fromkeys(names, empty))
    assert len(names) == 2
    assert [getattr(made, name) for name in names] == [[], []]
    assert getattr(made, names[0]) is not empty
    assert made == cls(**data)
    wrong: Any
    for wrong in (0, "", {}, "[]"):
        with pytest.raises(InvalidItem, match=f"^{names[0]} must be a list"):
            cls(**data, **{names[0]: wrong})


ORIGINS = st.sampled_from(["messages", "open_responses"])
WORDS = st.one_of(TEXT, st.sampled_from(["completed", "in_progress", "assistant", "user"]))
PARTS_OF_TEXT = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text", "summary_text"]), "text": TEXT}),
    max_size=2,
)
# Keys of usual items, most with usual values
KEYS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "compaction"])},
    optional={
        **dict.fromkeys(["id", "status", "phase", "name", "namespace", "author_id", "other"], WORDS),
        **dict.fromkeys(["encrypted_content", "role", "call_id", "arguments", "output"], st.one_of(WORDS, st.none())),
        **dict.fromkeys(["content", "summary"], st.one_of(PARTS_OF_TEXT, st.none(), JSON)),
        "spelling": st.one_of(TEXT, st.lists(TEXT, max_size=2), JSON),
        "origin": ORIGINS,
    },
)


@given(KEYS, st.randoms())
def test_usual_items_are_objects_without_a_detour(value: dict[str, Any], random: Random) -> None:
    """To the byte, whatever order their keys have."""
    keys = list(value)
    random.shuffle(keys)
    given_item = {key: value[key] for key in keys}
    usual = usual_object(given_item)
    assert usual is None or dumps(usual) == dumps(item_from_object(given_item).to_object())


@pytest.mark.parametrize(
    "value",
    [
        {"type": "message", "role": "user", "content": [TEXT_PART], "origin": "messages", "spelling": "text"},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c", "origin": "open_responses"},
        {"type": "function_call_output", "call_id": "c", "output": "", "status": "completed", "origin": "messages"},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x", "origin": "open_responses"},
        {
            "type": "reasoning",
            "content": [{"type": "thinking", "thinking": "", "signature": "s"}],
            "origin": "messages",
        },
    ],
)
def test_what_agents_write_is_usual(value: dict[str, Any]) -> None:
    assert usual_object(value) == item_from_object(value).to_object()
