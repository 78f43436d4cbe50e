"""The tables of llm before 0.36: a row for each response, with its prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.contrib.importers.converting import converted
from threadkeep.contrib.importers.databases import Database
from threadkeep.contrib.importers.llm_parts import (
    answer_of,
    attachment_part,
    call,
    fragment_text,
    message,
    output,
    reasoning,
    text_part,
)
from threadkeep.contrib.importers.records import Entry, Skipped, Transcript
from threadkeep.contrib.importers.shapes import text_of, time_of
from threadkeep.domain.jsontext import JsonObject

RESPONSE: Final = (
    "id", "model", "resolved_model", "prompt", "system", "response", "reasoning", "datetime_utc", "duration_ms",
    "input_tokens", "output_tokens", "token_details",
)  # fmt: skip
CONTINUED: Final = "a newer release of llm has continued it: what was said is read from there, without this usage"


def conversations(database: Database, where: str) -> Iterator[Transcript | Skipped]:
    """The conversations of a database, one after the other; those that are threads by now are left to these."""
    for row in database.rows("conversations", ("id", "name", "model"), ("id",)):
        place = f"{where}, {row['id']}"
        responses = list(database.rows("responses", RESPONSE, ("id",), conversation_id=row["id"]))
        if any(database.rows("threads", ("id",), (), id=row["id"])):
            if responses:
                yield Skipped(place, CONTINUED, len(responses))
        elif responses:
            yield converted(place, _Conversation(database, place).transcript, row, responses)


@dataclass(slots=True)
class _Conversation:
    """A conversation while it is read."""

    database: Database
    where: str
    entries: list[Entry] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def transcript(self, row: JsonObject, responses: list[JsonObject]) -> Transcript:
        """The conversation."""
        system = None
        for response in responses:
            said = self._with_fragments("system_fragments", response, text_of(response, "system"))
            self._respond(response, said if said != system and self.entries else None)
            system = said or system
        first = responses[0]
        return Transcript(
            id=str(row["id"]),
            where=self.where,
            entries=self.entries,
            title=text_of(row, "name"),
            model=text_of(row, "model") or text_of(first, "model"),
            instructions=self._with_fragments("system_fragments", first, text_of(first, "system")),
            created_at=time_of(first, "datetime_utc"),
            skipped=self.skipped,
        )

    def _respond(self, response: JsonObject, system: str | None) -> None:
        """Add what was asked, and what was answered."""
        id_, at = str(response["id"]), time_of(response, "datetime_utc")
        asked = [
            *self._outputs(id_),
            *message("developer", [text_part("user", system)] if system else []),
        ]
        prompt = self._with_fragments("prompt_fragments", response, text_of(response, "prompt"))
        parts = [text_part("user", prompt)] if prompt else []
        self._add(f"{id_}:prompt", asked + message("user", parts + self._attachments(id_)), at)
        thought, said = text_of(response, "reasoning"), text_of(response, "response")
        items = [reasoning(thought)] if thought else []
        items += message("assistant", [text_part("assistant", said)] if said else [])
        calls = self.database.rows("tool_calls", ("name", "arguments", "tool_call_id"), ("id",), response_id=id_)
        items += [call(row["name"], row["arguments"], row["tool_call_id"]) for row in calls]
        if items:
            self._add(f"{id_}:response", items, at, answer_of(response))
        else:
            self.skipped.append(Skipped(self.where, "a call of a model without an answer"))

    def _add(self, id_: str, items: list[JsonObject], at: Any, answer: Any = None) -> None:
        self.entries.append(Entry(id_, self.entries[-1].id if self.entries else None, items, at, answer))

    def _outputs(self, response_id: str) -> list[JsonObject]:
        """What tools returned, which a response was asked with."""
        rows = self.database.rows("tool_results", ("name", "output", "tool_call_id"), ("id",), response_id=response_id)
        return [output(row["name"], row["output"], row["tool_call_id"]) for row in rows]

    def _attachments(self, response_id: str) -> list[JsonObject]:
        rows = self.database.rows("prompt_attachments", ("attachment_id",), ("order",), response_id=response_id)
        found = (attachment_part(self.database, row["attachment_id"], self._say) for row in rows)
        return [part for part in found if part is not None]

    def _say(self, why: str) -> None:
        self.skipped.append(Skipped(self.where, why))

    def _with_fragments(self, table: str, response: JsonObject, text: str | None) -> str | None:
        """A prompt behind its fragments, as the model was given it."""
        rows = self.database.rows(table, ("fragment_id",), ("order",), response_id=response["id"])
        texts = [fragment_text(self.database, row["fragment_id"]) for row in rows]
        return "\n".join(part for part in [*texts, text] if part) or None
