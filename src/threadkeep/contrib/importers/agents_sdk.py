"""OpenAI Agents SDK: sessions in SQLite, and in the databases of its `SQLAlchemySession`.

Source: the tables that openai-agents creates, whose names can be chosen. A row of messages is an item of the Responses
API; their table is `agent_messages`, unless the application has named it. `AdvancedSQLiteSession` says beside them on
which branches a message is (`message_structure`, which refers to the table of the messages), and what a user's turn has
used (`turn_usage`), which may be several calls: they are one row in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from threadkeep.contrib.importers.databases import Database, SessionTables, json_of
from threadkeep.contrib.importers.items import is_made, revision_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Transcript
from threadkeep.domain.jsontext import JsonObject

PLACES: Final = ("message_id", "branch_id", "sequence_number", "user_turn_number")
USED: Final = (
    "branch_id", "user_turn_number", "input_tokens", "output_tokens", "total_tokens", "input_tokens_details",
    "output_tokens_details",
)  # fmt: skip
MAIN: Final = "main"  # the branch that a session begins with
ENCRYPTED: Final = "__enc__"


class AgentsSdk(SessionTables):
    """Sessions of the OpenAI Agents SDK."""

    name = "agents-sdk"
    table = "agent_messages"
    column = "message_data"

    def session(
        self, database: Database, table: str, session: str, name: str, where: str, rows: Iterable[JsonObject]
    ) -> Transcript:
        """Return the conversation of a session."""
        has_places = database.referred("message_structure", "message_id") in {None, table}
        return _AgentsDraft(where, session, name, database, has_places).transcript(rows)


@dataclass(slots=True)
class _AgentsDraft(Draft):
    """A session while its messages are read.

    Attributes:
        id: what it is called in its table.
        name: the same with the table, if that is not the usual one.
        has_places: whether the database says where its messages are, and not only the places of another table.
    """

    id: str
    name: str
    database: Database
    has_places: bool

    def transcript(self, rows: Iterable[JsonObject]) -> Transcript:
        """The conversation."""
        messages = self._messages(rows)
        branches = self._branches(messages)
        items = {id_: self._item(row) for id_, row in messages.items()}
        entries: dict[str, Entry] = {}
        for branch, places in branches.items():
            answers = self._answers(branch, places, items)
            parent = None
            for place in places:
                id_ = place["message_id"]
                item = items[id_]
                if id_ not in entries:
                    shown, revision = ([], "") if item is None else ([item], revision_of(item))
                    at = time_of(messages[id_], "created_at")
                    entries[id_] = Entry(id_, parent, shown, at, answers.get(id_), revision)
                parent = id_
        found = list(entries.values())
        begun = found[0].created_at if found else None
        return Transcript(self.name, self.where, found, created_at=begun, skipped=self.skipped)

    def _messages(self, rows: Iterable[JsonObject]) -> dict[str, JsonObject]:
        """The messages by their ids, which are numbers, but need not be."""
        found: dict[str, JsonObject] = {}
        for row in rows:
            if found.setdefault(str(row["id"]), row) is not row:
                self.skip("its id is that of an earlier message", row["id"])
        return found

    def _branches(self, messages: Mapping[str, JsonObject]) -> dict[str, list[JsonObject]]:
        """The messages of each branch in order, the first branch first; those on none are on that one."""
        found: dict[str, list[JsonObject]] = {MAIN: []}
        placed = set()
        places = self.database.rows("message_structure", PLACES, ("sequence_number", "id"), session_id=self.id)
        for place in places if self.has_places else ():
            id_ = str(place["message_id"])
            if id_ in messages:
                found.setdefault(str(place["branch_id"]), []).append({**place, "message_id": id_})
                placed.add(id_)
        found[MAIN] += [{"message_id": id_, "user_turn_number": None} for id_ in messages if id_ not in placed]
        return found

    def _item(self, row: JsonObject) -> JsonObject | None:
        item = json_of(row["message_data"])
        if not isinstance(item, dict):
            self.skip("it is not an item", row["id"])
        elif ENCRYPTED in item:
            self.skip("the item is encrypted", row["id"])
        else:
            return item
        return None

    def _answers(
        self, branch: str, places: list[JsonObject], items: Mapping[str, JsonObject | None]
    ) -> dict[str, Answer]:
        """The answers on a branch: items in a row that a model made; the last one of a turn has its usage."""
        usage = self._usage(branch)
        runs = [list(run) for made, run in groupby(places, lambda place: is_made(items[place["message_id"]])) if made]
        answers: dict[str, Answer] = {}
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
