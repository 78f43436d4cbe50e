"""A judge of rendered Gemini requests: what the types of google-genai and the service itself refuse.

Each rule gives the names of what a request breaks; an empty list means that the service would take it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from google.genai import types
from pydantic import BaseModel, ValidationError

Json = dict[str, Any]
Rule = Callable[[Json], Iterator[str]]

FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
SIGNING = re.compile(r"gemini-3")
# keys of a part that hold its data: one of them in each
DATA = {
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
}  # fmt: skip
# key of a request -> the type of its value, or of the elements of its list
TYPES: dict[str, type[BaseModel]] = {
    "contents": types.Content,
    "systemInstruction": types.Content,
    "tools": types.Tool,
    "toolConfig": types.ToolConfig,
    "safetySettings": types.SafetySetting,
    "generationConfig": types.GenerationConfig,
}
PLAIN = {"cachedContent", "serviceTier", "store", "labels", "modelArmorConfig"}
LIMITS = {"temperature": (0, 2), "topP": (0, 1), "candidateCount": (1, 8), "maxOutputTokens": (1, 10**9)}


def refused(payload: Json, model: str | None = None) -> list[str]:
    """The rules that a payload for a model breaks."""
    found = [broken for rule in RULES for broken in rule(payload)]
    return found + (list(first_calls_are_signed(payload)) if SIGNING.search(model or "") else [])


def fits_the_types(payload: Json) -> Iterator[str]:
    for key, value in payload.items():
        if key not in TYPES and key not in PLAIN:
            yield f"type.unknown-key: {key}"
        for one in value if isinstance(value, list) else [value] if key in TYPES else []:
            try:
                TYPES[key].model_validate_json(json.dumps(one))
            except (ValidationError, AttributeError) as error:  # the latter for numbers as words of the API
                yield f"vendor.validator: {key}: {error}"


def contents_are_whole(payload: Json) -> Iterator[str]:
    if not payload["contents"]:
        yield "gemini.contents"
    for index, content in enumerate(payload["contents"]):
        if content.get("role") not in ("user", "model"):
            yield f"gemini.role: {content.get('role')}"
        if not content.get("parts"):
            yield f"gemini.parts: contents[{index}] has none"
        for part in content["parts"]:
            is_bare_thought = part.get("thought") is True or "thoughtSignature" in part  # recorded: passes
            if len(part.keys() & DATA) != 1 and not (is_bare_thought and not part.keys() & DATA):
                yield f"gemini.parts: {sorted(part)}"
            yield from blobs_are_whole(part)


def blobs_are_whole(part: Json) -> Iterator[str]:
    for one in [part, *part.get("functionResponse", {}).get("parts", [])]:
        inline, file = one.get("inlineData"), one.get("fileData")
        if inline is not None and not (inline.get("mimeType") and inline.get("data")):
            yield f"gemini.blob: {sorted(inline)}"
        if file is not None and not file.get("fileUri"):
            yield f"gemini.blob: {sorted(file)}"


def turns_follow_each_other(payload: Json) -> Iterator[str]:
    contents = payload["contents"]
    if contents[0]["role"] != "user":
        yield "gemini.first-user"
    for before, content in pairwise([{"role": "user", "parts": []}, *contents]):
        if data(content, "functionCall") and before["role"] != "user":
            yield "gemini.call-place"


def calls_are_answered(payload: Json) -> Iterator[str]:
    for content, after in pairwise([{"role": "user", "parts": []}, *payload["contents"], {"parts": []}]):
        calls = data(content, "functionCall") if content["role"] == "model" else []
        responses = data(after, "functionResponse")
        if len(calls) != len(responses):
            yield f"gemini.call-answers: {len(calls)} calls, {len(responses)} responses"
        if sorted(call["name"] for call in calls) != sorted(response["name"] for response in responses):
            yield f"gemini.response-name: {calls} {responses}"
        ids = sorted(call["id"] for call in calls if "id" in call)
        if ids != sorted(response["id"] for response in responses if "id" in response):
            yield f"gemini.response-name: the ids {ids} are others than those of {responses}"


def data(content: Json, key: str) -> list[Json]:
    """The values of a key in the parts of a content."""
    return [part[key] for part in content["parts"] if key in part]


def names_are_valid(payload: Json) -> Iterator[str]:
    calls = [call for content in payload["contents"] for call in data(content, "functionCall")]
    for thing in [*declarations(payload), *calls]:
        if not FUNCTION_NAME.fullmatch(thing["name"]):
            yield f"gemini.function-name: {thing['name']!r}"
    names = [one["name"] for one in declarations(payload)]
    if len(set(names)) < len(names):
        yield "gemini.function-name: two functions have one name"


def declarations(payload: Json) -> list[Json]:
    """The functions that a request declares."""
    return [one for tool in payload.get("tools", []) for one in tool.get("functionDeclarations", [])]


def settings_fit(payload: Json) -> Iterator[str]:
    config = payload.get("generationConfig", {})
    schemas = [key for key in ("responseSchema", "responseJsonSchema") if key in config]
    if len(schemas) > 1 or any({"parameters", "parametersJsonSchema"} <= one.keys() for one in declarations(payload)):
        yield "gemini.schema-twice"
    if schemas and config.get("responseMimeType") not in ("application/json", "text/x.enum"):
        yield "gemini.schema-mime"
    if "logprobs" in config and config.get("responseLogprobs") is not True:
        yield "gemini.logprobs"
    if {"thinkingBudget", "thinkingLevel"} <= config.get("thinkingConfig", {}).keys():
        yield "gemini.two-thinking"
    if len(config.get("stopSequences", [])) > 5:
        yield "gemini.stop-count"
    for key, (least, most) in LIMITS.items():
        if key in config and not least <= config[key] <= most:
            yield f"gemini.range: {key}"
    if "cachedContent" in payload and {"systemInstruction", "tools", "toolConfig"} & payload.keys():
        yield "gemini.cached-content"


def choices_are_offered(payload: Json) -> Iterator[str]:
    choice = payload.get("toolConfig", {}).get("functionCallingConfig", {})
    names = choice.get("allowedFunctionNames", [])
    if names and str(choice.get("mode")).upper() not in ("ANY", "VALIDATED"):
        yield "gemini.allowed-names: mode"
    if not set(names) <= {one["name"] for one in declarations(payload)}:
        yield "gemini.allowed-names"


def first_calls_are_signed(payload: Json) -> Iterator[str]:
    for content in payload["contents"]:
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in first:
            yield "gemini.signature-missing"


RULES: list[Rule] = [
    fits_the_types,
    contents_are_whole,
    turns_follow_each_other,
    calls_are_answered,
    names_are_valid,
    settings_fit,
    choices_are_offered,
]
