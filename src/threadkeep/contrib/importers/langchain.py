"""LangChain: tables of messages, a row for each, as `SQLChatMessageHistory` and langchain-postgres write them.

Sources: the tables' columns `session_id` and `message` (and `created_at` in langchain-postgres), and langchain-core,
whose `message_to_dict` the messages are made with. The table is `message_store`, unless the application has named it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from threadkeep.contrib.importers.converting import converted
from threadkeep.contrib.importers.databases import Database, json_of, opened, tables_of
from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.langchain_messages import answer_of, items_of, kind_of
from threadkeep.contrib.importers.records import Entry, Skipped, Transcript
from threadkeep.contrib.importers.shapes import revision_of, time_of
from threadkeep.domain.jsontext import JsonObject

TABLE: Final = "message_store"
COLUMNS: Final = ("id", "session_id", "message")


class LangChain:
    """Tables of messages of LangChain."""

    name: Final = "langchain"

    def recognizes(self, input: Input, /) -> bool:
        """Return whether a table has the columns of a message."""
        return any(columns.issuperset(COLUMNS) for columns in tables_of(input).values())

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a database: one for each session."""
        with opened(input) as database:
            for table in sorted(name for name in database.columns if database.has(name, *COLUMNS)):
                yield from _sessions(database, table, input.name)


LANGCHAIN: Final = LangChain()


def _sessions(database: Database, table: str, where: str) -> Iterator[Transcript | Skipped]:
    rows = database.rows(table, (*COLUMNS, "created_at"), ("session_id", "id"))
    for session, messages in groupby(rows, lambda row: row["session_id"]):
        if session is None:
            yield Skipped(f"{where}, table {table}", "a message of no session", sum(1 for _ in messages))
            continue
        name = str(session) if table == TABLE else f"{table}/{session}"
        yield converted(f"{where}, {name}", _transcript, name, messages, f"{where}, {name}")


def _transcript(id_: str, rows: Iterable[JsonObject], where: str) -> Transcript:
    entries: list[Entry] = []
    skipped: list[Skipped] = []
    for row in rows:
        entry = _entry(row, entries[-1].id if entries else None, f"{where}, message {row['id']}", skipped)
        entries.extend([] if entry is None else [entry])
    models = [entry.answer.model for entry in entries if entry.answer is not None and entry.answer.model is not None]
    begun = entries[0].created_at if entries else None
    return Transcript(id_, where, entries, model=models[-1] if models else None, created_at=begun, skipped=skipped)


def _entry(row: JsonObject, parent: str | None, where: str, skipped: list[Skipped]) -> Entry | None:
    message = json_of(row["message"])
    if not isinstance(message, dict):
        skipped.append(Skipped(where, "it is not a message of LangChain"))
        return None
    items = items_of(message, lambda why: skipped.append(Skipped(where, why)))
    answer = answer_of(message) if kind_of(message) == "ai" else None
    return Entry(str(row["id"]), parent, items, time_of(row, "created_at"), answer, revision_of(message))
