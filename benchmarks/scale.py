"""How much is measured: a full run, or a quick one that shows that everything works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of a run, and the folder for its SQLite files."""

    folder: Path
    rounds: int = 15
    sizes: tuple[int, ...] = (20, 200, 2_000)  # items of a conversation
    imported: int = 1_000  # conversations
    import_rounds: int = 5
    session_bytes: int = 500_000_000  # of coding agents, which are imported
    listed: int = 100_000  # conversations
    turns: int = 25  # of each of the writers
    writer_rounds: int = 5
    starts: int = 9  # fresh processes
    ledger: int = 1_000_000  # attempts
    documents: tuple[int, int] = (20_000, 200_000)  # of the search, few and many
    items: int = 2_000_000  # of a large store
    bodies: int = 1_000_000  # raw ones, of a month
    streams: int = 500  # of the server, at once
    call_rounds: int = 9  # of calls of the server
    recorded: int = 5_000  # calls, after which the memory of the server is read
    against: Path | None = None  # the sources of another build, of calls of the server, and of imports


def quick(folder: Path) -> Scale:
    return Scale(
        folder, rounds=2, session_bytes=20_000_000, imported=200, import_rounds=1, listed=20_000,
        turns=10, writer_rounds=1, starts=3,
        ledger=50_000, documents=(2_000, 20_000), items=200_000, bodies=20_000, streams=100, call_rounds=2,
        recorded=500,
    )  # fmt: skip
