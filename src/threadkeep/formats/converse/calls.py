"""Calls, tool results and reasoning of Converse, one by one.

* Arguments are an object; others become an empty one, which is reported.
* Reasoning is sent when it came from this format or from Anthropic's own, byte for byte; Claude requires a signature,
  which no other model takes, and some take no reasoning.

Source: Amazon Bedrock's API reference, "ToolUseBlock", "ToolResultBlock", "ReasoningContentBlock"; the service's errors
"This model doesn't support the reasoningContent.reasoningText.signature field" and "User messages cannot contain
reasoning content", as they were reported of these models.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.converse.fields import NAME, RESULT_STATUSES
from threadkeep.formats.converse.parts import RESULT, WriteContext, blocks_of
from threadkeep.formats.shared import arguments, claude, provider_rules
from threadkeep.formats.shared.claude import ANTHROPIC, BEDROCK, REDACTED, signer_of, thinking_blocks
from threadkeep.formats.shared.parts import MEDIA, native_keys, note

_VALID_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_.:-]")
_SIGNERS: Final = (BEDROCK, ANTHROPIC)  # providers whose reasoning this service can read
SIGNED, UNSIGNED, NONE = "signed", "unsigned", "none"
# how a model that is not Claude is named -> the reasoning that it takes; others get what there is
TAKEN: Final = (
    (re.compile(r"nova|deepseek"), NONE),
    (re.compile(r"gpt-oss|qwen|kimi|minimax|glm|llama|mi[sx]tral|magistral|gemma|nemotron"), UNSIGNED),
)
# kind of reasoning that a model takes -> why other reasoning was left out
_REFUSALS: Final = {
    SIGNED: "Reasoning without a signature was left out.",
    UNSIGNED: "Reasoning with a signature was left out: it is Claude's, and the model is another one.",
    NONE: "Reasoning was left out: the model takes none back.",
}


def wire_id(call: ItemEntry, used: set[str], context: WriteContext) -> str:
    """The id of a call as it is sent: one that the service takes, and that was not used before."""
    original = call_id = call.call_id or ""
    if context.is_as_came:
        return original
    if not _VALID_ID.fullmatch(original):
        call_id = _REFUSED.sub("_", original)
        if not call_id.strip("_") or not _VALID_ID.fullmatch(call_id) or call_id in used:
            call_id = f"call_{hashed(original)}"
        context.repair("call_id", "call_id", f"The call id {original!r} was sent as {call_id!r}.")
    if call_id in used:
        while call_id in used:
            call_id = f"call_{hashed(call_id, call.position)}"
        context.repair("duplicate_call_id", "call_id", f"The call id {original!r} was sent before.")
    return call_id


def tool_use(item: JsonObject, name: Any, call_id: str, context: WriteContext) -> JsonObject:
    """The block of a call."""
    native = native_keys(item, NAME)
    value = {} if "input" in native else arguments.object_arguments(item, context)
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": value, **native}}


def tool_result(item: JsonObject, call_id: str, context: WriteContext) -> JsonObject:
    """The block of a tool's output."""
    context.caller(item)
    result: JsonObject = {"toolUseId": call_id}
    status = item.get("status")
    if isinstance(status, str) and status in RESULT_STATUSES:
        result["status"] = RESULT_STATUSES[status]
    elif status:
        context.loss("status", "status", f"Converse has no status {status!r} of an output.")
    result["content"] = _content(item, context)
    return {"toolResult": {**result, **native_keys(item, NAME)}}


def _content(item: JsonObject, context: WriteContext) -> list[JsonObject]:
    """The blocks of an output; where nothing of it can be sent, a text that says so."""
    output = item.get("output")
    if isinstance(output, dict):
        return [{"json": output}]
    if isinstance(output, list):
        blocks = blocks_of(output, RESULT, context, "output")
        notes = [{"text": note(part)} for part in output if part["type"] in MEDIA]
        if blocks or notes or context.is_as_came:
            return blocks or notes
    else:
        text = output if isinstance(output, str) else "" if output is None else dumps(output).decode()
        if text.strip() or context.is_as_came:
            return [{"text": text}]
    context.repair("blank_text", "output", f"An output without content was sent as {provider_rules.NO_OUTPUT!r}.")
    return [{"text": provider_rules.NO_OUTPUT}]


def reasoning_blocks(item: JsonObject, context: WriteContext) -> list[JsonObject]:
    """The blocks of a reasoning item that the service can read; the rest is reported."""
    content = thinking_blocks(item)
    if signer_of(item) not in _SIGNERS:
        context.loss("reasoning", "", "Reasoning was left out: it did not come from this service or from Anthropic's.")
        return []
    blocks = []
    kind = None if context.is_as_came else taken_by(context.model)
    for index, part in enumerate(content):
        block = _thinking(part, is_own=item.get("origin") == NAME, is_text=item.get("origin") == "pydantic_ai")
        is_signed = block is not None and ("redactedContent" in block or block["reasoningText"].get("signature"))
        if block is None or kind not in (None, SIGNED if is_signed else UNSIGNED):
            context.loss("reasoning", f"content[{index}]", _REFUSALS[kind or SIGNED])
        else:
            blocks.append({"reasoningContent": block})
    if not content:
        context.loss("reasoning", "", "Reasoning was left out: it holds nothing that the service can read.")
    return blocks


def taken_by(model: str) -> str | None:
    """The kind of reasoning that a model takes; None where that is not known."""
    return SIGNED if claude.is_claude(model) else next((kind for pattern, kind in TAKEN if pattern.search(model)), None)


def _thinking(part: JsonObject, *, is_own: bool, is_text: bool) -> JsonObject | None:
    """A block of reasoning; `is_text`: what is encrypted is held as the text that its bytes are."""
    if part.get("type") == REDACTED and isinstance(part.get("data"), str):
        return {"redactedContent": b64encode(part["data"].encode()).decode() if is_text else part["data"]}
    signature = part.get("signature")
    if part.get("type") != "thinking" or not (isinstance(signature, str) or is_own):
        return None
    signed = {} if signature is None else {"signature": signature}
    return {"reasoningText": {"text": part.get("thinking") or "", **signed}}
