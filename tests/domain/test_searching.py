"""What of an item is searched, how its text becomes words, and what a question asks for."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from threadkeep.domain.searching import (
    IS_UNUSUAL,
    JSON_LIMIT,
    SNIPPET_CHARACTERS,
    TEXT_LIMIT,
    Term,
    respelled,
    snippet_of,
    terms_of,
    text_in,
    words_of,
)


def text_of(item: dict[str, Any]) -> str:
    return text_in(item.get("type", "message"), json.dumps(item, separators=(",", ":"), ensure_ascii=False))


ITEMS: dict[str, tuple[dict[str, Any], str]] = {
    "a message": ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, "Hi"),
    "a message of several parts": (
        {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        "a\nb",
    ),
    "content as a string": ({"type": "message", "content": "Hi"}, "Hi"),
    "a picture": ({"type": "message", "content": [{"type": "input_image", "image_url": "data:secret"}]}, ""),
    "a call": ({"type": "function_call", "name": "look_up", "arguments": '{"q":"cats"}'}, 'look_up\n{"q":"cats"}'),
    "an output": ({"type": "function_call_output", "call_id": "c", "output": "rain"}, "rain"),
    "an output of parts": ({"type": "function_call_output", "output": [{"type": "input_text", "text": "r"}]}, "r"),
    "a search of the provider": ({"type": "web_search_call", "action": {"query": "cats", "n": 3}}, "cats"),
    "a native block": ({"type": "provider_item", "payload": {"type": "x", "name": "t", "text": "b"}}, "t\nb"),
    "only the overlay": ({"value": {"type": "message", "content": "Hi"}}, "Hi"),
    "reasoning": ({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, ""),
    "compaction": ({"type": "compaction", "encrypted_content": "xyz"}, ""),
    "what cannot be stored": ({"type": "message", "content": "a\x00b\ud800c"}, "a b c"),
}


@pytest.mark.parametrize("name", ITEMS)
def test_what_is_searched_of_an_item(name: str) -> None:
    item, text = ITEMS[name]
    assert text_of(item) == text


@given(JSON)
def test_every_item_has_a_text(value: Any) -> None:
    found = text_of({"type": "message", "content": value, "name": value, "action": value})
    assert len(found) <= TEXT_LIMIT
    found.encode()


@pytest.mark.parametrize("cut", range(12))
def test_of_a_long_item_the_beginning_is_searched(cut: int) -> None:
    """Its JSON text ends anywhere, also inside an escape."""
    text = "Äpfel " * 40 + "x" * cut + '\\"\u0001é\n' * JSON_LIMIT
    whole = json.dumps({"type": "x", "call_id": '"output":"', "output": text}, separators=(",", ":"))
    found = text_in("x", whole[:JSON_LIMIT])
    assert TEXT_LIMIT - 5 < len(found) <= TEXT_LIMIT
    assert text.startswith(found)


@pytest.mark.parametrize("length", [10, JSON_LIMIT])
@pytest.mark.parametrize("kind", ["reasoning", "compaction"])
def test_reasoning_is_not_searched_however_long(kind: str, length: int) -> None:
    item = {"type": kind, "summary": [{"type": "summary_text", "text": "hm " * length}], "content": "hm " * length}
    whole = json.dumps(item, separators=(",", ":"))
    assert text_in(kind, whole[:JSON_LIMIT]) == ""


@pytest.mark.parametrize("name", ["content", "text", "output", "query"])
def test_a_long_text_is_found_by_its_beginning_wherever_it_stands(name: str) -> None:
    whole = json.dumps({"type": "x", "action": {name: "needle " * JSON_LIMIT}}, separators=(",", ":"))
    assert text_in("x", whole[:JSON_LIMIT]).startswith("needle ")


WORDS = {
    "The weather, in Paris!": "the weather in paris",
    "get_weather(city='Köln')": "get weather city koln",
    "STRASSE Straße": "strasse strasse",
    "e-mail 3.14": "e mail 3 14",
    "Привет МИР": "привет мир",
    "…": "",
    "天": "天",
    "GPT模型": "gpt 模型 型",
    "ﾊﾝｶｸ": "ハン ンカ カク ク",
    "ดีครับ": "z0e140e35 z0e350e04 z0e040e23 z0e230e31 z0e310e1a z0e1a",
    "東京・大阪": "東京 京 大阪 阪",
    "東ดี": "東 z0e140e35 z0e35",
}


@pytest.mark.parametrize("text", WORDS)
def test_words(text: str) -> None:
    assert " ".join(words_of(text)) == WORDS[text]


def test_only_what_sqlite_takes_for_other_words_is_respelled() -> None:
    assert respelled("Weather") is None
    assert respelled("Wetter für Ä … 🚀 „Đà Nẵng“") is None
    assert respelled("שלום") is None
    assert respelled("ＧＰＴ") == "gpt"  # noqa: RUF001 - wide letters
    assert respelled("Straße x²") == "strasse x2"
    assert respelled("Great🙂 ὈδυσσΕύς ещё") == "great οδυσσευσ еще"
    assert respelled("GPT 天气") == "gpt 天气 气"


def test_sqlite_takes_usual_signs_as_we_do() -> None:
    """Each sign between letters, before and behind one: FTS5 finds the same words."""
    usual = [sign for code in range(0x20000) if not IS_UNUSUAL.search(sign := chr(code))]
    assert len(usual) > 2_000
    texts = {code: f"a{sign}b {sign}c d{sign}" for code, sign in enumerate(usual)}
    found: dict[int, list[str]] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5(words, tokenize='unicode61 remove_diacritics 2')")
        connection.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(texts, instance)")
        connection.executemany("INSERT INTO texts (rowid, words) VALUES (?, ?)", texts.items())
        for term, doc in connection.execute("SELECT term, doc FROM vocabulary ORDER BY doc, offset"):
            found.setdefault(doc, []).append(term)
    assert {texts[code]: words for code, words in found.items()} == {text: words_of(text) for text in texts.values()}


@given(st.text(alphabet="ab 天気はどう날씨ภาษา", max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_every_piece_of_a_run_is_found_in_it(text: str, one: int, other: int) -> None:
    """Whatever is cut out of a text: its words stand in the words of the text, side by side."""
    first, last = sorted((one, other))
    piece = text[first:last].replace("a", "天").replace("b", "気")
    whole = text.replace("a", "天").replace("b", "気")
    words = words_of(whole)
    for term in terms_of(f'"{piece}"'):
        wanted = list(term.words)
        starts = [n for n in range(len(words)) if words[n : n + len(wanted) - 1] == wanted[:-1]]
        lasts = [words[n + len(wanted) - 1] for n in starts if n + len(wanted) <= len(words)]
        assert any(word.startswith(wanted[-1]) if term.is_prefix else word == wanted[-1] for word in lasts)


def term(text: str, *words: str, **options: bool) -> Term:
    return Term(text, words or (text,), **options)


TERMS = {
    "two words": [term("two"), term("words")],
    '"two words"': [term("two words", "two", "words")],
    '"open end': [term("open end", "open", "end")],
    "wor*": [term("wor*", "wor", is_prefix=True)],
    "-no yes": [term("no", is_excluded=True), term("yes")],
    '-"not this"': [term("not this", "not", "this", is_excluded=True)],
    "e-mail": [term("e-mail", "e", "mail")],
    ' - * "" \'; DROP': [term("DROP", "drop")],
    "": [],
    "w* W* w -w wor -w": [
        term("w*", "w", is_prefix=True), term("w"), term("w", is_excluded=True), term("wor"),
    ],
    "Été ete été": [term("Été", "ete")],
}  # fmt: skip


@pytest.mark.parametrize("question", TERMS)
def test_terms(question: str) -> None:
    assert terms_of(question) == TERMS[question]


@given(st.text())
def test_every_text_is_a_question(text: str) -> None:
    for found in terms_of(text):
        assert found.words
        assert all(word and not set(word) & set(" :&|!()<>*+-~@\\\"'") for word in found.words)
        snippet_of(text, [found])


def marked(text: str, question: str) -> str:
    snippet, marks = snippet_of(text, terms_of(question))
    for start, end in reversed(marks):
        snippet = f"{snippet[:start]}[{snippet[start:end]}]{snippet[end:]}"
    return snippet


SNIPPETS = [
    ("The weather in Paris", "paris", "The weather in [Paris]"),
    ("Im Café\nwar es", "cafe", "Im [Café] war es"),
    ("catalogue cat", "cat", "catalogue [cat]"),
    ("catalogue cat", "cat*", "[cat]alogue [cat]"),
    ("in Paris, France", '"paris france"', "in [Paris, France]"),
    ("今天天气很好", "天气", "今天[天气]很好"),
    ("使用GPT模型", "gpt模型", "使用[GPT模型]"),
    ("使用GPT 模型", "gpt模型", "使用[GPT 模型]"),
    ("เด็ก อากาศดี", "ดี", "เด็ก อากาศ[ดี]"),
    ("ฉันทำงาน", "ทำ", "ฉัน[ทำ]งาน"),
    ("나쓰메 날씨", "날씨", "나쓰메 [날씨]"),
    ("ばば はは", "はは", "ばば [はは]"),
    ("हिन्दी भाषा", "भाषा", "हिन्दी [भाष]ा"),
    ("cats -dogs", "cats -dogs", "[cats] -dogs"),
    ("a (b) c", "b", "a ([b]) c"),
    ("nothing here", "elsewhere", "nothing here"),
]


@pytest.mark.parametrize(("text", "question", "shown"), SNIPPETS)
def test_snippets(text: str, question: str, shown: str) -> None:
    assert marked(text, question) == shown


def test_a_long_text_is_cut_around_the_match() -> None:
    text = "before " * 100 + "needle" + " after" * 100
    snippet, marks = snippet_of(text, terms_of("needle"))
    assert len(snippet) <= SNIPPET_CHARACTERS + 2
    assert snippet.startswith("…before ")
    assert snippet.endswith(" after…")
    assert [snippet[start:end] for start, end in marks] == ["needle"]


@pytest.mark.parametrize("sign", ["e\u0301", "ก็", "👩🏽\u200d🚀", "❤\ufe0f"])
@pytest.mark.parametrize("count", range(60, 72))
def test_a_snippet_is_cut_at_no_accent_and_in_no_emoji(sign: str, count: int) -> None:
    snippet, marks = snippet_of(f"{sign * count} (needle) {sign * 200}".replace(" ", "_"), terms_of("needle"))
    assert [snippet[start:end] for start, end in marks] == ["needle"]
    assert snippet.replace(sign, "") == "…_(needle)_…"


def test_a_snippet_looks_no_further_than_it_shows() -> None:
    terms = terms_of(" ".join(["hello", *(f"w{n}" for n in range(99))]))

    def calls(size: int) -> int:
        """How many functions are called, those in C included."""
        text, events = "hello world " * (size // 12), Counter[str]()
        sys.setprofile(lambda _frame, event, _function: events.update([event]))
        try:
            marks = snippet_of(text, terms)[1]
        finally:
            sys.setprofile(None)
        assert len(marks) > 10
        return events["call"] + events["c_call"]

    calls(TEXT_LIMIT)  # which compiles the pattern
    assert calls(TEXT_LIMIT) < 1.1 * calls(10_000)
