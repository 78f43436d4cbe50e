"""Reading bodies by their models, and writing times."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from threadkeep.http.bounds import MAX_VALUES
from threadkeep.http.problems import Problem
from threadkeep.http.requests import body_object
from threadkeep.http.service import Call

B = TypeVar("B", bound=BaseModel)


async def read_body(call: Call, model: type[B], *, most: int | None = None, values: int = MAX_VALUES) -> B:
    """Return the body of a request; Problem says where it is not as the model describes it.

    It has `most` bytes at most, and never more than the service allows, and so many values.
    """
    largest = call.service.max_body_bytes
    body = await body_object(call.request, largest if most is None else min(most, largest), values)
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
