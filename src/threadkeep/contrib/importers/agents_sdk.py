"""OpenAI Agents SDK: sessions in SQLite, and in the databases of its `SQLAlchemySession`.

Source: the tables that openai-agents creates, whose names can be chosen. A row of messages is an item of the Responses
API. `AdvancedSQLiteSession` says beside them on which branches a message is (`message_structure`), and what a user's
turn has used (`turn_usage`), which may be several calls: they are one row in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from threadkeep.contrib.importers.databases import Database, json_of, opened, tables_of
from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.records import Answer, Entry, Skipped, Transcript
from threadkeep.contrib.importers.shapes import text_of, time_of
from threadkeep.domain.jsontext import JsonObject

COLUMNS: Final = ("id", "session_id", "message_data")
PLACES: Final = ("message_id", "branch_id", "sequence_number", "user_turn_number")
USED: Final = (
    "branch_id", "user_turn_number", "input_tokens", "output_tokens", "total_tokens", "input_tokens_details",
    "output_tokens_details",
)  # fmt: skip
MAIN: Final = "main"  # the branch that a session begins with
ENCRYPTED: Final = "__enc__"

Turn = tuple[str, int]  # a branch, and the number of the user's turn on it


class AgentsSdk:
    """Sessions of the OpenAI Agents SDK."""

    name: Final = "agents-sdk"

    def recognizes(self, input: Input, /) -> bool:
        """Return whether a table has the columns of a message."""
        return any(columns.issuperset(COLUMNS) for columns in tables_of(input).values())

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the sessions of a database."""
        with opened(input) as database:
            for table in sorted(name for name in database.columns if database.has(name, *COLUMNS)):
                rows = database.rows(table, (*COLUMNS, "created_at"), ("session_id", "id"))
                for session, messages in groupby(rows, lambda row: row["session_id"]):
                    yield _Session(str(session), f"{input.name}, {session}", database).transcript(messages)


AGENTS_SDK: Final = AgentsSdk()


@dataclass(slots=True)
class _Session:
    """What is known of a session while its messages are read."""

    id: str
    where: str
    database: Database
    skipped: list[Skipped] = field(default_factory=list)

    def transcript(self, rows: Iterable[JsonObject]) -> Transcript:
        """The conversation."""
        messages = {int(row["id"]): row for row in rows}
        branches = self._branches(messages)
        items = {id_: self._item(row) for id_, row in messages.items()}
        entries: dict[int, Entry] = {}
        for branch, places in branches.items():
            answers = self._answers(branch, places, items)
            parent = None
            for place in places:
                id_ = place["message_id"]
                item = items[id_]
                if id_ not in entries:
                    shown = [] if item is None else [item]
                    at = time_of(messages[id_], "created_at")
                    entries[id_] = Entry(str(id_), parent, shown, at, answers.get(id_))
                parent = str(id_)
        found = list(entries.values())
        begun = found[0].created_at if found else None
        return Transcript(self.id, self.where, found, created_at=begun, skipped=self.skipped)

    def _branches(self, messages: Mapping[int, JsonObject]) -> dict[str, list[JsonObject]]:
        """The messages of each branch in order, the first branch first; those on none are on that one."""
        found: dict[str, list[JsonObject]] = {MAIN: []}
        placed = set()
        for place in self.database.rows("message_structure", PLACES, ("sequence_number", "id"), session_id=self.id):
            if place["message_id"] in messages:
                found.setdefault(str(place["branch_id"]), []).append(place)
                placed.add(place["message_id"])
        found[MAIN] += [{"message_id": id_, "user_turn_number": None} for id_ in messages if id_ not in placed]
        return found

    def _item(self, row: JsonObject) -> JsonObject | None:
        item = json_of(row["message_data"])
        place = f"{self.where}, message {row['id']}"
        if not isinstance(item, dict):
            self.skipped.append(Skipped(place, "it is not an item"))
            return None
        if ENCRYPTED in item:
            self.skipped.append(Skipped(place, "the item is encrypted"))
            return None
        return item

    def _answers(
        self, branch: str, places: list[JsonObject], items: Mapping[int, JsonObject | None]
    ) -> dict[int, Answer]:
        """The answers on a branch: items in a row that a model made; the last one of a turn has its usage."""
        usage = self._usage(branch)
        runs = [
            list(run) for is_made, run in groupby(places, lambda place: _is_made(items[place["message_id"]])) if is_made
        ]
        answers: dict[int, Answer] = {}
        for run in reversed(runs):
            answer = Answer(usage=usage.pop(run[-1]["user_turn_number"], None))
            answers |= {place["message_id"]: answer for place in run}
        return answers

    def _usage(self, branch: str) -> dict[Any, JsonObject]:
        rows = self.database.rows("turn_usage", USED, ("id",), session_id=self.id, branch_id=branch)
        return {
            row["user_turn_number"]: {
                **{name: row[name] for name in USED[2:5]},
                **{name: json_of(row[name]) or {} for name in USED[5:]},
            }
            for row in rows
        }  # fmt: skip


def _is_made(item: JsonObject | None) -> bool:
    """Whether a model made an item: its messages, calls and reasoning, not the outputs of calls."""
    if item is None:
        return False
    kind = text_of(item, "type") or "message"
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")
