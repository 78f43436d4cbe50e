"""Differences between two requests, line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Final, NamedTuple

MAX_LINES: Final = 4_000  # of requests that are compared
MAX_STEPS: Final = 2_000_000  # of comparing them
CONTEXT: Final = 3  # unchanged lines around changes
_SHORT: Final = 400  # characters of a line of a difference


class Line(NamedTuple):
    """A line of a difference: "add", "del", "same" or "gap", and its text."""

    kind: str
    text: str


class Comparison(SequenceMatcher[str]):
    """Compares lines in a bounded number of steps: what exceeds it counts as replaced.

    Looking for a common block takes a step for each pair of equal lines, and there may be as many blocks as lines: if
    lines repeat, the steps grow with the cube of their number.

    Attributes:
        steps: how many were taken, or asked for in vain.
    """

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        self.steps = 0
        self._old, self._counts = old, Counter(new)
        super().__init__(None, old, new, autojunk=False)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return the longest common block of two ranges; none once there are no more steps."""
        if self.steps < MAX_STEPS:
            self.steps += sum(1 + self._counts[line] for line in self._old[alo:ahi])
        if self.steps >= MAX_STEPS:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def lines_of(text: str) -> list[str]:
    """Return the lines of a request that can be compared, each of bounded length."""
    lines = text.splitlines()[:MAX_LINES]
    return [line if len(line) <= _SHORT else f"{line[:_SHORT]}… ({len(line):,} characters)" for line in lines]


def difference(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    """Yield what is new and what is gone, with some unchanged lines around it."""
    head, tail = _common_ends(old, new)
    last, end = len(old) - tail, len(new) - tail
    yield from _context(new[:head], is_first=True, is_last=head == len(new))
    old, middle = old[head:last], new[head:end]
    for kind, first, upto, begin, stop in Comparison(old, middle).get_opcodes():
        if kind == "equal":
            yield from _context(middle[begin:stop], is_first=False, is_last=False)
            continue
        yield from (Line("del", f"- {line}") for line in old[first:upto])
        yield from (Line("add", f"+ {line}") for line in middle[begin:stop])
    if end < len(new):
        yield from _context(new[end:], is_first=False, is_last=True)


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines two requests have in common at their beginning, and at their end."""
    shortest = min(len(old), len(new))
    head = next((number for number in range(shortest) if old[number] != new[number]), shortest)
    tail = next((number for number in range(shortest - head) if old[-1 - number] != new[-1 - number]), shortest - head)
    return head, tail


def _context(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Line]:
    before = 0 if is_first else CONTEXT
    after = 0 if is_last else CONTEXT
    if len(lines) <= before + after + 1:
        yield from (Line("same", f"  {line}") for line in lines)
        return
    yield from (Line("same", f"  {line}") for line in lines[:before])
    hidden = len(lines) - before - after
    yield Line("gap", f"  … {hidden:,} {'line' if hidden == 1 else 'lines'} as before …")
    yield from (Line("same", f"  {line}") for line in lines[len(lines) - after :])
