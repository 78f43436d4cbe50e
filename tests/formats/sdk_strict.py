"""What the types of the SDKs refuse, taken at their word: no unknown keys, no other types, nothing left out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import import_module
from types import GenericAlias
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import CoreConfig, SchemaValidator, ValidationError

from tests.formats import validity_interactions, validity_ui_messages
from tests.formats.sdk_schema import SHAPES, choices, resolved, schema, type_of
from tests.formats.sdk_types import completed

Json = dict[str, Any]

# format -> (the key of its turns, the root of one of them)
TURNS: Final = {
    "open_responses": ("input", "openai.responses.input"),
    "chat_completion": ("messages", "openai.chat.message"),
    "messages": ("messages", "anthropic.beta.message"),
    "gemini": ("contents", "google.content"),
    "pydantic_ai": ("message_history", "pydantic_ai.message"),
    "ag_ui": ("messages", "ag_ui.message"),
}
# format -> the root of its requests
REQUESTS: Final = {
    "open_responses": "openai.responses.request",
    "chat_completion": "openai.chat.request",
    "messages": "anthropic.beta.request",
    "gemini": "google.config",
}
# format -> keys of its service that the SDK takes as `extra_body`, or under another name
UNTYPED: Final = {
    "open_responses": frozenset({"presence_penalty", "frequency_penalty"}),
    "messages": frozenset({"temperature", "top_p", "top_k"}),
    "gemini": frozenset({"modelConfig", "outputConfig"}),
}
_ERRORS: Final = 3  # how many of those in one value are told


@cache
def validator(root: str) -> SchemaValidator:
    """A validator of a list of values of a root, which takes no keys that the type does not have."""
    turns: Any = GenericAlias(list, (type_of(root),))
    adapter: TypeAdapter[Any] = TypeAdapter(turns)
    strict = _closed(adapter.core_schema)
    return SchemaValidator(strict, CoreConfig(strict=True))


def _closed(thing: Any) -> Any:
    """A schema of Pydantic's without room for other keys, in which an iterable is a list."""
    if isinstance(thing, list | tuple):
        return type(thing)(map(_closed, thing))
    if not isinstance(thing, dict):
        return thing
    closed = {key: value if key == "metadata" else _closed(value) for key, value in thing.items()}
    kind = closed.get("type")
    if kind in ("typed-dict", "model-fields", "dataclass-args") and "extras_schema" not in closed:
        closed["extra_behavior"] = "forbid"
    return closed | ({"type": "list"} if kind == "generator" else {})


def refused(value: Any, root: str) -> list[str]:
    """What the type of a root refuses of a value."""
    if root in SHAPES:
        return shape_errors(value, SHAPES[root])
    try:
        with warnings.catch_warnings(action="ignore"):  # google-genai's of its types that will go
            validator(root).validate_json(json.dumps([value]))
    except ValidationError as error:
        return _nearest(error)
    except (ValueError, TypeError) as error:  # validators of an SDK's own
        return [repr(error)]
    return []


def _nearest(error: ValidationError) -> list[str]:
    """The errors of the alternative of a union that refuses the least."""
    found: dict[Any, list[str]] = {}
    for one in error.errors(include_url=False):
        place = one["loc"][1:]
        branch = place[0] if place and isinstance(place[0], str) else None
        found.setdefault(branch, []).append(f"{'.'.join(map(str, place))}: {one['msg']}")
    nearest = min(
        found,
        key=lambda branch: (any(line.startswith(f"{branch}.type: ") for line in found[branch]), len(found[branch])),
    )
    return found[nearest][:_ERRORS]


@cache
def _service() -> Any:
    session: Any = import_module("botocore.session").get_session()
    return session.get_service_model("bedrock-runtime")


def shape_errors(value: Any, name: str) -> list[str]:
    """What botocore refuses of a value of a shape."""
    validate: Any = import_module("botocore.validate")
    report = validate.ParamValidator().validate(value, _service().shape_for(name))
    return str(report.generate_report()).splitlines() if report.has_errors() else []


