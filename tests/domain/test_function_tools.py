"""Tools from functions: name, description and schema from signature and docstring, and validated calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from threadkeep.domain.items import FunctionCall
from threadkeep.domain.session import Session
from threadkeep.domain.tools import FunctionTool, ToolRegistry, default_registry, register_tool, reset_default_registry
from threadkeep.errors import InvalidItem, InvalidOption, InvalidToolArguments, ToolNotFound
from threadkeep.formats import NAMES


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Stop(BaseModel):
    """A stop of a trip."""

    city: str
    nights: int = Field(default=1, ge=1)


@dataclass
class Point:
    x: float
    y: float


class Options(TypedDict, total=False):
    fast: bool


def weather(
    city: str,
    days: Annotated[int, Field(ge=1, le=7, description="How many days.")] = 1,
    unit: Unit = Unit.CELSIUS,
    detail: Literal["short", "long"] | None = None,
) -> str:
    """Return the weather forecast of a city.

    It is updated every hour.

    Args:
        city: The name of the city,
            in English.
        days (int): How far ahead.
        detail: How much: short
            or long: the default is short.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit.name} {detail}"


def trip(stops: list[Stop], near: Point | None = None, on: date = date(2026, 1, 1)) -> tuple[Any, ...]:
    return stops, near, on


async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(0)
    return f"waited {seconds}"


class Account:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    def balance(self, currency: str) -> str:
        """Tell the balance."""
        return f"{self.owner} {currency}"


@pytest.fixture(autouse=True)
def _empty_default_registry() -> Iterator[None]:
    reset_default_registry()
    yield
    reset_default_registry()


@pytest.fixture
def registry() -> ToolRegistry:
    made = ToolRegistry()
    for function in (weather, trip, slow):
        made.register(function)
    return made


def definition(registry: ToolRegistry, name: str) -> dict[str, Any]:
    found = registry.definition_for(name)
    assert found is not None
    return found.to_dict()


# Definitions


def test_a_definition_comes_from_signature_and_docstring(registry: ToolRegistry) -> None:
    assert definition(registry, "weather") == {
        "type": "function",
        "name": "weather",
        "description": "Return the weather forecast of a city.\n\nIt is updated every hour.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The name of the city, in English."},
                "days": {
                    "type": "integer", "minimum": 1, "maximum": 7, "default": 1, "description": "How many days."
                },
                "unit": {"$ref": "#/$defs/Unit", "default": "c"},
                "detail": {
                    "anyOf": [{"type": "string", "enum": ["short", "long"]}, {"type": "null"}],
                    "default": None,
                    "description": "How much: short or long: the default is short.",
                },
            },
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"Unit": {"type": "string", "enum": ["c", "f"]}},
        },
    }  # fmt: skip


def test_every_way_to_register_gives_the_function_back() -> None:
    registry = ToolRegistry()

    def plain(a: int) -> int:
        return a

    @registry.register
    def bare(a: int) -> int:
        return a

    @registry.register(strict=True, description="Other words", cache_control={"type": "ephemeral"})
    def told(a: int) -> int:
        """These words."""
        return a

    @register_tool
    def default() -> str:
        return "here"

    assert registry.register(plain) is plain
    assert (bare(1), told(2), default()) == (1, 2, "here")
    assert [tool.name for tool in registry.definitions] == ["bare", "told", "plain"]
    assert definition(registry, "told")["description"] == "Other words"
    assert definition(registry, "told")["cache_control"] == {"type": "ephemeral"}
    assert definition(registry, "bare").get("description") is None
    assert default_registry().invoke("default") == "here"


def test_a_function_without_parameters_takes_none() -> None:
    registry = ToolRegistry()

    @registry.register
    def now() -> str:
        return "noon"

    assert definition(registry, "now")["parameters"] == {
        "type": "object", "properties": {}, "additionalProperties": False
    }  # fmt: skip
    assert registry.invoke("now", "{}") == registry.invoke("now") == "noon"
    with pytest.raises(InvalidToolArguments, match="at: Extra inputs"):
        registry.invoke("now", {"at": 1})


def test_names_of_parameters_clash_with_nothing() -> None:
    registry = ToolRegistry()

    @registry.register
    def odd(copy: int, _self: str, model_config: int, schema: str, json: str = "j", title: str = "t") -> Any:
        return copy, _self, model_config, schema, json, title

    assert list(definition(registry, "odd")["parameters"]["properties"]) == [
        "copy", "_self", "model_config", "schema", "json", "title",
    ]  # fmt: skip
    assert registry.invoke("odd", {"copy": 1, "_self": "s", "model_config": 2, "schema": "x"}) == (
        1, "s", 2, "x", "j", "t",
    )  # fmt: skip


