"""Generates the page Session options of the documentation from their table; ``make docs`` writes it."""

from __future__ import annotations

import sys
from typing import Final

from threadkeep.domain.options import OPTIONS

_INTRODUCTION: Final = """# Session options

The options of conversations and of `Session`: the request fields of the Responses API, `dialect` and `extra`. They are
keyword arguments (`create_conversation(temperature=0.2)`, `update(temperature=None)`) and attributes
(`conversation.temperature`); only `user` is not an attribute, because `user()` adds a message: read `settings["user"]`.
[Compatibility](compatibility.md) shows how each format sends them. `make docs` generates this page from the code.

| Option | Meaning | In other APIs |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page in Markdown."""
    rows = ((name, row.__doc__, ", ".join(f"`{alias}`" for alias in row.aliases)) for name, row in OPTIONS.items())
    return _INTRODUCTION + "".join(f"| `{name}` | {doc} | {aliases} |\n" for name, doc, aliases in sorted(rows))


if __name__ == "__main__":
    sys.stdout.write(page())
