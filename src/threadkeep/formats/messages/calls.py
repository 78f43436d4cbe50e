"""Calls, tool results and thinking of the Messages API, one by one.

* Arguments are an object; what is none becomes ``{}``, which is reported.
* Ids are letters, digits, ``_`` and ``-``; a cleaned id that another call of the turn has becomes a hash.
* A result without content has no content key; `is_error` says that its output failed.
* Thinking goes back signed only, unless it came from this format, which gets it as it came.

Source: Anthropic's API reference, "Messages", tool use, tool result and thinking blocks.
"""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.wire import Entry
from threadkeep.formats.arguments import is_json
from threadkeep.formats.messages.content import block_type, own_parts, wire_parts
from threadkeep.formats.messages.fields import ERRORS, NAME, THOUGHTS
from threadkeep.formats.names import hashed
from threadkeep.formats.native import native_keys, report_foreign
from threadkeep.formats.reports import Context

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
    found = cleaned_id(original)
    if found in used:
        found = f"toolu_{hashed(original, call.position)}"
        context.mend("duplicate_call_id", "call_id", f"The call id {original!r} came before in this turn.")
    elif found != original:
        context.mend("call_id", "call_id", f"The call id {original!r} is sent as {found!r}.")
    return found


def tool_use(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """A call."""
    is_own = item.get("origin") == NAME
    name = item.get("name") if is_own else context.name(item.get("name"))
    found = {"type": "tool_use", "id": call_id, "name": name, "input": _input(item, context)}
    if "native" in item:
        report_foreign(item, NAME, context, "native")
        found |= native_keys(item, NAME)
    return found


def _input(item: JsonObject, context: Context) -> Any:
    """The arguments of a call as an object; a custom tool's free text is wrapped in one."""
    if item["type"] == "custom_tool_call":
        return {"input": item.get("input") or ""}
    arguments = item.get("arguments")
    value = loads(arguments) if isinstance(arguments, str) and is_json(arguments) else arguments
    if isinstance(value, dict):
        return value
    detail = f"The arguments of {item.get('name')!r} are no JSON object and were sent as an empty one."
    context.mend("malformed_arguments", "arguments", detail)
    return {}


def tool_result(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What a call returned."""
    is_own = item.get("origin") == NAME
    found: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
    content = _own_content(item.get("output"), context) if is_own else _content(item.get("output"), context)
    if content is not None:
        found["content"] = content
    status = item.get("status")
    if status in ERRORS:
        found["is_error"] = True
    elif is_own and status == "completed":
        found["is_error"] = False
    if "native" in item:
        report_foreign(item, NAME, context, "native")
        found |= native_keys(item, NAME)
    return found


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
        found = [_own_thought(block) for block in content if _is_whole(block, item)]
    else:
        found = [block for one in content if item.get("origin") is None and (block := _thought(one)) is not None]
    if len(found) < max(len(content), 1):
        context.lose("reasoning", "", "Reasoning was left out: the service takes only thinking that it has signed.")
    return found


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
