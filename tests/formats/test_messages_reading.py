"""Reading requests of the Messages API: settings, tools and items, and that they give the request back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.formats.factories import assistant, call, output, user
from tests.formats.messages_factories import FORMAT, SIGNED
from threadkeep.domain.rendering import RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import Snapshot, entry_of

MARK = {"type": "ephemeral"}
WIRE = get_format(FORMAT)
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}


def request(*messages: Any, **keys: Any) -> dict[str, Any]:
    found = {"role": "user", "content": "Hi"}
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, **keys, "messages": list(messages) or [found]}


def said(role: str, *content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content), **keys}


def text(value: str, **keys: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **keys}


def items(session: Session) -> list[dict[str, Any]]:
    return [item.to_object() for item in session.items]


USE = {"type": "tool_use", "id": "a", "name": "lookup", "input": {"q": [1, None]}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
EXACT = {
    "a string": request({"role": "user", "content": "Hi"}),
    "strings and a list": request(
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}, said("user", text("Go")),
    ),
    "lists and a string": request(
        said("user", text("Hi")), said("assistant", text("Yes.")), {"role": "user", "content": "Go"},
    ),
    "an empty text": request({"role": "user", "content": ""}),
    "an empty last message": request(said("user", text("Hi")), said("assistant")),
    "an assistant first": request(said("assistant", text("Hi ")), said("user", text(" "))),
    "white space at the end": request(said("user", text("Hi")), said("assistant", text("The city of "))),
    "keys of messages": request(
        said("user", text("Hi"), clear_at="never"), said("assistant", USE, x=1), said("user", RESULT, y=2),
    ),
    "system text inside": request(
        said("user", text("Hi")), said("system", text("In French.", cache_control=MARK), {"type": "tool_addition"}),
    ),
    "neighbours": request(said("user", text("a")), said("user", text("b")), said("assistant", text("c"))),
    "thinking of neighbours": request(
        said("user", text("a")), said("assistant", SIGNED, text("b")), said("assistant", SIGNED, text("c")),
    ),
    "results behind two messages": request(
        said("user", text("a")), said("assistant", USE), said("assistant", {**USE, "id": "b"}),
        said("user", RESULT, {**RESULT, "tool_use_id": "b"}),
    ),
    "unpaired": request(said("user", RESULT), said("assistant", USE), said("user", text("Go"))),
    "results": request(
        said("user", text("Hi")),
        said("assistant", text("Well."), USE, {**USE, "id": "b", "caller": {"type": "direct"}}),
        said(
            "user", {"type": "tool_result", "tool_use_id": "b", "is_error": True, "cache_control": MARK},
            {**RESULT, "is_error": False, "content": [text("x"), {"type": "tool_reference", "tool_name": "f"}]},
            text("Go on"),
        ),
    ),
    "media": request(
        said(
            "user",
            {"type": "image", "source": {"type": "url", "url": "https://x.example.org/a.png"}, "cache_control": MARK},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}},
            {"type": "document", "source": PDF, "title": "A", "context": "c", "citations": {"enabled": True}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Größe"}},
            {"type": "document", "source": {"type": "content", "content": [text("x")]}},
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png;x", "data": "aW1n"}},
            {"type": "search_result", "source": "s", "title": "t", "content": [text("x")]},
        ),
    ),
    "odd blocks": request(said("user", "text", {"type": 1}, {"type": "text", "text": 1}, {"type": "image"}, USE)),
    "settings": request(
        temperature=0.5, stream=False, metadata={"user_id": "u"}, stop_sequences=["#"], top_k=3, service_tier="auto",
        container="c",
    ),
    "settings of no option": request(metadata={"user_id": "u", "x": 1}, service_tier="fast", temperature=1.5),
    "thinking": request(
        max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 2000}, output_config={"effort": "low"},
    ),
    "interleaved thinking": request(max_tokens=100, thinking={"type": "enabled", "budget_tokens": 2000}),
    "a task budget": request(output_config={"effort": "low", "task_budget": {"type": "tokens", "total": 9}}),
    "what the model refuses": request(model="claude-opus-4-8", temperature=1, thinking={"type": "enabled"}),
    "no token limit": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "no tools": request(tools=[]),
    "tools": request(
        tools=[
            {"name": "a", "input_schema": {"type": "object"}, "strict": False, "cache_control": MARK},
            {"type": "custom", "name": "b.c", "description": "", "input_schema": {}, "defer_loading": True},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 1},
        ],
        tool_choice={"type": "any", "disable_parallel_tool_use": False},
    ),
    "a choice without tools": request(tool_choice={"type": "auto"}),
    "system text": request(system="Be brief."),
    "no system text": request(system=[]),
    "blank system text": request(system=""),
    "system blocks": request(system=[text("a\n\nb"), text("", cache_control=MARK), text("c", citations=None)]),
    "odd system text": request(system=[{"type": "image"}]),
    "five marks in the wrong order": request(
        said("user", text("Hi", cache_control=MARK), text("Hi", cache_control={**MARK, "ttl": "1h"})),
        cache_control=MARK,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_a_request_comes_back_as_it_was(name: str) -> None:
    before = copy.deepcopy(EXACT[name])
    rendered = WIRE.render(WIRE.parse_request(EXACT[name]))
    assert rendered.payload == before
    assert EXACT[name] == before
    assert rendered.losses == []


def test_a_request_becomes_settings_tools_and_items() -> None:
    session = WIRE.parse_request(
        request(
            said("user", text("Hi"), {"type": "image", "source": {"type": "file", "file_id": "f"}}),
            said("assistant", SIGNED, text("Well."), USE),
            said("user", RESULT, text("Go on")),
            system=[text("Be brief."), text("In French.", cache_control=MARK)],
            thinking={"type": "enabled", "budget_tokens": 2000},
            max_tokens=5000,
            output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
            tools=[{"name": "lookup", "input_schema": {"type": "object"}}],
            tool_choice={"type": "tool", "name": "lookup", "disable_parallel_tool_use": True},
            stop_sequences=["#"],
        )
    )
    assert session.instructions == "Be brief.\n\nIn French."
    assert session.reasoning == {"budget_tokens": 2000}
    assert session.text == {"format": {"type": "json_schema", "name": "response", "schema": {"type": "object"}}}
    assert session.max_output_tokens == 5000
    assert session.extra == {FORMAT: {"stop_sequences": ["#"], "tool_choice": {**CHOICE}}}
    assert [tool["name"] for tool in session.tools] == ["lookup"]
    assert session.turns == [0, 1, 1, 1, 2, 2]
    picture = {"type": "input_image", "file_id": "f"}
    origin = {"origin": FORMAT}
    assert items(session) == [
        user("Hi", picture, **origin),
        {"type": "reasoning", "content": [SIGNED], **origin},
        assistant("Well.", **origin),
        call("a", arguments='{"q":[1,null]}', **origin),
        output("a", **origin),
        user("Go on", **origin),
    ]


CHOICE = {"type": "tool", "name": "lookup", "disable_parallel_tool_use": True}


def test_a_choice_is_an_option_where_the_options_say_it() -> None:
    tools = [{"name": "lookup", "input_schema": {"type": "object"}}]
    session = WIRE.parse_request(request(tools=tools, tool_choice=CHOICE))
    assert session.tool_choice == {"type": "function", "name": "lookup"}
    assert session.parallel_tool_calls is False
    assert session.extra == {}


def test_changed_settings_take_the_place_of_what_the_request_said() -> None:
    session = WIRE.parse_request(request(system=[text("a"), text("b", cache_control=MARK)], tools=[]))
    session.update(instructions="c", max_output_tokens=7)
    session.register_tool("lookup")
    payload = WIRE.render(session).payload
    assert payload["system"] == [text("c")]
    assert payload["max_tokens"] == 7
    assert payload["tools"][0]["name"] == "lookup"


def test_calls_and_outputs_that_a_cut_left_alone_are_mended() -> None:
    session = WIRE.parse_request(EXACT["results"])
    payload = WIRE.render(session, RenderOptions(upto=4)).payload
    assert [block.get("tool_use_id") for block in payload["messages"][-1]["content"]] == ["b", "a"]


def test_what_follows_an_imported_request_joins_only_where_it_must() -> None:
    session = WIRE.parse_request(request(said("user", text("a")), said("user", text("b"))))
    session.user("c")
    assert [len(message["content"]) for message in WIRE.render(session).payload["messages"]] == [1, 2]


def test_turns_are_read_one_by_one() -> None:
    found = WIRE.parse_turns([said("user", RESULT, text("Go on")), {"role": "assistant", "content": "Yes."}])
    assert [[item.type for item in turn] for turn in found] == [["function_call_output", "message"], ["message"]]
    assert [len(turn) for turn in WIRE.parse_turns('{"role":"user","content":"Hi"}')] == [1]


def test_a_message_that_a_client_put_behind_an_answer_goes_before_the_results() -> None:
    """The service joins the two; some clients put calls of their own there."""
    client = said("assistant", {**USE, "id": "b"})
    back = said("user", RESULT, {**RESULT, "tool_use_id": "b"})
    turns = [
        [user("Go")],
        items_of([USE]),
        *([item.to_object() for item in turn] for turn in WIRE.parse_turns([client, back])),
    ]
    flat = [(number, item) for number, turn in enumerate(turns) for item in turn]
    entries = [
        entry_of(item, position=place, turn=number or None, seen=0 if number == 1 else None)
        for place, (number, item) in enumerate(flat)
    ]
    messages = WIRE.render(Snapshot({"model": "m"}, [], entries)).payload["messages"]
    assert messages[1:] == [said("assistant", USE, {**USE, "id": "b"}), back]


def items_of(content: list[Any]) -> list[dict[str, Any]]:
    return [item.to_object() for item in WIRE.parse_response({"content": content}).output]


def test_model_and_stream_say_what_the_payload_does_not() -> None:
    session = WIRE.parse_request({"messages": [said("user", text("Hi"))]}, model="m", stream=True)
    assert (session.model, session.stream) == ("m", True)
    assert WIRE.parse_request(request(stream=False), model="m", stream=True).stream is False


@pytest.mark.parametrize(
    "payload",
    [
        [],
        "{",
        {},
        {"messages": {}},
        {"messages": ["Hi"]},
        {"messages": [{"content": "Hi"}]},
        request(said("user") | {"content": 1}),
    ],
)
def test_what_is_no_request_is_refused(payload: Any) -> None:
    with pytest.raises(CannotParse):
        WIRE.parse_request(payload)
