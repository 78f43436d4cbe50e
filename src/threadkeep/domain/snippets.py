"""The place in a text where a question was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from threadkeep.domain.searching import WITHOUT_SPACES, Term

SNIPPET_CHARACTERS: Final = 160
_BEFORE: Final = 40  # characters before the first match
_BLANKS: Final = re.compile(r"\s")
_WORDS: Final = re.compile(r"[^\W_]+")
_LETTER: Final = rf"[^\W_{WITHOUT_SPACES}]"  # of a script with spaces
_LETTERS: Final = re.compile(_LETTER)


class _Folding(dict[int, str]):
    """Each character in its small form without accents; one for one, so that places stay the same."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code))[0].lower()[0]
        self[code] = plain
        return plain


_FOLDING: Final = _Folding()


def snippet_of(text: str, terms: Sequence[Term]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A piece of a text around the first match, on one line, and where in it the matches are (start, end)."""
    line = _BLANKS.sub(" ", text)
    same = line.lower() if line.isascii() else line.translate(_FOLDING)
    patterns = [found for term in terms if not term.is_excluded and (found := _pattern(term))]
    matches = [match.span() for match in re.finditer("|".join(patterns), same)] if patterns else []
    start, end = _around(line, matches[0][0] if matches else 0)
    head, tail = ("…" if start else ""), ("…" if end < len(line) else "")
    moved = len(head) - start
    marks = tuple((first + moved, last + moved) for first, last in matches if start <= first and last <= end)
    return f"{head}{line[start:end]}{tail}", marks


def _around(line: str, place: int) -> tuple[int, int]:
    """A range of whole words around a place, where there are blanks."""
    start = max(0, min(place - _BEFORE, len(line) - SNIPPET_CHARACTERS))
    end = min(len(line), start + SNIPPET_CHARACTERS)
    if start and (blank := line.find(" ", start, place)) >= 0:
        start = blank + 1
    if end < len(line) and (blank := line.rfind(" ", place + 1, end)) > place + _BEFORE:
        end = blank
    return start, end


def _pattern(term: Term) -> str:
    """What to look for: the words with anything but letters and digits between them."""
    same = term.text.translate(_FOLDING)
    words = [re.escape(word) for word in _WORDS.findall(same)]
    if not words:  # scripts whose marks are no letters
        return re.escape(same.strip())
    before = f"(?<!{_LETTER})" if _LETTERS.match(words[0][0]) else ""
    after = f"(?!{_LETTER})" if _LETTERS.match(words[-1][-1]) and not term.is_prefix else ""
    return before + r"[\W_]+".join(words) + after
