"""Calls, returns and thinking of any origin as parts.

* Arguments go as JSON text; those that are not JSON become ``{}``, which is reported.
* A return is named after its call; one that failed says so in its outcome.
* Signed thinking of Claude and encrypted reasoning of OpenAI go with the name of the provider that can read them, to
  which Pydantic AI sends them back; of other reasoning the text goes alone.

Source: Pydantic AI's API reference, `pydantic_ai.messages`.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final

from threadkeep.domain import response, tool_names
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.pydantic_ai import own, parts
from threadkeep.formats.pydantic_ai.fields import NAME
from threadkeep.formats.shared import arguments, pairing
from threadkeep.formats.shared.claude import BEDROCK, REDACTED, REDACTED_IDS, signer_of, thinking_blocks
from threadkeep.formats.shared.makers import CLAUDE_PLATFORMS, provider_name, vendor_of
from threadkeep.formats.shared.parts import report_foreign
from threadkeep.formats.shared.reports import Context

_FAILED: Final = ("failed", "incomplete")


def tool_call(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """A call."""
    if "native" in item:
        report_foreign(item, NAME, context, "native")
    is_custom = item["type"] == "custom_tool_call"
    args: Any = arguments.object_arguments(item, context) if is_custom else arguments.sent_arguments(item, context)
    return {"part_kind": "tool-call", "tool_name": context.called(item), "args": args, "tool_call_id": call_id}


def tool_return(item: JsonObject, call: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What a call returned."""
    if "native" in item:
        report_foreign(item, NAME, context, "native")
    context.caller(item)
    output = item.get("output")
    content: Any = parts.user_content(output, context, "output") if isinstance(output, list) else output or ""
    if isinstance(content, list) and all(isinstance(one, str) for one in content):
        content = "\n".join(content)
    part = {"part_kind": "tool-return", "tool_name": _name(call, context), "content": content, "tool_call_id": call_id}
    return part | ({"outcome": "failed"} if item.get("status") in _FAILED else {})


def missing_return(call: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What stands for the return of a call that has none."""
    part = {"part_kind": "tool-return", "tool_name": _name(call, context), "tool_call_id": call_id}
    return part | {"content": pairing.placeholder_of(call), "outcome": "interrupted"}


def _name(call: JsonObject, context: Context) -> str:
    """The name that the call was sent with."""
    is_own = call.get("origin") == NAME
    return str(call.get("name") or own.UNKNOWN) if is_own else context.names.wire(tool_names.qualified_name(call))


def thoughts(item: JsonObject, context: Context, maker: response.Maker) -> list[JsonObject]:
    """Reasoning as thinking parts; what no provider could read is reported."""
    if "native" in item:
        report_foreign(item, NAME, context, "native")
    if (signer := signer_of(item)) is not None:
        return _signed(item, _named_signer(item, signer, maker), context)
    blocks = _blocks(item)
    text = "\n\n".join(text for block in blocks if isinstance(text := block.get("text", block.get("thinking")), str))
    encrypted = item.get("encrypted_content")
    if item.get("origin") == "open_responses" and encrypted:
        return [_encrypted(item, text, maker)]
    if encrypted or not text:
        context.loss("reasoning", "", "Reasoning was left out that only its provider can read.")
    return [_thinking(text)] if text else []


def _blocks(item: JsonObject) -> list[JsonObject]:
    lists = [found for key in ("summary", "content") if isinstance(found := item.get(key), list)]
    return [block for found in lists for block in found if isinstance(block, dict)]


def _named_signer(item: JsonObject, signer: str, maker: response.Maker) -> str:
    """The signer of thinking: sellers of Claude are named after the client for it, others after themselves."""
    provider = None if maker.provider is None else provider_name(maker.provider)
    is_claudes = provider is None or provider in CLAUDE_PLATFORMS or item.get("origin") == NAME
    return signer if is_claudes else str(provider)


def _encrypted(item: JsonObject, text: str, maker: response.Maker) -> JsonObject:
    """Reasoning that OpenAI, or another one with its API, has encrypted."""
    provider = vendor_of(maker.model, "open_responses") if maker.provider is None else provider_name(maker.provider)
    signed = {"signature": item["encrypted_content"], "provider_name": provider}
    return _thinking(text) | signed | ({"id": item["id"]} if item.get("id") else {})


def _signed(item: JsonObject, signer: str, context: Context) -> list[JsonObject]:
    """Thinking of Claude's."""
    blocks = thinking_blocks(item)
    parts = [part for block in blocks if (part := _thought(block, signer)) is not None]
    if len(parts) < max(len(blocks), 1):
        context.loss("reasoning", "", "Reasoning was left out that holds nothing to read.")
    return parts


def _thought(block: JsonObject, signer: str) -> JsonObject | None:
    signed = {"provider_name": signer}
    if block.get("type") == REDACTED:
        data = block.get("data")
        data = _decoded(data) if signer == BEDROCK else data
        return _thinking("") | signed | {"id": REDACTED_IDS.get(signer, REDACTED), "signature": data} if data else None
    text, signature = block.get("thinking"), block.get("signature")
    if not isinstance(text, str) or not (text or signature):
        return None
    return _thinking(text) | (signed | {"signature": signature} if signature else {})


def _decoded(data: Any) -> str | None:
    """The text that the bytes are which Bedrock encrypted thinking in."""
    try:
        return b64decode(data, validate=True).decode()
    except (TypeError, ValueError):
        return None


def _thinking(text: str) -> JsonObject:
    return {"part_kind": "thinking", "content": text}
