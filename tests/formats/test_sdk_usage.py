"""Each number in the usage types of the SDKs is a figure of ours, is billed by, or stands here with a reason.

The types are read as they are installed: a field that a new version brings fails by its name.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Final

import botocore.session
import pytest
from anthropic.types import MessageDeltaUsage
from anthropic.types import Usage as MessageUsage
from anthropic.types.beta import BetaMessageDeltaUsage, BetaUsage
from genai_prices.data_units import unit_data
from google.genai.types import GenerateContentResponseUsageMetadata
from openai.types import CompletionUsage
from openai.types.responses import ResponseUsage
from openai.types.responses.response import ToolUsage
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic_ai.usage import RequestUsage

from threadkeep import FormatName, Response
from threadkeep.domain.usage import reported_cost
from threadkeep.formats import get_format
from threadkeep.store.usage.billing import UNITS, terms_of
from threadkeep.store.usage.prices import PER_REQUEST, PLAIN, PriceSheet

Json = dict[str, Any]
EVERY_UNIT: Final = PriceSheet.of(SimpleNamespace(**dict.fromkeys(UNITS, Decimal(1))), "openai")
# what tells the entries of a list apart, and which of them count
ENTRIES: Final = {
    "iterations": {"type": "compaction"}, "cacheDetails": {"ttl": "1h"}, "promptTokensDetails": {"modality": "AUDIO"},
    "candidatesTokensDetails": {"modality": "AUDIO"}, "cacheTokensDetails": {"modality": "AUDIO"},
    "toolUsePromptTokensDetails": {"modality": "AUDIO"},
}  # fmt: skip

USUAL_WRITE = "the usual price of what is written to a cache"
REST = "what other kinds of tokens leave of the whole"
IN_OUTPUT = "a part of the output, which costs the same"
SUM = "the sum of input and output"
# type of an SDK -> fields without a figure, and why
OTHERS: dict[str, dict[str, str]] = {
    "ResponseUsage": {"input_tokens_details.cache_write_tokens_details.ttl_30m_tokens": USUAL_WRITE},
    "ToolUsage": {
        "image_gen.total_tokens": SUM,
        "image_gen.input_tokens_details.text_tokens": REST,
        "image_gen.output_tokens_details.text_tokens": REST,
        "image_gen.cached_tokens_details.cached_text_tokens": REST,
    },
    "CompletionUsage": {
        "completion_tokens_details.accepted_prediction_tokens": IN_OUTPUT,
        "completion_tokens_details.rejected_prediction_tokens": IN_OUTPUT,
        "completion_tokens_details.text_tokens": REST,
        "prompt_tokens_details.text_tokens": REST,
    },
    "Usage": {
        "cache_creation.ephemeral_5m_input_tokens": USUAL_WRITE,
        "server_tool_use.web_fetch_requests": "costs nothing but the tokens that it brings",
    },
    "RequestUsage": {"details": "what a provider counts under names of its own, mostly parts of the other counts"},
}
OTHERS["MessageDeltaUsage"] = {key: OTHERS["Usage"][key] for key in ("server_tool_use.web_fetch_requests",)}
OTHERS["BetaMessageDeltaUsage"] = OTHERS["MessageDeltaUsage"] | {
    "iterations[].cache_creation.ephemeral_5m_input_tokens": USUAL_WRITE
}
OTHERS["BetaUsage"] = OTHERS["Usage"] | OTHERS["BetaMessageDeltaUsage"]


def numbers(kind: Any, path: str = "", *, is_camel: bool = False) -> Iterator[str]:
    """The paths of the numbers of a type; ``[]`` stands for the entries of a list."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        yield from numbers(arguments[0], path, is_camel=is_camel)
    elif origin in (typing.Union, types.UnionType):
        for one in arguments:
            yield from numbers(one, path, is_camel=is_camel)
    elif origin is list:
        yield from numbers(arguments[0], f"{path}[]", is_camel=is_camel)
    elif origin is dict or kind in (int, float, Decimal):
        yield path
    elif isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
        for name, inner in fields_of(kind):
            key = to_camel(name) if is_camel else name
            yield from numbers(inner, f"{path}.{key}" if path else key, is_camel=is_camel)


def fields_of(kind: Any) -> list[tuple[str, Any]]:
    """The fields of a model or dataclass, with their types."""
    if issubclass(kind, BaseModel):
        return [(name, field.annotation) for name, field in kind.model_fields.items()]
    hints = typing.get_type_hints(kind, localns={"ClassVar": typing.ClassVar}, include_extras=True)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


def members(shape: Any, path: str = "") -> Iterator[str]:
    """The same of a shape of botocore."""
    match shape.type_name:
        case "structure":
            for name, inner in shape.members.items():
                yield from members(inner, f"{path}.{name}" if path else name)
        case "list":
            yield from members(shape.member, f"{path}[]")
        case "integer" | "long" | "float" | "double":
            yield path


def converse_numbers() -> set[str]:
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    return set(members(service.shape_for("TokenUsage")))


