"""The types of the vendors' SDKs that are installed, as JSON Schema: what requests, answers and events may contain.

Pydantic writes the schemas of the types of openai, anthropic, google-genai, pydantic-ai and ag-ui-protocol; the service
model of botocore is converted. Nothing here knows threadkeep, so that any release of an SDK can be read: run as a
script, this prints what the installed releases define (see `make sdk-news`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import PydanticOmit

Json = dict[str, Any]

# root -> where its type is, and the class or the operation of botocore
PYDANTIC: Final = {
    "openai.responses.request": "openai.types.responses.response_create_params:ResponseCreateParams",
    "openai.responses.input": "openai.types.responses:ResponseInputItemParam",
    "openai.responses.output": "openai.types.responses:ResponseOutputItem",
    "openai.responses.response": "openai.types.responses:Response",
    "openai.responses.event": "openai.types.responses:ResponseStreamEvent",
    "openai.responses.compacted": "openai.types.responses:CompactedResponse",
    "openai.conversations.item": "openai.types.conversations:ConversationItem",
    "openai.chat.request": "openai.types.chat.completion_create_params:CompletionCreateParams",
    "openai.chat.message": "openai.types.chat:ChatCompletionMessageParam",
    "openai.chat.response": "openai.types.chat:ChatCompletion",
    "openai.chat.chunk": "openai.types.chat:ChatCompletionChunk",
    "anthropic.messages.request": "anthropic.types.message_create_params:MessageCreateParams",
    "anthropic.messages.message": "anthropic.types:MessageParam",
    "anthropic.messages.response": "anthropic.types:Message",
    "anthropic.messages.event": "anthropic.types:RawMessageStreamEvent",
    "anthropic.beta.request": "anthropic.types.beta.message_create_params:MessageCreateParams",
    "anthropic.beta.message": "anthropic.types.beta:BetaMessageParam",
    "anthropic.beta.response": "anthropic.types.beta:BetaMessage",
    "anthropic.beta.event": "anthropic.types.beta:BetaRawMessageStreamEvent",
    "google.config": "google.genai.types:GenerateContentConfig",
    "google.content": "google.genai.types:Content",
    "google.response": "google.genai.types:GenerateContentResponse",
    "google.interactions.request": "google.genai._gaos.types.interactions:CreateModelInteraction",
    "google.interactions.agent": "google.genai._gaos.types.interactions:CreateAgentInteraction",
    "google.interactions.step": "google.genai._gaos.types.interactions:Step",
    "google.interactions.response": "google.genai._gaos.types.interactions:Interaction",
    "google.interactions.event": "google.genai._gaos.types.interactions:InteractionSSEEvent",
    "pydantic_ai.message": "pydantic_ai.messages:ModelMessage",
    "ag_ui.message": "ag_ui.core:Message",
    "ag_ui.event": "ag_ui.core:Event",
}
SHAPES: Final = {
    "bedrock.request": "ConverseRequest",
    "bedrock.response": "ConverseResponse",
    "bedrock.event": "ConverseStreamOutput",
}
ROOTS: Final = (*PYDANTIC, *SHAPES)
PACKAGES: Final = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google-genai",
    "bedrock": "botocore",
    "pydantic_ai": "pydantic-ai-slim",
    "ag_ui": "ag-ui-protocol",
}
_OF_SHAPES: Final[dict[str, Json]] = {
    "blob": {"type": "string", "format": "binary"},
    "boolean": {"type": "boolean"},
    "timestamp": {"type": "string", "format": "date-time"},
    "integer": {"type": "integer"},
    "long": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
}


class _Schema(GenerateJsonSchema):
    """Leaves out what cannot come as JSON: open files, pictures of PIL, and Python functions."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as Pydantic declares it

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return super().generate(schema, mode)

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        del schema, error_info
        raise PydanticOmit


@cache
def type_of(root: str) -> Any:
    """The type of a root in the SDK."""
    module, _, name = PYDANTIC[root].partition(":")
    return getattr(import_module(module), name)


@cache
def schema(root: str) -> Json:
    """The JSON Schema of a root, with its definitions under ``$defs``."""
    if root in SHAPES:
        return _of_botocore(SHAPES[root])
    made: Json = TypeAdapter(type_of(root)).json_schema(schema_generator=_Schema)
    others = {f"#/$defs/{name}" for name, kind in made.get("$defs", {}).items() if _is_any_other(kind)}
    return cast("Json", _without(made, others)) if others else made


def _is_any_other(kind: Json) -> bool:
    """Whether a type stands for all variants that an SDK does not know."""
    return "is_unknown" in kind.get("properties", {})


