"""The place in a text where a question was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Final

from threadkeep.domain.searching import WITHOUT_SPACES, Term

SNIPPET_CHARACTERS: Final = 160
_BEFORE: Final = 40  # characters before the first match
_BLANKS: Final = re.compile(r"\s")
_RUN: Final = f"[{WITHOUT_SPACES}]"
_LETTER: Final = rf"[^\W_{WITHOUT_SPACES}]"  # of a script with spaces
_PIECES: Final = re.compile(f"{_RUN}+|{_LETTER}+")
_IS_RUN: Final = re.compile(_RUN)
# Thai and Lao AM are written as two signs when they are normalized, and stay one in the text
_AM: Final = re.compile("(?<=\u0e4d)\u0e32|(?<=\u0ecd)\u0eb2")
_JOINER: Final = "\u200d"
_SKIN: Final = "\U0001f3fb", "\U0001f3ff"  # first and last tone of emoji


class _Folding(dict[int, str]):
    """Each character in its small form without accents; one for one, so that places stay the same."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if _IS_RUN.match(sign):  # whose accents and syllables are letters
            plain = unicodedata.normalize("NFKC", sign)[0]
        else:
            plain = unicodedata.normalize("NFKD", sign)[0].lower()[0]
        self[code] = plain
        return plain


_FOLDING: Final = _Folding()


def snippet_of(text: str, terms: Sequence[Term]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A piece of a text around the first match, on one line, and where in it the matches are (start, end)."""
    line = _BLANKS.sub(" ", text)
    same = line.lower() if line.isascii() else line.translate(_FOLDING)
    matches = _matches(same, [term for term in terms if not term.is_excluded])
    first = next(matches, None)
    start, end = _around(line, first.start() if first else 0)
    spans = [first.span()] if first else []
    spans += takewhile(lambda span: span[1] <= end, (match.span() for match in matches))
    head, tail = ("…" if start else ""), ("…" if end < len(line) else "")
    moved = len(head) - start
    marks = tuple((begin + moved, last + moved) for begin, last in spans if last <= end)
    return f"{head}{line[start:end]}{tail}", marks


def _around(line: str, place: int) -> tuple[int, int]:
    """A range of whole words around a place, where there are blanks."""
    start = max(0, min(place - _BEFORE, len(line) - SNIPPET_CHARACTERS))
    end = min(len(line), start + SNIPPET_CHARACTERS)
    if start and (blank := line.find(" ", start, place)) >= 0:
        start = blank + 1
    if end < len(line) and (blank := line.rfind(" ", place + 1, end)) > place + _BEFORE:
        end = blank
    while start < place and _is_inner(line, start):
        start += 1
    while end > place + _BEFORE and _is_inner(line, end):
        end -= 1
    return start, end


def _is_inner(line: str, place: int) -> bool:
    """Whether the sign at a place belongs to the one before: accents, vowels, parts of an emoji."""
    if not 0 < place < len(line):
        return False
    sign = line[place]
    return unicodedata.category(sign)[0] == "M" or _JOINER in (sign, line[place - 1]) or _SKIN[0] <= sign <= _SKIN[1]


def _matches(same: str, terms: Sequence[Term]) -> Iterator[re.Match[str]]:
    """Where the terms stand, one after the other. What may stand around them is said once, because it is long."""
    bodies: dict[tuple[str, str], list[str]] = {}
    for term in terms:
        pieces = _PIECES.findall(term.text.translate(_FOLDING))
        if pieces:
            before = "" if _IS_RUN.match(pieces[0]) else f"(?<!{_LETTER})"
            after = "" if _IS_RUN.match(pieces[-1]) or term.is_prefix else f"(?!{_LETTER})"
            bodies.setdefault((before, after), []).append(_body(pieces))
    found = "|".join(f"{before}(?:{'|'.join(some)}){after}" for (before, after), some in bodies.items())
    return re.finditer(found, same) if found else iter(())


def _body(pieces: Sequence[str]) -> str:
    """The words, with anything but letters and digits between them."""
    found = [_escaped(pieces[0])]
    for last, piece in pairwise(pieces):
        found += [r"[\W_]*" if _IS_RUN.match(last) or _IS_RUN.match(piece) else r"[\W_]+", _escaped(piece)]
    return "".join(found)


def _escaped(piece: str) -> str:
    return _AM.sub(r"\g<0>?", re.escape(piece))
