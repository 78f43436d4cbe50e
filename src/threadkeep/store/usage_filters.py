"""What usage reports are filtered by: values as callers write them, and as columns hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.queries.usage import COLUMNS
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption, did_you_mean
from threadkeep.store.lineage import find_row
from threadkeep.store.refs import Scope
from threadkeep.store.validation import refuse_misspelt, whole_number

MAX_VALUES: Final = 10_000  # statements name them three times, and SQLite takes 32,766 parameters

# A column -> the type of its values, a subclass of that which is not one, and what messages call it
TYPES: Final[Mapping[str, tuple[type, type | tuple[()], str]]] = {
    "day": (date, datetime, "a date"),
    "response": (int, bool, "a whole number"),
}
STATUSES: Final = ("completed", "incomplete", "failed", "in_progress", "cancelled")
STRING: Final = (str, (), "a string")


def filter_values(filters: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each column, as it holds them; but conversations by the ids that users see."""
    for name in filters:
        if name not in COLUMNS:
            meant = did_you_mean(get_close_matches(name, COLUMNS, n=1, cutoff=0.5))
            hint = f"{meant}The filters are {', '.join(COLUMNS)}."
            raise InvalidOption("is not a filter of usage.", argument=name, hint=hint)
    values = {
        name: list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        for name, value in filters.items()
    }
    count = sum(map(len, values.values()))
    if count > MAX_VALUES:
        most = f"at most {MAX_VALUES:,} values at once"
        raise InvalidOption(f"Usage can be filtered by {most}, not by {count:,} ({', '.join(values)}).")
    return {
        name: [None if one is None else _column_value(name, one) for one in several] for name, several in values.items()
    }


def _column_value(name: str, value: Any) -> Any:
    kind, other, description = TYPES.get(name, STRING)
    if isinstance(value, other) or not isinstance(value, kind):
        raise mismatch(InvalidOption, f"{description}, None, or a list of these", value, name)
    if name == "status":
        refuse_misspelt(name, str(value), STATUSES)
    if name == "response":
        return whole_number(name, value)
    return _hash(str(value)) if name == "tool_set" else value


def _hash(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise mismatch(InvalidOption, "the hash of a tool set, 64 hexadecimal digits", text, "tool_set") from error


def conversation_keys(connection: Connection, scope: Scope, public_ids: Sequence[str | None]) -> list[int | None]:
    """The keys of conversations; None stands for deleted ones, an unknown id for nothing; NotFound: it is not an id."""
    known = [public_id_bytes(public_id) for public_id in public_ids if public_id is not None]
    rows = [find_row(connection, scope, "public_id", public_id) for public_id in known]
    keys: list[int | None] = [row.id for row in rows if row is not None]
    return [*keys, None] if None in public_ids else keys
