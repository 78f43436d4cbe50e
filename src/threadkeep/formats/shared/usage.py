"""Token counts: the inclusive figures that are the same for every provider."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import json_copy
from threadkeep.domain.usage import NormalizedUsage, Usage, figure

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


def cumulative(before: Any, now: Any) -> Any:
    """Return the counts of a stream after another event: cumulative figures never fall, and null takes nothing back.

    Hosts of an API differ in when they report which count: some send zeros at the start, others at the end. Entries of
    a list are the same if all of their texts are: the nth with these texts goes on with the nth.
    """
    if now is None:
        return before
    if isinstance(before, dict) and isinstance(now, dict):
        return before | {key: cumulative(before.get(key), value) for key, value in now.items() if value is not None}
    if isinstance(before, list) and isinstance(now, list):
        known = _by_texts(before)
        return [cumulative(known.pop(key, None), entry) for key, entry in _by_texts(now).items()] + [*known.values()]
    if _is_number(before) and _is_number(now):
        return max(before, now)
    return json_copy(now, "the usage")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_texts(entries: list[Any]) -> dict[Any, Any]:
    """The entries of a list by their texts, and how many with these came before."""
    counts: Counter[Any] = Counter()
    result = {}
    for entry in entries:
        fields = entry.items() if isinstance(entry, dict) else [("", entry)]
        texts = tuple(sorted((key, value) for key, value in fields if isinstance(value, str)))
        result[texts, counts[texts]] = entry
        counts[texts] += 1
    return result


def without_output(usage: Usage) -> Usage:
    """Return the usage of a stream that was cut: how much output there was is unknown, whatever it reported so far."""
    known = usage.normalized
    return Usage(
        input_tokens=usage.input_tokens,
        input_tokens_details=usage.input_tokens_details,
        raw=usage.raw,
        normalized=NormalizedUsage(
            input_tokens=known.input_tokens,
            cached_tokens=known.cached_tokens,
            cache_write_tokens=known.cache_write_tokens,
        ),
    )
