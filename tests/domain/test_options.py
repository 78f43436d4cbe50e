from __future__ import annotations

import pydoc
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import option_page
from tests.domain.jsonvalues import JSON
from threadkeep import Session
from threadkeep.domain.options import (
    OPTIONS,
    ImportOptions,
    NewOptions,
    Option,
    OptionAttributes,
    SessionOptions,
    UpdateOptions,
    json_output_text,
    settings_with,
    thinking,
)
from threadkeep.errors import InvalidOption
from threadkeep.store.writing.updates import INFO

COERCED = [
    ("temperature", 1, 1.0),
    ("temperature", "0.5", 0.5),
    ("temperature", " 2e-1 ", 0.2),
    ("temperature", 0, 0.0),
    ("top_p", Fraction(1, 2), 0.5),
    ("max_output_tokens", "900", 900),
    ("max_output_tokens", 3.9, 3),
    ("max_output_tokens", -3.9, -3),
    ("max_output_tokens", "3.9", 3),
    ("max_output_tokens", 2**70, 2**70),
    ("top_logprobs", 0, 0),
    ("model", "", ""),
    ("safety_identifier", 42, "42"),
    ("stream", False, False),
    ("store", "true", True),
    ("background", "False", False),
    ("include", ("a",), ["a"]),
    ("tool_choice", "required", "required"),
    ("tool_choice", {"type": "allowed_tools", "tools": ()}, {"type": "allowed_tools", "tools": []}),
    ("metadata", {}, {}),
    ("conversation", "conv_1", "conv_1"),
    ("conversation", {"id": "conv_1"}, {"id": "conv_1"}),
    ("context_management", [{"type": "compaction"}], [{"type": "compaction"}]),
    ("extra", {"gemini": {"a": 1}}, {"gemini": {"a": 1}}),
    ("extra", {}, None),
    ("extra", {"chat_completions": 1, "bias": {"a": 1}}, {"chat_completions": 1, "bias": {"a": 1}}),
    ("user", "u1", "u1"),
]


@pytest.mark.parametrize(("name", "given_value", "stored"), COERCED, ids=lambda value: ascii(value)[:30])
def test_options_are_coerced(name: str, given_value: Any, stored: Any) -> None:
    """Numbers of numeric text and fractions; nothing else is turned into something else."""
    value = OPTIONS[name].coerce(given_value)
    assert (type(value), value) == (type(stored), stored)


REFUSED = [
    ("temperature", "warm"),
    ("temperature", ""),
    ("temperature", True),
    ("temperature", "nan"),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("temperature", "1e999"),
    ("temperature", 10**400),
    ("temperature", "1_0"),
    ("temperature", "٣"),
    ("temperature", [1]),
    ("max_output_tokens", "many"),
    ("max_output_tokens", False),
    ("max_output_tokens", float("-inf")),
    ("max_output_tokens", "0x10"),
    ("stream", "yes"),
    ("stream", 1),
    ("model", ["gpt"]),
    ("model", True),
    ("model", 3),
    ("instructions", 4.5),
    ("instructions", {"text": "a"}),
    ("include", "reasoning.encrypted_content"),
    ("metadata", [("a", "b")]),
    ("metadata", {1: "a"}),
    ("metadata", {"a": datetime.now(UTC)}),
    ("text", "json"),
    ("reasoning", "high"),
    ("stream_options", True),
    ("extra", "seed"),
    ("extra", {"chat_completions": {"seed": 1}}),
    ("extra", {"Open-Response": {"seed": 1}}),
    ("extra", {"convers": {}}),
    ("tool_choice", {"a"}),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda value: ascii(value)[:30])
def test_what_cannot_be_used_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"^{name} ") as caught:
        settings_with({}, {name: value})
    assert caught.value.argument == name


@given(st.sampled_from(sorted(OPTIONS)), JSON)
def test_any_json_is_a_value_or_an_invalid_option(name: str, value: Any) -> None:
    """What was coerced once is not changed by coercing it again."""
    try:
        once = OPTIONS[name].coerce(value)
    except InvalidOption:
        return
    assert repr(OPTIONS[name].coerce(once)) == repr(once)


def test_an_unknown_option_is_named_with_those_like_it() -> None:
    with pytest.raises(InvalidOption, match=r"^temprature is not an option. Did you mean 'temperature'"):
        settings_with({}, {"temprature": 1})
    with pytest.raises(InvalidOption, match=r"^xyzzy is not.*max_output_tokens"):
        settings_with({}, {"xyzzy": 1})


