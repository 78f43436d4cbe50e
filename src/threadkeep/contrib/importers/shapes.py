"""Reading JSON that may have any shape: values of the expected type, or None."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from threadkeep.domain.jsontext import JsonObject, dumps_any


def text_of(value: Any, key: str) -> str | None:
    """The text at a key of what should be an object, if there is one that is not empty."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) and found else None


def object_of(value: Any, key: str) -> JsonObject:
    """The object at a key; empty where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def list_of(value: Any, key: str) -> list[Any]:
    """The list at a key; empty where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def time_of(value: Any, key: str) -> datetime | None:
    """The time at a key: a text in ISO 8601 (UTC, if it does not say otherwise), or a number of seconds."""
    found = value.get(key) if isinstance(value, dict) else None
    try:
        if isinstance(found, str):
            at = datetime.fromisoformat(found)
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return datetime.fromtimestamp(found, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def revision_of(value: Any) -> str:
    """A digest of a JSON value, which tells an entry from what it was before, and from those of other files."""
    return blake2b(dumps_any(value), digest_size=6).hexdigest()
