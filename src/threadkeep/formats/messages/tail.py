"""Cache marks that are set for the user: on the tools, the system text and the growing end of the messages.

* The last block of the last message is marked; with more than 20 blocks also the one 15 before it, so that the next
  request still finds the mark of this one. A message whose content is a string stays one, and has no mark.
* What is marked already stays as it is; thinking and empty texts take no mark.

Source: Anthropic's guide on prompt caching.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.messages.content import block_type, text_of
from threadkeep.formats.messages.fields import THOUGHTS
from threadkeep.formats.messages.marks import MARK, has_hour

MANY: Final = 20  # blocks from which a second mark is set: the service looks back that far
LEAP: Final = 15  # how many blocks before the last it stands


def with_own_marks(body: JsonObject) -> JsonObject:
    """The request with marks on its tools, its system text and the end of its messages."""
    found = dict(body)
    for key in ("tools", "system"):
        if isinstance(found.get(key), list):
            found[key] = _with_last_marked(found[key], is_long=has_hour(body))
    if isinstance(found.get("messages"), list):
        found["messages"] = with_tail_marked(found["messages"])
    return found


def _with_last_marked(things: list[Any], *, is_long: bool) -> list[Any]:
    """A list with a mark on its last element, if none has one; of an hour where others of an hour follow.

    Tools whose loading is deferred take no mark.
    """
    if not all(isinstance(thing, dict) and thing.get(MARK) is None for thing in things):
        return things
    last = max((index for index, thing in enumerate(things) if not thing.get("defer_loading")), default=-1)
    mark = {"type": "ephemeral", "ttl": "1h"} if is_long else {"type": "ephemeral"}
    return [{**thing, MARK: mark} if index == last else thing for index, thing in enumerate(things)]


def with_tail_marked(messages: list[Any]) -> list[Any]:
    """Messages with a mark on the last block, and for many blocks on one further up."""
    places = [
        (index, inner)
        for index, message in enumerate(messages)
        if isinstance(message.get("content"), list)
        for inner, block in enumerate(message["content"])
        if _takes_mark(block)
    ]
    if not places or places[-1][0] != len(messages) - 1:
        return messages
    wanted = {places[-1]} | ({places[-1 - LEAP]} if len(places) > MANY else set())
    return [
        {
            **message,
            "content": [_marked(block, (index, inner) in wanted) for inner, block in enumerate(message["content"])],
        }
        if any(place[0] == index for place in wanted)
        else message
        for index, message in enumerate(messages)
    ]


def _takes_mark(block: Any) -> bool:
    return isinstance(block, dict) and block_type(block) not in THOUGHTS and text_of(block) != ""


def _marked(block: Any, is_wanted: bool) -> Any:
    return {**block, MARK: {"type": "ephemeral"}} if is_wanted and block.get(MARK) is None else block
