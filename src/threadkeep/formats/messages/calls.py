"""Calls, tool results and thinking of the Messages API, one by one.

* Arguments are an object; others become ``{}``, which is reported.
* Ids are letters, digits, ``_`` and ``-``; a cleaned id that another call of the turn has becomes a hash.
* A result without content has no content key; `is_error` says that its output failed.
* Thinking goes back signed only, unless it came from this format, which gets it as it came.

Source: Anthropic's API reference, "Messages", tool use, tool result and thinking blocks.
"""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.messages.fields import ERRORS, NAME, THOUGHTS
from threadkeep.formats.messages.parts import block_type, own_parts, wire_parts
from threadkeep.formats.shared.arguments import is_json
from threadkeep.formats.shared.names import hashed
from threadkeep.formats.shared.parts import native_keys, report_foreign
from threadkeep.formats.shared.reports import Context

LONGEST_ID: Final = 128
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAMELESS: Final = "tool_0"


def cleaned_id(text: str | None) -> str:
    """A call id of characters that the service takes.

    >>> cleaned_id("call:a/1"), cleaned_id("")
    ('call_a_1', 'tool_0')
    """
    return _REFUSED.sub("_", text or "")[:LONGEST_ID] or _NAMELESS


def wire_id(call: Entry, used: set[str], context: Context) -> str:
    """The id of a call as it is sent: cleaned, and another than those of its turn."""
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
    is_own = item.get("origin") == NAME
    name = item.get("name") if is_own else context.name(item.get("name"))
    block = {"type": "tool_use", "id": call_id, "name": name, "input": _input(item, context)}
    if "native" in item:
        report_foreign(item, NAME, context, "native")
        block |= native_keys(item, NAME)
    return block


def _input(item: JsonObject, context: Context) -> Any:
    """The arguments of a call as an object; a custom tool's free text is wrapped in one."""
    if item["type"] == "custom_tool_call":
        return {"input": item.get("input") or ""}
    arguments = item.get("arguments")
    value = loads(arguments) if isinstance(arguments, str) and is_json(arguments) else arguments
    if isinstance(value, dict):
        return value
    detail = f"The arguments of {item.get('name')!r} are not a JSON object and were sent as an empty one."
    context.repair("malformed_arguments", "arguments", detail)
    return {}


def tool_result(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What a call returned."""
    is_own = item.get("origin") == NAME
    block: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
    content = _own_content(item.get("output"), context) if is_own else _content(item.get("output"), context)
    if content is not None:
        block["content"] = content
    status = item.get("status")
    if status in ERRORS:
        block["is_error"] = True
    elif is_own and status == "completed":
        block["is_error"] = False
    if "native" in item:
        report_foreign(item, NAME, context, "native")
        block |= native_keys(item, NAME)
    return block


def _content(output: Any, context: Context) -> str | list[JsonObject] | None:
    if isinstance(output, list):
        return wire_parts(output, "tool", context, "output") or None
    if output is None or isinstance(output, str):
        return output or None
    return dumps(output).decode()


def _own_content(output: Any, context: Context) -> Any:
    return own_parts(output, "tool", context, "output") if isinstance(output, list) else output


def thoughts(item: JsonObject, context: Context) -> list[JsonObject]:
    """The thinking blocks of a reasoning item; what cannot be sent back is reported."""
    content = [block for block in item.get("content") or () if isinstance(block, dict)]
    if item.get("origin") == NAME:
        blocks = [_own_thought(block) for block in content if _is_whole(block, item)]
    else:
        blocks = [block for part in content if item.get("origin") is None and (block := _thought(part)) is not None]
    if len(blocks) < max(len(content), 1):
        context.loss("reasoning", "", "Reasoning was left out: the service takes only thinking that it has signed.")
    return blocks


def _is_whole(block: JsonObject, item: JsonObject) -> bool:
    """Whether a block of this format can go back; one whose stream broke off has no signature yet."""
    return block_type(block) in THOUGHTS and (item.get("status") != "incomplete" or _thought(block) is not None)


def _own_thought(block: JsonObject) -> JsonObject:
    return {key: value for key, value in block.items() if value is not None}


def _thought(block: JsonObject) -> JsonObject | None:
    if block.get("type") == "thinking" and block.get("signature"):
        return {"type": "thinking", "thinking": block.get("thinking") or "", "signature": block["signature"]}
    if block.get("type") == "redacted_thinking" and block.get("data"):
        return {"type": "redacted_thinking", "data": block["data"]}
    return None
