"""Identifiers: 64-bit keys inside, UUIDv7 outside; items and responses have their own ids, or derived ones.

OpenAI refuses an item whose id does not begin with the prefix of its type, and takes letters and digits after it, 64
characters in all. A derived id keeps to that, and nothing of it is stored: it is the prefix, the 32 hexadecimal digits
of the conversation's id, and the position in decimal. Responses have such ids, too, with their number.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from hashlib import blake2b
from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import NotFound, shown

MAX_KEY: Final = 2**63 - 1
CONVERSATION_PREFIX: Final = "conv_"
_PUBLIC_ID: Final = re.compile(rf"{CONVERSATION_PREFIX}([0-9a-f]{{32}})")  # one id has one spelling
EPOCH_MS: Final = 1_735_689_600_000  # 2025-01-01, so that 40 bits of milliseconds last until 2059
_NODE_BITS: Final = 14
_COUNTER_BITS: Final = 9
_TICKS: Final = 1 << (40 + _COUNTER_BITS)  # of which a millisecond has as many as the counter has values


class KeyMaker:
    """Makes positive 64-bit keys that increase with time and that no other process makes.

    40 bits of milliseconds, 14 bits of a random node number (another one in every process, never 0), 9 bits of a
    counter; when the counter is used up within a millisecond, the next millisecond is borrowed.

    A clock that shows a time outside of 2025 to 2059 is not asked: keys count on from the last one, or from a random
    one. So they stay different from the keys of other processes, but no longer in the order of time.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Take another node number: in a new process, which may have inherited a lock that is held for ever."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._node = 1 + secrets.randbelow((1 << _NODE_BITS) - 1)
        now = _ticks()
        self._last = now - 1 if 0 <= now < _TICKS else secrets.randbelow(_TICKS)

    def __call__(self) -> int:
        """The next key."""
        with self._lock:
            if self._pid != os.getpid():
                self.renew()
            now, following = _ticks(), self._last + 1
            self._last = max(now, following) if now < _TICKS else following
            milliseconds, counter = divmod(self._last % _TICKS, 1 << _COUNTER_BITS)
            return (milliseconds << (_NODE_BITS + _COUNTER_BITS)) | (self._node << _COUNTER_BITS) | counter


def _ticks() -> int:
    return (time.time_ns() // 1_000_000 - EPOCH_MS) << _COUNTER_BITS


new_key: Final = KeyMaker()
if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(after_in_child=new_key.renew)


def new_public_id() -> bytes:
    """A new UUIDv7 (RFC 9562) as 16 bytes: sorts by time of creation; times that it cannot hold wrap around."""
    milliseconds = time.time_ns() // 1_000_000 % (1 << 48)
    value = (milliseconds << 80) | (0x7 << 76) | (secrets.randbits(12) << 64) | (0b10 << 62) | secrets.randbits(62)
    return value.to_bytes(16, "big")


def public_id_text(raw: bytes) -> str:
    """The id that users see: ``conv_`` and 32 hexadecimal digits."""
    return CONVERSATION_PREFIX + raw.hex()


def public_id_bytes(text: object) -> bytes:
    """The stored form of an id that `public_id_text` made; NotFound where the text cannot be the id of anything."""
    if isinstance(text, str) and (found := _PUBLIC_ID.fullmatch(text)):
        return bytes.fromhex(found[1])
    raise NotFound(
        f"{shown(text)} is not the id of a conversation: "
        f"ids look like {CONVERSATION_PREFIX}0197… (32 hexadecimal digits).",
        hint="For an id of your own use find_conversation(external_id=...).",
    )


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
    """The id that an item object has of its own; a reference only has the id of another item."""
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


def short_hash(text: str | None) -> bytes | None:
    """What the index has of an id of any length."""
    return None if text is None else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
