"""Responses of the sixth format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.formats.prompt_format.fields import NAME
from threadkeep.domain.items import Message
from threadkeep.domain.response import Response
from threadkeep.formats.shared.parsing import parser, response_object, status_of
from threadkeep.formats.shared.provider_errors import not_a_response, provider_error


@parser(f"{NAME} body")
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    body = response_object(body)
    if (error := provider_error(body, NAME)) is not None:
        raise error
    if "completion" not in body:
        raise not_a_response(body, NAME, "The body has no completion")
    output = [Message("assistant", body["completion"], origin=NAME)]
    return Response(status=status_of(body.get("end"), {"done": "completed"}, NAME), output=output, format=NAME)
