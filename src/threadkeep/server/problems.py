"""Errors as OpenAI's clients read them: a status, a JSON body with four keys, and headers that steer retries.

Source: OpenAI's API reference, "Error codes", and the retries of its clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final

from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from threadkeep import errors
from threadkeep.domain.jsontext import JsonObject
from threadkeep.server import answers, owners, quotas

logger = logging.getLogger(__name__)

LEFT: Final = 499  # what figures and logs have where nobody is there to be answered, as proxies do
INVALID: Final = "invalid_request_error"
MAX_MESSAGE: Final = 4_000  # characters of an error; it may repeat what was sent
MAX_PARAM: Final = 200  # characters of where that was
_SERVER: Final = "server_error"
NO_RETRY: Final = {"x-should-retry": "false"}  # clients repeat a 409 otherwise
# arguments of the store -> parameters of requests
_PARAMETERS: Final = {"properties": "metadata", "position": "item_id"}


class Problem(Exception):
    """A request that cannot be answered: with a status and what its body says."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str = INVALID,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.type = status, message, param, code, type
        self.headers = headers


# kind of error -> status and code; the first that fits applies
_STATUSES: Final[tuple[tuple[type[Exception], int, str | None], ...]] = (
    (errors.NotFound, 404, "not_found"),
    (errors.TooLarge, 413, "request_too_large"),
    (errors.ResponseInProgress, 400, "conversation_locked"),
    (errors.HeadConflict, 409, "head_conflict"),
    (errors.IdempotencyConflict, 409, "idempotency_conflict"),
    (errors.StateConflict, 409, "state_conflict"),
    (errors.Conflict, 409, "conflict"),
    (errors.CursorExpired, 410, "cursor_expired"),
    (errors.InvalidOption, 400, "invalid_value"),
    (errors.InvalidItem, 400, "invalid_value"),
    (errors.FormatError, 400, "invalid_value"),
    (errors.PoolExhausted, 503, "busy"),
    (errors.DatabaseUnavailable, 503, "database"),
    (errors.SchemaError, 503, "schema"),
    (DBAPIError, 503, "database"),
)
# status of what the framework and the limits of the server refuse -> code
_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large", 429: "rate_limit_exceeded"}


def problem_of(error: Exception) -> Problem:
    """Return the answer to a request that ended with an error, without details of the server's own errors."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, ClientDisconnect):
        return Problem(LEFT, "The client left while it sent the request.", code="client_left")
    status, code = next(((status, code) for kind, status, code in _STATUSES if isinstance(error, kind)), (500, None))
    if not isinstance(error, errors.ThreadkeepError) or status in (500, 503):
        logger.error("A request failed.", exc_info=error)
        message = "The server failed." if status == 500 else "The database cannot be used now."  # noqa: PLR2004 - above
        headers = {"retry-after": "1"} if status != 500 else None  # noqa: PLR2004 - above
        return Problem(status, message, code=code, type=_SERVER, headers=headers)
    return _of_ours(error, status, code)


def _of_http(error: HTTPException) -> Problem:
    """The answer to a request that the framework, a limit, a quota or the application refuses."""
    code = error.code if isinstance(error, owners.HeaderRefused | quotas.QuotaExceeded) else None
    kind = _SERVER if isinstance(error, quotas.QuotaExceeded) and error.status_code == 503 else INVALID  # noqa: PLR2004
    code = code or _CODES.get(error.status_code)
    text = f"{error.detail.removesuffix('.')}."  # which `auth` of an application may have written
    return Problem(error.status_code, text, code=code, type=kind, headers=error.headers)


def _of_ours(error: errors.ThreadkeepError, status: int, code: str | None) -> Problem:
    """The answer to a request that the store refuses."""
    if isinstance(error, errors.ResponseInProgress):
        return _locked(error, status, code)
    if isinstance(error, errors.IdempotencyConflict):  # whose key is one of those that the server makes of the client's
        text = "The Idempotency-Key was used before, for another request. Use a new key for each request."
        return Problem(status, text, code=code, headers=NO_RETRY)
    param = _parameter(error.argument)
    text = " ".join(part for part in (param, error.message) if part)
    return Problem(status, text, param=param, code=code, headers=NO_RETRY if status == 409 else None)  # noqa: PLR2004


def _locked(error: errors.ResponseInProgress, status: int, code: str | None) -> Problem:
    """The answer while another request is being answered, or the first one with the same Idempotency-Key."""
    if error.is_repeated:
        text = "The request with this Idempotency-Key is still being answered."
        return Problem(409, text, code="request_in_progress", headers={"retry-after": "1"})
    headers = {"retry-after": str(ceil(error.retry_after))}
    text = f"{error.message} Try again when that has ended, or stop it."
    return Problem(status, text, param="conversation", code=code, headers=headers)


def _parameter(argument: str | None) -> str | None:
    if argument is None:
        return None
    for name, parameter in _PARAMETERS.items():
        if argument == name or argument.startswith((f"{name}[", f"{name}.")):
            return parameter + argument[len(name) :]
    return argument


async def answer_problem(request: Request, error: Exception) -> answers.JsonAnswer:
    """Answer a request with an error, and with its id: what answers errors of the server is around all middleware."""
    problem = problem_of(error)
    body: dict[str, Any] = {
        "message": problem.message[:MAX_MESSAGE], "type": problem.type, "code": problem.code,
        "param": problem.param and problem.param[:MAX_PARAM],
    }  # fmt: skip
    answer = answers.JsonAnswer({"error": body}, problem.status, problem.headers)
    if "request_id" in request.scope.get("state", {}):
        answer.headers.setdefault(answers.HEADER, request.state.request_id)
    return answer


def error_event(status: int, error: JsonObject, headers: Mapping[str, str], lane: str | None) -> JsonObject:
    """Return the event of a WebSocket for a request of a lane (`stream_id`) that is answered with an error."""
    named = {"headers": headers} if headers else {}
    return {"type": "error", "status": status, "error": {**error, **named}} | ({"stream_id": lane} if lane else {})


def problem_event(problem: Problem, lane: str | None) -> JsonObject:
    """Return the same for one that cannot be answered."""
    error = {"type": problem.type, "code": problem.code, "message": problem.message, "param": problem.param}
    return error_event(problem.status, error, {**(problem.headers or {})}, lane)


HANDLERS: Final[Mapping[Any, Callable[[Request, Exception], Any]]] = dict.fromkeys(
    (Problem, HTTPException, ClientDisconnect, errors.ThreadkeepError, DBAPIError, Exception), answer_problem
)
