"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a run; the defaults keep it under ten minutes."""

    rounds: int = 4
    items: tuple[int, ...] = (20, 200, 2_000)  # of a conversation
    imported: int = 100  # conversations, fewer of a library that needs longer than `import_seconds` for them
    import_seconds: float = 0.7
    searched: int = 100  # conversations
    writers: tuple[int, ...] = (16, 64)
    turns: int = 8  # of each writer


QUICK = Sizes(rounds=2, items=(20, 200), imported=20, import_seconds=0.5, searched=20, writers=(16,), turns=3)
FULL = Sizes(rounds=15, imported=1_000, import_seconds=20.0, searched=1_000, turns=25)
