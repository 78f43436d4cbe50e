"""Wire formats: pure functions between conversations and the JSON of providers.

>>> get_format("chat_completion").name
'chat_completion'
"""

from __future__ import annotations

from typing import Final

from threadkeep.domain.wire import FORMATS, Format, get_format
from threadkeep.formats.wire_format import WireFormat

__all__ = ["FORMATS", "NAMES", "Format", "WireFormat", "get_format"]

NAMES: Final = ("open_responses", "chat_completion", "messages", "converse", "gemini")

FORMATS.update({name: WireFormat(name) for name in NAMES})
