"""JSON as lines of HTML: objects and arrays fold, names and values have colours, and what is long is plain text.

The text of the lines is the JSON, so that a page can copy them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from markupsafe import Markup, escape

from threadkeep.domain.printing import printable_json
from threadkeep.viewer.texts import Budget

MAX_LINES: Final = 5_000  # of one tree
MAX_DEPTH: Final = 100
OPEN_DEPTH: Final = 5  # deeper objects and arrays are folded
_LINE: Final = 60  # characters of the elements of a line
_BRACKETS: Final = {dict: ("{", "}"), list: ("[", "]")}


class _Number(str):
    """A number as it is written, because some have more digits than a float."""

    __slots__ = ()


_CLASSES: Final = {str: "s", _Number: "d"}  # true, false and null have "b"


def json_tree(text: str, budget: Budget) -> Markup | None:
    """Return JSON text as HTML that folds, and count it; None where it is no object or array, or too long for it."""
    lines = text.count("\n") + 1
    length = len(text) + lines * _LINE
    if lines > MAX_LINES or budget.shown < length or not text.startswith(("{", "[")):
        return None
    try:
        tree = Markup("").join(_lines(json.loads(text, parse_int=_Number, parse_float=_Number), "", "", 0))
    except (ValueError, RecursionError):
        return None
    budget.shown -= length
    return tree


def _lines(value: Any, before: str | Markup, after: str, depth: int) -> Iterator[Markup]:
    """The lines of a value, with what stands before and after it; ValueError where it is nested too deeply."""
    indent = "  " * depth
    if not isinstance(value, dict | list) or not value:
        yield Markup('<div class="l">{}{}{}{}</div>').format(indent, before, _scalar(value), after)
        return
    if depth >= MAX_DEPTH:
        raise ValueError(depth)
    first, last = _BRACKETS[type(value)]
    is_open = " open" if depth < OPEN_DEPTH else ""
    yield Markup('<details{}><summary class="l">{}{}{}<span class="more" data-count="{}"></span></summary>').format(
        is_open, indent, before, first, f"{len(value):,}"
    )
    pairs = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    for number, (name, one) in enumerate(pairs, 1):
        label = "" if name is None else Markup('<span class="key">{}</span>: ').format(_quoted(name))
        yield from _lines(one, label, "" if number == len(value) else ",", depth + 1)
    yield Markup('</details><div class="l">{}{}{}</div>').format(indent, last, after)


def _scalar(value: Any) -> Markup:
    return Markup('<span class="{}">{}</span>').format(_CLASSES.get(type(value), "b"), _quoted(value))


def _quoted(value: Any) -> Markup:
    return escape(value if isinstance(value, _Number) else printable_json(json.dumps(value, ensure_ascii=False)))
