"""Token counts: the inclusive figures that are the same for every provider."""

from __future__ import annotations

from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import figure


def count_at(source: JsonObject, *paths: str) -> int | None:
    """The first count that the provider gives under one of these paths (``details.cached_tokens``)."""
    for path in paths:
        found: Any = source
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if (number := figure(found)) is not None:
            return number
    return None


def inclusive(*, taken: int | None, given: int | None, reasoning: int | None, total: int | None) -> JsonObject:
    """Input, output and total such that everything counts once.

    Some hosts count reasoning outside the output, or media outside the input: where the stated total is larger than
    the parts, reasoning that fills the gap belongs to the output, and what is still missing to the input.
    """
    if taken is not None and given is not None and total is not None:
        gap = total - taken - given
        if reasoning and gap >= reasoning:
            given, gap = given + reasoning, gap - reasoning
        if gap > 0:
            taken += gap
    if total is None and taken is not None and given is not None:
        total = taken + given
    return {"input_tokens": taken, "output_tokens": given, "reasoning_tokens": reasoning, "total_tokens": total}
