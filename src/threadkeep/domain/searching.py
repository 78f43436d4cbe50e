"""Search without a database: the text of an item, the words of a text, the terms of a question, and snippets.

Words are runs of letters and digits. Scripts without spaces (and Korean, which glues particles to words) are indexed as
overlapping pairs of characters and the last one, which every database takes for words: ``天气很`` as ``天气 气很 很``.
Where marks belong to the letters, which tokenizers would break at, the pairs are spelled in ASCII.

SQLite's tokenizer splits and folds texts by itself. It knows only the accents of the Latin alphabet, and takes
characters that are newer than itself for letters, so of texts with anything else the words are stored, too.

The score of a text counts how often it says what is searched for, and how short it is (as in BM25). It depends on
nothing but the text and the question, so that what is stored between two pages moves nothing to another page, and costs
the same however much is stored. Databases that rank by themselves do not need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, pairwise, takewhile
from operator import add
from typing import Any, Final
from unicodedata import category, combining, normalize

from threadkeep.domain.jsontext import JsonObject, loads

TEXT_LIMIT: Final = 16_384  # characters of an item that are searched
QUERY_BYTES: Final = 8_192  # of a query, as UTF-8
QUERY_LIMIT: Final = 100  # words of a query
PREFIX_LIMIT: Final = 10  # beginnings of words in a query: each is looked up as all words that begin so
JSON_LIMIT: Final = 65_536  # characters of an item's JSON text that are read; of longer ones the beginning is searched
TITLE: Final = "title"  # the type of the document that holds a conversation's title
TITLE_POSITION: Final = -1
SNIPPET_CHARACTERS: Final = 160
_BEFORE: Final = 40  # characters of a snippet before the first match

# Han, kana, bopomofo, Hangul
_LETTERS: Final = (
    "\u1100-\u11ff\u3005-\u3007\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7fb\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Thai, Lao, Burmese, Khmer
_MARKED: Final = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
WITHOUT_SPACES: Final = _LETTERS + _MARKED
# Characters that SQLite's tokenizer takes as `words_of` does: ASCII, Latin letters that are not two in one, Hebrew
# letters without marks, punctuation, symbols and emoji up to Unicode 6
_USUAL: Final = (
    "\x00-\xa9\xab-\xb1\xb4-\xb8\xbb\xbf-\xde\xe0-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u01a0\u01a1\u01af\u01b0"
    "\u0218-\u021b\u05d0-\u05ea\u1e00-\u1e99\u1ea0-\u1ef9\u200b-\u2027\u2030-\u205e\u20a9-\u20b5\u2190-\u21ff\u2200-\u23f3"
    "\u2500-\u26ff\u2701-\u2775\u2794-\u27bf\u2b50\u2b55\ufe0f\U0001f300-\U0001f320\U0001f330-\U0001f335\U0001f337-\U0001f37c"
    "\U0001f380-\U0001f393\U0001f3a0-\U0001f3c4\U0001f3e0-\U0001f3f0\U0001f400-\U0001f43e\U0001f442-\U0001f4f7"
    "\U0001f500-\U0001f53d\U0001f5fb-\U0001f640\U0001f645-\U0001f64f\U0001f680-\U0001f6c5"
)
USUAL: Final = re.compile(f"[{_USUAL}]")
IS_UNUSUAL: Final = re.compile(f"[^{_USUAL}]")
_RUNS: Final = re.compile(f"[{_LETTERS}]+|[{_MARKED}]+")
_IS_RUN: Final = re.compile(f"[{WITHOUT_SPACES}]")
_PARTS: Final = re.compile(f"{_RUNS.pattern}|[^{WITHOUT_SPACES}]+")
_IS_MARKED: Final = re.compile(f"[{_MARKED}]")
_IDEOGRAPHS: Final = re.compile("[\u4e00-\u9fff]+")  # as they are when they are normalized
_STOPS: Final = re.compile("[\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]")  # Chinese punctuation
_LONG: Final = 32  # characters between blanks: longer ones seldom come again
_WORDS: Final = re.compile(r"[^\W_]+")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_SILENT: Final = frozenset({"reasoning", "compaction", "item_reference"})  # types of items without text for people
_SAYING: Final = ("name", "arguments", "input", "action", "output", "content", "text")  # keys of items
_TERMS: Final = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
# Texts inside the JSON text of an item that is too long to be parsed
_STRINGS: Final = re.compile(
    r'"(?:text|refusal|output|arguments|input|name|content|query)":"([^"\\]*(?:\\(?:[^u]|u[0-9a-fA-F]{4})[^"\\]*)*)'
)
# How a block begins that is named by several words, as people seldom do
PROGRAM: Final = "program:"  # what the ids of authors begin with that are programs, in the place of a person or model
_OPENED: Final = re.compile(r"\s*<(?P<name>[a-z]+(?:[-_][a-z]+)+)[\s>]")
_BREAKS: Final = re.compile(r"[^\S ]")  # blanks of other kinds
_LETTER: Final = rf"[^\W_{WITHOUT_SPACES}]"  # of a script with spaces
_PIECES: Final = re.compile(f"[{WITHOUT_SPACES}]+|{_LETTER}+")
# Thai and Lao AM become two characters when they are normalized, and are one in the text
_AM: Final = re.compile("(?<=\u0e4d)\u0e32|(?<=\u0ecd)\u0eb2")
_NOTHING: Final = r"(?!)"  # a pattern that matches nowhere
_JOINER: Final = "\u200d"
_SKIN: Final = "\U0001f3fb", "\U0001f3ff"  # first and last tone of emoji

Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a query: a word, or several words in a row."""

    text: str  # as it was written
    words: tuple[str, ...]  # as they are indexed
    is_prefix: bool = False  # whether the last word is the beginning of one
    is_excluded: bool = False  # whether it must not occur


