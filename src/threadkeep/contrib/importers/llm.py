"""simonw's `llm`: the conversations of its log database, ``logs.db``.

Source: the migrations of llm 0.36, which keep older tables as they are.

* Since 0.36, messages form a tree: what threads have in common is stored once, and forks are threads. The hash of a
  message covers all that came before it, so it names an entry. A turn is a call of a model: what it says is between
  `parent_message_hash` and `tip_message_hash`. Long texts and media of parts are in `fragments` and `attachments`, to
  which the part's `payload` refers.
* Before, a response had its prompt, results of tools and answer in one row.
* A conversation that is in both is read from the tree, with the responses that are only in the older tables before it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Select, column, select, table

from threadkeep.contrib.importers import databases
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.items import list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Skipped, Transcript, converted
from threadkeep.domain.jsontext import JsonObject

TREE: Final = ({"threads", "turns", "messages", "parts"}, ("id", "parent_message_hash", "tip_message_hash"))
RESPONSES: Final = ("id", "prompt", "response", "conversation_id", "datetime_utc")
RESPONSE: Final = (
    "id", "model", "resolved_model", "prompt", "system", "response", "reasoning", "datetime_utc", "duration_ms",
    "input_tokens", "output_tokens", "token_details",
)  # fmt: skip
CONTINUED: Final = "a newer release of llm has continued it: what was said is read from there, without this usage"
TURN: Final = (
    "id", "parent_message_hash", "tip_message_hash", "model", "resolved_model", "input_tokens", "output_tokens",
    "token_details", "duration_ms", "datetime_utc",
)  # fmt: skip
MESSAGES: Final = table("messages", column("hash"), column("parent_hash"), column("role"))
PARTS: Final = table(
    "parts", column("message_hash"), column("position"), column("type"), column("tool_name"), column("text"),
    column("payload"),
)  # fmt: skip
ATTACHMENT: Final = ("id", "type", "path", "url", "content")
# keys of `token_details`, which plugins fill from what providers report, for what was cached and what was reasoning
CACHED: Final = ("cached_tokens", "cache_read_input_tokens", "cachedContentTokenCount")
REASONED: Final = ("reasoning_tokens", "thoughtsTokenCount")
DETAILS: Final = (
    "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details",
)  # fmt: skip


class Llm(databases.SqlSource):
    """Conversations of llm."""

    name = "llm"

    def has_tables(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Return whether there are tables of one of its releases."""
        names, columns = TREE
        has_tree = names <= tables.keys() and tables["turns"].issuperset(columns)
        return has_tree or tables.get("responses", frozenset()).issuperset(RESPONSES)

    def conversations(self, database: databases.Database, where: str) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a database: the older ones first, but for those that are threads by now."""
        for row in database.rows("conversations", ("id", "name", "model"), ("id",)):
            place = f"{where}, {row['id']}"
            responses = list(database.rows("responses", RESPONSE, ("id",), conversation_id=row["id"]))
            if any(database.rows("threads", ("id",), (), id=row["id"])):
                if responses:
                    yield Skipped(place, CONTINUED, len(responses))
            elif responses:
                yield converted(place, _LlmConversation(place, database).transcript, row, responses)
        for row in database.rows("threads", ("id", "name", "tip_message_hash", "forked_from", "datetime_utc"), ("id",)):
            place = f"{where}, {row['id']}"
            yield converted(place, _Thread(place, database, row).transcript)


@dataclass(slots=True)
class _Reading(Draft):
    """What both generations of tables share: attachments and fragments."""

    database: databases.Database

    def attachment(self, id_: Any) -> JsonObject | None:
        """A picture or file by its id: its bytes, or where it is on the web; None where it is neither."""
        row = next(iter(self.database.rows("attachments", ATTACHMENT, (), id=id_)), None)
        if row is None:
            self.skip("an attachment is missing")
            return None
        kind, content, url = str(row["type"] or "application/octet-stream"), row["content"], row["url"]
        if isinstance(content, bytes) and content:
            url = f"data:{kind};base64,{b64encode(content).decode()}"
        if not isinstance(url, str) or not url:
            self.skip("an attachment is a file on the computer of the user, and not in the database")
            return None
        if kind.startswith("image/"):
            return {"type": "input_image", "image_url": url}
        return {"type": "input_file", "file_data" if url.startswith("data:") else "file_url": url}

    def fragment(self, id_: Any) -> str:
        """The text of a fragment."""
        row = next(iter(self.database.rows("fragments", ("content",), (), id=id_)), None)
        return str(row["content"]) if row is not None and row["content"] is not None else ""


@dataclass(slots=True)
class _LlmConversation(_Reading):
    """A conversation of the tables before 0.36."""

    entries: list[Entry] = field(default_factory=list)

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
            is_nameless=True,
            skipped=self.skipped,
        )

    def _respond(self, response: JsonObject, system: str | None) -> None:
        """Add what was asked, and what was answered."""
        id_, at = str(response["id"]), time_of(response, "datetime_utc")
        rows = self.database.rows("tool_results", ("name", "output", "tool_call_id"), ("id",), response_id=id_)
        asked = [_output(row["name"], row["output"], row["tool_call_id"]) for row in rows]
        asked += make.message("developer", [make.text_part(system, "user")] if system else [])
        prompt = self._with_fragments("prompt_fragments", response, text_of(response, "prompt"))
        parts = [make.text_part(prompt, "user")] if prompt else []
        files = self.database.rows("prompt_attachments", ("attachment_id",), ("order",), response_id=id_)
        parts += [part for row in files if (part := self.attachment(row["attachment_id"])) is not None]
        self._add(f"{id_}:prompt", asked + make.message("user", parts), at)
        thought = text_of(response, "reasoning")
        items = ([make.reasoning(thought)] if thought else []) + make.said(text_of(response, "response"))
        calls = self.database.rows("tool_calls", ("name", "arguments", "tool_call_id"), ("id",), response_id=id_)
        items += [_call(row["name"], row["arguments"], row["tool_call_id"]) for row in calls]
        if items:
            self._add(f"{id_}:response", items, at, answer_of(response))
        else:
            self.skip("a call of a model without an answer")

    def _add(self, id_: str, items: list[JsonObject], at: Any, answer: Any = None) -> None:
        self.entries.append(Entry(id_, self.entries[-1].id if self.entries else None, items, at, answer))

    def _with_fragments(self, table: str, response: JsonObject, text: str | None) -> str | None:
        """A prompt behind its fragments, as the model was given it."""
        rows = self.database.rows(table, ("fragment_id",), ("order",), response_id=response["id"])
        texts = [self.fragment(row["fragment_id"]) for row in rows]
        return "\n".join(part for part in [*texts, text] if part) or None


@dataclass(slots=True)
class _Thread(_Reading):
    """A thread, in the tables since 0.36."""

    row: JsonObject
    answers: dict[str, Answer] = field(default_factory=dict)  # by the hashes of messages
    times: dict[str, Any] = field(default_factory=dict)

    def transcript(self) -> Transcript:
        """The conversation."""
        row, database = self.row, self.database
        turns = list(database.rows("turns", TURN, ("id",), thread_id=row["id"]))
        tips = [turn["tip_message_hash"] or turn["parent_message_hash"] for turn in turns] + [row["tip_message_hash"]]
        reached = _reached([tip for tip in tips if tip])
        chains = select(reached.c.hash, reached.c.parent_hash, reached.c.role)
        messages = {one["hash"]: one for one in database.select(chains)}
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
            is_nameless=True,
            skipped=self.skipped,
        )

    def _note(self, messages: Mapping[str, JsonObject], turn: JsonObject) -> None:
        """Which messages a turn has made, and when those before it were said at the latest."""
        answer, parent = answer_of(turn), turn["parent_message_hash"]
        is_made = turn["tip_message_hash"] not in {None, parent}
        if not is_made:
            self.skip("a call of a model without an answer")
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
        kind, payload = row["type"], object_of({"payload": databases.json_of(row["payload"])}, "payload")
        text = self._text(row["text"], payload)
        match kind:
            case "tool_call":
                items.append(_call(row["tool_name"], payload.get("arguments"), payload.get("tool_call_id")))
            case "tool_result":
                items.append(_output(row["tool_name"], payload.get("output"), payload.get("tool_call_id")))
                media = (self.attachment(text_of(one, "id")) for one in list_of(payload, "attachments"))
                items += make.message("user", (part for part in media if part is not None))
            case "reasoning":
                items += [make.reasoning(text)] if text else []
            case "text" | "attachment":
                is_text = kind == "text"
                said = make.text_part(text, role) if is_text and text else None
                part = said if is_text else self.attachment(text_of(object_of(payload, "attachment"), "id"))
                if part is not None:
                    make.extend(items, role, part)
            case _:
                self.skip(f"a part of the type {kind!r} is not imported")

    def _text(self, text: Any, payload: Any) -> str:
        """The text of a part, put together with its fragments."""
        if isinstance(text, str):
            return text
        pieces = (piece for piece in list_of(payload, "text_ref") if isinstance(piece, dict))
        return "".join(
            str(piece["literal"]) if "literal" in piece else self.fragment(piece.get("fragment")) for piece in pieces
        )


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


def _parts(tips: list[str]) -> Select[Any]:
    reached = _reached(tips)
    joined = select(PARTS).join(reached, PARTS.c.message_hash == reached.c.hash)
    return joined.order_by(PARTS.c.message_hash, PARTS.c.position)


def _call(name: Any, arguments: Any, call_id: Any) -> JsonObject:
    return make.call(str(name), arguments or {}, str(call_id or name))


def _output(name: Any, value: Any, call_id: Any) -> JsonObject:
    return make.output(str(call_id or name), str(value or ""))


def answer_of(row: JsonObject) -> Answer:
    """The response of a turn, or of an older response: model, usage and duration."""
    details = databases.json_of(row["token_details"])
    counts = {"input_tokens": row["input_tokens"], "output_tokens": row["output_tokens"]}
    usage = None
    if any(count is not None for count in counts.values()):
        usage = counts | {
            "input_tokens_details": {"cached_tokens": _detail(details, CACHED)},
            "output_tokens_details": {"reasoning_tokens": _detail(details, REASONED)},
        }
    duration = row["duration_ms"]
    return Answer(
        id=str(row["id"]),
        model=text_of(row, "resolved_model") or text_of(row, "model"),
        usage=usage,
        latency_ms=duration if isinstance(duration, int | float) and duration >= 0 else None,
    )


def _detail(details: Any, names: tuple[str, ...]) -> Any:
    places = [details, *(object_of(details, place) for place in DETAILS)]
    return next((place[name] for place in places if isinstance(place, dict) for name in names if name in place), None)
