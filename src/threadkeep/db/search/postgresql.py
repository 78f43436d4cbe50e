"""The search on PostgreSQL: a GIN index of TSVECTORs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam, func

from threadkeep.db import models, search, sessions, types
from threadkeep.db.search import DOCUMENTS, Matching, SearchQuery, Shape, parted
from threadkeep.domain.searching import Term, Vocabulary, words_of

WORD_LIMIT: Final = 64  # characters of a word
_BY_LENGTH: Final = 1  # ts_rank divides by 1 + the logarithm of the number of words
# How often words are in the documents, and how many conversations users have
_UPDATE_STATISTICS: Final = sa.text(
    f"ANALYZE (SKIP_LOCKED) {models.search_documents.name}, {models.conversations.name}"
)


class _TsVectorIndex(search.SearchIndex):
    """Words are in the notation of TSVECTOR, each with its position; questions are in that of TSQUERY."""

    seeks_conversations = True

    def words(self, text: str, vocabulary: Vocabulary | None = None) -> str | None:
        words = enumerate(words_of(text, vocabulary), 1)
        return " ".join(f"{word[:WORD_LIMIT]}:{number}" for number, word in words)

    def update_statistics(self, connection: Connection) -> None:
        connection.execute(_UPDATE_STATISTICS)

    def planned_for_values(self, connection: Connection) -> AbstractContextManager[None]:
        return sessions.planned_for_values(connection)

    def parameters(
        self, tenant: int, query: SearchQuery, conversations: Sequence[int], *, is_near: bool
    ) -> dict[str, Any]:
        del tenant, conversations, is_near
        wanted, _ = parted(query.terms)
        return {"match": _tsquery(query.terms), "wanted": _tsquery(wanted)}  # excluded terms have no score

    def matching(self, shape: Shape) -> Matching:
        del shape
        words, query = DOCUMENTS.words, sa.cast(bindparam("match"), types.TsQuery())
        return models.search_documents, [words.op("@@", is_comparison=True)(query)], DOCUMENTS.id, words

    def rank(self, value: Any) -> Any:
        """Of the candidates only: before they are sorted, all matches would be ranked."""
        return sa.cast(func.ts_rank(value, sa.cast(bindparam("wanted"), types.TsQuery()), _BY_LENGTH), sa.Double)


INDEX: Final = _TsVectorIndex()


def _tsquery(terms: Sequence[Term]) -> str:
    """A query in the notation of TSQUERY."""
    wanted, excluded = (
        [" <-> ".join(word[:WORD_LIMIT] for word in term.words) + (":*" if term.is_prefix else "") for term in some]
        for some in parted(terms)
    )
    return " & ".join([*(f"({term})" for term in wanted), *(f"!({term})" for term in excluded)])