def terms_of(query: str) -> list[Term]:
    """The terms of a query: words, ``"several words"``, beginnings ``wor*``, and ``-word`` for excluded ones.

    What is said again is left out.
    """
    terms: dict[tuple[Any, ...], Term] = {}
    for sign, quoted, plain in _TERMS.findall(query):
        text = normalize("NFKC", quoted or plain)
        pieces = _pieces(text)
        if not pieces:
            term = None
        else:
            is_open = _SCRIPTS[pieces[-1][0]] > 0
            words = [word for piece in pieces[:-1] for word in _tokens(piece)] + _tokens(pieces[-1], is_open=is_open)
            is_prefix = (is_open and len(pieces[-1]) == 1) or text.endswith("*")
            term = Term(text, tuple(words), is_prefix, is_excluded=bool(sign))
        if term is not None:
            terms.setdefault((term.words, term.is_prefix, term.is_excluded), term)
    return list(terms.values())


class Vocabulary(dict[str, list[str]]):
    """The words of what stands between blanks, for texts that are indexed together: most of it comes again."""

    def __missing__(self, written: str) -> list[str]:
        if len(written) > _LONG:  # a sentence of a script without spaces, mostly
            return [word for part in _STOPS.split(written) for word in _words_in(part)]
        self[written] = words = _words_in(written)
        return words


def words_of(text: str, vocabulary: Vocabulary | None = None) -> list[str]:
    """The words of a text as they are indexed: in lower case, without accents."""
    if text.isascii():
        return text.translate(_FOLDED).split()
    known = Vocabulary() if vocabulary is None else vocabulary
    return list(chain.from_iterable(map(known.__getitem__, text.split())))


def _words_in(text: str) -> list[str]:
    if _IDEOGRAPHS.fullmatch(text):
        return _pairs(text)
    words: list[str] = []
    for piece in _pieces(normalize("NFKC", text)):
        words += _tokens(piece)
    return words


def respelled(text: str, vocabulary: Vocabulary | None = None) -> str | None:
    """The words of a text, where SQLite's tokenizer would find other words in it; else None."""
    return None if text.isascii() or not IS_UNUSUAL.search(text) else " ".join(words_of(text, vocabulary))


