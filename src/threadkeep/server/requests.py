"""What requests ask for: their body, and the parameters of lists."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, Literal, NamedTuple

from starlette.requests import Request

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import InvalidItem
from threadkeep.server import body_limits, limits
from threadkeep.server.problems import Problem

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100
BODY_SECONDS: Final = 30.0  # in which something more of a body must come
_LIMIT: Final = re.compile(r"[0-9]{1,9}")
_HEAD: Final = re.compile(r'(?:W/)?"?(-?\d{1,18})"?')


async def body_object(request: Request, most: int, values: int = body_limits.MAX_VALUES) -> JsonObject:
    """Return the JSON object that a request has as its body, of so many bytes and values at most.

    It is an empty one for an empty body.
    """
    text = await body_bytes(request, most)
    body_limits.check_values(text, values)
    try:
        body = loads(text, is_finite=True) if text.strip() else {}
    except InvalidItem:  # which says where
        raise
    except ValueError as error:
        raise Problem(400, f"The body is not JSON: {error}.", code="invalid_json") from error
    if not isinstance(body, dict):
        raise Problem(400, "The body must be a JSON object.", code="invalid_type")
    return body


async def body_bytes(request: Request, most: int) -> bytes:
    """Return the body of a request; it is read as it comes, for as long as it is within its limit and goes on.

    Raises:
        Problem: it exceeds the limit, or nothing more of it has come for a while.
    """
    found = BytesIO()  # whose value is no copy of what was written
    if not limits.exceeds(request.headers.get("content-length", ""), most):
        try:
            async with asyncio.timeout(BODY_SECONDS) as patience:
                async for chunk in request.stream():
                    if chunk:  # not for what says that it has ended
                        patience.reschedule(asyncio.get_running_loop().time() + BODY_SECONDS)
                    found.write(chunk)
                    if found.tell() > most:
                        break
                else:
                    return found.getvalue()
        except TimeoutError as error:
            raise Problem(408, f"{stalled()}.", code="request_timeout", headers={"connection": "close"}) from error
    raise Problem(413, f"The body exceeds {most:,} bytes.", code="request_too_large")


def stalled() -> str:
    """Return the answer to a request whose body has stopped coming."""
    return f"Nothing more of the body has come for {BODY_SECONDS:g} seconds"


class PageQuery(NamedTuple):
    """Which page of a list a request asks for.

    Attributes:
        after: the id after which it begins; None for the beginning.
        limit: how many objects it has at most.
        order: "asc" for oldest first, or "desc".
    """

    after: str | None
    limit: int
    order: Literal["asc", "desc"]

    @classmethod
    def of(cls, request: Request, default: int = DEFAULT_LIMIT) -> PageQuery:
        """Return the page that the query of a request names; newest first unless it says otherwise."""
        query = request.query_params
        limit, order = query.get("limit", str(default)), query.get("order", "desc")
        if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= MAX_LIMIT:
            raise Problem(400, f"limit must be a number from 1 to {MAX_LIMIT}.", param="limit", code="invalid_value")
        if order not in ("asc", "desc"):
            raise Problem(400, 'order must be "asc" or "desc".', param="order", code="invalid_value")
        return cls(query.get("after") or None, int(limit), "asc" if order == "asc" else "desc")


def status_of(text: str) -> Literal["active", "archived"] | None:
    """Return the status of conversations that a text names; None for any."""
    match text:
        case "active" | "archived" as status:
            return status
        case "any":
            return None
    raise Problem(400, "status must be active, archived or any.", param="status", code="invalid_value")


def included(request: Request) -> frozenset[str]:
    """Return the values of `include`, which clients write with brackets or without."""
    query = request.query_params
    return frozenset([*query.getlist("include[]"), *query.getlist("include")])


def pairs(request: Request, name: str) -> dict[str, str]:
    """Return what a query gives as ``name[key]=value``."""
    pattern = re.compile(rf"{re.escape(name)}\[(.+)\]")
    return {found[1]: value for key, value in request.query_params.items() if (found := pattern.fullmatch(key))}


def flag(request: Request, name: str) -> bool:
    """Return a flag of the query; False where it is absent."""
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "false", "1", "0"):
        raise Problem(400, f"{name} must be true or false.", param=name, code="invalid_value")
    return value in ("true", "1")


def idempotency_key(request: Request) -> str | None:
    """Return the `Idempotency-Key` of a request, if it has one."""
    key = request.headers.get("idempotency-key")
    return None if key is None else checked_key(key)


def checked_key(key: str) -> str:
    """Return an `Idempotency-Key`; Problem for an empty one, which all requests would share."""
    if not key.strip():
        raise Problem(400, "Idempotency-Key must not be empty.", param="Idempotency-Key", code="invalid_value")
    return key


def expected_head(request: Request) -> int | None:
    """Return the position in `If-Match`, where the conversation is to end; None for any."""
    given = request.headers.get("if-match")
    return None if given is None else head_of(given)


def head_of(given: str) -> int | None:
    """Return the position that an `If-Match` names; None for any."""
    if given.strip() == "*":
        return None
    found = _HEAD.fullmatch(given.strip())
    if found is None:
        problem = 'If-Match must be the ETag of a conversation: its last position in quotes, such as "3", or "-1".'
        raise Problem(400, problem, param="If-Match", code="invalid_value")
    return int(found[1])


def required(body: Mapping[str, Any], name: str) -> Any:
    """Return a value of the body, which must have it."""
    if name not in body:
        raise Problem(400, f"{name} is missing.", param=name, code="missing_required_parameter")
    return body[name]
