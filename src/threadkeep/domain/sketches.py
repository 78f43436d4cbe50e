"""Percentiles of durations, from counts of durations that are close together.

Counts add up: those of a year are the sums of its days in any order, and equal the counts of all its attempts. Which
durations count together is defined by DDSketch: a percentile differs from a duration that was measured by at most 1 %.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from threadkeep.domain import jsontext
from threadkeep.lazy import LazyModule

ACCURACY: Final = 0.009  # of a range of durations; databases round before they count, by at most 0.1 % of a duration
ZERO: Final = -1  # the number of the range of 0 ms
_MAPPING: Final[Any] = LazyModule("ddsketch.mapping")
_STORE: Final[Any] = LazyModule("ddsketch.store")
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Sketch:
    """How many durations lie in which range."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = Counter[int]()

    def add(self, milliseconds: int, count: int) -> None:
        """Count a duration so many times."""
        self._counts[_range_of(milliseconds)] += count

    def add_text(self, text: str) -> None:
        """Add the counts in a text."""
        numbers, key = jsontext.loads(text), 0
        for gap, count in zip(numbers[::2], numbers[1::2], strict=True):
            key += gap
            self._counts[key] += count

    @property
    def text(self) -> str:
        """The counts as a JSON array: how far the number of a range is from the one before, and its count, in turns."""
        numbers, last = list[int](), 0
        for key, count in sorted(self._counts.items()):
            numbers += (key - last, count)
            last = key
        return jsontext.dumps(numbers).decode()

    def percentiles(self) -> dict[str, float | None]:
        """The durations in milliseconds that 50, 95 and 99 of 100 do not exceed, by name; None of none."""
        store = _STORE.DenseStore()
        for key, count in sorted(self._counts.items(), reverse=True):
            store.add(key, count)
        if not store.count:
            return dict.fromkeys(SHARES)
        found: dict[str, float | None] = {}
        for name, share in SHARES.items():
            key = store.key_at_rank(max(0, math.ceil(share * store.count) - 1))
            found[name] = 0.0 if key == ZERO else float(_ranges().value(key))
        return found


@cache
def _ranges() -> Any:
    """Ranges of durations by number, of which each is longer than the one before."""
    return _MAPPING.LogarithmicMapping(ACCURACY)


@lru_cache(maxsize=2**16)
def _range_of(milliseconds: int) -> int:
    """The number of the range of a duration."""
    return int(_ranges().key(milliseconds)) if milliseconds > 0 else ZERO


def percentiles_of(
    counted: Mapping[str, Iterable[Sequence[Any]]], keys: Iterable[tuple[Any, ...]]
) -> list[dict[str, float | None]]:
    """The percentiles of some durations for the keys of groups: ``p50_latency_ms`` and so on.

    Args:
        counted: the name of a duration -> rows of keys, a duration, how often it occurs, and a text of counts, which
            stands in the place of these two.
        keys: of the groups that are asked for.
    """
    found: defaultdict[tuple[Any, ...], dict[str, Sketch]] = defaultdict(lambda: {name: Sketch() for name in counted})
    for measure, rows in counted.items():
        for *key, duration, count, text in rows:
            sketch = found[tuple(key)][measure]
            if text is None:
                sketch.add(int(duration), int(count))
            else:
                sketch.add_text(text)
    return [
        {
            f"{name}_{measure}": value
            for measure, sketch in found[key].items() for name, value in sketch.percentiles().items()
        }
        for key in keys
    ]  # fmt: skip
