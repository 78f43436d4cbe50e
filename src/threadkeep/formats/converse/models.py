"""What models on Bedrock differ in: how they are asked to reason, and where they take cache points.

Converse has no field for reasoning; the keys go into `additionalModelRequestFields`. A model that is in no row is asked
for nothing, which is reported. Models of no row take cache points everywhere.

Source: Amazon Bedrock's user guide, "Inference request parameters and response fields for foundation models" and
"Prompt caching for faster model inference"; recorded requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.shared.fields import DEFAULTS
from threadkeep.formats.shared.reports import Context

How = Callable[[JsonObject, Context], JsonObject]
_THINKING: Final = ("type", "budget_tokens", "display")
_SILENT: Final = frozenset({"summary", "generate_summary"})  # every model shows the reasoning that it may show
# effort -> the nearest of three levels
_THREE_LEVELS: Final = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})


def reasoning_fields(settings: Mapping[str, Any], context: Context) -> JsonObject:
    """The keys of `additionalModelRequestFields` that ask this model to reason.

    Raises:
        CannotRender: the budget for thinking leaves no token for the answer.
    """
    option = settings.get("reasoning")
    if not isinstance(option, dict) or not any(value is not None for value in option.values()):
        return {}
    model = str(settings.get("model") or "")
    how = next((how for pattern, how in MODELS if pattern.search(model)), _nothing)
    fields = how(option, context)
    budget, most = fields.get("thinking", {}).get("budget_tokens"), settings.get("max_output_tokens")
    if isinstance(budget, int) and isinstance(most, int) and most <= budget:
        raise CannotRender(
            f"The thinking budget of {budget} tokens leaves nothing of max_output_tokens {most}.",
            hint="Raise max_output_tokens.",
        )
    return fields


def _thinking(option: JsonObject) -> JsonObject:
    thinking = {key: option[key] for key in _THINKING if option.get(key) is not None}
    return {"type": "enabled", **thinking} if thinking else {}


def _claude_with_budget(option: JsonObject, context: Context) -> JsonObject:
    """Claude 3.7 to 4.5: a budget, and no effort."""
    thinking = _thinking(option)
    _report(option, (*_THINKING,), context)
    return {"thinking": thinking} if thinking else {}


def _claude_with_effort(option: JsonObject, context: Context) -> JsonObject:
    """Claude 4.6 and later decide how much they think; the effort guides them."""
    thinking, effort = _thinking(option), option.get("effort")
    _report(option, (*_THINKING, "effort"), context)
    if effort not in _EFFORTS:
        return {"thinking": thinking} if thinking else {}
    return {"thinking": thinking or {"type": "adaptive"}, "output_config": {"effort": effort}}


def _nova(option: JsonObject, context: Context) -> JsonObject:
    level = _level(option, context)
    return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}} if level else {}


def _gpt_oss(option: JsonObject, context: Context) -> JsonObject:
    level = _level(option, context)
    return {"reasoning_effort": level} if level else {}


def _qwen(option: JsonObject, context: Context) -> JsonObject:
    level = _level(option, context)
    return {"reasoning_config": level} if level else {}


def _level(option: JsonObject, context: Context) -> str | None:
    effort = option.get("effort")
    level = _THREE_LEVELS.get(effort) if isinstance(effort, str) else None
    _report(option, ("effort",), context)
    if level is not None and level != effort:
        context.repair(
            "range", "reasoning.effort", f"The effort {effort!r} was sent as {level!r}, the nearest there is."
        )
    return level


def _nothing(option: JsonObject, context: Context) -> JsonObject:
    _report(option, (), context)
    return {}


def _report(option: JsonObject, known: tuple[str, ...], context: Context) -> None:
    """Report what this model cannot be asked for."""
    for key, value in option.items():
        if key not in known and key not in _SILENT and value is not None and value not in (*DEFAULTS, "none"):
            context.loss("option", f"reasoning.{key}", f"reasoning.{key} was left out: the model has no field for it.")


# model id (regions and versions stand around the name) -> how it is asked to reason
MODELS: Final[tuple[tuple[re.Pattern[str], How], ...]] = (
    (re.compile(r"claude-(3-7|sonnet-4-2|opus-4-2|opus-4-1|(sonnet|opus|haiku)-4-5)"), _claude_with_budget),
    (re.compile(r"claude-((sonnet|opus|haiku)-(4-[6-9]|[5-9])|fable|mythos)"), _claude_with_effort),
    (re.compile(r"nova-2"), _nova),
    (re.compile(r"gpt-oss"), _gpt_oss),
    (re.compile(r"qwen3"), _qwen),
)

TOOLS, SYSTEM, MESSAGES = "tools", "system", "messages"
_EVERYWHERE: Final = frozenset({TOOLS, SYSTEM, MESSAGES})
# model id (the first match counts) -> where it takes cache points
CACHED: Final[tuple[tuple[re.Pattern[str], frozenset[str]], ...]] = (
    (re.compile(r"claude-(3-(haiku|sonnet|opus)|3-5-sonnet-20240620|v2|instant)"), frozenset()),
    (re.compile(r"nova-(canvas|reel|sonic)"), frozenset()),
    (re.compile(r"nova"), frozenset({SYSTEM, MESSAGES})),
    (re.compile(r"titan|llama|mistral|mixtral|cohere|ai21|deepseek|qwen|gpt-oss|writer|kimi|minimax"), frozenset()),
)


def cached_places(model: object) -> frozenset[str]:
    """Where a model takes cache points: on tools, system text, messages."""
    name = model.lower() if isinstance(model, str) else ""
    return next((places for pattern, places in CACHED if pattern.search(name)), _EVERYWHERE)
