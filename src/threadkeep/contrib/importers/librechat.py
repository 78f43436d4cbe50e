"""LibreChat: a conversation that was exported as JSON.

Source: the files of exports, which are not documented.

* `messages` is a list whose messages name the one that they follow, or (`recursive`, `messagesTree`) trees of
  `children`. Exports without branches have the messages that were shown.
* `content` of an answer has texts, thoughts and calls of tools with their outputs; without, `text` is all.
* There is no usage but the tokens of single messages, which are no calls of a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.json_files import Found, json_elements, transcripts_of
from threadkeep.contrib.importers.records import Answer, Skipped, Transcript
from threadkeep.contrib.importers.rounds import Rounds
from threadkeep.contrib.importers.shapes import list_of, object_of, text_of, time_of
from threadkeep.domain.jsontext import JsonObject, dumps

ROOT: Final = "00000000-0000-0000-0000-000000000000"  # what the first messages follow
LISTS: Final = ("messages", "messagesTree")
# key of the export, or of its options -> instructions of the conversation
PROMPTS: Final = ("promptPrefix", "system", "instructions")


class LibreChat:
    """Conversations of LibreChat."""

    name: Final = "librechat"

    def recognizes(self, input: Input, /) -> bool:
        """Return whether it is an exported conversation."""
        keys = input.first_keys()
        return "conversationId" in keys and not keys.isdisjoint({*LISTS, "endpoint", "recursive"})

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the conversation of a file, or those in a list."""
        yield from transcripts_of(json_elements(input), lambda found: _Conversation(found).transcript())


LIBRECHAT: Final = LibreChat()


@dataclass(slots=True)
class _Conversation:
    """A conversation while it is read."""

    found: Found
    rounds: Rounds = field(default_factory=Rounds)
    skipped: list[Skipped] = field(default_factory=list)

    def transcript(self) -> Transcript | Skipped:
        """The conversation; or why it is none."""
        value = self.found.value
        id_, options = text_of(value, "conversationId"), object_of(value, "options")
        if id_ is None:
            return Skipped(self.found.where, "it has no id")
        before = None
        for message, parent in _flat([one for name in LISTS for one in list_of(value, name)]):
            before = self._add(message, parent or before)
        entries = self.rounds.entries()
        endpoint = text_of(value, "endpoint")
        prompts = (text_of(place, name) for place in (options, value) for name in PROMPTS)
        return Transcript(
            id=id_,
            where=self.found.where,
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
            self.skipped.append(Skipped(f"{self.found.where}, message {number}", "it is not an object"))
            return parent
        id_ = text_of(message, "messageId") or str(number)
        named = text_of(message, "parentMessageId")
        parent, at = None if named == ROOT else named or parent, time_of(message, "createdAt")
        if message.get("isCreatedByUser") is True:
            text = text_of(message, "text")
            parts = [{"type": "input_text", "text": text}] if text else self._parts(message, id_)
            self.rounds.add(id_, parent, [{"type": "message", "role": "user", "content": parts}] if parts else [], at)
        else:
            model, reason = text_of(message, "model"), text_of(message, "finish_reason")
            status = "incomplete" if message.get("unfinished") is True else "completed"
            self.rounds.add(
                id_, parent, self._said(message, id_), at, Answer(model=model, status=status, finish_reason=reason)
            )
        for _ in list_of(message, "files") + list_of(message, "attachments"):
            self._skip(id_, "a file is not in the export")
        return id_

    def _parts(self, message: JsonObject, id_: str) -> list[JsonObject]:
        """The parts of what a person said."""
        texts = [_text(part) for part in list_of(message, "content") if text_of(part, "type") == "text"]
        for kind in sorted({str(text_of(part, "type")) for part in list_of(message, "content")} - {"text"}):
            self._skip(id_, f"a part of the type {kind!r} is not imported")
        return [{"type": "input_text", "text": text} for text in texts if text]

    def _said(self, message: JsonObject, id_: str) -> list[JsonObject]:
        """The items of an answer."""
        items: list[JsonObject] = []
        for part in list_of(message, "content"):
            kind = text_of(part, "type")
            if kind in {"text", "think"}:
                items += _saying(kind, _text(part) if kind == "text" else text_of(part, "think") or "")
            elif kind == "tool_call":
                items += _called(object_of(part, "tool_call"))
            else:
                self._skip(id_, f"a part of the type {kind!r} is not imported")
        text = text_of(message, "text")
        if message.get("error") is True:
            self._skip(id_, "the answer is an error")
            return items
        return items or ([] if text is None else _saying("text", text))

    def _skip(self, id_: str, why: str) -> None:
        self.skipped.append(Skipped(f"{self.found.where}, message {id_}", why))


def _flat(messages: list[Any]) -> Iterator[tuple[Any, str | None]]:
    """Messages with those below them, each with the id of the one above it."""
    waiting: list[tuple[Any, str | None]] = [(message, None) for message in reversed(messages)]
    while waiting:
        message, parent = waiting.pop()
        yield message, parent
        waiting += [(child, text_of(message, "messageId")) for child in reversed(list_of(message, "children"))]


def _text(part: Any) -> str:
    """The text of a part, which older releases have in an object."""
    return text_of(part, "text") or text_of(object_of(part, "text"), "value") or ""


def _saying(kind: str, text: str) -> list[JsonObject]:
    if not text:
        return []
    if kind == "think":
        return [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}]
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def _called(call: JsonObject) -> list[JsonObject]:
    """A call of a tool, and its output, if it has one."""
    function = object_of(call, "function") or call
    name, arguments = text_of(function, "name") or "unknown", function.get("args", function.get("arguments"))
    call_id = text_of(call, "id") or name
    text = arguments if isinstance(arguments, str) else dumps(arguments if arguments is not None else {}).decode()
    items: list[JsonObject] = [{"type": "function_call", "call_id": call_id, "name": name, "arguments": text}]
    output = function.get("output")
    if output is not None:
        shown = output if isinstance(output, str) else dumps(output).decode()
        items.append({"type": "function_call_output", "call_id": call_id, "output": shown})
    return items
