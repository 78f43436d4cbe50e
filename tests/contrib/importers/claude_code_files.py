"""Sessions as Claude Code writes them: lines that follow each other, answers in pieces, agents, and broken lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

BEGUN = datetime(2025, 9, 1, 8, tzinfo=UTC)


@dataclass
class Session:
    """A session that grows line by line, and what must be stored of it.

    Attributes:
        items, responses: how many of them there are.
        output_tokens: those of its responses, each counted once.
        texts: what was said on the branch that is the newest, in order.
    """

    random: Random
    lines: list[str] = field(default_factory=list)
    items: int = 0
    responses: int = 0
    output_tokens: int = 0
    broken: int = 0
    texts: list[str] = field(default_factory=list)
    prompts: list[tuple[str | None, list[str]]] = field(default_factory=list)  # where the user could begin again
    last: str | None = None
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self._uuid()

    def _uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def line(self, kind: str, message: dict[str, Any] | None, parent: str | None, **more: Any) -> str:
        """Write a line that has a place in the session, and return its id."""
        uuid = self._uuid()
        at = (BEGUN + timedelta(seconds=len(self.lines))).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        value = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/srv/ada/shop",
            "sessionId": self.id, "version": "2.0.14", "gitBranch": "main", "type": kind, "uuid": uuid, "timestamp": at,
        }  # fmt: skip
        self.lines.append(json.dumps(value | ({} if message is None else {"message": message}) | more))
        return uuid

    def prompt(self, text: str) -> None:
        """The user says something."""
        self.prompts.append((self.last, list(self.texts)))
        self.last = self.line("user", {"role": "user", "content": text}, self.last)
        self.items += 1
        self.texts.append(text)

    def rewind(self) -> None:
        """The user goes back to before an earlier prompt."""
        self.last, texts = self.random.choice(self.prompts)
        self.texts = list(texts)

    def answer(self, text: str | None, calls: int = 0) -> None:
        """The model answers, a line for each block; results follow the lines of their calls."""
        id_, usage = f"msg_{self.random.getrandbits(64):016x}", {"input_tokens": 9, "output_tokens": 1}
        blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]
        blocks += [{"type": "text", "text": text}] if text is not None else []
        names = [f"toolu_{self.random.getrandbits(64):016x}" for _ in range(calls)]
        blocks += [{"type": "tool_use", "id": name, "name": "Read", "input": {"file": name}} for name in names]
        ends: dict[str, str] = {}
        for block in blocks:
            usage = {**usage, "output_tokens": usage["output_tokens"] + 7}
            message = {
                "id": id_, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [block],
                "stop_reason": None, "usage": usage,
            }  # fmt: skip
            self.last = self.line("assistant", message, self.last, requestId=f"req_{id_[4:]}")
            ends[block.get("id", "")] = self.last
        for name in names:
            content = [{"type": "tool_result", "tool_use_id": name, "content": f"of {name}"}]
            self.last = self.line("user", {"role": "user", "content": content}, ends[name], toolUseResult={"file": 1})
        self.items += len(blocks) + len(names)
        self.responses += 1
        self.output_tokens += usage["output_tokens"]
        self.texts += [] if text is None else [text]

    def noise(self) -> None:
        """Something that is no message: a step of the program, a note, or a line that is damaged."""
        match self.random.randrange(4):
            case 0:
                self.last = self.line("progress", None, self.last, data={"type": "hook_progress"})
            case 1:
                self.last = self.line("system", None, self.last, subtype="local_command", content="/clear")
            case 2:
                self.lines.append(json.dumps({"type": "queue-operation", "operation": "enqueue", "sessionId": self.id}))
            case 3:
                self.lines.append('{"type":"user","uuid":"' + self._uuid())
                self.broken += 1

    def grow(self, turns: int) -> None:
        """Let it go on."""
        for _ in range(turns):
            number = len(self.lines)
            if self.prompts and self.random.random() < 0.2:
                self.rewind()
            self.prompt(f"question {number}")
            for _ in range(self.random.randrange(3)):
                self.answer(None, calls=self.random.randrange(1, 4))
                if self.random.random() < 0.3:
                    self.noise()
            self.answer(f"answer {number}")
            if self.random.random() < 0.3:
                self.noise()

    def text(self) -> str:
        """The file."""
        return "".join(f"{line}\n" for line in self.lines)


def a_session(seed: int, turns: int = 5) -> Session:
    """A session of so many turns."""
    session = Session(Random(seed))
    session.grow(turns)
    return session
