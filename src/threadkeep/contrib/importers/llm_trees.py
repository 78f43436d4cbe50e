"""The tables of llm since 0.36: messages that follow one another, and threads and turns that point at them.

* The hash of a message covers all that came before it, so it names an entry, and threads share what is the same.
* A turn is a call of a model: what it says is between `parent_message_hash` and `tip_message_hash`.
* Long texts and media of parts are in `fragments` and `attachments`, to which the part's `payload` refers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Select, column, select, table

from threadkeep.contrib.importers.converting import converted
from threadkeep.contrib.importers.databases import Database, json_of
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
from threadkeep.contrib.importers.records import Answer, Entry, Skipped, Transcript
from threadkeep.contrib.importers.shapes import list_of, object_of, text_of, time_of
from threadkeep.domain.jsontext import JsonObject

TURN: Final = (
    "id", "parent_message_hash", "tip_message_hash", "model", "resolved_model", "input_tokens", "output_tokens",
    "token_details", "duration_ms", "datetime_utc",
)  # fmt: skip
MESSAGES: Final = table("messages", column("hash"), column("parent_hash"), column("role"))
PARTS: Final = table(
    "parts", column("message_hash"), column("position"), column("type"), column("tool_name"), column("text"),
    column("payload"),
)  # fmt: skip


def threads(database: Database, where: str) -> Iterator[Transcript | Skipped]:
    """The threads of a database, one after the other."""
    for row in database.rows("threads", ("id", "name", "tip_message_hash", "forked_from", "datetime_utc"), ("id",)):
        place = f"{where}, {row['id']}"
        yield converted(place, _Thread(database, place, row).transcript)


@dataclass(slots=True)
class _Thread:
    """A thread while it is read."""

    database: Database
    where: str
    row: JsonObject
    skipped: list[Skipped] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)  # by the hashes of messages
    times: dict[str, Any] = field(default_factory=dict)

    def transcript(self) -> Transcript:
        """The conversation."""
        row, database = self.row, self.database
        turns = list(database.rows("turns", TURN, ("id",), thread_id=row["id"]))
        tips = [turn["tip_message_hash"] or turn["parent_message_hash"] for turn in turns] + [row["tip_message_hash"]]
        messages = {one["hash"]: one for one in database.select(_chains([tip for tip in tips if tip]))}
        parts: dict[str, list[JsonObject]] = {}
        for part in database.select(_parts([tip for tip in tips if tip])):
            parts.setdefault(part["message_hash"], []).append(part)
        order: dict[str, None] = {}
        for tip in tips:
            order |= dict.fromkeys(reversed(list(_chain(messages, tip))))
        for turn in turns:
            self._note(messages, turn)
        entries = [self._entry(messages[hash_], parts.get(hash_, [])) for hash_ in order]
        models = [model for turn in turns if (model := text_of(turn, "model"))]
        return Transcript(
            id=str(row["id"]),
            where=self.where,
            entries=entries,
            title=text_of(row, "name"),
            model=models[-1] if models else None,
            created_at=time_of(row, "datetime_utc"),
            properties={"forked_from": row["forked_from"]} if row["forked_from"] else {},
            active=row["tip_message_hash"],
            skipped=self.skipped,
        )

    def _note(self, messages: Mapping[str, JsonObject], turn: JsonObject) -> None:
        """Which messages a turn has made, and when those before it were said at the latest."""
        answer, parent = answer_of(turn), turn["parent_message_hash"]
        is_made = turn["tip_message_hash"] not in {None, parent}
        if not is_made:
            self.skipped.append(Skipped(self.where, "a call of a model without an answer"))
        for hash_ in _chain(messages, turn["tip_message_hash"] or parent):
            is_made = is_made and hash_ != parent
            if is_made:
                self.answers[hash_] = answer
            self.times.setdefault(hash_, time_of(turn, "datetime_utc"))

    def _entry(self, row: JsonObject, parts: list[JsonObject]) -> Entry:
        hash_, role = row["hash"], str(row["role"])
        items: list[JsonObject] = []
        for part in parts:
            self._add(items, role, part)
        return Entry(hash_, row["parent_hash"], items, self.times.get(hash_), self.answers.get(hash_))

    def _add(self, items: list[JsonObject], role: str, row: JsonObject) -> None:
        """Add a part to the last message, or as an item of its own."""
        kind, payload = row["type"], object_of({"payload": json_of(row["payload"])}, "payload")
        text = self._text(row["text"], payload)
        match kind:
            case "tool_call":
                items.append(call(row["tool_name"], payload.get("arguments"), payload.get("tool_call_id")))
            case "tool_result":
                items.append(output(row["tool_name"], payload.get("output"), payload.get("tool_call_id")))
                media = (self._attachment(one) for one in list_of(payload, "attachments"))
                items += message("user", (part for part in media if part is not None))
            case "reasoning":
                items += [reasoning(text)] if text else []
            case "text":
                self._say(items, role, text_part(role, text) if text else None)
            case "attachment":
                self._say(items, role, self._attachment(object_of(payload, "attachment")))
            case _:
                self.skipped.append(Skipped(self.where, f"a part of the type {kind!r} is not imported"))

    def _say(self, items: list[JsonObject], role: str, part: JsonObject | None) -> None:
        if part is None:
            return
        if items and items[-1]["type"] == "message" and items[-1]["role"] == role:
            items[-1]["content"].append(part)
        else:
            items += message(role, [part])

    def _text(self, text: Any, payload: Any) -> str:
        """The text of a part, put together with its fragments."""
        if isinstance(text, str):
            return text
        pieces = (piece for piece in list_of(payload, "text_ref") if isinstance(piece, dict))
        return "".join(
            str(piece["literal"]) if "literal" in piece else fragment_text(self.database, piece.get("fragment"))
            for piece in pieces
        )

    def _attachment(self, reference: Any) -> JsonObject | None:
        id_ = text_of(reference, "id")
        return attachment_part(self.database, id_, lambda why: self.skipped.append(Skipped(self.where, why)))


def _chain(messages: Mapping[str, JsonObject], tip: Any) -> Iterator[str]:
    """The messages from a tip back to the first one."""
    seen = set()
    while tip in messages and tip not in seen:
        seen.add(tip)
        yield tip
        tip = messages[tip]["parent_hash"]


def _reached(tips: list[str]) -> Any:
    """The messages that these tips lead to."""
    first = select(MESSAGES.c.hash, MESSAGES.c.parent_hash, MESSAGES.c.role).where(MESSAGES.c.hash.in_(tips))
    reached = first.cte("reached", recursive=True)
    before = select(MESSAGES.c.hash, MESSAGES.c.parent_hash, MESSAGES.c.role)
    return reached.union(before.join(reached, MESSAGES.c.hash == reached.c.parent_hash))


def _chains(tips: list[str]) -> Select[Any]:
    reached = _reached(tips)
    return select(reached.c.hash, reached.c.parent_hash, reached.c.role)


def _parts(tips: list[str]) -> Select[Any]:
    reached = _reached(tips)
    joined = select(PARTS).join(reached, PARTS.c.message_hash == reached.c.hash)
    return joined.order_by(PARTS.c.message_hash, PARTS.c.position)
