"""Schemas: JSON schema, and the Schema type of the Gemini API, which is a part of OpenAPI's.

`parameters` and `responseSchema` hold a Schema; `parametersJsonSchema` and `responseJsonSchema` any JSON schema. Types
are taken in any case, so that a JSON schema of known keywords is a Schema, too.

Source: Google's Gemini API reference, "Schema".
"""

from __future__ import annotations

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
    if not (enum is None or (isinstance(enum, list) and all(isinstance(one, str) for one in enum))):
        return False
    below = [*_schemas_in(value), *(inner.values() if isinstance(inner, dict) else ())]
    return all(is_schema(one) for one in below)


def _schemas_in(schema: JsonObject) -> list[Any]:
    items, choices, more = schema.get("items"), schema.get("anyOf"), schema.get("additionalProperties")
    found = [one for one in (items, more) if one is not None and not isinstance(one, bool)]
    return found + (choices if isinstance(choices, list) else [])


def json_schema(schema: Any) -> Any:
    """A Schema as JSON schema, for all other formats: types in lower case, keywords in camel case, null as a type."""
    if not isinstance(schema, dict):
        return schema
    found: JsonObject = {}
    for key, value in schema.items():
        name = camel(key)
        if name not in _ONLY_HERE:
            found[name] = _keyword(name, value)
    if schema.get("nullable") is True and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


def _keyword(name: str, value: Any) -> Any:
    if name == "type" and isinstance(value, str | int):
        word = value.lower() if isinstance(value, str) else _NUMBERS.get(value)
        return word if word in TYPES else value
    if name == "properties" and isinstance(value, dict):
        return {key: json_schema(inner) for key, inner in value.items()}
    if name == "anyOf" and isinstance(value, list):
        return [json_schema(inner) for inner in value]
    if name in ("items", "additionalProperties"):
        return json_schema(value)
    if name in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value
