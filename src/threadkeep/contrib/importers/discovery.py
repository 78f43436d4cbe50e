"""What coding agents and other clients have stored on a machine: found, imported, gone on with, and followed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import Event
from typing import Any, Final

from threadkeep.contrib.importers import engine, inputs, records
from threadkeep.domain.jsontext import loads
from threadkeep.errors import InvalidOption, NotFound
from threadkeep.store.store import Store

# source -> where its files are, below the home of a user
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": (".claude/projects/**/*.jsonl",),
    "codex": (".codex/sessions/**/*.jsonl", ".codex/archived_sessions/**/*.jsonl"),
    "gemini-cli": (".gemini/tmp/*/chats/**/*.jsonl",),
    "opencode": (".local/share/opencode/opencode.db",),
    "qwen-code": (".qwen/projects/*/chats/*.jsonl", ".qwen/projects/*/subagents/*/*.jsonl"),
    "cline": (".cline/data/sessions/**/*.messages.json",),
    "pi": (".pi/agent/sessions/**/*.jsonl",),
    "llm": (".config/io.datasette.llm/logs.db", "Library/Application Support/io.datasette.llm/logs.db"),
}
INTERVAL: Final = 2.0  # seconds from one look at the files to the next
MARKS_VERSION: Final = 1

Mark = tuple[int, int]  # bytes of a file, and when it was changed, in nanoseconds


def mark_of(path: Path) -> Mark | None:
    """The size and time of a file, with the log that SQLite writes beside it; None if it is gone."""
    try:
        found = [path.stat()]
    except OSError:
        return None
    with suppress(OSError):
        found.append(path.with_name(f"{path.name}-wal").stat())
    return sum(one.st_size for one in found), max(one.st_mtime_ns for one in found)


@dataclass(slots=True)
class FileMarks:
    """Which files were imported into a store, as they were then: what has not changed is not read again.

    They are kept in a file of the user's. They only hold for as long as the store has the conversation that they name,
    the first one that was imported: of a database that was made anew, everything is imported.
    """

    path: Path | None = None
    witness: str | None = None
    files: dict[str, Mark] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, name: str, folder: Path | None = None) -> FileMarks:
        """The marks for a store that `name` tells from others; `folder`: where they are, by default the user's."""
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        marks = cls((folder or Path(state) / "threadkeep") / f"imported-{digest}.json")
        with suppress(OSError, NotFound, InvalidOption, *records.UNEXPECTED):
            value: Any = loads(Path(str(marks.path)).read_bytes())
            store.get_conversation(value["witness"])
            if value["version"] == MARKS_VERSION:
                marks.witness = value["witness"]
                marks.files = {name: (size, at) for name, (size, at) in value["files"].items()}
        return marks

    def save(self) -> None:
        """Write them, all or nothing; a folder that cannot be written to only means that files are read again."""
        if self.path is None or self.witness is None:
            return
        value = {"version": MARKS_VERSION, "witness": self.witness, "files": self.files}
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(value))
            draft.replace(self.path)
        except OSError:
            draft.unlink(missing_ok=True)


@dataclass(slots=True)
class ClientReport:
    """What was found of a client.

    Attributes:
        source: its source.
        files, size: how many files it has, and their bytes.
        unchanged: how many files were imported before, and have not changed.
        report: what became of the others.
    """

    source: str
    files: int = 0
    size: int = 0
    unchanged: int = 0
    report: records.SourceReport = field(default_factory=records.SourceReport)


class Discovery:
    """The files of clients below a folder, and their import into a store.

    Args:
        store: a `Store`, of one tenant.
        folder: the home of a user.
        marks: which files were imported before.
        user: whose conversations they become.
        dry_run: read everything that has changed, report what would be done, and write nothing.
        stop: is set when the import is to end; it ends behind the file that is being read.
    """

    def __init__(
        self, store: Store, folder: Path, marks: FileMarks, *, user: str | None = None, dry_run: bool = False,
        stop: Event | None = None,
    ) -> None:  # fmt: skip
        self.clients: dict[str, ClientReport] = {}
        self.stop = stop or Event()
        self._store, self._folder, self._marks, self._user, self._is_dry_run = store, folder, marks, user, dry_run
        self._seen: dict[str, Mark] = {}  # as they were when they were read last, also those with faults

    def run(self, progress: Callable[[int], None] = lambda _: None) -> int:
        """Import what has changed; return how many files were read. `progress` is called with the bytes of each."""
        count = 0
        for source, client in self._found():
            for path, mark in client:
                report = self.clients[source]
                name = str(path)
                if self._seen.get(name) == mark or self._marks.files.get(name) == mark:
                    if name not in self._seen:
                        report.unchanged += 1
                    self._seen[name] = mark
                elif self.stop.is_set():
                    return count
                else:
                    self._read(report, path, mark)
                    count += 1
                progress(mark[0])
        return count

    def follow(self, on_news: Callable[[], None] = lambda: None, interval: float = INTERVAL) -> None:
        """Import what changes, until `stop` is set; `on_news` is called when something was."""
        while not self.stop.wait(interval):
            if self.run():
                self._marks.save()
                on_news()

    def _found(self) -> Iterator[tuple[str, list[tuple[Path, Mark]]]]:
        """The files of each client that has some, with their marks."""
        for source, patterns in PLACES.items():
            paths = sorted({path for pattern in patterns for path in self._folder.glob(pattern) if path.is_file()})
            found = [(path, mark) for path in paths if (mark := mark_of(path)) is not None]
            if found:
                client = self.clients.setdefault(source, ClientReport(source))
                client.files, client.size = len(found), sum(mark[0] for _, mark in found)
                client.report.is_dry_run = self._is_dry_run
                yield source, found

    def _read(self, client: ClientReport, path: Path, mark: Mark) -> None:
        """Import a file, and note that it was, unless something of it can be read, or stored, another time."""
        self._seen[str(path)] = mark
        if not engine.SOURCES[client.source].recognizes(inputs.Input(str(path), path)):
            client.report.skip(records.Skipped(str(path), engine.UNRECOGNIZED))
            return
        try:
            found = engine.import_from(self._store, path, client.source, user=self._user, dry_run=self._is_dry_run)
        except InvalidOption as error:  # it is gone by now
            client.report.skip(records.Skipped(str(path), error.message))
            return
        client.report.add(found)
        is_lost = found.conversations.skipped or any(reason.startswith(records.REST) for reason in found.reasons)
        if self._is_dry_run or is_lost:
            return
        self._marks.files[str(path)] = mark
        if self._marks.witness is None:
            first = self._store.list_conversations(limit=1, status=None)
            self._marks.witness = first.items[0].id if first.items else None
