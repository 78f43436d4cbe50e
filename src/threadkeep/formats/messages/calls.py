"""Calls, tool results and thinking of the Messages API, one by one.

* Arguments are an object; others become ``{}``, which is reported.
* Ids are letters, digits, ``_`` and ``-``; a cleaned id that another call of the turn has becomes a hash.
* A result without content has no content key; `is_error` says that its output failed.
* Thinking goes back signed by Anthropic only, unless it came from this format, which gets it as it came.

Source: Anthropic's API reference, "Messages", tool use, tool result and thinking blocks.
"""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.messages.fields import ERRORS, NAME, THOUGHTS
from threadkeep.formats.messages.parts import block_type, own_parts, wire_parts
from threadkeep.formats.shared.arguments import object_arguments
from threadkeep.formats.shared.cache_marks import MARK
from threadkeep.formats.shared.claude import ANTHROPIC, BEDROCK, REDACTED, signer_of, thinking_blocks
from threadkeep.formats.shared.parts import native_keys, report_foreign
from threadkeep.formats.shared.reports import Context

_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")


def cleaned_id(text: str | None) -> str:
    """A call id of characters that the service takes.

    >>> cleaned_id("call:a/1"), cleaned_id("")
    ('call_a_1', 'tool_0')
    """
    return _REFUSED.sub("_", text or "")[:128] or "tool_0"


def wire_id(call: ItemEntry, used: set[str], context: Context) -> str:
    """The id of a call as it is sent: cleaned, and unique within its turn."""
    original = call.call_id or ""
    call_id = cleaned_id(original)
    if call_id in used:
        call_id = f"toolu_{hashed(original, call.position)}"
        context.repair("duplicate_call_id", "call_id", f"The call id {original!r} came before in this turn.")
    elif call_id != original:
        context.repair("call_id", "call_id", f"The call id {original!r} is sent as {call_id!r}.")
    return call_id


def tool_use(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """A call."""
    name = context.called(item, is_own=item.get("origin") == NAME)
    return _with_native(
        item, {"type": "tool_use", "id": call_id, "name": name, "input": object_arguments(item, context)}, context
    )


def _with_native(item: JsonObject, block: JsonObject, context: Context) -> JsonObject:
    """A block with the keys that its item came with, and its cache mark."""
    if item.get(MARK) is not None:
        block[MARK] = item[MARK]
    if "native" not in item:
        return block
    report_foreign(item, NAME, context, "native")
    return block | native_keys(item, NAME)


def tool_result(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What a call returned."""
    context.caller(item)
    is_own, status = item.get("origin") == NAME, item.get("status")
    block: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
    content = _content(item.get("output"), context, is_own=is_own)
    if content is not None:
        block["content"] = content
    if status in ERRORS or (is_own and status == "completed"):
        block["is_error"] = status in ERRORS
    return _with_native(item, block, context)


def _content(output: Any, context: Context, *, is_own: bool) -> Any:
    if isinstance(output, list):
        blocks = (own_parts if is_own else wire_parts)(output, "tool", context, "output")
        return blocks if is_own else blocks or None
    if is_own:
        return output
    return (output or None) if isinstance(output, str | None) else dumps(output).decode()


def thoughts(
    item: JsonObject, context: Context, *, needs_signature: bool = False, is_known: bool = False
) -> list[JsonObject]:
    """The thinking blocks of a reasoning item; what cannot be sent back is reported.

    `is_known`: it is known who made it, and that the service reads what that one has signed.
    """
    content = thinking_blocks(item)
    if item.get("origin") == NAME:
        blocks = _own_thoughts(item, content, needs_signature=needs_signature)
    elif item.get("origin") is None or signer_of(item) in ((ANTHROPIC, BEDROCK) if is_known else (ANTHROPIC,)):
        is_bytes = item.get("origin") == "converse"  # what is encrypted there is of another form
        parts = [part for part in content if not (is_bytes and part.get("type") == REDACTED)]
        blocks = [block for part in parts if (block := _thought(part))]
    else:
        blocks = []
    if len(blocks) < max(len(content), 1):
        context.loss("reasoning", "", "Reasoning was left out: the service takes only thinking that it has signed.")
    return blocks


def _own_thoughts(item: JsonObject, content: list[JsonObject], *, needs_signature: bool) -> list[JsonObject]:
    """Thinking that came from this format, as it came; one whose stream broke off has no signature yet."""
    is_whole = item.get("status") != "incomplete" and not needs_signature
    own = [block for block in content if block_type(block) in THOUGHTS and (is_whole or _thought(block))]
    return [{key: value for key, value in block.items() if value is not None} for block in own]


def _thought(block: JsonObject) -> JsonObject | None:
    """The block that can be sent; None where it has no signature."""
    if block.get("type") == "thinking" and block.get("signature"):
        return {"type": "thinking", "thinking": block.get("thinking") or "", "signature": block["signature"]}
    if block.get("type") == "redacted_thinking" and block.get("data"):
        return {"type": "redacted_thinking", "data": block["data"]}
    return None
