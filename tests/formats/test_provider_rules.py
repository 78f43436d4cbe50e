"""The table of what may stand where, and the page of the documentation that is made of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import provider_page
from threadkeep.domain.options import DIALECTS
from threadkeep.formats import NAMES, FormatName
from threadkeep.formats.shared.provider_rules import ANYTHING, ProviderRules, RuleRow, rules_for, table

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"


def test_the_page_is_fresh() -> None:
    assert provider_page.page() == PAGE.read_text(), "the page is out of date: run make docs"


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{place} {row.who}") for place, row in enumerate(table())])
def test_each_row_says_who_has_which_rules_by_which_source(row: RuleRow) -> None:
    assert set(row.formats) <= set(NAMES)
    assert set(row.dialects or ()) <= {*DIALECTS, None}
    assert row.rules.keys() <= {one.name for one in fields(ProviderRules)}
    assert all(getattr(ANYTHING, name) != value for name, value in row.rules.items())
    assert row.source
    assert row.source in PAGE.read_text()


@pytest.mark.parametrize(
    ("format_name", "dialect", "model", "expected"),
    [
        ("chat_completion", None, "gpt-5.4", {"tool_media": False, "pictures": 500}),
        ("chat_completion", "openrouter", None, {"tool_media": False}),
        ("chat_completion", "compatible", "acme", {"tool_media": False, "takes_developer": False, "system": "leading"}),
        ("open_responses", "compatible", "acme", {"tool_media": False, "takes_developer": False, "system": "leading"}),
        ("open_responses", None, "qwen3.8-27b", {"pictures": 500}),
        ("open_responses", "mistral", "mistral-large", {}),
        ("pydantic_ai", None, "anthropic:claude-opus-5", {}),
        ("messages", None, "glm-4.7", {
            "blank": "some text", "error_media": False, "checks_types": True, "starts_with_user": True, "pictures": 100,
            "picture_bytes": 5_242_880, "media_bytes": 33_554_432, "picture_side": 8000, "many_pictures": 20,
            "many_side": 2000,
        }),
    ],
)  # fmt: skip
def test_rules_come_from_format_dialect_and_model(
    format_name: FormatName, dialect: str | None, model: str | None, expected: dict[str, object]
) -> None:
    rules = rules_for(format_name, dialect, model)
    found = {one.name: getattr(rules, one.name) for one in fields(rules)}
    assert {name: value for name, value in found.items() if value != getattr(ANYTHING, name)} == expected


def test_a_rule_for_all_dialects_but_one_names_each_of_them() -> None:
    row = next(row for row in table() if row.who == "Mistral's models on other servers than Mistral's")
    assert set(row.dialects or ()) == {*DIALECTS, None} - {"mistral"}


def test_limits_of_a_provider_count_where_it_gets_the_request() -> None:
    assert rules_for("chat_completion", None, "llama-4-scout", "groq").pictures == 5
    assert rules_for("chat_completion", "compatible", "llama-4-scout").pictures is None


@pytest.mark.parametrize(
    ("model", "system", "alternates"),
    [
        ("qwen3.8-27b", "leading", False),
        ("Qwen/Qwen3.5-27B", "leading", False),
        ("qwen-3.6-plus", "leading", False),
        ("qwen3-32b", "anywhere", False),
        ("qwen2.5-72b", "anywhere", False),
        ("qwen-plus", "anywhere", False),
        ("google/gemma-3-12b-it", "leading", True),
        ("gemma-2-9b-it", "as user", True),
        ("gemma-7b", "as user", True),
        ("deepseek-chat", "anywhere", False),
        ("deepseek/deepseek-r1", "anywhere", True),
        ("deepseek-reasoner", "anywhere", True),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", "leading", True),
        ("open-mistral-nemo", "leading", True),
        ("perplexity/sonar-pro", "leading", True),
        ("MiniMaxAI/MiniMax-M2.7", "leading", False),
        ("llama-4-scout", "anywhere", False),
    ],
)
def test_templates_are_known_by_the_names_of_models(model: str, system: str, alternates: bool) -> None:
    rules = rules_for("chat_completion", "openrouter", model)
    assert (rules.system, rules.alternates) == (system, alternates)
