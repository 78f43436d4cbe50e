"""Whatever a conversation is like, nothing that a provider refuses is sent without a report."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import CONVERSATIONS, Conversation
from tests.formats.validity_order import unreported
from threadkeep import CannotRender
from threadkeep.domain.options import DIALECTS
from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.formats import FormatName, get_format

MODELS: dict[FormatName, list[str]] = {
    "chat_completion": [
        "gpt-5.4", "qwen3.8-27b", "mistral-small-latest", "google/gemma-3-12b-it", "deepseek/deepseek-r1", "sonar-pro",
        "anthropic/claude-opus-4.6", "anthropic/claude-sonnet-4.5", "MiniMax-M2", "glm-5.2",
    ],
    "messages": ["claude-sonnet-4-5", "claude-opus-5", "claude-sonnet-4-6"],
    "converse": [
        "us.anthropic.claude-opus-4-6-v1", "anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0",
        "meta.llama3-8b-instruct-v1:0",
    ],
    "gemini": ["gemini-2.5-flash", "gemini-3-pro"],
}  # fmt: skip


def rendered(conversation: Conversation, end: int, format_name: FormatName, options: RenderOptions) -> Rendered | None:
    with suppress(CannotRender):  # nothing is left to send
        return get_format(format_name).render(conversation.snapshot(end), options)
    return None


@pytest.mark.parametrize("format_name", MODELS)
@given(conversation=CONVERSATIONS, data=st.data())
def test_no_request_breaks_a_rule_unreported(
    format_name: FormatName, conversation: Conversation, data: st.DataObject
) -> None:
    model = data.draw(st.sampled_from(MODELS[format_name]))
    dialect = data.draw(st.sampled_from([None, *DIALECTS])) if format_name == "chat_completion" else None
    conversation.settings["model"] = model
    for end in conversation.ends:
        found = rendered(conversation, end, format_name, RenderOptions(dialect=dialect))
        if found is not None:
            assert unreported(found, format_name, model, dialect) == []


@given(conversation=CONVERSATIONS, data=st.data())
def test_what_is_stable_stays_for_every_dialect_and_model(conversation: Conversation, data: st.DataObject) -> None:
    conversation.settings["model"] = data.draw(st.sampled_from(MODELS["chat_completion"]))
    options = RenderOptions(dialect=data.draw(st.sampled_from([None, *DIALECTS])))
    before: list[Any] = []
    stable = 0
    for end in conversation.ends:
        found = rendered(conversation, end, "chat_completion", options)
        if found is not None:
            messages = found.payload["messages"]
            assert messages[:stable] == before[:stable]
            before, stable = messages, found.stable
