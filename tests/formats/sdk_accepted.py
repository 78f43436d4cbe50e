"""Differences that are no loss, and are reported by nothing: which keys of a value may vanish, where, and why."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.formats.sdk_values import Path


class Accepted(NamedTuple):
    """Keys of the values of a source that need no report: all of their values or some, in all formats or some."""

    source: str  # a regular expression
    keys: tuple[str, ...]  # of a path
    reason: str
    target: str = ".*"
    values: tuple[object, ...] = ()
    within: str | None = None  # another key of the path


# every key here is one that says nothing to a model
OTHERS: Final = "(?!open_responses)"
ACCEPTED: Final = (
    Accepted(
        r"ag_ui\.", ("id", "metadata", "name", "subagentRunId"), "the client's own record of a message, not for models"
    ),
    Accepted(r"openai\.", ("id",), "the id of an item on the server that made it"),
    Accepted(r"openai\.", ("status",), "how far an item has come: state of an answer, which no other API takes"),
    Accepted(r"openai\.", ("phase",), "which text of an answer is the final one: a hint to clients", OTHERS),
    Accepted(r"openai\.", ("logprobs",), "log probabilities describe an answer; they are no content", OTHERS),
    Accepted(r"openai\.", ("created_by",), "who made an item: a key of answers alone"),
    Accepted(
        r"pydantic_ai\.",
        ("timestamp", "metadata", "retry", "dynamic_ref", "context_id", "scope", "tool_kind", "identifier", "value"),
        "the library's own record of a part, which it sends to no provider",
    ),
    Accepted(r"openai\.", ("caller", "type"), "the model itself called, as where nothing is said", values=("direct",)),
    Accepted(r"openai\.chat\.response", ("annotations",), "OpenAI shows how to append a whole message of an answer"),
    Accepted(
        r"anthropic\.", ("file_id",), "a key of the citations of answers, which the service refuses in requests",
        "messages", within="citations",
    ),
    Accepted(r"pydantic_ai\.", ("id", "provider_name"), "the id of a part on the server that made it, and whose it is"),
    Accepted(r"openai\.", ("execution",), "what holds where nothing else is said", values=("server",)),
    Accepted(r"pydantic_ai\.", ("outcome",), "what holds where nothing else is said", values=("success",)),
    Accepted(r"bedrock\.", ("status",), "what holds where nothing else is said", values=("success",)),
    Accepted(
        ".* options",
        (
            "truncation", "include_usage", "parallel_tool_calls", "service_tier", "serviceTier", "format", "type",
            "tool_choice", "mode", "mime_type", "thinking_summaries",
        ),
        "what holds where nothing else is said",
        values=("disabled", True, "auto", "default", "standard", "text", "text/plain", "none", "NONE"),
    ),
    Accepted(r"google\.config", ("role",), "the role of a system instruction, a documented variant of spelling"),
    Accepted(
        ".* options", ("summary", "generate_summary", "include_thoughts", "thinking_summaries"),
        "every model of Bedrock shows the reasoning that it may show", "converse",
    ),
    Accepted(r"google\.", ("displayName",), "the name of a picture, which says nothing to a model"),
    Accepted(r"google\.interactions", ("stream",), "elsewhere the address or the call asks for a stream"),
    Accepted(".* options", ("name",), "the name of a schema, which few APIs want", "messages|gemini|interactions"),
    Accepted(
        r"openai\.conversations", ("type",), "the type of a text, a documented variant of spelling", values=("text",),
    ),
)  # fmt: skip


def accepted(source: str, target: str, path: Path, value: object = None) -> bool:
    """Whether what stands at a path may vanish without a report."""
    return any(
        re.match(one.source, source)
        and re.match(one.target, target)
        and set(one.keys) & set(path)
        and (not one.values or value in one.values)
        and one.within in (None, *path)
        for one in ACCEPTED
    )


# what the types refuse of a request, and the service does not: a regular expression, and where that is said
UNTYPED: Final = {
    r"open_responses .*Message(Param)?\.(id|status): Extra": "OpenAI's page on compaction: send the window as it came",
    r"open_responses .*LocalShellCallOutput\.call_id: Extra": "openai/openai-agents-python#1855 on `call_id`",
    r"chat_completion .*annotations: Extra": "OpenAI's page on function calling: append the message of the answer",
    r"open_responses input\.FunctionCallOutput\.output\.": "Open Responses: outputs of tools hold videos, too",
    r"interactions interactions\.key: TextResponseFormat": "the type of an answer's form is also any JSON Schema",
    r"conversations\.item Message.* open_responses": "the service itself has made messages of such roles and parts",
}


def is_typed(sample: str, target: str, error: str) -> bool:
    """Whether what the types say against a request counts."""
    return not any(re.search(pattern, f"{sample} {target} {error}") for pattern in UNTYPED)
