"""Reading answers: the new messages of a run, as the client of AG-UI returns them, or one message of the assistant.

* All messages of a run are one answer, outputs of the agent's own tools included.
* `outcome` says that a run was interrupted or cancelled; `usage` has the figures of each model that it asked.

Source: AG-UI 1.0, `RunFinishedEvent`, `TokenUsage`; its client, `RunAgentResult`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse
from threadkeep.formats.ag_ui import own
from threadkeep.formats.ag_ui.fields import NAME
from threadkeep.formats.shared import parsing, provider_errors
from threadkeep.formats.shared.usage import count_at, usage_with

ANSWER: Final = "newMessages"
_COUNTS: Final = (
    "inputTokens", "outputTokens", "totalTokens", "reasoningTokens", "cachedInputTokens", "cacheWriteInputTokens",
)  # fmt: skip
_OUTCOMES: Final = {"cancelled": "cancelled"}


@parsing.answer_parser(NAME, states_reason=False)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read the messages of a run."""
    body = _run(body)
    outcome = body.get("outcome")
    ending = outcome.get("type") if isinstance(outcome, dict) else None
    ending = ending if isinstance(ending, str) else None
    usage = body.get("usage")
    models = [one.get("model") for one in usage if isinstance(one, dict)] if isinstance(usage, list) else []
    return Response(
        id=body.get("runId") if isinstance(body.get("runId"), str) and body["runId"] else None,
        model=models[0] if len({*map(str, models)}) == 1 and isinstance(models[0], str) else None,
        status=_OUTCOMES.get(ending or "", "completed"),
        finish_reason=ending,
        output=[item for turn in own.turns_of(body[ANSWER]) for item in turn],
        usage=usage_of({"models": usage}) if models else None,
        format=NAME,
    )


def _run(given: Any) -> JsonObject:
    """The body of a run; a message alone, or a list of them, is all that it said."""
    if isinstance(given, list):
        given = {ANSWER: given}
    body = parsing.response_object(given)
    if body.get("role") in ("assistant", "reasoning"):
        body = {ANSWER: [body]}
    messages = body.get(ANSWER)
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "role" in one for one in messages):
        if (error := provider_errors.provider_error(body, NAME)) is not None:
            raise error
        if isinstance(body.get("role"), str) and "id" in body:
            hint = f'Append messages of others with add_input([…], "{NAME}").'
            raise CannotParse(f"The message is not the assistant's: {provider_errors.shortened(body)}.", hint=hint)
        raise provider_errors.not_a_response(body, NAME, f"The body has no list of {ANSWER}")
    parsing.check_turns(messages, NAME, ANSWER)
    return body


def usage_of(usage: JsonObject) -> Usage:
    """The token counts of all models that a run asked, under the names of Open Responses."""
    models: Sequence[Any] = usage.get("models") or [usage]
    counted = [one for one in models if isinstance(one, dict)]
    sums: dict[str, int | None] = {}
    for key in _COUNTS:
        counts = [count for one in counted if (count := count_at(one, key)) is not None]
        sums[key] = sum(counts) if counts else None
    given, output, total, reasoning, cached, written = (sums[key] for key in _COUNTS)
    return usage_with(usage, given, output, total=total, reasoning=reasoning, cached=cached, written=written)
