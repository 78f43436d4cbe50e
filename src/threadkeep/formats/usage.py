"""Token counts: the inclusive figures that are the same for every provider."""

from __future__ import annotations

from functools import cache
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import NormalizedUsage, figure


def count_at(source: JsonObject, *paths: str) -> int | None:
    """The first count that the provider gives under one of these paths (``details.cached_tokens``)."""
    for path in paths:
        found: Any = source
        for key in _keys(path):
            found = found.get(key) if isinstance(found, dict) else None
        if (number := figure(found)) is not None:
            return number
    return None


@cache
def _keys(path: str) -> list[str]:
    return path.split(".")


def positive_at(source: JsonObject, *paths: str) -> int | None:
    """The first count above zero under one of these paths, else the first one: a zero may mean that nobody counted."""
    found = [count_at(source, path) for path in paths]
    return next((count for count in found if count), count_at(source, *paths))


def inclusive(
    *,
    taken: int | None,
    given: int | None,
    total: int | None,
    reasoning: int | None = None,
    cached: int | None = None,
    written: int | None = None,
) -> NormalizedUsage:
    """Input, output and total such that everything counts once.

    Most servers include cached input in the input and reasoning in the output. Where their figures show that they do
    not, it is made so: what the stated total has beyond its parts is reasoning outside the output, and else input
    outside the input (media, or tokens of a cache); when no total is stated and more was reasoning than was put out,
    it was not counted; and when more was read from or written to a cache than was taken in, the tokens of the cache
    were not counted. Those that were both read and written are counted once.
    """
    if taken is not None and given is not None and total is not None:
        gap = total - taken - given
        if reasoning and gap >= reasoning:
            given, gap = given + reasoning, gap - reasoning
        taken += max(gap, 0)
    if total is None and given is not None and (reasoning or 0) > given:
        given += reasoning or 0
    if taken is not None and max(cached or 0, written or 0) > taken:
        taken += (cached or 0) + (written or 0)
    if taken is not None and given is not None:
        total = taken + given
    return NormalizedUsage(
        input_tokens=taken,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=given,
        reasoning_tokens=reasoning,
        total_tokens=total,
    )
