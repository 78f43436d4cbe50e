"""Cache points on tools, system text and the growing end of a conversation.

* A cache point is a block of its own behind what it covers, among the blocks of a message and never inside a result.
* The last two messages end with one: the next request finds the last point of this one in its history.
* With a dynamic context at the tail, it is the last two messages before it: the next request has another one.
* There are four at most; those that are there are kept, count, and are not set twice.
* A point of an hour may not follow one of five minutes, so one that an hour's point follows lasts an hour, too.

Source: Amazon Bedrock's user guide, "Prompt caching for faster model inference"; API reference, "CachePointBlock".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.converse.fields import ROLES
from threadkeep.formats.converse.models import MESSAGES, SYSTEM, TOOLS, cached_places

POINT: Final = "cachePoint"
MOST: Final = 4
_UNMARKED: Final = frozenset({POINT, "reasoningContent"})  # no point may stand behind these

Path = tuple[str | int, ...]  # keys and indexes that lead to a list


def with_points(body: JsonObject, model: object, end: int | None) -> JsonObject:
    """A request with the cache points that the model takes; the given one is not changed.

    `end` is how many of its messages the next request repeats, where these are not all.
    """
    places = cached_places(model)
    room = MOST - len([block for path in _paths(body) for block in _at(body, path) if _is_point(block)])
    for path in [path for path in _wanted(body, places, end) if _takes_point(_at(body, path))][: max(room, 0)]:
        body = _extended(body, path, _point(body, path))
    return body


def _wanted(body: JsonObject, places: frozenset[str], end: int | None) -> list[Path]:
    """The lists that are to end with a point, the most useful first."""
    ends: list[Path] = [("messages", index, "content") for index in _last_two(body["messages"][:end])]
    last, before = ends[:1], ends[1:]
    leading: list[Path] = [("system",)] * (SYSTEM in places) + [("toolConfig", "tools")] * (TOOLS in places)
    return [*last, *leading, *before] if MESSAGES in places else leading


def _last_two(messages: Sequence[JsonObject]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] in ROLES][:-3:-1]


def _paths(body: JsonObject) -> list[Path]:
    """All lists that hold points, in the order of the service."""
    inner: list[Path] = [("messages", index, "content") for index in range(len(body["messages"]))]
    return [("toolConfig", "tools"), ("system",), *inner]


def _at(body: Any, path: Path) -> list[Any]:
    for key in path:
        body = body.get(key, []) if isinstance(body, dict) else body[key] if body else []
    return body if isinstance(body, list) else []


def _is_point(block: Any) -> bool:
    return isinstance(block, dict) and POINT in block


def _takes_point(blocks: Sequence[Any]) -> bool:
    return bool(blocks) and isinstance(blocks[-1], dict) and _UNMARKED.isdisjoint(blocks[-1])


def _point(body: JsonObject, path: Path) -> JsonObject:
    """A point at the end of a list, which those behind it may follow."""
    is_long = any(point.get("ttl") == "1h" for point in _behind(body, path))
    return {POINT: {"type": "default", **({"ttl": "1h"} if is_long else {})}}


def _behind(body: JsonObject, path: Path) -> Iterator[JsonObject]:
    paths = _paths(body)
    for later in paths[paths.index(path) + 1 :]:
        yield from (block[POINT] for block in _at(body, later) if _is_point(block) and isinstance(block[POINT], dict))


def _extended(thing: Any, path: Path, last: JsonObject) -> Any:
    """A thing with one more element in a list; what leads there is copied."""
    if not path:
        return [*thing, last]
    key, *rest = path
    copied: Any = dict(thing) if isinstance(thing, dict) else list(thing)
    copied[key] = _extended(thing[key], tuple(rest), last)
    return copied
