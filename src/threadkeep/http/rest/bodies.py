"""Reading bodies by their models, and writing times."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from threadkeep.http.bounds import bounded
from threadkeep.http.problems import Problem
from threadkeep.http.requests import body_object
from threadkeep.http.service import Call

B = TypeVar("B", bound=BaseModel)


async def read_body(call: Call, model: type[B], *, apart: str | None = None) -> B:
    """Return the body of a request; Problem says where it is not as the model describes it.

    How many values it may have is limited, except for those in the key `apart`.
    """
    body = bounded(await body_object(call.request, call.service.max_body_bytes), apart=apart)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("str", "list[", "dict[")))
        raise Problem(
            400, f"{path or 'The body'}: {first['msg']}.", param=path or None, code="invalid_value"
        ) from error


def seconds(at: datetime | None) -> int | None:
    """Return a time as whole seconds since 1970."""
    return None if at is None else int(at.timestamp())
