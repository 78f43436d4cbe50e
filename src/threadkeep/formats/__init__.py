"""Wire formats by name: pure functions between conversations and the JSON of providers.

Importing this loads none of them; a format is loaded when it is first requested. A new format is a package of its own
in this folder, with a `FORMAT` in its ``__init__``, and one line in `FormatName`; docs/architecture.md lists what else
has a row for each format.

>>> get_format("chat_completion").name
'chat_completion'
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final, Literal, get_args

from threadkeep.domain import formats as table
from threadkeep.domain.formats import Format

__all__ = ["NAMES", "Format", "FormatName", "get_format"]

FormatName = Literal[
    "open_responses",
    "chat_completion",
    "messages",
    "converse",
    "gemini",
    "interactions",
    "pydantic_ai",
    "ui_messages",
    "ag_ui",
]
"""The name of a wire format."""
NAMES: Final[tuple[FormatName, ...]] = get_args(FormatName)


def get_format(name: FormatName) -> Format:
    """Return the wire format with that name.

    Raises:
        UnknownFormat: there is no format with that name.
    """
    return table.get_format(name)


def _load(name: str) -> Format:
    wire: Format = import_module(f"{__name__}.{name}").FORMAT
    return wire


table.set_format_name(FormatName)
for _name in NAMES:
    table.register_format(_name, partial(_load, _name))
