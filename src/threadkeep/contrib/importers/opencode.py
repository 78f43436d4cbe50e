"""opencode: a SQLite database with all sessions.

Source: ``~/.local/share/opencode/opencode.db`` of opencode 1.18, which is not documented.

* `session` has a row for each session; those of agents name the one that started them (`parent_id`). `message` and
  `part` have JSON in `data`.
* An answer is a message, whose parts are steps: what stands between `step-start` and the next one. A step without
  `step-finish` broke off, and was tried again: a variant. Calls have their outputs in the same part.
* `metadata` of parts has what a provider needs to get them back, under the name of its SDK, which tells the format.
* `tokens.input` excludes what was cached, `tokens.output` excludes reasoning. There are no ids of responses. The call
  for a title is in no table.
* A forked session has copies of messages, with new ids and the times of the originals: their usage counts once.
* A compaction is a message of the user with a part `compaction`, and an answer with the summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from threadkeep.contrib.importers import agent_turns, databases
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.agent_turns import AnswerBlock, TokenCounts
from threadkeep.contrib.importers.items import list_of, object_of, text_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Skipped, Transcript, converted
from threadkeep.domain.jsontext import JsonObject

TABLES: Final = {
    "session": ("id", "parent_id", "directory", "time_created"), "message": ("id", "session_id", "data"),
    "part": ("id", "message_id", "session_id", "data"),
}  # fmt: skip
SESSION: Final = (
    "id", "parent_id", "directory", "title", "version", "agent", "model", "revert", "time_created",
)  # fmt: skip
# name of a provider, or of its SDK -> the format that it speaks
FORMATS: Final = {
    "openai": "open_responses", "azure": "open_responses", "anthropic": "messages", "google": "gemini",
    "vertex": "gemini", "bedrock": "converse", "amazon-bedrock": "converse",
}  # fmt: skip
STATUSES: Final = {"length": "incomplete", "MessageAbortedError": "cancelled"}
KNOWN_PARTS: Final = frozenset({"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction"})


class Opencode(databases.SqlSource):
    """Sessions of opencode."""

    name = "opencode"

    def has_tables(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Return whether there are its tables."""
        return all(tables.get(name, frozenset()).issuperset(columns) for name, columns in TABLES.items())

    def conversations(self, database: databases.Database, where: str) -> Iterator[Transcript | Skipped]:
        """Return the sessions, the oldest ones first, so that forks come behind what they copy."""
        begun: dict[Any, str] = {}
        for row in database.rows("session", SESSION, ("time_created", "id")):
            place = f"{where}, {row['id']}"
            yield converted(place, _OpencodeSession(place, database, row).transcript, begun)


