"""What answers cost whose price depends on more than tokens: tiers, searches, media, regions, and other models.

Each row has a body as a provider sends it, the figures that the ledger should have, and the cost in nano-USD by the
prices of genai-prices on that day. None: the list does not have the price, and the plain one would be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from genai_prices.data_snapshot import get_snapshot

from tests.store.watching import Tables
from threadkeep import FormatName, InvalidOption, NormalizedUsage, Price, Store

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
Json = dict[str, Any]


def messages(model: str = "claude-sonnet-5", **usage: Any) -> Json:
    return {
        "id": "m", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hi"}], "usage": usage,
    }  # fmt: skip


def responses(model: str = "gpt-5.4", output: Any = (), **fields: Any) -> Json:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    return {
        "id": "r", "object": "response", "status": "completed", "model": model, "output": [*output, said],
        "usage": usage, **fields,
    }  # fmt: skip


def chat(model: str = "gpt-5.4", **usage: Any) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage}


def gemini(model: str, grounding: Any = None, **usage: Any) -> Json:
    candidate = {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    candidate |= {} if grounding is None else {"groundingMetadata": {"webSearchQueries": grounding}}
    return {"candidates": [candidate], "modelVersion": model, "usageMetadata": usage}


def interaction(model: str, tier: str | None = None, **usage: Any) -> Json:
    step = {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}
    return {"id": "i", "status": "completed", "model": model, "service_tier": tier, "steps": [step], "usage": usage}


def converse(**usage: Any) -> Json:
    message = {"role": "assistant", "content": [{"text": "Hi"}]}
    return {"output": {"message": message}, "stopReason": "end_turn", "usage": usage}


def pydantic_ai(model: str, usage: Json, **fields: Any) -> Json:
    part = {"part_kind": "text", "content": "Hi"}
    return {"kind": "response", "parts": [part], "model_name": model, "usage": usage, **fields}


class Case(NamedTuple):
    format: FormatName
    body: Json
    figures: tuple[int | None, ...]  # input, of it from a cache, and to a cache, output
    nano: int | None
    call: Mapping[str, Any] = MappingProxyType(
        {}
    )  # what the application knows: provider, base_url, service_tier; and the model it asked
    flavor: str = ""  # which extractor of genai-prices reads the body alike


def iteration(kind: str, input: int, output: int, **more: Any) -> Json:
    cache = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return {"type": kind, "input_tokens": input, "output_tokens": output, **cache, **more}


NO_CACHE: Json = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
PLAIN: Json = {"input_tokens": 1_000, "output_tokens": 500, **NO_CACHE}
COUNTED = (1_000, 0, 0, 500)
# $2 and $10 a million, in nano-USD for a token
SONNET = 1_000 * 2_000 + 500 * 10_000
OPUS = 180_000 * 5_000 + 3_500 * 25_000
USED = (100, None, None, 10)
GPT = 100 * 2_500 + 10 * 15_000
IMAGES = {
    "input_tokens": 20, "output_tokens": 5_000, "total_tokens": 5_020,
    "input_tokens_details": {"image_tokens": 12, "text_tokens": 8},
}  # fmt: skip
NO_IMAGES = {
    "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
}  # fmt: skip
IMAGE_TOOL = {"type": "image_generation", "model": "gpt-image-1.5"}
FILES = {"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["a"], "results": None}
SONNET_US = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def a_search(id_: str, kind: str = "search") -> Json:
    return {"type": "web_search_call", "id": id_, "status": "completed", "action": {"type": kind, "query": "a"}}


CASES: dict[str, Case] = {
    # iterations of Anthropic
    "iterations that are in the totals": Case(
        "messages",
        messages(**PLAIN, iterations=[iteration("message", 400, 200), iteration("message", 600, 300)]),
        COUNTED, SONNET, flavor="anthropic/default",
    ),
    "a compaction": Case(
        "messages",
        messages(**PLAIN, iterations=[iteration("compaction", 180_000, 3_500), iteration("message", 1_000, 500)]),
        (181_000, 0, 0, 4_000), SONNET + 180_000 * 2_000 + 3_500 * 10_000,
    ),
    "a compaction that writes to the cache for an hour": Case(
        "messages",
        messages(**PLAIN, iterations=[
            iteration("compaction", 0, 0) | {
                "cache_creation_input_tokens": 100, "cache_creation": {"ephemeral_1h_input_tokens": 100}
            },
            iteration("message", 1_000, 500),
        ]),
        (1_100, 0, 100, 500), SONNET + 100 * 4_000,
    ),
    "an advisor": Case(
        "messages",
        messages(**PLAIN, iterations=[
            iteration("message", 1_000, 500), iteration("advisor_message", 180_000, 3_500, model="claude-opus-5"),
        ]),
        (181_000, 0, 0, 4_000), SONNET + OPUS,
    ),
    "an advisor without a price": Case(
        "messages",
        messages(**PLAIN, iterations=[iteration("advisor_message", 10, 1, model="claude-unknown-9")]),
        (1_010, 0, 0, 501), None,
    ),
    "a fallback whose attempts are all in the totals": Case(
        "messages",
        messages(
            "claude-opus-5", input_tokens=181_000, output_tokens=4_000, **NO_CACHE,
            iterations=[
                iteration("message", 1_000, 500, model="claude-sonnet-5"),
                iteration("fallback_message", 180_000, 3_500, model="claude-opus-5"),
            ],
        ),
        (181_000, 0, 0, 4_000), SONNET + OPUS,
    ),
    "a fallback that alone is in the totals": Case(
        "messages",
        messages(
            "claude-opus-5", input_tokens=180_000, output_tokens=3_500, **NO_CACHE,
            server_tool_use={"web_search_requests": 2},
            iterations=[
                iteration("message", 1_000, 500, model="claude-sonnet-5"),
                iteration("fallback_message", 180_000, 3_500, model="claude-opus-5"),
            ],
        ),
        (181_000, 0, 0, 4_000), SONNET + OPUS + 2 * 10_000_000,
    ),
    "a fallback without the model of the first attempt": Case(
        "messages",
        messages("claude-opus-5", **PLAIN, iterations=[
            iteration("message", 600, 200), iteration("fallback_message", 400, 300, model="claude-opus-5"),
        ]),
        COUNTED, None,
    ),
    "iterations that do not add up": Case(
        "messages",
        messages("claude-opus-5", **PLAIN, iterations=[
            iteration("message", 7, 7, model="claude-sonnet-5"),
            iteration("fallback_message", 7, 7, model="claude-opus-5"),
        ]),
        COUNTED, None,
    ),
    "an iteration of another kind": Case(
        "messages", messages(**PLAIN, iterations=[iteration("unheard_of", 5, 5)]), COUNTED, None
    ),
    "no iterations": Case("messages", messages(**PLAIN, iterations=[]), COUNTED, SONNET, flavor="anthropic/default"),
    # its tiers, speeds, regions, searches, and caches of an hour
    "a batch": Case("messages", messages(**PLAIN, service_tier="batch"), COUNTED, SONNET // 2),
    "the priority tier of Anthropic": Case("messages", messages(**PLAIN, service_tier="priority"), COUNTED, None),
    "fast mode": Case(
        "messages", messages("claude-opus-5", **PLAIN, speed="fast"), COUNTED, 1_000 * 10_000 + 500 * 50_000
    ),
    "fast mode of a model that has none": Case("messages", messages(**PLAIN, speed="fast"), COUNTED, None),
    "a fast batch": Case(
        "messages", messages("claude-opus-5", **PLAIN, speed="fast", service_tier="batch"), COUNTED, None
    ),
    "inference in the US": Case("messages", messages(**PLAIN, inference_geo="us"), COUNTED, None),
    "inference anywhere": Case("messages", messages(**PLAIN, inference_geo="global"), COUNTED, SONNET),
    "a region that is not said": Case("messages", messages(**PLAIN, inference_geo="not_available"), COUNTED, SONNET),
    "web searches of Anthropic": Case(
        "messages", messages(**PLAIN, server_tool_use={"web_search_requests": 3, "web_fetch_requests": 2}),
        COUNTED, SONNET + 3 * 10_000_000, flavor="anthropic/default",
    ),
    "an hour in Anthropic's cache": Case(
        "messages",
        messages(
            input_tokens=1_000, output_tokens=500, cache_read_input_tokens=300, cache_creation_input_tokens=200,
            cache_creation={"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
        ),
        (1_500, 300, 200, 500), SONNET + 300 * 200 + 150 * 2_500 + 50 * 4_000, flavor="anthropic/default",
    ),
    # Bedrock
    "an hour in Bedrock's cache": Case(
        "converse",
        converse(
            inputTokens=1_000, outputTokens=10, totalTokens=1_001_010, cacheWriteInputTokens=1_000_000,
            cacheDetails=[{"ttl": "1h", "inputTokens": 1_000_000}],
        ),
        (1_001_000, None, 1_000_000, 10), 1_000 * 3_300 + 10**6 * 6_600 + 10 * 16_500, {"model": SONNET_US},
        flavor="aws/default",
    ),
    "both times in Bedrock's cache": Case(
        "converse",
        converse(
            inputTokens=1_000, outputTokens=10, totalTokens=2_010, cacheWriteInputTokens=1_000,
            cacheDetails=[{"ttl": "5m", "inputTokens": 600}, {"ttl": "1h", "inputTokens": 400}],
        ),
        (2_000, None, 1_000, 10), 1_000 * 3_300 + 600 * 4_125 + 400 * 6_600 + 10 * 16_500, {"model": SONNET_US},
        flavor="aws/default",
    ),
    "an hour in a cache without that price": Case(
        "converse",
        converse(inputTokens=10, outputTokens=1, cacheWriteInputTokens=5,
                 cacheDetails=[{"ttl": "1h", "inputTokens": 5}]),
        (15, None, 5, 1), None, {"model": "amazon.nova-lite-v1:0"},
    ),
    "Bedrock in all regions": Case(
        "converse", converse(inputTokens=100, outputTokens=10), (100, None, None, 10), 100 * 3_000 + 10 * 15_000,
        {"model": "global.anthropic.claude-sonnet-4-5-20250929-v1:0"},
    ),
    "Bedrock in Europe, with a price": Case(
        "converse", converse(inputTokens=100, outputTokens=10), (100, None, None, 10), 100 * 3_300 + 10 * 16_500,
        {"model": "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"},
    ),
    "Bedrock in Europe, without a price": Case(
        "converse", converse(inputTokens=100, outputTokens=10), (100, None, None, 10), None,
        {"model": "eu.amazon.nova-lite-v1:0"},
    ),
    "Bedrock in Europe, by its URL": Case(
        "converse", converse(inputTokens=100, outputTokens=10), (100, None, None, 10), None,
        {"model": "amazon.nova-lite-v1:0", "base_url": "https://bedrock-runtime.eu-west-1.amazonaws.com"},
    ),
    "Bedrock for the government": Case(
        "converse", converse(inputTokens=100, outputTokens=10), (100, None, None, 10), None,
        {"model": "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0"},
    ),
    "a tier of Bedrock": Case(
        "converse", converse(inputTokens=100, outputTokens=10) | {"serviceTier": {"type": "priority"}},
        (100, None, None, 10), None, {"model": SONNET_US},
    ),
    "the usual tier of Bedrock": Case(
        "converse", converse(inputTokens=100, outputTokens=10) | {"serviceTier": {"type": "default"}},
        (100, None, None, 10), 100 * 3_300 + 10 * 16_500, {"model": SONNET_US}, flavor="aws/default",
    ),
    # Google
    **{
        f"{traffic} of Gemini": Case(
            "gemini",
            gemini("gemini-3.8-flash-lite-tts", promptTokenCount=1_000_000, candidatesTokenCount=1_000_000,
                   totalTokenCount=2_000_000, trafficType=traffic),
            (1_000_000, None, None, 1_000_000), nano,
        )
        for traffic, nano in {
            "ON_DEMAND": 6_500_000_000, "ON_DEMAND_FLEX": 3_250_000_000, "ON_DEMAND_PRIORITY": 11_700_000_000,
            "ON_DEMAND_OFFPEAK": None, "PROVISIONED_THROUGHPUT": None, "TRAFFIC_TYPE_UNSPECIFIED": 6_500_000_000,
        }.items()
    },
    "flexible traffic of a model without that price": Case(
        "gemini",
        gemini("gemini-3.5-flash", promptTokenCount=100, candidatesTokenCount=10, trafficType="ON_DEMAND_FLEX"),
        (100, None, None, 10), None,
    ),
    "audio in prompts and in what tools return": Case(
        "gemini",
        gemini(
            "gemini-3-flash-preview", promptTokenCount=1_000, toolUsePromptTokenCount=500, candidatesTokenCount=10,
            totalTokenCount=1_510,
            promptTokensDetails=[{"modality": "TEXT", "tokenCount": 700}, {"modality": "AUDIO", "tokenCount": 300}],
            toolUsePromptTokensDetails=[{"modality": "AUDIO", "tokenCount": 500}],
        ),
        (1_500, None, None, 10), 700 * 500 + 800 * 1_000 + 10 * 3_000,
    ),
    "audio from a cache": Case(
        "gemini",
        gemini(
            "gemini-3-flash-preview", promptTokenCount=1_000, cachedContentTokenCount=400, candidatesTokenCount=10,
            totalTokenCount=1_010,
            promptTokensDetails=[{"modality": "TEXT", "tokenCount": 700}, {"modality": "AUDIO", "tokenCount": 300}],
            cacheTokensDetails=[{"modality": "TEXT", "tokenCount": 300}, {"modality": "AUDIO", "tokenCount": 100}],
        ),
        (1_000, 400, None, 10), 400 * 500 + 200 * 1_000 + 300 * 50 + 100 * 100 + 10 * 3_000, flavor="google/default",
    ),
    "audio in an interaction, and from a cache": Case(
        "interactions",
        interaction(
            "gemini-3-flash-preview", total_input_tokens=1_000, total_cached_tokens=400, total_output_tokens=10,
            total_tool_use_tokens=500, total_tokens=1_510,
            input_tokens_by_modality=[{"modality": "text", "tokens": 700}, {"modality": "audio", "tokens": 300}],
            tool_use_tokens_by_modality=[{"modality": "audio", "tokens": 500}],
            cached_tokens_by_modality=[{"modality": "text", "tokens": 300}, {"modality": "audio", "tokens": 100}],
        ),
        (1_500, 400, None, 10), 400 * 500 + 700 * 1_000 + 300 * 50 + 100 * 100 + 10 * 3_000,
    ),
    "searches of an interaction": Case(
        "interactions",
        interaction(
            "gemini-3-flash-preview", total_input_tokens=100, total_output_tokens=10,
            grounding_tool_count=[{"type": "google_search", "count": 2}, {"type": "google_maps", "count": 1}],
        ),
        (100, None, None, 10), 100 * 500 + 10 * 3_000 + 2 * 14_000_000,
    ),
    "a flexible interaction": Case(
        "interactions",
        interaction("gemini-3.8-flash-lite-tts", "flex", total_input_tokens=1_000_000, total_output_tokens=1_000_000),
        (1_000_000, None, None, 1_000_000), 3_250_000_000,
    ),
    "searches of Gemini 3": Case(
        "gemini", gemini("gemini-3-flash-preview", ["a", "b"], promptTokenCount=100, candidatesTokenCount=10),
        (100, None, None, 10), 100 * 500 + 10 * 3_000 + 2 * 14_000_000,
    ),
    "an answer of Gemini 2 with searches": Case(
        "gemini", gemini("gemini-2.5-flash", ["a", "b"], promptTokenCount=100, candidatesTokenCount=10),
        (100, None, None, 10), 100 * 300 + 10 * 2_500 + 35_000_000,
    ),
    "a batch of Google, which only the application knows": Case(
        "gemini", gemini("gemini-3-flash-preview", promptTokenCount=100, candidatesTokenCount=10),
        (100, None, None, 10), 100 * 250 + 10 * 1_500, {"service_tier": "batch"},
    ),
    # OpenAI
    "searches of OpenAI that are counted": Case(
        "open_responses",
        responses(
            output=[a_search("a"), a_search("b")],
            tool_usage={"web_search": {"num_requests": 100}, "image_gen": NO_IMAGES},
        ),
        USED, GPT + 100 * 10_000_000,
    ),
    "searches that are discounted": Case(
        "open_responses",
        responses(output=[a_search("a")], tool_usage={"web_search": {"num_requests": 0}, "image_gen": NO_IMAGES}),
        USED, GPT, flavor="openai/responses",
    ),
    "searches that are not counted": Case(
        "open_responses", responses(output=[a_search("a"), a_search("b", "open_page"), FILES]),
        USED, GPT + 10_000_000 + 2_500_000,
    ),
    "searches of a model without that price": Case(
        "open_responses", responses("gpt-3.5-turbo", output=[a_search("a")]), USED, None
    ),
    "pictures": Case(
        "open_responses",
        responses(tools=[IMAGE_TOOL], tool_usage={"web_search": {"num_requests": 1}, "image_gen": IMAGES}),
        USED, GPT + 10_000_000 + 8 * 5_000 + 12 * 8_000 + 5_000 * 32_000,
    ),
    "pictures with texts": Case(
        "open_responses",
        responses(tools=[IMAGE_TOOL], tool_usage={
            "web_search": {"num_requests": 0},
            "image_gen": IMAGES | {
                "output_tokens_details": {"image_tokens": 4_000, "text_tokens": 1_000}, "cached_tokens": 15,
                "cached_tokens_details": {"cached_image_tokens": 10, "cached_text_tokens": 5},
            },
        }),
        USED, GPT + 3 * 5_000 + 5 * 1_250 + 2 * 8_000 + 10 * 2_000 + 1_000 * 10_000 + 4_000 * 32_000,
    ),
    "pictures by a model that is not named": Case(
        "open_responses", responses(tool_usage={"web_search": {"num_requests": 0}, "image_gen": IMAGES}), USED, None
    ),
    **{
        f"the tier {tier} of OpenAI": Case("open_responses", responses(service_tier=tier), USED, nano)
        for tier, nano in {
            "default": GPT, "auto": GPT, "flex": GPT // 2, "priority": GPT * 2, "fast": GPT * 2, "ultrafast": None,
            "scale": None, "Priority": GPT * 2,
        }.items()
    },
    "a batch of OpenAI, which only the application knows": Case(
        "open_responses", responses(service_tier="default"), USED, GPT // 2, {"service_tier": "batch"}
    ),
    "OpenAI's flexible tier, at another provider": Case(
        "open_responses", responses(service_tier="flex"), USED, None, {"provider": "azure"}
    ),
    "twelve hours in OpenAI's cache": Case(
        "open_responses",
        responses("gpt-6.1-terra", usage={
            "input_tokens": 100, "output_tokens": 10, "total_tokens": 110,
            "input_tokens_details": {
                "cached_tokens": 0, "cache_write_tokens": 60,
                "cache_write_tokens_details": {"ttl_30m_tokens": 0, "ttl_12h_tokens": 60},
            },
        }),
        (100, 0, 60, 10), None,
    ),
    "audio of OpenAI": Case(
        "chat_completion",
        chat("gpt-audio", prompt_tokens=100, completion_tokens=60, total_tokens=160,
             prompt_tokens_details={"audio_tokens": 40}, completion_tokens_details={"audio_tokens": 50}),
        (100, None, None, 60), 60 * 2_500 + 40 * 32_000 + 10 * 10_000 + 50 * 64_000, flavor="openai/chat",
    ),
    "audio of a model whose text alone has a price": Case(
        "chat_completion",
        chat("gpt-4o-audio-preview", prompt_tokens=100, completion_tokens=60, total_tokens=160,
             prompt_tokens_details={"audio_tokens": 40}),
        (100, None, None, 60), None,
    ),
    # Pydantic AI
    "an hour in the cache, in Pydantic AI": Case(
        "pydantic_ai",
        pydantic_ai("claude-sonnet-5", {"input_tokens": 300, "output_tokens": 50, "cache_write_tokens": 200,
                                        "cache_write_1h_tokens": 100}),
        (300, None, 200, 50), 100 * 2_000 + 100 * 2_500 + 100 * 4_000 + 50 * 10_000,
    ),
    "audio, in Pydantic AI": Case(
        "pydantic_ai",
        pydantic_ai("gpt-audio", {"input_tokens": 100, "output_tokens": 60, "input_audio_tokens": 40,
                                  "output_audio_tokens": 50}),
        (100, None, None, 60), 60 * 2_500 + 40 * 32_000 + 10 * 10_000 + 50 * 64_000,
    ),
    "the names of Pydantic AI 1": Case(
        "pydantic_ai",
        pydantic_ai("gpt-5.4", {"requests": 1, "request_tokens": 100, "response_tokens": 10, "total_tokens": 110}),
        USED, GPT,
    ),
    "requests that Pydantic AI could not measure": Case(
        "pydantic_ai", pydantic_ai("gpt-5.4", {"input_tokens": 100, "output_tokens": 10, "unmeasured_requests": 1}),
        (None, None, None, None), None,
    ),
    "the provider's URL, in Pydantic AI": Case(
        "pydantic_ai",
        pydantic_ai("llama-3.3-70b-versatile", {"input_tokens": 100, "output_tokens": 10},
                    provider_name="openai", provider_url="https://api.groq.com/openai/v1"),
        USED, 100 * 590 + 10 * 790,
    ),
    # providers by their URLs
    "a URL of a provider": Case(
        "chat_completion", chat("llama-3.3-70b-versatile", prompt_tokens=100, completion_tokens=10),
        USED, 100 * 590 + 10 * 790, {"provider": "fast-llamas", "base_url": "https://api.groq.com/openai/v1"},
    ),
    "a URL that says less than the name": Case(
        "chat_completion", chat(prompt_tokens=100, completion_tokens=10), USED, GPT,
        {"provider": "openai", "base_url": "http://localhost:4000/v1"},
    ),
    "a URL that nobody knows": Case(
        "chat_completion", chat(prompt_tokens=100, completion_tokens=10), USED, None,
        {"base_url": "http://localhost:4000/v1"},
    ),
    "Claude in a region of Vertex AI": Case(
        "messages", messages(**PLAIN), COUNTED, None,
        {"provider": "google", "base_url": "https://europe-west1-aiplatform.googleapis.com/v1"},
    ),
    "Claude anywhere on Vertex AI": Case(
        "messages", messages(**PLAIN), COUNTED, SONNET,
        {"provider": "google", "base_url": "https://aiplatform.googleapis.com/v1"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def ledger() -> Any:
    with Store("sqlite://") as store:
        yield store


def added(store: Any, case: Case) -> Any:
    """The sums of a conversation with one answer."""
    call = dict(case.call)
    conversation = store.create_conversation(model=call.pop("model", None))
    conversation.add_response(case.body, case.format, occurred_at=AT, **call)
    return conversation.usage()


@pytest.mark.parametrize("name", CASES)
def test_what_an_answer_cost(ledger: Any, name: str) -> None:
    case = CASES[name]
    row = added(ledger, case)
    assert (row.input_tokens, row.cached_tokens, row.cache_write_tokens, row.output_tokens) == case.figures
    assert row.cost_nano == case.nano


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.flavor])
def test_extractors_of_genai_prices_find_the_same(name: str) -> None:
    case = CASES[name]
    provider_id, _, flavor = case.flavor.partition("/")
    snapshot = get_snapshot()
    provider = snapshot.find_provider(None, provider_id, None)
    named, usage = provider.extract_usage(case.body, api_flavor=flavor)
    model = provider.find_model(named or case.call["model"], all_providers=snapshot.providers)
    assert model is not None
    assert round(model.calc_price(usage, provider, genai_request_timestamp=AT).total_price * 10**9) == case.nano


def test_streams_and_reports_are_billed_alike(ledger: Any) -> None:
    case = CASES["a URL of a provider"]
    conversation = ledger.create_conversation()
    with conversation.stream_response("open_responses", service_tier="batch", base_url="https://api.openai.com") as one:
        one.feed({"type": "response.completed", "response": responses()})
    conversation.record_attempt("chat_completion", usage=case.body["usage"], model=case.body["model"], **case.call)
    assert [row.cost_nano for row in conversation.usage(by="response")] == [GPT // 2, case.nano]


def test_an_own_price_is_that_of_its_model_alone(tmp_path: Any) -> None:
    with Store(f"sqlite:///{tmp_path}/own.db", prices=[Price("claude-opus-5", input=1, output=1)]) as store:
        assert added(store, CASES["an advisor"]).cost_nano == SONNET + 183_500 * 1_000


def test_the_ledger_keeps_what_a_price_depends_on(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation()
    conversation.add_response(
        responses(output=[a_search("a")], service_tier="flex"), "open_responses",
        base_url="https://me:secret@api.openai.com/v1?key=secret#x",
    )  # fmt: skip
    conversation.add_response(responses(service_tier="default"), "open_responses")
    first, second = (row["terms"] for row in tables.rows("usage_records", "id"))
    assert json.loads(first) == {
        "service_tier": "flex", "base_url": "https://api.openai.com/v1", "units": {"web_searches": 1},
    }  # fmt: skip
    assert second is None


@pytest.mark.parametrize("name", ["base_url", "service_tier"])
@pytest.mark.parametrize("value", ["", 7, "x" * 1001, ["batch"]])
def test_odd_urls_and_tiers_are_refused(store: Any, name: str, value: Any) -> None:
    conversation = store.create_conversation()
    with pytest.raises(InvalidOption, match=name):
        conversation.add_response(responses(), "open_responses", **{name: value})
    assert conversation.usage().attempts == 0


def test_figures_of_an_application_have_a_plain_price(ledger: Any) -> None:
    conversation = ledger.create_conversation()
    figures = NormalizedUsage(input_tokens=100, output_tokens=10)
    conversation.record_attempt("open_responses", usage=figures, model="gpt-5.4", occurred_at=AT)
    assert conversation.usage().cost_nano == GPT
