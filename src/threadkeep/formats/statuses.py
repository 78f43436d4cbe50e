"""The status of a response: the provider's word, and what it means here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("threadkeep")


def status_of(word: Any, statuses: Mapping[str, str], format_name: str) -> str:
    """The canonical status for a provider's word; an unknown or empty one means completed, and is logged."""
    found = statuses.get(word) if isinstance(word, str) else None
    if found is None:
        logger.warning("The %s response ended with the unknown word %r; it counts as completed.", format_name, word)
        return "completed"
    return found
