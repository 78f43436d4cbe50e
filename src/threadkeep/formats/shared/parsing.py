"""What reading requests and responses has in common in all formats."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from threadkeep.domain.formats import get_format
from threadkeep.domain.items import Item, item_from_object
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.makers import asked_of
from threadkeep.domain.objects import body_object
from threadkeep.domain.other_formats import other_body, other_message
from threadkeep.domain.rendering import ImportInfo
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption, ProviderError
from threadkeep.formats.shared.endings import with_cut_call
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
            if args and isinstance(args[0], dict) and (other := other_body(args[0])) is not None:
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
    """The canonical status for a provider's word; an unknown or empty one means completed, and is logged."""
    status = statuses.get(word) if isinstance(word, str) else None
    if status is None:
        ending = f"ended with the unknown word {word!r}" if word else "has no finish_reason"
        logger.warning("The %s response %s; it is stored as completed.", format_name, ending)
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
    if (other := other_body(body)) is not None:
        problem = f"The request is of {other.name}, not of {format_name}: {shortened(body)}."
        raise CannotParse(problem, hint=other.advice)
    if turn_list == "messages" and body.get(turn_list) is None:
        raise no_turns(body, format_name, turn_list)
    check_turns(body.get(turn_list), format_name, turn_list)
    return body


def check_turns(turns: Any, format_name: str, path: str) -> None:
    """Refuse turns of formats that are not read, which would become blocks, or say nothing."""
    for index, turn in enumerate(turns if isinstance(turns, list | tuple) else ()):
        if isinstance(turn, Mapping) and (other := other_message(turn)) is not None:
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
    session = Session(tools=tools)
    extra = {**(settings.get("extra") or {}), **({format_name: native} if native else {})}
    session.update(**{**settings, "extra": extra or None})
    for number, items in enumerate(turns):
        session.add_items([_typed(item) for item in items], turn=number)
    session.attribute(asked_of(session.settings).answering(None))  # as far as a request tells
    session.imported = ImportInfo(format_name, len(session.items), spelling or {})
    return session
