"""Names of functions as providers get them: most take letters, digits, `_` and `-`, and others are replaced."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

# characters of a name that most providers refuse, and those that all do
REFUSED_BY_MOST: Final = re.compile("[^A-Za-z0-9_-]")
REFUSED_BY_ALL: Final = re.compile("[^A-Za-z0-9_.:-]")
_BEGINNING: Final = re.compile("[A-Za-z_]")


def qualified_name(call: Mapping[str, Any]) -> Any:
    """Return the name of a tool, or of the one that a call names, with its namespace before it.

    >>> qualified_name({"name": "find", "namespace": "crm"}), qualified_name({"name": "find"})
    ('crm.find', 'find')
    """
    name, namespace = call.get("name"), call.get("namespace")
    return f"{namespace}.{name}" if namespace and isinstance(namespace, str) and isinstance(name, str) else name


def hashed(original: str, position: int | None = None) -> str:
    """Return 32 hexadecimal digits that stand for a text (at a position, where the same text occurs twice)."""
    text = original if position is None else f"{original}\0{position}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def stands_for(sent: str, name: str) -> bool:
    """Return whether a function was sent under one name because a provider does not take another.

    >>> stands_for("github_search", "github.search"), stands_for("search", "github.search")
    (True, False)
    """
    cleaned = {refused.sub("_", name) for refused in (REFUSED_BY_MOST, REFUSED_BY_ALL)}
    bare = sent.removeprefix("_")  # put before a name that does not begin as names do
    is_bare = bare in cleaned and not _BEGINNING.match(bare)
    return sent in cleaned or is_bare or sent.endswith(f"_{hashed(name)}")
