"""Generates the page All names of the reference; ``make docs`` writes it.

The other pages of the reference are made from docstrings when the site is built, and say little where the sources are
read. This one lists all public names and methods, each with the first sentence about it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

_PAGES: Final = Path(__file__).parents[1] / "reference"
_DIRECTIVE: Final = re.compile(r"^::: (threadkeep\S+)", re.MULTILINE)
_LISTED: Final = re.compile(r"^\| \[(.+?)\]\((\w[\w-]*\.md)\)", re.MULTILINE)
_SENTENCE: Final = re.compile(r".*?\.(?=\s|$)", re.DOTALL)
_OPTIONAL: Final = "threadkeep.contrib."  # what needs packages that may be missing
_INTRODUCTION: Final = """# All names

Every public name with its methods and the first sentence about it. `make docs` generates this page from the docstrings,
which the other pages of the [reference](index.md) show in full on the site, and editors and `help()` everywhere. The
asyncio classes have the methods of the others, as coroutines.
"""


def page() -> str:
    """The page."""
    titles = _LISTED.findall((_PAGES / "index.md").read_text())
    return "\n".join([_INTRODUCTION, *filter(None, (_section(title, _PAGES / name) for title, name in titles))])


def _section(title: str, path: Path) -> str:
    names = [name for name in _DIRECTIVE.findall(path.read_text()) if not name.startswith(_OPTIONAL)]
    rows = [row for name in names for row in _rows(name)]
    if not rows:
        return ""
    return "\n".join([f"## {title}", "", f"[In full]({path.name})", "", "| Name | |", "| --- | --- |", *rows, ""])


def _rows(name: str) -> Iterator[str]:
    module, _, short = name.rpartition(".")
    found = getattr(importlib.import_module(module), short)
    text = inspect.getdoc(found) if callable(found) and hasattr(found, "__name__") else None
    shown = name.removeprefix("threadkeep.")
    yield _row(f"{shown}{_parameters(found) if inspect.isfunction(found) else ''}", text)
    if inspect.isclass(found) and not short.startswith("Async"):
        for member, value in vars(found).items():
            kind = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not member.startswith("_") and inspect.isfunction(kind):
                yield _row(f"{shown}.{member}{_parameters(kind)}", inspect.getdoc(kind))
            elif not member.startswith("_") and isinstance(value, property | cached_property):
                yield _row(f"{shown}.{member}", inspect.getdoc(value))


def _parameters(function: Any) -> str:
    """The names of its parameters: those that can be left out have an equals sign."""
    shown: list[str] = []
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    is_keyword = False
    for name, parameter in inspect.signature(function).parameters.items():
        if name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            shown.append("*")
        is_keyword |= parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        is_needed = parameter.kind in stars or parameter.default is parameter.empty
        shown.append(f"{stars.get(parameter.kind, '')}{name}{'' if is_needed else '='}")
    return f"({', '.join(shown)})"


def _row(name: str, text: str | None) -> str:
    words = " ".join((text or "").split())
    sentence = _SENTENCE.match(words)
    first = (sentence[0] if sentence else words).replace("|", r"\|")
    return f"| `{name}` | {first.replace('``', '`')} |"


if __name__ == "__main__":
    sys.stdout.write(page())
