"""Token counts: the inclusive figures that are the same for every provider."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import NormalizedUsage, figure

_MOST: Final = 10**18  # what `figure` takes, and logs where it is more


def count_at(source: JsonObject, *paths: str) -> int | None:
    """The first count that the provider gives under one of these paths (``details.cached_tokens``)."""
    for path in paths:
        value: Any = source
        for key in _keys(path):
            value = value.get(key) if isinstance(value, dict) else None
        if type(value) is int and 0 <= value < _MOST:  # nearly always
            return value
        if value is not None and (count := figure(value)) is not None:
            return count
    return None


@cache
def _keys(path: str) -> list[str]:
    return path.split(".")


def positive_at(source: JsonObject, *paths: str) -> int | None:
    """The first count above zero under one of these paths, else the first one: a zero may stand for no count."""
    counts = [count_at(source, path) for path in paths]
    return next((count for count in counts if count), count_at(source, *paths))


def normalized_usage(
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    total: int | None,
    reasoning: int | None = None,
    cached: int | None = None,
    written: int | None = None,
) -> NormalizedUsage:
    """Input, output and total such that everything counts once.

    Input must include what was read from or written to a cache. Most servers include reasoning in the output. Where
    their figures show that they do not, it is made so: what the stated total has beyond its parts is reasoning outside
    the output, and else input outside the input (media, for example); when no total is stated and there was more
    reasoning than output, it was not counted.
    """
    thought = reasoning or 0
    if total is not None:
        input_tokens, output_tokens = _with_gap(input_tokens, output_tokens, total, thought)
    elif output_tokens is not None and thought > output_tokens:
        output_tokens += thought
    if input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    return NormalizedUsage(
        input_tokens=input_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning,
        total_tokens=total,
    )


def _with_gap(
    input_tokens: int | None, output_tokens: int | None, total: int, reasoning: int
) -> tuple[int | None, int | None]:
    """Input and output with what the total has beyond them."""
    if input_tokens is None or output_tokens is None:
        return input_tokens, output_tokens
    gap = total - input_tokens - output_tokens
    if reasoning and gap >= reasoning:
        output_tokens, gap = output_tokens + reasoning, gap - reasoning
    return input_tokens + max(gap, 0), output_tokens