def nested(path: str, value: Any) -> Json:
    """A usage object with one number."""
    head, _, rest = path.partition(".")
    name, is_list = head.removesuffix("[]"), head.endswith("[]")
    inner = nested(rest, value) if rest else value
    return {name: [{**ENTRIES[name], **inner}] if is_list else inner}


# type -> format, its numbers, and a usage object that they are added to
USAGES: dict[str, tuple[FormatName, set[str], Json]] = {
    "ResponseUsage": ("open_responses", set(numbers(ResponseUsage)), {"input_tokens": 1, "output_tokens": 1}),
    "CompletionUsage": ("chat_completion", set(numbers(CompletionUsage)), {"prompt_tokens": 1, "completion_tokens": 1}),
    **{
        kind.__name__: ("messages", set(numbers(kind)), {"input_tokens": 1, "output_tokens": 1})
        for kind in (MessageUsage, MessageDeltaUsage, BetaUsage, BetaMessageDeltaUsage)
    },
    "GenerateContentResponseUsageMetadata": (
        "gemini", set(numbers(GenerateContentResponseUsageMetadata, is_camel=True)),
        {"promptTokenCount": 1, "candidatesTokenCount": 1},
    ),
    "TokenUsage": ("converse", converse_numbers(), {"inputTokens": 1, "outputTokens": 1}),
    "RequestUsage": ("pydantic_ai", set(numbers(RequestUsage)), {"input_tokens": 1, "output_tokens": 1}),
}  # fmt: skip


def is_used(format_name: FormatName, path: str, base: Json) -> bool:
    """Whether a number changes a figure of the ledger, or what an answer is billed by."""
    read, one = get_format(format_name).usage_of, nested(path, 7)
    if read(base | one).normalized != read(base).normalized:
        return True
    entry = nested(path.partition("[].")[2], 7) if path.startswith("iterations[].") else one
    return bool(EVERY_UNIT.counts(entry)) or reported_cost(one) is not None


@pytest.mark.parametrize("kind", USAGES)
def test_each_number_of_a_usage_is_a_figure_or_has_a_reason_not_to_be(kind: str) -> None:
    format_name, paths, base = USAGES[kind]
    assert len(paths) > 5
    unused = {path for path in paths if not is_used(format_name, path, base)}
    assert unused == OTHERS.get(kind, {}).keys()


def billed(tool_usage: Json) -> Json:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    body = {"id": "r", "object": "response", "status": "completed", "output": [said], "tool_usage": tool_usage}
    return terms_of(Response.parse(body, "open_responses"), None, None)


def is_billed(path: str) -> bool:
    """Whether a number of OpenAI's tools is a unit, or a count of the images that are priced."""
    family, _, rest = path.partition(".")
    if family != "image_gen":
        return billed(nested(path, 7)) != {}
    return rest in {"input_tokens", "output_tokens", "cached_tokens"} or bool(EVERY_UNIT.counts(nested(rest, 7)))


def test_each_number_of_openais_tools_is_billed_or_has_a_reason_not_to_be() -> None:
    paths = set(numbers(ToolUsage))
    assert len(paths) > 5
    assert {path for path in paths if not is_billed(path)} == OTHERS["ToolUsage"].keys()
    images = {"input_tokens": 1, "output_tokens": 2}
    assert billed({"image_gen": images})["image_generation"] == images


# units of genai-prices that are not looked for, and why; an end stands for all units with it
UNIT_REASONS: dict[str, str] = {
    "cache_write_5m_tokens": USUAL_WRITE,
    "text_tokens": REST,
    "text_read_tokens": REST,
    "text_write_tokens": REST,
    "text_write_5m_tokens": REST,
    "text_write_1h_tokens": REST,
    **dict.fromkeys(
        [f"{name}_write{ttl}_tokens" for name in ("audio", "image", "video") for ttl in ("", "_5m", "_1h")],
        "no SDK counts what media write to a cache",
    ),
    "cache_video_read_tokens": "no model has that price",
    "tool_tokens": "what tools return costs like other input, by its kind",
    "_reasoning_tokens": "no SDK counts the reasoning by its kind",
    "citation_tokens": "Perplexity reports what an answer cost",
    "input_characters": "of speech, not of answers",
    "input_text_messages": "of sessions in real time",
    "input_audio_seconds": "of transcriptions",
    "output_audio_seconds": "of sessions in real time",
    "input_pixels": "of embeddings",
    "document_pages": "of the recognition of documents",
    "rerank_searches": "of ranking",
    "social_searches": "xAI reports what an answer cost",
    "code_executions": "billed by the hour of a container, or not at all",
}


def test_each_unit_of_the_list_is_known() -> None:
    known = {*UNITS, *PLAIN, PER_REQUEST}
    others = {unit for unit, about in unit_data.items() if about["price_key"] not in known}
    assert {unit for unit in others if not unit.endswith(tuple(UNIT_REASONS))} == set()
    assert {end for end in UNIT_REASONS if not any(unit.endswith(end) for unit in others)} == set()
