"""Wire formats: pure functions between conversations and the JSON of providers."""

from threadkeep.domain.formats import Format
from threadkeep.formats.registry import NAMES, FormatName, get_format

__all__ = ["NAMES", "Format", "FormatName", "get_format"]
