"""The page about the Python API names everything that is public."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import threadkeep
from threadkeep.domain.options import OPTIONS

PAGE = Path(__file__).parent.parent.joinpath("docs/api.md").read_text()
WORDS = {word for code in re.findall(r"`([^`]+)`", PAGE) for word in re.findall(r"\w+", code)}


def test_every_public_name_stands_in_the_page() -> None:
    assert {name for name in threadkeep.__all__ if not name.startswith("_")} - WORDS == set()


@pytest.mark.parametrize("name", ["Store", "Conversation", "Session", "ToolRegistry"])
def test_every_public_method_and_attribute_stands_in_the_page(name: str) -> None:
    found: Any = getattr(threadkeep, name)
    assert {member for member in dir(found) if not member.startswith("_")} - WORDS == set()


def test_every_option_stands_in_the_page() -> None:
    assert OPTIONS.keys() - WORDS == set()


def test_the_page_names_no_method_that_does_not_exist() -> None:
    """Of stores and conversations; a renamed method must not live on here."""
    for name in ("Store", "Conversation"):
        section = PAGE.partition(f"## `{name}`")[2].partition("\n## ")[0]
        methods = re.findall(r"`(\w+)\(", "\n".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE)))
        assert len(methods) > 15
        assert [method for method in methods if not hasattr(getattr(threadkeep, name), method)] == []


def test_the_page_names_what_the_module_of_the_schema_has() -> None:
    (row,) = re.findall(r"^\| `schema` \| (.*?) \|$", PAGE, re.MULTILINE)
    named = {re.findall(r"\w+", code.removeprefix("schema."))[0] for code in re.findall(r"`([^`]+)`", row)}
    assert named == set(threadkeep.schema.__all__)
