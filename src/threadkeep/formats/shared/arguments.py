"""Arguments of function calls: JSON text, kept byte for byte, and repaired only where a provider would refuse it."""

from __future__ import annotations

import json
from typing import Any, Final, Never

import orjson

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.shared.reports import Context

EMPTY: Final = "{}"


def sent_arguments(item: JsonObject, context: Context) -> str:
    """The arguments of a call as JSON text; what is not JSON becomes an empty object, which is reported."""
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        if is_json(arguments):
            return arguments
        if arguments.strip():
            detail = f"The arguments of {item.get('name')!r} are not JSON and were sent as an empty object."
            context.repair("malformed_arguments", "arguments", detail)
        else:
            context.repair("empty_arguments", "arguments", "Empty arguments were sent as an empty object.")
        return EMPTY
    return arguments_text(arguments)


def arguments_text(value: Any) -> str:
    """The arguments of a call as a provider gave them, as text: some give an object, some nothing."""
    if isinstance(value, str):
        return value
    return EMPTY if value is None else dumps(value).decode()


def is_json(text: str) -> bool:
    """Whether a text is JSON, strictly by the standard, which allows the lone surrogates that orjson refuses."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
    return True


def _refuse(constant: str) -> Never:
    raise ValueError(constant)