@dataclass(slots=True)
class _OpencodeSession(Draft):
    """A session while it is read."""

    database: databases.Database
    row: JsonObject
    entries: list[Entry] = field(default_factory=list)
    last: str | None = None
    ends: dict[str, str | None] = field(default_factory=dict)  # message -> the entry before it

    def transcript(self, begun: dict[Any, str]) -> Transcript:
        """The conversation; `begun` has the sessions by the times of their first messages."""
        row, first = self.row, self._read()
        reverted = text_of(_json(row["revert"]), "messageID")
        origin = begun.setdefault(first, str(row["id"])) if first is not None else row["id"]
        parent = row["parent_id"]
        labels = {"agent": str(row["agent"] or "agent"), "parent": f"opencode:{parent}"} if parent else {}
        return Transcript(
            id=str(row["id"]),
            where=self.where,
            entries=self.entries,
            title=text_of(row, "title"),
            model=make.last_model(entry.answer for entry in self.entries) or text_of(_json(row["model"]), "id"),
            created_at=agent_turns.moment(row["time_created"]),
            labels=labels if origin == row["id"] else labels | {"forked-from": f"opencode:{origin}"},
            properties=agent_turns.properties(row, {"directory": "cwd", "version": "version"}),
            active=self.ends.get(reverted) if reverted else self.last,
            skipped=self.skipped,
        )

    def _read(self) -> Any:
        """Add all messages; return the time of the first one."""
        parts: dict[str, list[JsonObject]] = {}
        for part in self.database.rows("part", ("message_id", "data"), ("id",), session_id=self.row["id"]):
            parts.setdefault(part["message_id"], []).append(_json(part["data"]))
        rows = self.database.rows("message", ("id", "data"), ("time_created", "id"), session_id=self.row["id"])
        messages = [(str(one["id"]), _json(one["data"])) for one in rows]
        for number, (id_, message) in enumerate(messages, 1):
            self.ends[id_] = self.last
            if message.get("role") != "assistant":
                self._asked(id_, message, parts.get(id_, []))
            elif _is_whole(message) or number < len(messages):
                self._answered(id_, message, parts.get(id_, []))
            else:
                self.skip("the last answer is not finished yet")
        return object_of(messages[0][1], "time").get("created") if messages else None

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.last = entry.id

    def _asked(self, id_: str, message: JsonObject, parts: list[JsonObject]) -> None:
        """Add what the user said, or the program in the user's place."""
        said: list[JsonObject] = []
        for part in parts:
            if part.get("type") == "text" and part.get("ignored") is not True:
                said += [make.text_part(text, "user")] if (text := text_of(part, "text")) else []
            elif part.get("type") == "file":
                said.append(_file(part))
            elif text_of(part, "type") not in {*KNOWN_PARTS, "text"}:
                self.skip(f"a part of the type {part.get('type')!r} is not imported", id_)
        self._add(
            Entry(
                id_,
                self.last,
                make.message("user", said),
                agent_turns.moment(object_of(message, "time").get("created")),
            )
        )

    def _answered(self, id_: str, message: JsonObject, parts: list[JsonObject]) -> None:
        """Add an answer, step by step, and the outputs of its calls."""
        steps, at = _steps(parts), agent_turns.moment(object_of(message, "time").get("created"))
        for number, step in enumerate(steps):
            name, before = f"{id_}#{number}" if number else id_, self.last
            is_last = number == len(steps) - 1
            finish = next((part for part in step if part.get("type") == "step-finish"), message if is_last else {})
            answer, blocks = self._answer(message, step, finish), self._blocks(step, id_)
            items = agent_turns.answer_items(answer.format, blocks)
            if answer.status == "completed" and message.get("summary") is True:
                items = _summary(blocks) or items
            self._add(Entry(name, before, items, at, answer))
            if outputs := [item for part in step if (item := _output(part)) is not None]:
                self._add(Entry(f"{name}#outputs", name, outputs, _ended(step) or at))
            elif answer.status == "failed":  # what comes next follows what it answers
                self.last = before

    def _answer(self, message: JsonObject, step: list[JsonObject], finish: JsonObject) -> Answer:
        """The response of a step; `finish` has its usage, and is empty where it broke off."""
        tokens, time = object_of(finish, "tokens"), object_of(message, "time")
        cache, error = object_of(tokens, "cache"), object_of(message, "error")
        reason = text_of(finish, "reason") or text_of(finish, "finish")
        status = STATUSES.get(text_of(error, "name") or reason or "", "failed" if error or not reason else "completed")
        counts = TokenCounts.beside(
            tokens.get("input"), cache.get("read"), cache.get("write"), tokens.get("output"), tokens.get("reasoning")
        )
        format_ = _format(message, step)
        has_tools = any(part.get("type") == "tool" for part in step)
        answer = agent_turns.answer(
            format_, counts, model=text_of(message, "modelID"), provider=text_of(message, "providerID"), status=status,
            reason=reason, times=(time.get("created"), None if has_tools or not finish else time.get("completed")),
        )  # fmt: skip
        # copies have the same times and counts
        return replace(answer, name=f"opencode {time.get('created')} {time.get('completed')} {counts}")

    def _blocks(self, step: list[JsonObject], id_: str) -> list[AnswerBlock]:
        """What a model said in a step."""
        blocks = []
        for part in step:
            about = _metadata(part)
            item_id, text = text_of(about, "itemId"), text_of(part, "text") or ""
            signature = next(
                (found for key in ("reasoningEncryptedContent", "signature", "thoughtSignature")
                 if (found := text_of(about, key))), None,
            )  # fmt: skip
            match text_of(part, "type"):
                case "text" if text:
                    blocks.append(AnswerBlock("text", text, item_id))
                case "reasoning" if text or signature:
                    blocks.append(AnswerBlock("thinking", text, item_id, signature))
                case "tool":
                    given, name = object_of(part, "state").get("input"), text_of(part, "tool") or ""
                    call_id = text_of(part, "callID") or name
                    blocks.append(AnswerBlock("call", "", item_id, signature, call_id, name, given))
                case kind if kind not in {*KNOWN_PARTS, "text", "reasoning"}:
                    self.skip(f"a part of the type {kind!r} is not imported", id_)
        return blocks


def _summary(blocks: list[AnswerBlock]) -> list[JsonObject]:
    """The compaction that an answer is; none of one that says nothing."""
    text = "".join(block.text for block in blocks if block.kind == "text")
    return [{"type": "compaction", "summary": text}] if text else []


def _steps(parts: list[JsonObject]) -> list[list[JsonObject]]:
    """The parts of an answer, step by step."""
    steps: list[list[JsonObject]] = [[]]
    for part in parts:
        if part.get("type") == "step-start" and steps[-1]:
            steps.append([])
        steps[-1].append(part)
    return steps


def _is_whole(message: JsonObject) -> bool:
    """Whether an answer has ended."""
    return object_of(message, "time").get("completed") is not None or bool(message.get("error"))


def _format(message: JsonObject, step: list[JsonObject]) -> str:
    """The format that was spoken."""
    names = [name for part in step for name in object_of(part, "metadata")] + [text_of(message, "providerID") or ""]
    return next((FORMATS[name] for name in names if name in FORMATS), "chat_completion")


def _metadata(part: JsonObject) -> JsonObject:
    """What a provider needs to get a part back."""
    found = object_of(part, "metadata")
    return {key: value for name in found for key, value in object_of(found, name).items()}


def _output(part: JsonObject) -> JsonObject | None:
    """What a call returned, as an item; None of a part that is no call, or one without an end."""
    state = object_of(part, "state")
    is_error, call_id = state.get("status") == "error", text_of(part, "callID") or text_of(part, "tool") or ""
    text = state.get("error" if is_error else "output")
    if part.get("type") != "tool" or not isinstance(text, str):
        return None
    files = [_file(one) for one in list_of(state, "attachments") if isinstance(one, dict)]
    return make.output(call_id, [make.text_part(text, "user"), *files] if files else text)


def _file(part: JsonObject) -> JsonObject:
    """A picture or file, as a content part."""
    url, name = text_of(part, "url") or "", text_of(part, "filename")
    if (text_of(part, "mime") or "").startswith("image/"):
        return {"type": "input_image", "image_url": url}
    key = "file_data" if url.startswith("data:") else "file_url"
    return {"type": "input_file", key: url} | ({} if name is None else {"filename": name})


def _ended(step: list[JsonObject]) -> Any:
    ends = [object_of(object_of(part, "state"), "time").get("end") for part in step]
    return agent_turns.moment(max((end for end in ends if isinstance(end, int)), default=None))


def _json(value: Any) -> JsonObject:
    found = databases.json_of(value)
    return found if isinstance(found, dict) else {}
