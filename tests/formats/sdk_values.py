"""Values of the types of the SDKs: the least, one more for each key and each variant, and full ones.

A text says where it stands (``content_0_text``), so that it can be found again in a request made of it, and the values
of two samples differ only where the samples do.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.formats.sdk_schema import choices, name_of, resolved

Json = dict[str, Any]
Path = tuple[str, ...]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _picture(text: str) -> str:
    return f"data:image/png;base64,{_base64(text)}"


def _object_schema(text: str) -> Json:
    return {"type": "object", "properties": {"q": {"type": "string", "description": text}}}


# key -> what can stand under it, made of a text that says where that is
TEXTS: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("arguments", "args_json", "partial_json"), lambda text: f'{{"a":"{text}"}}'),
    **dict.fromkeys(
        ("data", "bytes", "thoughtSignature", "redactedContent", "signature", "encrypted_content", "file_data"), _base64
    ),
    **dict.fromkeys(("image_url",), _picture),
    **dict.fromkeys(("url", "file_url", "uri", "fileUri", "server_url"), lambda text: f"https://e.org/{text}"),
    **dict.fromkeys(("media_type", "mimeType"), lambda _text: "image/png"),
    **dict.fromkeys(
        ("parameters", "input_schema", "json", "inputSchema", "parametersJsonSchema", "schema"), _object_schema
    ),
    **dict.fromkeys(("input", "args", "response"), lambda text: {"k": text}),
    "model": lambda _text: "m",
    "timestamp": lambda _text: "2026-01-01T00:00:00Z",
    "tool_kind": lambda _text: None,
}
# type -> the keys without which a value of it says nothing, though its SDK requires none
NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "Part": ("text",),
    "FunctionCall": ("name", "args"),
    "FunctionResponse": ("name", "response"),
    "Blob": ("data", "mimeType"),
    "FileData": ("fileUri", "mimeType"),
    "Content": ("parts", "role"),
    "ExecutableCode": ("code", "language"),
    "CodeExecutionResult": ("outcome", "output"),
    "Candidate": ("content", "finishReason"),
    "GenerateContentResponse": ("candidates",),
    "FunctionDeclaration": ("name",),
    "ChatCompletionAssistantMessageParam": ("content",),
    "ChatCompletionMessage": ("content",),
}
# type -> its keys of which a value has one
ONE_OF: Final[dict[str, frozenset[str]]] = {
    "Part": frozenset(
        {
            "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode",
            "codeExecutionResult", "toolCall", "toolResponse",
        }
    ),
    "FunctionResponsePart": frozenset({"inlineData", "fileData"}),
    "FunctionCall": frozenset({"args", "partialArgs"}),
    "ChatCompletionMessage": frozenset({"content", "refusal"}),
}  # fmt: skip
FORMATS: Final = {"date-time": "2026-01-01T00:00:00Z", "duration": "PT1S"}  # format of a text -> one of them
USUAL: Final = frozenset({"user", "completed"})  # words that come first
_DEPTH: Final = 9  # types may contain themselves


@dataclass(frozen=True)
class Sample:
    """A value, and what it has that the least one of its kind has not."""

    label: str
    value: Any
    path: Path = ()  # where it differs from the least value


@dataclass
class Maker:
    """Makes values of the types of one root."""

    root: Json
    texts: dict[str, Callable[[str], Any]] = field(default_factory=dict)  # beyond `TEXTS`
    is_whole: bool = True  # whether a type is varied wherever it stands, not only where it is met first
    _seen: set[str] = field(default_factory=set)

    def least(self, kind: Json, path: Path = (), turn: int = 0) -> Any:
        """The value with the required keys alone; `turn` chooses among alternatives."""
        name, kind = name_of(kind), resolved(kind, self.root)
        if "const" in kind:
            return kind["const"]
        if "enum" in kind:
            ordered = sorted(kind["enum"], key=USUAL.__contains__, reverse=True)
            return ordered[turn % len(ordered)]
        if "anyOf" in kind or "oneOf" in kind:
            options = [one for one in choices(kind) if one.get("type") != "null"]
            return self.least(options[turn % len(options)], path, turn)
        if "properties" in kind:
            return {
                key: self.least(kind["properties"][key], (*path, key))
                for key in self._needed(name or name_of(kind), kind)
            }
        return self._simple(kind, path)

    def _needed(self, name: str, kind: Json) -> list[str]:
        properties = kind["properties"]
        tags = [
            key
            for key in ("type", "event_type", "kind", "part_kind", "role", "op")
            if "const" in properties.get(key, {})
        ]
        links = ("tool_name", "tool_call_id") if "part_kind" in properties else ()
        wanted = {*kind.get("required", ()), *NEEDED.get(name, ()), *tags, *links}
        return [key for key in properties if key in wanted]

    def _simple(self, kind: Json, path: Path) -> Any:
        key, text = (
            next((one for one in reversed(path) if not one.isdigit()), ""),
            "_".join(path if len(path) > 1 else (*path, "value")),
        )
        made = self.texts.get(key) or TEXTS.get(key)
        number = zlib.crc32(text.encode())
        match kind.get("type"):
            case "string":
                value = made(text) if made else None
                value = json.dumps(value) if key == "schema" else value
                if kind.get("format") in ("binary", "base64url"):
                    value = _base64(text)
                elif kind.get("format") in FORMATS:
                    value = FORMATS[kind["format"]]
                return value if isinstance(value, str) else text[-kind.get("maxLength", 60) :]
            case "integer":
                return min(max(1000 + number % 9000, kind.get("minimum", 0)), kind.get("maximum", 10**6))
            case "number":
                return (10 + number % 89) / 100
            case "boolean":
                return True
            case "null":
                return None
            case "array":
                items = kind.get("items", {})
                return [] if len(path) > _DEPTH else [self.least(items, (*path, "0"))]
        if isinstance(inner := kind.get("additionalProperties"), dict):
            return {"k": self.least(inner, (*path, "k"))}
        value = made(text) if made else None
        return value if isinstance(value, dict) else {"any": text}

    def variants(self, kind: Json, path: Path = (), inside: frozenset[str] = frozenset()) -> Iterator[Sample]:
        """The least value, then one for each key and each alternative in it, which it has beyond the least."""
        given, name, kind = kind, name_of(kind), resolved(kind, self.root)
        if ("$ref" in given and name in inside) or len(path) > _DEPTH:  # types may contain themselves
            yield Sample("", self.least(kind, path), path)
            return
        if name and "properties" not in kind:
            inside |= {name}
        name = name or name_of(kind)
        if "enum" in kind:
            yield from (Sample(f"={word}", word, path) for word in kind["enum"])
        elif "anyOf" in kind or "oneOf" in kind:
            for one in choices(kind):
                if one.get("type") != "null":
                    yield from self.variants(one, path, inside)
        elif "properties" in kind:
            yield from self._of_object(name, kind, path, inside)
        else:
            yield from self._of_holder(kind, path, inside)

    def _of_holder(self, kind: Json, path: Path, inside: frozenset[str]) -> Iterator[Sample]:
        """The variants of a list, a map, or a simple value."""
        if kind.get("type") == "array":
            for sample in self.variants(kind.get("items", {}), (*path, "0"), inside):
                yield Sample(sample.label, [sample.value], sample.path)
        elif isinstance(kind.get("additionalProperties"), dict):
            for sample in self.variants(kind["additionalProperties"], (*path, "k"), inside):
                yield Sample(sample.label, {"k": sample.value}, sample.path)
        else:
            yield Sample("", self.least(kind, path), path)

    def _of_object(self, name: str, kind: Json, path: Path, inside: frozenset[str]) -> Iterator[Sample]:
        if name and not self.is_whole and name in self._seen:
            yield Sample(name, self.least(kind, path), path)
            return
        self._seen.add(name)
        base = {key: self.least(kind["properties"][key], (*path, key)) for key in self._needed(name, kind)}
        yield Sample(name, base, path)
        rivals = ONE_OF.get(name, frozenset())
        for key, inner in kind["properties"].items():
            rest = {one: value for one, value in base.items() if one not in rivals} if key in rivals else base
            for sample in self.variants(inner, (*path, key), inside | {name}):
                if rest.get(key) != sample.value:
                    inner_label = f".{sample.label}" if sample.label[:1] not in ("", "=") else sample.label
                    yield Sample(f"{name}.{key}{inner_label}", {**rest, key: sample.value}, (*path, key))

    def full(self, kind: Json, path: Path = (), turn: int = 0, inside: tuple[str, ...] = ()) -> Any:
        """A value with every key; lists have every alternative, elsewhere `turn` chooses among them."""
        name, kind = name_of(kind), resolved(kind, self.root)
        name = name or name_of(kind)
        if inside.count(name) > (name == "") * _DEPTH or len(path) > _DEPTH:
            return self.least(kind, path)
        if "anyOf" in kind or "oneOf" in kind:
            options = [one for one in choices(kind) if one.get("type") != "null"]
            return self.full(options[turn % len(options)], path, turn, inside)
        if kind.get("type") == "array":
            options = [one for one in choices(resolved(kind.get("items", {}), self.root)) if one.get("type") != "null"]
            return [self.full(one, (*path, str(i)), turn, inside) for i, one in enumerate(options)]
        if "properties" in kind:
            rivals = sorted(ONE_OF.get(name, ()))
            absent = {*rivals} - {rivals[turn % len(rivals)]} if rivals else set()
            return {
                key: self.full(inner, (*path, key), turn, (*inside, name))
                for key, inner in kind["properties"].items()
                if key not in absent
            }
        return self.least(kind, path, turn)
