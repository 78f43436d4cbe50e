"""Search without a database: what of an item is searched, how text becomes words, and what a question asks for.

Words are runs of letters and digits. Scripts without spaces (Chinese, Japanese, Thai …; and Korean, which glues
particles to words) are written down as overlapping pairs of characters and the last one, which every database takes for
words: ``天气很`` becomes ``天气 气很 很``, and ``天气`` is the first of these. Where marks belong to the letters, which
tokenizers would break at, the pairs are spelled in ASCII.

SQLite's tokenizer splits and folds texts by itself. It knows the accents of the Latin alphabet only, and takes signs
that are newer than itself for letters, so of texts with anything else the words are stored, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, loads

TEXT_LIMIT: Final = 16_384  # characters of an item that are searched
QUESTION_LIMIT: Final = 100  # words of a question
JSON_LIMIT: Final = 65_536  # characters of an item's JSON text that are read; of longer ones the beginning is searched
TITLE: Final = "title"  # the type of the document that holds a conversation's title
TITLE_POSITION: Final = -1

# Han, kana, bopomofo, Hangul
_LETTERS: Final = (
    "\u1100-\u11ff\u3005-\u3007\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7fb\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Thai, Lao, Burmese, Khmer
_MARKED: Final = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
WITHOUT_SPACES: Final = _LETTERS + _MARKED
# Signs that SQLite's tokenizer takes as `words_of` does: ASCII, Latin letters that are not two in one, Hebrew letters
# without marks, punctuation, symbols and emoji up to Unicode 6
_USUAL: Final = (
    "\x00-\xa9\xab-\xb1\xb4-\xb8\xbb\xbf-\xde\xe0-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u01a0\u01a1\u01af\u01b0"
    "\u0218-\u021b\u05d0-\u05ea\u1e00-\u1e99\u1ea0-\u1ef9\u200b-\u2027\u2030-\u205e\u20a9-\u20b5\u2190-\u21ff\u2200-\u23f3"
    "\u2500-\u26ff\u2701-\u2775\u2794-\u27bf\u2b50\u2b55\ufe0f\U0001f300-\U0001f320\U0001f330-\U0001f335\U0001f337-\U0001f37c"
    "\U0001f380-\U0001f393\U0001f3a0-\U0001f3c4\U0001f3e0-\U0001f3f0\U0001f400-\U0001f43e\U0001f442-\U0001f4f7"
    "\U0001f500-\U0001f53d\U0001f5fb-\U0001f640\U0001f645-\U0001f64f\U0001f680-\U0001f6c5"
)
IS_UNUSUAL: Final = re.compile(f"[^{_USUAL}]")
_RUNS: Final = re.compile(f"[{_LETTERS}]+|[{_MARKED}]+")
_IS_MARKED: Final = re.compile(f"[{_MARKED}]")
_WORDS: Final = re.compile(r"[^\W_]+")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_SILENT: Final = frozenset({"reasoning", "compaction", "item_reference"})  # types of items that nobody reads or writes
_TERMS: Final = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
# Texts inside the JSON text of an item that is too long to be read as a whole
_STRINGS: Final = re.compile(
    r'"(?:text|refusal|output|arguments|input|name|content|query)":"([^"\\]*(?:\\(?:[^u]|u[0-9a-fA-F]{4})[^"\\]*)*)'
)


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a question: a word, or several words that stand side by side.

    Attributes:
        text: the words as they were asked for.
        words: the same words as they are looked for.
        is_prefix: whether the last word may go on.
        is_excluded: whether it must not be there.
    """

    text: str
    words: tuple[str, ...]
    is_prefix: bool = False
    is_excluded: bool = False


def terms_of(question: str) -> list[Term]:
    """The terms of a question: words, ``"several words"``, beginnings ``wor*`` and what is not wanted ``-word``."""
    found = (_term(quoted or plain, sign) for sign, quoted, plain in _TERMS.findall(question))
    return [term for term in found if term is not None]


def _term(given: str, sign: str) -> Term | None:
    text = _normal(given)
    pieces = list(_pieces(text))
    if not pieces:
        return None
    is_open = _RUNS.match(pieces[-1]) is not None
    words = [word for piece in pieces[:-1] for word in _tokens(piece)] + _tokens(pieces[-1], is_open=is_open)
    return Term(
        text=text,
        words=tuple(words),
        is_prefix=(is_open and len(pieces[-1]) == 1) or text.endswith("*"),
        is_excluded=bool(sign),
    )


def words_of(text: str) -> list[str]:
    """The words of a text as they are looked for: in small letters, without accents."""
    return [word for piece in _pieces(_normal(text)) for word in _tokens(piece)]


def respelled(text: str) -> str | None:
    """The words of a text where SQLite's tokenizer would find others in it, else None."""
    return None if text.isascii() or not IS_UNUSUAL.search(text) else " ".join(words_of(text))


def _normal(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _pieces(text: str) -> Iterator[str]:
    """Runs of scripts without spaces, and words of the others."""
    end = 0
    for run in () if text.isascii() else _RUNS.finditer(text):
        yield from _WORDS.findall(folded(text[end : run.start()]))
        yield run[0]
        end = run.end()
    yield from _WORDS.findall(folded(text[end:]))


def _tokens(piece: str, *, is_open: bool = False) -> list[str]:
    """The words of a piece; a run that is open goes on in the text that is looked for."""
    if not _RUNS.match(piece):
        return [piece]
    signs = [f"{ord(sign):04x}" for sign in piece] if _IS_MARKED.match(piece) else piece
    mark = "z" if signs is not piece else ""
    found = [f"{mark}{first}{second}" for first, second in pairwise(signs)]
    return found if is_open and found else [*found, f"{mark}{signs[-1]}"]


def folded(text: str) -> str:
    """A text in small letters, without accents."""
    if text.isascii():
        return text.lower()
    return "".join(sign for sign in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(sign))


def text_in(kind: str, json: str) -> str:
    """What is searched of a stored item of a type, by its JSON text or the first JSON_LIMIT characters of it."""
    if kind in _SILENT:
        return ""
    if len(json) < JSON_LIMIT:
        found = loads(json)
        item = found if "type" in found else found.get("value", found)  # an item of which only the overlay is stored
        return bounded("\n".join(_texts_of(item)))
    return bounded("\n".join(loads(f'"{text}"') for text in _STRINGS.findall(json)))


def bounded(text: str) -> str:
    """The beginning of a text, as every database stores it."""
    return _UNSTORABLE.sub(" ", text[:TEXT_LIMIT]).strip()


def _texts_of(item: JsonObject) -> Iterator[str]:
    """What people read and write of an item, and the names of tools."""
    if item.get("type") == "provider_item" and isinstance(payload := item.get("payload"), dict):
        item = payload
    for name in ("name", "arguments", "input", "action", "output", "content", "text"):
        yield from _texts_in(item.get(name))


def _texts_in(value: Any) -> Iterator[str]:
    """A text, the texts of content parts, or those of an object's own keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for text in value.values() if isinstance(text, str))
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, dict):
                yield from (text for name in ("text", "refusal") if isinstance(text := part.get(name), str))
