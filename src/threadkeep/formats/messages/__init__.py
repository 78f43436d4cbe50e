"""Anthropic's Messages API."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format
from threadkeep.formats.base import Signs

FORMAT: Final = Format(
    name="messages",
    package=__name__,
    signs=Signs(turns="messages", body={"content": list}, event_types=("message_", "content_block_")),
)
