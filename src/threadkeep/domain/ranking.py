"""How well a text fits a question: how often it says what is searched for, and how short it is (as in BM25).

It depends on nothing but the text and the question, so that what is stored meanwhile moves nothing to another page, and
costs the same however much is stored. Databases that rank by themselves do not need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Final

from threadkeep.domain.searching import USUAL, Term, folded

REPEATS: Final = 1.2  # how much the second, third … time counts: towards 1 + this
BY_LENGTH: Final = 0.75  # how much of the length counts
LENGTH: Final = 500  # characters of an ordinary text
_DOTTED: Final = "\u0130"  # Turkish: the only letter that in lower case is two characters
_BEFORE, _AFTER, _BETWEEN = r"(?<![^\W_]%s)", r"(?![^\W_])", r"[\W_]+"

Pattern = re.Pattern[str]


def question_of(terms: Iterable[Term]) -> str:
    """What must occur, as `score_of` takes it: a term a line, a star behind the beginning of a word."""
    return "\n".join(" ".join(term.words) + "*" * term.is_prefix for term in terms if not term.is_excluded)


def score_of(text: str, question: str) -> float:
    """How well a text fits; more is better. Accents and cases are those of the text, or none."""
    plain, accented = _patterns(question)
    is_plain = text.isascii()
    lower = (text if is_plain else text.replace(_DOTTED, "i")).lower()
    per_length = REPEATS * (1 - BY_LENGTH + BY_LENGTH * len(text) / LENGTH)
    score = 0.0
    for pattern in plain if is_plain else accented:
        count = len(pattern.findall(lower))
        score += count * (1 + REPEATS) / (count + per_length)
    return score


@lru_cache(maxsize=64)
def _patterns(question: str) -> tuple[list[Pattern], list[Pattern]]:
    """The pattern of each term, for texts in ASCII and for others."""
    lines = question.split("\n")
    return [_pattern(line, re.escape) for line in lines], [_pattern(line, _any_accent) for line in lines]


def _pattern(line: str, spelled: Callable[[str], str]) -> Pattern:
    """It begins with a word, which is found faster than its beginning; that is looked at then."""
    is_prefix = line.endswith("*")
    first, *others = ["".join(map(spelled, word)) for word in line.rstrip("*").split(" ")]
    return re.compile(_BETWEEN.join([first + _BEFORE % first, *others]) + ("" if is_prefix else _AFTER))


def _any_accent(letter: str) -> str:
    """A pattern of a letter with any accent that a text can have whose words are not stored beside it."""
    signs = _accented().get(letter)
    return re.escape(letter) if signs is None else f"[{letter}{''.join(signs)}]"


@cache
def _accented() -> dict[str, list[str]]:
    """The lower-case letters with accents, by the letter."""
    found: dict[str, list[str]] = {}
    for letter in map(chr, range(0x80, 0x3000)):
        if USUAL.match(letter) and letter.islower() and len(plain := folded(letter)) == 1 and plain != letter:
            found.setdefault(plain, []).append(letter)
    return found
