"""Routes of the REST API, how they read bodies, and the OpenAPI document that FastAPI makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from copy import copy
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

import threadkeep
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.server import answers, problems, requests, service
from threadkeep.server.rest.deps import Key, ReadRequest
from threadkeep.server.rest.models import DataEvent, Error, StreamEvent

_IN_URLS: Final = frozenset({"access_token"})  # RFC 6750 has a key there, which an `auth` may read
_LONGEST_NAME: Final = 100
_REFERENCE: Final = "#/components/schemas/{model}"
# what any operation may be answered with instead
_PROBLEMS: Final[Mapping[int, str]] = {
    400: "The request cannot be used; `param` says what.",
    401: "There is no valid key.",
    403: "The key does not allow this.",
    404: "There is no such thing, or it belongs to others.",
    408: "Nothing more of the body has come for a while.",
    409: "Something has changed since, or the idempotency key was used with other content.",
    413: "The body, or a value in it, is too large.",
    429: "There were too many requests with this key, or too many of its answers are in progress.",
    500: "The server failed.",
    502: "The model's provider did not answer.",
    503: "The database cannot be used now, or the server has too much to do or is stopping.",
    504: "The request took too long.",
}


def _described(text: str, media_type: str, model: str) -> JsonObject:
    return {"description": text, "content": {media_type: {"schema": {"$ref": _REFERENCE.format(model=model)}}}}


EVENTS: Final = _described("A stream of events.", "text/event-stream", "StreamEvent")
DATA: Final = _described("A stream of the events of a client's protocol.", "text/event-stream", "DataEvent")


class BoundedRoute(APIRoute):
    """A route that reads bodies by the rules of the server, and not before the key of the request was checked.

    FastAPI reads a body before it resolves any dependency; a parameter that is a `Body` has it as this route reads it.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = self._checking_query(super().get_route_handler())
        if self.body_field is None:
            return handle
        model: Any = self.body_field.field_info.annotation
        key = next(one.call for one in self.dependant.dependencies if isinstance(one.call, Key))

        async def answer(request: Request) -> Response:
            call = await key(request)
            most = min(call.service.max_body_bytes, model.max_bytes or call.service.max_body_bytes)
            body = await requests.body_object(request, most, model.max_values)
            return await handle(ReadRequest(key, call, body))

        return answer

    def _checking_query(
        self, handle: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what refuses parameters that the operation has not: a misspelt filter would pass for no filter."""
        pending, known = [self.dependant], list[str]()
        while pending:
            dependant = pending.pop()
            known += [parameter.alias for parameter in dependant.query_params]
            pending += dependant.dependencies
        objects = [one["name"] for one in (self.openapi_extra or {}).get("parameters", ())]  # as name[key]

        async def answer(request: Request) -> Response:
            for name in request.query_params:
                base, bracket, _ = name.partition("[")
                if name not in known and not (bracket and base in objects) and name not in _IN_URLS:
                    shown = name[:_LONGEST_NAME]
                    names = ", ".join([*known, *(f"{one}[name]" for one in objects)]) or "none"
                    problem = f"{shown!r} is no query parameter of this operation. Parameters: {names}."
                    raise problems.Problem(400, problem, param=shown, code="unknown_parameter")
            return await handle(request)

        return answer

    def at(self, prefix: str) -> BoundedRoute:
        """Return the route under a prefix of its path; what answers GET also answers HEAD.

        `FastAPI.include_router` would make all routes anew for each application, and match each path twice.
        """
        made = copy(self)
        made.path = prefix + self.path
        made.path_regex, made.path_format, made.param_convertors = compile_path(made.path)
        if self.methods == {"GET"}:
            made.methods = {"GET", "HEAD"}
        return made


def api_router(prefix: str = "") -> APIRouter:
    """Return a router for operations of the REST API."""
    problems: Any = {status: _described(text, "application/json", "Error") for status, text in _PROBLEMS.items()}
    return APIRouter(
        prefix=prefix, route_class=BoundedRoute, responses=problems, generate_unique_id_function=_operation_id,
        strict_content_type=False,
    )  # fmt: skip


def answered_with(model: Any) -> dict[str, Any]:
    """Return what the decorator of an operation says whose answer a model of AI may give, whole or as a stream."""
    in_progress = {"model": model, "description": "The same, in progress."}
    return {"status_code": 201, "response_model": model, "responses": {200: EVENTS, 202: in_progress}}


def _operation_id(route: APIRoute) -> str:
    return f"{''.join(route.methods or ()).lower()}_{re.sub(r'[^a-z]+', '_', route.path.lower()).strip('_')}"


async def answer_invalid(request: Request, error: RequestValidationError) -> answers.JsonAnswer:
    """Answer a request that has not what its operation takes with the first of its errors."""
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"][1:]]  # … without those that name members of a union
    path = ".".join(part for part in parts if part != "str" and not part.startswith(("list[", "dict[")))
    problem = problems.Problem(400, f"{path or 'The body'}: {first['msg']}.", param=path or None, code="invalid_value")
    return await problems.answer_problem(request, problem)


async def _answer_unserved(request: Request, error: HTTPException) -> answers.JsonAnswer:
    return await problems.answer_problem(request, await service.unserved(request, error))


ERROR_HANDLERS: Final[Mapping[Any, Any]] = {
    **problems.HANDLERS, HTTPException: _answer_unserved, RequestValidationError: answer_invalid
}  # fmt: skip


def openapi_document(routes: Iterable[BoundedRoute]) -> JsonObject:
    """Return the document that describes operations, as JSON values."""
    found = get_openapi(title="threadkeep", version=threadkeep.__version__, routes=[*routes])
    for operation in (one for path in found["paths"].values() for one in path.values()):
        operation["responses"].pop("422", None)  # FastAPI's own answer to what is invalid
    named: Any = [(model, "serialization") for model in (Error, StreamEvent, DataEvent)]
    _, shared = models_json_schema(named, ref_template=_REFERENCE)
    schemas = {**found["components"]["schemas"], **shared["$defs"]}
    found["components"]["schemas"] = {
        name: schemas[name]
        for name in sorted(schemas, key=lambda name: name.removesuffix("Object"))
        if "ValidationError" not in name
    }
    text = re.sub(rb'\b([A-Z][A-Za-z]+|Listed_[A-Za-z]+)Object(?=["_\]])', rb"\1", dumps(found))  # see `models`
    document: JsonObject = loads(re.sub(rb'(Listed_[A-Za-z]+)_"', rb'\1"', text))  # Pydantic: Listed_Message_
    return document
