"""Exports as ChatGPT, Claude.ai and Codex write them: trees, calls, thoughts, media and usage; and broken entries."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

BEGUN = 1_730_000_000  # 2024-10-27, in seconds
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
BROKEN: tuple[Any, ...] = (7, None, "text", [], {}, {"title": "no messages"}, {"mapping": 3, "id": "x"})


@dataclass
class Export:
    """Conversations of an export, as JSON, and what must be stored of them.

    Attributes:
        items: how many items each conversation has, by its id.
        texts: what is said on the active branch of each.
        broken: how many elements are no conversations.
    """

    values: list[Any] = field(default_factory=list)
    items: dict[str, int] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    broken: int = 0

    def write(self, folder: Path, name: str = "conversations.json") -> Path:
        """The file that is not in an archive."""
        path = folder / name
        path.write_text(json.dumps(self.values))
        return path

    def archive(self, folder: Path, **media: bytes) -> Path:
        """The archive with other files beside the conversations."""
        path = folder / "export.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("conversations.json", json.dumps(self.values))
            archive.writestr("user.json", json.dumps({"id": "user-1"}))
            for file_name, content in media.items():
                archive.writestr(file_name, content)
        return path


@dataclass
class _Tree:
    """Messages that follow each other, with turns that begin again."""

    random: Random
    id: str
    nodes: list[tuple[str, str | None, str, dict[str, Any]]] = field(default_factory=list)  # id, parent, text, message
    items: int = 0

    def add(self, parent: str | None, message: dict[str, Any], text: str = "", items: int = 1) -> str:
        name = f"{self.id}-{len(self.nodes)}"
        self.nodes.append((name, parent, text, message))
        self.items += items
        return name

    def path_texts(self, last: str | None) -> list[str]:
        """What is said up to a node."""
        parents = {name: (parent, text) for name, parent, text, _ in self.nodes}
        texts: list[str] = []
        while last is not None:
            last, text = parents[last]
            texts += [text] if text else []
        return texts[::-1]

    def children(self, name: str) -> list[str]:
        return [child for child, parent, _, _ in self.nodes if parent == name]


def chatgpt(seed: int, conversations: int = 3, turns: int = 4) -> Export:
    """An export of ChatGPT; more turns are added to the same conversations."""
    export = Export()
    for number in range(conversations):
        random = Random(f"{seed}.{number}")
        tree = _Tree(random, f"gpt-{seed}-{number}")
        last = tree.add(None, {}, items=0)
        prompts = [last]
        for turn in range(turns):
            last = _chatgpt_turn(tree, random.choice(prompts) if random.random() < 0.3 else last, turn, prompts)
        export.values.append(_chatgpt_value(tree, last))
        export.items[tree.id], export.texts[tree.id] = tree.items, tree.path_texts(last)
    _break(export, Random(seed))
    return export


def _chatgpt_turn(tree: _Tree, last: str, turn: int, prompts: list[str]) -> str:
    random, question = tree.random, f"question {turn} of {tree.id}"
    prompts.append(last)
    last = tree.add(last, _said("user", {"content_type": "text", "parts": [question]}), question)
    request = {"model_slug": "gpt-5", "request_id": f"{tree.id}-{turn}"}
    if random.random() < 0.5:
        thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "Look it up"}]}
        last = tree.add(last, _said("assistant", thoughts, metadata=request))
    if random.random() < 0.5:
        code = {"content_type": "code", "language": "python", "text": "print(6 * 7)"}
        last = tree.add(last, _said("assistant", code, recipient="python", metadata=request))
        last = tree.add(last, _said("tool", {"content_type": "execution_output", "text": "42"}, name="python"))
    answer = f"answer {turn} of {tree.id}"
    return tree.add(last, _said("assistant", {"content_type": "text", "parts": [answer]}, metadata=request), answer)


def _said(role: str, content: dict[str, Any], *, name: str | None = None, **more: Any) -> dict[str, Any]:
    author: dict[str, Any] = {"role": role, "name": name, "metadata": {}}
    return {"author": author, "content": content, "recipient": "all", "weight": 1.0, "metadata": {}, **more}


def _chatgpt_value(tree: _Tree, last: str) -> dict[str, Any]:
    mapping = {
        name: {
            "id": name, "parent": parent, "children": tree.children(name),
            "message": {"id": name, "create_time": BEGUN + number, **message} if message else None,
        }
        for number, (name, parent, _, message) in enumerate(tree.nodes)
    }  # fmt: skip
    return {
        "title": f"About {tree.id}", "create_time": BEGUN + 0.5, "update_time": BEGUN + 99.5, "mapping": mapping,
        "current_node": last, "conversation_id": tree.id, "default_model_slug": "gpt-5", "is_archived": False,
    }  # fmt: skip


def claude_ai(seed: int, conversations: int = 3, turns: int = 4) -> Export:
    """An export of Claude.ai; more turns are added to the same conversations."""
    export = Export()
    for number in range(conversations):
        random = Random(f"{seed}.{number}")
        tree = _Tree(random, f"claude-{seed}-{number}")
        last: str | None = None
        prompts: list[str | None] = []
        for turn in range(turns):
            begin = random.choice([*prompts, last]) if random.random() < 0.3 else last
            prompts.append(begin)
            question, answer = f"question {turn} of {tree.id}", f"answer {turn} of {tree.id}"
            message: dict[str, Any] = {"sender": "human", "text": question, "content": [_text(question)]}
            if random.random() < 0.2:
                message["attachments"] = [{"file_name": "a.txt", "extracted_content": "A"}]
                question += "a.txt\n\nA"
            last = tree.add(begin, message, question)
            blocks, items = _claude_blocks(random, answer)
            last = tree.add(last, {"sender": "assistant", "text": answer, "content": blocks}, answer, items)
        export.values.append(_claude_value(tree, last))
        export.items[tree.id], export.texts[tree.id] = tree.items, tree.path_texts(last)
    _break(export, Random(seed))
    return export


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": []}


def _claude_blocks(random: Random, answer: str) -> tuple[list[dict[str, Any]], int]:
    blocks: list[dict[str, Any]] = []
    if random.random() < 0.5:
        blocks.append({"type": "thinking", "thinking": "Hm.", "summaries": [{"summary": "Thinks"}]})
    if random.random() < 0.5:
        blocks.append({"type": "tool_use", "id": None, "name": "web_search", "input": {"query": "weather"}})
        blocks.append({"type": "tool_result", "name": "web_search", "content": [_text("Rain")], "is_error": False})
    blocks.append(_text(answer))
    return blocks, len(blocks)


def _claude_value(tree: _Tree, last: str | None) -> dict[str, Any]:
    messages = [
        {
            "uuid": name, "parent_message_uuid": parent or "00000000-0000-4000-8000-000000000000",
            "created_at": f"2024-10-27T03:{number // 60:02}:{number % 60:02}.000000Z", "attachments": [], "files": [],
            **message,
        }
        for number, (name, parent, _, message) in enumerate(tree.nodes)
    ]  # fmt: skip
    return {
        "uuid": tree.id, "name": f"About {tree.id}", "account": {"uuid": "account-1"},
        "created_at": "2024-10-27T03:00:00.000000Z", "updated_at": "2024-10-27T04:00:00.000000Z",
        "chat_messages": messages, "current_leaf_message_uuid": last,
    }  # fmt: skip


def _break(export: Export, random: Random) -> None:
    """Put elements that are no conversations between the others, but not first."""
    for _ in range(random.randrange(1, 4)):
        export.values.insert(random.randrange(1, len(export.values) + 1), random.choice(BROKEN))
        export.broken += 1


@dataclass
class Rollout:
    """A session of Codex, and what must be stored of it."""

    random: Random
    id: str
    lines: list[str] = field(default_factory=list)
    items: int = 0
    responses: int = 0
    total: dict[str, int] = field(default_factory=lambda: {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0})
    texts: list[str] = field(default_factory=list)

    def line(self, kind: str, payload: dict[str, Any]) -> None:
        at = f"2025-09-01T08:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}.000Z"
        self.lines.append(json.dumps({"timestamp": at, "type": kind, "payload": payload}))

    def begin(self, **more: Any) -> None:
        git = {"branch": "main", "commit_hash": "0a1b"}
        about = {"id": self.id, "timestamp": "2025-09-01T08:00:00.000Z", "cwd": "/srv/ada/shop", "git": git}
        self.line("session_meta", about | {"cli_version": "0.58.0", "instructions": "Be brief."} | more)

    def copy(self, other: Rollout) -> None:
        """What another session had, as it is written into a fork: all at once."""
        for number, line in enumerate(other.lines):
            self.lines.append(json.dumps({**json.loads(line), "timestamp": f"2025-09-01T08:00:00.{number:03}Z"}))
        self.items, self.total, self.texts = other.items, other.total, list(other.texts)

    def item(self, **payload: Any) -> None:
        self.line("response_item", payload)
        self.items += 1

    def count(self, *, is_repeated: bool) -> None:
        """The usage of a response: 10 tokens in, 3 out."""
        last = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
        self.total = {name: count + last[name] for name, count in self.total.items()}
        self.responses += 1
        for _ in range(1 + is_repeated):
            info = {"total_token_usage": self.total, "last_token_usage": last}
            self.line("event_msg", {"type": "token_count", "info": info, "rate_limits": None})

    def grow(self, turns: int) -> None:
        for _ in range(turns):
            number = len(self.lines)
            question, answer = f"question {number}", f"answer {number}"
            self.line("turn_context", {"cwd": "/srv/ada/shop", "model": "gpt-5-codex", "effort": "high"})
            self.item(type="message", role="user", content=[{"type": "input_text", "text": question}])
            self.line("event_msg", {"type": "user_message", "message": question})
            for call in range(self.random.randrange(3)):
                name = f"call_{number}_{call}"
                self.item(type="reasoning", summary=[], content=None, encrypted_content="gAAA")
                self.item(type="function_call", name="shell", arguments="{}", call_id=name)
                self.item(type="function_call_output", call_id=name, output="done")
                self.count(is_repeated=self.random.random() < 0.5)
            self.item(type="message", role="assistant", content=[{"type": "output_text", "text": answer}])
            self.count(is_repeated=self.random.random() < 0.5)
            self.texts += [question, answer]

    def write(self, folder: Path) -> Path:
        path = folder / f"rollout-2025-09-01T08-00-00-{self.id}.jsonl"
        path.write_text("".join(f"{line}\n" for line in self.lines))
        return path


def a_rollout(seed: int, turns: int = 4) -> Rollout:
    rollout = Rollout(Random(seed), f"0199{seed:04}")
    rollout.begin()
    rollout.grow(turns)
    return rollout


def large_export(source: str, size: int) -> Iterator[bytes]:
    """The bytes of an export of a source of about that size: conversations of some hundred kilobytes."""
    written, number = 0, 0
    yield b"["
    while written < size:
        data = json.dumps({"chatgpt": _long_chatgpt, "claude-ai": _long_claude}[source](number)).encode()
        yield (b"," if number else b"") + data
        written, number = written + len(data), number + 1
    yield b"]"


def _long_texts(number: int) -> Iterator[tuple[bool, str]]:
    """What is said in a long conversation, and whether a person says it."""
    for turn in range(20):
        yield turn % 2 == 0, f"turn {turn} of {number}: " + "several words of an answer " * 300


def _long_chatgpt(number: int) -> dict[str, Any]:
    tree = _Tree(Random(number), f"large-{number}")
    last = tree.add(None, {}, items=0)
    for is_question, text in _long_texts(number):
        content = {"content_type": "text", "parts": [text]}
        last = tree.add(last, _said("user" if is_question else "assistant", content))
    return _chatgpt_value(tree, last)


def _long_claude(number: int) -> dict[str, Any]:
    tree, last = _Tree(Random(number), f"large-{number}"), None
    for is_question, text in _long_texts(number):
        message = {"sender": "human" if is_question else "assistant", "text": text, "content": [_text(text)]}
        last = tree.add(last, message)
    return _claude_value(tree, last)
