from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tests.domain.jsonvalues import OBJECTS, same
from threadkeep.domain.session import Session
from threadkeep.domain.tools import (
    BuiltinTool,
    FunctionTool,
    ToolRegistry,
    default_registry,
    register_tool,
    removed_tools,
    reset_default_registry,
    tool_from,
    tools_from,
    with_tools,
)
from threadkeep.errors import InvalidItem, InvalidOption, ToolNotFound

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


@pytest.fixture(autouse=True)
def _empty_default_registry() -> Iterator[None]:
    reset_default_registry()
    yield
    reset_default_registry()


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "function", "name": "add"},
        {"type": "function", "name": "add", "description": "", "parameters": {}},
        {"type": "function", "name": "add", "parameters": SCHEMA, "strict": True},
        {"type": "function", "name": "add", "strict": False, "cache_control": {"type": "ephemeral"}},
        {"type": "function", "name": "add", "async": True, "allowed_callers": [], "defer_loading": False},
        {"type": "web_search"},
        {"type": "mcp", "server_label": "a", "headers": None, "extra": {"x": 1}},
        {"type": "custom", "name": "shell", "format": {"type": "text"}},
        {"type": "provider_tool", "format": "messages", "payload": {"type": "bash_20250124", "name": "bash"}},
    ],
)
def test_a_definition_is_written_as_it_was_read(definition: dict[str, Any]) -> None:
    """`strict` is true, false or not there; built-in tools and those of one provider keep every key."""
    assert tool_from(definition).to_dict() == definition
    assert Session.from_dict({"tools": [definition]}).to_dict() == {"tools": [definition]}


# keys that mean something in a definition of a function
MEANT = {"extra", "function", "is_async", *(field.alias or name for name, field in FunctionTool.model_fields.items())}


@given(OBJECTS)
def test_no_key_of_a_tool_is_lost(keys: dict[str, Any]) -> None:
    extras = {key: value for key, value in keys.items() if key not in MEANT}
    for known in ({"type": "function", "name": "add"}, {"type": "web_search"}):
        assert same(tool_from({**extras, **known}).to_dict(), {**extras, **known})


def test_a_definition_without_a_type_is_a_function() -> None:
    """So is the nested form of Chat Completions."""
    assert tool_from({"name": "add", "strict": None}) == FunctionTool("add")
    nested = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
    assert tool_from(nested) == FunctionTool("add", parameters=SCHEMA)


