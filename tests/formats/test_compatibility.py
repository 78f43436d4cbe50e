"""The compatibility page says what the code does today."""

from __future__ import annotations

from pathlib import Path

import pytest

import compatibility_page
from threadkeep.domain.content import PARTS
from threadkeep.domain.items import ITEMS
from threadkeep.domain.options import OPTIONS
from threadkeep.formats import NAMES
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_page_is_fresh() -> None:
    assert compatibility_page.page() == PAGE.read_text(), "the page is out of date: run make docs"


@pytest.mark.share(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_format_says_what_becomes_of_every_option(name: str) -> None:
    section = compatibility_page.page().split(f"### `{name}`\n")[1].split("##")[0]
    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == sorted(OPTIONS)


def test_every_type_and_every_code_stands_on_the_page() -> None:
    text = compatibility_page.page()
    words = [*ITEMS, *PARTS, *LOSSES, *REPAIRS]
    assert [word for word in words if f"| `{word}`" not in text] == []


def test_cells_tell_sent_things_from_lost_ones() -> None:
    rows = [line.split(" | ") for line in compatibility_page.page().splitlines()]
    cells = {row[0]: row[1:] for row in rows if len(row) == len(NAMES) + 1}
    assert cells["| user `message`"] == ["sent"] * (len(NAMES) - 1) + ["sent |"]
    assert all("provider_item" in cell for cell in cells["| `provider_item` of another format"])
    assert all("missing_output" in cell for cell in cells["| `function_call` without its output"])
