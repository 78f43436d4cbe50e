"""Settings that depend on each other or on the model.

* `max_tokens` is always sent: 4096 where nothing is set, and what thinking may use on top.
* While the model thinks, temperature and top_k are its own, and top_p is 0.95 at least.
* A tool cannot be forced while thinking has a budget.
* Newer models refuse sampling, budgets, or thinking that is turned off: see the table of models. Models that it does
  not name follow the rule of those before Claude 4: both samplers, budgets for thinking, thinking that can be turned
  off, and system text only before the conversation.

Source: Anthropic's API reference, "Messages"; its guide on extended thinking; its model pages and the SDK's notes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.messages.fields import DEFAULT_MAX_TOKENS, LEAST_BUDGET, fits_user_id
from threadkeep.formats.shared.reports import Context

LEAST_TOP_P: Final = 0.95


def fit(body: JsonObject, settings: JsonObject, context: Context, *, has_limit: bool = True) -> None:
    """Make the settings of a request agree; `has_limit`: a token limit is sent though none is set."""
    _set_user_id(body, settings, context)
    _fit_thinking(body, context)
    _limit(body, has_limit=has_limit)
    _fit_sampling(body, context)
    kind, choice = thinking_type(body), body.get("tool_choice") or {}
    if kind == "enabled" and choice.get("type") in ("any", "tool"):
        context.loss("tool_choice", "tool_choice", "No tool can be forced while thinking has a budget.")
        body["tool_choice"] = {key: value for key, value in choice.items() if key != "name"} | {"type": "auto"}


def thinking_type(body: JsonObject) -> Any:
    """The type of thinking that a request asks for; None when it does not say."""
    thinking = body.get("thinking")
    return thinking.get("type") if isinstance(thinking, dict) else None


def _set_user_id(body: JsonObject, settings: JsonObject, context: Context) -> None:
    user_id = settings.get("safety_identifier")
    if user_id is None:
        return
    named = (settings.get("metadata") or {}).get("user_id")
    if named not in (None, user_id):
        raise CannotRender("safety_identifier and metadata.user_id differ.", hint="Set one, or both to the same.")
    if fits_user_id(user_id, context):
        body["metadata"] = {"user_id": user_id}


def _fit_thinking(body: JsonObject, context: Context) -> None:
    kind, model = thinking_type(body), body.get("model")
    if kind == "disabled" and follows(model, "always thinks"):
        context.loss("option", "reasoning.type", f"{model} always thinks.")
        del body["thinking"]
    elif kind == "enabled" and follows(model, "no budget"):
        context.loss("option", "reasoning.budget_tokens", f"{model} sets its own budget: adaptive thinking was sent.")
        others = {key: value for key, value in body["thinking"].items() if key != "budget_tokens"}
        body["thinking"] = others | {"type": "adaptive"}
    elif kind == "enabled" and (budget := body["thinking"]["budget_tokens"]) < LEAST_BUDGET:
        limit = body.get("max_tokens")  # the least budget is sent where there is room for it
        path = "reasoning.budget_tokens"
        if limit is None or limit > LEAST_BUDGET:
            context.repair("range", path, f"{budget} became {LEAST_BUDGET}, the least that is taken.")
            body["thinking"] = {**body["thinking"], "budget_tokens": LEAST_BUDGET}
        elif limit > budget:
            context.loss("option", path, f"{budget} is less than the service takes: {LEAST_BUDGET}.")
            del body["thinking"]


def _limit(body: JsonObject, *, has_limit: bool) -> None:
    budget = body["thinking"]["budget_tokens"] if thinking_type(body) == "enabled" else 0
    limit = body.get("max_tokens")
    if limit is None and has_limit:
        body["max_tokens"] = DEFAULT_MAX_TOKENS + budget
    elif limit is not None and budget and limit <= budget:
        detail = f"max_output_tokens is {limit}, which the thinking budget of {budget} uses up."
        raise CannotRender(detail, hint="Set it higher, or unset it.")


def _fit_sampling(body: JsonObject, context: Context) -> None:
    model, refused = body.get("model"), {}
    if follows(model, "no sampling"):
        refused = dict.fromkeys(("temperature", "top_p", "top_k"), f"{model} takes no sampling settings")
    elif thinking_type(body) in ("enabled", "adaptive"):
        refused = dict.fromkeys(("temperature", "top_k"), "it is the model's own while it thinks")
        if isinstance(top_p := body.get("top_p"), int | float) and top_p < LEAST_TOP_P:
            refused["top_p"] = f"it is {LEAST_TOP_P} at least while the model thinks"
    if "temperature" in body and "temperature" not in refused and follows(model, "one sampler"):
        refused["top_p"] = f"{model} takes it only without temperature"
    for name in [name for name in refused if name in body]:
        context.loss("option", name, f"{name} was left out: {refused[name]}.")
        del body[name]


# claude-3-5-haiku…, claude-opus-4-1-20250805, anthropic.claude-opus-4-7-v1:0, claude-sonnet-5, claude-opus-4.7
_NAME: Final = re.compile(
    r"claude-(?:(?P<before>\d(?:[.-]\d)?)-)?(?P<family>opus|sonnet|haiku|fable|mythos)"
    r"(?:-(?P<major>\d{1,2})(?!\d)(?:[.-](?P<minor>\d{1,2})(?!\d))?)?",
    re.IGNORECASE,
)

_ALWAYS: Final = {"fable": (0, 0), "mythos": (0, 0)}
_REFUSING: Final = {"opus": (4, 7), "sonnet": (5, 0), **_ALWAYS}
# rule -> family -> the version from which it holds
RULES: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "no sampling": _REFUSING,
    "one sampler": {**dict.fromkeys(("opus", "sonnet", "haiku"), (4, 1)), **_ALWAYS},
    "no budget": _REFUSING,
    "always thinks": {"opus": (5, 5), **_ALWAYS},
    "inner system": {"opus": (4, 8)},
}


def follows(model: Any, rule: str) -> bool:
    """Whether a rule of the table holds for a model.

    >>> follows("claude-opus-4-8", "no sampling"), follows("claude-sonnet-4-5-20250929", "no sampling")
    (True, False)
    """
    name = _NAME.search(model) if isinstance(model, str) else None
    since = None if name is None else RULES[rule].get(name["family"].lower())
    if name is None or since is None:
        return False
    major, minor = name["major"], name["minor"]
    if major is None:
        major, _, minor = (name["before"] or "0").replace("-", ".").partition(".")
    return (int(major), int(minor or 0)) >= since
