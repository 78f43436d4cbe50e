"""Names of OpenTelemetry's conventions for generative AI: today's, and those that they replaced not long ago.

Source: open-telemetry/semantic-conventions-genai (October 2026), its migration guide from version 1.41.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CONVERSATION: Final = "gen_ai.conversation.id"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
SYSTEM: Final = "gen_ai.system"  # what PROVIDER was called
STREAM: Final = "gen_ai.request.stream"
REQUEST_MODEL: Final = "gen_ai.request.model"
PREVIOUS_RESPONSE: Final = "gen_ai.request.previous_response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"  # seconds
INPUT: Final = "gen_ai.usage.input_tokens"  # with those of the cache
OUTPUT: Final = "gen_ai.usage.output_tokens"  # with those of reasoning
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"  # what CACHE_WRITE was called
REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
COST: Final = "gen_ai.usage.cost"  # USD; not of the conventions, but of what reads them
ERROR: Final = "error.type"
KIND: Final = "gen_ai.token.type"  # of the metric that counters of each kind replaced
MODALITY: Final = "gen_ai.token.modality"

# operations that ask a model; others, such as those of agents, are about calls that are told by themselves
INFERENCES: Final = frozenset({"chat", "generate_content", "text_completion"})

# provider there -> here, and in genai-prices; others are the same
PROVIDERS: Final = {
    "aws.bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "mistral_ai": "mistral",
    "moonshot_ai": "moonshotai",
    "vertex_ai": "google",
    "x_ai": "x-ai",
    "xai": "x-ai",
}
# provider here -> there, where the conventions have a name for it
SYSTEMS: Final = {
    "aws": "aws.bedrock",
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "x-ai": "x_ai",
}


def provider_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the provider that attributes name, as the ledger names it."""
    name = attributes.get(PROVIDER) or attributes.get(SYSTEM)
    return PROVIDERS.get(name, name) if isinstance(name, str) and name else None
