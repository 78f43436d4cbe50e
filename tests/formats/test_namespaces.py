"""Tools in namespaces, and calls of them, in formats that have no namespaces: under qualified names."""

from __future__ import annotations

from typing import Any

import pytest

from threadkeep import FunctionCall, Session, ToolRegistry
from threadkeep.formats import NAMES, FormatName, get_format

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"q": {"type": "string"}}}
FIND: Json = {"type": "function", "name": "find", "description": "Finds.", "parameters": SCHEMA}
CRM: Json = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FIND]}
MAIL: Json = {"type": "namespace", "name": "mail", "description": "Letters.", "tools": [{**FIND, "description": None}]}
PROGRAM: Json = {"type": "program", "caller_id": "prog_1"}
GOOGLES = ("gemini", "interactions")
OTHERS = tuple(name for name in NAMES if name != "open_responses")


def session_of(*calls: Json, tools: Any = (CRM, MAIL, FIND), **settings: Any) -> Session:
    """A session with calls, each with its output."""
    session = Session(model="gpt-5.4", input="Who is Ada?", tools=list(tools), **settings)
    for number, call in enumerate(calls):
        session.add_item({"type": "function_call", "call_id": f"c{number}", "name": "find", "arguments": "{}", **call})
    for number, _ in enumerate(calls):
        session.add_function_call_output(f"c{number}", "nobody")
    return session


def functions(format_name: FormatName, payload: Json) -> list[tuple[str, str | None]]:
    """The names and descriptions of the functions in a request."""
    match format_name:
        case "chat_completion":
            tools = [tool.get("function") or tool["custom"] for tool in payload["tools"]]
        case "gemini":
            tools = payload["tools"][0]["functionDeclarations"]
        case "converse":
            tools = [tool["toolSpec"] for tool in payload["toolConfig"]["tools"]]
        case _:
            tools = payload["tools"]
    return [(tool["name"], tool.get("description")) for tool in tools]


def called(format_name: FormatName, payload: Json) -> list[str]:
    """The names of the calls in the history, as the format's own reader finds them."""
    read = get_format(format_name).parse_request(payload, model="m")
    return [item.name for item in read.items if isinstance(item, FunctionCall)]


@pytest.mark.parametrize("format_name", OTHERS)
def test_tools_of_a_namespace_are_sent_under_qualified_names(format_name: FormatName) -> None:
    dot = "." if format_name in GOOGLES else "_"
    rendered = session_of().render(format_name)
    assert functions(format_name, rendered.payload) == [
        (f"crm{dot}find", "Customers.\n\nFinds."),
        (f"mail{dot}find", "Letters."),
        ("find", "Finds."),
    ]
    spread = [(one.path, one.detail) for one in rendered.repairs if one.code == "namespace"]
    assert [path for path, _ in spread] == ["tools[0]", "tools[1]"]
    assert "'crm'" in spread[0][1]
    assert rendered.losses == []


@pytest.mark.parametrize("format_name", OTHERS)
def test_calls_of_a_namespace_name_the_tools_that_are_offered(format_name: FormatName) -> None:
    rendered = session_of({"namespace": "crm"}, {"namespace": "mail"}, {}).render(format_name)
    offered = [name for name, _ in functions(format_name, rendered.payload)]
    assert called(format_name, rendered.payload) == offered
    positions = [one.position for one in rendered.repairs if one.code == "namespace" and one.position is not None]
    assert (positions, rendered.losses) == ([1, 2], [])


@pytest.mark.parametrize("format_name", OTHERS)
def test_a_qualified_name_that_is_taken_becomes_another(format_name: FormatName) -> None:
    taken = {**FIND, "name": "crm.find" if format_name in GOOGLES else "crm_find"}
    rendered = session_of({"namespace": "crm"}, {"name": taken["name"]}, tools=[taken, CRM]).render(format_name)
    names = [name for name, _ in functions(format_name, rendered.payload)]
    if format_name in GOOGLES:  # the service's own name of both: the later definition counts
        assert names == ["crm.find"]
        return
    assert names[0] == "crm_find"
    assert names[1].startswith("crm_find_")
    assert called(format_name, rendered.payload) == [names[1], names[0]]


