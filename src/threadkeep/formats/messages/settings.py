"""Settings that depend on each other or on the model, see `formats.shared.claude`.

* `max_tokens` is always sent: 4096 where nothing is set, and what thinking may use on top.
* A tool cannot be forced while thinking has a budget.

Source: Anthropic's API reference, "Messages"; its guide on extended thinking.
"""

from __future__ import annotations

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.messages.fields import DEFAULT_MAX_TOKENS, fits_user_id
from threadkeep.formats.shared.claude import fit_sampling, fit_thinking, thinking_type
from threadkeep.formats.shared.reports import Context


def fit(body: JsonObject, settings: JsonObject, context: Context, *, has_limit: bool = True) -> None:
    """Make the settings of a request agree; `has_limit`: a token limit is sent though none is set."""
    _set_user_id(body, settings, context)
    fit_thinking(body, context)
    _limit(body, has_limit=has_limit)
    fit_sampling(body, context)
    kind, choice = thinking_type(body), body.get("tool_choice") or {}
    if kind == "enabled" and choice.get("type") in ("any", "tool"):
        context.loss("tool_choice", "tool_choice", "No tool can be forced while thinking has a budget.")
        body["tool_choice"] = {key: value for key, value in choice.items() if key != "name"} | {"type": "auto"}


def _set_user_id(body: JsonObject, settings: JsonObject, context: Context) -> None:
    user_id = settings.get("safety_identifier")
    if user_id is None:
        return
    named = (settings.get("metadata") or {}).get("user_id")
    if named not in (None, user_id):
        raise CannotRender("safety_identifier and metadata.user_id differ.", hint="Set one, or both to the same.")
    if fits_user_id(user_id, context):
        body["metadata"] = {"user_id": user_id}


def _limit(body: JsonObject, *, has_limit: bool) -> None:
    budget = body["thinking"]["budget_tokens"] if thinking_type(body) == "enabled" else 0
    limit = body.get("max_tokens")
    if limit is None and has_limit:
        body["max_tokens"] = DEFAULT_MAX_TOKENS + budget
    elif limit is not None and budget and limit <= budget:
        detail = f"max_output_tokens is {limit}, which the thinking budget of {budget} uses up."
        raise CannotRender(detail, hint="Set it higher, or unset it.")
