"""What reading requests and responses has in common in all formats.

How an answer ended decides about its items:

* An answer that was cut off may end in the middle of a call. Helpers of SDKs complete the JSON of its arguments, so
  that the call looks whole: the last call is marked as `incomplete`, and is never run.
* The last item of an answer that was cut off is `incomplete`, and so are items that were in progress.
* An answer in which the model paused is `incomplete`, too, but its items are whole, and it is the model's turn.

Source: Anthropic's API reference, "Handling stop reasons"; OpenAI's API reference, "Responses", `incomplete_details`
and `response.steer`; Google's Gemini API reference, `FinishReason`; Pydantic AI's API reference, `ModelResponse.state`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from threadkeep.domain import call_kinds, rendering, tools
from threadkeep.domain.formats import get_format, other_body, other_message
from threadkeep.domain.items import Item, changed_item, item_from_object
from threadkeep.domain.jsontext import JsonObject, body_object, loads
from threadkeep.domain.response import Response, asked_of
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption, ProviderError
from threadkeep.formats.canonical.entries import call_id_of
from threadkeep.formats.canonical.items import cut_status
from threadkeep.formats.shared.pairing import CLIENT_CALLS
from threadkeep.formats.shared.provider_errors import SENT_BODY, shortened

P = ParamSpec("P")
T = TypeVar("T")

CHECK_FORMAT: Final = "Check the name of the format."
SENT_REQUEST: Final = "Pass the whole request, as it was sent."

logger = logging.getLogger("threadkeep")


def parser(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function that reads `what` raise CannotParse where a value in it cannot be stored."""

    def decorate(parse: Callable[P, T]) -> Callable[P, T]:
        @wraps(parse)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return parse(*args, **kwargs)
            except (InvalidItem, InvalidOption) as error:
                raise CannotParse(f"The {what} cannot be stored: {error}") from error

        return checked

    return decorate


# Responses


def answer_parser(
    format_name: str, *, states_reason: bool = True
) -> Callable[[Callable[P, Response]], Callable[P, Response]]:
    """Make a function that reads the responses of a format raise CannotParse as `parser` does, and mark calls cut off.

    `states_reason`: whether the format always says why an answer ended.
    """

    def decorate(parse: Callable[P, Response]) -> Callable[P, Response]:
        @parser(f"{format_name} body")
        @wraps(parse)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Response:
            if args and isinstance(args[0], dict) and (other := other_body(args[0], format_name)) is not None:
                raise CannotParse(
                    f"The body is of {other.name}, not of {format_name}: {shortened(args[0])}.", hint=other.advice
                )
            return with_cut_call(parse(*args, **kwargs), states_reason=states_reason)

        return checked

    return decorate


def response_object(body: Any) -> JsonObject:
    """The response body as a JSON object; what is not JSON, such as the error page of a gateway, is an error."""
    if isinstance(body, bytes | bytearray | memoryview):
        try:
            body = bytes(body).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # gateways do not always answer in UTF-8
            body = bytes(body).decode("latin-1")
    if isinstance(body, str):
        try:
            body = loads(body)
        except ValueError:
            raise ProviderError(shortened(body.strip()) or None) from None
    if isinstance(body, list) and len(body) == 1 and isinstance(body[0], dict) and "error" in body[0]:
        body = body[0]
    if not isinstance(body, dict):
        raise CannotParse(f"The response body is {shortened(body)}, not a JSON object.", hint=SENT_BODY)
    return body


def status_of(word: Any, statuses: Mapping[str, str], format_name: str) -> str:
    """The canonical status for a provider's word; an unknown one means completed and is logged; none means it, too."""
    status = statuses.get(word) if isinstance(word, str) else None
    if status is None:
        if word:
            text = "The %s response ended with the unknown word %r; it is stored as completed."
            logger.warning(text, format_name, word)
        return "completed"
    return status


# Requests


def request_object(payload: Any, format_name: str, turn_list: str) -> JsonObject:
    """A request as a JSON object: given as such, as JSON text, or as an object of an SDK."""
    body = body_object(payload)
    if not isinstance(body, dict):
        raise CannotParse(
            f"The {format_name} request is {shortened(body)}, not a JSON object.",
            hint=f"Pass the whole request body, with the key {turn_list!r}.",
        )
    if (other := other_body(body, format_name)) is not None:
        problem = f"The request is of {other.name}, not of {format_name}: {shortened(body)}."
        raise CannotParse(problem, hint=other.advice)
    if turn_list == "messages" and body.get(turn_list) is None:
        raise no_turns(body, format_name, turn_list)
    check_turns(body.get(turn_list), format_name, turn_list)
    return body


