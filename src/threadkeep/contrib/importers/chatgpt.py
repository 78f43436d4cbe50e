"""ChatGPT: the archive of a data export, or a file ``conversations.json`` of one.

Source: the files of exports, which are not documented.

* A conversation is a `mapping` of nodes by their ids; `current_node` ends the branch that was shown last.
* What the model sends to a tool (`recipient`) is a call, and what the tool says first its output. A tool that no one
  called, or that says more, is a developer.
* Images and other files are in the archive, under names that begin with their ids; those that are not are referred to.
* There are no counts of tokens. Messages that were not shown (custom instructions, for example) are kept: the model saw
  them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers import json_files
from threadkeep.contrib.importers.items import Attachments, list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Skipped, Transcript
from threadkeep.domain.jsontext import JsonObject, loads

# key of a conversation -> its property
PROPERTIES: Final = {"gizmo_id": "gizmo_id", "conversation_template_id": "template_id", "voice": "voice"}
FLAGS: Final = {"is_archived": "archived", "is_starred": "starred"}
_POINTER: Final = re.compile(r"(?:sediment|file-service)://(.+)")


class ChatGPT(json_files.JsonExport):
    """Conversations of ChatGPT."""

    name = "chatgpt"
    documents = r"conversations([-_ ].*)?\.json"

    def has_keys(self, keys: frozenset[str]) -> bool:
        """Return whether conversations have a mapping."""
        return "mapping" in keys and not {"chat", "chat_messages"} & keys

    def transcript(self, found: json_files.FileObject, files: Attachments) -> Transcript | Skipped:
        """Return a conversation."""
        return _ChatGptDraft(found.where, found.value, files).transcript()


@dataclass(slots=True)
class _ChatGptDraft(Draft):
    """A conversation of the export."""

    value: JsonObject
    files: Attachments
    calls: dict[str, str | None] = field(default_factory=dict)  # node -> the call before it that has no output yet
    requests: dict[str, Answer] = field(default_factory=dict)

    def transcript(self) -> Transcript | Skipped:
        """The conversation; or why it is none."""
        value = self.value
        mapping = value.get("mapping")
        id_ = text_of(value, "conversation_id") or text_of(value, "id")
        if not isinstance(mapping, dict) or id_ is None:
            return Skipped(self.where, "it has no mapping of messages, or no id")
        nodes = {node_id: node for node_id, node in mapping.items() if isinstance(node, dict)}
        if len(nodes) < len(mapping):
            self.skip("a node of the mapping is no object", count=len(mapping) - len(nodes))
        entries = {node_id: self._entry(node_id, nodes) for node_id in _top_down(nodes)}
        flags = {name: "yes" for key, name in FLAGS.items() if value.get(key) is True}
        return Transcript(
            id=id_,
            where=self.where,
            entries=[entries[node_id] for node_id in _by_place(nodes)],
            title=text_of(value, "title"),
            model=text_of(value, "default_model_slug"),
            created_at=time_of(value, "create_time"),
            properties=flags | {name: text for key, name in PROPERTIES.items() if (text := text_of(value, key))},
            active=text_of(value, "current_node"),
            skipped=self.skipped,
        )

    def _entry(self, node_id: str, nodes: Mapping[str, JsonObject]) -> Entry:
        node = nodes[node_id]
        message, parent = object_of(node, "message"), text_of(node, "parent")
        author = object_of(message, "author")
        role, call = text_of(author, "role") or "user", self.calls.get(parent or "")
        items: list[JsonObject] = []
        answer = None
        if message:
            content = object_of(message, "content")
            recipient = text_of(message, "recipient") or "all"
            if role == "assistant":
                answer = self._answer(message)
            if role == "assistant" and recipient != "all":
                items, call = [_call(node_id, recipient, content)], node_id
            elif role == "tool" and call is not None:
                items, call = [make.output(call, self._parts(content, "user", message))], None
            else:
                items = self._message(content, {"tool": "developer"}.get(role, role), message)
        self.calls[node_id] = call
        return Entry(node_id, parent, items, time_of(message, "create_time"), answer if items else None)

    def _answer(self, message: JsonObject) -> Answer:
        """The response of a message; the responses to one request are one, as long as nothing comes between."""
        metadata = object_of(message, "metadata")
        reason = text_of(object_of(metadata, "finish_details"), "type")
        status = "incomplete" if reason in {"interrupted", "max_tokens"} else "completed"
        answer = Answer(model=text_of(metadata, "model_slug"), provider="openai", status=status, finish_reason=reason)
        request = text_of(metadata, "request_id")
        return answer if request is None else self.requests.setdefault(f"{request} {answer.model}", answer)

    def _message(self, content: JsonObject, role: str, message: JsonObject) -> list[JsonObject]:
        kind = text_of(content, "content_type")
        if kind == "thoughts":
            thoughts = [thought for thought in list_of(content, "thoughts") if isinstance(thought, dict)]
            summary = [text for thought in thoughts if (text := text_of(thought, "summary"))]
            texts = [text for thought in thoughts if (text := text_of(thought, "content"))]
            return [make.reasoning(*texts, summary=summary)] if summary or texts else []
        if kind == "reasoning_recap":
            recap = text_of(content, "content")
            return [make.reasoning(summary=[recap])] if recap else []
        if kind in {"user_editable_context", "model_editable_context"}:
            role = "developer"
        return make.message(role, self._parts(content, role, message))

    def _parts(self, content: JsonObject, role: str, message: JsonObject) -> list[JsonObject]:
        """The content parts of a message: what it says, and the files that came with it."""
        metadata, shown = object_of(message, "metadata"), set[str]()
        citations = [one for one in map(_citation, list_of(metadata, "citations")) if one is not None]
        found = [
            make.text_part(part, role, citations) if isinstance(part, str) else self._part(part, role, shown)
            for part in _contents(content)
        ]
        # The files of a message, but for those that are shown in it
        parts = []
        for file in list_of(metadata, "attachments"):
            file_id = text_of(file, "id")
            if file_id is not None and file_id not in shown:
                media_type = text_of(file, "mime_type") or text_of(file, "mimeType") or ""
                parts.append(self.files.part(file_id, text_of(file, "name"), is_image=media_type.startswith("image/")))
        return [part for part in found if part is not None] + parts

    def _part(self, part: JsonObject, role: str, shown: set[str]) -> JsonObject | None:
        """A part that is no plain text; the ids of files are added to those that are shown."""
        text, pointer = text_of(part, "text"), _POINTER.fullmatch(text_of(part, "asset_pointer") or "")
        kind = text_of(part, "content_type") or text_of(part, "type") or "unknown"
        if text is not None:
            return make.text_part(text, role)
        if pointer is None or "audio" in kind:
            self.skip(f"there is no place for content of the type {kind!r}")
            return None
        file_id = pointer[1].partition("#")[0]
        shown.add(file_id)
        return self.files.part(file_id, is_image="image" in kind)


def _top_down(nodes: Mapping[str, JsonObject]) -> Iterator[str]:
    """The ids of nodes, parents before their children; those in a circle at the end."""
    children: dict[str | None, list[str]] = {}
    for node_id, node in nodes.items():
        parent = text_of(node, "parent")
        children.setdefault(parent if parent in nodes else None, []).append(node_id)
    waiting, seen = list(reversed(children.get(None, ()))), set()
    while waiting:
        node_id = waiting.pop()
        seen.add(node_id)
        yield node_id
        waiting += reversed(children.get(node_id, ()))
    yield from (node_id for node_id in nodes if node_id not in seen)


def _by_place(nodes: Mapping[str, JsonObject]) -> list[str]:
    """The ids of nodes, siblings in the order in which their parent names them."""
    places = {
        child: place for node in nodes.values() for place, child in enumerate(list_of(node, "children"))
        if isinstance(child, str)
    }  # fmt: skip
    return sorted(nodes, key=lambda node_id: places.get(node_id, 0))


def _contents(content: JsonObject) -> Iterator[str | JsonObject]:
    """What a message says, by its type: texts and other parts."""
    kind = text_of(content, "content_type") or ""
    reader = _TEXTS.get(kind)
    if reader is not None:
        texts: list[Any] = reader(content)
    elif "parts" in content:
        texts = list_of(content, "parts")
    else:
        texts = [content.get(key) for key in ("title", "url", "text", "result", "content")]
    for text in texts:
        if isinstance(text, dict) or (isinstance(text, str) and text):
            yield text


# type of content -> its texts, where they are not in `parts` or under the usual names
_TEXTS: Final[dict[str, Callable[[JsonObject], list[Any]]]] = {
    "user_editable_context": lambda content: [content.get("user_profile"), content.get("user_instructions")],
    "model_editable_context": lambda content: [content.get("model_set_context")],
    "system_error": lambda content: [content.get("name"), content.get("text")],
    "code": lambda content: [content.get("text")],
}


def _call(node_id: str, name: str, content: JsonObject) -> JsonObject:
    """What the model sends to a tool; a program that is no JSON object is the argument `input`."""
    text = "\n".join(part for part in _contents(content) if isinstance(part, str))
    try:
        is_object = isinstance(loads(text.encode()), dict)
    except ValueError:
        is_object = False
    return make.call(name, text if is_object else {"input": text}, node_id)


def _citation(citation: Any) -> Mapping[str, object] | None:
    """A quotation as Open Responses has it; None for one without an address or a place."""
    metadata = object_of(citation, "metadata")
    url = text_of(metadata, "url")
    places = [citation.get(key) for key in ("start_ix", "end_ix")] if isinstance(citation, dict) else []
    if url is None or not all(isinstance(place, int) and not isinstance(place, bool) for place in places):
        return None
    title = text_of(metadata, "title") or ""
    return {"type": "url_citation", "url": url, "title": title, "start_index": places[0], "end_index": places[1]}
