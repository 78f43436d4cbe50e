"""No word for an effort gets lost in silence, whatever the format, the vendor and the model."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.formats.factories import Json, codes, render, user
from threadkeep import LossError, formats
from threadkeep.domain.options import DIALECTS, EFFORTS
from threadkeep.formats.gemini.fields import BUDGETS

MODELS = {
    "open_responses": ("gpt-5.4", "openai/gpt-oss-120b", "o3"),
    "chat_completion": (
        "gpt-5.4", "glm-4.6", "glm-5.3", "kimi-k3", "mimo-v2-pro", "minimax-m3", "deepseek-v4", "mistral-large", "acme",
    ),
    "messages": ("claude-opus-4-6", "claude-sonnet-4-5", "claude-3-5-haiku", "claude-fable-1"),
    "gemini": ("gemini-3-pro", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.0-flash", "gemini-1.5-pro", "gemma"),
    "converse": (
        "anthropic.claude-opus-4-6-v1:0", "anthropic.claude-sonnet-4-5-v1:0", "us.amazon.nova-2-lite-v1:0",
        "openai.gpt-oss-120b-1:0", "qwen.qwen3-32b-v1:0", "amazon.nova-lite-v1:0",
    ),
    "interactions": ("gemini-3-pro",),
    "pydantic_ai": ("openai:gpt-5.4",),
    "ui_messages": ("gpt-5.4",),
    "ag_ui": ("gpt-5.4",),
}  # fmt: skip
TARGETS = [(name, model) for name in formats.NAMES for model in MODELS[name]]
WORDS = (*EFFORTS, "default", "off", "auto", "HIGH", "low ")
PATH = "reasoning.effort"


def says(payload: Json, effort: str, dialect: str | None) -> bool:
    """Whether a request says an effort: by its word, or by what means just that to its target."""
    text = json.dumps({key: value for key, value in payload.items() if key not in ("model", "modelId", "messages")})
    if json.dumps(effort).lower() in text.lower():
        return True
    turns_off = effort in ("none", "off") and payload.get("thinking") == {"type": "disabled"}
    thinking = payload.get("generationConfig", {}).get("thinkingConfig", {})
    if effort == "none" and payload.get("model_settings") == {"thinking": False}:
        return True
    return (turns_off and dialect is not None) or thinking == {"thinkingBudget": {**BUDGETS, "none": 0}.get(effort)}


@pytest.mark.parametrize(("name", "model"), TARGETS)
def test_an_effort_is_sent_or_reported(name: Any, model: str) -> None:
    for dialect, effort in product((None, *DIALECTS), WORDS):
        found = render(name, user("Hi"), model=model, dialect=dialect, reasoning={"effort": effort})
        reports = [*found.losses, *found.repairs]
        assert {report.path for report in reports} <= {PATH}
        assert reports or says(found.payload, effort, dialect), (dialect, effort, found.payload)
        assert not reports or any(repr(effort) in report.detail for report in reports)


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "model"), TARGETS)
@given(effort=st.one_of(st.text(min_size=1), st.integers(1), st.lists(st.text(), min_size=1)))
@example(effort=True)
@example(effort=["low"])
@example(effort={"a": "low"})
def test_so_is_whatever_else_stands_there(name: Any, model: str, effort: Any) -> None:
    for dialect in (None, "openai", "zai", "openrouter"):
        found = render(name, user("Hi"), model=model, dialect=dialect, reasoning={"effort": effort})
        reports = [report for report in [*found.losses, *found.repairs] if report.path == PATH]
        is_sent = json.dumps(effort) in json.dumps(found.payload, sort_keys=False)
        assert len(reports) == 1 or (not reports and (is_sent or says(found.payload, str(effort), dialect)))


@pytest.mark.parametrize(
    ("name", "settings", "sent", "reports"),
    [
        ("converse", {"model": "anthropic.claude-opus-4-6-v1:0", "effort": "minimal"}, "low", ([], ["range"])),
        ("converse", {"model": "qwen.qwen3-32b-v1:0", "effort": "auto"}, None, (["option"], [])),
        ("messages", {"model": "claude-opus-4-6", "effort": "minimal"}, "low", ([], ["range"])),
        ("open_responses", {"dialect": "openai", "effort": "default"}, None, (["option"], [])),
        ("open_responses", {"dialect": "openai", "effort": "off"}, "none", ([], ["range"])),
        ("open_responses", {"dialect": None, "effort": "default"}, "default", ([], [])),
        ("chat_completion", {"dialect": "openai", "effort": "default"}, None, (["option"], [])),
        ("chat_completion", {"dialect": None, "effort": "default"}, "default", ([], [])),
        ("chat_completion", {"dialect": "xiaomi", "model": "mimo-v2-pro", "effort": "low"}, None, ([], ["range"])),
    ],
)  # fmt: skip
def test_the_nearest_word_is_sent_where_there_is_one(name: Any, settings: Json, sent: str | None, reports: Any) -> None:
    effort = settings.pop("effort")
    found = render(name, user("Hi"), **settings, reasoning={"effort": effort})
    fields = found.payload.get("additionalModelRequestFields", found.payload)
    holder = fields.get("output_config") or fields.get("reasoning") or {"effort": fields.get("reasoning_effort")}
    assert holder.get("effort") == sent
    assert codes(found) == reports


def test_openai_gets_the_rest_of_the_reasoning() -> None:
    settings: Json = {"dialect": "openai", "reasoning": {"effort": "default", "summary": "auto"}}
    assert render("open_responses", user("Hi"), **settings).payload["reasoning"] == {"summary": "auto"}
    settings["reasoning"] = {"effort": "default"}
    assert "reasoning" not in render("open_responses", user("Hi"), **settings).payload


@pytest.mark.parametrize(
    ("name", "keys", "model"),
    [
        ("open_responses", {"reasoning": {"effort": "default"}, "input": "Hi"}, "gpt-oss"),
        ("chat_completion", {"reasoning_effort": "default"}, "gpt-oss"),
        ("messages", {"output_config": {"effort": "extreme"}, "max_tokens": 9}, "claude-opus-4-6"),
        ("converse", {"additionalModelRequestFields": {"reasoning_config": "extreme"}}, "qwen.qwen3-32b-v1:0"),
    ],
)
def test_a_word_goes_back_to_the_format_that_it_came_from(name: Any, keys: Json, model: str) -> None:
    said: Json = {"role": "user", "content": [{"text": "Hi"}] if name == "converse" else "Hi"}
    body = {**({} if name == "open_responses" else {"messages": [said]}), **keys}
    session = formats.get_format(name).parse_request(body, model=model)
    found = session.render(name)
    assert {key: found.payload[key] for key in keys} == keys or name == "open_responses"
    assert codes(found) == ([], [])
    assert found.payload.get("reasoning") == keys.get("reasoning")


def test_a_lost_effort_is_refused_where_the_request_must_be_exact() -> None:
    session = formats.get_format("chat_completion").parse_request(
        {"model": "gpt-oss", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "default"}
    )
    session.update(dialect="openai")
    with pytest.raises(LossError, match="'default'"):
        session.render("open_responses", strict=True)