def _pieces(text: str) -> list[str]:
    """Runs of scripts without spaces, and words of the others, folded; from a text in NFKC."""
    if not _IS_RUN.search(text):
        return text.translate(_FOLDED).split()
    parts = ([part] if _SCRIPTS[part[0]] else part.translate(_FOLDED).split() for part in _PARTS.findall(text))
    return list(chain.from_iterable(parts))


def _tokens(piece: str, *, is_open: bool = False) -> list[str]:
    """The words of a piece; a run that is open may continue in the text that is searched."""
    script = _SCRIPTS[piece[0]]
    if not script:
        return [piece]
    if script == _WITH_MARKS:
        codes = [_CODES[character] for character in piece]
        pairs, last = [f"z{first}{second}" for first, second in pairwise(codes)], f"z{codes[-1]}"
    else:
        *pairs, last = _pairs(piece)
    return pairs if is_open and pairs else [*pairs, last]


def _pairs(run: str) -> list[str]:
    return [*map(add, run, run[1:]), run[-1]]


class _Scripts(dict[str, int]):
    """Whether a character is of a script without spaces (1), and one where marks belong to the letters (2)."""

    def __missing__(self, character: str) -> int:
        is_run, has_marks = _RUNS.match(character) is not None, _IS_MARKED.match(character) is not None
        self[character] = script = is_run + has_marks
        return script


class _Codes(dict[str, str]):
    """Each character in ASCII."""

    def __missing__(self, character: str) -> str:
        self[character] = code = f"{ord(character):04x}"
        return code


class _Folded(dict[int, str]):
    """Each letter and digit in lower case, without accents; a blank for anything else."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = "".join(sign if _WORDS.match(sign) else " " for sign in folded(chr(code)))
        return plain


_WITH_MARKS: Final = 2
_SCRIPTS: Final = _Scripts()
_CODES: Final = _Codes()
_FOLDED: Final = _Folded()


def folded(text: str) -> str:
    """A text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    characters = normalize("NFKD", text.casefold())
    return "".join(character for character in characters if not combining(character))


def text_in(kind: str, json: str, limit: int = JSON_LIMIT) -> str:
    """The text by which a stored item is found, from its JSON text or the first `limit` characters of that."""
    return "" if kind in _SILENT else bounded("\n".join(_texts_in_json(json, limit)))


def words_in(json: str, limit: int) -> str:
    """What a person or a model said in a message, without blocks that the program around them has added."""
    texts = _texts_in_json(json, limit)
    return bounded("\n".join(text for text in texts if not is_added(text, is_cut=len(json) >= limit)))


def is_added(text: str, *, is_cut: bool = False) -> bool:
    """Return whether a text has blocks of a program, as `<system-reminder>…</system-reminder>`, and nothing else.

    `is_cut`: its end may be missing.
    """
    at, end = 0, len(text.rstrip())
    while at < end and (opened := _OPENED.match(text, at)) is not None:
        depth = 1
        for mark in re.finditer(rf"<(/?){opened['name']}(?=[\s>])>?", text[opened.end() :]):
            depth += -1 if mark[1] else 1
            if not depth:
                at = opened.end() + mark.end()
                break
        else:
            return is_cut
    return 0 < end <= at


def _texts_in_json(json: str, limit: int) -> list[str]:
    if len(json) >= limit:
        return [loads(f'"{text}"') for text in _STRINGS.findall(json)]
    value = loads(json)
    item = value if "type" in value else value.get("value", value)  # an item of which only the overlay is stored
    return [*_texts_of(item)]


