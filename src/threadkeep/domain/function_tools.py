"""Tools from functions: name, description and JSON schema of a Python function, and its arguments, validated.

Pydantic makes the schema and validates; it knows the types that annotations may have.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import InvalidOption, InvalidToolArguments

Handler = Callable[..., Any]

# how sections of a docstring in Google style begin
_SECTION: Final = re.compile(r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|See Also|Warns):$")
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY: Final = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
# keys of a schema that hold schemas: by name, in a list, alone
_BY_NAME: Final = ("properties", "$defs", "patternProperties")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "not")
_NO_NAMES: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class _Generator(GenerateJsonSchema):
    """Makes schemas without titles that only repeat names, and without defaults that are not JSON."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - of the base class
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:  # about such defaults
        pass


class FunctionSignature:
    """What a tool needs to know of a function."""

    def __init__(self, function: Handler, *, strict: bool | None = None) -> None:
        self.name = getattr(function, "__name__", "")
        if not self.name.isidentifier():
            hint = 'Give a function that was made with `def`, or write register("name", …, handler=…).'
            raise InvalidOption("has no name of its own.", argument="name", hint=hint)
        # The text of a docstring before its sections, and the descriptions of parameters
        sections: dict[str, list[str]] = {"": []}
        section = ""
        for line in (inspect.getdoc(function) or "").splitlines():
            if found := _SECTION.match(line):
                section = "Args" if found[1] in _ARGUMENTS else found[1]
            else:
                sections.setdefault(section, []).append(line)
        self.description, described = "\n".join(sections[""]).strip() or None, _entries(sections.get("Args", []))
        parameters = _parameters(function)
        self._names = [name for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD]
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError as error:
            hint = "Define the types that its annotations name in its module."
            problem = f"has annotations that cannot be read: {error}."
            raise InvalidOption(problem, argument="function", hint=hint) from error
        fields: dict[str, Any] = {  # under names that clash with nothing of a model
            f"parameter_{number}": _field(parameters[name], hints.get(name, Any), described.get(name))
            for number, name in enumerate(self._names)
        }
        extra: Literal["forbid", "allow"] = "forbid" if len(self._names) == len(parameters) else "allow"
        try:
            self._model: type[BaseModel] = create_model("Arguments", __config__=ConfigDict(extra=extra), **fields)
            schema = self._model.model_json_schema(schema_generator=_Generator)
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as error:
            reason = str(error).partition("\n")[0]
            hint = "Annotate its parameters with types that JSON has, or with Pydantic models."
            raise InvalidOption(f"{self.name} has no JSON schema: {reason}", argument="function", hint=hint) from error
        self.parameters = _strict(schema, self.name) if strict else _without_titles(schema)

    def bind(self, arguments: Any) -> dict[str, Any]:
        """The keyword arguments that the function is called with.

        Raises:
            InvalidToolArguments: the arguments do not match the schema.
        """
        if not isinstance(arguments, Mapping):
            raise InvalidToolArguments(self.name, [("", "They must be a JSON object.")])
        try:
            values = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            problems = [(_path(one["loc"]), one["msg"]) for one in error.errors(include_url=False, include_input=False)]
            raise InvalidToolArguments(self.name, problems) from error
        fields = ((f"parameter_{number}", name) for number, name in enumerate(self._names))
        given = {name: getattr(values, field) for field, name in fields if field in values.model_fields_set}
        return {**given, **(values.model_extra or {})}


def _parameters(function: Handler) -> Mapping[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if parameter.kind in _NO_NAMES:
            raise InvalidOption(f"has the parameter {name}, which cannot be given by name.", argument="function")
        if isinstance(parameter.default, FieldInfo):
            hint = f"Write {name}: Annotated[…, Field(…)]."
            raise InvalidOption(f"has a Field as the default of {name}.", argument="function", hint=hint)
    return parameters


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> tuple[Any, Any]:
    """A field of the model: an annotation says more than the docstring."""
    default = ... if parameter.default is parameter.empty else parameter.default
    if get_origin(annotation) is Annotated:
        for one in get_args(annotation)[1:]:
            text = one if isinstance(one, str) else one.description if isinstance(one, FieldInfo) else None
            description = text or description
    return annotation, Field(default, alias=parameter.name, description=description)


def _entries(lines: list[str]) -> dict[str, str]:
    """What a section says of each name: an entry goes on where lines are indented deeper than its first one."""
    found: dict[str, list[str]] = {}
    name, depth = "", -1
    for line in filter(str.strip, lines):
        indent = len(line) - len(line.lstrip())
        started = _ENTRY.match(line.strip()) if depth < 0 or indent <= depth else None
        if started is not None:
            name, depth = started[1], indent
            found[name] = [started[2]]
        elif name:
            found[name].append(line.strip())
    return {name: " ".join(words).strip() for name, words in found.items() if any(words)}


def _path(location: tuple[int | str, ...]) -> str:
    """Where a problem is, as it would be written: ``stops[0].city``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


# Schemas


def _schemas(schema: JsonObject) -> Iterator[JsonObject]:
    """A schema and those in it."""
    yield schema
    inner = [value for key in _BY_NAME for value in schema.get(key, {}).values()]
    inner += [value for key in _LISTS for value in schema.get(key, ())] + [schema.get(key) for key in _SINGLE]
    for value in inner:
        if isinstance(value, dict):
            yield from _schemas(value)


def _without_titles(schema: JsonObject) -> JsonObject:
    for one in _schemas(schema):
        if isinstance(one.get("title"), str):
            del one["title"]
    schema.setdefault("properties", {})
    return schema


def _strict(schema: JsonObject, name: str) -> JsonObject:
    """A schema as strict modes take it: objects list all their properties as required and allow no others.

    They take no defaults, and nothing next to a reference.
    """
    schema, definitions = _without_titles(schema), schema.get("$defs", {})
    for one in _schemas(schema):
        reference = one.get("$ref")
        if reference is not None and len(one) > 1:
            one.update({**definitions[reference.rpartition("/")[2]], **one})
            del one["$ref"]
        one.pop("default", None)
        one.pop("discriminator", None)
        if "oneOf" in one:
            one["anyOf"] = one.pop("oneOf")
        if one.get("type") == "object":
            if one.get("additionalProperties", False) is not False:
                hint = "Use a Pydantic model or a TypedDict instead, or strict=None."
                problem = f"{name} takes objects with any keys, which a strict schema cannot have."
                raise InvalidOption(problem, argument="strict", hint=hint)
            one["additionalProperties"] = False
            one["required"] = list(one.setdefault("properties", {}))
    return schema


# Calls


def takes_names(handler: Handler, schema: Mapping[str, Any]) -> bool:
    """Whether a function that was registered with a schema by hand is called with keyword arguments."""
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):  # some functions written in C
        return False
    if len(parameters) == 1 and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return parameters[0].name in schema.get("properties", {})
    return not any(one.kind in _NO_NAMES for one in parameters)
