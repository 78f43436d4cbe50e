"""The turns of a rendered conversation in each format, and models to render it for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from threadkeep.errors import CannotRender
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import Snapshot

# format -> the key of a request under which the turns are
TURNS: dict[FormatName, str] = {
    "open_responses": "input",
    "chat_completion": "messages",
    "messages": "messages",
    "gemini": "contents",
    "interactions": "input",
    "converse": "messages",
}
MODELS: dict[FormatName, st.SearchStrategy[str]] = {
    "open_responses": st.just("gpt-5.4"),
    "chat_completion": st.just("gpt-5.4"),
    "messages": st.sampled_from(["gpt-5.4", "claude-opus-4-8", "claude-sonnet-4-5"]),
    "gemini": st.sampled_from(["gemini-2.5-flash", "gemini-3-flash-preview", "models/gemini-2.0-flash", "tuned"]),
    "interactions": st.just("gemini-3-flash-preview"),
    "converse": st.sampled_from(
        ["amazon.nova-2-lite-v1:0", "us.anthropic.claude-sonnet-4-6", "meta.llama", "qwen.qwen3-32b", "gpt-5.4"]
    ),
}


def rendered_turns(snapshot: Snapshot, format_name: FormatName) -> tuple[list[Any], int]:
    """The turns and how many of them are stable; nothing where nothing can be sent."""
    try:
        rendered = get_format(format_name).render(snapshot)
    except CannotRender:
        return [], 0
    return rendered.payload[TURNS[format_name]], rendered.stable
