"""What is stored now and then and cannot be sent: texts that are not Unicode, and numbers that are not finite.

Rows keep both as they came. JSON has no form for NaN and the infinities, and while its escapes can express lone
surrogates, providers and HTTP clients refuse them. They stand for bytes that were not UTF-8
(``errors="surrogateescape"``), or came in as JSON escapes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from threadkeep.domain.jsontext import loads
from threadkeep.domain.rendering import Loss, Repair
from threadkeep.formats.shared.reports import Context

Report = Loss | Repair
_LONE: Final = re.compile("[\ud800-\udfff]")
# numbers that no float can hold have an exponent of three digits, or many digits
_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]|NaN|Infinity|[eE]\+?\d{3}|\d{200}")
_TEXT: Final = "Characters that are not Unicode were sent as U+FFFD."
_NUMBER: Final = "A number that is NaN or infinite was not sent: JSON has none."


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    return text.isascii() or _LONE.search(text) is None


@dataclass(slots=True)
class Mending:
    """Makes values that can be sent of JSON values, and remembers what it changed."""

    has_texts: bool = False
    has_numbers: bool = False

    def value(self, value: Any) -> Any:
        r"""The value with U+FFFD for what is not Unicode, and without numbers that are not finite: null in lists.

        >>> Mending().value({"a": ["x\udcff", 1, float("nan")], "b": float("inf")}) == {"a": ["x\ufffd", 1, None]}
        True
        """
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            kept = {key: inner for key, inner in value.items() if not self._is_no_number(inner)}
            return {self._text(key): self.value(inner) for key, inner in kept.items()}
        if isinstance(value, list | tuple):
            return [None if self._is_no_number(inner) else self.value(inner) for inner in value]
        return value

    def _text(self, text: str) -> str:
        if is_unicode(text):
            return text
        self.has_texts = True
        return _LONE.sub("\ufffd", text)

    def _is_no_number(self, value: Any) -> bool:
        if not isinstance(value, float) or math.isfinite(value):
            return False
        self.has_numbers = True
        return True

    def reports(self, position: int | None, path: str) -> list[Report]:
        """What it did, for the place of the value."""
        found: list[Report] = [Loss("number", position, path, _NUMBER)] if self.has_numbers else []
        return [*found, Repair("invalid_text", position, path, _TEXT)] if self.has_texts else found


def sent_value(value: Any, text: str, context: Context, path: str) -> Any:
    """A value that was read from a text of an item, in which escapes stand for what cannot be sent."""
    if not _ESCAPED.search(text):
        return value
    mending = Mending()
    value = mending.value(value)
    for report in mending.reports(context.position, path):
        if isinstance(report, Loss):
            context.losses.append(report)
        else:
            context.repairs.append(report)
    return value


def read_value(text: str, context: Context, path: str) -> Any:
    """The value of a JSON text of an item, as it can be sent."""
    return sent_value(loads(text), text, context, path)
