"""How well a text fits a question."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.searching import IS_UNUSUAL, REPEATS, question_of, respelled, score_of, terms_of, words_of


def score(text: str, question: str) -> float:
    """As the search ranks it: by the words that are stored beside a text, or else by the text."""
    stored = respelled(text) or text
    return score_of(stored, question_of(terms_of(question)), len(stored))


BETTER = [
    ("needle", "needle", "a needle in the hay"),
    ("needle", "needle needle in the hay", "needle nothing in the hay"),
    ("needle", "Needle", "needles"),
    ("needle*", "needles needled", "needles thread"),
    ('"a needle"', "a needle, a needle", "a needle and needle a"),
    ("needle thread", "needle thread thread", "needle thread hay hay"),
    ("cafe", "Café café", "Café Kaffee"),
    ("café", "CAFE cafe", "Café cafes"),
    ("istanbul", "İstanbul", "Ankara"),
    ("get", "get_weather get", "get_weather target"),
    ("ещё", "еще ещё", "ещё раз"),
    ("天气", "天气 天气", "天气 天空"),
    ("天*", "天气天空", "天气很好"),
]


@pytest.mark.parametrize(("question", "better", "worse"), BETTER)
def test_what_says_it_more_often_or_in_fewer_words_is_better(question: str, better: str, worse: str) -> None:
    assert score(better, question) > score(worse, question)


def test_every_further_time_counts_less() -> None:
    scores = [score("needle " * count, "needle") for count in range(6)]
    steps = [after - before for before, after in pairwise(scores)]
    assert scores[0] == 0
    assert steps == sorted(steps, reverse=True)
    assert min(steps) > 0


def test_what_must_not_occur_has_no_score() -> None:
    assert score("needle", "needle -thread") == score("needle", "needle")


LETTERS = "".join(letter for code in range(0x250) if not IS_UNUSUAL.search(letter := chr(code))) + "אבẽỹ"
TEXTS = st.text(LETTERS + " ", min_size=1, max_size=20)


@given(st.lists(TEXTS, min_size=1, max_size=4).map(" ".join), st.data())
def test_a_word_counts_as_often_as_it_is_there(text: str, data: st.DataObject) -> None:
    """… whatever its accents and case."""
    words = words_of(text) or ["nothing"]
    word = data.draw(st.sampled_from(words))
    count = words_of(text).count(word)
    assert (
        score_of(text, word, 500) == (1 + REPEATS) / (1 + REPEATS / count) if count else score_of(text, word, 500) == 0
    )


@given(st.text(), st.text())
def test_every_text_has_a_score_for_every_question(text: str, question: str) -> None:
    assert 0 <= score_of(text, question_of(terms_of(question) or terms_of("x")), len(text)) < 3 * (len(question) + 1)
