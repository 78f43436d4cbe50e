"""Arguments for boto3: ``client.converse(**rendered.arguments(client.converse))``.

A client of botocore makes its methods from the service model, and they take any keywords; which ones the operation has,
and which values are bytes, is in the model of the client that the method belongs to.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.converse.fields import NAME
from threadkeep.formats.shared.sending import check_stream, name_of, not_sent, parameters_of, wrong_method

if TYPE_CHECKING:
    from threadkeep.domain.rendering import Rendered

_STREAMED: Final = "ConverseStream"
_TURNS: Final = "messages"


def arguments(rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> JsonObject:
    """The arguments with which a method of boto3 sends the request, with bytes where JSON has base64."""
    parameters_of(method)  # refuses what is no method
    name, operation = name_of(method), _operation(method)
    if operation is None or _TURNS not in operation.input_shape.members:
        raise wrong_method(name, "is no method of a Bedrock client that takes messages", NAME)
    check_stream(stream, name, streams=operation.name == _STREAMED)
    payload, shape = rendered.payload, operation.input_shape
    if foreign := payload.keys() - shape.members.keys():
        raise not_sent(foreign, name)
    result: JsonObject = _in_bytes(payload, shape, "")
    return result


def _operation(method: Callable[..., Any]) -> Any:
    """The operation of the service model that a method stands for; None if it is no method of a client."""
    method = getattr(method, "func", method)  # of a functools.partial
    meta = getattr(getattr(method, "__self__", None), "meta", None)
    operation = getattr(meta, "method_to_api_mapping", {}).get(name_of(method))
    return None if meta is None or operation is None else meta.service_model.operation_model(operation)


def _in_bytes(value: Any, shape: Any, path: str) -> Any:
    """A value with bytes where its shape has them; botocore refuses what the model does not know."""
    if shape is None or getattr(shape, "is_document_type", False):
        return value
    if isinstance(value, dict):
        members = getattr(shape, "members", None)
        inner = getattr(shape, "value", None)  # of a map
        return {
            key: _in_bytes(one, inner if members is None else members.get(key), f"{path}.{key}" if path else key)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_in_bytes(one, getattr(shape, "member", None), f"{path}.{index}") for index, one in enumerate(value)]
    return _decoded(value, path) if shape.type_name == "blob" and isinstance(value, str) else value


def _decoded(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CannotRender(f"{path} is not base64: {error}.", hint="boto3 takes bytes there.") from error
