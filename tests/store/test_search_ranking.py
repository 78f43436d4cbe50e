"""On SQLite, the index itself counts a word where there are few documents; scores are the same as of the texts."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.factories import a_message
from threadkeep import Store
from threadkeep.db.search import SCORE_PARTS
from threadkeep.db.search.sqlite import PER_MATCH
from threadkeep.domain.searching import question_of, respelled, score_of, terms_of

WORDS = [
    "needle", "Needle", "needles", "thread", "get_needle", "Nädel", "nadel", "naïve —", "hay", "İstanbul", "ещё",
    "天气", "天气很好", "天天天",
]  # fmt: skip
QUERIES = [
    "needle", "need*", "nadel", "istanbul", "еще", '"needle thread"', '"needle needle"', '"needle need"*',
    '"hay hay"*', "needle -thread", "天气", "天", "天天", "needle thread", "nothing",
]  # fmt: skip
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join), min_size=1, max_size=12)
FOUR_WORDS = ["needle thread hay pin", "needle needle hay pin", "needle needle needle pin"]


def scores(texts: list[str], query: str) -> list[tuple[float, int]]:
    """The scores and positions of the texts that have all terms, the best first."""
    found = []
    for position, text in enumerate(texts):
        stored = respelled(text) or text
        each = [score_of(stored, question_of([term]), len(stored.encode())) for term in terms_of(query)]
        excluded = [term.is_excluded for term in terms_of(query)]
        hidden = [score_of(stored, question_of(terms_of(term.text)), 0) for term in terms_of(query) if term.is_excluded]
        if all(score for score, is_excluded in zip(each, excluded, strict=True) if not is_excluded) and not any(hidden):
            found.append((round(sum(each) * SCORE_PARTS) / SCORE_PARTS, position))
    return sorted(found, reverse=True)


def found_in(texts: list[str], query: str) -> list[tuple[float, int | None]]:
    with Store("sqlite://") as store:
        store.create_conversation(input=[a_message(text) for text in texts])
        pages = [store.search(query, limit=5)]
        while pages[-1].next is not None:
            pages.append(store.search(query, limit=5, after=pages[-1].next))
    return [(result.score, result.position) for page in pages for result in page]


@settings(max_examples=40)
@given(texts=TEXTS, query=st.sampled_from(QUERIES))
def test_scores_are_those_of_the_texts(texts: list[str], query: str) -> None:
    assert found_in(texts, query) == scores(texts, query)


def test_scores_are_known_where_the_index_says_nothing_of_counts() -> None:
    """… because the average document has six words, its tenant and its conversation among them."""
    assert found_in(FOUR_WORDS, "needle") == scores(FOUR_WORDS, "needle")


@pytest.mark.parametrize(
    ("query", "others", "read"),
    [
        pytest.param("needle", 0, 0, id="a word that many have"),
        pytest.param("need* -hay", 0, 0, id="a prefix, and what must not occur"),
        pytest.param("needle thread", 0, 50, id="two terms"),
        pytest.param("needle", PER_MATCH * 50, 50, id="a word that few have"),
    ],
)
def test_texts_are_only_read_where_the_index_is_slower(query: str, others: int, read: int) -> None:
    with Store("sqlite://") as store:
        store.create_conversation(input=[a_message("needle thread")] * 50 + [a_message("hay")] * others)
        store.reindex()
        calls = Counter[str]()
        sys.setprofile(lambda frame, event, _: calls.update([frame.f_code.co_name] if event == "call" else []))
        try:
            results: Any = store.search(query, limit=10)
        finally:
            sys.setprofile(None)
    assert (len(results), calls["score_of"]) == (10, read)