@pytest.mark.parametrize(
    ("definition", "place"),
    [
        (None, "tools[0]"),
        ("add", "tools[0]"),
        ({}, "tools[0].name"),
        ({"name": ""}, "tools[0].name"),
        ({"name": 5}, "tools[0].name"),
        ({"name": "a", "parameters": "{}"}, "tools[0].parameters"),
        ({"name": "a", "strict": "yes"}, "tools[0].strict"),
        ({"name": "a", "since": datetime.now(UTC)}, "tools[0].since"),
        ({"type": 5}, "tools[0].type"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_place(definition: Any, place: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        tools_from([definition])
    assert str(caught.value).startswith(place + " ")


def test_tools_are_given_as_a_registry_or_a_list() -> None:
    for value in ("add", {"name": "add"}, None, 5):
        with pytest.raises(InvalidOption, match="ToolRegistry or a list"):
            tools_from(value)


# The registry


def test_a_handler_gets_its_arguments_by_name() -> None:
    """That is, when its parameters are named like the schema's properties, or it has several."""
    registry = ToolRegistry()
    registry.register("add", "Adds", SCHEMA, handler=lambda a, b: a + b)
    registry.register("double", parameters=SCHEMA, handler=lambda a: a * 2)
    registry.register("any", handler=lambda **arguments: arguments)
    registry.register("now", handler=lambda: "noon")
    assert registry.invoke("add", {"a": 2, "b": 3}) == 5
    assert registry.invoke("add", '{"a": 2, "b": 3}') == 5
    assert registry.invoke("double", {"a": 4}) == 8
    assert registry.invoke("any", {"x": 1}) == {"x": 1}
    assert registry.invoke("now") == "noon"


def test_any_other_handler_gets_the_object_of_arguments() -> None:
    registry = ToolRegistry()
    registry.register("total", parameters=SCHEMA, handler=lambda arguments: sum(arguments.values()))
    registry.register("size", handler=len)
    assert registry.invoke("total", {"a": 2, "b": 3}) == 5
    assert registry.invoke("size", {"a": 2}) == 1
    assert registry.invoke("size", "[1, 2, 3]") == 3


def test_registering_decorates() -> None:
    registry = ToolRegistry()

    @registry.register("add", description="Adds", parameters=SCHEMA, strict=True, cache_control={})
    def add(a: int, b: int) -> int:
        return a + b

    assert registry.handler_for("add") is add
    definition = registry.definition_for("add")
    assert definition is not None
    assert definition.to_dict() == {
        "type": "function",
        "name": "add",
        "description": "Adds",
        "parameters": SCHEMA,
        "strict": True,
        "cache_control": {},
    }


def test_the_same_name_replaces_definition_and_handler() -> None:
    registry = ToolRegistry()
    registry.register("a", handler=lambda: 1)
    registry.register("b")
    registry.register("a", "new")
    assert [(tool.name, tool.description) for tool in registry.definitions] == [("a", "new"), ("b", None)]
    assert registry.handler_for("a") is None


def test_what_is_not_there_is_none_or_not_found() -> None:
    registry = ToolRegistry()
    registry.register("a")
    assert registry.handler_for("b") is None
    assert registry.definition_for("b") is None
    for name in ("a", "b"):
        with pytest.raises(ToolNotFound, match="no handler"):
            registry.invoke(name, {})
    with pytest.raises(ToolNotFound, match="Register it first"):
        registry.attach("b", print)


def test_errors_of_a_handler_pass_through() -> None:
    registry = ToolRegistry()
    registry.register("fail", handler=lambda: dict[str, int]()["key"])
    with pytest.raises(KeyError):
        registry.invoke("fail", {})
    with pytest.raises(InvalidItem, match="not JSON"):
        registry.invoke("fail", '{"a": ')


@pytest.mark.parametrize("name", ["", None, 5, b"a"])
def test_names_are_text(name: Any) -> None:
    with pytest.raises(InvalidOption):
        ToolRegistry().register(name)
    with pytest.raises(InvalidOption):
        Session().register_tool(name)


def test_a_tool_that_needs_a_name_says_so() -> None:
    def weather(city: str) -> str:
        return city

    with pytest.raises(InvalidOption, match='register_tool\\("weather"'):
        Session().register_tool(weather)  # type: ignore[arg-type]


def test_a_handler_must_be_callable() -> None:
    with pytest.raises(InvalidOption, match="function"):
        ToolRegistry().register("a", handler=5)  # type: ignore[call-overload]


def test_the_default_registry_can_be_reset() -> None:
    @register_tool("ping", timeout=5)
    def ping() -> str:
        return "pong"

    assert default_registry().invoke("ping") == "pong"
    assert default_registry().definitions[0].extra == {"timeout": 5}
    assert reset_default_registry() is default_registry()
    assert default_registry().definitions == []
    assert ping() == "pong"


# The tools of a session


def test_registered_tools_keep_their_order_and_replace_in_place() -> None:
    session = Session()
    session.register_tool("a", "first")
    session.register_tool("b", None, SCHEMA, False, cache_point=True)  # as conversations and registries take it
    replaced = session.register_tool("a", description="second")
    assert replaced == FunctionTool("a", "second")
    assert session.tools == [
        {"type": "function", "name": "a", "description": "second"},
        {"type": "function", "name": "b", "parameters": SCHEMA, "strict": False, "cache_point": True},
    ]
    assert [tool.key for tool in session.tool_definitions] == ["a", "b"]


def test_tools_are_used_by_name_from_a_registry() -> None:
    """All of them without a name; from the default registry without a registry."""
    registry = ToolRegistry()
    registry.register("a", handler=print)
    registry.register("b")
    session = Session()
    assert session.use_tools("b", registry=registry) == [registry.definition_for("b")]
    assert [tool["name"] for tool in session.tools] == ["b"]
    session.use_tools(registry=registry)
    assert [tool["name"] for tool in session.tools] == ["b", "a"]
    with pytest.raises(ToolNotFound, match="'c'"):
        session.use_tools("a", "c", registry=registry)
    register_tool("d")
    assert [tool.name for tool in Session().use_tools()] == ["d"]
    with pytest.raises(InvalidOption, match="ToolRegistry"):
        session.use_tools(registry=[])  # type: ignore[arg-type]


def test_whole_registries_and_built_in_tools_are_registered() -> None:
    registry = ToolRegistry()
    registry.register("a")
    session = Session(tools=[{"type": "web_search"}])
    session.register_tools(registry)
    session.register_tools([{"type": "mcp", "server_label": "x"}, {"type": "web_search", "filters": {}}])
    assert session.tools == [
        {"type": "web_search", "filters": {}},
        {"type": "function", "name": "a"},
        {"type": "mcp", "server_label": "x"},
    ]
    with pytest.raises(InvalidOption):
        session.register_tools("a")  # type: ignore[arg-type]


def test_tools_are_removed_by_name_or_type() -> None:
    session = Session(tools=[{"name": "a"}, {"type": "web_search"}, {"name": "b"}])
    assert session.remove_tool("a") == FunctionTool("a")
    assert session.remove_tool("web_search") == BuiltinTool(type="web_search")
    assert session.remove_tool("a") is None
    assert session.clear_tools() == [FunctionTool("b")]
    assert session.tools == []


def test_two_tools_of_one_type_are_kept_as_given() -> None:
    """Replacing by name is for registering; a definition that was stored is not lost."""
    tools = [{"type": "mcp", "server_label": "a"}, {"type": "mcp", "server_label": "b"}]
    assert Session.from_dict({"tools": tools}).tools == tools


class Watched(dict[str, Any]):
    """A definition that counts how often it is compared."""

    compared = 0
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        Watched.compared += 1
        return dict.__eq__(self, other)


def test_one_tool_beside_many_is_not_compared_with_all_of_them() -> None:
    before = [Watched(FunctionTool(f"t{number}").to_dict()) for number in range(300)]
    added = FunctionTool("t299", "Another")
    after = with_tools(before, [added])
    assert (len(after), after[-1]) == (300, added.to_dict())
    Watched.compared, calls = 0, 0

    def note(*_: Any) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(note)
    try:
        with_tools(before, [added])
        assert removed_tools(before, after) == [before[-1]]
    finally:
        sys.setprofile(None)
    assert Watched.compared <= 1
    assert calls < 20 * len(before)
