"""A judge of requests for interactions: what the types of google-genai refuse or do not know, and what calls need."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

Json = dict[str, Any]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


@cache
def kind(name: str) -> Any:
    """A type of the SDK, which takes long to import."""
    return getattr(import_module("google.genai._gaos.types.interactions"), name)


@cache
def adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(kind(name))


def refused(payload: Json) -> list[str]:
    """What is wrong with a request."""
    name = "CreateAgentInteraction" if "agent" in payload else "CreateModelInteraction"
    try:
        with warnings.catch_warnings(action="ignore"):  # of its types that will go
            read = adapter(name).validate_python(payload)
    except ValidationError as error:
        return [f"vendor.validator: {error}"]
    return [*strange(read), *broken_calls(payload)]


def strange(thing: Any) -> Iterator[str]:
    """What the types do not know in a value that they have read: unknown variants, and keys."""
    if isinstance(thing, list):
        for one in thing:
            yield from strange(one)
    elif isinstance(thing, BaseModel):
        if getattr(thing, "is_unknown", False):
            yield f"interactions.unknown: {thing}"
        yield from (f"interactions.key: {type(thing).__name__}.{key}" for key in thing.model_extra or ())
        yield from strange([*thing.__dict__.values()])


def broken_calls(payload: Json) -> Iterator[str]:
    """Calls that share an id or have no result, and results without a call."""
    given = payload.get("input")
    steps = [step for step in given if isinstance(step, dict)] if isinstance(given, list) else []
    calls = [step["id"] for step in steps if step.get("type") == "function_call"]
    results = [step["call_id"] for step in steps if step.get("type") == "function_result"]
    if "previous_interaction_id" not in payload and (sorted(calls) != sorted(results) or len(set(calls)) < len(calls)):
        yield f"interactions.calls: {calls} {results}"
    names = [step["name"] for step in (*steps, *payload.get("tools", ())) if "name" in step]
    yield from (f"interactions.name: {name}" for name in names if not NAME.fullmatch(name))
