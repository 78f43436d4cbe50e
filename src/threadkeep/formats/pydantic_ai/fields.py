"""Tables of Pydantic AI: arguments of `Agent.run`, kinds of parts, finish reasons.

Source: Pydantic AI's API reference, `pydantic_ai.agent`, `pydantic_ai.settings` and `pydantic_ai.messages`.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared import fields, reports
from threadkeep.formats.shared.fields import Field, NoField, Row, SpecialField

NAME: Final = "pydantic_ai"
HISTORY: Final = "message_history"  # the argument with the messages
SETTINGS: Final = "model_settings"
TOOLS: Final = "tools"  # definitions, which an agent takes as a toolset
REQUEST, RESPONSE = "request", "response"  # the kinds of messages

# session extras that users may set flat -> the model setting
EXTRAS: Final = {
    "seed": "seed", "top_k": "top_k", "logit_bias": "logit_bias", "stop": "stop_sequences",
    "stop_sequences": "stop_sequences",
}  # fmt: skip
TIERS: Final = ("auto", "default", "flex", "priority")
EFFORTS: Final = {
    "none": False, **{effort: effort for effort in ("minimal", "low", "medium", "high", "xhigh", "max")},
}  # fmt: skip
CHOICES: Final = {"auto": "auto", "none": "none", "required": "required"}

# finish_reason -> canonical status
STATUSES: Final = {
    "stop": "completed",
    "tool_call": "completed",
    "length": "incomplete",
    "content_filter": "failed",
    "error": "failed",
}
# state of a response that is not complete -> canonical status
SUSPENDED: Final = "suspended"  # where the model paused
STATES: Final = {"incomplete": "incomplete", SUSPENDED: "incomplete", "interrupted": "cancelled"}
INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}

# parts of responses; all others are of requests. Speech is in both, by who speaks, and so is a compaction.
RESPONSE_PARTS: Final = frozenset(
    {"text", "thinking", "tool-call", "builtin-tool-call", "builtin-tool-return", "compaction", "file"}
)
# keys of parts that say nothing to a model, so that other formats do not report them
SILENT: Final = frozenset(
    {
        "part_kind", "kind", "timestamp", "metadata", "id", "provider_name", "tool_name", "tool_call_id", "tool_kind",
        "dynamic_ref", "context_id", "scope", "outcome", "retry", "speaker", "interrupted_at_ms", "timestamps",
        "identifier", "force_download", "media_type", "value", "tag", "description", "content_file_digests",
    }
)  # fmt: skip


def _tier(value: Any, context: reports.Context) -> Any:
    return fields.tier_of({tier: tier for tier in TIERS})(value, context)


def _thinking(value: Any, context: reports.Context) -> Any:
    """The effort; there is no budget."""
    if not isinstance(value, dict):
        return None
    fields.other_keys("reasoning", ("effort",), value, context, "Pydantic AI")
    return fields.effort_of(value, EFFORTS, context)


def _effort(thinking: Any) -> JsonObject | None:
    if thinking is False:
        return {"effort": "none"}
    return {"effort": thinking} if isinstance(thinking, str) else None


def _choice(word: Any) -> Any:
    return word if isinstance(word, str) and word in CHOICES else None


def _setting(option: str, name: str | None = None) -> Field:
    return Field(option, f"{SETTINGS}.{name or option}")


FIELDS: Final[tuple[Row, ...]] = (
    # option, and the argument of `Agent.run`
    Field("model", "model"),
    Field("instructions", "instructions"),
    _setting("temperature"),
    _setting("top_p"),
    _setting("presence_penalty"),
    _setting("frequency_penalty"),
    _setting("max_output_tokens", "max_tokens"),
    _setting("parallel_tool_calls"),
    Field("service_tier", f"{SETTINGS}.service_tier", _tier, lambda tier: tier if tier in TIERS else None),
    Field("reasoning", f"{SETTINGS}.thinking", _thinking, _effort),
    Field(
        "tool_choice",
        f"{SETTINGS}.tool_choice",
        lambda value, context: context.tool_choice(value, CHOICES, lambda name: [name]),
        _choice,
    ),
    Field("metadata", "metadata"),
    SpecialField("stream", "not sent: `Agent.run_stream` streams"),
    SpecialField(
        "extra",
        "`seed`, `top_k`, `logit_bias`, `stop` and `stop_sequences` in `model_settings`; `extra.pydantic_ai` verbatim",
    ),
    *fields.only_in_responses("Pydantic AI"),
    *fields.no_fields("it is a setting of a single provider", *fields.CACHE_OPTIONS, "safety_identifier", "moderation"),
    *fields.no_fields("an agent does not have it", "top_logprobs", "stream_options", "store", "user"),
    NoField("text", "the agent's output type says how the answer is written"),
    SpecialField("dialect", "not sent: the agent's model knows its vendor"),
    SpecialField("provider", "not sent: the agent's model knows its vendor"),
    NoField("previous_response_id", "the items stored here are sent"),
    NoField("conversation", "the items stored here are sent"),
)
