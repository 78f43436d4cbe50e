"""The words of a text are made from tables and once for what comes again; here they are made letter by letter."""

from __future__ import annotations

import re
from itertools import pairwise
from unicodedata import combining, normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain import searching
from threadkeep.domain.searching import WITHOUT_SPACES, Vocabulary, respelled, words_of

RUNS = re.compile(searching._RUNS.pattern)
MARKED = re.compile(searching._IS_MARKED.pattern)
WORDS = "ab AB_1-'\" éÉßſ ﬁ x² Ωσς ёй İ עִב עَر हिन्दी 🙂🥲\n"
PAIRS = "天気はどう，。（x） 날씨ᄒ ภาคำกี ㌀ ｶﾞ \u0301\u0323\u3099\u200d\u00a0\u3000"  # noqa: RUF001
TEXTS = st.lists(st.text(WORDS + PAIRS, max_size=40) | st.text(max_size=40)).map("".join)


def plain_words_of(text: str) -> list[str]:
    """What `words_of` says, as it is defined."""
    text, words, end = normalize("NFKC", text), list[str](), 0
    for run in RUNS.finditer(text):
        words += folded_words(text[end : run.start()])
        signs = [f"{ord(sign):04x}" for sign in run[0]] if MARKED.match(run[0]) else list(run[0])
        mark = "z" if MARKED.match(run[0]) else ""
        words += [f"{mark}{first}{second}" for first, second in pairwise(signs)]
        words.append(f"{mark}{signs[-1]}")
        end = run.end()
    return words + folded_words(text[end:])


def folded_words(text: str) -> list[str]:
    plain = "".join(sign for sign in normalize("NFKD", text.casefold()) if not combining(sign))
    return re.findall(r"[^\W_]+", plain)


@given(TEXTS)
def test_words_are_those_of_the_definition(text: str) -> None:
    assert words_of(text) == plain_words_of(text)


@given(st.lists(TEXTS, max_size=5))
def test_words_do_not_depend_on_the_texts_before(texts: list[str]) -> None:
    vocabulary = Vocabulary()
    for text in [*texts, *texts]:
        assert words_of(text, vocabulary) == words_of(text)
        assert respelled(text, vocabulary) == respelled(text)


@pytest.mark.slow
def test_every_sign_makes_the_same_words_wherever_it_stands() -> None:
    signs = [sign for code in range(0x20000) if not 0xD800 <= code < 0xE000 for sign in [chr(code)]]
    assert [sign for sign in signs if words_of(sign) != plain_words_of(sign)] == []
    assert [sign for sign in signs if words_of(f"a{sign}b 天{sign}气") != plain_words_of(f"a{sign}b 天{sign}气")] == []


def test_a_vocabulary_keeps_what_comes_again_and_no_long_texts() -> None:
    vocabulary = Vocabulary()
    for number in range(100):
        words_of(f"Ещё раз — {'天' * 10_000}{number}", vocabulary)
        words_of(f"plain {number}", vocabulary)
    assert set(vocabulary) == {"Ещё", "раз", "—"}
    assert not re.search(f"[{WITHOUT_SPACES}]", "".join(vocabulary))
