"""Items as OpenAI's clients validate them, and as they were given."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai.types.conversations import ConversationItem
from pydantic import TypeAdapter

from tests.corpus import assembled, recorded
from tests.domain.jsonvalues import JSON, TEXT
from tests.formats.requests_open_responses import ITEMS
from tests.store.odd_values import BODIES, LISTS, TURNS
from tests.wires import SPOKEN
from threadkeep.domain.items import Item, given_of
from threadkeep.domain.jsontext import dumps
from threadkeep.domain.written import given_item
from threadkeep.errors import InvalidItem
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.canonical.given import given_text
from threadkeep.formats.canonical.view import REQUIRED, StoredItemViews

Json = dict[str, Any]
OPENAI: TypeAdapter[Any] = TypeAdapter(ConversationItem)
NAME: Final = "open_responses"
OWN = get_format(NAME)
# what threadkeep calls a type that OpenAI's clients do not know
UNKNOWN = {"provider_item", "item_reference", "compaction_undone"}


def views_of(item: Item) -> StoredItemViews:
    """The views of an item, as the store has them."""
    entry = entry_of(item.to_object(), position=0)
    return StoredItemViews(entry, given_text(given_of(item), entry))


def check(item: Any) -> None:
    """A client reads the item as what it is, and finds nothing wrong; types of tomorrow are none of its business."""
    if item.get("type") not in REQUIRED or "hologram" in str(item):
        return
    read = OPENAI.validate_python(item, strict=True)
    assert read.type == item["type"]


def check_as_given(items: list[Item], given_items: list[Any]) -> None:
    assert len(items) == len(given_items)
    for item, expected in zip(items, given_items, strict=True):
        views = views_of(item)
        assert dumps(views.given()) == dumps(expected), expected
        if isinstance(expected, dict):
            check(views.canonical("msg_1"))


# As given


def mixed(*alternatives: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*alternatives)


PARTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["input_text", "output_text", "text"]), "text": TEXT},
        optional={
            "annotations": st.sampled_from([[], None, [{"type": "file_path", "file_id": "f", "index": 0}]]),
            "logprobs": st.sampled_from([[], None]),
            "cache_control": st.just({"type": "ephemeral"}),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("input_image")},
        optional={
            "detail": st.sampled_from([None, "auto", "low"]),
            "image_url": st.sampled_from(["https://x.example/a.png", "data:image/png;base64," + "A" * 9_000]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("input_file"), "url": st.just("data:application/pdf;base64," + "B" * 9_000)},
        optional={"filename": st.none() | TEXT},
    ),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": TEXT}),
    st.fixed_dictionaries({"type": st.just("hologram"), "x": JSON}),
)
CONTENT = st.one_of(TEXT, st.lists(st.one_of(PARTS, TEXT), max_size=3), st.none(), PARTS)
ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool", "critic"])
COMMON: Json = {
    "id": st.sampled_from([None, "", "msg_1", "fc_1", "x" * 99]),
    "status": st.sampled_from([None, "completed", "odd"]),
    "vendor": JSON,
}
SHAPES = st.one_of(
    st.fixed_dictionaries({"role": ROLES, "content": CONTENT}, optional={"type": st.just("message"), **COMMON}),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": TEXT, "name": TEXT},
        optional={"arguments": st.none() | TEXT | st.dictionaries(TEXT, JSON, max_size=3), **COMMON},
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call_output"), "call_id": TEXT, "output": TEXT | st.lists(PARTS, max_size=2)},
        optional=COMMON,
    ),
    st.fixed_dictionaries(
        {"type": st.just("reasoning")},
        optional={
            "summary": st.sampled_from([[], None, [{"type": "summary_text", "text": "Hm"}]]),
            "content": st.sampled_from([[], None, [{"type": "reasoning_text", "text": "Hm"}]]),
            "encrypted_content": st.sampled_from([None, "", "gAAA"]),
            **COMMON,
        },
    ),
    st.fixed_dictionaries({"type": st.sampled_from(sorted(REQUIRED))}, optional=COMMON),
    st.fixed_dictionaries({"type": st.just("hologram"), "x": JSON}, optional={"native": JSON, "spelling": JSON}),
)
ODD = SHAPES.flatmap(lambda shape: st.permutations(list(shape.items()))).map(dict)


@given(ODD)
@example({"content": [], "role": "user"})
@example({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"})
def test_an_item_is_given_back_as_it_was_added(raw: Json) -> None:
    try:
        item = given_item(raw, known=False)
    except InvalidItem:
        return
    assert dumps(views_of(item).given()) == dumps(raw)


@given(st.lists(ODD, min_size=1, max_size=3))
def test_items_of_a_request_are_given_back_as_they_came(raw: list[Json]) -> None:
    items = [item for turn in OWN.parse_turns(raw) for item in turn]
    for item, expected in zip(items, raw, strict=True):
        assert dumps(views_of(item).given()) == dumps(expected)


@pytest.mark.parametrize("name", [name for name, _ in ITEMS])
def test_odd_requests_are_given_back_as_they_came(name: str) -> None:
    raw = next(items for known, items in ITEMS if known == name)
    check_as_given([item for turn in OWN.parse_turns(raw) for item in turn], raw)


def test_recorded_requests_are_given_back_as_they_came() -> None:
    for one in recorded(NAME).values():
        raw = one["request"].get("input")
        if isinstance(raw, list):
            check_as_given(OWN.parse_request(one["request"]).items, raw)


def test_recorded_responses_are_given_back_as_they_came() -> None:
    for one in recorded(NAME).values():
        body = one.get("response")
        if isinstance(body, dict) and isinstance(body.get("output"), list):
            check_as_given(OWN.parse_response(body).output, body["output"])
        if one["events"]:
            made = assembled(one["events"], NAME)
            check_as_given(made.response.output, made.body["output"])


def test_what_is_given_as_it_is_stored_needs_nothing_more() -> None:
    cases: list[Json] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "hologram", "x": [None, {}]},
    ]
    for raw in cases:
        assert views_of(given_item(raw, known=False)).given_text is None


@given(ODD)
def test_a_shape_stands_for_what_was_given(raw: Json) -> None:
    """Of an answer, the shape is known when it is stored, and its JSON is not read for it again."""
    item = OWN.parse_response({"object": "response", "status": "completed", "output": [raw]}).output[0]
    remembered, entry = given_of(item), entry_of(item.to_object(), position=0)
    assert remembered is not None
    assert remembered.text == dumps(raw)
    assert given_text(remembered, entry) == given_text(remembered._replace(shape=None), entry)


def test_items_of_one_shape_are_told_apart() -> None:
    """What is kept of a shape must be true of all that have it."""
    contents: list[Any] = ["Hi", [], None, "", [{"type": "input_text", "text": "Hi"}], ["Hi"]]
    for content in (*contents, *reversed(contents)):
        raw = {"role": "user", "type": "message", "content": content}
        assert views_of(given_item(raw, known=False)).given() == raw


def test_typed_items_and_those_of_other_formats_are_open_responses() -> None:
    session = get_format("messages").parse_request(TURNS["messages"])
    for item in session.items:
        assert given_of(item) is None
        found = views_of(item).given()
        assert found["type"] == item.type
        assert not {"origin", "native", "spelling"} & {key for part in [found] for key in part}


def test_a_copy_with_changes_does_not_remember() -> None:
    item = given_item({"role": "user", "content": "Hi"})
    assert item == item.model_copy()
    assert given_of(item.model_copy(update={"role": "system"})) is None
    assert "_given" not in repr(item)
    assert "_given" not in item.to_dict()
    assert "_given" not in item.model_dump()


# As OpenAI's clients validate it


@pytest.mark.parametrize("odd", [{}, {"status": None}, {"status": "failed"}, {"id": None}, {"vendor": {"x": None}}])
def test_every_type_has_what_is_required(odd: Json) -> None:
    for kind, origin in itertools.product(REQUIRED, (None, "open_responses", "messages")):
        raw = {"type": kind, **({"origin": origin} if origin else {}), **odd}
        if kind == "message":
            raw["role"] = "user"
        entry = entry_of(raw, position=0)
        check(StoredItemViews(entry).canonical("x_1") | {"id": "x_1"})


def test_every_type_of_the_client_is_known() -> None:
    core = OPENAI.core_schema
    kinds = set(_literals(core, "type")) & {name for name in _literals(core, "type") if name in REQUIRED}
    assert kinds == set(REQUIRED)


def _literals(schema: Any, key: str) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "literal":
            yield from (value for value in schema["expected"] if isinstance(value, str))
        for inner in schema.values():
            yield from _literals(inner, key)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _literals(inner, key)


@given(ODD)
def test_odd_items_become_valid(raw: Json) -> None:
    try:
        items = [given_item(raw, known=False)]
    except InvalidItem:
        items = []
    items += [item for turn in OWN.parse_turns([raw]) for item in turn]
    for item in items:
        check(views_of(item).canonical("x_1"))


@pytest.mark.parametrize("wire", NAMES)
def test_items_of_all_formats_become_valid(wire: FormatName) -> None:
    read = get_format(wire)
    turns = read.parse_turns(TURNS[wire][LISTS.get(wire, "messages")])
    items = [*(item for turn in turns for item in turn), *read.parse_response(BODIES[wire]).output]
    for item in items:
        found = views_of(item).canonical("x_1")
        assert found["type"] not in UNKNOWN
        check(found)


@pytest.mark.parametrize("wire", SPOKEN)
def test_recorded_items_of_all_formats_become_valid(wire: FormatName) -> None:
    read = get_format(wire)
    for one in recorded(wire).values():
        for item in read.parse_request(one["request"], model="m").items:
            check(views_of(item).canonical("x_1"))


CANONICAL: dict[str, tuple[Json, Json]] = {
    "a text": (
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}], "status": "completed", "type": "message"},
    ),
    "an answer": (
        {"role": "assistant", "content": "Hi"},
        {
            "role": "assistant", "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
            "status": "completed", "type": "message",
        },
    ),
    "an image": (
        {"role": "user", "content": [{"type": "input_image", "url": "https://x.example/a.png"}]},
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "https://x.example/a.png", "detail": "auto"}],
            "status": "completed", "type": "message",
        },
    ),
    "a video": (
        {"role": "user", "content": [{"type": "input_video", "url": "https://x.example/a.mp4"}]},
        {
            "role": "user", "content": [{"type": "input_file", "file_url": "https://x.example/a.mp4"}],
            "status": "completed", "type": "message",
        },
    ),
    "a call": (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}', "status": "completed"},
    ),
    "reasoning": (
        {"type": "reasoning", "encrypted_content": "x"}, {"type": "reasoning", "encrypted_content": "x", "summary": []},
    ),
    "a type of tomorrow": ({"type": "hologram", "x": [None]}, {"type": "hologram", "x": [None]}),
}  # fmt: skip


def block(format_name: str, payload: Json) -> Json:
    return {"type": "provider_item", "format": format_name, "payload": payload, "origin": format_name}


BLOCKS: dict[str, tuple[Json, Json]] = {
    "a search": (
        block("messages", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "trains"}}),
        {
            "type": "web_search_call", "action": {"type": "search", "query": "trains", "queries": ["trains"]},
            "status": "completed",
        },
    ),
    "what was found": (
        block(
            "messages",
            {
                "type": "web_search_tool_result", "tool_use_id": "s",
                "content": [{"type": "web_search_result", "url": "https://x.example", "encrypted_content": "e"}],
            },
        ),
        {
            "type": "web_search_call",
            "action": {"type": "search", "query": "", "sources": [{"type": "url", "url": "https://x.example"}]},
            "status": "completed",
        },
    ),
    "code": (
        block("gemini", {"executableCode": {"language": "PYTHON", "code": "1 + 1"}}),
        {"type": "code_interpreter_call", "code": "1 + 1", "outputs": None, "container_id": "", "status": "completed"},
    ),
    "what code prints": (
        block("gemini", {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}),
        {
            "type": "code_interpreter_call", "code": None, "outputs": [{"type": "logs", "logs": "2"}],
            "container_id": "", "status": "completed",
        },
    ),
    "a picture": (
        block("gemini", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
        {"type": "image_generation_call", "result": "AAAA", "status": "completed"},
    ),
    "another tool": (
        block(
            "messages", {"type": "mcp_tool_use", "id": "m", "name": "look", "server_name": "maps", "input": {"a": 1}},
        ),
        {"type": "mcp_call", "name": "look", "arguments": '{"a":1}', "server_label": "maps"},
    ),
    "its failure": (
        block("messages", {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": True, "content": "Lost."}),
        {
            "type": "mcp_call", "name": "mcp_tool", "arguments": "{}", "server_label": "messages", "status": "failed",
            "error": {"type": "mcp_tool_execution_error", "content": "Lost."}, "output": None,
        },
    ),
    "a custom tool": (
        block("chat_completion", {"id": "c", "type": "custom", "custom": {"name": "note", "input": "Milk"}}),
        {"type": "custom_tool_call", "call_id": "c", "name": "note", "input": "Milk"},
    ),
    "cited text": (
        block("converse", {"citationsContent": {"content": [{"text": "Yes."}], "citations": []}}),
        {
            "type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}],
            "status": "completed",
        },
    ),
    "what says nothing": (
        block("messages", {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}),
        {"type": "message", "role": "assistant", "content": [], "status": "completed"},
    ),
    "a picture in what a model says": (
        {
            "type": "message", "role": "assistant", "origin": "converse",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
        },
        {
            "type": "message", "role": "assistant",
            "content": [
                {
                    "type": "output_text", "text": "![image](data:image/png;base64,AAAA)", "annotations": [],
                    "logprobs": [],
                },
            ],
            "status": "completed",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_other_formats_are_the_items_that_openai_has_for_them(name: str) -> None:
    raw, expected = BLOCKS[name]
    assert StoredItemViews(entry_of(raw, position=0)).canonical("x_1") == {"id": "x_1", **expected}


@pytest.mark.parametrize("name", CANONICAL)
def test_items_in_their_canonical_form(name: str) -> None:
    raw, expected = CANONICAL[name]
    found = views_of(given_item(raw, known=False)).canonical("x_1")
    assert found == (expected if raw.get("type") == "hologram" else {"id": "x_1", **expected})


def test_reasoning_of_another_provider_does_not_go_to_openai() -> None:
    item = {
        "type": "reasoning",
        "origin": "messages",
        "encrypted_content": "sig",
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }
    found = StoredItemViews(entry_of(item, position=0)).canonical("rs_1")
    assert found == {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }


@pytest.mark.parametrize("origin", [None, "messages"])
def test_parts_of_unknown_types_become_text(origin: str | None) -> None:
    part = {"type": "novel", "x": [1]}
    raw = {"type": "message", "role": "user", "content": [part], **({"origin": origin} if origin else {})}
    found = StoredItemViews(entry_of(raw, position=0)).canonical("x_1")
    assert found["content"] == [{"type": "input_text", "text": '{"type":"novel","x":[1]}'}]
    check(found)


def test_parts_that_openai_may_have_tomorrow_pass_as_they_are() -> None:
    part = {"type": "novel", "x": [1]}
    ((item,),) = OWN.parse_turns([{"role": "user", "content": [part]}])
    assert views_of(item).canonical("x_1")["content"] == [part]
