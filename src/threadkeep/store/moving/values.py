"""What the JSON columns of an export must hold that others read too: lists of conversations, and who removes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Table

from threadkeep.db import tables
from threadkeep.domain.jsontext import loads
from threadkeep.domain.rendering import ImportInfo
from threadkeep.errors import InvalidOption
from threadkeep.store.lineage import Part
from threadkeep.store.moving.records import Row


def problem_in(table: Table, row: Row) -> str | None:
    """Return what is wrong with the JSON of a row; None if nothing is."""
    for name, is_right in _COLUMNS.get(table, {}).items():
        text = row[name]
        if text is None:
            continue
        try:
            value = loads(text)
        except ValueError:
            return f"{name} is not JSON"
        if not is_right(value):
            return f"{name} is not what this column has"
    return None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_config(value: Any) -> bool:
    """Whether options can be read, and where the conversation came from."""
    if not isinstance(value, dict):
        return False
    imported = value.get("imported")
    try:
        return imported is None or ImportInfo.from_dict(imported) is not None
    except InvalidOption:
        return False


def _is_lineage(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_part, value))


def _is_part(value: Any) -> bool:
    is_list = isinstance(value, list) and 2 <= len(value) <= len(Part._fields)  # noqa: PLR2004 - the last one has a default
    return is_list and all(type(number) is int for number in value)


_COLUMNS: Final[Mapping[Table, Mapping[str, Callable[[Any], bool]]]] = {
    tables.configs: {"config": _is_config},
    tables.tool_definitions: {"definition": _is_object},
    tables.conversations: {"labels": _is_texts, "properties": _is_texts, "lineage": _is_lineage},
    tables.branches: {"lineage": _is_lineage},
    tables.appends: {"outcome": _is_object},
}
