"""Claude.ai: the archive of a data export, or a file ``conversations.json`` of one.

Source: the files of exports, which are not documented.

* Messages name the one that they follow (`parent_message_uuid`); in exports that do not say it, each follows the one
  before. Some exports name the message that was shown last (`current_leaf_message_uuid`).
* Results of tools stand in the message of the model between its blocks: they end a response, and the next begins.
* Thinking has no signature, so it is the text of a reasoning item, which is not sent back.
* The text of an attachment becomes a part of its message; of other files, only the names are known, unless the archive
  has them. There is no usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers import json_files
from threadkeep.contrib.importers.items import Attachments, list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Skipped, Transcript
from threadkeep.domain.jsontext import JsonObject, dumps

ROOT: Final = "00000000-0000-4000-8000-000000000000"  # what the first messages follow
ROLES: Final = {"human": "user", "user": "user", "assistant": "assistant", "system": "developer"}
KINDS: Final = frozenset({"text", "thinking", "tool_use", "tool_result"})  # of blocks


class ClaudeAI(json_files.JsonExport):
    """Conversations of Claude.ai."""

    name = "claude-ai"
    documents = r"conversations([-_ ].*)?\.json"

    def has_keys(self, keys: frozenset[str]) -> bool:
        """Return whether conversations have messages of Claude.ai."""
        return "chat_messages" in keys or {"uuid", "name", "account"} <= keys

    def transcript(self, found: json_files.FileObject, files: Attachments) -> Transcript | Skipped:
        """Return a conversation."""
        return _ClaudeDraft(found.where, found.value, files).transcript()


@dataclass(slots=True)
class _ClaudeDraft(Draft):
    """A conversation of the export."""

    value: JsonObject
    files: Attachments
    entries: list[Entry] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)  # message -> the last of its entries

    def transcript(self) -> Transcript | Skipped:
        """The conversation; or why it is none."""
        value, last = self.value, None
        id_ = text_of(value, "uuid")
        if id_ is None or not isinstance(value.get("chat_messages"), list):
            return Skipped(self.where, "it has no messages, or no id")
        for number, message in enumerate(value["chat_messages"]):
            where = f"{self.where}.chat_messages[{number}]"
            if not isinstance(message, dict):
                self.skipped.append(Skipped(where, "it is not an object"))
                continue
            last = self._add(message, text_of(message, "uuid") or str(number), last, where)
        project = object_of(value, "project")
        known = {
            "account": text_of(object_of(value, "account"), "uuid"), "summary": text_of(value, "summary"),
            "project": text_of(project, "name") or text_of(value, "project_uuid") or text_of(project, "uuid"),
        }  # fmt: skip
        return Transcript(
            id=id_,
            where=self.where,
            entries=[
                replace(one, parent=self.ends.get(one.parent or "", one.parent)) if one.id in self.ends else one
                for one in self.entries
            ],
            title=text_of(value, "name"),
            model=text_of(value, "model"),
            created_at=time_of(value, "created_at"),
            properties={name: text for name, text in known.items() if text is not None},
            active=self.ends.get(text_of(value, "current_leaf_message_uuid") or ""),
            skipped=self.skipped,
        )

    def _add(self, message: JsonObject, id_: str, before: str | None, where: str) -> str:
        """Add the entries of a message; return its id."""
        parent = text_of(message, "parent_message_uuid") or before
        parent, at = None if parent == ROOT else parent, time_of(message, "created_at")
        role = ROLES.get(text_of(message, "sender") or "")
        if role is None:
            self.skipped.append(Skipped(where, "its sender is unknown"))
            role = "user"
        pieces = self._pieces(message, role, id_, where)
        for number, items in enumerate(pieces or [[]]):
            name = f"{id_}#{number}" if number else id_
            self._append(name, parent, items, at, role)
            parent = name
        self.ends[id_] = parent or id_
        return id_

    def _pieces(self, message: JsonObject, role: str, id_: str, where: str) -> list[list[JsonObject]]:
        """The items of a message, in pieces, with the files that came with it."""
        blocks = list_of(message, "content") or [{"type": "text", "text": text_of(message, "text") or ""}]
        for kind in sorted({str(text_of(block, "type")) for block in blocks} - KINDS):
            self.skipped.append(Skipped(where, f"there is no place for a block of the type {kind!r}"))
        pieces = list(_pieces(blocks, role, id_))
        extra = [] if role == "assistant" else self._files(message, where)
        if extra and pieces and pieces[-1][-1]["type"] == "message":
            pieces[-1][-1]["content"] += extra
        elif extra:
            pieces.append(make.message(role, extra))
        return pieces

    def _append(self, name: str, parent: str | None, items: list[JsonObject], at: datetime | None, role: str) -> None:
        is_answer = role == "assistant" and bool(items) and items[0]["type"] != "function_call_output"
        model = text_of(self.value, "model")
        answer = Answer("messages", model=model, provider="anthropic") if is_answer else None
        self.entries.append(Entry(name, parent, items, at, answer))

    def _files(self, message: JsonObject, where: str) -> list[JsonObject]:
        parts: list[JsonObject] = []
        are_all_there = True
        for attachment in list_of(message, "attachments"):
            text, name = text_of(attachment, "extracted_content"), text_of(attachment, "file_name")
            if text is not None:
                parts.append(make.text_part(text if name is None else f"{name}\n\n{text}", "user"))
            elif name is not None:
                parts.append(self.files.part(name, name))
                are_all_there &= parts[-1]["type"] != "input_text"
        for file in list_of(message, "files") + list_of(message, "files_v2"):
            name = text_of(file, "file_name")
            file_id = text_of(file, "file_uuid") or text_of(file, "uuid") or name
            if file_id is not None:
                parts.append(self.files.part(file_id, name, is_image=text_of(file, "file_kind") == "image"))
                are_all_there &= parts[-1]["type"] != "input_text"
        if not are_all_there:
            self.skipped.append(Skipped(where, "the export has the name of a file, and not the file"))
        return parts


def _pieces(blocks: list[Any], role: str, id_: str) -> Iterator[list[JsonObject]]:
    """The items of blocks, in pieces: what was said, and results of tools."""
    items: list[JsonObject] = []
    is_result, call = False, id_
    for number, block in enumerate(blocks):
        kind = text_of(block, "type")
        if items and (kind == "tool_result") is not is_result:
            yield items
            items = []
        is_result = kind == "tool_result"
        if kind == "tool_use":
            call = text_of(block, "id") or f"{id_}.{number}"
        item = _item(block, role, call)
        if item is None:
            continue
        if items and item["type"] == items[-1]["type"] == "message":
            items[-1]["content"] += item["content"]
        else:
            items.append(item)
    if items:
        yield items


def _item(block: Any, role: str, call: str) -> JsonObject | None:
    """The item of a block; None for one that is empty, or of another type."""
    match text_of(block, "type"):
        case "text":
            text = text_of(block, "text")
            return None if text is None else make.message(role, [make.text_part(text, role)])[0]
        case "thinking":
            summary = [text for one in list_of(block, "summaries") if (text := text_of(one, "summary"))]
            return make.reasoning(text_of(block, "thinking") or "", summary=summary)
        case "tool_use":
            return make.call(text_of(block, "name") or "unknown", block.get("input") or {}, call)
        case "tool_result":
            item = make.output(text_of(block, "tool_use_id") or call, _output(block.get("content")))
            return item | ({"status": "incomplete"} if block.get("is_error") is True else {})
    return None


def _output(content: Any) -> str:
    """What a tool returned, as text."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(text_of(block, "text") or dumps(block).decode() for block in blocks if block is not None)
