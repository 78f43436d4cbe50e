"""What models of the Gemini API differ in: how thinking is asked for, and what they need sent back.

Source: Google's documents "Gemini thinking", "Thought signatures" and "Function calling" (multimodal function
responses).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

# effort -> thinkingLevel
LEVELS: Final = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
# effort -> thinkingBudget, as Google's own endpoint for OpenAI's API translates it
BUDGETS: Final = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}


class Family(NamedTuple):
    """What models have in common. The defaults are the general rule, for models that the table does not know.

    Attributes:
        levels: effort -> thinkingLevel.
        budgets: effort -> thinkingBudget, where the models know no levels.
        thinks: whether they take a thinkingConfig at all.
        prefers_budget: whether a budget goes before an effort when both are set.
        needs_signature: whether the first call of each step needs a thought signature.
        nests_media: whether media of a tool output stand in its functionResponse, and not next to it.
    """

    levels: Mapping[str, str] = LEVELS
    budgets: Mapping[str, int] = {}
    thinks: bool = True
    prefers_budget: bool = False
    needs_signature: bool = False
    nests_media: bool = True


GENERAL: Final = Family()
_NOT_THINKING: Final = Family(thinks=False, nests_media=False)
_WITH_BUDGET: Final = Family({}, {**BUDGETS, "none": 0}, prefers_budget=True, nests_media=False)
_ALWAYS_THINKING: Final = _WITH_BUDGET._replace(budgets=BUDGETS)
_SIGNING: Final = Family(needs_signature=True)

# how names of models begin (the first match counts) -> family
FAMILIES: Final = (
    (r"gemini-2\.0-flash-thinking", GENERAL),
    (r"gemini-(1|2\.0)\b|gemini-pro\b", _NOT_THINKING),
    (r"gemini-2\.5-pro", _ALWAYS_THINKING),
    (r"gemini-2\.5", _WITH_BUDGET),
    (r"gemini-([3-9]|\d\d)\b|gemini-.*latest", _SIGNING),
)
_PATTERNS: Final = tuple((re.compile(pattern), family) for pattern, family in FAMILIES)


def family_of(model: object) -> Family:
    """The family of a model, whatever path its name stands in (``models/…``, ``publishers/google/models/…``)."""
    name = model.rpartition("/")[2].lower() if isinstance(model, str) else ""
    return next((family for pattern, family in _PATTERNS if pattern.match(name)), GENERAL)
