"""Identifiers: 64-bit keys inside, UUIDv7 outside."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from typing import Final

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
    one. So they are as different from those of others as ever, but no longer in the order of time.
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
