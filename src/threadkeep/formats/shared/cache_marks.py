"""Cache marks on the growing end of a conversation, for formats whose blocks can carry `cache_control`.

* The last block of the last message is marked, and with more than twenty blocks in the messages the one fifteen before
  it, so that the next request finds a prefix that was cached: the service looks twenty blocks back.
* A dynamic context before the question (`dynamic_context_at="tail"`) differs in the next request:
  then the messages before it are marked as if there were no others.
* The last tool and the last block of the system text are marked where there is room, and none of them is marked.
* There are four marks at most. Marks of tools and system text stay; marks of the oldest messages are dropped first.
* A mark never changes the shape of content: a bare string is left alone, and a mark on a tool result is on the block.
* A mark of an hour may not follow one of five minutes, so one that an hour's mark follows lasts an hour, too.

Source: Anthropic's guide on prompt caching; OpenRouter takes the same marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject

MARK: Final = "cache_control"
MOST: Final = 4
MANY_BLOCKS: Final = 20
STEP: Final = 15  # blocks between the two marks of a long conversation
# blocks that take no mark
_UNMARKED: Final = frozenset({"thinking", "redacted_thinking", "mcp_tool_listing", "fallback"})

Place = tuple[int, int]  # of a block: the number of its message, and its index there


def mark_request(body: JsonObject, end: int | None = None) -> JsonObject:
    """A request with marks on tools, system text and the first `end` messages, which the next request repeats."""
    rest = [] if end is None else body["messages"][end:]
    if rest and not any(_marks_of(rest)):
        marked = mark_request({**body, "messages": body["messages"][:end]})
        return {**marked, "messages": [*marked["messages"], *rest]}
    marked = dict(body)
    room = _room(body)
    for key, behind in (("system", ("messages",)), ("tools", ("system", "messages"))):
        last = _last_of(marked.get(key)) if room > 1 else None
        if last is not None:
            later = [mark for other in behind for mark in _marks_of(marked.get(other))]
            marked[key] = list(marked[key])
            marked[key][last] = {**marked[key][last], MARK: _mark([*later, *_own(body)])}
            room -= 1
    return mark_messages(marked)


def _last_of(elements: Any) -> int | None:
    """The index of the last tool or system block that takes a mark, which deferred tools do not; None where one has."""
    if not isinstance(elements, list) or any(_marks_of(elements)):
        return None
    able = [index for index, block in enumerate(elements) if _takes_mark(block) and not block.get("defer_loading")]
    return able[-1] if able else None


def mark_messages(body: JsonObject) -> JsonObject:
    """A request with marks on the end of its messages alone, as many as are taken; itself where it has them."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    blocks = dict(_blocks(messages))
    before = {place for place, block in blocks.items() if block.get(MARK) is not None}
    nested = [mark for block in blocks.values() for mark in _marks_of(block.get("content"))]
    room = max(_room(body) - len(nested), 0)
    # a request with a mark of its own is marked at its end by the service
    ends = set() if body.get(MARK) is not None else _ends(blocks, len(messages) - 1)
    marked = sorted(before | ends)
    kept = marked[max(len(marked) - room, 0) :]
    if before == set(kept):
        return body
    # Messages with marks on these blocks and on no others
    rewritten, behind = list(messages), list(_own(body))
    for number, index in sorted(before.union(kept), reverse=True):
        content = list(rewritten[number]["content"])
        block = content[index]
        if (number, index) not in kept:
            block = {key: value for key, value in block.items() if key != MARK}
        elif block.get(MARK) is None:
            block = {**block, MARK: _mark(behind)}
        content[index] = block
        rewritten[number] = {**rewritten[number], "content": content}
        behind += _marks_of([block])
    return {**body, "messages": rewritten}


def marks_in(body: JsonObject) -> tuple[list[Any], list[Any], list[Any]]:
    """The marks of a request, in the order of the service: those before its messages, in them, and its own."""
    return [*_marks_of(body.get("tools")), *_marks_of(body.get("system"))], [*_marks_of(body["messages"])], _own(body)


def lost_marks(before: JsonObject, after: JsonObject) -> int:
    """How many marks the messages of a request had before that they do not have now."""
    now = dict(_blocks(after["messages"]))
    return sum(block.get(MARK) is not None and MARK not in now[place] for place, block in _blocks(before["messages"]))


def _room(body: JsonObject) -> int:
    """How many marks there may be on messages."""
    return MOST - len([*_marks_of(body.get("tools")), *_marks_of(body.get("system")), *_own(body)])


def _blocks(messages: Sequence[Any]) -> Iterator[tuple[Place, JsonObject]]:
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                yield (number, index), block


def _ends(blocks: Mapping[Place, JsonObject], last: int) -> set[Place]:
    """The blocks to be marked: the last one of the last message, and in long conversations an earlier one."""
    places = list(blocks)
    able = [index for index, place in enumerate(places) if MARK in blocks[place] or _takes_mark(blocks[place])]
    if not able or places[able[-1]][0] != last:
        return set()
    ends = {places[able[-1]]}
    earlier = [index for index in able if index <= able[-1] - STEP]
    return ends | {places[earlier[-1]]} if len(places) > MANY_BLOCKS and earlier else ends


def _mark(behind: Iterable[Any]) -> JsonObject:
    """A mark that the given ones may follow."""
    is_long = any(isinstance(mark, dict) and mark.get("ttl") == "1h" for mark in behind)
    return {"type": "ephemeral", "ttl": "1h"} if is_long else {"type": "ephemeral"}


def _own(body: JsonObject) -> list[Any]:
    """The mark of the request itself."""
    return [] if body.get(MARK) is None else [body[MARK]]


def _marks_of(elements: Any) -> Iterator[Any]:
    """The marks on tools, blocks or messages, and in what they hold, in order."""
    for element in elements if isinstance(elements, list) else ():
        if isinstance(element, dict):
            yield from _marks_of(element.get("content"))
            yield from _own(element)


def _takes_mark(element: Any) -> bool:
    """Whether a tool or block that has no mark may get one; an empty text takes none."""
    if not isinstance(element, dict) or element.get(MARK) is not None or element.get("text") == "":
        return False
    kind = element.get("type")
    return not isinstance(kind, str) or kind not in _UNMARKED
