"""Requests of Chat Completions are read, and go back as they came."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from tests.formats.spelling_chat_completion import levelled
from threadkeep.domain.call_kinds import MISSING_OUTPUT
from threadkeep.domain.rendering import ImportInfo, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("chat_completion")
PNG = "data:image/png;base64,aW1n"


def request(*messages: Any, **keys: Any) -> Json:
    return {"model": "m", **keys, "messages": list(messages)}


def user(content: Any = "Hi", **keys: Any) -> Json:
    return {"role": "user", "content": content, **keys}


def assistant(content: Any = None, **keys: Any) -> Json:
    return {"role": "assistant", "content": content, **keys}


def call(call_id: str = "c1", arguments: Any = "{}", **keys: Any) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": "lookup", "arguments": arguments}, **keys}


def output(call_id: str = "c1", content: Any = "done", **keys: Any) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **keys}


def again(payload: Json) -> Json:
    """The request after it was read and rendered; nothing may be lost or repaired on the way."""
    before = copy.deepcopy(payload)
    rendered = FORMAT.render(FORMAT.parse_request(payload))
    assert (rendered.losses, rendered.repairs) == ([], [])
    assert payload == before
    return rendered.payload


def items(*messages: Any) -> list[Json]:
    return [item.to_object() for item in FORMAT.parse_request(request(*messages)).items]


def parts(content: Any) -> list[Json]:
    """The canonical parts of a user message, without origin and native keys."""
    (item,) = items(user(content))
    return [{k: v for k, v in part.items() if k not in ("native", "spelling")} for part in item["content"]]


SAME = {
    "strings": request({"role": "system", "content": "Be brief."}, user(), assistant("Yes."), user("And?")),
    "lists": request(user([{"type": "text", "text": "Hi"}]), assistant([{"type": "text", "text": "Yes."}])),
    "both": request(user("Hi"), user([{"type": "text", "text": "Hi"}]), assistant("")),
    "instructions as list": request({"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, user()),
    "marked instructions": request(
        {"role": "system", "content": [{"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}]},
        user([{"type": "text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit"}}]),
    ),
    "instructions alone": request({"role": "system", "content": "Be brief."}),
    "empty instructions": request({"role": "system", "content": ""}, user("")),
    "named instructions": request({"role": "system", "content": "Be brief.", "name": "editor"}, user()),
    "two systems and a developer": request(
        {"role": "system", "content": "One."}, {"role": "system", "content": "Two."},
        {"role": "developer", "content": "Three."}, user(name="ann"),
    ),
    "roles of one server": request(user(), {"role": "critic", "content": "Hm."}, {"role": "ipython", "content": None}),
    "null content beside calls": request(user(), assistant(None, tool_calls=[call()]), output()),
    "no content beside calls": request(user(), {"role": "assistant", "tool_calls": [call()]}, output()),
    "empty content beside calls": request(user(), assistant("", tool_calls=[call()]), output()),
    "text beside calls": request(user(), assistant("Looking.", tool_calls=[call()]), output(name="lookup")),
    "null content": request(user(), assistant(None), assistant(""), {"role": "assistant"}, user(None)),
    "outputs": request(
        user(), assistant(None, tool_calls=[call("a"), call("b"), call("c"), call("d"), call("e")]), output("b", ""),
        output("a", None), output("c", [{"type": "text", "text": "1"}]), output("e", []),
        {"role": "tool", "tool_call_id": "d"},
    ),
    "output of pictures": request(
        user(), assistant(None, tool_calls=[call()]),
        output(content=[{"type": "text", "text": "1"}, {"type": "image_url", "image_url": {"url": PNG}}]),
    ),
    "reasoning": request(
        user(), assistant("4", reasoning_content="2 + 2", reasoning="", vendor_key=None),
        user(), assistant(None, reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}], tool_calls=[call()]),
        output(), assistant("4", reasoning_content=""), assistant(None, reasoning="only"),
    ),
    "thinking": request(
        user(),
        assistant([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "4"}]),
    ),
    "signatures": request(
        user(), assistant(None, tool_calls=[call(extra_content={"google": {"thought_signature": "abc="}})]), output(),
    ),
    "audio": request(
        user([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]),
        assistant(None, audio={"id": "au_1"}), assistant(None, audio={"id": "au_2", "data": "AAAA"}),
    ),
    "refusals": request(
        user(), assistant(None, refusal="No."), user(), assistant([{"type": "refusal", "refusal": "No."}]),
        user(), assistant("Well.", refusal="No."), assistant("", refusal="No."), assistant("Yes.", refusal=""),
    ),
    "annotations": request(
        user(), assistant("See.", annotations=[{"type": "url_citation", "url_citation": {"url": "u"}}], prefix=True),
        assistant(None, annotations=[{"type": "x"}], tool_calls=[call()]), output(),
    ),
    "old functions": request(
        user(), assistant(None, function_call={"name": "f", "arguments": "{}"}),
        {"role": "function", "name": "f", "content": "1"},
        functions=[{"name": "f", "parameters": {"type": "object"}}], function_call={"name": "f"},
    ),
    "calls of all kinds": request(
        user(),
        assistant(tool_calls=[
            {"id": "a", "function": {"name": "f", "arguments": {"n": 1}}, "index": 0},
            {"id": "b", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
            {"id": "c", "type": "function", "function": {"name": "my.tool", "arguments": "{"}},
            {"id": "d", "type": "builtin_function", "function": {"name": "$web_search", "arguments": ""}},
            {"id": "e", "type": "function", "function": {"name": "f"}},
            {"id": "f", "type": "function", "function": {"name": "f", "arguments": None, "lane": 1}},
        ]),
        output("a"), output("b"), output("c"), output("d"), output("e"), output("f"),
    ),
    "ids that are empty or come twice": request(
        user(), assistant(tool_calls=[call(""), call("")]), output("", "1"), output("", "2"),
        user(), assistant(tool_calls=[call("a"), call("a")]), output("a", "1"), output("a", "2"),
    ),
    "odd messages": request(
        user(), assistant(tool_calls=[{"function": {}}]), assistant(7), assistant("x", tool_calls=[1]),
        {"role": "tool", "content": "no id"}, {"content": "no role"}, {"role": 5}, assistant("x", annotations="y"),
    ),
    "what was unpaired": request(user(), assistant(tool_calls=[call("a")]), user(), output("z")),
    "outputs elsewhere": request(
        user(), assistant(tool_calls=[call("a"), call("b")]), output("a"), user(), output("b"),
    ),
    "options": request(
        user("JSON!"), temperature=0, top_p=1, max_completion_tokens=9, stream=True, store=False,
        stream_options={"include_usage": True}, reasoning_effort="low", verbosity="low", metadata={"a": "b"},
        logprobs=True, top_logprobs=2, stop=["x"], seed=7, n=2, user="u1",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": True}},
    ),
    "options in old words": request(
        user(), max_tokens=9, tool_choice="any", parallel_tool_calls=False, logprobs=True,
        tools=[{"function": {"name": "f", "description": "", "parameters": {}}}],
    ),
    "options that do not fit": request(
        user(), max_tokens=9, max_completion_tokens=8, temperature="hot", metadata={"a": "x" * 600}, tool_choice="auto",
        parallel_tool_calls=True, stream_options={"include_usage": True}, reasoning_effort=3, model=None,
        response_format={"type": "json_schema", "json_schema": {"name": "my schema", "schema": {}, "strict": None}},
    ) | {"model": "m"},
    "keys of servers": request(
        user(), provider={"order": ["x"]}, reasoning={"enabled": True}, thinking={"type": "disabled"}, lane=None,
        models=["a", "b"], top_k=3, stream=True, stream_options={"include_usage": True, "lane": 1},
    ),
    "tools": request(
        user(),
        tools=[
            {"type": "function", "function": {"name": "f", "strict": False, "lane": 1}, "cache_control": {"type": "x"}},
            {"type": "function", "function": {"name": "my.tool"}},
            {"type": "web_search", "filters": {}}, {"type": "custom", "custom": {"name": "sql"}},
            {"type": "function", "function": {"name": ""}}, "odd",
        ],
        tool_choice={"type": "function", "function": {"name": "f"}}, parallel_tool_calls=False,
    ),
    "choices of one server": request(
        user(), tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    ),
    "odd tools": request(user(), tools={"a": 1}, functions=[{"name": 1}], tool_choice={"type": "function"}),
    "parts": request(
        user([
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low", "format": "png"}, "cache_control": {}},
            {"type": "image_url", "image_url": "https://img.example.org/a.png"},
            {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg%3E"}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}},
            {"type": "file", "file": {"file_data": "https://docs.example.org/a.pdf", "lane": 1}},
            {"type": "file", "file": {"file_data": "data:audio/wav;base64,UklG"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
            {"type": "input_audio", "input_audio": {"data": "x", "format": "mpeg"}},
            {"type": "input_audio", "input_audio": "SUQz"},
            {"type": "video_url", "video_url": {"url": "https://v.example.org/a.mp4", "fps": 2}},
            {"type": "video_url", "video_url": "https://v.example.org/a.mp4"},
            {"type": "document_url", "document_url": "https://docs.example.org/a.pdf", "document_name": "a"},
            {"type": "document_url", "document_url": "data:application/pdf;base64,JVBE"},
            {"type": "reference", "reference_ids": [1]}, {"text": "untyped"}, "bare", 7, None,
            {"type": "text", "text": 7}, {"type": "image_url", "image_url": {"url": 7}}, {"type": "file", "file": {}},
        ]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_a_request_goes_back_as_it_came(name: str) -> None:
    assert again(SAME[name]) == {key: value for key, value in SAME[name].items() if value is not None or key == "lane"}


LEVELLED = {
    "nulls": request(
        user(name=None, tool_calls=None), assistant("Yes.", refusal=None, annotations=[]), temperature=None
    ),
    "empty lists": request(user(), assistant("Yes.", tool_calls=[]), tools=[]),
    "empty list beside calls": request(user(), assistant([], tool_calls=[call()]), output()),
    "null in parts": request(user([{"type": "text", "text": "Hi", "image_url": None}])),
    "some tools without type": request(
        user(), tools=[{"function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]
    ),
}


@pytest.mark.parametrize("name", LEVELLED)
def test_a_request_goes_back_in_the_same_words(name: str) -> None:
    assert levelled(again(LEVELLED[name])) == levelled(LEVELLED[name])


def test_what_other_formats_understand_is_canonical() -> None:
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "https://v.example.org/a.mp4"}},
        {"type": "document_url", "document_url": "https://docs.example.org/a.pdf"},
    ]
    assert parts(content) == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"},
        {"type": "input_file", "file_data": "data:audio/mpeg;base64,SUQz"},
        {"type": "input_video", "video_url": "https://v.example.org/a.mp4"},
        {"type": "input_file", "file_url": "https://docs.example.org/a.pdf"},
    ]


def test_each_message_is_a_turn_and_its_items_stand_in_order() -> None:
    session = FORMAT.parse_request(
        request(user(), assistant("Yes.", reasoning_content="hm", tool_calls=[call()]), output(), user())
    )
    assert [item.type for item in session.items] == [
        "message", "reasoning", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert session.turns == [0, 1, 1, 1, 2, 3]
    assert session.imported is not None
    assert (session.imported.format, session.imported.count) == ("chat_completion", 6)


def test_options_and_tools_are_those_of_all_formats() -> None:
    session = FORMAT.parse_request(
        request(
            {"role": "system", "content": "Be brief."}, user(), max_tokens=9, temperature=1, tool_choice="any",
            reasoning_effort="low", functions=[{"name": "odd", "lane": 1}], stop="x",
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
            tools=[{"type": "function", "function": {"name": "f", "strict": True}}],
        )
    )  # fmt: skip
    assert session.settings == {
        "model": "m", "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 1.0,
        "tool_choice": "required", "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
        "extra": {"chat_completion": {"stop": "x", "functions": [{"name": "odd", "lane": 1}]}},
    }  # fmt: skip
    assert session.tools == [{"type": "function", "name": "f", "strict": True}]


def test_model_and_stream_say_what_the_request_does_not() -> None:
    session = FORMAT.parse_request({"messages": [user()]}, model="m", stream=True)
    assert (session.model, session.stream) == ("m", True)
    assert FORMAT.parse_request(request(user(), stream=False), model="other", stream=True).settings == {
        "model": "m", "stream": False,
    }  # fmt: skip


def test_what_is_appended_is_spelled_like_the_request() -> None:
    strings = FORMAT.parse_request(request(user(), assistant("Yes.")))
    strings.add_response({"choices": [{"message": {"content": "Sure."}, "finish_reason": "stop"}]}, "chat_completion")
    strings.user("And?")
    assert [message["content"] for message in strings.request_payload("chat_completion")["messages"]] == [
        "Hi", "Yes.", "Sure.", "And?",
    ]  # fmt: skip
    lists = FORMAT.parse_request(request(user([{"type": "text", "text": "Hi"}])))
    lists.user("And?")
    assert lists.request_payload("chat_completion")["messages"][1] == user([{"type": "text", "text": "And?"}])


def test_calls_that_an_append_leaves_alone_are_mended_and_old_ones_stay() -> None:
    session = FORMAT.parse_request(request(user(), assistant(tool_calls=[call("a")]), user("Never mind.")))
    reply = {"choices": [{"message": {"tool_calls": [call("b")]}, "finish_reason": "tool_calls"}]}
    session.add_response(reply, "chat_completion")
    session.user("And?")
    messages = session.request_payload("chat_completion")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "tool", "user"]
    assert messages[4]["content"] == MISSING_OUTPUT


def test_an_output_of_an_imported_call_may_come_later() -> None:
    payload = request(user(), assistant(tool_calls=[call("a")]))
    session = FORMAT.parse_request(payload)
    assert session.render("chat_completion").stable == 1
    session.add_items([item for turn in FORMAT.parse_turns(output("a")) for item in turn])
    assert session.request_payload("chat_completion")["messages"] == [*payload["messages"], output("a")]


def test_a_cut_mends_what_it_left_alone() -> None:
    session = FORMAT.parse_request(
        request(user(), assistant("", tool_calls=[call("a"), call("b")]), output("a"), user())
    )
    messages = FORMAT.render(session, RenderOptions(upto=1)).payload["messages"]
    assert [message.get("tool_call_id") for message in messages] == [None, None, "a"]
    assert messages[-1]["content"] == MISSING_OUTPUT


def test_a_cut_between_reasoning_and_calls_leaves_a_message_with_content() -> None:
    session = FORMAT.parse_request(
        request(user(), {"role": "assistant", "reasoning_content": "hm", "tool_calls": [call()]}, output())
    )
    assert FORMAT.render(session, RenderOptions(upto=1)).payload["messages"][1] == assistant("", reasoning_content="hm")


def test_turns_are_read_one_by_one() -> None:
    assert len(FORMAT.parse_turns(user())) == 1
    assert [[item.type for item in turn] for turn in FORMAT.parse_turns([user(), output()])] == [
        ["message"], ["function_call_output"],
    ]  # fmt: skip
    assert len(FORMAT.parse_turns('[{"role": "user", "content": "Hi"}]')) == 1


@pytest.mark.parametrize("payload", [{}, [], None, 1, "x", {"messages": {}}, {"messages": ["Hi"]}, {"contents": []}])
def test_what_is_no_request_is_refused(payload: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_request(payload)


@pytest.mark.parametrize("turns", [None, 1, "x", ["Hi"], [1]])
def test_what_are_no_turns_is_refused(turns: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_turns(turns)


def test_keys_that_say_nothing_are_no_loss_elsewhere() -> None:
    session = FORMAT.parse_request(
        request(
            user(name=None),
            assistant("", prefix=False, reasoning_content="", annotations=[], tool_calls=[call(index=0)]),
            output(),
            assistant("Yes.", prefix=False, refusal=None),
        )
    )
    rendered = session.render("open_responses")
    assert (rendered.losses, rendered.repairs) == ([], [])
    assert session.request_payload("chat_completion")["messages"][1]["prefix"] is False


def test_cache_breakpoints_are_sent_whoever_set_them() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    session = Session(model="m")
    session.user([{"type": "input_text", "text": "Long.", **mark}, {"type": "input_image", "image_url": PNG, **mark}])
    content = session.request_payload("chat_completion")["messages"][0]["content"]
    assert [part["prompt_cache_breakpoint"] for part in content] == [mark["prompt_cache_breakpoint"]] * 2


def test_json_mode_needs_the_word_unless_the_request_came_without_it() -> None:
    """OpenAI refuses JSON mode without the word JSON in the messages; other formats and servers do not."""
    form = {"type": "json_object"}
    without = request(user("Hi"), response_format=form)
    assert again(without) == without
    session = FORMAT.parse_request(request(user("Hi"), user("As JSON."), response_format=form))
    rendered = FORMAT.render(session, RenderOptions(upto=0))
    assert "response_format" not in rendered.payload
    assert [repair.code for repair in rendered.repairs] == ["option"]
    assert session.request_payload("chat_completion")["response_format"] == form
    foreign = Session(model="m", input="Hi", text={"format": form})
    foreign.imported = ImportInfo("gemini", 1)
    assert "response_format" not in foreign.request_payload("chat_completion")
    foreign.user([{"type": "input_text", "text": "As json."}])
    assert foreign.request_payload("chat_completion")["response_format"] == form


def test_odd_notes_of_spelling_do_no_harm() -> None:
    """Notes are kept with the conversation, where a user may have written something else into them."""
    session = FORMAT.parse_request(SAME["calls of all kinds"])
    odd = [1], {"content": [1], "keys": 1, "index": {}}, "x"
    for number, item in enumerate(session.items):
        session.add_item({**item.to_object(), "spelling": odd[number % 3]})
    session.imported = ImportInfo("chat_completion", 2, {"content": [1], "tools": 5, "order": {}})
    assert session.request_body("chat_completion")


# Anything


TEXTS = st.sampled_from(["Hi", "", "{}", "木", "stop"])
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 2), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["type", "text", "url", "id", "lane"]), inner, max_size=2),
    ),
    max_leaves=4,
)


def objects(needed: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Json]:
    """Objects with some of these keys, whose values are now and then of another kind."""
    loose = {key: st.one_of(value, value, value, value, ANYTHING) for key, value in optional.items()}
    return st.fixed_dictionaries(needed, optional=loose)


def tagged(*kinds: str) -> st.SearchStrategy[str]:
    return st.sampled_from(kinds)


INNER = objects(
    {}, {"url": st.sampled_from([PNG, "https://x.example.org/a"]), "detail": TEXTS, "data": TEXTS, "file_id": TEXTS,
         "format": tagged("wav", "mp3", "mpeg", "a b"), "file_data": tagged(PNG, "data:audio/wav;base64,AA=="),
         "filename": TEXTS},
)  # fmt: skip
WIRE_PARTS = objects(
    {},
    {
        "type": tagged("text", "image_url", "file", "input_audio", "video_url", "document_url", "refusal", "thinking"),
        "text": TEXTS, "refusal": TEXTS, "image_url": INNER, "file": INNER, "input_audio": INNER, "video_url": INNER,
        "document_url": TEXTS, "cache_control": ANYTHING, "prompt_cache_breakpoint": ANYTHING,
    },
)  # fmt: skip
FUNCTIONS = objects({}, {"name": tagged("f", "my.tool"), "arguments": TEXTS, "lane": ANYTHING})
CALLS = objects(
    {"id": tagged("a", "b")},
    {"type": tagged("function", "custom"), "function": FUNCTIONS, "index": st.just(0), "extra_content": ANYTHING},
)
CONTENT = st.one_of(TEXTS, st.lists(st.one_of(WIRE_PARTS, TEXTS), max_size=3))
MESSAGES = objects(
    {"role": tagged("user", "assistant", "assistant", "assistant", "tool", "system", "function", "critic")},
    {
        "content": CONTENT, "tool_calls": st.lists(CALLS, max_size=2), "tool_call_id": tagged("a", "b"),
        "reasoning_content": TEXTS, "reasoning_details": ANYTHING, "refusal": TEXTS, "audio": INNER, "name": TEXTS,
        "annotations": st.lists(objects({}, {"type": TEXTS}), max_size=1), "function_call": FUNCTIONS,
        "prefix": ANYTHING,
    },
)  # fmt: skip
TOOLS = objects(
    {}, {"type": tagged("function", "web_search"), "cache_control": ANYTHING,
         "function": objects({}, {"name": TEXTS, "description": TEXTS, "strict": st.booleans(), "lane": ANYTHING})},
)  # fmt: skip
REQUESTS = objects(
    {"messages": st.lists(MESSAGES, min_size=1, max_size=5), "model": st.just("m")},
    {
        "tools": st.lists(TOOLS, max_size=2), "tool_choice": tagged("auto", "any", "none"),
        "parallel_tool_calls": st.booleans(), "max_tokens": st.integers(1, 9), "max_completion_tokens": st.just(9),
        "stream": st.booleans(), "stream_options": objects({}, {"include_usage": st.booleans()}), "stop": TEXTS,
        "functions": st.lists(objects({}, {"name": TEXTS}), max_size=1), "function_call": tagged("auto"),
        "logprobs": st.booleans(), "top_logprobs": st.integers(0, 3), "reasoning_effort": TEXTS, "metadata": ANYTHING,
        "response_format": objects({}, {"type": tagged("json_schema", "text"), "json_schema": ANYTHING}),
        "temperature": st.floats(0, 2), "lane": ANYTHING,
    },
)  # fmt: skip


@given(payload=REQUESTS)
def test_any_request_goes_back_in_the_same_words(payload: Json) -> None:
    """Whatever servers may take: only spelling differs."""
    before = copy.deepcopy(payload)
    rendered = FORMAT.render(FORMAT.parse_request(payload))
    assert levelled(rendered.payload) == levelled(payload)
    assert (rendered.losses, rendered.repairs) == ([], [])
    assert payload == before


@given(payload=st.one_of(JSON, REQUESTS, st.lists(MESSAGES | JSON, max_size=3).map(lambda turns: {"messages": turns})))
def test_any_json_is_read_or_refused(payload: Any) -> None:
    before = repr(payload)
    try:
        session = FORMAT.parse_request(payload)
    except CannotParse:
        session = FORMAT.parse_request(request(user()))
    for upto in range(-1, len(session.items)):
        with contextlib.suppress(CannotRender):
            assert FORMAT.render(session, RenderOptions(upto=upto)).body
    assert repr(payload) == before


@given(turns=st.one_of(JSON, st.lists(MESSAGES | JSON, max_size=3)))
def test_any_turns_are_read_or_refused(turns: Any) -> None:
    before = repr(turns)
    try:
        found = FORMAT.parse_turns(turns)
    except CannotParse:
        found = []
    assert isinstance(found, list)
    assert repr(turns) == before


@given(first=st.lists(MESSAGES, min_size=1, max_size=4), appends=st.lists(st.lists(MESSAGES, max_size=2), max_size=4))
def test_the_stable_part_of_an_imported_conversation_stays(first: list[Json], appends: list[list[Json]]) -> None:
    session = FORMAT.parse_request(request(*first))
    before: list[Any] = []
    stable = 0
    for append in [[], *appends]:
        for turn in FORMAT.parse_turns(append):
            session.add_items(turn, turn=session.new_turn())
        rendered = FORMAT.render(session)
        messages = rendered.payload["messages"]
        assert messages[:stable] == before[:stable]
        before, stable = messages, rendered.stable


def test_a_request_whose_tools_without_type_were_taken_away_has_no_tools() -> None:
    session = FORMAT.parse_request(request(user(), tools=[{"function": {"name": "lookup"}}]))
    session.clear_tools()
    assert "tools" not in FORMAT.render(session).payload