@pytest.mark.parametrize("format_name", OTHERS)
def test_a_caller_is_reported_where_the_format_cannot_say_it(format_name: FormatName) -> None:
    session = session_of({"caller": PROGRAM}, {"caller": {"type": "direct"}})
    session.add_item({"type": "function_call", "call_id": "c9", "name": "find", "arguments": "{}"})
    session.add_item({"type": "function_call_output", "call_id": "c9", "output": "x", "caller": PROGRAM})
    losses = session.render(format_name).losses
    assert [(loss.code, loss.position, loss.path) for loss in losses] == [
        ("caller", 1, "caller"),
        ("caller", 6, "caller"),
    ]


def test_the_responses_api_gets_namespaces_and_callers_as_they_are() -> None:
    rendered = session_of({"namespace": "crm", "caller": PROGRAM}).render("open_responses")
    assert rendered.payload["tools"][0] == CRM
    call = rendered.payload["input"][1]
    assert (call["name"], call["namespace"], call["caller"]) == ("find", "crm", PROGRAM)
    assert (rendered.losses, rendered.repairs) == ([], [])


@pytest.mark.parametrize("format_name", OTHERS)
def test_custom_tools_of_a_namespace_are_sent_or_a_loss(format_name: FormatName) -> None:
    custom = {"type": "custom", "name": "say", "description": "Says."}
    rendered = session_of(tools=[{**CRM, "tools": [FIND, custom]}]).render(format_name)
    names = [name for name, _ in functions(format_name, rendered.payload)]
    if format_name == "chat_completion":
        assert (names, rendered.losses) == (["crm_find", "crm_say"], [])
    else:
        assert [(loss.code, loss.path) for loss in rendered.losses] == [("tool", "tools[0].tools[1]")]


@pytest.mark.parametrize("tools", [[], None, "odd", {}])
@pytest.mark.parametrize("format_name", OTHERS)
def test_a_namespace_without_tools_is_a_loss(format_name: FormatName, tools: Any) -> None:
    rendered = session_of(tools=[{**CRM, "tools": tools}, FIND]).render(format_name)
    assert [(loss.code, loss.path) for loss in rendered.losses] == [("tool", "tools[0]")]


@pytest.mark.parametrize("format_name", OTHERS)
def test_what_only_a_namespace_says_is_a_loss(format_name: FormatName) -> None:
    rendered = session_of(tools=[{**CRM, "vendor_key": 1, "tools": [FIND, 5]}]).render(format_name)
    assert [(loss.code, loss.path) for loss in rendered.losses] == [("tool", "tools[0]"), ("tool", "tools[0].tools[1]")]


def test_a_tool_choice_names_a_tool_of_a_namespace() -> None:
    choice = {"type": "function", "name": "crm.find"}
    rendered = session_of(tool_choice=choice).render("chat_completion")
    assert rendered.payload["tool_choice"] == {"type": "function", "function": {"name": "crm_find"}}


@pytest.mark.parametrize("name", ["crm_find", "crm.find"])
def test_the_answer_runs_the_tool_of_the_namespace(name: str) -> None:
    registry = ToolRegistry()
    registry.register("crm.find", parameters=SCHEMA, handler=lambda: "in the CRM")
    registry.register("find", parameters=SCHEMA, handler=lambda: "anywhere")
    assert registry.invoke(name, {}) == "in the CRM"
    assert registry.invoke(FunctionCall(call_id="c1", name="find", arguments="{}", namespace="crm")) == "in the CRM"
    assert registry.invoke(FunctionCall(call_id="c1", name="find", arguments="{}", namespace="mail")) == "anywhere"
    session = session_of({"namespace": "crm"})
    assert [registry.invoke(item) for item in session.items if isinstance(item, FunctionCall)] == ["in the CRM"]
