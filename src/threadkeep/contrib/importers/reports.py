"""What an import did: how much was read, stored, unchanged and skipped, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from threadkeep.contrib.importers.records import Skipped

SHOWN: Final = 1_000  # what was skipped is listed up to here, and counted beyond


@dataclass(slots=True)
class Count:
    """How many were read: `read` is the sum of those stored, unchanged (there already) and skipped."""

    stored: int = 0
    unchanged: int = 0
    skipped: int = 0

    @property
    def read(self) -> int:
        """How many were read."""
        return self.stored + self.unchanged + self.skipped

    def values(self) -> dict[str, int]:
        """The counts by their names, without the sum."""
        return {"stored": self.stored, "unchanged": self.unchanged, "skipped": self.skipped}

    def add(self, *, stored: int = 0, unchanged: int = 0, skipped: int = 0) -> None:
        """Count more of them."""
        self.stored += stored
        self.unchanged += unchanged
        self.skipped += skipped


@dataclass(slots=True)
class ImportReport:
    """What `import_from` did, or with `dry_run` would have done.

    Attributes:
        conversations: `stored` are those that were created or got something new.
        created: the number of conversations among these that were created.
        items, responses: those of all conversations that were read.
        attempts: the number of rows that were added to the ledger.
        skipped: what was not imported and why, at most 1,000 of these.
        reasons: how much was skipped for each reason.
        sources: the number of files by the name of their source.
        is_dry_run: whether nothing was written.
    """

    conversations: Count = field(default_factory=Count)
    created: int = 0
    items: Count = field(default_factory=Count)
    responses: Count = field(default_factory=Count)
    attempts: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    is_dry_run: bool = False

    def skip(self, *skipped: Skipped) -> None:
        """Note what is not imported."""
        for one in skipped:
            self.reasons[one.why] = self.reasons.get(one.why, 0) + one.count
            if len(self.skipped) < SHOWN:
                self.skipped.append(one)
