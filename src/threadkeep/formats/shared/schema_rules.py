"""What providers refuse in the schemas of tools, as limits of the table of settings.

* A schema is an object's, without choices at its top: the properties of all of them stand side by side.
* What cannot be said otherwise is sent as it is, and reported: names of properties, lists without items, and what is
  open in strict functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.fields import value_at, with_value

CHOICES: Final = ("anyOf", "oneOf", "allOf")
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
Schema = JsonObject


def with_schemas(tools: Any, path: str, change: Callable[[Schema], Schema]) -> Any:
    """The tools with other schemas, which stand at a path of theirs."""
    if not isinstance(tools, list):
        return tools
    return [_with_schema(tool, path, change) for tool in tools]


def _with_schema(tool: Any, path: str, change: Callable[[Schema], Schema]) -> Any:
    schema = value_at(tool, path)
    return with_value(tool, path, change(schema)) if isinstance(schema, dict) else tool


def without_choices(schema: Schema, refused: frozenset[str]) -> Schema:
    """A schema without keywords that are refused at its top; the properties of its choices stand side by side."""
    if refused.isdisjoint(schema) and schema.get("type") == "object":
        return schema
    properties: JsonObject = {}
    for word in CHOICES:
        for choice in schema.get(word) or () if isinstance(schema.get(word), list) else ():
            inner = choice.get("properties") if isinstance(choice, dict) else None
            properties |= inner if isinstance(inner, dict) else {}
    own = schema.get("properties")
    properties |= own if isinstance(own, dict) else {}
    kept = {key: value for key, value in schema.items() if key not in refused}
    return {**kept, "type": "object", "properties": properties}


def has_odd_name(schema: Schema) -> bool:
    """Whether a property has a name that Anthropic refuses; only those at the top count."""
    names = schema.get("properties")
    return isinstance(names, dict) and any(not _PROPERTY.fullmatch(name) for name in names)


def is_no_object(schema: Schema) -> bool:
    """Whether a schema is of something else than an object."""
    return str(schema.get("type", "object")).lower() != "object"


def lacks_items(schema: Schema) -> bool:
    """Whether a list does not say what it is of."""
    return any(one.get("type") == "array" and not {"items", "prefixItems"} & one.keys() for one in _all(schema))


def is_open(schema: Schema) -> bool:
    """Whether an object takes other properties, or does not require all of its own."""
    return any(
        one.get("additionalProperties") is not False
        or {*(one.get("required") or ())} != {*(one.get("properties") or ())}
        for one in _all(schema)
        if one.get("type") == "object"
    )


def has_blank_choice(schema: Schema) -> bool:
    """Whether a text may be one of some, of which one is empty."""
    return any(isinstance(words := one.get("enum"), list) and "" in words for one in _all(schema))


def requires_unknown(schema: Schema) -> bool:
    """Whether an object requires a property that it does not have."""
    return any(
        not {*(one.get("required") or ())} <= {*(one.get("properties") or ())}
        for one in _all(schema)
        if isinstance(one.get("required"), list) and isinstance(one.get("properties"), dict)
    )


def _all(schema: Schema) -> list[Schema]:
    """A schema and those in it."""
    found, waiting = [], [schema]
    while waiting:
        one = waiting.pop()
        found.append(one)
        if "properties" in one and isinstance(one["properties"], dict):
            waiting += [inner for inner in one["properties"].values() if isinstance(inner, dict)]
        if "items" in one and isinstance(one["items"], dict):
            waiting.append(one["items"])
        for word in CHOICES:
            if word in one and isinstance(one[word], list):
                waiting += [inner for inner in one[word] if isinstance(inner, dict)]
    return found
