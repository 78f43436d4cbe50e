"""How much an import takes: statements of a conversation, and memory of an export of any size."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.conftest import is_set
from tests.contrib.importers.claude_code_files import Session, a_session
from tests.contrib.importers.export_files import large_export
from threadkeep import Store
from threadkeep.contrib.importers import Entry, Input, SourceReport, Transcript, import_from, trees

SIZE = 1 << 30 if is_set("THREADKEEP_LONG") else 1 << 25
MEMORY = 300 * 1024  # KiB
PROGRAM = """
import sys
from pathlib import Path
from threadkeep import Store
from threadkeep.contrib.importers import import_from
report = import_from(Store("sqlite:///" + sys.argv[2]), sys.argv[1])
# not ru_maxrss, which a program takes over from the process that starts it
[peak] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(report.conversations.stored, peak)
"""


def statements_of(target: Store, path: Path) -> list[str]:
    """The statements of an import, but for the rows that some of them write many of."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    engine = target.handle.root.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        import_from(target, path)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return seen


def test_a_long_conversation_takes_as_many_statements_as_a_short_one(target: Store, tmp_path: Path) -> None:
    """New ones, and those that have grown: with branches, responses and usage."""
    counts = []
    for seed, turns in ((1, 3), (2, 30)):
        session = a_session(seed, turns)
        path = tmp_path / f"{session.id}.jsonl"
        path.write_text(session.text())
        new = len(statements_of(target, path))
        grow(session, turns)
        path.write_text(session.text())
        counts.append((new, len(statements_of(target, path)), len(statements_of(target, path))))
    short, long = counts
    assert all(many <= few + 1 for few, many in zip(short, long, strict=True)), counts
    assert max(map(max, counts)) <= 30


def grow(session: Session, turns: int) -> None:
    """Let it go on where it ended, in a row."""
    for number in range(turns):
        session.prompt(f"more {number}")
        session.answer(f"answer {number}", calls=2)


class Chat:
    """A source of one conversation in lines: in a row, but that each tenth of them begins a branch."""

    name = "chat"

    def recognizes(self, input: Input, /) -> bool:
        return input.name.endswith(".chat")

    def read(self, input: Input, /) -> Iterator[Transcript]:
        with input.open() as file:
            texts = file.read().decode().split()
        entries = [Entry(text, parent, [{"role": "user", "content": text}]) for text, parent in in_a_row(texts)]
        yield Transcript("1", input.name, entries)


def in_a_row(texts: list[str]) -> Iterator[tuple[str, str | None]]:
    """Texts, each with the one that it follows."""
    last = None
    for number, text in enumerate(texts):
        yield text, last
        if number % 10 != 9 or number > 1_000:
            last = text


def import_texts(target: Store, path: Path, count: int) -> SourceReport:
    path.write_text(" ".join(map(str, range(count))))
    return import_from(target, path, Chat())


@pytest.mark.parametrize(("part", "piece"), [(120, 5), (1_000, 3), (10_000, 50_000)])
def test_what_is_remembered_of_long_conversations_is_in_parts(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, piece: int
) -> None:
    monkeypatch.setattr(trees, "PART", part)
    monkeypatch.setattr(trees, "PIECE", piece)
    path, stored = tmp_path / "a.chat", 0
    for count in (1, 40, 41, 41, 95, 200):
        assert import_texts(target, path, count).items.values() == {
            "stored": count - stored, "unchanged": stored, "skipped": 0,
        }  # fmt: skip
        stored = count
    conversation = target.find_conversation(external_id="chat:1")
    assert conversation is not None
    states = conversation.states()
    assert (len(states) > 1) == (part < 10_000)
    assert all(len(json.dumps(state.value)) < 2 * part for state in states)
    assert target.statistics().branches == 19
    assert not target.check().findings


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_conversation_of_120_000_messages_is_imported(target: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.chat"
    assert import_texts(target, path, 120_000).items.stored == 120_000
    report = import_texts(target, path, 120_010)
    assert (report.items.stored, report.items.unchanged, report.skipped) == (10, 120_000, [])
    conversation = target.find_conversation(external_id="chat:1")
    assert conversation is not None
    assert sorted(state.name for state in conversation.states()) == ["import", "import.2"]
    [newest] = conversation.items(order="desc", limit=1)
    assert newest.item.to_dict()["content"] == [{"type": "input_text", "text": "120009"}]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory a process had")
@pytest.mark.parametrize("source", ["chatgpt", "claude-ai"])
def test_memory_does_not_depend_on_the_size_of_an_export(source: str, tmp_path: Path) -> None:
    """32 MiB in the suite, 1 GiB with THREADKEEP_LONG; at most 300 MiB of memory."""
    path = tmp_path / "conversations.json"
    with path.open("wb") as file:
        file.writelines(large_export(source, SIZE))
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "chat.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    stored, peak = map(int, done.stdout.split())
    assert stored > 100
    assert peak < MEMORY
