"""Tools of OpenAI's agents over every upstream: sent as functions, and called as what they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.scripts import ARGUMENTS, FORMATS, Scripted
from tests.server.test_creation import in_front_of
from threadkeep.domain.jsontext import loads
from threadkeep.server.agent_tools import as_functions

pytestmark = pytest.mark.one_database

OTHERS = [name for name in FORMATS if name != "open_responses"]
PATCH: Any = {
    "type": "custom", "name": "look", "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE+"},
}  # fmt: skip
FUNCTION: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
SEARCH: Any = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object"},
}


def space(*tools: Any) -> Any:
    return {"type": "namespace", "name": "eyes", "description": "", "tools": [*tools]}


# what a client offers -> the function that is sent, the arguments of its call, and what the client gets of that
OFFERED: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "custom": (PATCH, "look", '{"input":"+a"}', {"type": "custom_tool_call", "name": "look", "input": "+a"}),
    "custom in a namespace": (
        space(PATCH), "eyes_look", '{"input":"+a"}',
        {"type": "custom_tool_call", "name": "look", "namespace": "eyes", "input": "+a"},
    ),
    "function in a namespace": (
        space(FUNCTION), "eyes_look", '{"a":1}',
        {"type": "function_call", "name": "look", "namespace": "eyes", "arguments": '{"a":1}'},
    ),
    "search": (
        SEARCH, "tool_search", '{"query":"eyes"}',
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "eyes"}},
    ),
}  # fmt: skip
OUTPUTS: Any = {
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "Rain."},
    "function_call": {"type": "function_call_output", "output": "Rain."},
    "tool_search_call": {"type": "tool_search_output", "execution": "client", "tools": [space(FUNCTION)]},
}  # fmt: skip


def calling(format_: str, name: str, arguments: str) -> list[Any]:
    """The events of an answer with a call."""
    upstream = Scripted(format_)
    upstream.will_say("Let me see.", calls=True)
    [events] = upstream.scripts
    found: list[Any] = _renamed(events, {"look": name, ARGUMENTS: arguments}, arguments)
    return found


def _renamed(value: Any, names: dict[str, str], arguments: str) -> Any:
    if isinstance(value, dict):
        if value.get("args") is not None:
            return {**value, "name": names["look"], "args": loads(arguments)}
        return {key: _renamed(inner, names, arguments) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, names, arguments) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def names_in(value: Any) -> list[str]:
    """The names of all functions that a request of any format offers."""
    if isinstance(value, list):
        return [name for one in value for name in names_in(one)]
    if not isinstance(value, dict):
        return []
    inner = value.get("functionDeclarations") or value.get("toolSpec") or value.get("function") or value.get("tools")
    return names_in(inner) if inner else [value["name"]]


@pytest.mark.share(3)
@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("format_", OTHERS)
@pytest.mark.parametrize("what", OFFERED)
def test_a_loop_of_tools_goes_on(served: Any, what: str, format_: str, *, stream: bool, aside: bool) -> None:
    """However tools are offered: as `tools`, or beside them as an item of the input."""
    tool, name, arguments, expected = OFFERED[what]
    upstream = Scripted(format_)
    client = in_front_of(served, upstream)
    tools = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    history: list[Any] = [*([tools] if aside else []), {"role": "user", "content": "Weather?"}]
    asked: Any = {"model": format_, "store": stream, **({} if aside else {"tools": [tool]})}
    upstream.scripts.append(calling(format_, name, arguments))
    if stream:
        events: list[Any] = [*client.responses.create(input=history, stream=True, **asked)]
        found = events[-1].response
        assert [event.item for event in events if event.type == "response.output_item.done"] == found.output
        assert client.responses.retrieve(found.id).output == found.output
    else:
        found = client.responses.create(input=history, **asked)
    call = found.output[-1].to_dict()
    assert {key: call[key] for key in expected} == expected
    assert (call["call_id"], call["status"]) == ("call_1", "completed")
    sent: Any = upstream.payloads[0]
    assert names_in(sent.get("tools") or sent["toolConfig"]) == [name]
    output = {"call_id": "call_1", **OUTPUTS[expected["type"]]}
    upstream.will_say("It rains.")
    history += [*(item.to_dict() for item in found.output), output]
    assert client.responses.create(input=history, **asked).output_text == "It rains."
    again = str(upstream.payloads[-1])
    assert again.count("call_1") == 2 or format_ == "gemini"
    assert ("Rain." in again) == (expected["type"] != "tool_search_call")


def test_what_a_search_has_found_can_be_called() -> None:
    found = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [space(FUNCTION)]}
    call = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "eyes"}}
    body, tools = as_functions({"tools": [SEARCH], "input": [call, found, call | {"call_id": "d"}, found]})
    assert [tool["name"] for tool in body["tools"]] == ["tool_search", "eyes_look"]
    assert [item["type"] for item in body["input"]] == ["function_call", "function_call_output"] * 2
    assert tools.names == {"tool_search": ("tool_search", None, None), "eyes_look": ("function", "eyes", "look")}


def test_a_grammar_is_described() -> None:
    body, _ = as_functions({"tools": [PATCH], "input": "Hi"})
    [tool] = body["tools"]
    assert tool["description"].startswith("Edit files.\n\nThe input is text that this grammar (lark) describes:")
    assert tool["parameters"]["required"] == ["input"]


def test_a_choice_names_the_function() -> None:
    choice = {"type": "custom", "name": "look", "namespace": "eyes"}
    body, _ = as_functions({"tools": [space(PATCH)], "input": "Hi", "tool_choice": choice})
    assert body["tool_choice"] == {"type": "function", "name": "eyes_look"}


@pytest.mark.parametrize(
    "body", [{}, {"input": "Hi"}, {"tools": [FUNCTION]}, {"tools": [{"type": "web_search"}], "input": []}]
)
def test_other_requests_stay_as_they_are(body: Any) -> None:
    assert as_functions(body)[0] is body
    assert not as_functions(body)[1].are_renamed


@pytest.mark.parametrize(
    "body",
    [
        {"tools": "all"},
        {"tools": 5, "input": 7},
        {"tools": [1, None, {}, {"type": "namespace"}], "input": [1, None, {}]},
    ],
)
def test_what_is_no_tool_is_left_to_others(body: Any) -> None:
    assert as_functions(body)[0] is body


def test_two_tools_of_one_name_have_two_functions() -> None:
    body, tools = as_functions({"tools": [space(FUNCTION), {**FUNCTION, "name": "eyes_look"}], "input": "Hi"})
    assert len({tool["name"] for tool in body["tools"]}) == len(tools.names) == 2


@pytest.mark.parametrize("word", [[1], {"a": 1}])
def test_types_that_are_no_words_are_refused_as_items_and_left_out_as_tools(served: Any, word: Any) -> None:
    scripted = Scripted("chat_completion")
    http = served.http(upstreams={"m": scripted.upstream})
    refused = http.post("/responses", json={"model": "m", "input": [{"type": word}]})
    assert (refused.status_code, scripted.payloads) == (400, [])
    scripted.will_say("Hi")
    answer = http.post("/responses", json={"model": "m", "input": "Hi", "tools": [space({"type": word})]})
    assert answer.status_code == 200
    assert not scripted.payloads[0].get("tools")