def unfit(payload: Json, format_name: str) -> Iterator[str]:
    """What the types of a format refuse of a request: of its turns, and of everything else."""
    if format_name == "converse":
        yield from shape_errors({"modelId": "m", **payload}, "ConverseRequest")
        return
    if format_name == "interactions":
        yield from validity_interactions.refused(payload if "agent" in payload else {"model": "m", **payload})
        return
    if format_name == "ui_messages":
        yield from validity_ui_messages.refused(payload)
        return
    key, root = TURNS[format_name]
    for turn in payload[key] if isinstance(payload[key], list) else []:
        whole = completed(turn) if format_name == "open_responses" else turn
        yield from (f"{key}.{error}" for error in refused(whole, root))
    if format_name in REQUESTS:
        yield from _refused_options(json.dumps(_options(payload, format_name)), format_name)


@lru_cache(maxsize=1000)
def _refused_options(options: str, format_name: str) -> list[str]:
    """The same for everything but the turns, which is mostly the same."""
    return refused(json.loads(options), REQUESTS[format_name])


def _options(payload: Json, format_name: str) -> Json:
    """A request without its turns, as the type of the SDK has it."""
    whole = _arguments(payload, format_name)
    return {key: value for key, value in whole.items() if key not in UNTYPED.get(format_name, ())}


def _arguments(payload: Json, format_name: str) -> Json:
    if format_name == "gemini":
        rest = {key: value for key, value in payload.items() if key not in ("contents", "generationConfig")}
        return {**rest, **payload.get("generationConfig", {})}
    key, _ = TURNS[format_name]
    tools = {"tools": completed(payload["tools"])} if format_name == "open_responses" and "tools" in payload else {}
    return {**payload, **tools, key: "Hi" if format_name == "open_responses" else []}


def fitted(value: Any, kind: Json, root: Json) -> Any:
    """What a type can hold of a value: without the keys that it does not have, such as those of answers alone."""
    if isinstance(value, list):
        return [fitted(one, _items(kind, root), root) for one in value]
    if not isinstance(value, dict):
        return value
    options = [resolved(one, root) for one in _flat(kind, root)]
    fields = next((one["properties"] for one in options if _matches(value, one)), None)
    if fields is None:
        return value
    return {key: fitted(inner, fields[key], root) for key, inner in value.items() if key in fields}


def _items(kind: Json, root: Json) -> Json:
    found = [one["items"] for one in (resolved(one, root) for one in _flat(kind, root)) if one.get("type") == "array"]
    return {"anyOf": found} if found else {}


def _flat(kind: Json, root: Json) -> list[Json]:
    """The alternatives of a type, and of its alternatives."""
    kind = resolved(kind, root)
    options = choices(kind)
    return [kind] if options == [kind] else [one for option in options for one in _flat(option, root)]


def _matches(value: Json, kind: Json) -> bool:
    """Whether a value has the tags and the required keys of an object type."""
    fields = kind.get("properties")
    if fields is None or not set(kind.get("required", ())) <= value.keys():
        return False
    tags = {key: _tags(fields[key]) for key in ("type", "role") if key in fields}
    return all(
        not words or (key not in value and "const" not in fields[key]) or value.get(key) in words
        for key, words in tags.items()
    )


def _tags(kind: Json) -> list[Any]:
    """The words that a key of a type can hold; none where it can hold anything."""
    return [word for one in choices(kind) for word in one.get("enum", [one["const"]] if "const" in one else [])]


def fit_for_requests(value: Any, format_name: str) -> Any:
    """What a turn of an answer keeps when it goes back, by the SDK's type of a turn."""
    if format_name not in TURNS:
        return value
    _, root = TURNS[format_name]
    return fitted(value, schema(root), schema(root))
