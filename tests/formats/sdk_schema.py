"""Requests made from the types of the vendors' SDKs: each key, and each variant of each union, once.

The types are one JSON file beside the recorded traffic: `defs` by name, `roots` by format. A type says its kind `k`:
`ref` to a definition, `union` of types, `list` and `map` of a type, `lit` of values, and the simple ones.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.corpus import CORPUS

Json = dict[str, Any]

SIMPLE: Json = {"int": 2048, "num": 0.5, "bool": True, "null": None, "b64": "Ynl0ZXM="}
# key -> a text that can stand under it
TEXTS = {
    "arguments": '{"a":1}',
    "file_data": "data:application/pdf;base64,JVBERi0=",
    "media_type": "image/png",
    "mimeType": "image/png",
    "model": "m",
    "uri": "s3://bucket/key",
}
BYTES = frozenset({"data", "bytes", "thoughtSignature", "redactedContent"})


@cache
def schema() -> Json:
    """The types; without the file the test is skipped."""
    path = CORPUS.parent / "reference" / "sdk-schema.json.gz"
    if not path.exists():
        pytest.skip(f"there are no types of the SDKs in {path}")
    found: Json = json.loads(gzip.decompress(path.read_bytes()))
    return found


def least(kind: Json, key: str = "") -> Any:
    """The least value of a type."""
    match kind["k"]:
        case "str":
            return SIMPLE["b64"] if key in BYTES else TEXTS.get(key, f"{key}-text")[-(kind.get("max") or 99) :]
        case "any":
            return {"any": [1, None]}
        case "lit":
            return kind["v"][0]
        case "list":
            return [least(kind["t"], key)]
        case "map":
            return {"k": least(kind["t"])}
        case "union":
            return least(next(one for one in kind["ts"] if one["k"] != "null"), key)
        case "ref":
            fields = schema()["defs"][kind["n"]]["fields"]
            return {name: least(field["t"], name) for name, field in fields.items() if field["req"]}
    return SIMPLE[kind["k"]]


def variants(kind: Json, key: str = "", seen: set[str] | None = None) -> Iterator[Any]:
    """Values of a type that show each of its variants, of each definition the first time that it is met."""
    seen = set() if seen is None else seen
    if kind["k"] == "lit":
        yield from kind["v"]
    elif kind["k"] == "union":
        for one in kind["ts"]:
            yield from variants(one, key, seen)
    elif kind["k"] in ("list", "map"):
        for value in variants(kind["t"], key, seen):
            yield [value] if kind["k"] == "list" else {"k": value}
    elif kind["k"] == "ref" and kind["n"] not in seen:
        seen.add(kind["n"])
        yield from _objects(kind, seen)
    else:
        yield least(kind, key)


def _objects(kind: Json, seen: set[str]) -> Iterator[Json]:
    definition = schema()["defs"][kind["n"]]
    base = {} if definition.get("one_of") else least(kind)
    if not definition.get("one_of"):
        yield base
    for name, field in definition["fields"].items():
        for value in variants(field["t"], name, seen):
            yield {**base, name: value}
