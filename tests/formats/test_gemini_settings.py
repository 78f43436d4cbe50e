"""Settings and tools of Gemini requests: rules that no reference case shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import codes, render, user
from threadkeep.domain.options import OPTIONS
from threadkeep.domain.rendering import Rendered
from threadkeep.domain.session import Session
from threadkeep.domain.tool_names import Names
from threadkeep.errors import CannotRender
from threadkeep.formats import get_format
from threadkeep.formats.gemini.fields import FAMILIES, FIELDS, GENERAL, family_of, fields_of, is_schema, json_schema
from threadkeep.formats.shared.fields import NoField, SpecialField
from threadkeep.formats.shared.google import NAMES as NAME_RULE

Json = dict[str, Any]
LOOKUP = {"type": "function", "name": "lookup", "parameters": {"type": "object", "properties": {}}}


def rendered(*items: Any, **settings: Any) -> Rendered:
    return render("gemini", *items, **{"model": "gemini-2.5-flash", **settings})


def test_every_option_has_exactly_one_row_whatever_the_model() -> None:
    for rows in (FIELDS, *(fields_of(family) for _, family in FAMILIES)):
        assert sorted(row.option for row in rows) == sorted(OPTIONS)
        assert all(row.reason for row in rows if isinstance(row, NoField))
        assert all(row.what for row in rows if isinstance(row, SpecialField))


@pytest.mark.parametrize(
    ("model", "reasons", "config", "reports"),
    [
        ("gemini-3-pro", {"effort": "low", "budget_tokens": 9}, {"thinkingLevel": "LOW"}, ([], ["option"])),
        ("gemini-2.5-flash", {"effort": "low", "budget_tokens": 9}, {"thinkingBudget": 9}, ([], ["option"])),
        ("gemini-2.5-flash", {"effort": "medium"}, {"thinkingBudget": 8192}, ([], [])),
        ("gemini-2.5-flash", {"effort": "none"}, {"thinkingBudget": 0}, ([], [])),
        ("gemini-2.5-pro", {"effort": "none"}, None, (["option"], [])),
        ("gemini-3-pro", {"effort": "max"}, None, (["option"], [])),
        ("gemini-2.0-flash", {"effort": "low"}, None, (["option"], [])),
        ("tuned", {"budget_tokens": -1, "summary": "auto"}, {"thinkingBudget": -1, "includeThoughts": True}, ([], [])),
        ("tuned", {"summary": "detailed", "display": "omitted"}, None, (["option", "option"], [])),
    ],
)
def test_thinking_is_told_as_the_model_understands_it(model: str, reasons: Json, config: Any, reports: Any) -> None:
    found = rendered(user("Go"), model=model, reasoning=reasons)
    assert found.payload.get("generationConfig", {}).get("thinkingConfig") == config
    assert codes(found) == reports


def test_models_are_known_by_any_path() -> None:
    assert family_of("publishers/google/models/gemini-2.5-pro") is family_of("Gemini-2.5-pro-001")
    assert family_of(None) is family_of("claude") is GENERAL


def test_schemas_beyond_the_services_own_have_a_key_of_their_own() -> None:
    wide = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}
    form = {"type": "json_schema", "name": "n", "schema": wide}
    session = Session(model="gemini-3", input="Go", tools=[{**LOOKUP, "parameters": wide}], text={"format": form})
    payload = session.request_payload("gemini")
    assert payload["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == wide
    assert payload["generationConfig"]["responseJsonSchema"] == wide


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"]}, {"const": 1}, {"enum": [1]}, {"items": {"oneOf": []}},
        {"anyOf": [{"$ref": "#"}]}, {"properties": {"a": True}}, {"additionalProperties": {"not": {}}}, "x",
    ],
)  # fmt: skip
def test_what_a_schema_cannot_say(schema: Any) -> None:
    assert not is_schema(schema)


def test_a_schema_of_the_service_becomes_json_schema() -> None:
    given = {
        "type": "OBJECT",
        "properties": {"a": {"type": 1, "nullable": True}, "any_of": {"any_of": [{"type": "STRING"}]}},
        "property_ordering": ["a"],
        "items": {"type": "ARRAY", "minItems": "2"},
    }
    assert json_schema(given) == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "any_of": {"anyOf": [{"type": "string"}]}},
        "items": {"type": "array", "minItems": 2},
    }


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("none", {"mode": "NONE"}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "lookup"}]},
            {"mode": "ANY", "allowedFunctionNames": ["lookup"]},
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "lookup"}]},
            {"mode": "VALIDATED", "allowedFunctionNames": ["lookup"]},
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}, None),
        ({"type": "function", "name": "other"}, None),
        ({"type": "custom", "name": "lookup"}, None),
    ],
)
def test_tool_choices(choice: Any, config: Any) -> None:
    found = rendered(user("Go"), tools=[LOOKUP], tool_choice=choice)
    assert found.payload.get("toolConfig", {}).get("functionCallingConfig") == config
    assert (codes(found) == ([], [])) is (config is not None)


@pytest.mark.parametrize(
    ("name", "sent"), [("my.tool", "my.tool"), ("a b", "a_b"), ("9lives", "_9lives"), ("n" * 128, "n" * 128)]
)
def test_names_follow_the_rule_of_this_service(name: str, sent: str) -> None:
    assert Names([name], NAME_RULE).wire(name) == sent


@pytest.mark.parametrize("name", ["", "ä", "n" * 129, "9" * 200])
def test_names_that_cannot_be_cleaned_get_a_hash(name: str) -> None:
    found = Names((), NAME_RULE).wire(name)
    assert len(found) <= 128
    assert found[-32:].isalnum()
    assert found[0] in "_nt"


def test_a_function_is_declared_once() -> None:
    """By its later definition, at the place of the first; what came from the service goes back as it came."""
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    functions = [{"name": name, "description": text} for name, text in (("a", "1"), ("b", "2"), ("a", "3"))]
    tools = [{"type": "function", "function": function} for function in functions]
    session = get_format("chat_completion").parse_request({**request, "tools": tools})
    declared = session.request_payload("gemini")["tools"][0]["functionDeclarations"]
    assert [(one["name"], one["description"]) for one in declared] == [("a", "3"), ("b", "2")]
    own = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": [{"functionDeclarations": functions}]}
    assert get_format("gemini").parse_request(own).request_payload("gemini")["tools"] == own["tools"]


def test_a_cached_content_holds_system_text_and_tools() -> None:
    found = rendered(user("Go"), instructions="x", tools=[LOOKUP], tool_choice="auto", extra={"cached_content": "c/1"})
    assert found.payload == {"cachedContent": "c/1", "contents": [{"role": "user", "parts": [{"text": "Go"}]}]}
    assert codes(found)[0] == ["option"] * 3


def test_extra_for_this_format_is_laid_over_the_rest() -> None:
    extra = {"top_k": 5, "safety_settings": None, "gemini": {"generationConfig": {"seed": 1}, "labels": {"a": "b"}}}
    found = rendered(user("Go"), temperature=0.5, extra=extra).payload
    assert found["generationConfig"] == {"temperature": 0.5, "topK": 5, "seed": 1}
    assert (found["labels"], found["safetySettings"]) == ({"a": "b"}, None)


@pytest.mark.parametrize("settings", [{"parallel_tool_calls": False}, {"service_tier": "fast"}, {"background": True}])
def test_settings_that_the_format_does_not_have_are_losses(settings: Json) -> None:
    assert codes(rendered(user("Go"), **settings)) == (["option"], [])


def test_the_model_stands_in_the_address_but_must_be_known() -> None:
    with pytest.raises(CannotRender, match="model"):
        Session(input="Go").request_payload("gemini")
    assert "model" not in rendered(user("Go")).payload
