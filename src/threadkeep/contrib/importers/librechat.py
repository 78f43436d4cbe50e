"""LibreChat: a conversation that was exported as JSON.

Source: the files of exports, which are not documented.

* `messages` is a list whose messages name the one that they follow, or (`recursive`, `messagesTree`) trees of
  `children`. Exports without branches have the messages that were shown.
* `content` of an answer has texts, thoughts and calls of tools with their outputs; without, `text` is all.
* There is no usage but the tokens of single messages, which are no calls of a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers import json_files
from threadkeep.contrib.importers.items import Attachments, Rounds, list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Skipped, Transcript
from threadkeep.domain.jsontext import JsonObject, dumps

ROOT: Final = "00000000-0000-0000-0000-000000000000"  # what the first messages follow
LISTS: Final = ("messages", "messagesTree")
# key of the export, or of its options -> instructions of the conversation
PROMPTS: Final = ("promptPrefix", "system", "instructions")


class LibreChat(json_files.JsonExport):
    """Conversations of LibreChat."""

    name = "librechat"

    def has_keys(self, keys: frozenset[str]) -> bool:
        """Return whether it is an exported conversation."""
        return "conversationId" in keys and not keys.isdisjoint({*LISTS, "endpoint", "recursive"})

    def transcript(self, found: json_files.FileObject, _files: Attachments) -> Transcript | Skipped:
        """Return a conversation."""
        return _LibreChatDraft(found.where, found.value).transcript()


@dataclass(slots=True)
class _LibreChatDraft(Draft):
    """A conversation while it is read."""

    value: JsonObject
    rounds: Rounds = field(default_factory=Rounds)

    def transcript(self) -> Transcript | Skipped:
        """The conversation; or why it is none."""
        value = self.value
        id_, options = text_of(value, "conversationId"), object_of(value, "options")
        if id_ is None:
            return Skipped(self.where, "it has no id")
        before, messages = None, [one for name in LISTS for one in list_of(value, name)]
        waiting: list[tuple[Any, str | None]] = [(one, None) for one in reversed(messages)]
        while waiting:  # messages, and those below them
            message, parent = waiting.pop()
            before = self._add(message, parent or before)
            waiting += [(child, text_of(message, "messageId")) for child in reversed(list_of(message, "children"))]
        entries = self.rounds.entries()
        endpoint = text_of(value, "endpoint")
        prompts = (text_of(place, name) for place in (options, value) for name in PROMPTS)
        return Transcript(
            id=id_,
            where=self.where,
            entries=entries,
            title=text_of(value, "title"),
            model=self.rounds.model or text_of(options, "model"),
            instructions=next(filter(None, prompts), None),
            created_at=next((entry.created_at for entry in entries if entry.created_at is not None), None),
            properties={} if endpoint is None else {"endpoint": endpoint},
            skipped=self.skipped,
        )

    def _add(self, message: Any, parent: str | None) -> str | None:
        """Add a message; return its id."""
        number = len(self.rounds.ends)
        if not isinstance(message, dict):
            self.skip("it is not an object", number)
            return parent
        id_ = text_of(message, "messageId") or str(number)
        named = text_of(message, "parentMessageId")
        parent, at = None if named == ROOT else named or parent, time_of(message, "createdAt")
        if message.get("isCreatedByUser") is True:
            text = text_of(message, "text")
            texts = [text] if text else self._texts(message, id_)
            self.rounds.add(id_, parent, make.message("user", (make.text_part(one, "user") for one in texts)), at)
        else:
            model, reason = text_of(message, "model"), text_of(message, "finish_reason")
            status = "incomplete" if message.get("unfinished") is True else "completed"
            self.rounds.add(
                id_, parent, self._said(message, id_), at, Answer(model=model, status=status, finish_reason=reason)
            )
        for _ in list_of(message, "files") + list_of(message, "attachments"):
            self.skip("a file is not in the export", id_)
        return id_

    def _texts(self, message: JsonObject, id_: str) -> list[str]:
        """What a person said."""
        texts = [_text(part) for part in list_of(message, "content") if text_of(part, "type") == "text"]
        for kind in sorted({str(text_of(part, "type")) for part in list_of(message, "content")} - {"text"}):
            self.skip(f"a part of the type {kind!r} is not imported", id_)
        return [text for text in texts if text]

    def _said(self, message: JsonObject, id_: str) -> list[JsonObject]:
        """The items of an answer."""
        items: list[JsonObject] = []
        for part in list_of(message, "content"):
            kind = text_of(part, "type")
            if kind == "text":
                items += make.said(_text(part))
            elif kind == "think":
                items += [make.reasoning(thought)] if (thought := text_of(part, "think")) else []
            elif kind == "tool_call":
                items += _called(object_of(part, "tool_call"))
            else:
                self.skip(f"a part of the type {kind!r} is not imported", id_)
        if message.get("error") is True:
            self.skip("the answer is an error", id_)
            return items
        return items or make.said(text_of(message, "text"))


def _text(part: Any) -> str:
    """The text of a part, which older releases have in an object."""
    return text_of(part, "text") or text_of(object_of(part, "text"), "value") or ""


def _called(call: JsonObject) -> list[JsonObject]:
    """A call of a tool, and its output, if it has one."""
    function = object_of(call, "function") or call
    name = text_of(function, "name") or "unknown"
    item = make.call(name, function.get("args", function.get("arguments")), text_of(call, "id"))
    result = function.get("output")
    if result is None:
        return [item]
    return [item, make.output(item["call_id"], result if isinstance(result, str) else dumps(result).decode())]