def _without(thing: Any, references: set[str]) -> Any:
    """A schema without references to some of its types."""
    if isinstance(thing, list):
        return [_without(one, references) for one in thing if not _refers(one, references)]
    if not isinstance(thing, dict):
        return thing
    return {key: _without(value, references) for key, value in thing.items() if f"#/$defs/{key}" not in references}


def _refers(thing: Any, references: set[str]) -> bool:
    return isinstance(thing, dict) and thing.get("$ref") in references


def _of_botocore(name: str) -> Json:
    """A shape of the service model of bedrock-runtime."""
    session: Any = import_module("botocore.session").get_session()
    model = session.get_service_model("bedrock-runtime")
    definitions: Json = {}

    def reference(shape: Any) -> Json:
        if shape.type_name == "structure" and not shape.is_document_type:
            if shape.name not in definitions:
                definitions[shape.name] = {}
                definitions[shape.name] = structure(shape)
            return {"$ref": f"#/$defs/{shape.name}"}
        if shape.type_name == "list":
            return {"type": "array", "items": reference(shape.member)}
        if shape.type_name == "map":
            return {"type": "object", "additionalProperties": reference(shape.value)}
        if shape.type_name == "string":
            limit = {"maxLength": shape.metadata["max"]} if "max" in shape.metadata else {}
            return {"type": "string", **limit, **({"enum": shape.enum} if shape.enum else {})}
        return dict(_OF_SHAPES.get(shape.type_name, {}))

    def structure(shape: Any) -> Json:
        fields = {key: reference(member) for key, member in shape.members.items()}
        if shape.is_tagged_union or (shape.name == name and name.endswith("Output")):
            branches = [
                {"type": "object", "title": key, "properties": {key: kind}, "required": [key]}
                for key, kind in fields.items()
            ]
            return {"oneOf": branches}
        return {"type": "object", "properties": fields, "required": list(shape.required_members)}

    return {**reference(model.shape_for(name)), "$defs": definitions}


def resolved(kind: Json, root: Json) -> Json:
    """A schema without a reference at its top."""
    while "$ref" in kind:
        kind = root["$defs"][kind["$ref"].rpartition("/")[2]]
    return kind


def choices(kind: Json) -> list[Json]:
    """The alternatives of a schema; itself where there is one alone."""
    found: list[Json] = kind.get("anyOf") or kind.get("oneOf") or [kind]
    return found


def name_of(kind: Json) -> str:
    """What a definition is called: the class, without the module that Pydantic puts before names that come twice."""
    return str(kind.get("$ref", kind.get("title", ""))).rpartition("/")[2].rpartition("__")[2]


# What the installed releases define, for people and for the list of known types


def known(package: str) -> dict[str, list[str]]:
    """Each type of a package, and one line for each of its fields and its words."""
    found: dict[str, set[str]] = {}
    for root in ROOTS:
        if root.partition(".")[0] != package:
            continue
        try:
            made = schema(root)
        except (ImportError, AttributeError) as error:  # another release may not have it
            found[root] = {f"not there: {error}"}
            continue
        for name, definition in made["$defs"].items():
            found.setdefault(name.rpartition("__")[2], set()).update(_lines(definition))
        found.setdefault(root, set()).update(_lines(made))
    return {name: sorted(found[name]) for name in sorted(found)}


def _lines(kind: Json) -> Iterator[str]:
    if "enum" in kind:
        yield from (f"= {word}" for word in kind["enum"])
    for choice in kind.get("anyOf") or kind.get("oneOf") or ():
        yield from _lines(choice) if "properties" in choice else [f"| {_words(choice)}"]
    for key, field in kind.get("properties", {}).items():
        mark = "" if key in kind.get("required", ()) else "?"
        for word in _words(field).split(" | "):
            yield f"{key}{mark}: {word}"


def _words(kind: Json) -> str:
    if "$ref" in kind:
        return name_of(kind)
    if "const" in kind or "enum" in kind:
        return " | ".join(map(json.dumps, kind.get("enum", [kind.get("const")])))
    if "anyOf" in kind or "oneOf" in kind:
        return " | ".join(map(_words, choices(kind)))
    if kind.get("type") == "array":
        return " | ".join(f"{word}[]" for word in _words(kind.get("items", {})).split(" | "))
    return str(kind.get("type", "any"))


def release(package: str) -> Json:
    """The version of a package that is installed, and what it defines."""
    return {"version": version(PACKAGES[package]), "types": known(package)}


if __name__ == "__main__":
    written: Callable[[str], int] = sys.stdout.write
    written(json.dumps({package: release(package) for package in PACKAGES}))
