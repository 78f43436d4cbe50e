"""Settings and tools of the Messages API, beyond the vectors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import codes, user
from tests.formats.messages_factories import FORMAT, rendered, sent
from threadkeep.domain.content import PARTS as PART_TYPES
from threadkeep.domain.options import OPTIONS
from threadkeep.domain.session import Session
from threadkeep.errors import CannotRender
from threadkeep.formats import get_format
from threadkeep.formats.messages.fields import FIELDS
from threadkeep.formats.messages.parts import PARTS
from threadkeep.formats.shared.claude import RULES, follows

TOOL = {"type": "function", "name": "lookup", "parameters": {"type": "object"}}


def head(**settings: Any) -> tuple[dict[str, Any], list[str], list[str]]:
    """A request without its messages, and the codes of what was reported."""
    found = rendered(user("Hi"), **settings)
    losses, repairs = codes(found)
    return {key: value for key, value in found.payload.items() if key not in ("model", "messages")}, losses, repairs


# Tokens and thinking


@pytest.mark.parametrize(
    ("settings", "expected", "losses", "repairs"),
    [
        ({}, {"max_tokens": 4096}, [], []),
        (
            {"reasoning": {"budget_tokens": 2000}},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 6096},
            [],
            [],
        ),
        (
            {"reasoning": {"budget_tokens": 500}},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 5120},
            [],
            ["range"],
        ),
        ({"reasoning": {"budget_tokens": 500}, "max_output_tokens": 900}, {"max_tokens": 900}, ["option"], []),
        ({"reasoning": {"budget_tokens": 0}}, {"thinking": {"type": "disabled"}, "max_tokens": 4096}, [], []),
        ({"reasoning": {"budget_tokens": -1}}, {"max_tokens": 4096}, ["option"], []),
        (
            {"model": "claude-opus-5", "reasoning": {"effort": "minimal"}},
            {"output_config": {"effort": "low"}, "max_tokens": 4096},
            [],
            ["range"],
        ),
        ({"reasoning": {"effort": "none"}}, {"max_tokens": 4096}, ["option"], []),
        ({"reasoning": {"type": "sometimes"}}, {"max_tokens": 4096}, ["option"], []),
        ({"reasoning": {"type": "between_tools"}}, {"thinking": {"type": "between_tools"}, "max_tokens": 4096}, [], []),
        (
            {"reasoning": {"budget_tokens": 2000}, "temperature": 1, "top_p": 0.5, "extra": {"top_k": 3}},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 6096},
            ["option", "option", "option"],
            [],
        ),
        (
            {
                "reasoning": {"budget_tokens": 2000},
                "tools": [TOOL],
                "tool_choice": {"type": "function", "name": "lookup"},
            },
            {
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "max_tokens": 6096,
                "tools": [{"name": "lookup", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "auto"},
            },
            ["tool_choice"],
            [],
        ),
    ],
)
def test_token_limit_and_thinking_agree(
    settings: dict[str, Any], expected: dict[str, Any], losses: list[str], repairs: list[str]
) -> None:
    assert head(**settings) == (expected, losses, repairs)


def test_adaptive_thinking_lets_a_tool_be_forced() -> None:
    found, losses, _ = head(model="claude-opus-5", reasoning={"type": "adaptive"}, tools=[TOOL], tool_choice="required")
    assert found["tool_choice"] == {"type": "any"}
    assert losses == []


@pytest.mark.parametrize(
    "settings",
    [
        {"reasoning": {"type": "enabled"}},
        {"reasoning": {"type": "disabled", "display": "omitted"}},
        {"reasoning": {"budget_tokens": "many"}},
        {"reasoning": {"budget_tokens": 2000}, "max_output_tokens": 2000},
        {"text": {"format": {"type": "json_schema"}}},
        {"safety_identifier": "a", "metadata": {"user_id": "b"}},
        {
            "tools": [TOOL],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "parallel_tool_calls": True,
        },
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(CannotRender):
        head(**settings)


# Models

NEWER = ["no prefill", "many pictures", "effort", "adaptive", "thinks", "claude 4"]
OLDER = ["one sampler", "thinks", "claude 4"]


@pytest.mark.parametrize(
    ("model", "rules"),
    [
        ("claude-3-5-haiku-20241022", []),
        ("claude-sonnet-4-20250514", ["thinks", "claude 4"]),
        ("claude-2.1", []),
        ("kimi-k3", []),
        ("claude-sonnet-4-5@20250929", OLDER),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", OLDER),
        ("anthropic/claude-opus-4.7", ["no sampling", "one sampler", "no budget", *NEWER]),
        ("claude-sonnet-4-6", ["one sampler", *NEWER]),
        ("claude-opus-4-8", ["no sampling", "one sampler", "no budget", "inner system", *NEWER]),
        ("claude-sonnet-5", ["no sampling", "one sampler", "no budget", *NEWER]),
        ("claude-opus-5-5", ["no sampling", "one sampler", "no budget", "always thinks", "inner system", *NEWER]),
        ("claude-fable-5", ["no sampling", "one sampler", "no budget", "always thinks", *NEWER]),
    ],
)
def test_rules_hold_from_a_version_of_a_family_on(model: str, rules: list[str]) -> None:
    assert [rule for rule in RULES if follows(model, rule)] == rules


@pytest.mark.parametrize(
    ("settings", "expected", "losses"),
    [
        ({"model": "claude-opus-4-8", "temperature": 0, "top_p": 1, "extra": {"top_k": 3}}, {}, 3),
        ({"model": "claude-sonnet-4-5", "temperature": 0, "top_p": 1}, {"temperature": 0}, 1),
        ({"model": "claude-3-opus-20240229", "temperature": 0, "top_p": 1}, {"temperature": 0, "top_p": 1}, 0),
        (
            {"model": "claude-sonnet-5", "reasoning": {"budget_tokens": 2000, "display": "omitted"}},
            {"thinking": {"type": "adaptive", "display": "omitted"}},
            1,
        ),
        ({"model": "claude-fable-5", "reasoning": {"type": "disabled"}}, {}, 1),
        ({"temperature": 1.7}, {"temperature": 1}, 0),
    ],
)
def test_what_a_model_refuses_is_left_out(settings: dict[str, Any], expected: dict[str, Any], losses: int) -> None:
    found, reported, _ = head(**settings)
    assert found == {"max_tokens": 4096, **expected}
    assert reported == ["option"] * losses


# Other settings


def test_a_user_id_that_is_too_long_is_left_out() -> None:
    assert head(safety_identifier="u" * 257) == ({"max_tokens": 4096}, ["metadata"], [])
    assert head(metadata={"user_id": 7}) == ({"max_tokens": 4096}, ["metadata"], [])


def test_what_is_set_for_other_formats_stays_out() -> None:
    settings = {
        "extra": {"seed": 1, "gemini": {"labels": {}}, "messages": {"container": "c1"}},
        "truncation": "disabled",
    }
    assert head(**settings, stream_options={"include_usage": True}) == ({"max_tokens": 4096, "container": "c1"}, [], [])
    part = {"type": "input_text", "text": "Hi", "cache_point": True, "thought_signature": "x"}
    assert sent(user(part)) == [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]


def test_what_the_format_does_not_have_is_reported() -> None:
    assert (
        head(store=True, include=["x"], text={"verbosity": "low"}, reasoning={"summary": "auto"})[1] == ["option"] * 4
    )


# Tools


@pytest.mark.parametrize(
    ("tool", "expected", "losses", "repairs"),
    [
        ({"type": "web_search"}, None, ["tool"], []),
        ({"type": "provider_tool", "format": "gemini", "payload": {}}, None, ["provider_item"], []),
        (
            {"type": "provider_tool", "format": FORMAT, "payload": {"type": "bash_20250124"}},
            {"type": "bash_20250124"},
            [],
            [],
        ),
        (
            {"type": "function", "name": "n" * 100},
            {"name": "n" * 100, "input_schema": {"type": "object", "properties": {}}},
            [],
            [],
        ),
        (
            {"type": "function", "name": "my.tool", "parameters": {"properties": {}}},
            {"name": "my_tool", "input_schema": {"type": "object", "properties": {}}},
            [],
            ["name", "schema"],
        ),
    ],
)
def test_tools_are_sent_as_the_service_takes_them(
    tool: dict[str, Any], expected: Any, losses: list[str], repairs: list[str]
) -> None:
    found, *reported = head(tools=[tool])
    assert found.get("tools") == (None if expected is None else [expected])
    assert reported == [losses, repairs]


def test_a_tool_listed_twice_is_defined_by_the_later_at_the_place_of_the_first() -> None:
    later = {**TOOL, "description": "Later."}
    found, *_ = head(tools=[TOOL, {"type": "function", "name": "other"}, later])
    assert [(tool["name"], tool.get("description")) for tool in found["tools"]] == [
        ("lookup", "Later."),
        ("other", None),
    ]


@pytest.mark.parametrize(
    ("settings", "choice", "losses", "repairs"),
    [
        ({"tool_choice": "auto", "parallel_tool_calls": False}, None, [], ["option", "option"]),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "gone"}}, None, [], ["tool_choice"]),
        ({"tools": [TOOL], "tool_choice": "none", "parallel_tool_calls": True}, {"type": "none"}, ["option"], []),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, None, ["tool_choice"], []),
        (
            {"tools": [TOOL], "tool_choice": {"type": "auto", "x": 1}, "parallel_tool_calls": True},
            {"type": "auto"},
            [],
            [],
        ),
        (
            {"tools": [{**TOOL, "name": "my.tool"}], "tool_choice": {"type": "function", "name": "my.tool"}},
            {"type": "tool", "name": "my_tool"},
            [],
            ["name", "name"],
        ),
    ],
)
def test_a_choice_needs_tools_and_its_tool(
    settings: dict[str, Any], choice: Any, losses: list[str], repairs: list[str]
) -> None:
    found, *reported = head(**settings)
    assert found.get("tool_choice") == choice
    assert reported == [losses, repairs]


# The tables


def test_every_option_has_exactly_one_row() -> None:
    assert sorted(row.option for row in FIELDS) == sorted(OPTIONS)


def test_every_part_type_has_a_mapper() -> None:
    for mappers in PARTS.values():
        assert PART_TYPES.keys() <= mappers.keys()


@pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-opus-4-8", "claude-fable-5"])
def test_thinking_that_goes_back_as_it_came_is_no_loss(model: str) -> None:
    """A budget that the model sets itself: an imported request keeps it until the option changes."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    request = {
        "model": model,
        "max_tokens": 4096,
        "thinking": thinking,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    session = get_format(FORMAT).parse_request(request)
    rendered = session.render("messages", strict=True)
    assert (rendered.payload, rendered.losses) == (request, [])
    built = Session(model=model, input="Hi", reasoning=thinking, max_output_tokens=4096).render("messages")
    assert built.payload["thinking"] == {"type": "adaptive"}
    assert [loss.path for loss in built.losses] == ["reasoning.budget_tokens"]
