"""The spelling variants of the Gemini API: requests that the service reads alike become the same value."""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

# keys under which the user's own JSON stands, which is never leveled
VERBATIM = {
    "args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels",
    "partMetadata",
}  # fmt: skip
# keys whose values are words of the API, in any case
WORDS = {
    "mode", "thinkingLevel", "serviceTier", "role", "category", "threshold", "method", "mediaResolution", "level",
    "language", "outcome", "toolType", "scheduling", "behavior", "responseModalities",
}  # fmt: skip
# keys whose values are bytes
BYTES = {"thoughtSignature", "data", "continuationToken"}
# keys of which one may stand for a list of one
LISTS = {"contents", "tools", "parts", "functionDeclarations"}


def leveled(request: Json) -> Json:
    """A request in one spelling."""
    found = leveled_object(request)
    found["contents"] = joined(found["contents"])
    tools = [tool for tool in found.pop("tools", []) if tool]
    declared = [one for tool in tools for one in tool.pop("functionDeclarations", [])]
    found["tools"] = [tool for tool in tools if tool] + ([{"functionDeclarations": declared}] if declared else [])
    if isinstance(found.get("systemInstruction"), dict):
        found["systemInstruction"].pop("role", None)
    return {key: value for key, value in found.items() if (key, value) not in (("generationConfig", {}), ("tools", []))}


def camel(key: str) -> str:
    """A key in camel case."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), key)


def leveled_object(thing: Json) -> Json:
    """An object of the API in one spelling."""
    return {camel(key): leveled_value(camel(key), value) for key, value in thing.items() if value is not None}


def leveled_value(key: str, value: Any) -> Any:
    """The value of a key in one spelling."""
    if key in VERBATIM:
        return value
    if key in LISTS and isinstance(value, dict):
        return [leveled_object(value)]
    if isinstance(value, dict):
        return leveled_object(value)
    if isinstance(value, list):
        return [leveled_object(one) if isinstance(one, dict) else leveled_value(key, one) for one in value]
    if isinstance(value, str) and key in WORDS:
        return value.lower()
    if isinstance(value, str) and key in BYTES:
        return value.replace("-", "+").replace("_", "/").rstrip("=")
    return value


def joined(contents: list[Json]) -> list[Json]:
    """Contents with neighbours of one role as one; a content without a role is the user's."""
    found: list[Json] = []
    for content in contents:
        role = content.get("role", "user")
        if found and found[-1]["role"] == role:
            found[-1] = {**found[-1], "parts": [*found[-1]["parts"], *content["parts"]]}
        else:
            found.append({**content, "role": role})
    return found
