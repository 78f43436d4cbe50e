"""Wire formats: pure functions between conversations and the JSON of providers.

>>> get_format("chat_completion").name
'chat_completion'
"""

from __future__ import annotations

from threadkeep.domain.formats import Format
from threadkeep.formats.registry import NAMES, FormatName, get_format

__all__ = ["NAMES", "Format", "FormatName", "get_format"]