def history_object(payload: Any, format_name: str, turn_list: str) -> JsonObject:
    """A request as an object with a history, which may also be given alone, as a list."""
    body = body_object(payload)
    body = {turn_list: body} if isinstance(body, list) else request_object(body, format_name, turn_list)
    check_turns(body.get(turn_list), format_name, turn_list)
    if not body.get(turn_list):
        raise no_turns(body, format_name, turn_list)
    return body


def check_turns(turns: Any, format_name: str, path: str) -> None:
    """Refuse turns of formats that are not read, which would become blocks, or say nothing."""
    for index, turn in enumerate(turns if isinstance(turns, list | tuple) else ()):
        if isinstance(turn, Mapping) and (other := other_message(turn, format_name)) is not None:
            problem = f"{path}[{index}] is of {other.name}, not of {format_name}: {shortened(dict(turn))}."
            raise CannotParse(problem, hint=other.advice)


def no_turns(body: JsonObject, format_name: str, key: str) -> CannotParse:
    """The error for a request without a history, or with an empty one, under this key."""
    if key in body:
        problem = f"The {format_name} request is empty: there is nothing under {key!r}."
        return CannotParse(problem, hint="It needs at least one turn.")
    return CannotParse(
        f"The {format_name} request has no {key}; its keys are {shortened(list(body))}.", hint=CHECK_FORMAT
    )


def turns_in(turns: Any, format_name: str) -> list[Any]:
    """Turns as a list: one turn, several, or JSON text of these."""
    try:
        body = body_object(turns)
    except CannotParse:  # plain text
        body = turns
    body = [body] if isinstance(body, dict) else body
    if isinstance(body, list | tuple):
        listed = [body_object(turn) for turn in body]
        check_turns(listed, format_name, "turns")
        return listed
    turn_list = get_format(format_name).signs.turns
    words = '"parts": [{"text": "hello"}]' if turn_list == "contents" else '"content": "hello"'
    raise CannotParse(
        f"The {format_name} turns are {shortened(body)}, not a list of them.",
        hint=f'Pass a list such as [{{"role": "user", {words}}}]; for plain text call user("hello").',
    )


def items_of_turns(turns: Iterable[Iterable[JsonObject | Item]]) -> list[list[Item]]:
    """The items of each turn, from item objects, or from items that remember what they were read from."""
    return [[_typed(item) for item in turn] for turn in turns]


def _typed(item: JsonObject | Item) -> Item:
    return item_from_object(item) if isinstance(item, dict) else item


def checked_content(message: JsonObject, where: str) -> Any:
    """What a message says under `content`, if anything; `parts` in its place are Gemini's, and would be lost."""
    content = message.get("content")
    if content is None and isinstance(message.get("parts"), list | dict):
        raise CannotParse(f"{where} has parts and no content: {shortened(message)}.", hint=CHECK_FORMAT)
    return content


def session_of(
    format_name: str,
    turns: Iterable[Sequence[JsonObject | Item]],
    *,
    settings: JsonObject,
    tools: Sequence[JsonObject] = (),
    native: JsonObject | None = None,
    spelling: JsonObject | None = None,
) -> Session:
    """The session of a request, from the item objects of each turn; `native` are its keys that have no option."""
    extra = {**(settings.get("extra") or {}), **({format_name: native} if native else {})}
    session = Session.from_dict({**settings, "extra": extra or None, "tools": tools})
    for number, items in enumerate(turns):
        session.add_items([_typed(item) for item in items], turn=number, known=False)
    session.attribute(asked_of(session.settings).answering(None))  # as far as a request tells
    session.imported = rendering.ImportInfo(format_name, len(session.items), spelling or {})
    return session


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
    if item["type"] not in _CUT_CALLS or tools.was_cut_off(item):
        return response
    if item["type"] == "provider_item" and call_id_of(item) is None:  # a block that is no call
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
            if response.status != "completed" or not call_kinds.may_be_in_progress(kind):
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


def open_parts(items: list[JsonObject], kind: str, name: str, **keys: Any) -> list[Any]:
    """The content of the last item, if it is of that type; else of a new one that came from the format of that name."""
    if not items or items[-1]["type"] != kind:
        items.append({"type": kind, **keys, "content": [], "origin": name})
    content: list[Any] = items[-1]["content"]
    return content


def seconds_of(timestamp: Any) -> int | None:
    """An ISO 8601 time in seconds since 1970; None for anything else."""
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except (TypeError, ValueError, OverflowError):
        return None
