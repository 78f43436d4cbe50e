"""Ids of stored items and responses: their own, or derived ones, and what these name.

OpenAI refuses an item whose id does not begin with the prefix of its type, and takes letters and digits after it, 64
characters in all. A derived id keeps to that, and nothing of it is stored: it is the prefix, the 32 hexadecimal digits
of the conversation's id, and the position in decimal. Responses have such ids, too, with their number.
"""

from __future__ import annotations

import re
from typing import Final

from threadkeep.domain.ids import CONVERSATION_PREFIX
from threadkeep.domain.jsontext import JsonObject

RESPONSE: Final = "resp"  # the prefix of responses
_RESPONSE: Final = re.compile(r"resp_([0-9a-f]{32})(0|[1-9][0-9]{0,9})")
_DERIVED: Final = re.compile(r"[a-z]{2,5}_([0-9a-f]{32})(0|[1-9][0-9]{0,18})")  # one id has one spelling


# item type -> prefix of its derived ids
PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
    "compaction": "cmp",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "file_search_call": "fs",
    "web_search_call": "ws",
    "image_generation_call": "ig",
    "code_interpreter_call": "ci",
    "computer_call": "cu",
    "computer_call_output": "cuo",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "configuration_update": "cfg",
    "program": "prog",
    "program_output": "progo",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
    "mcp_call": "mcp",
    "item_reference": "ref",
}
OTHER: Final = "item"  # the prefix of all other types


def derived_id(kind: str, conversation_id: str, position: int) -> str:
    """The id of an item that has none of its own.

    >>> derived_id("message", "conv_019a0000000070008000000000000000", 12)
    'msg_019a000000007000800000000000000012'
    """
    return f"{PREFIXES.get(kind, OTHER)}_{conversation_id[len(CONVERSATION_PREFIX) :]}{position}"


def own_id(item: JsonObject) -> str | None:
    """The id that an item object has of its own; that of a reference is the id of another item."""
    if item["type"] == "item_reference":
        return None
    if item["type"] == "provider_item" and item.get("format") == "open_responses" and "id" not in item:
        payload = item.get("payload")
        item = payload if isinstance(payload, dict) else {}
    found = item.get("id")
    return found if isinstance(found, str) and found else None


def place_of(item_id: str) -> tuple[str, int] | None:
    """The conversation and the position that a derived id names; None for an id of another form."""
    found = _DERIVED.fullmatch(item_id)
    return None if found is None else (CONVERSATION_PREFIX + found[1], int(found[2]))


def response_id(conversation_id: str, number: int) -> str:
    """The id of a stored response."""
    return f"{RESPONSE}_{conversation_id[len(CONVERSATION_PREFIX) :]}{number}"


def response_place(text: str) -> tuple[str, int] | None:
    """The conversation and the number that the id of a stored response names; None for an id of another form."""
    found = _RESPONSE.fullmatch(text)
    return None if found is None else (CONVERSATION_PREFIX + found[1], int(found[2]))