def test_none_takes_an_option_out() -> None:
    """Zero, false, empty text and empty structures are values."""
    settings = {"model": "a", "temperature": 0.0, "stream": False, "instructions": "", "include": []}
    assert settings_with(settings, {}) == settings
    assert settings_with(settings, {"model": None, "top_p": None, "metadata": {}}) == {
        **{name: value for name, value in settings.items() if name != "model"},
        "metadata": {},
    }


def test_empty_metadata_is_unset_at_creation() -> None:
    assert Session(metadata={}, include=[], extra={}).settings == {"include": []}


def test_options_are_copied() -> None:
    """What the caller does to the structure afterwards changes nothing."""
    tags = {"a": ["b"]}
    settings = settings_with({}, {"metadata": tags})
    tags["a"].append("c")
    assert settings == {"metadata": {"a": ["b"]}}


def test_every_option_is_a_documented_attribute() -> None:
    """All but one: `user` is the method that adds a message."""
    assert {name for name in OPTIONS if isinstance(getattr(OptionAttributes, name, None), Option)} == {*OPTIONS} - {
        "user"
    }
    assert [name for name, option in OPTIONS.items() if not str(option.__doc__).endswith(".")] == []
    assert str(OptionAttributes.temperature.__doc__) in pydoc.render_doc(Session)


def test_the_page_of_options_is_fresh() -> None:
    page = Path(__file__).parents[2] / "docs" / "options.md"
    assert option_page.page() == page.read_text(), "the page is out of date: run make docs"


def test_json_output_asks_for_a_schema() -> None:
    """What else stands in `text` stays; what is not given is not written."""
    schema = {"type": "object"}
    assert json_output_text(None, schema) == {"format": {"type": "json_schema", "name": "response", "schema": schema}}
    text = {"verbosity": "low", "format": {"type": "text"}}
    assert json_output_text(text, schema, name="plant", strict=False, description="") == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "plant", "schema": schema, "strict": False, "description": ""},
    }
    assert text["format"] == {"type": "text"}
    with pytest.raises(InvalidOption, match="schema"):
        json_output_text(None, "object")  # type: ignore[arg-type]


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_thinking_takes_an_effort(effort: str) -> None:
    assert thinking(effort=effort) == {"effort": effort}


def test_thinking_takes_a_budget_or_false() -> None:
    assert thinking(budget_tokens=2048) == {"budget_tokens": 2048}
    assert thinking(enabled=False) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"enabled": True},
        {"enabled": "low"},
        {"effort": "low", "budget_tokens": 5},
        {"effort": "lots"},
        {"effort": 5},
        {"budget_tokens": 0},
        {"budget_tokens": -1},
        {"budget_tokens": 1.5},
        {"budget_tokens": True},
        {"budget_tokens": "many"},
        {"enabled": False, "effort": "low"},
        {"enabled": False, "budget_tokens": 5},
    ],
    ids=str,
)
def test_thinking_refuses_everything_else(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        thinking(**arguments)


# what a check returns -> what type checkers take for the keyword, where one type is enough
ARGUMENTS = {str: "str", float: "float", int: "int", bool: "bool", list[Any]: "Sequence[str]", dict[str, Any]: "Json"}


def test_the_keyword_types_name_every_option() -> None:
    """Where one is missing, the failure shows the line to add to `ImportOptions`."""
    missing = []
    for name in OPTIONS.keys() - SessionOptions.__annotations__.keys():
        check = OPTIONS[name]._check
        missing.append(f"{name}: {ARGUMENTS.get(get_type_hints(check)['return'], 'Any')} | None")
    assert missing == []
    assert SessionOptions.__annotations__.keys() == OPTIONS.keys()
    assert ImportOptions.__annotations__.keys() == OPTIONS.keys() - {"model", "stream"}
    assert NewOptions.__annotations__.keys() == OPTIONS.keys() | {"input", "known", "system", "tools"}
    assert UpdateOptions.__annotations__.keys() == OPTIONS.keys() | INFO


@pytest.mark.parametrize("name", OPTIONS)
def test_the_keyword_types_fit_what_is_stored(name: str) -> None:
    """A number is not announced as text."""
    expected = ARGUMENTS.get(get_type_hints(OPTIONS[name]._check)["return"])
    annotation = SessionOptions.__annotations__[name].__forward_arg__
    assert expected is None or annotation == f"{expected} | None"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("max_completion_tokens", "Write max_output_tokens=…."),
        ("system_prompt", "Write instructions=…."),
        ("reasoning_effort", 'Write reasoning={"effort": …}, or think(…).'),
        ("seed", 'Write extra={"seed": …}.'),
        ("messages", "import_request"),
    ],
)
def test_names_of_other_apis_are_explained(name: str, instead: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        settings_with({}, {name: 1})
    assert instead in str(caught.value.hint)
