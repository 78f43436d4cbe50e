"""The search: what it costs appends, one of them with 5 MB, and how long questions take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.conversations import TURNS, append_turn
from benchmarks.data import MODEL, USER, text
from benchmarks.databases import Database, on_each_database
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Session, Store
from threadkeep.store.work.handle import WRITES_PER_BATCH

LARGE: Final = 5_000_000  # characters
LARGE_MUST: Final = 1.3  # of the same append without the search
WORDS: Final = 20_000  # that texts are made of; few of them are in many texts, as in a language
LENGTHS: Final = (30, 120)  # words of a text
ITEMS: Final = 20  # of a conversation
PAGE: Final = 20
LONGEST_ROUNDS: Final = 5  # scans and large outputs take their time
FEW: Final = 8  # turns: what is new is hardly ever looked at meanwhile
TURNS_AT_ONCE: Final = WRITES_PER_BATCH // 2  # two writes each: what is new is looked at once in every call


@on_each_database("NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    return [*_appends(database, scale), *_questions(database, scale)]


def _appends(database: Database, scale: Scale) -> list[Line]:
    """The same appends with the search and without. What is looked at now and then is in the second line."""
    with database.store(search=True) as on, database.store(search=False) as off:
        turns = [_turns("on", on, TURNS_AT_ONCE), _turns("off", off, TURNS_AT_ONCE)]
        single = [_turns("on", on, FEW), _turns("off", off, FEW)]
        large = [_large("on", on), _large("off", off)]
        run_rounds([*turns, *single, *large], min(scale.rounds, LONGEST_ROUNDS))
    rows = (
        ("append a turn, search on over off", single, None),
        (f"append {TURNS_AT_ONCE} turns and see them, a turn, on over off", turns, None),
        (f"append {LARGE // 1_000_000} MB, search on over off", large, LARGE_MUST),
    )
    return [Line.of(what, database.label, ours, base, must) for what, (ours, base), must in rows]


def _turns(name: str, store: Store, count: int) -> Case:
    conversation = store.create_conversation(model=MODEL)
    words = texts_of(7)

    def call() -> None:
        for number in range(count):
            _, body = TURNS[number % len(TURNS)]
            append_turn(conversation, (next(words), body))

    return Case(name, call, count=count)


def _large(name: str, store: Store) -> Case:
    conversation = store.create_conversation(model=MODEL)
    output = text(1, 1_000) * (LARGE // 1_000)
    return Case(name, lambda: conversation.add_function_call_output(call_id="c", output=output))


def _questions(database: Database, scale: Scale) -> list[Line]:
    """Questions among many texts, against what a scan of all items takes."""
    texts = texts_of(1)
    items = [{"type": "message", "role": "user", "content": next(texts)} for _ in range(scale.listed)]
    sessions = [Session(model=MODEL, input=items[start : start + ITEMS]) for start in range(0, len(items), ITEMS)]
    with database.store(search=True) as store:
        store.save_many(sessions, user_id=USER)
        store.reindex()
        driver = database.driver()
        driver.begin()
        driver.write("ANALYZE", ())
        driver.commit()
        scan = Case(
            "LIKE",
            lambda: driver.read(f"SELECT position FROM threadkeep_items WHERE payload LIKE '% {word_of(WORDS - 1)} %'"),
        )
        questions = {
            "a rare word": word_of(WORDS - 1),
            "a common word": word_of(0),
            "two common words": f"{word_of(0)} {word_of(1)}",
            "a beginning": f"{word_of(0)[:4]}*",
        }
        cases = {name: Case(name, _asking(store, question)) for name, question in questions.items()}
        cases["a common word of a user"] = Case("user", _asking(store.for_user(USER), word_of(0)))
        run_rounds([scan, *cases.values()], min(scale.rounds, LONGEST_ROUNDS))
        driver.close()
    return [
        Line.of(f"search {name} in {len(items):,} items over a LIKE scan", database.label, case, scan)
        for name, case in cases.items()
    ]


def _asking(store: Store, question: str) -> Any:
    return lambda: store.search(question, limit=PAGE)


def word_of(rank: int) -> str:
    """The word of that rank; no two are the same."""
    choose = random.Random(rank)
    return "".join(choose.choice("bcdfglmnprstv") + choose.choice("aeiou") for _ in range(4)) + f"{rank:x}"


def texts_of(seed: int, lengths: tuple[int, int] = LENGTHS) -> Iterator[str]:
    """Texts of words, of which the first rank is the most common (Zipf's law)."""
    choose = random.Random(seed)
    vocabulary = [word_of(rank) for rank in range(WORDS)]
    weights = [1 / (rank + 10) for rank in range(WORDS)]
    while True:
        pool = choose.choices(vocabulary, weights, k=5_000)
        while len(pool) > lengths[1]:
            count = choose.randrange(*lengths)
            yield " ".join(pool[:count])
            del pool[:count]
