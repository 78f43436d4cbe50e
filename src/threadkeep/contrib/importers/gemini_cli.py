"""Gemini CLI: a file of JSON Lines for each session, of messages and of patches to them.

Source: files in ``~/.gemini/tmp/PROJECT/chats`` of Gemini CLI 0.61, which are not documented.

* The first line says which session it is; a resumed one has a second such line, or a second file without a message.
* A message is written again, with the same `id`, when its calls were answered: the last line of an id counts.
* ``{"$set": {…}}`` changes the session. With `messages`, it is the whole history from there on, as it is sent: messages
  that were known keep their ids, outputs of calls are repeated, and have the id of the answer that called. What a
  history does not have any more was taken back, as a turn that failed.
* `tokens.input` includes what was cached, `output` excludes thoughts. Calls of the router are in no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from threadkeep.contrib.importers import inputs, json_files
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.items import list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Skipped, Transcript, converted
from threadkeep.domain import formats
from threadkeep.domain.jsontext import JsonObject

FORMAT: Final = "gemini"
PROVIDER: Final = "google"
CONTEXT: Final = "<session_context>"  # how what the program says of the place begins
SNAPSHOT: Final = "<state_snapshot>"  # what a compressed history has in its first message
# key of `tokens` -> key of a usage object
COUNTS: Final = {
    "input": "promptTokenCount", "output": "candidatesTokenCount", "cached": "cachedContentTokenCount",
    "thoughts": "thoughtsTokenCount", "tool": "toolUsePromptTokenCount", "total": "totalTokenCount",
}  # fmt: skip


class GeminiCli:
    """Sessions of Gemini CLI."""

    name: Final = "gemini-cli"

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether the first line begins a session."""
        return {"sessionId", "projectHash", "startTime"} <= next(input.first_lines, {}).keys()

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a file."""
        session = _GeminiSession(input.name)
        yield from json_files.skipped_lines(input, session.add)
        if session.has_said:
            yield converted(input.name, session.transcript)


@dataclass(slots=True)
class _GeminiSession(Draft):
    """The messages of a file, by their ids, and in the order of the history as it is now."""

    head: JsonObject = field(default_factory=dict)
    messages: dict[str, JsonObject] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)  # calls with outputs

    def add(self, found: json_files.FileObject) -> None:
        """Take in a line."""
        line = found.value
        patch = object_of(line, "$set")
        if "sessionId" in line and "id" not in line:
            self.head = self.head or line
        elif "messages" in patch:
            before, self.order = self.order, []
            for message in list_of(patch, "messages"):
                if isinstance(message, dict):
                    self._take(message, before)
                else:
                    self.skipped.append(Skipped(found.where, "a message is not an object"))
        elif text_of(line, "id"):
            self._take(line, [])
        elif not patch:
            self.skipped.append(Skipped(found.where, "a line is neither a message nor a patch"))
        self.head |= {key: value for key, value in patch.items() if key != "messages"}

    def _take(self, message: JsonObject, before: list[str]) -> None:
        """Take in a message at the end of the history; `before` is the history that it is in place of."""
        id_ = self._place(text_of(message, "id") or f"{len(self.messages)}", _results(message))
        if id_ is None:
            return
        if id_ not in self.messages:
            is_snapshot = before and not self.order and SNAPSHOT in str(message.get("content"))
            self.parents[id_] = self.order[-1] if self.order else before[-1] if is_snapshot else None
        self.messages[id_] = self.messages.get(id_, {}) | message
        if id_ not in self.order:
            self.order.append(id_)

    def _place(self, id_: str, results: set[str]) -> str | None:
        """What a message is called; None of outputs that are in the history already."""
        names = [f"{id_}#results", id_] if results else [id_]
        known = next((one for one in names if one in self.messages and _results(self.messages[one])), None)
        if results and known is None:
            if self.answered.issuperset(results):
                return None
            self.answered.update(results)
            return names[0] if id_ in self.messages else id_
        return known or id_

    @property
    def has_said(self) -> bool:
        """Whether anything was said, but for what the program says at first."""
        return any(CONTEXT not in str(message.get("content")) for message in self.messages.values())

    def transcript(self) -> Transcript:
        """The conversation."""
        entries = [entry for id_, message in self.messages.items() for entry in self._entries(id_, message)]
        ends = {id_: entry.id for id_, entry in ((entry.id.removesuffix("#calls"), entry) for entry in entries)}
        entries = [
            entry if entry.id.endswith("#calls") else _behind(entry, ends.get(entry.parent or "")) for entry in entries
        ]
        return Transcript(
            id=text_of(self.head, "sessionId") or PurePath(self.where).stem,
            where=self.where,
            entries=entries,
            title=text_of(self.head, "summary"),
            model=make.last_model(entry.answer for entry in entries),
            created_at=time_of(self.head, "startTime"),
            properties={"project": text} if (text := text_of(self.head, "projectHash")) else {},
            active=ends.get(self.order[-1]) if self.order else None,
            is_nameless=True,
            skipped=self.skipped,
        )

    def _entries(self, id_: str, message: JsonObject) -> Iterator[Entry]:
        """The entries of a message: calls have their own, since they may be written later than what was said."""
        parent, at, content = self.parents[id_], time_of(message, "timestamp"), message.get("content")
        parts = [{"text": content}] if isinstance(content, str) else self.blocks(content, id_)
        match message.get("type"):
            case "user":
                is_snapshot = SNAPSHOT in str(content) and parent is not None
                text = "".join(text_of(part, "text") or "" for part in parts)
                items = [{"type": "compaction", "summary": text}] if is_snapshot else self._items("user", parts)
                yield Entry(id_, parent, items, at)
            case "gemini":
                calls, thoughts = (self.blocks(message.get(key), id_) for key in ("toolCalls", "thoughts"))
                answer, (said, called) = self._answer(id_, message), _said_and_called(parts, thoughts, calls)
                yield Entry(id_, parent, self._items("model", said), at, answer)
                yield Entry(f"{id_}#calls", id_, self._items("model", called), at, answer)
            case "info" | "error" | "warning":  # the program's words to the user
                yield Entry(id_, parent)
            case other:
                self.skip(f"messages of the type {other!r} are not imported", id_)
                yield Entry(id_, parent)

    def _items(self, role: str, parts: list[Any]) -> list[Any]:
        if not parts:
            return []
        turns = formats.get_format(FORMAT).parse_turns([{"role": role, "parts": [*map(_part, parts)]}])
        return [item for items in turns for item in items]

    def _answer(self, id_: str, message: JsonObject) -> Answer:
        tokens = object_of(message, "tokens")
        usage = {key: tokens[name] for name, key in COUNTS.items() if tokens.get(name) is not None}
        return Answer(
            format=FORMAT, model=text_of(message, "model"), provider=PROVIDER, usage=usage or None,
            finish_reason="STOP", name=f"gemini-cli {text_of(self.head, 'sessionId')} {id_}",
        )  # fmt: skip


def _said_and_called(
    parts: list[JsonObject], thoughts: list[JsonObject], calls: list[JsonObject]
) -> tuple[list[Any], list[Any]]:
    """The parts of an answer, and those of its calls, which may be in keys of their own."""
    said = [part for part in parts if "functionCall" not in part and part.get("text") != ""]
    called = [part for part in parts if "functionCall" in part]
    if not any(part.get("thought") for part in said):
        said = [*map(_thought, thoughts), *said]
    calls = [] if called else calls
    called += [{"functionCall": {key: call.get(key) for key in ("id", "name", "args")}} for call in calls]
    return said, called


def _behind(entry: Entry, end: str | None) -> Entry:
    """The entry, behind the last entry of the message that it follows."""
    return Entry(entry.id, end or entry.parent, entry.items, entry.created_at, entry.answer)


def _results(message: JsonObject) -> set[str]:
    """The calls whose outputs a message is; empty if it has anything else."""
    parts = list_of(message, "content") if message.get("type") == "user" else []
    found = [object_of(_part(part), "functionResponse") for part in parts]
    return {str(one.get("id") or one.get("name")) for one in found} if found and all(found) else set()


def _part(part: Any) -> Any:
    """A part with the provider's id of a call or an output, before which files have the name of the tool."""
    for key in ("functionCall", "functionResponse"):
        called = object_of(part, key)
        name, id_ = text_of(called, "name"), text_of(called, "id")
        if name and id_ and id_.startswith(f"{name}__"):
            return {**part, key: {**called, "id": id_.removeprefix(f"{name}__")}}
    return part


def _thought(thought: Any) -> JsonObject:
    """A thought, which is kept in two pieces, as it was sent."""
    subject, text = text_of(thought, "subject"), text_of(thought, "description") or ""
    return {"text": f"**{subject}**\n{text}" if subject else text, "thought": True}