def beginning_of(text: str) -> str:
    """The beginning of a text on one line, cut between words where there are blanks."""
    line = " ".join(text[: 20 * SNIPPET_CHARACTERS].split())
    if len(line) <= SNIPPET_CHARACTERS:
        return line
    blank = line.rfind(" ", SNIPPET_CHARACTERS // 2, SNIPPET_CHARACTERS)
    end = SNIPPET_CHARACTERS - 1 if blank < 0 else blank
    while end > 1 and _is_inner(line, end):
        end -= 1
    return f"{line[:end]}…"


def bounded(text: str) -> str:
    """The beginning of a text, as every database can store it."""
    return _UNSTORABLE.sub(" ", text[:TEXT_LIMIT]).strip()


def _texts_of(item: JsonObject) -> Iterator[str]:
    """The texts of an item that people read and write, and the names of tools."""
    if item.get("type") == "provider_item" and isinstance(payload := item.get("payload"), dict):
        item = payload
    for name in _SAYING:
        if (value := item.get(name)) is not None:
            yield from _texts_in(value)


def _texts_in(value: Any) -> Iterator[str]:
    """A text, the texts of content parts, or of an object's own keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for text in value.values() if isinstance(text, str))
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, dict):
                yield from (text for name in ("text", "refusal") if isinstance(text := part.get(name), str))


class _Folding(dict[int, str]):
    """Each character in lower case, without accents; one for one, so that positions stay the same."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if _RUNS.match(character):  # whose accents and syllables are letters
            plain = normalize("NFKC", character)[0]
        else:
            plain = normalize("NFKD", character)[0].lower()[0]
        self[code] = plain
        return plain


_FOLDING: Final = _Folding()


def snippet_of(text: str, terms: Sequence[Term]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A piece of a text around the first match, on one line, and where in it the matches are (start, end)."""
    line = _BREAKS.sub(" ", text)
    matches = _matches(line, _shown_pattern(tuple(terms)))
    first = next(matches, None)
    start, end = _around(line, first.start() if first else 0)
    spans = [first.span()] if first else []
    spans += takewhile(lambda span: span[1] <= end, (match.span() for match in matches))
    head, tail = ("…" if start else ""), ("…" if end < len(line) else "")
    shift = len(head) - start
    marks = tuple((begin + shift, last + shift) for begin, last in spans if last <= end)
    return f"{head}{line[start:end]}{tail}", marks


def _matches(line: str, pattern: Pattern) -> Iterator[re.Match[str]]:
    """The first match and, as far as they are shown with it, those behind. What is behind that is not even folded."""
    size = 2 * SNIPPET_CHARACTERS
    while True:
        part = line[:size]
        plain = part.lower() if part.isascii() else part.translate(_FOLDING)
        matches = pattern.finditer(plain)
        first = next(matches, None)
        if size >= len(line) or (first is not None and first.end() + SNIPPET_CHARACTERS <= size):
            return iter(()) if first is None else chain((first,), matches)
        size *= 4


def _around(line: str, index: int) -> tuple[int, int]:
    """A range of whole words around an index, where there are blanks."""
    start = max(0, min(index - _BEFORE, len(line) - SNIPPET_CHARACTERS))
    end = min(len(line), start + SNIPPET_CHARACTERS)
    if start and (blank := line.find(" ", start, index)) >= 0:
        start = blank + 1
    if end < len(line) and (blank := line.rfind(" ", index + 1, end)) > index + _BEFORE:
        end = blank
    while start < index and _is_inner(line, start):
        start += 1
    while end > index + _BEFORE and _is_inner(line, end):
        end -= 1
    return start, end


def _is_inner(line: str, index: int) -> bool:
    """Whether a character belongs to the one before: accents, vowels, parts of an emoji."""
    if not 0 < index < len(line):
        return False
    character = line[index]
    is_joined = _JOINER in (character, line[index - 1]) or _SKIN[0] <= character <= _SKIN[1]
    return is_joined or category(character)[0] == "M"


@lru_cache(maxsize=64)
def _shown_pattern(terms: tuple[Term, ...]) -> Pattern:
    """Where the terms occur in a folded text: it begins with their first letters, which are found faster than words.

    What may stand around the terms is written once for each first letter, because it is long.
    """
    bodies: dict[tuple[str, str], list[str]] = {}
    for term in terms:
        pieces = _PIECES.findall(term.text.translate(_FOLDING))
        if pieces and not term.is_excluded:
            body = _body(pieces)
            before = "" if _RUNS.match(body) else f"(?<!{_LETTER}.)"
            after = "" if _RUNS.match(pieces[-1]) or term.is_prefix else f"(?!{_LETTER})"
            bodies.setdefault((body[0] + before, after), []).append(body[1:])
    pattern = "|".join(f"{before}(?:{'|'.join(some)}){after}" for (before, after), some in bodies.items())
    return re.compile(pattern or _NOTHING)


def _body(pieces: Sequence[str]) -> str:
    """The words, with anything but letters and digits between them."""
    pattern = [_escaped(pieces[0])]
    for last, piece in pairwise(pieces):
        pattern += [r"[\W_]*" if _RUNS.match(last) or _RUNS.match(piece) else r"[\W_]+", _escaped(piece)]
    return "".join(pattern)


def _escaped(piece: str) -> str:
    return _AM.sub(r"\g<0>?", re.escape(piece))


REPEATS: Final = 1.2  # how much the second, third … time counts: towards 1 + this
BY_LENGTH: Final = 0.75  # how much of the length counts
LENGTH: Final = 500  # bytes of an ordinary text, which databases count faster than characters
_DOTTED: Final = "\u0130"  # Turkish: the only letter that in lower case is two characters
_WORD_START, _WORD_END, _BETWEEN = r"(?<![^\W_]%s)", r"(?![^\W_])", r"[\W_]+"


def question_of(terms: Iterable[Term]) -> str:
    """What must occur, as `score_of` takes it: a term a line, a star behind the beginning of a word."""
    return "\n".join(" ".join(term.words) + "*" * term.is_prefix for term in terms if not term.is_excluded)


def score_of(text: str, question: str, size: int) -> float:
    """How well a text of so many bytes fits; more is better. Accents and cases are as in the text, or dropped."""
    plain, accented = _patterns(question)
    is_plain = text.isascii()
    lower = (text if is_plain else text.replace(_DOTTED, "i")).lower()
    divisor = per_length(size)
    score = 0.0
    for pattern in plain if is_plain else accented:
        if count := len(pattern.findall(lower)):
            score += (1 + REPEATS) / (1 + divisor / count)
    return score


def per_length(length: Any) -> Any:
    """By how much a text of so many bytes has to say it more often; a number, or a column."""
    return REPEATS * (1 - BY_LENGTH + BY_LENGTH * length / LENGTH)


def overlaps_itself(term: Term) -> bool:
    """Whether a term may begin inside of itself, where `score_of` counts it once: "a b a" in "a b a b a"."""
    first, *others = term.words
    return len(set(term.words)) < len(term.words) or (term.is_prefix and any(map(first.startswith, others[-1:])))


@lru_cache(maxsize=64)
def _patterns(question: str) -> tuple[list[Pattern], list[Pattern]]:
    """The pattern of each term, for texts in ASCII and for others."""
    lines = question.split("\n")
    accented = [_pattern(line, lambda letter: _accented().get(letter) or re.escape(letter)) for line in lines]
    return [_pattern(line, re.escape) for line in lines], accented


def _pattern(line: str, spelled: Callable[[str], str]) -> Pattern:
    """It begins with a word, which is found faster than its beginning; that is looked at then."""
    is_prefix = line.endswith("*")
    first, *others = ["".join(map(spelled, word)) for word in line.rstrip("*").split(" ")]
    return re.compile(_BETWEEN.join([first + _WORD_START % first, *others]) + ("" if is_prefix else _WORD_END))


@cache
def _accented() -> dict[str, str]:
    """Patterns of lower-case letters with any accent that a text can have whose words are not stored with it."""
    letters: dict[str, str] = {}
    for letter in map(chr, range(0x80, 0x3000)):
        if USUAL.match(letter) and letter.islower() and len(plain := folded(letter)) == 1 and plain != letter:
            letters[plain] = letters.get(plain, plain) + letter
    return {plain: f"[{some}]" for plain, some in letters.items()}
