"""The views of a stored item that are not needed to render it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.given import given_item
from threadkeep.formats.canonical.view import canonical_item


@dataclass(frozen=True, slots=True)
class ItemViews:
    """A stored item as OpenAI's clients validate it, and as it was given."""

    entry: Entry
    given_text: bytes | str | None = None

    def canonical(self, item_id: str) -> Any:
        """As OpenAI's clients validate it."""
        return canonical_item(self.entry, item_id)

    def given(self) -> Any:
        """As it was given."""
        return given_item(self.entry, self.given_text)
