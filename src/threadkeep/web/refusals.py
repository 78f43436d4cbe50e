"""What is answered before any face is asked: errors of the form that all faces have."""

from __future__ import annotations

from starlette.responses import Response

from threadkeep.domain.jsontext import dumps


def refusal(status: int, message: str, code: str, *, retry_after: int | None = None) -> Response:
    """Return an error as clients of OpenAI read it; `retry_after`: seconds after which a client may try again."""
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 - of the client, or the server
    error = {"message": message, "type": kind, "param": None, "code": code}
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Response(dumps({"error": error}), status, headers, "application/json")
