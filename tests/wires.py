"""The formats by what they have."""

from __future__ import annotations

from threadkeep.formats import NAMES, get_format

# Formats that providers answer in; nothing is asked, recorded or streamed in the others
SPOKEN = tuple(name for name in NAMES if get_format(name).has_streams and get_format(name).sent_by)
