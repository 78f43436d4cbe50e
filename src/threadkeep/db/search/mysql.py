"""The search on MySQL and MariaDB: a FULLTEXT index, which knows neither short words nor new letters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, bindparam, func
from sqlalchemy.dialects.mysql import match

from threadkeep.db import models, search
from threadkeep.db.search import DOCUMENTS, Matching, SearchQuery, Shape, parted
from threadkeep.domain import searching

WORD_LIMIT: Final = 64  # characters of a word
_BASIC: Final = 0xFFFF


class _FullTextIndex(search.SearchIndex):
    """Words are padded; questions are in boolean mode."""

    reads_near = True

    def words(self, text: str, vocabulary: searching.Vocabulary | None = None) -> str | None:
        return " ".join(map(mysql_word, searching.words_of(text, vocabulary)))

    def terms(self, query: SearchQuery) -> tuple[tuple[int, bool, bool], ...]:
        return tuple((len(term.words), term.is_prefix, term.is_excluded) for term in query.terms)

    def parameters(
        self, tenant: int, query: SearchQuery, conversations: Sequence[int], *, is_near: bool
    ) -> dict[str, Any]:
        del tenant, conversations
        terms = list(enumerate(query.terms))
        if is_near:
            return {f"term_{number}": _side_by_side(term, "  ") for number, term in terms}
        wanted, _ = parted(query.terms)
        excluded = {f"term_{number}": _boolean(term) for number, term in terms if term.is_excluded}
        # It has no phrases whose last word is a prefix: they are looked for in what matches
        open_phrases = [(number, term) for number, term in terms if term.is_prefix and len(term.words) > 1]
        phrases = {f"phrase_{number}": _side_by_side(term) for number, term in open_phrases}
        return excluded | phrases | {"match": " ".join(map(_boolean, wanted))}

    def matching(self, shape: Shape) -> Matching:
        """Excluded terms have conditions of their own: MariaDB ignores a minus next to a phrase."""
        if shape.is_near:
            return _near_match(shape)
        words = DOCUMENTS.words
        score: Any = match(words, against=bindparam("match")).in_boolean_mode()
        where: list[ColumnElement[bool]] = [score]
        for number, (count, is_prefix, is_excluded) in enumerate(shape.terms):
            found: list[ColumnElement[bool]] = []
            if is_excluded:
                found.append(match(words, against=bindparam(f"term_{number}")).in_boolean_mode())
            if is_prefix and count > 1:
                found.append(func.locate(bindparam(f"phrase_{number}"), func.concat(" ", words)) > 0)
            if found:
                where.append(sa.not_(sa.and_(*found)) if is_excluded else sa.and_(*found))
        return models.search_documents, where, DOCUMENTS.id, score


INDEX: Final = _FullTextIndex()


def _near_match(shape: Shape) -> Matching:
    """The same without the index, for few documents: each word stands between two blanks of its own."""
    words = func.concat(" ", func.replace(DOCUMENTS.words, " ", "  "), " ")
    terms = [(bindparam(f"term_{number}", type_=sa.Text), kind[-1]) for number, kind in enumerate(shape.terms)]
    where = [
        (func.locate(term, words) == 0) if excluded else (func.locate(term, words) > 0) for term, excluded in terms
    ]
    length = func.char_length
    counts = [
        (length(words) - length(func.replace(words, term, ""))) / length(term)
        for term, excluded in terms
        if not excluded
    ]
    divisor = searching.per_length(func.octet_length(DOCUMENTS.text))
    score: ColumnElement[Any] = sum(
        (count * (1 + searching.REPEATS) / (count + divisor) for count in counts), start=sa.literal_column("0")
    )
    return models.search_documents, where, DOCUMENTS.id, score


def _boolean(term: searching.Term) -> str:
    """A term in boolean mode. MariaDB fails on brackets and on quotes around one word; phrases have whole words."""
    words = [mysql_word(word) for word in term.words]
    beginning = [f"+{mysql_letters(term.words[-1])}*"] if term.is_prefix else []
    phrase = words[:-1] if term.is_prefix else words
    complete = [f'+"{" ".join(phrase)}"'] if len(phrase) > 1 else [f"+{word}" for word in phrase]
    return " ".join([*complete, *beginning])


def _side_by_side(term: searching.Term, blanks: str = " ") -> str:
    """A term as it stands in the words of a text."""
    words = [*map(mysql_word, term.words)]
    if term.is_prefix:
        words[-1] = mysql_letters(term.words[-1])
    return f" {blanks.join(words)}" + ("" if term.is_prefix else " ")


class _MysqlLetters(dict[int, str]):
    """Letters and digits for MySQL's parser: those that are newer than Unicode 3.2 are replaced by their codes."""

    def __missing__(self, code: int) -> str:
        is_known = unicodedata.ucd_3_2_0.category(chr(code))[0] in "LN"
        self[code] = text = chr(code) if is_known and code <= _BASIC else f"z{code:05x}"
        return text


_KNOWN: Final = _MysqlLetters()


def mysql_letters(word: str) -> str:
    """A word in letters that MySQL knows."""
    return (word if word.isascii() else word.translate(_KNOWN))[:WORD_LIMIT]


def mysql_word(word: str) -> str:
    """A word padded so that MySQL neither takes it for a stop word nor finds it too short (MyISAM: four letters)."""
    return mysql_letters(word).ljust(3, "_") + "_"
