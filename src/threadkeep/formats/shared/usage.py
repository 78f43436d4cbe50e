"""Token counts: the inclusive figures that are the same for every provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject, json_copy
from threadkeep.domain.usage import FIGURES, NormalizedUsage, Usage, figure

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
    if total is not None and input_tokens is not None and output_tokens is not None:
        gap = total - input_tokens - output_tokens
        if thought and gap >= thought:
            output_tokens, gap = output_tokens + thought, gap - thought
        input_tokens += max(gap, 0)
    elif total is None and output_tokens is not None and thought > output_tokens:
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


# The iterations of an answer of Anthropic's API: some are in the totals of its usage, others are not.
#
# Source: docstrings of `BetaUsage` and `BetaFallbackMessageIterationUsage`; "Advisor tool".

FALLBACK: Final = "fallback_message"  # made by a fallback, which it names, and returned
IN_TOTAL: Final = frozenset({"message", FALLBACK})
BEYOND_TOTAL: Final = frozenset({"compaction", "advisor_message"})
READ: Final = "cache_read_input_tokens"
WRITTEN: Final = "cache_creation_input_tokens"
_TOTALS: Final = ("input_tokens", "output_tokens", READ, WRITTEN)
# where the reasoning stands; other servers say it as OpenAI does
REASONING: Final = ("output_tokens_details.thinking_tokens", "output_tokens_details.reasoning_tokens")


class Iteration(NamedTuple):
    """One request of several that made an answer."""

    kind: str
    model: str | None
    figures: NormalizedUsage
    usage: JsonObject


def messages_figures(usage: JsonObject) -> NormalizedUsage:
    """Return the totals of a usage object of the Messages API, whose input excludes what was cached."""
    fresh, output, read, written = map(figure, map(usage.get, _TOTALS))
    return normalized_usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=output,
        total=None,
        reasoning=count_at(usage, *REASONING) if "output_tokens_details" in usage else None,
        cached=count_at(usage, "input_tokens_details.cached_tokens") if read is None else read,
        written=written,
    )


def iterations_of(usage: JsonObject) -> list[Iteration]:
    """Return the iterations of a usage object, in order; none where there is no list of them."""
    entries = usage.get("iterations")
    return [
        Iteration(str(entry.get("type")), text if isinstance(text := entry.get("model"), str) else None,
                  messages_figures(entry), entry)
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]  # fmt: skip


def add_up(usage: JsonObject, entries: Sequence[Iteration]) -> bool:
    """Return whether the totals include all of these entries, or only the model that made the last one."""
    answering = [entry for entry in entries if entry.model == entries[-1].model]
    return _sums(messages_figures(usage)) in (_sums_of(entries), _sums_of(answering))


def beyond_total(usage: JsonObject) -> list[NormalizedUsage]:
    """Return the figures of the iterations that the totals of a usage object do not include."""
    entries = iterations_of(usage)
    inside = [entry for entry in entries if entry.kind in IN_TOTAL]
    answering = [entry for entry in inside if entry.model == inside[-1].model]
    declined: list[Iteration] = []
    if len(answering) < len(inside) and _sums(messages_figures(usage)) == _sums_of(answering):
        declined = [entry for entry in inside if entry.model != inside[-1].model]
    apart = [entry for entry in entries if entry.kind in BEYOND_TOTAL]
    return [entry.figures for entry in (*declined, *apart)]


def added(first: NormalizedUsage, others: Sequence[NormalizedUsage]) -> NormalizedUsage:
    """Return figures with others added; input and output that are unknown stay so."""
    sums: dict[str, int | None] = {}
    for name in FIGURES:
        counts = [count for one in (first, *others) if (count := getattr(one, name)) is not None]
        sums[name] = sum(counts) if counts else None
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        if getattr(first, name) is None:
            sums[name] = None
    return NormalizedUsage(**sums)


def _sums(figures: NormalizedUsage) -> tuple[int, ...]:
    counts = (figures.input_tokens, figures.cached_tokens, figures.cache_write_tokens, figures.output_tokens)
    return tuple(count or 0 for count in counts)


def _sums_of(entries: Sequence[Iteration]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(_sums(entry.figures) for entry in entries), strict=True)))


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


def usage_with(
    raw: JsonObject, given: int | None, output: int | None, *, total: int | None, reasoning: int | None,
    cached: int | None, written: int | None,
) -> Usage:  # fmt: skip
    """The usage of these counts of input and output, which the provider gives under names of its own."""
    figures = normalized_usage(
        input_tokens=given, output_tokens=output, total=total, reasoning=reasoning, cached=cached, written=written
    )
    inputs = {"cached_tokens": cached, "cache_write_tokens": written}
    return Usage(
        input_tokens=given,
        output_tokens=output,
        total_tokens=figures.total_tokens,
        input_tokens_details={name: value for name, value in inputs.items() if value is not None} or None,
        output_tokens_details=None if reasoning is None else {"reasoning_tokens": reasoning},
        raw=raw,
        normalized=figures,
    )
