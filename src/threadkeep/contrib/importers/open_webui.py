"""Open WebUI: its database, and the files that it exports (all chats of a user, or one).

Sources: the table `chat`, whose column `chat` is what an export has; since 2026 the table `chat_message` besides, whose
rows go before that; and the exports of its releases, which are not documented.

* `history.messages` is a tree, of which `currentId` was shown last.
* `output` of an answer has items as in the Responses API. Older releases have a text with blocks of HTML instead:
  ``<details type="reasoning" …>`` with quoted lines, and ``<details type="tool_calls" id="…" name="…" arguments="…"
  result="…">``, whose attributes are JSON with HTML's escapes.
* Usage is what the provider reported: as in Chat Completions or in the Responses API, or the counts of Ollama.
* A message can be edited in place: it is another entry then.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from threadkeep.contrib.importers import inputs, json_files
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.databases import Database, SqlSource, json_of
from threadkeep.contrib.importers.items import Attachments, Rounds, list_of, object_of, revision_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Skipped, Transcript, converted
from threadkeep.domain.jsontext import JsonObject, dumps, loads

CHAT: Final = ("id", "user_id", "title", "chat", "created_at", "archived", "pinned", "folder_id", "meta")
# column of `chat_message` -> key of a message in `history`
MESSAGE: Final = {
    "role": "role", "parent_id": "parentId", "content": "content", "output": "output", "model_id": "model",
    "files": "files", "usage": "usage", "done": "done", "error": "error", "created_at": "timestamp",
}  # fmt: skip
MILLISECONDS: Final = 10**11  # a number of seconds is smaller until the year 5138 …
NANOSECONDS: Final = 10**17  # … and one of milliseconds, too
_JSON: Final = frozenset({"output", "files", "usage", "error"})  # columns of `chat_message`
_DETAILS: Final = re.compile(r'<details type="(\w+)"([^>]*)>\n?(.*?)\n?</details>\n?', re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'([\w-]+)="([^"]*)"')
_SUMMARY: Final = re.compile(r"<summary>.*?</summary>\n?", re.DOTALL)
_QUOTE: Final = re.compile(r"^> ?", re.MULTILINE)


class OpenWebUI(SqlSource, json_files.JsonExport):
    """Chats of Open WebUI."""

    name = "open-webui"

    def has_tables(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Return whether it is its database."""
        return tables.get("chat", frozenset()).issuperset({"id", "user_id", "title", "chat"})

    def has_keys(self, keys: frozenset[str]) -> bool:
        """Return whether it is an export of chats."""
        return {"chat", "title"} <= keys

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether it is its database, or an export of chats."""
        return SqlSource.recognizes(self, input) or json_files.JsonExport.recognizes(self, input)

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the chats."""
        is_file = input.url is None and not input.is_sqlite
        return json_files.JsonExport.read(self, input) if is_file else SqlSource.read(self, input)

    def transcript(self, found: json_files.FileObject, _files: Attachments) -> Transcript | Skipped:
        """Return a chat of an export."""
        return _Chat(found.where, found.value).transcript()

    def conversations(self, database: Database, where: str) -> Iterator[Transcript | Skipped]:
        """Return the chats of the database."""
        for row in database.rows("chat", CHAT, ("id",)):
            yield converted(f"{where}, {row['id']}", _chat, database, f"{where}, {row['id']}", row)


def _chat(database: Database, where: str, row: JsonObject) -> Transcript | Skipped:
    """The chat of a row, as an export has it, with its messages."""
    value = row | {name: json_of(row[name]) for name in ("chat", "meta")}
    return _Chat(where, value, _rows(database, row["id"])).transcript()


def _rows(database: Database, chat: Any) -> dict[str, JsonObject]:
    """The messages of a chat that have rows, as the history would have them."""
    found = {}
    for row in database.rows("chat_message", ("id", *MESSAGE), ("created_at", "id"), chat_id=chat):
        id_ = str(row["id"]).removeprefix(f"{chat}-")
        values = {key: json_of(row[name]) if name in _JSON else row[name] for name, key in MESSAGE.items()}
        found[id_] = {"id": id_} | {key: value for key, value in values.items() if value is not None}
    return found


