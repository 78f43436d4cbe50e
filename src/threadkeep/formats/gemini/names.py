"""Function names of the Gemini API: a letter or `_`, then letters, digits and `_ . : -`, 128 characters at most.

Source: Google's Gemini API reference, "FunctionDeclaration".
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from threadkeep.formats.names import Names, hashed

LONGEST: Final = 128
_VALID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_HASH: Final = 33  # a hash and what parts it from the name


class GeminiNames(Names):
    """The function names of one request: original -> wire name, one to one."""

    ALPHABET: ClassVar[str] = "A-Z a-z 0-9 _ . : -, beginning with a letter or _"

    __slots__ = ()

    def _is_valid(self, text: str) -> bool:
        return len(text) <= self.longest and _VALID.fullmatch(text) is not None

    def _cleaned(self, text: str) -> str:
        if self._is_valid(text):
            return text
        cleaned = _REFUSED.sub("_", text)
        cleaned = cleaned if _VALID.match(cleaned) else f"_{cleaned}"
        if cleaned.strip("_") and self._is_valid(cleaned) and cleaned not in self._taken:
            return cleaned
        return f"{cleaned[: LONGEST - _HASH].rstrip('_') or 'tool'}_{hashed(text)}"
