"""A judge of rendered Converse requests: what the service model of botocore and the service itself refuse.

Each rule gives the names of what a request breaks; an empty list means that the service would take it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator

Json = dict[str, Any]
Rule = Callable[[Json], Iterator[str]]

DOCUMENT_NAME = re.compile(r"[A-Za-z0-9\-_()\[\]]+( [A-Za-z0-9\-_()\[\]]+)*|.{0}")
ONLY_USER = ("toolResult", "document", "image", "video")
ONLY_ASSISTANT = ("toolUse", "reasoningContent")


@cache
def request_shape() -> StructureShape:
    """The shape of a Converse request."""
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    shape = model.operation_model("Converse").input_shape
    assert isinstance(shape, StructureShape)
    return shape


def refused(payload: Json) -> list[str]:
    """The rules that a payload breaks."""
    return [broken for rule in RULES for broken in rule(payload)]


# What the service model says


def fits_the_validator(payload: Json) -> Iterator[str]:
    report = ParamValidator().validate(payload, request_shape())
    if report.has_errors():
        yield f"vendor.validator: {report.generate_report()}"


def fits_the_model(payload: Json) -> Iterator[str]:
    yield from broken_shape(payload, request_shape(), "$")


def broken_shape(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """What the validator of botocore leaves to the service: enumerations, patterns, sizes, base64."""
    if isinstance(shape, StructureShape) and not shape.is_document_type:
        if shape.is_tagged_union and len(value) != 1:
            yield f"type.one-of: {path} has {sorted(value)}"
        for key, inner in value.items():
            if key in shape.members:
                yield from broken_shape(inner, shape.members[key], f"{path}.{key}")
            else:
                yield f"type.unknown-key: {path}.{key}"
    elif isinstance(shape, ListShape):
        yield from _size(len(value), shape, path)
        for index, inner in enumerate(value):
            yield from broken_shape(inner, shape.member, f"{path}[{index}]")
    elif isinstance(shape, MapShape):
        yield from _size(len(value), shape, path)
        for key, inner in value.items():
            yield from broken_shape(key, shape.key, f"{path} key")
            yield from broken_shape(inner, shape.value, f"{path}.{key}")
    else:
        yield from _broken_scalar(value, shape, path)


def _broken_scalar(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if shape.type_name == "blob":
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            yield f"type.base64: {path}"
        else:
            yield from _size(len(decoded), shape, path)
    elif isinstance(shape, StringShape):
        yield from _size(len(value), shape, path)
        if shape.enum and value not in shape.enum:
            yield f"type.bad-value: {path} {value!r}"
        pattern = shape.metadata.get("pattern")
        if pattern and path != "$.modelId" and not re.fullmatch(pattern, value):
            yield f"type.pattern: {path} {value!r}"
    elif shape.type_name in ("integer", "float", "double", "long"):
        yield from _size(value, shape, path)


def _size(found: float, shape: Shape, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is not None and found < least) or (most is not None and found > most):
        yield f"type.size: {path} {found}"


# What the service says


def messages_alternate(payload: Json) -> Iterator[str]:
    roles = [message["role"] for message in payload["messages"] if message["role"] != "system"]
    if roles[:1] != ["user"]:
        yield "converse.first-user"
    if any(one == other for one, other in pairwise(roles)):
        yield f"converse.alternate: {roles}"


def nothing_is_blank(payload: Json) -> Iterator[str]:
    for index, message in enumerate(payload["messages"]):
        if not message["content"]:
            yield f"converse.empty-content: messages[{index}]"
        if any(block.get("text") == "" for block in message["content"]):
            yield f"converse.blank-text: messages[{index}]"
        if not any(block.get("text", "x").strip() for block in message["content"]):
            yield f"converse.blank-text: messages[{index}] is white space"
    if any(block.get("text") == "" for block in payload.get("system", [])):
        yield "converse.blank-text: system"


def blocks_fit_roles(payload: Json) -> Iterator[str]:
    for index, message in enumerate(payload["messages"]):
        wrong = {"user": ONLY_ASSISTANT, "assistant": ONLY_USER}.get(message["role"], ())
        for kind in {key for block in message["content"] for key in block}.intersection(wrong):
            yield f"converse.block-role: {kind} in messages[{index}]"


def calls_are_answered(payload: Json) -> Iterator[str]:
    followers = [*payload["messages"][1:], {"content": []}]
    before: list[str] = []
    for message, follower in zip(payload["messages"], followers, strict=True):
        called = _ids(message, "toolUse")
        answered = _ids(follower, "toolResult")
        if set(called) - set(answered):
            yield f"converse.tool-answers: {set(called) - set(answered)}"
        if sorted(_ids(message, "toolResult")) != sorted(before) and _ids(message, "toolResult"):
            yield f"converse.tool-orphan: {_ids(message, 'toolResult')} after {before}"
        before = called
    ids = [call_id for message in payload["messages"] for call_id in _ids(message, "toolUse")]
    if len(set(ids)) < len(ids):
        yield f"converse.tool-use-id: {ids}"


def results_come_first(payload: Json) -> Iterator[str]:
    for index, message in enumerate(payload["messages"]):
        kinds = [next(iter(block)) for block in message["content"]]
        last = max((place for place, kind in enumerate(kinds) if kind == "toolResult"), default=-1)
        if set(kinds[: last + 1]) - {"toolResult", "cachePoint"}:
            yield f"results stand behind others in messages[{index}]: {kinds}"


def _ids(message: Json, kind: str) -> list[str]:
    return [block[kind]["toolUseId"] for block in message["content"] if kind in block]


def tools_are_declared(payload: Json) -> Iterator[str]:
    has_blocks = any(_ids(message, kind) for message in payload["messages"] for kind in ("toolUse", "toolResult"))
    if has_blocks and "toolConfig" not in payload:
        yield "converse.tool-config"
    config = payload.get("toolConfig", {})
    wanted = config.get("toolChoice", {}).get("tool", {}).get("name")
    offered = {tool["toolSpec"]["name"] for tool in config.get("tools", []) if "toolSpec" in tool}
    if wanted is not None and wanted not in offered:
        yield f"converse.tool-choice-target: {wanted}"


def objects_are_objects(payload: Json) -> Iterator[str]:
    for block in _all_blocks(payload):
        given = [block["toolUse"]["input"]] if "toolUse" in block else [block["json"]] if "json" in block else []
        if not all(isinstance(one, dict) for one in given):
            yield f"converse.input-object: {given}"


def documents_are_named(payload: Json) -> Iterator[str]:
    names = [block["document"]["name"] for block in _all_blocks(payload) if "document" in block]
    for name in names:
        if not DOCUMENT_NAME.fullmatch(name.strip(" ")):
            yield f"converse.document-name: {name!r}"
    if len(set(names)) < len(names):
        yield f"converse.document-duplicate: {names}"
    for index, message in enumerate(payload["messages"]):
        kinds = {key for block in message["content"] for key in block}
        if "document" in kinds and "text" not in kinds:
            yield f"converse.document-text: messages[{index}]"


def _all_blocks(payload: Json) -> Iterator[Json]:
    for message in payload["messages"]:
        for block in message["content"]:
            yield block
            yield from block.get("toolResult", {}).get("content", [])


def settings_fit(payload: Json) -> Iterator[str]:
    match payload:
        case {"outputConfig": {"textFormat": {"structure": {"jsonSchema": {"schema": text}}}}}:
            if not isinstance(json.loads(text), dict):
                yield "converse.schema-json"
    if "" in payload.get("inferenceConfig", {}).get("stopSequences", []):
        yield "converse.stop-blank"


def claude_agrees(payload: Json) -> Iterator[str]:
    """What Anthropic's models refuse; the request has their settings where Messages has them under other names."""
    if "claude" not in payload.get("modelId", ""):
        return
    inference, thinking = payload.get("inferenceConfig", {}), _thinking(payload)
    if thinking.get("type") == "enabled":
        if not 1024 <= thinking["budget_tokens"] < inference.get("maxTokens", 4096):
            yield "claude.budget"
        if {"any", "tool"} & payload.get("toolConfig", {}).get("toolChoice", {}).keys():
            yield "claude.thinking-forced-tool"
        last = [message for message in payload["messages"] if message["role"] != "system"][-2:]
        kinds = [next(iter(message["content"][0]), None) for message in last]
        if kinds[1:] == ["toolResult"] and kinds[0] != "reasoningContent":
            yield "claude.thinking-first"
    if thinking.get("type") in ("enabled", "adaptive") and (
        inference.get("temperature", 1) != 1 or inference.get("topP", 1) < 0.95
    ):
        yield "claude.thinking-sampling"


def _thinking(payload: Json) -> Json:
    found: Json = payload.get("additionalModelRequestFields", {}).get("thinking", {})
    return found


def reasoning_is_for_the_model(payload: Json) -> Iterator[str]:
    model = payload.get("modelId", "")
    for thought in [block["reasoningContent"] for block in _all_blocks(payload) if "reasoningContent" in block]:
        is_signed = "redactedContent" in thought or bool(thought["reasoningText"].get("signature"))
        if "claude" in model and not is_signed:
            yield "claude.unsigned-reasoning"
        if ("gpt-oss" in model or "qwen" in model) and is_signed:
            yield "converse.signature-unsupported"
        if "nova" in model or "deepseek" in model:
            yield "converse.reasoning-unsupported"


RULES: list[Rule] = [
    fits_the_validator,
    fits_the_model,
    messages_alternate,
    nothing_is_blank,
    blocks_fit_roles,
    calls_are_answered,
    results_come_first,
    tools_are_declared,
    objects_are_objects,
    documents_are_named,
    settings_fit,
    claude_agrees,
    reasoning_is_for_the_model,
]
