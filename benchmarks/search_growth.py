"""How a search grows with what is stored: the same user's among few documents and many, and everybody's.

Beside it runs the statement that ranks everything that matches, for everybody's common word. The documents are written
past the store, which would take hours.
"""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from benchmarks.data import MODEL, USER
from benchmarks.databases import Database, Driver, postgres_database, postgres_missing, sqlite_database
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.searching import PAGE, WORDS, texts_of, word_of
from benchmarks.timing import Case, run_rounds
from threadkeep.db.models import conversations
from threadkeep.db.search import index_named, sqlite
from threadkeep.domain.ids import new_key

USER_MUST: Final = 2.0  # of the same question among few documents
MUST: Final = 0.05  # of the statement that ranks everything
MANY: Final = 1_000_000  # documents, from which on these are goals
ROUNDS: Final = 5
LENGTHS: Final = (10, 50)  # words of a text
TEXTS: Final = 20_000  # different ones
ITEMS: Final = 20  # of a conversation
OWN: Final = 20  # conversations of the user
BATCH: Final = 500  # conversations that are written at once
DOCUMENT_COLUMNS: Final = (
    "tenant_id", "id", "conversation_id", "position", "branch", "type", "role", "created_at", "text", "words", "scope",
)  # fmt: skip

# The statement that ranks everything: on SQLite with an index of the words alone
RANKED: Final = """
    SELECT id, score FROM (
        SELECT d.id, {score} AS score
        FROM {source}
        JOIN threadkeep_conversations c ON c.tenant_id = d.tenant_id AND c.id = d.conversation_id
        WHERE d.tenant_id = %s AND {match} AND c.status <> 'deleted' AND c.status = 'active'
    ) AS ranked ORDER BY score DESC, id DESC LIMIT %s
"""
WORDS_ALONE: Final = (
    "CREATE VIRTUAL TABLE all_words USING fts5(words, content='', tokenize='unicode61 remove_diacritics 2')",
    "INSERT INTO all_words (rowid, words) SELECT id, coalesce(words, text) FROM threadkeep_search_documents",
)
GIN: Final = "threadkeep_search_documents_words_idx"


@dataclass(frozen=True, slots=True)
class Filled:
    """A database with documents, and its cases."""

    mine: Case
    everybody: Case
    rare: Case
    ranked: Case


def run(scale: Scale) -> list[Line]:
    return [line for kind in ("sqlite", "postgresql") for line in _on(kind, scale)]


def _on(kind: str, scale: Scale) -> list[Line]:
    if kind == "postgresql" and postgres_missing() is not None:
        return []
    few, many = scale.documents
    must, user_must = (MUST, USER_MUST) if many >= MANY else (None, None)
    with contextlib.ExitStack() as stack:
        small, large = (_filled(stack, _database(stack, kind, scale), count) for count in (few, many))
        cases = [small.mine, small.rare, large.mine, large.everybody, large.rare, large.ranked]
        run_rounds(cases, min(scale.rounds, ROUNDS))
    label, among = "SQLite" if kind == "sqlite" else "PostgreSQL", f"{many:,}"
    return [
        Line.of(f"a user's common word among {among} over {few:,}", label, large.mine, small.mine, user_must),
        Line.of(
            f"a user's common word among {among} over everybody's, all ranked", label, large.mine, large.ranked, MUST
        ),
        Line.of(f"everybody's common word among {among} over all ranked", label, large.everybody, large.ranked, must),
        Line.of(f"a rare word among {among} over {few:,}", label, large.rare, small.rare),
    ]


def _database(stack: contextlib.ExitStack, kind: str, scale: Scale) -> Database:
    if kind == "postgresql":
        return stack.enter_context(postgres_database())
    return sqlite_database(scale.folder, "NORMAL")


