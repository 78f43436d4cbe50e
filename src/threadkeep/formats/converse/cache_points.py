"""Cache points on tools, system text and the growing end of a conversation.

* A cache point is a block of its own behind what it covers, among the blocks of a message and never inside a result.
* The last two messages end with one: the next request finds the last point of this one in its history.
* With a dynamic context at the tail, it is the last two messages before it: the next request has another one.
* There are four at most; those that are there are kept, count, and are not set twice.
* A point of an hour may not follow one of five minutes, so one that an hour's point follows lasts an hour, too.

Source: Amazon Bedrock's user guide, "Prompt caching for faster model inference"; API reference, "CachePointBlock".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.converse.fields import ROLES

POINT: Final = "cachePoint"
MOST: Final = 4
_UNMARKED: Final = frozenset({POINT, "reasoningContent"})  # no point may stand behind these
_EVERYWHERE: Final = frozenset({"tools", "system", "messages"})
# model id (the first match counts) -> where it takes cache points; models of no row take them everywhere
CACHED: Final[tuple[tuple[re.Pattern[str], frozenset[str]], ...]] = (
    (re.compile(r"claude-(3-(haiku|sonnet|opus)|3-5-sonnet-20240620|v2|instant)"), frozenset()),
    (re.compile(r"nova-(canvas|reel|sonic)"), frozenset()),
    (re.compile(r"nova"), frozenset({"system", "messages"})),
    (re.compile(r"titan|llama|mistral|mixtral|cohere|ai21|deepseek|qwen|gpt-oss|writer|kimi|minimax"), frozenset()),
)

Path = tuple[str | int, ...]  # keys and indexes that lead to a list


def with_points(body: JsonObject, model: object, end: int | None) -> JsonObject:
    """A request with the cache points that the model takes; `end` is how many messages the next request repeats."""
    name = model.lower() if isinstance(model, str) else ""
    places = next((places for pattern, places in CACHED if pattern.search(name)), _EVERYWHERE)
    room = MOST - len([block for path in _paths(body) for block in _at(body, path) if _is_point(block)])
    for path in [path for path in _wanted(body, places, end) if _takes_point(_at(body, path))][: max(room, 0)]:
        body = _extended(body, path, _point(body, path))
    return body


def _wanted(body: JsonObject, places: frozenset[str], end: int | None) -> list[Path]:
    """The lists that are to end with a point, the most useful first."""
    messages = [index for index, message in enumerate(body["messages"][:end]) if message["role"] in ROLES]
    ends: list[Path] = [("messages", index, "content") for index in messages[:-3:-1]]
    last, before = ends[:1], ends[1:]
    leading: list[Path] = [("system",)] * ("system" in places) + [("toolConfig", "tools")] * ("tools" in places)
    return [*last, *leading, *before] if "messages" in places else leading


def _paths(body: JsonObject) -> list[Path]:
    """All lists that hold points, in the order of the service."""
    inner: list[Path] = [("messages", index, "content") for index in range(len(body["messages"]))]
    return [("toolConfig", "tools"), ("system",), *inner]


def _at(body: Any, path: Path) -> list[Any]:
    for key in path:
        if isinstance(body, dict):
            body = body.get(key)
        else:
            body = body[key] if isinstance(body, list) and isinstance(key, int) else None
    return body if isinstance(body, list) else []


def _is_point(block: Any) -> bool:
    return isinstance(block, dict) and POINT in block


def _takes_point(blocks: Sequence[Any]) -> bool:
    return bool(blocks) and isinstance(blocks[-1], dict) and _UNMARKED.isdisjoint(blocks[-1])


def _point(body: JsonObject, path: Path) -> JsonObject:
    """A point at the end of a list, which those behind it may follow."""
    paths = _paths(body)
    behind = [block for later in paths[paths.index(path) + 1 :] for block in _at(body, later) if _is_point(block)]
    is_long = any(isinstance(block[POINT], dict) and block[POINT].get("ttl") == "1h" for block in behind)
    return {POINT: {"type": "default", **({"ttl": "1h"} if is_long else {})}}


def _extended(thing: Any, path: Path, last: JsonObject) -> Any:
    """A thing with one more element in a list; what leads there is copied."""
    if not path:
        return [*thing, last]
    key, *rest = path
    copied: Any = dict(thing) if isinstance(thing, dict) else list(thing)
    copied[key] = _extended(thing[key], tuple(rest), last)
    return copied
