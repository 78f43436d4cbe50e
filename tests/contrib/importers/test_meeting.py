"""Sessions that are recorded and imported: one conversation and one bill, whichever came first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.importers.test_codex import Lines, meta, usage, write
from threadkeep import Conversation, Store
from threadkeep.contrib.importers import import_from

ID = "0d9e3c6a-1f57-4f0b-8f0e-5d3a2b1c4e6f"
REMINDER = "<system-reminder>\nBe careful.\n</system-reminder>"
MODEL = {"codex": "gpt-5.5", "claude-code": "claude-sonnet-5"}


class ClaudeCode:
    """A session of some turns, each a question and an answer: what is sent, what is answered, and what is written."""

    name, format = "claude-code", "messages"

    def request(self, turns: int) -> dict[str, Any]:
        messages: list[Any] = []
        for turn in range(turns):
            text = {"type": "text", "text": f"question {turn}"}
            messages.append({"role": "user", "content": [{"type": "text", "text": REMINDER}, text]})
            messages.append({"role": "assistant", "content": self.answer(turn)["content"]})
        return {"model": MODEL[self.name], "max_tokens": 9, "system": "Be brief.", "messages": messages[:-1]}

    def answer(self, turn: int) -> dict[str, Any]:
        content = [{"type": "text", "text": f"answer {turn}"}]
        counts = {"input_tokens": 9, "output_tokens": turn + 1}
        message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "content": content, "usage": counts}
        return {**message, "stop_reason": "end_turn", "model": MODEL[self.name]}

    def write(self, folder: Path, turns: int) -> None:
        lines, before = [], None
        for turn in range(turns):
            asked = ("user", {"role": "user", "content": f"question {turn}"})
            for kind, message in (asked, ("assistant", self.answer(turn))):
                uuid = f"{kind}-{turn}"
                line = {"uuid": uuid, "parentUuid": before, "sessionId": ID, "type": kind, "message": message}
                lines.append(json.dumps({**line, "timestamp": "2026-11-01T08:00:00Z"}))
                before = uuid
        (folder / f"{ID}.jsonl").write_text("\n".join(lines))


class Codex:
    """The same of Codex."""

    name, format = "codex", "open_responses"

    def _item(self, role: str, turn: int) -> dict[str, Any]:
        kind, text = ("input_text", "question") if role == "user" else ("output_text", "answer")
        return {"type": "message", "role": role, "content": [{"type": kind, "text": f"{text} {turn}"}]}

    def request(self, turns: int) -> dict[str, Any]:
        items = [self._item(role, turn) for turn in range(turns) for role in ("user", "assistant")]
        return {"model": MODEL[self.name], "instructions": "Be brief.", "input": items[:-1]}

    def answer(self, turn: int) -> dict[str, Any]:
        counts = {"input_tokens": 9, "output_tokens": turn + 1, "total_tokens": turn + 10}
        head = {"id": f"resp_{turn}", "object": "response", "status": "completed", "model": MODEL[self.name]}
        return {**head, "output": [self._item("assistant", turn)], "usage": counts}

    def write(self, folder: Path, turns: int) -> None:
        lines: Lines = [meta(ID), ("turn_context", {"model": MODEL[self.name]})]
        for turn in range(turns):
            lines += [("response_item", self._item(role, turn)) for role in ("user", "assistant")]
            lines += usage(f"resp_{turn}", turn + 1, turn + 1)
        write(folder, ID, lines)


def record(store: Store, client: Any, turn: int) -> Conversation:
    """What the recorder does with a call."""
    external_id, labels = f"{client.name}:{ID}", {"recorded": "provider"}
    conversation = store.find_conversation(external_id=external_id)
    if conversation is None:
        conversation = store.create_conversation(external_id=external_id, labels=labels)
    conversation.update(labels={**conversation.labels, **labels})
    conversation.sync_request(client.request(turn + 1), client.format)
    conversation.add_response(client.answer(turn), client.format)
    return conversation


ORDERS: dict[str, list[str]] = {
    "recorded first": ["record", "record", "import"],
    "imported first": ["write", "import", "record", "import"],
    "in turns": ["record", "import", "write", "import", "record", "import", "import"],
    "unrecorded turns at the end": ["record", "write", "write", "import", "import"],
}


@pytest.mark.share(3)
@pytest.mark.parametrize("client", [ClaudeCode(), Codex()], ids=lambda one: one.name)
@pytest.mark.parametrize("order", ORDERS)
def test_a_session_is_one_conversation_with_one_bill(target: Store, tmp_path: Path, client: Any, order: str) -> None:
    turns = 0
    for step in ORDERS[order]:
        if step == "import":
            client.write(tmp_path, turns)
            assert import_from(target, tmp_path).skipped == []
            continue
        if step == "record":
            record(target, client, turns)
        turns += 1
    [conversation] = target.list_conversations(status=None)
    said = [item.item.text.removeprefix(REMINDER) for item in conversation.items()]  # type: ignore[union-attr]
    assert said == [text for turn in range(turns) for text in (f"question {turn}", f"answer {turn}")]
    [bill] = target.usage()
    assert (bill.attempts, bill.output_tokens) == (turns, sum(range(1, turns + 1)))
    assert target.statistics().branches == 0
    assert not target.check().findings


def test_a_conversation_of_others_is_left_alone(target: Store, tmp_path: Path) -> None:
    target.create_conversation(external_id=f"codex:{ID}")
    Codex().write(tmp_path, 1)
    report = import_from(target, tmp_path)
    assert [why for why in report.reasons if "external_id" in why]