def _filled(stack: contextlib.ExitStack, database: Database, count: int) -> Filled:
    store = stack.enter_context(database.store(search=True))
    driver = database.driver()
    stack.callback(driver.close)
    store.create_conversation(model=MODEL, input="A first text")
    store.reindex()  # there is nothing new before a question
    tenant = _fill(driver, database.kind, count)
    word, rare = word_of(0), word_of(WORDS - 1)
    ranked = _ranked(database.kind, word)
    return Filled(
        Case("user", lambda: store.search(word, user_id=USER, limit=PAGE)),
        Case("everybody", lambda: store.search(word, limit=PAGE)),
        Case("rare", lambda: store.search(rare, limit=PAGE)),
        Case("all ranked", lambda: driver.read(ranked, (tenant, PAGE + 1))),
    )


def _ranked(kind: str, word: str) -> str:
    """The statement; parameters: tenant, limit."""
    if kind == "sqlite":
        source, match = (
            "all_words JOIN threadkeep_search_documents d ON d.id = all_words.rowid",
            f"all_words MATCH '{word}'",
        )
        return RANKED.format(source=source, match=match, score="CAST(round(-bm25(all_words) * 1000000000) AS INTEGER)")
    query = f"CAST('{word}' AS tsquery)"
    score = f"CAST(round(CAST(ts_rank(d.words, {query}, 1) AS double precision) * 1000000000) AS bigint)"
    return RANKED.format(source="threadkeep_search_documents d", match=f"d.words @@ {query}", score=score)


# Filling


def _fill(driver: Driver, kind: str, count: int) -> int:
    """Write documents of conversations of many users, and of one whose few are all over the place."""
    columns, template = _template(driver)
    tenant = template["tenant_id"]
    everything = _documents(kind, tenant, count)
    driver.begin()
    if kind == "postgresql":
        driver.write(f"DROP INDEX {GIN}", ())
    while batch := list(islice(everything, BATCH)):
        driver.load("conversations", columns, [_conversation(template, key, user) for key, user, _ in batch])
        driver.load("search_documents", DOCUMENT_COLUMNS, [row for _, _, rows in batch for row in rows])
    if kind == "postgresql":
        driver.write(f"CREATE INDEX {GIN} ON threadkeep_search_documents USING gin (words)", ())
        driver.write("ANALYZE threadkeep_search_documents, threadkeep_conversations", ())
    else:
        for statement in (sqlite.DROP_INDEX, sqlite.CREATE_INDEX, sqlite.INDEX_ALL):
            driver.write(str(statement), ())
        for plain in WORDS_ALONE:
            driver.write(plain, ())
    driver.commit()
    return int(tenant)


def _template(driver: Driver) -> tuple[list[str], dict[str, Any]]:
    """The columns of a conversation, and one of which everything is indexed."""
    columns = [column.name for column in conversations.columns]
    row = driver.read(f"SELECT {', '.join(columns)} FROM threadkeep_conversations")[0]
    return columns, dict(zip(columns, row, strict=True))


def _conversation(template: dict[str, Any], key: int, user: str) -> list[Any]:
    own = {"id": key, "public_id": secrets.token_bytes(16), "user_id": user, "next_position": ITEMS}
    return list((template | own).values())


def _documents(kind: str, tenant: int, count: int) -> Iterator[tuple[int, str, list[tuple[Any, ...]]]]:
    """The key, the user and the rows of each conversation."""
    choose = random.Random(3)
    texts = list(islice(texts_of(2, LENGTHS), TEXTS))
    index = index_named(kind)
    words = [index.words(text) for text in texts]
    moment: Any = datetime(2026, 5, 1, tzinfo=UTC)
    if kind == "sqlite":
        moment = "2026-05-01 00:00:00.000000"
    total = count // ITEMS
    for number in range(total):
        user = USER if number % (total // OWN) == 0 else f"u{choose.randrange(total // OWN)}"
        key, scope = new_key(), index.scope(tenant, user)
        rows = []
        for position in range(ITEMS):
            text = choose.randrange(TEXTS)
            role = ("user", "assistant")[position % 2]
            rows.append((tenant, new_key(), key, position, 0, "message", role, moment, texts[text], words[text], scope))
        yield key, user, rows
