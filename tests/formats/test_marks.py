"""Cache marks that requests get on what they repeat."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.factories import Json, assistant, call, output, render, user
from threadkeep.domain.rendering import RenderOptions
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.shared.cache_marks import MARK, MOST, mark_messages, mark_request

SHORT, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
AUTO = RenderOptions(cache="auto")
POINT = {"cachePoint": {"type": "default"}}
TOOL: Json = {"type": "function", "name": "lookup", "parameters": {"type": "object", "properties": {}}}


def block(mark: Json | None = None, **keys: Any) -> Json:
    return {"type": "text", "text": "b", **keys, **({MARK: mark} if mark else {})}


def body(*contents: Any, **keys: Any) -> Json:
    roles = ("user", "assistant")
    return {**keys, "messages": [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]}


def marks(found: Json) -> list[Any]:
    """The marks of the blocks of all messages."""
    contents = [message["content"] for message in found["messages"] if isinstance(message["content"], list)]
    return [one.get(MARK) for content in contents for one in content]


def test_the_last_block_of_the_last_message_is_marked_whatever_it_is() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    assert marks(mark_messages(body([block()], [block()], [block(), result]))) == [None, None, None, SHORT]


@pytest.mark.parametrize(
    "content",
    ["Hi", None, [], [{"type": "thinking", "thinking": "", "signature": "s"}], [{"type": "text", "text": ""}]],
)
def test_what_takes_no_mark_is_left_alone(content: Any) -> None:
    given_body = body([block()], content)
    assert mark_messages(given_body) is given_body


@pytest.mark.parametrize("odd", [{}, {"input": "x"}, {"messages": "x"}, {"messages": []}, {"messages": ["x", 1]}])
def test_other_bodies_are_left_alone(odd: Json) -> None:
    assert mark_messages(odd) is odd


@pytest.mark.parametrize(("count", "expected"), [(20, [19]), (21, [5, 20]), (25, [9, 24])])
def test_long_conversations_have_a_second_mark(count: int, expected: list[int]) -> None:
    found = marks(mark_messages(body([block() for _ in range(count)])))
    assert [index for index, mark in enumerate(found) if mark] == expected


def test_the_oldest_marks_of_messages_go_first_and_others_stay() -> None:
    given_body = body([block(SHORT)], [block(SHORT)], [block(SHORT)], system=[block(SHORT)], tools=[{MARK: SHORT}])
    found = mark_messages(given_body)
    assert marks(found) == [None, SHORT, SHORT]
    assert (found["system"], found["tools"]) == (given_body["system"], given_body["tools"])


def test_without_room_nothing_is_marked() -> None:
    given_body = body([block()], system=[block(SHORT)] * 4)
    assert mark_messages(given_body) is given_body


def test_marks_in_results_and_of_the_request_count() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": [block(SHORT)]}
    assert marks(mark_messages(body([block(SHORT)] * 3, [block()], [result]))) == [None, SHORT, SHORT, None, SHORT]
    assert marks(mark_messages(body([block()], cache_control=SHORT))) == [None]


def test_an_hour_is_never_behind_five_minutes() -> None:
    found = mark_request(body([block()], [block(HOUR)], [block()], system=[block()], tools=[{"name": "f"}]))
    assert [found["tools"][0][MARK], found["system"][0][MARK], *marks(found)] == [HOUR, HOUR, None, HOUR, SHORT]


def test_tools_and_system_text_that_are_marked_get_no_other_mark() -> None:
    tools = [{"name": "f", MARK: HOUR}, {"name": "g"}]
    assert mark_request(body([block()], tools=tools))["tools"] == tools


def test_tools_whose_loading_is_deferred_take_no_mark() -> None:
    tools = [{"name": "f"}, {"name": "g", "defer_loading": True}]
    assert mark_request(body([block()], tools=tools))["tools"] == [{"name": "f", MARK: SHORT}, tools[1]]


BLOCKS = st.builds(block, st.sampled_from([None, None, SHORT, HOUR]))
CONTENTS = st.one_of(st.just("Hi"), st.lists(BLOCKS, max_size=12))


@given(
    contents=st.lists(CONTENTS, max_size=6),
    leading=st.fixed_dictionaries(
        {},
        optional={"system": st.lists(BLOCKS, max_size=2), "tools": st.lists(BLOCKS, max_size=2), MARK: st.just(HOUR)},
    ),
)
def test_marking_twice_is_marking_once_and_changes_nothing_else(contents: list[Any], leading: Json) -> None:
    given_body = body(*contents, **leading)
    before = copy.deepcopy(given_body)
    found = mark_request(given_body)
    assert given_body == before
    assert mark_request(found) == found
    assert without_marks(found) == without_marks(given_body)
    fixed = str([leading.get("system"), leading.get("tools")]).count(MARK) + (MARK in leading)
    assert str(found).count(f"'{MARK}'") <= max(MOST, fixed)


def without_marks(thing: Any) -> Any:
    if isinstance(thing, list):
        return [without_marks(one) for one in thing]
    return {k: without_marks(v) for k, v in thing.items() if k != MARK} if isinstance(thing, dict) else thing


def test_messages_that_are_texts_of_a_request_stay_texts() -> None:
    request = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    session = get_format("messages").parse_request(request)
    assert session.request_payload("messages", cache="auto") == request


# Converse


def test_converse_gets_points_behind_tools_system_text_and_the_last_two_messages() -> None:
    items = [user("a"), call("k"), output("k"), user("b")]
    found = render("converse", *items, options=AUTO, tools=[TOOL], instructions="Be brief.").payload
    assert found["toolConfig"]["tools"][1:] == [POINT]
    assert found["system"] == [{"text": "Be brief."}, POINT]
    assert [content["content"][-1] == POINT for content in found["messages"]] == [False, True, True]
    assert [next(iter(one)) for one in found["messages"][2]["content"]] == ["toolResult", "text", "cachePoint"]


@pytest.mark.parametrize(
    ("model", "places"),
    [
        ("us.anthropic.claude-sonnet-4-6", 3),
        ("amazon.nova-2-lite-v1:0", 2),
        ("anthropic.claude-3-haiku-20240307-v1:0", 0),
        ("meta.llama3-70b", 0),
        ("tuned", 3),
    ],
)
def test_points_are_for_models_that_take_them(model: str, places: int) -> None:
    found = render("converse", user("a"), options=AUTO, model=model, tools=[TOOL], instructions="Be brief.").payload
    assert str(found).count("cachePoint") == places


def test_points_of_the_user_are_kept_and_count() -> None:
    def asked(text: str, point: Any) -> Json:
        return {"type": "input_text", "text": text, "cache_point": point}

    items = [user(asked("a", True), asked("b", True)), assistant("c"), user(asked("d", {"ttl": "1h"}))]
    found = render("converse", *items, options=AUTO, instructions="Be brief.").payload
    assert found["system"][1:] == [{"cachePoint": {"type": "default", "ttl": "1h"}}]
    assert [str(message).count("cachePoint") for message in found["messages"]] == [2, 0, 1]


def test_no_point_stands_behind_reasoning() -> None:
    thought = {"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    items = [user("a"), {**thought, "origin": "converse"}]
    found = render("converse", *items, options=AUTO).payload
    assert [str(message).count("cachePoint") for message in found["messages"]] == [1, 0]


@pytest.mark.parametrize("format_name", ["open_responses", "chat_completion"])
def test_where_caches_need_no_marks_there_are_none(format_name: FormatName) -> None:
    items = [user("a"), assistant("b"), user("c")]
    assert render(format_name, *items, options=AUTO).body == render(format_name, *items).body


@pytest.mark.parametrize(
    ("format_name", "options"),
    [
        ("messages", {}),
        ("converse", {}),
        ("chat_completion", {"dialect": "openrouter", "model": "anthropic/claude-sonnet-4.5"}),
    ],
    ids=["messages", "converse", "openrouter"],
)
@pytest.mark.parametrize("trigger", [[user("b")], [user("b"), call("k"), output("k", "r")]], ids=["question", "loop"])
def test_what_stands_behind_a_dynamic_context_is_not_marked(
    format_name: FormatName, options: Json, trigger: list[Json]
) -> None:
    """The next request has another one, and finds the last mark before it."""
    tail = RenderOptions(cache="auto", dynamic_context={"now": "12:00"}, dynamic_context_at="tail")
    items = [user("a"), assistant("c"), *trigger]
    messages = render(format_name, *items, options=tail, instructions="Be brief.", **options).payload["messages"]
    place = next(place for place, message in enumerate(messages) if "12:00" in str(message))
    last = messages[place - 1]["content"][-1]
    assert MARK in last or "cachePoint" in last
    assert not any(word in str(messages[place:]) for word in (MARK, "cachePoint"))


def test_a_mark_of_the_user_behind_a_dynamic_context_counts() -> None:
    tail = RenderOptions(cache="auto", dynamic_context={"now": "12:00"}, dynamic_context_at="tail")
    own = {"type": "input_text", "text": "b", MARK: SHORT}
    found = render("messages", user("a"), assistant("c"), user(own), options=tail).payload
    assert marks(found)[-1] == SHORT


# Marks by the name of the Responses API


BREAKPOINT: Json = {"prompt_cache_breakpoint": {"mode": "explicit"}}
MARKED = [
    {"type": "input_text", "text": "Long text.", **BREAKPOINT},
    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", **BREAKPOINT},
    {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf", **BREAKPOINT},
]


@pytest.mark.parametrize("part", MARKED, ids=lambda part: part["type"])
def test_a_breakpoint_of_the_responses_api_is_a_cache_mark_of_messages(part: Json) -> None:
    message = {"type": "message", "role": "user", "content": [part, {"type": "input_text", "text": "Sum it up."}]}
    rendered = render("messages", message, model="claude-sonnet-5")
    first, last = rendered.payload["messages"][0]["content"]
    assert (first["cache_control"], "cache_control" in last) == ({"type": "ephemeral"}, False)
    assert rendered.losses == []


@pytest.mark.parametrize("format_name", ["gemini", "converse", "pydantic_ai"])
@pytest.mark.parametrize("part", MARKED, ids=lambda part: part["type"])
def test_a_breakpoint_is_reported_where_there_is_no_such_mark(format_name: FormatName, part: Json) -> None:
    rendered = render(format_name, user(part, "Sum it up."))
    assert ("cache_mark", "content[0].prompt_cache_breakpoint") in [(one.code, one.path) for one in rendered.losses]


@pytest.mark.parametrize("format_name", ["gemini", "converse", "messages", "pydantic_ai"])
def test_a_breakpoint_in_an_output_is_reported(format_name: FormatName) -> None:
    rendered = render(format_name, user("x"), call("k"), output("k", [MARKED[0]]))
    assert [(one.code, one.path) for one in rendered.losses] == [("cache_mark", "output[0].prompt_cache_breakpoint")]


@pytest.mark.parametrize("format_name", ["open_responses", "chat_completion"])
def test_openai_gets_its_breakpoints(format_name: FormatName) -> None:
    rendered = render(format_name, user(MARKED[0], "Sum it up."))
    turns = rendered.payload[get_format(format_name).signs.turns]
    assert turns[0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
