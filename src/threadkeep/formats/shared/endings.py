"""How an answer ended, and what that means for its items.

* An answer that was cut off may end in the middle of a call. Helpers of SDKs complete the JSON of its arguments, so
  that the call looks whole: the last call is marked as `incomplete`, and is never run.
* The last item of an answer that was cut off is `incomplete`, and so are items that were in progress.
* An answer in which the model paused is `incomplete`, too, but its items are whole, and it is the model's turn.

Sources: Anthropic's API reference, "Handling stop reasons"; OpenAI's API reference, "Responses", `incomplete_details`
and `response.steer`; Google's Gemini API reference, `FinishReason`; Pydantic AI's API reference, `ModelResponse.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from threadkeep.domain import tools
from threadkeep.domain.call_kinds import may_be_in_progress
from threadkeep.domain.items import Item, changed_item
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.response import Response
from threadkeep.formats.canonical.entries import call_id_of
from threadkeep.formats.canonical.keys import cut_status
from threadkeep.formats.shared.pairing import CLIENT_CALLS

INCOMPLETE: Final = "incomplete"
# statuses of responses whose output may end anywhere
CUT_OFF: Final = frozenset({INCOMPLETE, "cancelled", "failed"})
_ENDED: Final = CUT_OFF | {"completed"}
# statuses of items of which more may come, in an answer that goes on
IN_PROGRESS: Final = frozenset({"in_progress", "searching", "generating", "interpreting", "calling"})

ANSWERED: Final = "automatically_answered"  # in provider_data: how many items are calls that an SDK answered by itself
COMPACTED: Final = "compaction"
# `reason` of the incomplete_details of answers in which the model paused, to go on in the next one
PAUSES: Final = frozenset(
    {
        "pause_turn",  # Messages: the server's own tools took long; the answer is sent back as it is
        COMPACTED,  # Messages: the window was compacted before the model answered
        "continuation",  # Gemini: a limit of the request; the next one goes on by the continuation token
        "steered",  # Responses: the user said something; the service goes on by itself
        "suspended",  # Pydantic AI: either of the first, or an answer that is computed in the background
    }
)
# item types of calls that can be cut off; a request for an approval has no status, and comes as a whole
_CUT_CALLS: Final = frozenset(CLIENT_CALLS) - {"mcp_approval_request"}
# those that come at any place of the output, and not between two items
_ANYWHERE: Final = frozenset({"continuation"})


def reason_of(details: object) -> str | None:
    """The reason in the incomplete_details of a response."""
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return reason if isinstance(reason, str) else None


def is_cut_off(response: Response) -> bool:
    """Whether the output of a response may end anywhere: at a limit, by an error, or without a reason."""
    reason = reason_of(response.incomplete_details)
    if reason in PAUSES and reason not in _ANYWHERE:
        return False
    if response.status in CUT_OFF or response.status is None:
        return True
    return response.status == "completed" and response.finish_reason in (None, "")


def with_cut_call(response: Response, *, states_reason: bool = True) -> Response:
    """A response of which the last call is marked as incomplete, if it may be cut off.

    Args:
        response: as it was parsed.
        states_reason: whether its format always says why an answer ended.
    """
    if response.status == "completed" and (response.finish_reason or not states_reason):  # nearly always
        return response
    if not is_cut_off(response):
        return response
    place = _last(response)
    if place is None:
        return response
    item = response.output[place].to_object()
    if item["type"] not in _CUT_CALLS or item.get("status") in tools.CUT_OFF or not _has_id(item):
        return response
    if item.get("status") == "completed" and response.status in (None, "completed"):  # the service says so itself
        return response
    return _with_statuses(response, {place: cut_status(item["type"])})


def with_cut_items(response: Response) -> Response:
    """A response that has ended, of which the last item is marked as incomplete, if it was cut off.

    What was in progress when it ended is, too.
    """
    if response.status not in _ENDED:
        return response
    found = {}
    for place, item in enumerate(response.output):
        status = getattr(item, "status", None)
        if isinstance(status, str) and status in IN_PROGRESS:
            kind = item.to_object()["type"]
            if response.status != "completed" or not may_be_in_progress(kind):
                found[place] = cut_status(kind)
    if response.status in CUT_OFF and is_cut_off(response) and (last := _last(response)) is not None:
        item_object = response.output[last].to_object()
        if item_object.get("status") in (None, "completed") and item_object["type"] != COMPACTED:
            found.setdefault(last, cut_status(item_object["type"]))
    return _with_statuses(response, found)


def without_known(response: Response, known: Callable[[], Sequence[JsonObject]]) -> Response:
    """A response without the calls that the history has already, where an SDK answered calls by itself.

    It gives all calls since the user's last message. `known` returns the items of the history; it is called only if
    there are such calls.
    """
    answered = (response.provider_data or {}).get(ANSWERED)
    if not isinstance(answered, int):
        return response
    said = [_essence(item) for item in (item.to_object() for item in response.output[:answered])]
    before: list[Any] = []
    for item in known():
        before = [] if item.get("role") == "user" else [*before, _essence(item)]
    calls = [call for call in before if call is not None]
    places = [place for place, one in enumerate(said) if one is not None]
    if not calls or [said[place] for place in places[: len(calls)]] != calls:
        return response
    return response.model_copy(update={"output": response.output[places[len(calls) - 1] + 1 :]})


def _essence(item: JsonObject) -> Any:
    """What a call or output says, whatever its id is; None for other items."""
    if item["type"] == "function_call":
        return item.get("name"), _parsed_or_text(item.get("arguments"))
    return _parsed_or_text(item.get("output")) if item["type"] == "function_call_output" else None


def _parsed_or_text(text: Any) -> Any:
    """The JSON value of a text; the text where it is none."""
    try:
        return loads(text)
    except (TypeError, ValueError):
        return text


def _has_id(item: JsonObject) -> bool:
    """Whether it is a call: of the blocks of providers, those with a call id are."""
    return item["type"] != "provider_item" or call_id_of(item) is not None


def _last(response: Response) -> int | None:
    """Where the last item is that says something: a blank text may carry a signature behind the last call."""
    for place in range(len(response.output) - 1, -1, -1):
        item: Any = response.output[place]
        if item.type != "message" or any(_says_something(part) for part in item.content):
            return place
    return None


def _says_something(part: Any) -> bool:
    text = getattr(part, "text", None)
    return not isinstance(text, str) or bool(text.strip())


def _with_statuses(response: Response, statuses: Mapping[int, str]) -> Response:
    """A response with other statuses of items, by their places."""
    if not statuses:
        return response
    output: list[Item] = list(response.output)
    for place, status in statuses.items():
        output[place] = changed_item(output[place], status=status)
    return response.model_copy(update={"output": output})