@dataclass(slots=True)
class _Chat(Draft):
    """A chat while it is read."""

    value: JsonObject
    rows: Mapping[str, JsonObject] = field(default_factory=dict)
    rounds: Rounds = field(default_factory=Rounds)

    def transcript(self) -> Transcript | Skipped:
        """The conversation; or why it is none."""
        value = self.value
        chat, id_ = object_of(value, "chat"), text_of(value, "id") or text_of(object_of(value, "chat"), "id")
        if id_ is None:
            return Skipped(self.where, "it has no id")
        for name, message in self._messages(chat).items():
            if isinstance(message, dict):
                self._add(name, message)
            else:
                self.skip("it is not an object", name)
        known = {name: str(value[name]) for name in ("folder_id", "pinned", "archived") if value.get(name)}
        tags = [tag for tag in list_of(object_of(value, "meta"), "tags") if isinstance(tag, str)]
        return Transcript(
            id=id_, where=self.where, entries=self.rounds.entries(), user_id=text_of(value, "user_id"),
            title=text_of(value, "title") or text_of(chat, "title"), model=self.rounds.model,
            instructions=text_of(chat, "system"),
            created_at=_time(value, "created_at"),
            properties=known | ({"tags": ", ".join(tags)} if tags else {}),
            active=self.rounds.ends.get(text_of(object_of(chat, "history"), "currentId") or ""), skipped=self.skipped,
        )  # fmt: skip

    def _messages(self, chat: JsonObject) -> dict[str, Any]:
        """The messages by their ids; of the oldest exports, one behind the other."""
        known = object_of(object_of(chat, "history"), "messages")
        merged = known | {id_: object_of(known, id_) | row for id_, row in self.rows.items()}
        if merged:
            return merged
        before, found = None, {}
        for number, message in enumerate(list_of(chat, "messages")):
            id_ = text_of(message, "id") or str(number)
            found[id_] = {"parentId": before} | message if isinstance(message, dict) else message
            before = id_
        return found

    def _add(self, id_: str, message: JsonObject) -> None:
        role, parent, at = text_of(message, "role"), text_of(message, "parentId"), _time(message, "timestamp")
        if role == "assistant":
            output = [item for item in list_of(message, "output") if isinstance(item, dict)]
            items = output or items_of(text_of(message, "content") or "")
            if not items:
                error = text_of(object_of(message, "error"), "content")
                self.skip("the answer is empty" if error is None else "the answer is an error", id_)
            self.rounds.add(id_, parent, items, at, _answer_of(message), _revision(message))
            return
        if role not in {"user", "system", "developer"}:
            self.skip("its role is unknown", id_)
        text = text_of(message, "content")
        parts = [{"type": "input_text", "text": text}] if text else []
        parts += [part for file in list_of(message, "files") if (part := self._file(file, id_)) is not None]
        self.rounds.add(id_, parent, make.message(role or "user", parts), at, revision=_revision(message))

    def _file(self, file: Any, id_: str) -> JsonObject | None:
        """A picture, or the text of a file; None for what is kept elsewhere."""
        url, kind = text_of(file, "url") or "", text_of(file, "type")
        content_type = text_of(file, "content_type") or ""
        is_image = kind == "image" or content_type.startswith("image/")
        if is_image and url.startswith(("data:", "https://", "http://")):
            return {"type": "input_image", "image_url": url}
        about = object_of(file, "file")
        text = text_of(object_of(about, "data"), "content") or text_of(file, "content")
        if text is not None and not is_image:
            name = text_of(file, "name") or text_of(about, "filename")
            return {"type": "input_text", "text": text if name is None else f"{name}\n\n{text}"}
        self.skip("a file is not in the export", id_)
        return None


def _answer_of(message: JsonObject) -> Answer:
    about = object_of(message, "info")
    usage = object_of(message, "usage") or object_of(about, "usage") or about
    format_, counts, latency = _counts(usage)
    is_done, has_failed = message.get("done") is not False, bool(message.get("error"))
    status = "failed" if has_failed else "completed" if is_done else "incomplete"
    return Answer(format_, model=text_of(message, "model"), usage=counts, status=status, latency_ms=latency)


def _counts(usage: JsonObject) -> tuple[str, JsonObject | None, float | None]:
    """In which format the counts are, the counts, and how many milliseconds the answer took."""
    duration = usage.get("total_duration")  # nanoseconds, from Ollama
    latency = duration / 1e6 if isinstance(duration, int | float) and duration > 0 else None
    if "input_tokens" in usage:
        return "open_responses", usage, latency
    if "prompt_tokens" in usage:
        return "chat_completion", usage, latency
    if "prompt_eval_count" in usage or "eval_count" in usage:
        counts = {"input_tokens": usage.get("prompt_eval_count"), "output_tokens": usage.get("eval_count")}
        return "open_responses", counts, latency
    return "open_responses", None, latency


def _revision(message: JsonObject) -> str:
    return revision_of([str(message.get("content")), list_of(message, "output")])


def _time(value: JsonObject, key: str) -> datetime | None:
    """A time in seconds, milliseconds or nanoseconds, or as a text."""
    number = value.get(key)
    if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) > MILLISECONDS:
        scale = 10**9 if abs(number) > NANOSECONDS else 1000
        return time_of({key: number / scale}, key)
    return time_of(value, key)


def items_of(text: str) -> list[JsonObject]:
    """The items of a text: messages, reasoning, calls and their outputs, in order."""
    items: list[JsonObject] = []
    end = 0
    for block in _DETAILS.finditer(text):
        items += _said(text[end : block.start()])
        kind, attributes = block[1], {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(block[2])}
        body = _QUOTE.sub("", html.unescape(_SUMMARY.sub("", block[3]))).strip()
        if kind == "reasoning":
            items += [make.reasoning(body)] if body else []
        elif kind == "tool_calls":
            items += _call(attributes)
        else:
            items += _said(body)
        end = block.end()
    return items + _said(text[end:])


def _said(text: str) -> list[JsonObject]:
    return make.said(text.strip("\n")) if text.strip() else []


def _call(attributes: dict[str, str]) -> list[JsonObject]:
    name = attributes.get("name") or "unknown"
    call = make.call(name, _text(attributes.get("arguments")), attributes.get("id"))
    if attributes.get("done") != "true":
        return [call]
    return [call, make.output(call["call_id"], _text(attributes.get("result")))]


def _text(value: str | None) -> str:
    """The text that an attribute has, as JSON or as it is; of other JSON, its text."""
    if not value:
        return ""
    try:
        found: Any = loads(value)
    except ValueError:
        return value
    return found if isinstance(found, str) else dumps(found).decode()
