"""Tables of UIMessages: options, states of tools, and what providers' metadata hold for other formats.

Source: the AI SDK, `UIMessage` and `useChat`; its providers for OpenAI, Azure, Anthropic, Google and Amazon Bedrock,
`providerMetadata`.
"""

from __future__ import annotations

from typing import Final

from threadkeep.formats.shared.fields import Row, SpecialField, unsent_rows

NAME: Final = "ui_messages"
HISTORY: Final = "messages"  # the key of the body with the messages
TOOLS: Final = "tools"  # definitions, by which a page tells what it runs
ROLES: Final = ("system", "user", "assistant")
UI: Final = "ui"  # the key of `spelling` that items and parts from UIMessages have

STEP: Final = {"type": "step-start"}
DYNAMIC: Final = "dynamic-tool"
STATIC: Final = "tool-"  # and the name of the tool
STEERING: Final = "steering-message"
METADATA: Final = "providerMetadata"
CALL_METADATA: Final = "callProviderMetadata"

# states of a tool
STREAMING, AVAILABLE = "input-streaming", "input-available"
REQUESTED, RESPONDED = "approval-requested", "approval-responded"
OUTPUT, ERROR, DENIED = "output-available", "output-error", "output-denied"
STATES: Final = (STREAMING, AVAILABLE, REQUESTED, RESPONDED, OUTPUT, ERROR, DENIED)
ANSWERED: Final = (OUTPUT, ERROR, DENIED)
DENIAL: Final = "Tool call execution denied."  # what a model is told where people gave no reason, as the SDK says it

# key of a provider's metadata -> the format whose signatures and ids it holds
FORMATS: Final = {
    "openai": "open_responses", "azure": "open_responses", "anthropic": "messages", "google": "gemini",
    "vertex": "gemini", "googleVertex": "gemini", "bedrock": "converse", "amazonBedrock": "converse",
}  # fmt: skip
# format -> the key that renders have where the provider is not known
PROVIDERS: Final = {
    "open_responses": "openai", "messages": "anthropic", "gemini": "google", "converse": "bedrock",
}  # fmt: skip
# kind of item -> format -> key of the metadata -> key of the item, or of its only block
LIFTED: Final = {
    "message": {"open_responses": {"itemId": "id", "phase": "phase"}, "gemini": {"thoughtSignature": "signature"}},
    "function_call": {"open_responses": {"itemId": "id"}, "gemini": {"thoughtSignature": "thought_signature"}},
    "reasoning": {
        "open_responses": {"itemId": "id", "reasoningEncryptedContent": "encrypted_content"},
        "messages": {"signature": "signature", "redactedData": "data"},
        "gemini": {"thoughtSignature": "signature"},
        "converse": {"signature": "signature", "redactedData": "data"},
    },
}
# keys of parts that say nothing to a model, so that other formats do not report them
SILENT: Final = frozenset(
    {
        "type", "state", "id", "kind", "mediaType", "filename", "toolName", "toolCallId", "title", "toolMetadata",
        "preliminary", "approval", "rawInput", "inputEncoding", "dynamic", "providerExecuted",
    }
)  # fmt: skip
# finishReason of a stream -> canonical status
STATUSES: Final = {
    "stop": "completed", "tool-calls": "completed", "length": "incomplete", "content-filter": "failed",
    "error": "failed", "interrupted": "incomplete", "other": "completed", "unknown": "completed",
}  # fmt: skip
INCOMPLETE: Final = {"length": "max_output_tokens", "content-filter": "content_filter"}

FIELDS: Final[tuple[Row, ...]] = unsent_rows(
    "it is a setting of the server that asks the model",
    {
        "stream": SpecialField("stream", "not sent: answers of a chat are streams"),
        "extra": SpecialField(
            "extra", "`extra.ui_messages` verbatim, next to `messages`: `id`, `trigger`, `messageId`"
        ),
    },
)


def approval_id(call_id: str) -> str:
    """The id of the approval of a call that asks for one."""
    return f"approval_{call_id}"
