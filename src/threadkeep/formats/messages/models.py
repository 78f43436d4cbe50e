"""What models refuse or take that others do not: one table; models that it does not name follow the general rule.

The general rule is the one of the models before Claude 4: both samplers, budgets for thinking, thinking that can be
turned off, and system text only before the conversation.

Source: Anthropic's model pages and the answers of its service; see also the notes in the SDK.
"""

from __future__ import annotations

import re
from typing import Any, Final

# claude-3-5-haiku…, claude-opus-4-1-20250805, anthropic.claude-opus-4-7-v1:0, claude-sonnet-5, claude-opus-4.7
_NAME: Final = re.compile(
    r"claude-(?:(?P<before>\d(?:[.-]\d)?)-)?(?P<family>opus|sonnet|haiku|fable|mythos)"
    r"(?:-(?P<major>\d{1,2})(?!\d)(?:[.-](?P<minor>\d{1,2})(?!\d))?)?",
    re.IGNORECASE,
)
_ALWAYS: Final = (0, 0)

# rule -> family -> the version from which it holds
RULES: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "no sampling": {"opus": (4, 7), "sonnet": (5, 0), "fable": _ALWAYS, "mythos": _ALWAYS},
    "one sampler": {"opus": (4, 1), "sonnet": (4, 1), "haiku": (4, 1), "fable": _ALWAYS, "mythos": _ALWAYS},
    "no budget": {"opus": (4, 7), "sonnet": (5, 0), "fable": _ALWAYS, "mythos": _ALWAYS},
    "always thinks": {"opus": (5, 5), "fable": _ALWAYS, "mythos": _ALWAYS},
    "inner system": {"opus": (4, 8)},
}


def follows(model: Any, rule: str) -> bool:
    """Whether a rule of the table holds for a model.

    >>> follows("claude-opus-4-8", "no sampling"), follows("claude-sonnet-4-5-20250929", "no sampling")
    (True, False)
    """
    found = _NAME.search(model) if isinstance(model, str) else None
    since = None if found is None else RULES[rule].get(found["family"].lower())
    return found is not None and since is not None and _version(found) >= since


def _version(found: re.Match[str]) -> tuple[int, int]:
    if found["major"] is not None:
        return int(found["major"]), int(found["minor"] or 0)
    major, _, minor = (found["before"] or "0").replace("-", ".").partition(".")
    return int(major), int(minor or 0)
