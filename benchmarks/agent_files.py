"""Sessions as Codex and Claude Code write them: generated files, as many bytes as are asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

_TEXT: Final = (
    'the of to and a in is it you that was for on are with as at be one have this from or by but what all when "x": 1} '
    "def return import self class None True error: failed src/main.py tests/test_a.py 0x7f \\n é ü {"
)
WORDS: Final = _TEXT.split()
MOST_TURNS: Final = 300

Json = dict[str, Any]


def write_sessions(folder: Path, size: int) -> int:
    """Write sessions of both agents in turns, so many bytes; returns how many bytes there are."""
    lengths, written, seed = Random(size), 0, 0
    while written < size:
        turns = min(max(int(lengths.lognormvariate(2.2, 1.0)), 1), MOST_TURNS)
        made = (_ClaudeCode if seed % 2 else _Codex)(seed)
        made.grow(turns)
        path = folder / made.path
        path.parent.mkdir(parents=True, exist_ok=True)
        written += path.write_bytes("".join(f"{line}\n" for line in made.lines).encode())
        seed += 1
    return written


class _Session:
    path: str

    def __init__(self, seed: int) -> None:
        self.random, self.lines = Random(seed), list[str]()
        self.at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=self.random.randrange(10**7))
        self.id = self.uuid()

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def name(self, prefix: str) -> str:
        return f"{prefix}_{self.random.getrandbits(96):024x}"

    def text(self, size: int) -> str:
        """A text of about that size; some are much longer."""
        size = max(int(size * self.random.lognormvariate(0, 0.8)), 8)
        block = " ".join(self.random.choices(WORDS, k=min(size // 5 + 1, 300)))
        return (block * (size // len(block) + 1))[:size]

    def now(self) -> str:
        self.at += timedelta(milliseconds=self.random.randrange(20, 9_000))
        return self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def write(self, line: Json) -> None:
        self.lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))

    def grow(self, turns: int) -> None:
        for _ in range(turns):
            self.ask(self.text(200))
            for _ in range(self.random.randrange(1, 9)):
                self.step()
            self.answer(self.text(600))

    def ask(self, text: str) -> None:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def answer(self, text: str) -> None:
        raise NotImplementedError


class _ClaudeCode(_Session):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.path = f"projects/-srv-shop/{self.id}.jsonl"
        self.last: str | None = None

    def ask(self, text: str) -> None:
        self.line("user", {"role": "user", "content": text})

    def answer(self, text: str) -> None:
        self.blocks([{"type": "text", "text": text}], "end_turn")

    def line(self, kind: str, message: Json, **more: Any) -> None:
        uuid = self.uuid()
        about = {"isSidechain": False, "userType": "external", "cwd": "/srv/shop", "sessionId": self.id}
        about |= {"version": "2.1.0", "gitBranch": "main", "type": kind, "message": message}
        self.write({"parentUuid": self.last, **about, "uuid": uuid, "timestamp": self.now(), **more})
        self.last = uuid

    def blocks(self, blocks: list[Json], reason: str) -> None:
        counts = {"input_tokens": 9, "cache_read_input_tokens": self.random.randrange(90_000), "output_tokens": 300}
        message = {"model": "claude-sonnet-4-5-20250929", "id": self.name("msg"), "type": "message", "usage": counts}
        for block in blocks:
            self.line("assistant", {**message, "role": "assistant", "content": [block], "stop_reason": reason})

    def step(self) -> None:
        thought = {"type": "thinking", "thinking": self.text(300), "signature": self.text(400).replace(" ", "A")}
        said = {"type": "text", "text": self.text(250)}
        given = {"command": self.text(120), "description": self.text(40)}
        call = {"type": "tool_use", "id": self.name("toolu"), "name": "Bash", "input": given}
        self.blocks([*self.random.choice(([thought, said], [thought], [said], [])), call], "tool_use")
        output = self.text(1_200)
        content = [{"tool_use_id": call["id"], "type": "tool_result", "content": output, "is_error": False}]
        self.line("user", {"role": "user", "content": content}, toolUseResult={"stdout": output, "stderr": ""})


class _Codex(_Session):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.path = f"sessions/{self.at:%Y/%m/%d}/rollout-{self.at:%Y-%m-%dT%H-%M-%S}-{self.id}.jsonl"
        self.total = 0
        base = {"base_instructions": {"text": self.text(8_000)}, "git": {"branch": "main"}}
        self.line("session_meta", {"id": self.id, "timestamp": self.now(), "cwd": "/srv/shop", **base})

    def line(self, kind: str, payload: Json) -> None:
        self.write({"timestamp": self.now(), "type": kind, "payload": payload})

    def item(self, kind: str, **keys: Any) -> None:
        self.line("response_item", {"type": kind, **keys})

    def count(self) -> None:
        used = {"input_tokens": self.random.randrange(9_000, 90_000), "cached_input_tokens": 8_000, "output_tokens": 99}
        self.total += used["input_tokens"]
        info = {"total_token_usage": {**used, "input_tokens": self.total}, "last_token_usage": used}
        self.line("event_msg", {"type": "token_count", "info": info})

    def ask(self, text: str) -> None:
        self.line("turn_context", {"cwd": "/srv/shop", "approval_policy": "on-request", "model": "gpt-5.4"})
        self.item("message", role="user", content=[{"type": "input_text", "text": text}])
        self.line("event_msg", {"type": "user_message", "message": text, "images": []})

    def step(self) -> None:
        thought = self.text(120)
        summary = [{"type": "summary_text", "text": thought}]
        self.line("event_msg", {"type": "agent_reasoning", "text": thought})
        self.item("reasoning", summary=summary, content=None, encrypted_content=self.text(1_000).replace(" ", "A"))
        call_id, given = self.name("call"), json.dumps({"cmd": self.text(120), "workdir": "/srv/shop"})
        self.item("function_call", name="exec_command", arguments=given, call_id=call_id)
        self.count()
        self.item("function_call_output", call_id=call_id, output=self.text(1_500))

    def answer(self, text: str) -> None:
        self.line("event_msg", {"type": "agent_message", "message": text})
        self.item("message", role="assistant", content=[{"type": "output_text", "text": text}], phase="final_answer")
        self.count()