def test_a_strict_schema_requires_everything_and_allows_nothing_else() -> None:
    registry = ToolRegistry()
    registry.register(weather, strict=True)
    registry.register(trip, strict=True)
    assert definition(registry, "weather")["strict"] is True
    schema = definition(registry, "weather")["parameters"]
    assert schema["required"] == ["city", "days", "unit", "detail"]
    schemas = [schema, definition(registry, "trip")["parameters"]]
    for one in (node for root in schemas for node in nodes(root)):
        assert "default" not in one or one.get("type") == "object"
        assert "$ref" not in one or set(one) == {"$ref"}
        if one.get("type") == "object":
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nodes(inner)


def test_strict_schemas_may_describe_what_they_refer_to() -> None:
    registry = ToolRegistry()

    @registry.register(strict=True)
    def go(first: Annotated[Stop, Field(description="Where it begins.")], then: Stop) -> None:
        pass

    properties = definition(registry, "go")["parameters"]["properties"]
    assert properties["first"]["description"] == "Where it begins."
    assert (properties["first"]["type"], properties["then"]) == ("object", {"$ref": "#/$defs/Stop"})
    assert properties["first"]["required"] == ["city", "nights"]


def test_a_description_may_be_a_text_in_the_annotation() -> None:
    registry = ToolRegistry()

    @registry.register
    def find(query: Annotated[str, "What to look for."]) -> None:
        pass

    assert definition(registry, "find")["parameters"]["properties"]["query"]["description"] == "What to look for."


class Unknown:
    pass


def positional(a: int, /) -> None: ...
def starred(*values: int) -> None: ...
def unknown(value: Unknown) -> None: ...
def unreadable(value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is the point
def default_field(value: int = Field(3)) -> None: ...
def any_keys(values: dict[str, int]) -> None: ...


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "positional": (positional, "cannot be given by name"),
    "starred": (starred, "cannot be given by name"),
    "a type that JSON has not": (unknown, "has no JSON schema"),
    "a type that is not there": (unreadable, "annotations that cannot be read"),
    "a field as default": (default_field, "Annotated"),
    "a lambda": (lambda a: a, "no name"),
    "a partial": (partial(weather, "Bern"), "no name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_without_a_schema_are_refused(name: str) -> None:
    function, problem = REFUSED[name]
    registry = ToolRegistry()
    with pytest.raises(InvalidOption, match=problem):
        registry.register(function)
    assert registry.definitions == []


def test_objects_with_any_keys_are_no_strict_schema() -> None:
    with pytest.raises(InvalidOption, match="any keys"):
        ToolRegistry().register(any_keys, strict=True)
    ToolRegistry().register(any_keys)


# Calls


def test_arguments_become_what_the_signature_says(registry: ToolRegistry) -> None:
    assert registry.invoke("weather", '{"city": "Bern", "unit": "f", "days": 3}') == "Bern 3 FAHRENHEIT None"
    stops, near, on = registry.invoke(
        "trip", {"stops": [{"city": "Bern"}], "near": {"x": 1, "y": 2.5}, "on": "2026-05-01"}
    )
    assert (stops, near, on) == ([Stop(city="Bern")], Point(1.0, 2.5), date(2026, 5, 1))
    assert registry.invoke("trip", {"stops": []}) == ([], None, date(2026, 1, 1))


def test_a_call_is_invoked_as_it_came(registry: ToolRegistry) -> None:
    call = FunctionCall(call_id="c", name="weather", arguments='{"city": "Bern"}')
    assert registry.invoke(call) == "Bern 1 CELSIUS None"
    with pytest.raises(ToolNotFound):
        registry.invoke(FunctionCall(call_id="c", name="nothing", arguments="{}"))


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({}, [("city", "Field required")]),
        ({"city": 1}, [("city", "Input should be a valid string")]),
        ({"city": "Bern", "days": 9}, [("days", "Input should be less than or equal to 7")]),
        ({"city": "Bern", "unit": "k"}, [("unit", "Input should be 'c' or 'f'")]),
        ({"city": "Bern", "town": "x"}, [("town", "Extra inputs are not permitted")]),
        ("[1]", [("", "They must be a JSON object.")]),
    ],
)
def test_what_does_not_match_is_told_with_its_path(registry: ToolRegistry, arguments: Any, problems: Any) -> None:
    with pytest.raises(InvalidToolArguments) as caught:
        registry.invoke("weather", arguments)
    assert (caught.value.name, caught.value.problems) == ("weather", problems)
    assert all(problem in str(caught.value) and path in str(caught.value) for path, problem in problems)
    assert isinstance(caught.value, InvalidItem)


def test_paths_lead_into_lists_and_objects(registry: ToolRegistry) -> None:
    with pytest.raises(InvalidToolArguments) as caught:
        registry.invoke("trip", {"stops": [{"city": "Bern"}, {"city": "Rome", "nights": 0}, {}]})
    assert [path for path, _ in caught.value.problems] == ["stops[1].nights", "stops[2].city"]


