"""What Anthropic's models refuse in a Converse request, as in one of Messages: see `formats.shared.claude`.

* A budget leaves room for the answer, and no tool can be forced beside it.
* Where the thinking of the last calls is missing, as of another model's, nothing is thought with a budget.
* An imported request that keeps to them does so when its settings are changed, too; any other goes back as it came.

Source: Amazon Bedrock's user guide, "Anthropic Claude models", extended thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.converse.turns import Turn
from threadkeep.formats.shared.claude import fit_sampling, fit_thinking, is_claude, thinking_type
from threadkeep.formats.shared.fields import value_at, with_value
from threadkeep.formats.shared.reports import Context

_THINKING: Final = "additionalModelRequestFields.thinking"
_CHOICE: Final = "toolConfig.toolChoice"
_OBJECTS: Final = ("inferenceConfig", "additionalModelRequestFields")
# key of a body of Messages -> where Converse has it
_KEYS: Final = {
    "max_tokens": "inferenceConfig.maxTokens",
    "temperature": "inferenceConfig.temperature",
    "top_p": "inferenceConfig.topP",
    "thinking": _THINKING,
}
UNFIT: Final = "unfit"  # how an imported request says that it does not keep to the rules
_FORCED: Final = frozenset({"any", "tool"})


def fitted(body: JsonObject, context: Context) -> JsonObject:
    """Return a request with settings that the model takes together; of other models as it is."""
    model = body.get("modelId")
    if not is_claude(model):
        return body
    given: JsonObject = {key: value for key, path in _KEYS.items() if (value := value_at(body, path)) is not None}
    sent: JsonObject = {"model": model, **given}
    fit_thinking(sent, context)
    _check_budget(sent)
    fit_sampling(sent, context)
    changed = [key for key in _KEYS if sent.get(key) != given.get(key)]
    for key in changed:
        body = with_value(body, _KEYS[key], sent.get(key))
    return _without_empty(body) if changed else body


def fits(body: JsonObject) -> bool:
    """Whether an imported request keeps to the rules, so that it can be held to them when its settings change."""
    thinking, limit, choice = (value_at(body, path) for path in (_THINKING, _KEYS["max_tokens"], _CHOICE))
    kinds = ((thinking, dict | None), (limit, int | None), (choice, dict | None))
    if not all(isinstance(value, kind) for value, kind in kinds):
        return False
    if thinking_type({"thinking": thinking}) == "enabled" and not isinstance(thinking.get("budget_tokens"), int):
        return False
    context = Context()
    try:
        agreed(fitted(body, context), (), context)
    except CannotRender:
        return False
    return not (context.losses or context.repairs)


def holds(spelling: JsonObject | None) -> bool:
    """Whether the rules hold for a request: a new one, or one that was imported and spelled so."""
    return spelling is None or UNFIT not in spelling


def agreed(body: JsonObject, turns: Sequence[Turn], context: Context) -> JsonObject:
    """Return a request whose thinking, messages and choice of a tool can stand together.

    Messages of an imported request go back as they came.
    """
    if not is_claude(body.get("modelId")) or thinking_type({"thinking": value_at(body, _THINKING)}) != "enabled":
        return body
    if _lacks_thought(turns):
        context.repair("option", "reasoning", "Thinking was left out: the last tool call came without its thinking.")
        return _without_empty(with_value(body, _THINKING, None))
    if _FORCED.isdisjoint(value_at(body, _CHOICE) or ()):
        return body
    context.loss("tool_choice", "tool_choice", "No tool can be forced while thinking has a budget.")
    return with_value(body, _CHOICE, {"auto": {}})


def _without_empty(body: JsonObject) -> JsonObject:
    return {key: value for key, value in body.items() if key not in _OBJECTS or value}


def _check_budget(body: JsonObject) -> None:
    budget, most = (body.get("thinking") or {}).get("budget_tokens"), body.get("max_tokens")
    if isinstance(budget, int) and isinstance(most, int) and most <= budget:
        raise CannotRender(
            f"The thinking budget of {budget} tokens leaves nothing of max_output_tokens {most}.",
            hint="Raise max_output_tokens.",
        )


def _lacks_thought(turns: Sequence[Turn]) -> bool:
    """Whether the message before the last tool results lacks the thinking that a budget requires."""
    run = [turn for turn in turns if turn.role in ("assistant", "user")][-2:]
    if [turn.role for turn in run] != ["assistant", "user"] or all(turn.is_as_came for turn in run):
        return False
    first, after = (_first_key(turn.blocks) for turn in run)
    return after == "toolResult" and first != "reasoningContent"


def _first_key(blocks: Sequence[Any]) -> str | None:
    first = blocks[0] if blocks else None
    return next(iter(first), None) if isinstance(first, dict) else None
