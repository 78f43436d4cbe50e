"""The formats by what they have."""

from __future__ import annotations

from threadkeep.formats import NAMES, get_format

# Formats that providers answer in; nothing is asked or recorded in the others
SPOKEN = tuple(name for name in NAMES if get_format(name).api is not None)