def test_the_text_of_the_error_is_short_whatever_a_model_sends(registry: ToolRegistry) -> None:
    """It is sent back to the model."""
    hostile: list[dict[str, Any]] = [{"stops": [], "x" * 100_000: 1}, {"stops": [{}] * 10_000}]
    for arguments in hostile:
        with pytest.raises(InvalidToolArguments) as caught:
            registry.invoke("trip", arguments)
        assert len(str(caught.value)) < 5_000
    assert str(caught.value).endswith("and 9,990 other problems")
    assert len(caught.value.problems) == 10_000


def test_text_that_is_no_json_is_refused_for_every_tool(registry: ToolRegistry) -> None:
    registry.register("by_hand", handler=lambda **arguments: arguments)
    for name in ("weather", "by_hand"):
        with pytest.raises(InvalidToolArguments, match="not JSON"):
            registry.invoke(name, '{"city": ')


def test_errors_of_the_function_pass_through(registry: ToolRegistry) -> None:
    @registry.register
    def fail(code: int) -> None:
        raise KeyError(code)

    with pytest.raises(KeyError):
        registry.invoke("fail", {"code": 1})


def test_functions_with_any_keywords_get_them() -> None:
    registry = ToolRegistry()

    @registry.register
    def anything(a: int, **rest: Any) -> Any:
        return a, rest

    assert registry.invoke("anything", {"a": "1", "b": [2], "c": None}) == (1, {"b": [2], "c": None})


def test_methods_are_tools() -> None:
    registry = ToolRegistry()
    registry.register(Account("ann").balance)
    assert list(definition(registry, "balance")["parameters"]["properties"]) == ["currency"]
    assert registry.invoke("balance", {"currency": "CHF"}) == "ann CHF"


def test_async_functions_are_awaited(registry: ToolRegistry) -> None:
    async def run() -> list[Any]:
        return [
            await registry.ainvoke("slow", {"seconds": 1}),
            await registry.ainvoke(FunctionCall(call_id="c", name="weather", arguments='{"city": "Bern"}')),
        ]

    assert asyncio.run(run()) == ["waited 1.0", "Bern 1 CELSIUS None"]
    with pytest.raises(InvalidToolArguments):
        asyncio.run(registry.ainvoke("slow", {}))
    with pytest.raises(InvalidOption, match="'slow' is asynchronous; nothing was run"):
        registry.invoke("slow", {"seconds": 2})


def test_a_new_handler_takes_the_arguments_as_they_are(registry: ToolRegistry) -> None:
    registry.attach("weather", lambda **arguments: arguments)
    assert registry.invoke("weather", {"city": 1}) == {"city": 1}
    registry.register("trip", "by hand")
    with pytest.raises(ToolNotFound):
        registry.invoke("trip", {})


@pytest.mark.parametrize("format", NAMES)
def test_every_format_offers_them(registry: ToolRegistry, format: Any) -> None:
    session = Session(model="m", input="Hi", tools=registry.definitions)
    body = session.request_body(format)
    assert b"The name of the city, in English." in body
    assert isinstance(session.tool_definitions[0], FunctionTool)
    json.loads(body)


def test_a_name_in_the_form_of_a_provider_must_mean_one_tool() -> None:
    registry = ToolRegistry()
    for name in ("files.read", "files read"):
        registry.register(name, "Reads", {"type": "object"}, handler=lambda _arguments, /: "read")
    with pytest.raises(ToolNotFound) as raised:
        registry.invoke("files_read", {})
    assert "'files_read' can mean more than one tool: files.read, files read." in str(raised.value)
    assert "letters, digits, _ and -" in str(raised.value)
    assert registry.invoke("files read", {}) == "read"


@given(
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text() | st.lists(st.integers()), max_size=4)
)
def test_any_arguments_are_taken_or_refused(arguments: dict[str, Any]) -> None:
    registry = ToolRegistry()
    registry.register(weather)
    with suppress(InvalidToolArguments):
        assert isinstance(registry.invoke("weather", arguments), str)


def test_a_name_means_its_own_tool_alone() -> None:
    """Another one that would be sent so does not stand in for it."""
    registry = ToolRegistry()
    registry.register("a_b", "Has no handler", {"type": "object"})
    registry.register("a.b", "Has one", {"type": "object"}, handler=lambda _arguments, /: "ran a.b")
    registry.register("delete", "Has one", {"type": "object"}, handler=lambda _arguments, /: "deleted")
    for name in ("a_b", "_delete", {"name": "delete"}, None):
        with pytest.raises(ToolNotFound):
            registry.invoke(name, {})  # type: ignore[arg-type]
