"""Teaches Griffe, which reads the docstrings for the site, two of our conventions."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SEVERAL = re.compile(r"^(?P<indent> +)(?P<names>\w+(?:, \w+)+):(?P<text>.*(?:\n(?P=indent) +.*)*)", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Docstrings(Extension):
    """Several names may share a description (`a, b: text`), and examples need no heading of their own."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute that was read."""
        if obj.docstring is not None:
            text = SEVERAL.sub(_one_line_each, obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub("```pycon\n\\g<0>\n```", text)


def _one_line_each(several: re.Match[str]) -> str:
    names = several["names"].split(", ")
    return "\n".join(f"{several['indent']}{name}:{several['text']}" for name in names)
