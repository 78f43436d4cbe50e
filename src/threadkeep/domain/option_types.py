"""The types of session options as keyword arguments, for type checkers and editors.

What is taken is a little more: `threadkeep.domain.options` also makes numbers of text, for example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from threadkeep.domain.content import Content
    from threadkeep.domain.items import Item
    from threadkeep.domain.tools import Tool

Json = Mapping[str, Any]


class ImportOptions(TypedDict, total=False):
    """Session options but for `model` and `stream`, which `import_request` names itself."""

    instructions: str | None
    previous_response_id: str | None
    conversation: str | Json | None
    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    top_logprobs: int | None
    parallel_tool_calls: bool | None
    background: bool | None
    store: bool | None
    include: Sequence[str] | None
    tool_choice: str | Json | None
    metadata: Json | None
    text: Json | None
    reasoning: Json | None
    stream_options: Json | None
    truncation: str | None
    service_tier: str | None
    safety_identifier: str | None
    user: str | None
    prompt: Json | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    prompt_cache_options: Json | None
    context_management: Sequence[Json] | Json | None
    moderation: Json | None
    access_programs: Any
    image: Any
    dialect: str | None
    extra: Json | None


class Options(ImportOptions, total=False):
    """All session options."""

    model: str | None
    stream: bool | None


class NewOptions(Options, total=False):
    """What a new session or conversation is made of."""

    input: Content | Sequence[Item | Json] | None
    system: Content | None
    tools: Iterable[Tool | Json] | None


class ChangedOptions(Options, total=False):
    """What `update` of a stored conversation changes."""

    title: str | None
    labels: Mapping[str, str] | None
    user_id: str | None
    external_id: str | None
