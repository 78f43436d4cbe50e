"""The OpenAPI document, made from the table of operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from threadkeep.http.rest.models import Error, StreamEvent
from threadkeep.http.rest.operations import Operation, Parameter

VERSION: Final = "3.1.0"
_STREAM: Final = "text/event-stream"
_PLACE: Final = re.compile(r"{(\w+)}")
_REFERENCE: Final = "#/components/schemas/{model}"
# what any operation may be answered with instead
_ERRORS: Final[Mapping[int, str]] = {
    400: "The request cannot be used; `param` says what.",
    401: "There is no valid key.",
    403: "The key does not allow this.",
    404: "There is no such thing, or it belongs to others.",
    408: "Nothing more of the body has come for a while.",
    409: "Something has changed meanwhile, or the idempotency key was used with other content.",
    413: "The body, or a value in it, is too large.",
    429: "There were too many requests with this key, or too many of its answers are in progress.",
    500: "The server failed.",
    502: "The model's provider did not answer.",
    503: "The database cannot be used now, or the server has too much to do or is stopping.",
    504: "The request took too long.",
}


def openapi_document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return the document that describes operations, as JSON values; `version` is that of the server."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    return {
        "openapi": VERSION,
        "info": {"title": "threadkeep", "version": version},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    summary = (operation.handler.__doc__ or "").strip()
    found: dict[str, Any] = {
        "operationId": operation_id(operation),
        "summary": summary,
        "description": f"Needs the scope `{operation.scope}`.",
        "parameters": [*map(_path_parameter, _PLACE.findall(operation.path)), *map(_parameter, operation.parameters)],
        "responses": {**_answers(operation, schemas), **_errors(schemas)},
    }  # fmt: skip
    if operation.body is not None:
        content = {"application/json": {"schema": _schema(operation.body, schemas, "validation")}}
        found["requestBody"] = {"required": True, "content": content}
    if operation.takes_bytes:
        content = {"*/*": {"schema": {"type": "string", "format": "binary", "minLength": 1}}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def operation_id(operation: Operation) -> str:
    """Return the name of an operation."""
    words = re.sub(r"[^a-z]+", "_", operation.path.lower()).strip("_")
    return f"{operation.method.lower()}_{words}"


def _answers(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content["application/json"] = {"schema": _schema(operation.answer, schemas, "serialization")}
    stream = {_STREAM: {"schema": _schema(StreamEvent, schemas, "serialization")}}
    if operation.media_type == _STREAM and operation.answer is None:
        content |= stream
    elif operation.media_type is not None and operation.media_type != _STREAM:
        content[operation.media_type] = {"schema": {"type": "string"}}
    found: dict[str, Any] = {str(operation.status): {"description": "The answer.", "content": content}}
    if operation.media_type == _STREAM and operation.answer is not None:
        found["200"] = {"description": "A stream of events.", "content": stream}
    for status in operation.others:
        found[str(status)] = {"description": "The same, in progress.", "content": content}
        if status == 204:  # noqa: PLR2004 - which has no content
            found[str(status)] = {"description": "The stream has ended before."}
    return found


def _errors(schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(Error, schemas, "serialization")
    content = {"application/json": {"schema": schema}}
    return {str(status): {"description": text, "content": content} for status, text in _ERRORS.items()}


def _schema(model: Any, schemas: dict[str, Any], mode: Any) -> dict[str, Any]:
    """A reference to the schema of a model, which is added to the others."""
    found = TypeAdapter(model).json_schema(ref_template=_REFERENCE, mode=mode)
    schemas.update(found.pop("$defs", {}))
    name = re.sub(r"\W+", "_", found.get("title", model.__name__)).strip("_")
    schemas[name] = found
    return {"$ref": _REFERENCE.format(model=name)}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    style = {"style": "deepObject", "explode": True} if parameter.is_object else {}
    return {
        "name": parameter.name, "in": parameter.place, "required": False, "schema": parameter.schema,
        "description": parameter.description, **style,
    }  # fmt: skip
