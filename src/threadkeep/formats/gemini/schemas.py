"""Schemas: JSON schema, and the Schema type of the Gemini API, which is a part of OpenAPI's.

`parameters` and `responseSchema` hold a Schema; `parametersJsonSchema` and `responseJsonSchema` any JSON schema. Types
are taken in any case, so that a JSON schema of known keywords is a Schema, too.

Source: Google's Gemini API reference, "Schema".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.spelling import camel

# keywords of a Schema
KEYWORDS: Final = frozenset(
    {
        "type", "format", "title", "description", "nullable", "default", "example", "enum", "items", "minItems",
        "maxItems", "properties", "required", "minProperties", "maxProperties", "minimum", "maximum", "minLength",
        "maxLength", "pattern", "anyOf", "propertyOrdering", "additionalProperties",
    }
)  # fmt: skip
TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
# numbers that stand for types
_NUMBERS: Final = {1: "string", 2: "number", 3: "integer", 4: "boolean", 5: "array", 6: "object", 7: "null"}
# keywords of a Schema that JSON schema has no word for
_ONLY_HERE: Final = frozenset({"nullable", "example", "propertyOrdering"})
# keywords whose numbers may be texts
_COUNTS: Final = frozenset({"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"})


def is_schema(value: Any) -> bool:
    """Whether a JSON schema says no more than a Schema can."""
    if not isinstance(value, dict):
        return False
    kind, enum, inner = value.get("type"), value.get("enum"), value.get("properties")
    if not value.keys() <= KEYWORDS or not (kind is None or (isinstance(kind, str) and kind.lower() in TYPES)):
        return False
    if not (enum is None or (isinstance(enum, list) and all(isinstance(inner, str) for inner in enum))):
        return False
    below = [*_schemas_in(value), *(inner.values() if isinstance(inner, dict) else ())]
    return all(is_schema(inner) for inner in below)


def _schemas_in(schema: JsonObject) -> list[Any]:
    items, choices, more = schema.get("items"), schema.get("anyOf"), schema.get("additionalProperties")
    schemas = [schema for schema in (items, more) if schema is not None and not isinstance(schema, bool)]
    return schemas + (choices if isinstance(choices, list) else [])


def json_schema(schema: Any) -> Any:
    """A Schema as JSON schema, for all other formats: types in lower case, keywords in camel case, null as a type."""
    if not isinstance(schema, dict):
        return schema
    converted: JsonObject = {}
    for key, value in schema.items():
        name = camel(key)
        if name not in _ONLY_HERE:
            converted[name] = _READERS[name](value) if name in _READERS else value
    if schema.get("nullable") is True and isinstance(converted.get("type"), str):
        converted["type"] = [converted["type"], "null"]
    return converted


def _type(value: Any) -> Any:
    word = value.lower() if isinstance(value, str) else _NUMBERS.get(value) if isinstance(value, int) else None
    return word if word in TYPES else value


def _each(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: json_schema(inner) for key, inner in value.items()}
    return [json_schema(inner) for inner in value] if isinstance(value, list) else value


def _count(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


# keyword of a Schema -> what reads its value
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "type": _type,
    "properties": _each,
    "anyOf": _each,
    "items": json_schema,
    "additionalProperties": json_schema,
    **dict.fromkeys(_COUNTS, _count),
}
