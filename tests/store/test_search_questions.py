"""Questions that are not plain English words: the same answers on every database, and no error of its language."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_message
from threadkeep import InvalidOption

pytestmark = pytest.mark.one_face

TEXTS = (
    "The quick brown fox, it is what we want to be or not",
    "𠮷野家で食べた 𰀀𰀁",
    "مُحَمَّد كتب",
    "محمد ذهب",
    "שָׁלוֹם עולם",
    "Straße nach Köln, ещё один район",
    "ﬁsh and 天气",
    "ﬁsh and x² ½",
    "Great🙂 Việt Nam Đà Nẵng cafe\u0301",
    "ὈδυσσΕύς ΟΔΥΣΣΕΥΣ",
    "ははとちち",
    "パパとママ",
    "𐐀𐐁𐐂 𞤀𞤁 𝐁𝐨𝐥𝐝 ꬰꬱ",  # noqa: RUF001 - bold letters
    "abcdefghij" * 7,
    "हिन्दी भाषा ꨀꨁ",
)
FOUND = {
    "the": [0],
    "th*": [0],
    "t*": [0],
    "what*": [0],
    '"it is what"': [0],
    "𠮷": [1],
    "𠮷野": [1],
    "野家": [1],
    "𰀀": [1],
    "𰀁": [1],
    "𡈽": [],
    "محمد": [2, 3],
    "مُحَمَّد": [2, 3],
    "שלום": [4],
    "strasse": [5],
    "STRASSE": [5],
    "straße": [5],
    "еще раион": [5],
    "ЕЩЁ": [5],
    "fish": [6, 7],
    "ﬁsh": [6, 7],
    "x2": [7],
    "x²": [7],
    "great": [8],
    "Great🙂": [8],
    "viet đà cafe": [8],
    "οδυσσεύς": [9],
    "οδυσσευς": [9],
    "はは": [10],
    "ハハ": [],
    "パパ": [11],
    "ばば": [],
    "𐐨𐐩𐐪": [12],
    "𞤀𞤁": [12],
    "𞤀*": [12],
    "bold": [12],
    "ꬰꬱ": [12],
    "abcdefghij" * 7: [13],
    "abcdefghij" * 5 + "*": [13],
    "हिन्दी": [14],
    "ꨀꨁ": [14],
    "ꨀ*": [14],
    "quick\x00brown": [0],
    "quick \x00": [0],
    "quick\ud800brown": [0],
    "quick\udfff": [0],
    "NEAR(the quick)": [],
    "the OR zebra": [],
    "the AND quick": [],
    "words:the": [],
    "{words} : the": [],
    "^the + -zebra": [0],
    "the <-> quick": [0],
    "the & !quick": [0],
    '"': None,
    '""': None,
    "*": None,
    "-": None,
    "\x00": None,
    "\ud800": None,
    "🙂": None,
    "' OR 1=1 --": [],
}


@pytest.fixture(scope="module")
def asked(stores: Any) -> dict[str, Any]:
    """A tenant for each face whose messages are these texts."""
    found = {}
    for face in ("sync", "async"):
        found[face] = stores.get(face).create_tenant(f"questions {face}")
        found[face].create_conversation(input=[a_message(text) for text in TEXTS])
    return found


@pytest.mark.parametrize("question", [pytest.param(text, id=ascii(text)) for text in FOUND])
def test_every_database_finds_the_same(asked: dict[str, Any], face: str, question: str) -> None:
    expected = FOUND[question]
    if expected is None:
        with pytest.raises(InvalidOption, match="no word"):
            asked[face].search(question)
    else:
        assert sorted(found.position for found in asked[face].search(question)) == expected


LONG = {
    "words": " ".join(f"w{n}" for n in range(100)),
    "words side by side": '"' + " ".join(f"w{n}" for n in range(100)) + '"',
    "with a beginning": '"' + " ".join(f"w{n}" for n in range(99)) + ' w9*"',
    "beginnings": " ".join(f"w{n}*" for n in range(10)),
    "the same beginning": "w* " * 100,
    "the same": "w1 " * 100,
    "without others": "w0 " + " ".join(f'-"w{n} w{n}"' for n in range(49)),
    "pairs": "".join(chr(0x4E00 + n) for n in range(100)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_questions(store: Any, name: str) -> None:
    words, pairs = " ".join(f"w{n}" for n in range(300)), "".join(chr(0x4E00 + n) for n in range(300))
    store.create_conversation(input=f"{words} {pairs}")
    assert len(store.search(LONG[name]).items) == 1


@pytest.mark.parametrize(
    ("question", "limit"),
    [
        (" ".join(f"w{n}" for n in range(101)), "101 words to search for; at most 100 "),
        ("天" * 102, "at most 100 "),
        ('"' + "a-" * 101 + '"', "at most 100 "),
        (" ".join(f"w{n}*" for n in range(11)), "11 beginnings of words to search for; at most 10 "),
        ("one " * 2_049, "8,196 bytes; at most 8,192 "),
        ("天" * 2_731, "8,193 bytes; at most 8,192 "),
        ("\ud800" + "x" * 10_000_000, "bytes; at most 8,192 "),
    ],
    ids=["words", "characters", "phrase", "beginnings", "bytes", "bytes of characters", "megabytes"],
)
def test_longer_questions_are_refused(store: Any, question: str, limit: str) -> None:
    with pytest.raises(InvalidOption, match=limit) as refused:
        store.search(question)
    assert (refused.value.argument, refused.value.hint) == ("text", "Search for fewer.")
    assert len(str(refused.value)) < 100
