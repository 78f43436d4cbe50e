"""The models that upstreams answer for, and what to do about the parts of OpenAI's API that are not served.

Source: OpenAI's API reference, "Models"; the paths of the `openai` package.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from threadkeep.domain.jsontext import JsonObject
from threadkeep.server import answers, pages, problems, service, upstreams

_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = 405
_PATTERN: Final = re.compile(r"[*?\[]")

# how a path begins behind the prefix -> what to do instead
_INSTEAD: Final[Mapping[str, str]] = {
    "/chat/completions": "Stored answers are GET /responses/{id}, with resp_ in place of chatcmpl-",
    "/completions": "Use POST /responses",
    "/messages": "Use POST /responses, which answers over Messages upstreams, too",
    "/responses": "Responses are created by POST, and retrieved by their id; there is no list of them",
    "/conversations": "See the table of endpoints in the documentation of the server",
    "/files": "Send files inside of items, or upload media over the REST API: POST /media",
    "/uploads": "Upload media over the REST API: POST /media",
    **dict.fromkeys(
        ("/embeddings", "/images", "/audio", "/moderations", "/batches", "/fine_tuning", "/vector_stores", "/realtime"),
        "Ask the provider itself",
    ),
}


async def list_all(call: service.Call) -> Response:
    """GET /models: those with an upstream of their own, and those of the upstreams that patterns such as ``*`` fit."""
    table = call.service.upstreams
    asked = {id(one): one for name, one in table.items() if _PATTERN.search(name) and one.models and not one.model}
    listed = await asyncio.gather(*(one.models() for one in asked.values() if one.models))
    names = [name for name in table if not _PATTERN.search(name)]
    for upstream, others in zip(asked.values(), listed, strict=True):
        names += [name for name in others if upstreams.upstream_for(name, table) is upstream]
    data = [_model(name, call.service.upstream(name)) for name in dict.fromkeys(names)]
    return answers.JsonAnswer(pages.list_object(data, has_more=False))


async def retrieve(call: service.Call) -> Response:
    """GET /models/{model}: one for which an upstream answers, also by a pattern."""
    name = call.request.path_params["model"]
    return answers.JsonAnswer(_model(name, call.service.upstream(name)))


def _model(name: str, upstream: upstreams.Upstream) -> JsonObject:
    """A model as OpenAI's clients read it; when it was made is not known."""
    return {"id": name, "object": "model", "created": 0, "owned_by": upstream.name}


async def answer_unserved(request: Request, error: Any) -> Response:
    """Answer a path or method that is not served with what to do instead."""
    error = await service.unserved(request, error)
    if isinstance(error, HTTPException) and error.status_code in (_NOT_FOUND, _NOT_ALLOWED):
        prefix: str = request.app.state.prefix
        path = request.scope.get("path", "").removeprefix(request.scope.get("root_path", "")).removeprefix(prefix)
        instead = next(
            (text for start, text in _INSTEAD.items() if path == start or path.startswith(start + "/")), None
        )
        detail = error.detail if error.status_code == _NOT_FOUND else _wrong_method(request, error)
        detail = detail if instead is None else f"{detail}. {instead}"
        error = HTTPException(error.status_code, detail, error.headers)
    return await problems.answer_problem(request, error)


def _wrong_method(request: Request, error: HTTPException) -> str:
    allowed = (error.headers or {}).get("Allow", "")
    return f"This path does not take the method {request.method}" + (f", but {allowed}" if allowed else "")
